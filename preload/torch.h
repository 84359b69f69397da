/* PyTorch's cache: what its libraries say of the blocks that it hands out, so that its segments need no memory of their
 * own (process/bare.h).
 *
 * libc10_cuda.so calls functions of its own and of libc10.so through the dynamic linker, and finds ours. On the thread
 * that allocates, and all but the first under the lock of the device's cache:
 *
 *   getCurrentCUDAStream(), stream()   from allocate() and raw_alloc(): the stream; not where the program names one
 *   roundup_power2_divisions(size)     a block of 512 bytes or more is wanted; nothing has changed yet
 *   getCurrentCUDAStream(), stream()   only if a segment is to be made, right before
 *   cudaMalloc()                       the segment
 *   reportMemoryUsageToProfiler()      the block, before anyone has its address
 *
 * and at the end of a free reportMemoryUsageToProfiler() again. Only what fits into this order is believed. Else a
 * segment has memory: it begins as ordinary cudaMalloc'ed memory does, and nobody is told of its blocks. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "adopt.h"
#include "process/bare.h"
#include "table.h"

/* ---- torch_find.c ---- */

/* The real function, for a caller at `address`; one that does nothing if there is none. */
void *vp_torch_find(enum vp_torch_symbol symbol, const void *address);
extern _Atomic(void *) vp_torch_real[VP_TORCH_SYMBOLS];

static inline void *vp_torch_real_of(enum vp_torch_symbol symbol, const void *address) {
    void *real = atomic_load_explicit(&vp_torch_real[symbol], memory_order_relaxed);
    return __builtin_expect(real != NULL, true) ? real : vp_torch_find(symbol, address);
}

/* libc10_cuda.so's code: whoever else calls means nothing by it. Empty until the library was looked at and found to
 * call all of this through the dynamic linker; for good, if it does not. */
extern struct vp_torch_code {
    _Atomic uintptr_t begin, size;
} vp_torch_code;

static inline bool vp_torch_is_cache(const void *address) {
    uintptr_t size = atomic_load_explicit(&vp_torch_code.size, memory_order_acquire);
    return (uintptr_t)address - atomic_load_explicit(&vp_torch_code.begin, memory_order_relaxed) < size;
}

/* Looks for libc10_cuda.so, unless that was done. -EAGAIN: it is not loaded; -ENOTSUP: it cannot be told from what it
 * calls; 0. */
int vp_torch_learn(void);
/* Once CUDA is in use, if PyTorch is to keep its cache: says so if it is there and cannot be heard, as with
 * RTLD_DEEPBIND. */
void vp_torch_listen(void);
/* Is that code of one of PyTorch's libraries? The dynamic linker is not waited for. */
bool vp_torch_holds(const void *address);
/* Does the process's PyTorch make its pools of memory and its captures by functions that we know? Else none can be
 * seen. */
bool vp_torch_knows_pools(void);

/* ---- torch_refuse.c ---- */

/* Has libc10_cuda.so what it takes to refuse? */
bool vp_torch_can_refuse(void *library);
/* Throws PyTorch's OutOfMemoryError for an allocation of `size` bytes, out of a function that libc10_cuda.so called. So
 * much is allocated and reserved by PyTorch's own count. */
_Noreturn void vp_torch_refuse(CUdevice device, size_t size, uint64_t allocated, uint64_t reserved);

/* ---- torch.c ---- */

/* A segment, if the cudaMalloc() of `size` bytes that was called from `address` is for one; VP_NOT_OURS: it is for
 * something else. */
CUresult vp_torch_segment_now(CUdeviceptr *out, size_t size, const void *address);

static inline CUresult vp_torch_segment(CUdeviceptr *out, size_t size, const void *address) {
    return __builtin_expect(vp_adopt_bare, false) ? vp_torch_segment_now(out, size, address) : VP_NOT_OURS;
}
