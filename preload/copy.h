/* What the doors of copies and those of graphs have in common, and copies of what is spilled. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "make.h"

/* What an end of a copy is before anyone is asked; `offset`: of its first byte. */
static inline struct vp_copy_end vp_copy_end_of(CUmemorytype type, CUdeviceptr device, size_t offset) {
    struct vp_copy_end end = {.anywhere = type == CU_MEMORYTYPE_HOST};
    if ((type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) && device)
        end.ptr = device + offset;
    return end;
}

/* A copy, in the widest form; the narrower ones have a height and a depth of 1. */
struct vp_copy {
    CUDA_MEMCPY3D_PEER p;
    CUstream stream;
    bool sync;
    bool flat; /* of rows: it came in the form of CUDA_MEMCPY2D */
};

/* One end, src or dst, of `p`, as the fields of another copy: rows have as many as slices, but for these. */
#define VP_COPY_END(p, end)                                                                                            \
    .end##XInBytes = (p)->end##XInBytes, .end##Y = (p)->end##Y, .end##MemoryType = (p)->end##MemoryType,               \
    .end##Host = (p)->end##Host, .end##Device = (p)->end##Device, .end##Array = (p)->end##Array,                       \
    .end##Pitch = (p)->end##Pitch

/* Bytes at two addresses, as a copy on a stream. */
static inline struct vp_copy vp_copy_of_range(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    return (struct vp_copy){
        .p = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
              .srcDevice = src,
              .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
              .dstDevice = dst,
              .WidthInBytes = bytes,
              .Height = 1,
              .Depth = 1},
        .stream = stream,
    };
}

static inline bool vp_copy_is_range(const CUDA_MEMCPY3D_PEER *p) {
    return p->Height == 1 && p->Depth == 1;
}

/* ---- copy.c ---- */

void vp_copy_ends(const CUDA_MEMCPY3D_PEER *p, struct vp_copy_end *dst, struct vp_copy_end *src);
/* A copy of one context, as one between two that are not named yet. */
struct vp_copy vp_copy_of_slices(const CUDA_MEMCPY3D *p, CUstream stream);
/* Is a copy in it captured? Also if that cannot be told. */
bool vp_copy_captured(CUstream stream);
/* Is a copy that needs another way left as it is, since it is captured? A stream of ours must not join the capture, and
 * a copy that names two contexts would end it. */
bool vp_copy_is_left(enum vp_copy_way way, CUstream stream);

/* The host waits as in a plain copy, which harms no capture of other streams. */
CUresult vp_copy_wait(CUstream stream);
/* Makes the context of a stream current, if it has one of its own. */
struct vp_entered vp_copy_enter(CUstream stream);
/* The driver looks for what lies in several handles in the current context, whichever the stream's is, and refuses the
 * copy where that has no access (H200): it is made once more in the stream's. */
#define VP_COPY_AGAIN(stream, call)                                                                                    \
    if (__builtin_expect(res == CUDA_ERROR_INVALID_VALUE, false)) {                                                    \
        struct vp_entered entered = vp_copy_enter(stream);                                                             \
        if (entered.pushed)                                                                                            \
            res = call;                                                                                                \
        vp_api_context_leave(entered);                                                                                 \
    }

/* Makes the copy in the way that it needs, if that is not its own; true: done, with the outcome in `*res`. */
bool vp_copy_translated(struct vp_copy *copy, CUresult *res);

/* ---- copy_spilled.c ---- */

/* An end that is said to be device memory, and is spilled, is said to be memory from now on. */
void vp_copy_undirect(CUmemorytype *type, const struct vp_copy_end *end);
/* Makes a copy by calls that do not say what is device memory and what is not. */
CUresult vp_copy_undirected(struct vp_copy *copy, const struct vp_copy_end *dst, const struct vp_copy_end *src);
