/* What the doors tell of a cache's blocks, for each rule of theirs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "guest.h"

#include <cuda.h>
#include <dlfcn.h>
#include <cstring>
#include <thread>
#include <vector>

extern "C" long standin_reports, standin_reported, standin_refusals;

/* The first segment of a device has memory of its own; from its report on every block is told of. */
static void the_first_segment_has_memory() {
    void *first = cache::allocate(KIB);
    CHECK(told_count() == 0);
    void *second = cache::allocate(3 * MIB);
    CHECK(told_number(0, 'r') == 1 && told_number(0, 's') == 1 && told_number(0, 'u') == 1);
    CHECK(told_last(0, 's').ptr == (uintptr_t)second && told_last(0, 's').size == 20 * MIB);
    vpool_told used = told_last(0, 'u');
    CHECK(used.ptr == (uintptr_t)second && used.size == 3 * MIB && told_last(0, 'r').size == 3 * MIB);
    cache::raw_delete(second);
    CHECK(told_last(0, 'n').ptr == (uintptr_t)second && told_last(0, 'n').size == 3 * MIB && !told_last(0, 'n').barrier);
    cache::raw_delete(first);
    CHECK(told_number(0, 'n') == 2); /* that of a block that never was bare does no harm */
    CHECK(standin_reports == 4 && standin_reported == 0);
}

static void each_device_is_armed_by_itself() {
    arm();
    size_t since = told_count();
    CHECK_OK(cudaSetDevice(1));
    void *first = cache::allocate(KIB);
    CHECK(told_count() == since);
    cache::allocate(3 * MIB);
    CHECK(told_number(since, 's') == 1);
    cache::raw_delete(first);
}

/* Blocks under 512 bytes have no size to round; a segment that they make has memory. */
static void tiny_blocks_are_told() {
    arm();
    size_t since = told_count();
    CUDAStream side = makeStream(0);
    setCurrentCUDAStream(side);
    void *tiny = cache::allocate(100);
    CHECK(told_number(since, 's') == 0 && told_number(since, 'r') == 0 && told_number(since, 'u') == 1);
    CHECK(told_last(since, 'u').size == 512);
    CHECK(told_last(since, 'u').known && told_last(since, 'u').stream == side.stream());
    cache::raw_delete(tiny);
    CHECK(told_last(since, 'n').size == 512);
}

static void what_goes_past_the_cache_has_memory() {
    arm();
    size_t since = told_count();
    cache::setUncached(true);
    void *ptr = cache::allocate(4 * MIB);
    CHECK(ptr && told_count() == since);
    CHECK_OK(cudaMemset(ptr, 1, 4 * MIB));
    cache::raw_delete(ptr);
    cache::setUncached(false);
    /* Also after an allocation that was given up between its size and its segment. */
    told_refuse(1);
    try {
        cache::allocate(24 * MIB);
        CHECK(!"refused");
    } catch (const c10::OutOfMemoryError &) {
    }
    since = told_count();
    cache::setUncached(true);
    CHECK(cache::allocate(24 * MIB) && told_count() == since);
}

/* ---- streams ---- */

static void the_stream_is_told() {
    arm();
    size_t since = told_count();
    CUDAStream side = makeStream(0), other = makeStream(0);
    setCurrentCUDAStream(side);
    cache::allocate(30 * MIB);
    for (char what : {'r', 's', 'u'})
        CHECK(told_last(since, what).known && told_last(since, what).stream == side.stream());
    since = told_count();
    setCurrentCUDAStream(other);
    cache::raw_alloc(3 * MIB);
    for (char what : {'r', 's', 'u'})
        CHECK(told_last(since, what).known && told_last(since, what).stream == other.stream());
}

/* Where the program names the stream, nobody hears of it; nor is an earlier one taken for it. */
static void a_named_stream_is_unknown() {
    arm();
    CUDAStream side = makeStream(0), other = makeStream(0);
    setCurrentCUDAStream(side);
    void *ptr = cache::allocate(3 * MIB);
    size_t since = told_count();
    cache::raw_alloc_with_stream(30 * MIB, other.stream());
    for (char what : {'r', 's', 'u'})
        CHECK(!told_last(since, what).known);
    cache::recordStream(ptr, other);
    since = told_count();
    cache::raw_alloc_with_stream(34 * MIB, other.stream());
    for (char what : {'r', 's', 'u'})
        CHECK(!told_last(since, what).known);
}

