/* Copies from and to spilled memory (src/process/spill.h). For CUDA that is host memory: it refuses a copy that calls
 * it device memory. So the copy is made in the same stream by a call that does not state the kind of memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

#include <string.h>

void vp_copy_undirect(CUmemorytype *type, const struct vp_copy_end *end) {
    if (end->spilled && *type == CU_MEMORYTYPE_DEVICE)
        *type = CU_MEMORYTYPE_UNIFIED;
}

static bool per_thread(const struct vp_copy *copy) {
    return copy->stream == CU_STREAM_PER_THREAD;
}

static CUresult copy_range(const struct vp_copy *copy) {
    const CUDA_MEMCPY3D_PEER *p = &copy->p;
    if (!copy->sync)
        return VP_REAL(cuMemcpyAsync)(p->dstDevice, p->srcDevice, p->WidthInBytes, copy->stream);
    return per_thread(copy) ? VP_REAL(cuMemcpy_ptds)(p->dstDevice, p->srcDevice, p->WidthInBytes)
                            : VP_REAL(cuMemcpy)(p->dstDevice, p->srcDevice, p->WidthInBytes);
}

/* The form of rows takes pitches that the widest one may not; unaligned ones where the call waits, as in CUDA. */
static CUresult copy_rows(const struct vp_copy *copy) {
    const CUDA_MEMCPY3D_PEER *p = &copy->p;
    const CUDA_MEMCPY2D rows = {VP_COPY_END(p, src), VP_COPY_END(p, dst), .WidthInBytes = p->WidthInBytes,
                                .Height = p->Height};
    if (!copy->sync)
        return VP_REAL(cuMemcpy2DAsync_v2)(&rows, copy->stream);
    return per_thread(copy) ? VP_REAL(cuMemcpy2DUnaligned_v2_ptds)(&rows) : VP_REAL(cuMemcpy2DUnaligned_v2)(&rows);
}

static CUresult copy_slices(const struct vp_copy *copy) {
    CUDA_MEMCPY3D slices;
    memcpy(&slices, &copy->p, sizeof(slices));
    slices.reserved0 = slices.reserved1 = NULL;
    if (!copy->sync)
        return VP_REAL(cuMemcpy3DAsync_v2)(&slices, copy->stream);
    return per_thread(copy) ? VP_REAL(cuMemcpy3D_v2_ptds)(&slices) : VP_REAL(cuMemcpy3D_v2)(&slices);
}

CUresult vp_copy_undirected(struct vp_copy *copy, const struct vp_copy_end *dst, const struct vp_copy_end *src) {
    CUDA_MEMCPY3D_PEER *p = &copy->p;
    vp_copy_undirect(&p->dstMemoryType, dst);
    vp_copy_undirect(&p->srcMemoryType, src);
    if (copy->flat)
        return copy_rows(copy);
    if (vp_copy_is_range(p) && p->dstMemoryType == CU_MEMORYTYPE_UNIFIED && p->srcMemoryType == CU_MEMORYTYPE_UNIFIED &&
        !p->dstXInBytes && !p->srcXInBytes && !p->dstY && !p->srcY && !p->dstZ && !p->srcZ)
        return copy_range(copy);
    return copy_slices(copy);
}
