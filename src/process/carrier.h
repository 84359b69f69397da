/* Carries bytes between a device and ordinary host memory, as fast as the machine can: through a ring of pinned memory,
 * with a few threads that empty or fill it. Nothing of it outlives the call but what the caller keeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/crew.h"
#include "memory/sleep.h"

enum { VP_CARRIER_SLOTS = 4 };

struct vp_carrier {
    const struct vp_driver *drv;
    struct vp_entered entered;
    CUstream stream;
    CUevent event[VP_CARRIER_SLOTS];
    char *ring;
    size_t slot; /* bytes of each part of the ring */
    struct vp_crew crew;
};

/* For `bytes` of the context's device in all. 0, -ENOMEM or -EIO. */
int vp_carrier_open(struct vp_carrier *c, const struct vp_driver *drv, const struct vp_context *ctx, size_t bytes);
/* Copies all spans, one behind the other, to the host, or back; a span without address keeps its place, and is passed
 * over. 0, -ETIMEDOUT or -EIO. */
int vp_carrier_run(struct vp_carrier *c, const struct vp_span *spans, size_t count, char *host, bool out);
void vp_carrier_close(struct vp_carrier *c);

/* Host memory for contents. */
struct vp_arena {
    char *at;
    size_t bytes; /* of the mapping; 0: none */
    bool in_file; /* one that has no name any more, nor a descriptor, which the program might close */
};

/* At least so many bytes: what is there already, new memory, or a new file of that name (NULL: none), which must not
 * exist. 0, -ENOMEM: the machine, or the group of processes, has not so much; or another errno of the file's. */
int vp_arena_take(struct vp_arena *arena, size_t bytes, const char *file);
/* Its contents are not wanted any more. A file goes. Memory may be had by the system, else by the next take. */
void vp_arena_ease(struct vp_arena *arena);
