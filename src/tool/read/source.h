/* Files that are read line by line, gzipped or plain. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct vp_source {
    FILE *file;
    void *archive; /* zlib's file; NULL: not compressed, or read through the program gzip */
    pid_t gzip;    /* 0: none */
    char fault[96];
};

/* Opens a file to be read. 0 or a negative errno. */
int vp_source_open(struct vp_source *s, const char *path);
/* Peeks at the first bytes of a file or a pipe, which can still be read afterwards. Returns how many, at most `room`;
 * of a pipe those that have come so far, at least one except at its end. -1: it cannot be peeked at. `path` stays as it
 * is. */
ssize_t vp_source_peek(const char *path, char *head, size_t room);
/* Opens the file for reading, also after vp_source_peek(). Returns a descriptor, or -1 with errno. */
int vp_source_fd(const char *path);
/* Reads the first line, by which a reader recognizes the format, but no more than fits: the input may be endless, such
 * as /dev/zero, or be one long line. The newline is not included; `*ended` says if there was one. Returns the length,
 * or -1 at the end. */
ssize_t vp_source_head(struct vp_source *s, char *head, size_t room, bool *ended);
/* Reads the next line, with its newline, into memory that grows; the last line may have none. A zero byte follows it.
 * Returns the length; 0 at the end; -E2BIG: it is longer than `most` bytes, which were read, and more remains; -ENOMEM.
 */
ssize_t vp_source_line(struct vp_source *s, char **line, size_t *room, size_t most);
/* Closes the source. Returns what was wrong with the file itself, or NULL; valid until the source is opened again. */
const char *vp_source_close(struct vp_source *s);
