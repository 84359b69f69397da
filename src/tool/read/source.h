/* Files that are read line by line, gzipped or plain. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct vp_source {
    FILE *file;
    void *archive; /* zlib's; NULL: plain, or read through the program gzip */
    pid_t gzip;    /* 0: none */
    char fault[96];
};

/* 0 or a negative errno. */
int vp_source_open(struct vp_source *s, const char *path);
/* The first bytes of a file or a pipe, which are there to be read all the same: how many, at most `room`; of a pipe
 * those that have come so far, one at least but at its end. -1: they cannot be told beforehand. `path` stays as it is.
 */
ssize_t vp_source_peek(const char *path, char *head, size_t room);
/* Opens it to be read, after such a look, too: a descriptor, or -1 with errno. */
int vp_source_fd(const char *path);
/* Its first line, by which a reader knows what it is, and no more than fits: what is endless, such as /dev/zero, or one
 * line as a whole, is not taken in for that. Without the newline, which *ended tells of; the length, or -1 at the end.
 */
ssize_t vp_source_head(struct vp_source *s, char *head, size_t room, bool *ended);
/* The next line, with its newline, in memory that grows; at the end without one. How long it is; 0 at the end; -E2BIG:
 * it is longer than `most` bytes, of which those are told, and more is to be read; -ENOMEM. A zero byte stands behind
 * it. */
ssize_t vp_source_line(struct vp_source *s, char **line, size_t *room, size_t most);
/* What was wrong with the file as such, or NULL; good until the source is opened anew. */
const char *vp_source_close(struct vp_source *s);