/* While captures are underway, versions from 2.13 on ask for the current stream in recordStream() and in malloc(). */
static void a_stream_asked_for_by_the_way_is_not_taken() {
    arm();
    CUDAStream side = makeStream(0), other = makeStream(0), third = makeStream(0);
    cache::MempoolId id = at::cuda::graph_pool_handle();
    setCurrentCUDAStream(side);
    void *ptr = cache::allocate(3 * MIB);
    cache::beginAllocateToPool(0, id, third.stream());
    size_t since = told_count();
    cache::recordStream(ptr, other);
    cache::raw_alloc_with_stream(30 * MIB, other.stream());
    CHECK(!told_last(since, 'r').known && !told_last(since, 's').known);
    since = told_count();
    cache::allocate(26 * MIB);
    CHECK(told_last(since, 'r').known && told_last(since, 'r').stream == side.stream());
    cache::endAllocateToPool(0, id);
}

static void threads_do_not_meet() {
    arm();
    CUDAStream streams[] = {makeStream(0), makeStream(0), makeStream(0), makeStream(0)};
    std::vector<std::thread> threads;
    size_t since = told_count();
    for (CUDAStream &stream : streams)
        threads.emplace_back([&stream] {
            CHECK_OK(cudaSetDevice(0));
            setCurrentCUDAStream(stream);
            size_t size = (10 + 2 * (size_t)stream.id()) * MIB;
            for (int i = 0; i < 200; i++)
                cache::raw_delete(cache::allocate(size));
        });
    for (std::thread &thread : threads)
        thread.join();
    for (size_t at = since; at < told_count(); at++) {
        vpool_told event = told_at(at);
        if (event.what == 'n')
            continue;
        CHECK(event.known);
        for (CUDAStream &stream : streams)
            CHECK(event.stream != stream.stream() || event.size / MIB == 10 + 2 * (size_t)stream.id());
    }
}

/* ---- barriers ---- */

static void a_use_on_another_stream_makes_a_barrier() {
    arm();
    CUDAStream side = makeStream(0);
    void *a = cache::allocate(3 * MIB), *b = cache::allocate(3 * MIB);
    cache::recordStream(a, side);
    size_t since = told_count();
    void *c = cache::allocate(3 * MIB); /* a report in between */
    cache::raw_delete(a);
    CHECK(told_last(since, 'n').barrier);
    cache::raw_delete(b);
    CHECK(!told_last(since, 'n').barrier);
    cache::raw_delete(c);
}

/* PyTorch makes no events while a pool is in use. */
static void once_pools_are_in_use_every_free_has_a_barrier() {
    arm();
    CUDAStream side = makeStream(0);
    void *a = cache::allocate(3 * MIB), *b = cache::allocate(3 * MIB);
    cache::MempoolId id = at::cuda::graph_pool_handle();
    size_t since = told_count();
    cache::raw_delete(b);
    CHECK(!told_last(since, 'n').barrier); /* no block was ever used on another stream */
    cache::recordStream(a, side);
    cache::beginAllocateToPool(0, id, side.stream());
    b = cache::allocate(3 * MIB);
    cache::raw_delete(a);
    CHECK(told_last(since, 'n').barrier);
    cache::raw_delete(b);
    CHECK(told_last(since, 'n').barrier);
    cache::endAllocateToPool(0, id);
}

template <typename Latch> static void latches(Latch latch) {
    arm();
    CUDAStream side = makeStream(0);
    void *a = cache::allocate(3 * MIB), *b = cache::allocate(3 * MIB);
    size_t since = told_count();
    cache::recordStream(a, side);
    cache::raw_delete(a);
    cache::raw_delete(cache::allocate(3 * MIB));
    CHECK(!told_last(since, 'n').barrier);
    latch();
    cache::raw_delete(b);
    CHECK(told_last(since, 'n').barrier);
}

