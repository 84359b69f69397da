/* Doors of the runtime. Each goes on to the same function of its caller's own libcudart, which comes back to
 * the doors of the driver.
 *
 * So contexts are made, errors remembered and profilers told as always. Only what the pool can serve at once
 * does without: an allocation or a free that succeeds. NULL, nothing to allocate and every failure take the
 * long way.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doors_runtime.h"

#include "callers.h"
#include "doors.h"

/*
 * The caller's own function. To be used in an exported function only, whose return address it is that counts.
 */
#define CALLERS_RUNTIME() vp_caller_runtime(__builtin_return_address(0))
#define RUNTIME_REAL(runtime, symbol) ((__typeof__(&symbol))(runtime)->real[VP_RUNTIME_##symbol])

static bool allocates(const struct vp_runtime *runtime, void **ptr, size_t size) {
    return ptr && size && runtime->context_is_current;
}

/*
 * The end of a short way: leaves the door; on success the pointer goes out. The failure of an allocation is kept for
 * the long way that follows.
 */
static bool short_way(CUresult res, CUdeviceptr found, void **ptr, size_t size) {
    vp_door_leave();
    vp_door_told = (struct vp_door_told){res && res != VP_NOT_OURS ? size : 0, res};
    if (res)
        return false;
    if (ptr)
        *ptr = (void *)(uintptr_t)found;
    return true;
}

static bool alloc(void **ptr, size_t size) {
    CUdeviceptr found = 0;
    CUresult res = vp_door_enter() && vp_door_has_current() ? vp_api_alloc(&found, size) : VP_NOT_OURS;

    return short_way(res, found, ptr, size);
}

static bool alloc_async(void **ptr, size_t size, CUmemoryPool pool, CUstream stream) {
    CUdeviceptr found = 0;
    CUresult res = vp_door_enter() && vp_door_has_current() ? vp_api_alloc_async(&found, size, pool, stream)
                                                            : VP_NOT_OURS;

    return short_way(res, found, ptr, size);
}

static bool free_async(void *ptr, CUstream stream) {
    CUresult res = vp_door_enter() && vp_door_has_current() ? vp_api_free_async((CUdeviceptr)(uintptr_t)ptr, stream)
                                                            : VP_NOT_OURS;

    return short_way(res, 0, NULL, 0);
}

cudaError_t cudaMalloc(void **ptr, size_t size) {
    const struct vp_runtime *runtime = CALLERS_RUNTIME();

    if (allocates(runtime, ptr, size) && alloc(ptr, size))
        return cudaSuccess;
    return RUNTIME_REAL(runtime, cudaMalloc)(ptr, size);
}

cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height) {
    const struct vp_runtime *runtime = CALLERS_RUNTIME();
    const unsigned int element = 4; /* what the runtime passes; the pitch is the same for 4, 8 and 16 */

    if (pitch && allocates(runtime, ptr, width && height)) {
        CUdeviceptr found = 0;
        CUresult res = vp_door_enter() && vp_door_has_current()
                           ? vp_api_alloc_pitch(&found, pitch, width, height, element)
                           : VP_NOT_OURS;

        if (short_way(res, found, ptr, width * height))
            return cudaSuccess;
    }
    return RUNTIME_REAL(runtime, cudaMallocPitch)(ptr, pitch, width, height);
}

cudaError_t cudaFree(void *ptr) {
    if (ptr) {
        CUresult res = vp_door_enter() && vp_door_has_current() ? vp_api_free((CUdeviceptr)(uintptr_t)ptr)
                                                                : VP_NOT_OURS;

        if (short_way(res, 0, NULL, 0))
            return cudaSuccess;
    }
    return RUNTIME_REAL(CALLERS_RUNTIME(), cudaFree)(ptr);
}

