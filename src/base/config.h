/* The configuration file: options for all programs, and for some by name.
 *
 *     # a comment
 *     stats = /var/log/vpool/%p.json     for every program; as VPOOL_STATS
 *     [python3 train*.py]                for programs with these names, up to the next such line
 *     limit = 80%
 *
 * Later lines take precedence. The parser of values is that of the environment variables (options.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define VP_CONFIG_FILE "/etc/vpool.conf"

enum { VP_CONFIG_MOST = 16384, VP_CONFIG_NAMES = 4, VP_CONFIG_NAME = 256 /* NAME_MAX and a zero */ };

/* The names of a program; unused ones are "". */
struct vp_program {
    char name[VP_CONFIG_NAMES][VP_CONFIG_NAME];
};

/* The names of this process: as it was called, its file's, and under an interpreter the script's. Allocates nothing. */
void vp_program_names(struct vp_program *out);

/* Does a name of the program match the pattern? `*` stands for any letters, `?` for one. */
bool vp_config_matches(const char *pattern, size_t length, const struct vp_program *program);

struct vp_config_reader {
    /* NULL: report all settings, whatever the program. */
    const struct vp_program *program;
    void *context;
    /* Called for each setting for the program, in the file's order. Key and value point into the text,
     * zero-terminated. */
    void (*setting)(void *context, unsigned line, const char *key, const char *value);
    /* Called for each line that is neither a setting nor anything else allowed. */
    void (*wrong)(void *context, unsigned line, const char *why);
};

/* Reads a text, which it modifies, and which must outlive pointers that the callbacks keep. */
void vp_config_read(char *text, const struct vp_config_reader *reader);

/* Loads a file and puts a zero behind it. Returns the bytes read, at most VP_CONFIG_MOST - 1, or a negative errno:
 * -EFBIG: too long; -EINVAL: not a plain file, or with a zero byte in it. */
int vp_config_load(const char *path, char text[VP_CONFIG_MOST]);
/* What one of those errors means. */
const char *vp_config_error(int err);