static void a_mempool_counts() {
    latches([] {
#if TORCH < 210
        c10::cuda::MemPool pool(nullptr, true);
#else
        at::cuda::MemPool pool(nullptr, true, false, false);
#endif
        CHECK(pool.id.second);
    });
}

static void a_capture_counts() {
    latches([] {
        CUDAStream side = makeStream(0), before = getCurrentCUDAStream();
        at::cuda::CUDAGraph graph;
        setCurrentCUDAStream(side);
        graph.capture_begin({0, 0}, cudaStreamCaptureModeGlobal);
        graph.capture_end();
        setCurrentCUDAStream(before);
    });
}

/* ---- refusals ---- */

/* Beside the block that is kept the cache has a place without memory: it must not come to look for one. */
static void a_refusal_changes_nothing() {
    arm();
    void *kept = cache::allocate(3 * MIB);
    size_t allocated = cache::memoryAllocated(0), reserved = cache::memoryReserved(0);
    long reports = standin_reports;
    for (int i = 0; i < 1000; i++) {
        told_refuse(1);
        try {
            cache::allocate(4 * MIB + (size_t)(i % 7) * 64 * KIB);
            CHECK(!"refused");
        } catch (const c10::OutOfMemoryError &err) {
            CHECK(strstr(err.what(), "CUDA out of memory. Tried to allocate 4") == err.what());
            const char *of = strstr(err.what(), "3.00 MiB is allocated by PyTorch");
            CHECK(of);
        }
        CHECK(cache::memoryAllocated(0) == allocated && cache::memoryReserved(0) == reserved);
    }
    CHECK(standin_refusals == 1000 && standin_reports == reports);
    /* As any error of PyTorch's, and with its lock let go. */
    told_refuse(1);
    try {
        cache::raw_alloc(5 * MIB);
        CHECK(!"refused");
    } catch (const c10::Error &err) {
        CHECK(strstr(err.what(), "5.00 MiB"));
    }
    std::thread([] {
        CHECK_OK(cudaSetDevice(0));
        cache::raw_delete(cache::allocate(30 * MIB));
    }).join();
    cache::raw_delete(kept);
}

/* Where the cache has no place that large it refuses by itself, once it gets no segment: its observers hear of it. */
static void a_refusal_without_a_place_is_its_own() {
    arm();
    void *kept = cache::allocate(3 * MIB);
    size_t allocated = cache::memoryAllocated(0), reserved = cache::memoryReserved(0);
    size_t since = told_count();
    for (size_t i = 0; i < 10; i++) {
        told_refuse(1);
        try {
            cache::allocate((20 + 2 * i) * MIB);
            CHECK(!"refused");
        } catch (const c10::OutOfMemoryError &err) {
            CHECK(!strcmp(err.what(), "CUDA out of memory. Tried to allocate"));
        }
        CHECK(cache::memoryAllocated(0) == allocated && cache::memoryReserved(0) <= reserved); /* it gives back first */
    }
    CHECK(standin_refusals == 10);
    CHECK(told_number(since, 's') == 0 && told_number(since, 'u') == 0);
    /* What comes next is told as ever; what goes past the cache has memory. */
    void *next = cache::allocate(30 * MIB);
    CHECK(told_number(since, 's') == 1 && told_last(since, 'u').size == 30 * MIB);
    told_refuse(1);
    try {
        cache::allocate(40 * MIB);
        CHECK(!"refused");
    } catch (const c10::OutOfMemoryError &) {
    }
    cache::setUncached(true);
    cache::raw_delete(cache::allocate(24 * MIB));
    cache::setUncached(false);
    cache::raw_delete(next);
    cache::raw_delete(kept);
}

/* What other processes are shown may be collected before a segment is asked for, and leave a place: none of ours then. */
static void with_shared_memory_a_refusal_is_ours() {
    arm();
    char *kept = (char *)cache::allocate(3 * MIB);
    cudaIpcMemHandle_t handle;
    CHECK_OK(cudaIpcGetMemHandle(&handle, kept));
    told_refuse(1);
    try {
        cache::allocate(40 * MIB);
        CHECK(!"refused");
    } catch (const c10::OutOfMemoryError &err) {
        CHECK(strstr(err.what(), "libvpool.so"));
    }
    cache::raw_delete(kept);
}

