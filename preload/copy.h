/* Shared by the doors of copies and of graphs; and copies of spilled memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "make.h"

/* One end of a copy, before anything is looked up; `offset` is that of its first byte. */
static inline struct vp_copy_end vp_copy_end_of(CUmemorytype type, CUdeviceptr device, size_t offset) {
    struct vp_copy_end end = {.anywhere = type == CU_MEMORYTYPE_HOST};
    if ((type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) && device)
        end.ptr = device + offset;
    return end;
}

/* A copy in its most general form; for simpler ones the height or the depth is 1. */
struct vp_copy {
    CUDA_MEMCPY3D_PEER p;
    CUstream stream;
    bool sync;
    bool flat; /* it was given as a CUDA_MEMCPY2D */
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
/* Turns a copy within one context into the form for two, which are not named yet. */
struct vp_copy vp_copy_of_slices(const CUDA_MEMCPY3D *p, CUstream stream);
/* Is a copy in this stream captured? True also if that cannot be found out. */
bool vp_copy_captured(CUstream stream);
/* Is a copy that would need another way passed on unchanged, because it is captured? A stream of ours must not join the
 * capture, and a copy that names two contexts would end it. */
bool vp_copy_is_left(enum vp_copy_way way, CUstream stream);

/* Waits on the host for the stream, as a plain copy does; harms no capture of other streams. */
CUresult vp_copy_wait(CUstream stream);
/* Makes the context of a stream current, if it has one of its own. */
struct vp_entered vp_copy_enter(CUstream stream);
/* The driver looks up memory of several handles in the current context, whatever the stream's context is, and refuses
 * the copy if the current one has no access (seen on an H200): repeats the copy in the stream's context. */
#define VP_COPY_AGAIN(stream, call)                                                                                    \
    if (__builtin_expect(res == CUDA_ERROR_INVALID_VALUE, false)) {                                                    \
        struct vp_entered entered = vp_copy_enter(stream);                                                             \
        if (entered.pushed)                                                                                            \
            res = call;                                                                                                \
        vp_api_context_leave(entered);                                                                                 \
    }

/* Makes the copy in another way, if it needs one. Returns true if it was made; `*res` is the outcome. */
bool vp_copy_translated(struct vp_copy *copy, CUresult *res);

/* ---- copy_spilled.c ---- */

/* If this end is spilled, changes its type from device memory to unified memory, which leaves open where it is. */
void vp_copy_undirect(CUmemorytype *type, const struct vp_copy_end *end);
/* Makes a copy by calls that do not state which memory is on the device. */
CUresult vp_copy_undirected(struct vp_copy *copy, const struct vp_copy_end *dst, const struct vp_copy_end *src);
