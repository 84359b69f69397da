/* An allocator for PyTorch (torch.cuda.memory.CUDAPluggableAllocator) on cudaMallocManaged: what a program that wants
 * more memory than the device has can do without vpool. What is freed is kept for the next of its size on its stream,
 * as managed memory takes long to make: sizes are rounded up to eighths of a power of two, and no more than an eighth
 * of the device is kept. MANAGED_ROOM=BYTES: the device is as small as that; the rest is taken away at the start. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace {

std::mutex lock;
std::map<std::pair<size_t, cudaStream_t>, std::vector<void *>> spare;
bool begun;
size_t spared, most_spared = (size_t)1 << 32;

size_t rounded(size_t size) {
    size_t step = 512;
    while (step * 8 < size)
        step *= 2;
    return (size + step - 1) / step * step;
}

/* What is not to be had stays allocated until the process ends. */
void take_away() {
    const char *text = getenv("MANAGED_ROOM");
    size_t room = text ? strtoull(text, nullptr, 10) : 0, unused = 0, total = 0;
    void *ballast;
    begun = true;
    if (room)
        most_spared = room / 8;
    if (room && !cudaMemGetInfo(&unused, &total) && unused > room && cudaMalloc(&ballast, unused - room))
        fprintf(stderr, "managed_alloc: the device cannot be made smaller\n");
}

} // namespace

extern "C" void *managed_malloc(ssize_t size, int device, cudaStream_t stream) {
    std::lock_guard<std::mutex> guard(lock);
    const size_t bytes = rounded((size_t)size);
    void *at = nullptr;
    (void)device;
    if (!begun)
        take_away();
    auto &same = spare[{bytes, stream}];
    if (!same.empty()) {
        at = same.back();
        same.pop_back();
        spared -= bytes;
        return at;
    }
    return cudaMallocManaged(&at, bytes) ? nullptr : at;
}

/* The next of its size on its stream comes behind what is queued there. */
extern "C" void managed_free(void *at, ssize_t size, int device, cudaStream_t stream) {
    std::lock_guard<std::mutex> guard(lock);
    const size_t bytes = rounded((size_t)size);
    (void)device;
    if (!at)
        return;
    if (spared + bytes > most_spared) {
        cudaFree(at); /* waits for the device */
        return;
    }
    spared += bytes;
    spare[{bytes, stream}].push_back(at);
}
