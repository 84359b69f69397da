/* Descriptors of ours that stay open. The program may close them, as one does that closes all but its own, and have a
 * file or a connection under their number since: then they are not to be written to, taken from, or closed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_BASE_DESCRIPTOR_H
#define VP_BASE_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/types.h>

struct vp_descriptor {
    int fd; /* -1: none */
    dev_t dev;
    ino_t ino;
};

/* Remembers what is behind `fd`, which is open. */
struct vp_descriptor vp_descriptor_of(int fd);

/* Is it still behind that number? Another thread may close it at any time. */
bool vp_descriptor_is_ours(const struct vp_descriptor *descriptor);

/* Closes what is ours, and nothing of the program's. 0 or a negative errno. */
int vp_descriptor_close(struct vp_descriptor *descriptor);

/* Opens the file anew by its path, which leads to the very same one still: 0, or a negative errno. */
int vp_descriptor_reopen(struct vp_descriptor *descriptor, const char *path, int flags);

#endif
