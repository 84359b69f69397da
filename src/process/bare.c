/* Bare segments: what the doors call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/bare.h"

#include "process/state.h"

CUresult vp_bare_segment(CUdeviceptr *out, size_t size, struct vp_bare_stream stream) {
    (void)stream;
    return vp_api_alloc(out, size);
}

CUresult vp_bare_room(CUdevice dev, size_t size, struct vp_bare_stream stream) {
    (void)dev;
    (void)size;
    (void)stream;
    return CUDA_SUCCESS;
}

bool vp_bare_used(CUdeviceptr ptr, size_t size, struct vp_bare_stream stream) {
    (void)ptr;
    (void)size;
    (void)stream;
    return false;
}

bool vp_bare_unused(CUdeviceptr ptr, size_t size, bool barrier) {
    (void)ptr;
    (void)size;
    (void)barrier;
    return false;
}

CUresult vp_bare_pin(CUdeviceptr ptr, size_t size) {
    (void)ptr;
    (void)size;
    return VP_NOT_OURS;
}

bool vp_bare_find(CUdeviceptr ptr, CUdeviceptr *base, size_t *size) {
    (void)ptr;
    (void)base;
    (void)size;
    return false;
}
