/* Which stream a call deeper in the stack is about: what was asked on the way down, and is still under way. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/bare.h"

/* A stream's handle was asked for: where the stack was then, by whom, and the handle. */
struct vp_torch_hint {
    const char *frame, *from;
    CUstream stream;
    CUdevice device;
};

/* Those of a thread, the outermost first. More than a call nests of them. */
struct vp_torch_hints {
    struct vp_torch_hint hint[4];
    unsigned count;
};

/* Do both calls return into the same function? Looked up once for each two, and remembered. */
bool vp_torch_is_one_function(const char *a, const char *b);

/* Those that lie as deep or deeper are over, and forgotten. */
static inline void vp_torch_hint_add(struct vp_torch_hints *hints, const struct vp_torch_hint *hint) {
    while (hints->count && hints->hint[hints->count - 1].frame <= hint->frame)
        hints->count--;
    if (hints->count < sizeof(hints->hint) / sizeof(hints->hint[0]))
        hints->hint[hints->count++] = *hint;
}

/* The stream that the call at `frame` is about: that of the innermost hint whose function has called on and is still
 * there, or an unknown one. That it is there is looked up in the stack once for each function and distance, and
 * remembered. The hints are used up. `*device` is the stream's, and untouched if that is unknown. */
struct vp_bare_stream vp_torch_hint_take(struct vp_torch_hints *hints, const char *frame, CUdevice *device);
