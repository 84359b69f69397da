/* PyTorch's own libc10_cuda.so on the simulated driver: scripts/torch-symbols --run builds and runs it with each version.
 *
 * What the doors tell (told.h) is what the stand-in's tests want of them, and bytes stay as they were written. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "told.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <dlfcn.h>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

namespace cache = c10::cuda::CUDACachingAllocator;
using c10::cuda::CUDAStream;

/* Of libc10_cuda.so, but in no header that includes little. */
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*function)(c10::DeviceIndex));
}


#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

enum : size_t { KIB = 1 << 10, MIB = 1 << 20 };

template <typename Function> static Function *symbol(const char *name) {
    Function *found = (Function *)dlsym(RTLD_DEFAULT, name);
    CHECK(found);
    return found;
}

static size_t count() {
    return symbol<vpool_told_count_fn>("vpool_told_count")();
}

/* The last event of a kind; `what` 0 in it: there is none since then. */
static vpool_told last(size_t since, char what) {
    for (size_t at = count(); at > since; at--) {
        vpool_told event = symbol<vpool_told_at_fn>("vpool_told_at")(at - 1);
        if (event.what == what)
            return event;
    }
    return vpool_told{};
}

static void order() {
    CUDAStream side = c10::cuda::getStreamFromPool(false, 0), other = c10::cuda::getStreamFromPool(false, 0);
    CUDAStream before = c10::cuda::getCurrentCUDAStream();
    void *first = cache::raw_alloc(1000);
    CHECK(count() == 0);
    void *second = cache::raw_alloc(3 * MIB);
    CHECK(last(0, 'r').size == 3 * MIB && last(0, 'u').ptr == (uintptr_t)second && last(0, 'u').size == 3 * MIB);
    CHECK(last(0, 's').ptr && last(0, 's').size == 20 * MIB);
    c10::cuda::setCurrentCUDAStream(side);
    size_t since = count();
    c10::DataPtr block = cache::get()->allocate(30 * MIB);
    for (char what : {'r', 's', 'u'})
        CHECK(last(since, what).known && last(since, what).stream == side.stream());
    cache::get()->recordStream(block, other);
    block.clear();
    CHECK(last(since, 'n').size == 30 * MIB && last(since, 'n').barrier);
    block = cache::get()->allocate(100);
    CHECK(last(since, 'u').size == 512 && last(since, 'u').known && last(since, 'u').stream == side.stream());
    block.clear();
    since = count();
    void *named = cache::raw_alloc_with_stream(50 * MIB, other.stream());
    CHECK(last(since, 's').ptr && !last(since, 's').known && !last(since, 'u').known);
    cache::raw_delete(named);
    c10::cuda::setCurrentCUDAStream(before);
    cache::raw_delete(first);
    cache::raw_delete(second);
    cache::emptyCache();
}

static int64_t allocated() {
    return cache::getDeviceStats(0).allocated_bytes[0].current;
}

static void refusals() {
    void *kept = cache::raw_alloc(3 * MIB);
    int64_t live = allocated(), ooms = cache::getDeviceStats(0).num_ooms;
    for (int turn = 0; turn < 1000; turn++) {
        symbol<vpool_told_refuse_fn>("vpool_told_refuse")(1);
        try {
            /* Ours, where the cache has a place without memory; else PyTorch's own, who counts it. */
            cache::raw_alloc((turn & 1 ? 70 + (size_t)turn % 9 : 7) * MIB);
            CHECK(!"refused");
        } catch (const c10::OutOfMemoryError &error) {
            std::string text = error.what_without_backtrace();
            CHECK(text.find("CUDA out of memory. Tried to allocate 7") == 0);
            CHECK((text.find("libvpool.so") != text.npos) == !(turn & 1));
        }
        CHECK(allocated() == live);
    }
    CHECK(cache::getDeviceStats(0).num_ooms == ooms + 500);
    cache::raw_delete(kept);
    /* PyTorch's own. */
    try {
        cache::raw_alloc((size_t)1 << 45);
        CHECK(!"refused");
    } catch (const c10::OutOfMemoryError &error) {
        CHECK(std::string(error.what_without_backtrace()).find("CUDA out of memory") == 0);
    }
    std::thread([] { cache::raw_delete(cache::raw_alloc(5 * MIB)); }).join(); /* no lock is left */
}

static void churn(unsigned seed) {
    struct Filled {
        char *ptr;
        size_t size;
        unsigned char value;
    };
    std::mt19937 random(seed);
    std::vector<Filled> live;
    size_t held = 0;
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(false, 0));
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    for (int turn = 0; turn < 800; turn++) {
        if (held > 30 * MIB || (!live.empty() && random() % 5 < 2)) {
            size_t at = random() % live.size();
            Filled gone = live[at];
            live[at] = live.back();
            live.pop_back();
            held -= gone.size;
            std::vector<unsigned char> host(gone.size);
            CHECK(cudaMemcpyAsync(host.data(), gone.ptr, gone.size, cudaMemcpyDeviceToHost, stream) == 0);
            CHECK(cudaStreamSynchronize(stream) == 0);
            for (unsigned char byte : host)
                CHECK(byte == gone.value);
            cache::raw_delete(gone.ptr);
            continue;
        }
        Filled made{nullptr, random() % 3 ? random() % (300 * KIB) + 1 : random() % (4 * MIB) + 1, (unsigned char)random()};
        made.ptr = (char *)cache::raw_alloc(made.size);
        CHECK(cudaMemsetAsync(made.ptr, made.value, made.size, stream) == 0);
        live.push_back(made);
        held += made.size;
        if (random() % 100 == 0)
            cache::emptyCache();
    }
    for (Filled &filled : live)
        cache::raw_delete(filled.ptr);
}

/* What the backend of cudaMallocAsync refuses, by a text that is given or put together: as PyTorch's own error. */
static void features() {
    CHECK(cache::get()->name() == "cudaMallocAsync");
    for (int turn = 0; turn < 100; turn++)
        try {
            cache::raw_alloc((size_t)1 << 45);
            CHECK(!"refused");
        } catch (const c10::OutOfMemoryError &error) {
            CHECK(std::string(error.what_without_backtrace())
                      .find("CUDA out of memory. Allocation on device 0 would exceed its memory.\nCurrently allocated") == 0);
        }
    for (int turn = 0; turn < 100; turn++)
        try {
            turn & 1 ? (void)cache::get()->getCheckpointState(0, {0, 1}) : (void)cache::get()->checkPoolLiveAllocations(0, {0, 1}, {});
            CHECK(!"refused");
        } catch (const c10::Error &error) {
            CHECK(std::string(error.what_without_backtrace()).find("cudaMallocAsync does not yet support") == 0);
        }
    try {
        static char memory;
        cache::get()->recordStream(c10::DataPtr(&memory, c10::Device(c10::kCUDA, 0)), c10::cuda::getDefaultCUDAStream(0));
        CHECK(!"refused");
    } catch (const c10::Error &error) {
        CHECK(std::string(error.what_without_backtrace()).find("ptr not found in ptr_info") != std::string::npos);
    }
}

int main(int argc, char **) {
    if (argc > 1) {
        c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
        cache::init(1);
        features();
        return 0;
    }
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    cache::init(1);
    CHECK(cache::get()->name() == "native");
    order();
    refusals();
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 3; seed++)
        threads.emplace_back(churn, seed);
    for (std::thread &thread : threads)
        thread.join();
    CHECK(allocated() == 0);
    puts("right");
}