/* PyTorch's own way to refuse, where addresses or memory for a whole segment are at an end. */
static void its_own_refusal_is_its_own() {
    arm();
    size_t since = told_count();
    try {
        cache::allocate((size_t)1 << 46);
        CHECK(!"refused");
    } catch (const c10::OutOfMemoryError &) {
    }
    CHECK(standin_refusals == 1);
    cache::raw_delete(cache::allocate(3 * MIB));
    CHECK(told_number(since, 'u') == 1);
}

/* Room was made for the block that it then refuses, as it has segments enough: nothing is kept for that. */
static void what_it_refuses_after_all_keeps_nothing() {
    auto in_use = (size_t(*)(int))dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_used");
    arm();
    void *large = cache::allocate(80 * MIB);
    try {
        cache::allocate(60 * MIB);
        CHECK(!"refused");
    } catch (const c10::OutOfMemoryError &) {
    }
    CHECK(in_use(0) >= 80 * MIB);
    cache::raw_delete(large);
    cache::emptyCache();
    CHECK(in_use(0) < 60 * MIB);
}

/* ---- what fits into no order ---- */

static void nothing_is_told() {
    for (int i = 0; i < 20; i++)
        CHECK(cache::allocate(3 * MIB));
    void *large = cache::allocate(30 * MIB);
    CHECK_OK(cudaMemset(large, 1, 30 * MIB));
    cache::raw_delete(large);
    cache::emptyCache();
    CHECK(told_number(0, 's') == 0 && told_number(0, 'u') == 0);
}

static void the_cache_is_native() {
    CHECK(cache::backend() == "native");
}

/* The other backend throws what a free is answered. STANDIN_THROWS: does it, in a context that fails at all that is asked of
 * it, and for memory that is none? */
static void a_free_after_an_error() {
    auto fail = (void (*)(const char *, long, CUresult))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "vp_sim_fail");
    const bool throws = getenv("STANDIN_THROWS");
    CHECK(fail);
    for (CUresult error : {CUDA_ERROR_ASSERT, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED}) {
        void *first = cache::mallocAsync(MIB), *second = cache::mallocAsync(MIB), *own;
        CHECK(first && second && cudaMallocAsync(&own, MIB, nullptr) == cudaSuccess);
        for (const char *call : {"cuStreamGetId", "cuMemFreeAsync"})
            fail(call, -1, error);
        for (void *ptr : {first, second}) {
            CHECK(cache::freeAsync(ptr) == throws);
            CHECK(cudaGetLastError() == (throws ? (cudaError_t)error : cudaSuccess));
        }
        CHECK(cudaFreeAsync(own, nullptr) == (cudaError_t)error && cudaGetLastError() == (cudaError_t)error); /* the program's */
        for (const char *call : {"cuStreamGetId", "cuMemFreeAsync"})
            fail(call, 0, CUDA_SUCCESS);
    }
    char none;
    CHECK(cache::freeAsync(&none) == throws);
    cudaGetLastError();
}

/* As vLLM keeps what its graphs write: by address alone. CUDA refuses the free, since no launch has made the block. */
static void a_graphs_block_is_freed_outside() {
    const bool throws = getenv("STANDIN_THROWS");
    CUDAStream side = makeStream(0);
    cudaGraph_t graph;
    setCurrentCUDAStream(side);
    CHECK_OK(cudaStreamBeginCapture(side.stream(), cudaStreamCaptureModeThreadLocal));
    void *first = cache::mallocAsync(MIB), *second = cache::mallocAsync(MIB);
    CHECK_OK(cudaStreamEndCapture(side.stream(), &graph));
    CHECK(cache::freeAsync(first) == throws && cache::freeAsync(second) == throws);
}

/* Another stream captures, in the mode that is PyTorch's own default; PyTorch's cache would make no call. STANDIN_REFUSED: does
 * CUDA end the capture? */
