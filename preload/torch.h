/* Follows PyTorch's cache: which blocks it hands out and takes back, so that its segments need memory only where blocks
 * are in use (bare segments, process/bare.h).
 *
 * libc10_cuda.so calls functions of its own and of libc10.so through the dynamic linker, which binds them to ours. The
 * order of these calls, on the thread that allocates; all but the first come under the lock of the device's cache:
 *
 *   getCurrentCUDAStream(), stream()   from allocate() and raw_alloc(): the stream, unless the program names one
 *   roundup_power2_divisions(size)     a block of 512 bytes or more is wanted; the cache is unchanged yet
 *   getCurrentCUDAStream(), stream()   only right before a new segment
 *   cudaMalloc()                       the segment
 *   reportMemoryUsageToProfiler()      the block, before the program has its address
 *
 * A free ends with reportMemoryUsageToProfiler(), too. The library acts only on calls that fit this order. Where they
 * do not, the segment gets ordinary memory, as every cudaMalloc does, and its blocks are not followed. */
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

/* Returns PyTorch's own function, for a caller at `address`; a function that does nothing if there is none. Never NULL.
 */
void *vp_torch_find(enum vp_torch_symbol symbol, const void *address);
extern _Atomic(void *) vp_torch_real[VP_TORCH_SYMBOLS];

static inline void *vp_torch_real_of(enum vp_torch_symbol symbol, const void *address) {
    void *real = atomic_load_explicit(&vp_torch_real[symbol], memory_order_relaxed);
    return __builtin_expect(real != NULL, true) ? real : vp_torch_find(symbol, address);
}

/* The address range of the code of libc10_cuda.so: calls from elsewhere are ignored. Empty until the library has been
 * found to make all these calls through the dynamic linker, and for good if it does not. */
extern struct vp_torch_code {
    _Atomic uintptr_t begin, size;
} vp_torch_code;

static inline bool vp_torch_is_cache(const void *address) {
    uintptr_t size = atomic_load_explicit(&vp_torch_code.size, memory_order_acquire);
    return (uintptr_t)address - atomic_load_explicit(&vp_torch_code.begin, memory_order_relaxed) < size;
}

/* Looks for libc10_cuda.so, once. Returns 0; -EAGAIN: it is not loaded yet; -ENOTSUP: its blocks cannot be followed. */
int vp_torch_learn(void);
/* Called once CUDA is in use, if PyTorch is to keep its cache: logs a warning if PyTorch is loaded but its calls bypass
 * the library, as with RTLD_DEEPBIND. */
void vp_torch_listen(void);
/* Does this code belong to one of PyTorch's libraries? Does not wait for the dynamic linker. */
bool vp_torch_holds(const void *address);
/* Does this PyTorch begin its memory pools and its captures by functions that we know? If not, they cannot be seen. */
bool vp_torch_knows_pools(void);

/* ---- torch_refuse.c ---- */

/* Does this libc10_cuda.so have all that vp_torch_refuse() needs? */
bool vp_torch_can_refuse(void *library);
/* Throws PyTorch's OutOfMemoryError for an allocation of `size` bytes, out of a function that libc10_cuda.so called.
 * The message gives `allocated` and `reserved` bytes, by PyTorch's own count. */
_Noreturn void vp_torch_refuse(CUdevice device, size_t size, uint64_t allocated, uint64_t reserved);

/* ---- torch.c ---- */

/* Makes a segment, if the cudaMalloc() of `size` bytes called from `address` is for one. VP_NOT_OURS: it is not. */
CUresult vp_torch_segment_now(CUdeviceptr *out, size_t size, const void *address);
/* From here on this thread's cudaMalloc() of `size` bytes, called from `address`, may be on its way to the driver's
 * door, until vp_torch_segment() or vp_torch_asks(0, NULL). */
void vp_torch_asks_now(size_t size, const void *address);
/* What comes by there, with that size, is what was asked for. */
CUresult vp_torch_segment_late(CUdeviceptr *out, size_t size);

static inline CUresult vp_torch_segment(CUdeviceptr *out, size_t size, const void *address) {
    return __builtin_expect(vp_adopt_bare, false) ? vp_torch_segment_now(out, size, address) : VP_NOT_OURS;
}

static inline void vp_torch_asks(size_t size, const void *address) {
    if (__builtin_expect(vp_adopt_bare, false))
        vp_torch_asks_now(size, address);
}

/* At the driver's door. */
static inline CUresult vp_torch_alloc(CUdeviceptr *out, size_t size) {
    CUresult res = __builtin_expect(vp_adopt_bare, false) ? vp_torch_segment_late(out, size) : VP_NOT_OURS;
    return res == VP_NOT_OURS ? vp_api_alloc(out, size) : res;
}
