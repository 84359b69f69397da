/* The configuration file: options for all programs, and for some by their names.
 *
 *     # a comment
 *     stats = /var/log/vpool/%p.json     for every program; VPOOL_STATS means the same
 *     [python3 train*.py]                for programs of these names, up to the next such line
 *     limit = 80%
 *
 * What stands later counts. The values go through the same parser as the environment's (options.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define VP_CONFIG_FILE "/etc/vpool.conf"

enum { VP_CONFIG_MOST = 16384, VP_CONFIG_NAMES = 4, VP_CONFIG_NAME = 256 /* NAME_MAX and a zero */ };

/* Names by which a program goes; the unused ones are "". */
struct vp_program {
    char name[VP_CONFIG_NAMES][VP_CONFIG_NAME];
};

/* This process's: the name that it was called by, its file's, under an interpreter the script's. Allocates nothing. */
void vp_program_names(struct vp_program *out);

/* Is a name of the program like the pattern? `*` stands for any letters, `?` for one. */
bool vp_config_matches(const char *pattern, size_t length, const struct vp_program *program);

struct vp_config_reader {
    /* NULL: the program's name does not matter, and all settings are told. */
    const struct vp_program *program;
    void *context;
    /* Each setting for the program, in the file's order. Key and value are parts of the text, made strings in it. */
    void (*setting)(void *context, unsigned line, const char *key, const char *value);
    /* Each line that is none. */
    void (*wrong)(void *context, unsigned line, const char *why);
};

/* Reads a text, which it changes and which must outlive what is kept of it. */
void vp_config_read(char *text, const struct vp_config_reader *reader);

/* Loads a file. The bytes read, of at most VP_CONFIG_MOST - 1, and a zero behind them; or a negative errno: -EFBIG, it
 * is longer; -EINVAL, it is no plain file, or has a zero byte in it. */
int vp_config_load(const char *path, char text[VP_CONFIG_MOST]);
/* What one of those errors means. */
const char *vp_config_error(int err);
