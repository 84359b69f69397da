/* Which stream a call deeper in the stack is for: that of a query made further out, and still in progress. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/bare.h"

/* A query for a stream's handle: the stack address at that time, the return address, and the handle. */
struct vp_torch_hint {
    const char *frame, *from;
    CUstream stream;
    CUdevice device;
};

/* The hints of a thread, the outermost first. One call nests fewer than these. */
struct vp_torch_hints {
    struct vp_torch_hint hint[4];
    unsigned count;
};

/* Do both return addresses lie in the same function? Looked up once for each pair, and remembered. */
bool vp_torch_is_one_function(const char *a, const char *b);

/* Adds a hint; hints at the same depth or deeper belong to calls that have ended, and are dropped. */
static inline void vp_torch_hint_add(struct vp_torch_hints *hints, const struct vp_torch_hint *hint) {
    while (hints->count && hints->hint[hints->count - 1].frame <= hint->frame)
        hints->count--;
    if (hints->count < sizeof(hints->hint) / sizeof(hints->hint[0]))
        hints->hint[hints->count++] = *hint;
}

/* Returns the stream that the call at `frame` is for: that of the innermost hint whose function made further calls and
 * has not returned, or an unknown stream. Whether a function is still on the stack is looked up once for each function
 * and distance, and remembered. Uses up the hints. `*device` becomes the stream's, if that is known. */
struct vp_bare_stream vp_torch_hint_take(struct vp_torch_hints *hints, const char *frame, CUdevice *device);