static void blocks_come_and_go_beside_a_capture() {
    const bool refused = getenv("STANDIN_REFUSED");
    CUDAStream side = makeStream(0);
    cudaGraph_t graph;
    void *before = cache::mallocAsync(MIB);
    for (bool frees : {false, true}) {
        CHECK_OK(cudaStreamBeginCapture(side.stream(), cudaStreamCaptureModeGlobal));
        CHECK((frees ? cache::freeAsync(before) : !cache::mallocAsync(MIB)) == refused);
        CHECK(cudaGetLastError() == (refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess));
        CHECK(cudaStreamEndCapture(side.stream(), &graph) == (refused ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
        cudaGetLastError();
    }
    CHECK(cudaFreeAsync(before, nullptr) == (refused ? cudaSuccess : cudaErrorInvalidValue));
}

/* Nothing but a free has its error kept from the program. */
static void errors_are_told() {
    auto fail = (void (*)(const char *, long, CUresult))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "vp_sim_fail");
    CHECK(fail);
    for (const char *call : {"cuDevicePrimaryCtxRetain", "cuMemGetInfo_v2", "cuPointerGetAttributes"})
        fail(call, -1, CUDA_ERROR_ASSERT);
    CHECK(cache::beginContext() && cudaGetLastError() == cudaErrorAssert);
    fail("cuDevicePrimaryCtxRetain", 0, CUDA_SUCCESS);
    CHECK(cache::memGetInfo() && cudaGetLastError() == cudaErrorAssert);
    CHECK(cache::pointerAttributes(&fail) && cudaGetLastError() == cudaErrorAssert);
}

static void the_cache_hands_over() {
    CHECK(cache::backend() == "cudaMallocAsync");
}

/* Before it is first used, for the program's own. */
static void the_allocator_is_changed() {
    CHECK(cache::parse());
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(nullptr);
    CHECK(cache::parse());
}

/* What the backend says goes to the program, whatever is said of it. */
static std::string refusal(void (*feature)()) {
    try {
        feature();
    } catch (const c10::Error &err) {
        return err.what();
    }
    return "";
}

static void features_are_refused() {
    CHECK(refusal(cache::recordHistory) == "cudaMallocAsync does not yet support recordHistory.");
    CHECK(refusal(cache::snapshot) == "Calling snapshot with backend:cudaMallocAsync is not meaningful.");
}

static void a_feature_is_refused() {
    CHECK(refusal(cache::snapshot) == "Calling snapshot with backend:cudaMallocAsync is not meaningful.");
}

/* record_stream() of memory that is not PyTorch's: its cache lets that be. */
static const char found[] = "it != ptr_info.end() INTERNAL ASSERT FAILED at \"/pytorch/c10/cuda/CUDAMallocAsyncAllocator.cpp\":625. ";

static void foreign_memory_is_refused() {
    CHECK(refusal([] { c10::detail::torchInternalAssertFail("f", "file", 1, found, "not found"); }) != "");
    CHECK(refusal([] { c10::detail::torchInternalAssertFail("f", "file", 1, found, std::string("not found")); }) != "");
}

/* MPI and the like ask CUDA, not PyTorch. */
static void memory_is_shown_to_nobody() {
    void *block = nullptr;
    cudaIpcMemHandle_t handle;
    CHECK_OK(cudaMallocAsync(&block, 3 * MIB, nullptr));
    CHECK(cudaIpcGetMemHandle(&handle, block) == cudaErrorInvalidValue);
    CHECK(cudaIpcGetMemHandle(&handle, block) == cudaErrorInvalidValue);
    CHECK_OK(cudaFreeAsync(block, nullptr));
}

static void other_failures_are_let_be() {
    CHECK(refusal([] { c10::detail::torchInternalAssertFail("f", "file", 1, "size INTERNAL ASSERT FAILED", ""); }) != "");
    CHECK(refusal([] { c10::detail::torchCheckFail("f", "file", 1, "it does not yet support that"); }) != "");
    CHECK(refusal([] { c10::detail::torchCheckFail("f", "file", 1, std::string("nor is this meaningful")); }) != "");
    CHECK(refusal(cache::recordHistory) == "" || cache::backend() != "native");
}

static void restored_pools_are_told() {
    arm();
    cache::MempoolId id = at::cuda::graph_pool_handle();
    cache::beginAllocateToPool(0, id, nullptr);
    void *a = cache::allocate(3 * MIB), *b = cache::allocate(4 * MIB), *c = cache::allocate(2 * MIB);
    cache::raw_delete(b);
    auto state = cache::getCheckpointState(0, id);
    cache::raw_delete(c);
    cache::raw_delete(a);
    size_t since = told_count();
    cache::setCheckpointPoolState(0, state);
    CHECK(told_number(since, 'u') == told_number(since, 'n') + 2);
    cache::raw_delete(a);
    cache::raw_delete(c);
    cache::endAllocateToPool(0, id);
}

static void an_address_is_asked_for() {
    arm();
    void *a = cache::allocate(4 * MIB), *b = cache::allocate(4 * MIB);
    cache::raw_delete(b);
    cache::raw_delete(a);
    size_t since = told_count(), live = cache::memoryAllocated(0);
    CHECK(cache::allocateWithAddress(4 * MIB, b) == b);
    CHECK(cache::memoryAllocated(0) == live + 4 * MIB);
    CHECK(told_number(since, 'u') == told_number(since, 'n') + 1);
    cache::raw_delete(b);
}

static void shared_memory_is_pinned() {
    arm();
    char *a = (char *)cache::allocate(3 * MIB);
    cudaIpcMemHandle_t handle;
    size_t since = told_count();
    cudaIpcGetMemHandle(&handle, cache::getBaseAllocation(a));
    CHECK(told_last(since, 'p').ptr == (uintptr_t)a && told_last(since, 'p').size == 0);
    cache::raw_delete(a);
}

/* More than a live block is copied: what is no block's has no memory before, and some after. */
static void a_whole_segment_is_copied() {
    arm();
    char *a = (char *)cache::allocate(3 * MIB);
    std::vector<unsigned char> host(20 * MIB);
    CHECK_OK(cudaMemset(a, 7, 3 * MIB));
    size_t since = told_count();
    CHECK_OK(cudaMemcpy(host.data(), cache::getBaseAllocation(a), host.size(), cudaMemcpyDeviceToHost));
    CHECK(told_last(since, 'p').size == host.size());
    for (size_t i = 0; i < 3 * MIB; i++)
        CHECK(host[i] == 7);
    cache::raw_delete(a);
}

#define CASE(name) {#name, name}
const Case order_cases[] = {
    CASE(the_first_segment_has_memory),
    CASE(each_device_is_armed_by_itself),
    CASE(tiny_blocks_are_told),
    CASE(what_goes_past_the_cache_has_memory),
    CASE(the_stream_is_told),
    CASE(a_named_stream_is_unknown),
    CASE(a_stream_asked_for_by_the_way_is_not_taken),
    CASE(threads_do_not_meet),
    CASE(a_use_on_another_stream_makes_a_barrier),
    CASE(once_pools_are_in_use_every_free_has_a_barrier),
    CASE(a_mempool_counts),
    CASE(a_capture_counts),
    CASE(a_refusal_changes_nothing),
    CASE(a_refusal_without_a_place_is_its_own),
    CASE(with_shared_memory_a_refusal_is_ours),
    CASE(its_own_refusal_is_its_own),
    CASE(what_it_refuses_after_all_keeps_nothing),
    CASE(nothing_is_told),
    CASE(the_cache_is_native),
    CASE(the_cache_hands_over),
    CASE(the_allocator_is_changed),
    CASE(a_free_after_an_error),
    CASE(a_graphs_block_is_freed_outside),
    CASE(blocks_come_and_go_beside_a_capture),
    CASE(errors_are_told),
    CASE(features_are_refused),
    CASE(a_feature_is_refused),
    CASE(foreign_memory_is_refused),
    CASE(memory_is_shown_to_nobody),
    CASE(other_failures_are_let_be),
    CASE(restored_pools_are_told),
    CASE(an_address_is_asked_for),
    CASE(shared_memory_is_pinned),
    CASE(a_whole_segment_is_copied),
    {nullptr, nullptr},
};
