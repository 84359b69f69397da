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
    const char *command, *path; /* for messages; path NULL: standard output */
    char *other;                /* the name under which it is written; NULL: what is there is written to */
    FILE *plain;                /* what is compressed goes there; NULL: nothing is */
    pid_t gzip;                 /* that compresses, in a build without zlib */
};

/* Is the file that is to be written one of those that are read? It is told as wrong usage then, and 2; else 0. */
int vp_out_spare(const char *command, const char *output, char *const *inputs, int count);

/* Begins a file: under another name in the same folder, unless `path` is something else than a file; gzipped, if its
 * name ends in .gz. A signal that ends the command leaves nothing of it. 0, or -1 told on stderr. One at a time. */
int vp_out_open(struct vp_out *out, const char *command, const char *path);
/* What is written from now on is gzipped, whatever the name. 0, or -1 told on stderr. */
int vp_out_compress(struct vp_out *out);
/* Ends it: with `keep` it gets its name, else nothing is left. 0, or -1 told on stderr; 0 too if there was nothing to
 * keep. */
int vp_out_close(struct vp_out *out, bool keep);

/* What is told on stderr if a signal ends the command from now on; "": nothing any more. */
void vp_out_last_words(const char *words);

/* A JSON string, fit for a script in HTML too; what is no UTF-8 is U+FFFD there. */
void vp_out_string(FILE *file, const char *text);

/* Bytes as base64. */
struct vp_base64 {
    FILE *file;
    uint32_t bits;
    unsigned count; /* bytes in `bits` */
};
void vp_base64_byte(struct vp_base64 *b, uint8_t byte);
/* An unsigned number, seven bits a byte, the lowest first; and a signed one, folded onto the unsigned. */
void vp_base64_number(struct vp_base64 *b, uint64_t n);
void vp_base64_signed(struct vp_base64 *b, int64_t n);
void vp_base64_end(struct vp_base64 *b);
