/* Output files of the tool, written whole or not at all; and what their formats share. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct vp_out {
    FILE *file;
    const char *command, *path; /* command: for messages; path: NULL for standard output */
    char *other;                /* the name under which it is written; NULL: `path` is written to directly */
    FILE *plain;                /* where compressed data goes; NULL: nothing is compressed */
    pid_t gzip;                 /* the process that compresses, in a build without zlib */
};

/* Returns 2, with a message of wrong usage, if the output file is one of the input files; else 0. */
int vp_out_spare(const char *command, const char *output, char *const *inputs, int count);

/* Begins a file, under another name in the same folder, unless `path` is no regular file. It is gzipped if its name
 * ends in .gz. If a signal ends the command, nothing of it is left. Returns 0, or -1 with a message. One file at a
 * time. */
int vp_out_open(struct vp_out *out, const char *command, const char *path);
/* Gzips what is written from now on, whatever the name is. Returns 0, or -1 with a message on stderr. */
int vp_out_compress(struct vp_out *out);
/* Ends the file: with `keep` it gets its name, else it is removed. Returns 0, or -1 with a message; also 0 if there was
 * nothing to keep. */
int vp_out_close(struct vp_out *out, bool keep);

/* Sets what is printed on stderr if a signal ends the command from now on; "": nothing. */
void vp_out_last_words(const char *words);

/* Writes a JSON string that may also stand in a script in HTML. Invalid UTF-8 becomes U+FFFD. */
void vp_out_string(FILE *file, const char *text);

/* Writes bytes as base64. */
struct vp_base64 {
    FILE *file;
    uint32_t bits;
    unsigned count; /* bytes in `bits` */
};
void vp_base64_byte(struct vp_base64 *b, uint8_t byte);
/* Writes an unsigned number, seven bits per byte, the lowest first; and a signed one, mapped to an unsigned one. */
void vp_base64_number(struct vp_base64 *b, uint64_t n);
void vp_base64_signed(struct vp_base64 *b, int64_t n);
void vp_base64_end(struct vp_base64 *b);
