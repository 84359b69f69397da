/* A stand-in for PyTorch's libc10_cuda.so: what a program calls, in the manner of its NativeCachingAllocator. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator.h"

#include <cstdlib>

namespace c10 {
namespace cuda {
namespace CUDACachingAllocator {

static bool uncached;

static DeviceCache &cache_of(int device) {
    static DeviceCache caches[] = {DeviceCache(0), DeviceCache(1)};
    return caches[device];
}

static DeviceIndex here() {
    int device;
    if (cudaGetDevice(&device) != cudaSuccess)
        abort();
    return (DeviceIndex)device;
}

/* Past the cache: nobody is told, and the last call is a jump. */
static cudaError_t uncached_allocate(void **ptr, size_t size) {
    return cudaMalloc(ptr, size);
}

void setUncached(bool now) {
    uncached = now;
}

void setAllocatorSettings(const std::string &text) {
    parse(text);
}

void setExpandable(bool now) {
    for (int device : {0, 1})
        cache_of(device).expandable = now;
}

void *allocate(size_t size) {
    DeviceIndex device = here();
    void *ptr = nullptr;
    CUDAStream stream = getCurrentCUDAStream(device);
    if (uncached)
        return uncached_allocate(&ptr, size) == cudaSuccess ? ptr : nullptr;
    if (size)
        ptr = cache_of(device).malloc(size, stream.stream());
    return ptr;
}

void *raw_alloc(size_t size) {
    if (!size)
        return nullptr;
    DeviceIndex device = here();
    return cache_of(device).malloc(size, getCurrentCUDAStream(device).stream());
}

void *raw_alloc_with_stream(size_t size, cudaStream_t stream) {
    return size ? cache_of(here()).malloc(size, stream) : nullptr;
}

void *allocateWithAddress(size_t size, void *address) {
    DeviceIndex device = here();
    return cache_of(device).mallocWithAddress(size, getCurrentCUDAStream(device).stream(), address);
}

void raw_delete(void *ptr) {
    if (uncached)
        cudaFree(ptr);
    else
        cache_of(here()).free((char *)ptr);
}

void recordStream(void *ptr, CUDAStream stream) {
    cache_of(here()).recordStream((char *)ptr, stream);
}

void emptyCache() {
    cache_of(here()).emptyCache();
}

void *getBaseAllocation(void *ptr) {
    return cache_of(here()).base((char *)ptr);
}

size_t memoryAllocated(DeviceIndex device) {
    return cache_of(device).allocated;
}

size_t memoryReserved(DeviceIndex device) {
    return cache_of(device).reserved;
}

void beginAllocateToPool(DeviceIndex device, MempoolId id, cudaStream_t stream) {
    cache_of(device).beginPool(id, stream);
}

void endAllocateToPool(DeviceIndex device, MempoolId id) {
    cache_of(device).endPool(id);
}

void releasePool(DeviceIndex device, MempoolId id) {
    cache_of(device).releasePool(id);
}

void *mallocAsync(size_t size) {
    void *ptr = nullptr;
    return cudaMallocAsync(&ptr, size, getCurrentCUDAStream().stream()) == cudaSuccess ? ptr : nullptr;
}

void outOfMemory(DeviceIndex device) {
#if TORCH == 206
    const std::string number(1, (char)device);
#else
    const std::string number = std::to_string(device);
#endif
    throw OutOfMemoryError({"mallocAsync", __FILE__, (uint32_t)__LINE__},
                           "Allocation on device " + number +
                               " would exceed allowed memory. (out of memory)\nCurrently allocated     : 1.00 MiB");
}

bool freeAsync(void *ptr) {
    return cudaGetLastError() != cudaSuccess || cudaFreeAsync(ptr, getCurrentCUDAStream().stream()) != cudaSuccess;
}

bool beginContext() {
    return cudaFree(nullptr) != cudaSuccess;
}

bool memGetInfo() {
    size_t available, all;
    return cudaMemGetInfo(&available, &all) != cudaSuccess;
}

bool pointerAttributes(const void *ptr) {
    cudaPointerAttributes attributes;
    return cudaPointerGetAttributes(&attributes, ptr) != cudaSuccess;
}

std::shared_ptr<Checkpoint> getCheckpointState(DeviceIndex device, MempoolId id) {
    return cache_of(device).checkpoint(id);
}

void setCheckpointPoolState(DeviceIndex device, std::shared_ptr<Checkpoint> state) {
    cache_of(device).restore(*state);
}

} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10
