/* Descriptors of ours that stay open. The program may close them, as one does that closes all but its own, and have a
 * file or a connection under their number since: then they are not to be written to, taken from, or closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct vp_descriptor {
    int fd; /* -1: none */
    dev_t dev;
    ino_t ino;
};

/* Remembers what is behind `fd`, which is open. */
struct vp_descriptor vp_descriptor_of(int fd);

/* `fd`; or, with that closed, what was wrong with it. */
int vp_descriptor_unless(int err, int fd);

/* What can be read of it, up to `room` bytes: how many, or a negative errno. */
ssize_t vp_descriptor_read(int fd, char *text, size_t room);

/* Is it still behind that number? Another thread may close it at any time. */
bool vp_descriptor_is_ours(const struct vp_descriptor *descriptor);

/* Closes what is ours, and nothing of the program's. 0 or a negative errno. */
int vp_descriptor_close(struct vp_descriptor *descriptor);

/* Where the program's standard descriptors are closed, ours must not become one of them: what the program writes there
 * is for nobody. The same under a higher number then, or a negative errno, as in errno; `fd` may be one already. */
int vp_descriptor_above_standard(int fd);

/* Opens the file anew by its path, which leads to the very same one still: 0, or a negative errno. */
int vp_descriptor_reopen(struct vp_descriptor *descriptor, const char *path, int flags);
