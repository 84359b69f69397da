/* Copies bytes between a device and ordinary host memory as fast as the machine can: through a ring of pinned memory,
 * which a few threads empty or fill. Apart from what the caller keeps, nothing outlives the call. */
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

/* Opens a carrier for `bytes` of the context's device in total. Returns 0, -ENOMEM or -EIO. */
int vp_carrier_open(struct vp_carrier *c, const struct vp_driver *drv, const struct vp_context *ctx, size_t bytes);
/* Copies all spans, in order, to the host (`out`) or back. A span without an address keeps its place in `host`, and is
 * skipped. Returns 0, -ETIMEDOUT or -EIO. */
int vp_carrier_run(struct vp_carrier *c, const struct vp_span *spans, size_t count, char *host, bool out);
void vp_carrier_close(struct vp_carrier *c);

/* Host memory for the contents of a paused device. */
struct vp_arena {
    char *at;
    size_t bytes; /* of the mapping; 0: none */
    bool in_file; /* an unlinked file, kept without a descriptor, which the program might close */
};

/* Provides at least `bytes`: the existing memory, new memory, or a new file of the name `file` (NULL: none), which must
 * not exist. Returns 0; -ENOMEM: the machine, or the control group, does not have that much; or the errno of the file.
 */
int vp_arena_take(struct vp_arena *arena, size_t bytes, const char *file);
/* The contents are not needed any more. Removes a file; memory may go back to the system, else the next take uses it.
 */
void vp_arena_ease(struct vp_arena *arena);
