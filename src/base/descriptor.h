/* Our own long-lived file descriptors. The program may close them (some close all but their own), and the number may
 * then belong to a file or connection of the program's, which we must not write to, read from, or close. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct vp_descriptor {
    int fd; /* -1: none */
    dev_t dev;
    ino_t ino;
};

/* Remembers which file is behind `fd`, which is open. */
struct vp_descriptor vp_descriptor_of(int fd);

/* Returns `fd` if `err` is 0; else closes it and returns `err`. */
int vp_descriptor_unless(int err, int fd);

/* Reads up to `room` bytes. Returns their number or a negative errno. */
ssize_t vp_descriptor_read(int fd, char *text, size_t room);

/* Is the file behind the number still ours? Another thread may close it at any time. */
bool vp_descriptor_is_ours(const struct vp_descriptor *descriptor);

/* Closes the descriptor if it is still ours. 0 or a negative errno. */
int vp_descriptor_close(struct vp_descriptor *descriptor);

/* If the program has closed its standard descriptors, ours must not take their numbers: the program's output would go
 * there. Moves `fd` above them if need be, and returns its number, or a negative errno (also set). A negative `fd` is
 * returned as it is. */
int vp_descriptor_above_standard(int fd);

/* Opens the file again by its path, if that still leads to the same file: 0, or a negative errno. */
int vp_descriptor_reopen(struct vp_descriptor *descriptor, const char *path, int flags);