cudaError_t cudaMallocAsync(void **ptr, size_t size, cudaStream_t stream) {
    const struct vp_runtime *runtime = CALLERS_RUNTIME();

    if (allocates(runtime, ptr, size) && alloc_async(ptr, size, NULL, stream))
        return cudaSuccess;
    return RUNTIME_REAL(runtime, cudaMallocAsync)(ptr, size, stream);
}

cudaError_t cudaMallocAsync_ptsz(void **ptr, size_t size, cudaStream_t stream) {
    const struct vp_runtime *runtime = CALLERS_RUNTIME();

    if (allocates(runtime, ptr, size) && alloc_async(ptr, size, NULL, vp_door_per_thread(stream)))
        return cudaSuccess;
    return RUNTIME_REAL(runtime, cudaMallocAsync_ptsz)(ptr, size, stream);
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    const struct vp_runtime *runtime = CALLERS_RUNTIME();

    if (pool && allocates(runtime, ptr, size) && alloc_async(ptr, size, pool, stream))
        return cudaSuccess;
    return RUNTIME_REAL(runtime, cudaMallocFromPoolAsync)(ptr, size, pool, stream);
}

cudaError_t cudaMallocFromPoolAsync_ptsz(void **ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    const struct vp_runtime *runtime = CALLERS_RUNTIME();

    if (pool && allocates(runtime, ptr, size) && alloc_async(ptr, size, pool, vp_door_per_thread(stream)))
        return cudaSuccess;
    return RUNTIME_REAL(runtime, cudaMallocFromPoolAsync_ptsz)(ptr, size, pool, stream);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream) {
    if (ptr && free_async(ptr, stream))
        return cudaSuccess;
    return RUNTIME_REAL(CALLERS_RUNTIME(), cudaFreeAsync)(ptr, stream);
}

cudaError_t cudaFreeAsync_ptsz(void *ptr, cudaStream_t stream) {
    if (ptr && free_async(ptr, vp_door_per_thread(stream)))
        return cudaSuccess;
    return RUNTIME_REAL(CALLERS_RUNTIME(), cudaFreeAsync_ptsz)(ptr, stream);
}

/* Nothing to add to these two: the driver's doors have answered when they return. */

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    return RUNTIME_REAL(CALLERS_RUNTIME(), cudaMemGetInfo)(free_bytes, total);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr) {
    return RUNTIME_REAL(CALLERS_RUNTIME(), cudaPointerGetAttributes)(attributes, ptr);
}

/* The runtime's resolvers of driver functions. One of CUDA 11 takes no `status`, and does not mind it. */

static cudaError_t exchanged(cudaError_t err, void **function) {
    if (err == cudaSuccess && function && vp_resolve())
        *function = vp_resolve_exchange(*function);
    return err;
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
    const struct vp_runtime *runtime = CALLERS_RUNTIME();

    return exchanged(RUNTIME_REAL(runtime, cudaGetDriverEntryPoint)(symbol, function, flags, status), function);
}

cudaError_t cudaGetDriverEntryPoint_ptsz(const char *symbol, void **function, unsigned long long flags,
                                         enum cudaDriverEntryPointQueryResult *status) {
    const struct vp_runtime *runtime = CALLERS_RUNTIME();

    return exchanged(RUNTIME_REAL(runtime, cudaGetDriverEntryPoint_ptsz)(symbol, function, flags, status), function);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {
    const struct vp_runtime *runtime = CALLERS_RUNTIME();

    return exchanged(RUNTIME_REAL(runtime, cudaGetDriverEntryPointByVersion)(symbol, function, version, flags, status),
                     function);
}

cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char *symbol, void **function, unsigned int version,
                                                  unsigned long long flags,
                                                  enum cudaDriverEntryPointQueryResult *status) {
    const struct vp_runtime *runtime = CALLERS_RUNTIME();

    return exchanged(
        RUNTIME_REAL(runtime, cudaGetDriverEntryPointByVersion_ptsz)(symbol, function, version, flags, status),
        function);
}
