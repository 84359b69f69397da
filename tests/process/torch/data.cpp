/* Bytes through the cache: what a block holds stays as it was written, until it is freed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "guest.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <random>
#include <thread>
#include <vector>

/* A block with a value all over it, which was written on a stream. */
struct Filled {
    void *ptr;
    size_t size;
    unsigned char value;
};

static Filled fill(size_t size, unsigned char value) {
    Filled filled{cache::allocate(size), size, value};
    CHECK_OK(cudaMemsetAsync(filled.ptr, value, size, getCurrentCUDAStream().stream()));
    return filled;
}

/* The same of a large block's ends alone, where to write all of it would take the kernel longer than the rest. */
static Filled fill_ends(size_t size, unsigned char value) {
    Filled filled{cache::allocate(size), size, value};
    for (char *end : {(char *)filled.ptr, (char *)filled.ptr + size - std::min<size_t>(size, MIB)})
        CHECK_OK(cudaMemsetAsync(end, value, std::min<size_t>(size, MIB), getCurrentCUDAStream().stream()));
    return filled;
}

/* Where a thread has the host's copy of a block: new pages for each would take longer than all the rest. */
static unsigned char *host_of(const Filled &filled) {
    static thread_local std::vector<unsigned char> host;
    if (host.size() < filled.size)
        host.resize(filled.size);
    return host.data();
}

static bool is_all(const unsigned char *host, const Filled &filled) {
    return host[0] == filled.value && !memcmp(host, host + 1, filled.size - 1);
}

static void expect(const Filled &filled, cudaStream_t stream) {
    unsigned char *host = host_of(filled);
    CHECK_OK(cudaMemcpyAsync(host, filled.ptr, filled.size, cudaMemcpyDeviceToHost, stream));
    CHECK_OK(cudaStreamSynchronize(stream));
    CHECK(is_all(host, filled));
}

static void expect_ends(const Filled &filled, cudaStream_t stream) {
    const size_t size = std::min<size_t>(filled.size, MIB);
    for (char *end : {(char *)filled.ptr, (char *)filled.ptr + filled.size - size})
        expect(Filled{end, size, filled.value}, stream);
}

/* Random blocks on one stream of a thread, some of them read on another, recorded as PyTorch asks. */
static void churn(unsigned seed, int rounds, size_t most) {
    std::mt19937 random(seed);
    CUDAStream own = makeStream(0), side = makeStream(0);
    std::vector<Filled> live;
    size_t held = 0;

    CHECK_OK(cudaSetDevice(0));
    setCurrentCUDAStream(own);
    for (int i = 0; i < rounds; i++) {
        if (!live.empty() && (random() % 5 < 2 || held > most)) {
            size_t at = random() % live.size();
            Filled gone = live[at];
            live[at] = live.back();
            live.pop_back();
            held -= gone.size;
            if (random() % 4 == 0) {
                cudaEvent_t event;
                CHECK_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
                CHECK_OK(cudaEventRecord(event, own.stream()));
                CHECK_OK(cudaStreamWaitEvent(side.stream(), event, 0));
                CHECK_OK(cudaEventDestroy(event));
                cache::recordStream(gone.ptr, side);
                unsigned char *host = host_of(gone);
                CHECK_OK(cudaMemcpyAsync(host, gone.ptr, gone.size, cudaMemcpyDeviceToHost, side.stream()));
                cache::raw_delete(gone.ptr);
                CHECK_OK(cudaStreamSynchronize(side.stream()));
                CHECK(is_all(host, gone));
            } else {
                expect(gone, own.stream());
                cache::raw_delete(gone.ptr);
            }
            continue;
        }
        size_t size = random() % 3 ? random() % (200 * KIB) + 1 : random() % 12 ? random() % (3 * MIB) + 1 : 11 * MIB;
        live.push_back(fill(size, (unsigned char)random()));
        held += size;
        if (random() % 64 == 0)
            cache::emptyCache();
    }
    for (Filled &filled : live) {
        expect(filled, own.stream());
        cache::raw_delete(filled.ptr);
    }
}

static void blocks_keep_their_bytes() {
    churn(1, 1500, 40 * MIB);
    CHECK(cache::memoryAllocated(0) == 0);
}

static void blocks_of_threads_keep_their_bytes() {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; i++)
        threads.emplace_back(churn, i + 2, 400, 12 * MIB);
    for (std::thread &thread : threads)
        thread.join();
    CHECK(cache::memoryAllocated(0) == 0);
}

/* A graph writes again to blocks that are long free to the cache. */
static void graphs_keep_their_bytes() {
    CUDAStream side = makeStream(0);
    std::vector<unsigned char> host(3 * MIB);
    at::cuda::CUDAGraph graph;
    Filled out = fill(3 * MIB, 1);
    CHECK_OK(cudaStreamSynchronize(getCurrentCUDAStream().stream()));
    setCurrentCUDAStream(side);
    graph.capture_begin({0, 0}, cudaStreamCaptureModeGlobal);
    void *middle = cache::allocate(3 * MIB), *more = cache::allocate(11 * MIB);
    CHECK_OK(cudaMemsetAsync(middle, 7, 3 * MIB, side.stream()));
    CHECK_OK(cudaMemsetAsync(more, 9, 11 * MIB, side.stream()));
    CHECK_OK(cudaMemcpyAsync(out.ptr, middle, 3 * MIB, cudaMemcpyDeviceToDevice, side.stream()));
    cache::raw_delete(middle);
    cache::raw_delete(more);
    graph.capture_end();
    std::vector<Filled> others;
    for (int i = 0; i < 6; i++) {
        others.push_back(fill((size_t)(2 + i) * MIB, (unsigned char)(20 + i)));
        graph.replay();
        CHECK_OK(cudaStreamSynchronize(side.stream()));
        out.value = 7;
        expect(out, side.stream());
        for (Filled &other : others)
            expect(other, side.stream());
    }
    for (Filled &other : others)
        cache::raw_delete(other.ptr);
}

/* A pool is set back to how it was while what was captured is there. */
static void restored_pools_keep_their_bytes() {
    cache::MempoolId id = at::cuda::graph_pool_handle();
    CUDAStream side = makeStream(0);
    setCurrentCUDAStream(side);
    cache::beginAllocateToPool(0, id, side.stream());
    Filled a = fill(3 * MIB, 3), b = fill(4 * MIB, 4);
    auto state = cache::getCheckpointState(0, id);
    cache::raw_delete(b.ptr);
    CHECK_OK(cudaStreamSynchronize(side.stream()));
    cache::setCheckpointPoolState(0, state);
    cache::endAllocateToPool(0, id);
    Filled c = fill(3 * MIB, 5);
    CHECK_OK(cudaMemsetAsync(a.ptr, a.value, a.size, side.stream()));
    CHECK_OK(cudaMemsetAsync(b.ptr, b.value, b.size, side.stream()));
    for (Filled &filled : std::vector<Filled>{a, b, c}) {
        expect(filled, side.stream());
        cache::raw_delete(filled.ptr);
    }
}

/* A pool that no capture has seen is set back, while another thread wants all that is to be had, by doors of its own. */
static void pools_that_no_capture_has_seen_keep_their_bytes() {
    cache::MempoolId id = at::cuda::graph_pool_handle();
    std::vector<Filled> live;
    std::atomic<bool> done{false};
    cache::raw_delete(cache::allocate(3 * MIB)); /* the first segment has memory */
    cache::beginAllocateToPool(0, id, nullptr);
    for (unsigned char i = 0; i < 12; i++)
        live.push_back(fill((i % 3 ? 14 : 7) * MIB, (unsigned char)(i + 1)));
    for (size_t i = 0; i < live.size(); i += 2)
        cache::raw_delete(live[i].ptr);
    auto state = cache::getCheckpointState(0, id);
    CHECK_OK(cudaDeviceSynchronize());
    std::thread other([&done] {
        void *taken;
        CHECK_OK(cudaSetDevice(0));
        while (!done)
            if (cudaMalloc(&taken, 180 * MIB) == cudaSuccess) {
                CHECK_OK(cudaMemset(taken, 99, 180 * MIB));
                CHECK_OK(cudaFree(taken));
            } else {
                cudaGetLastError();
            }
    });
    for (int round = 0; round < 60; round++) {
        cache::setCheckpointPoolState(0, state);
        for (size_t i = 1; i < live.size() && round % 20 == 19; i += 2)
            expect(live[i], getCurrentCUDAStream().stream());
    }
    done = true;
    other.join();
    cache::endAllocateToPool(0, id);
    for (size_t i = 1; i < live.size(); i += 2) {
        expect(live[i], getCurrentCUDAStream().stream());
        cache::raw_delete(live[i].ptr);
    }
}

/* Out of memory, caught, and on. */
static void a_batch_size_is_found() {
    size_t size = MIB, refused = 0;
    for (int i = 0; i < 40; i++) {
        try {
            Filled filled = fill_ends(size, (unsigned char)i);
            expect_ends(filled, getCurrentCUDAStream().stream());
            cache::raw_delete(filled.ptr);
            size *= 2;
        } catch (const c10::OutOfMemoryError &err) {
            CHECK(strstr(err.what(), "out of memory"));
            refused++;
            size = size / 4 + 512;
        }
        CHECK(cache::memoryAllocated(0) == 0);
    }
    CHECK(refused);
}

/* What was refused keeps no memory from others. */
static void a_refusal_holds_nothing() {
    for (size_t size : {(size_t)1 << 45, (size_t)300 * MIB}) {
        try {
            cache::allocate(size);
            CHECK(!"refused");
        } catch (const c10::OutOfMemoryError &) {
        }
        blocks_of_threads_keep_their_bytes();
    }
}

/* Where larger blocks were refused the cache has still room for small ones in a segment that it has. */
static void small_blocks_are_had_where_larger_are_refused() {
    Filled first = fill(KIB, 1), second = fill(3 * MIB, 2);
    std::vector<Filled> small, large;
    try {
        for (;;)
            large.push_back(fill(2 * MIB, 3));
    } catch (const c10::OutOfMemoryError &) {
    }
    for (unsigned char i = 0; i < 100; i++)
        small.push_back(fill(KIB, (unsigned char)(i + 4)));
    for (Filled &filled : small)
        expect(filled, getCurrentCUDAStream().stream());
    expect(first, getCurrentCUDAStream().stream());
    expect(second, getCurrentCUDAStream().stream());
    CHECK(large.size() > 60);
    expect(large.back(), getCurrentCUDAStream().stream());
}

/* Nobody is asked for room before the smallest blocks. Where the cache has a place for one, and all memory is in use, it
 * is refused, and others go on; once there is some, it is had. */
static void the_smallest_blocks_are_refused(void (*between)()) {
    std::vector<void *> all;
    unsigned refused = 0;
    setCurrentCUDAStream(makeStream(0)); /* its first segment is bare */
    Filled small = fill(KIB, 1), large = fill(3 * MIB, 2);
    expect(small, getCurrentCUDAStream().stream());
    cache::raw_delete(small.ptr);
    if (between)
        between();
    for (void *ptr; cudaMalloc(&ptr, MIB) == cudaSuccess;)
        all.push_back(ptr);
    cudaGetLastError();
    for (int i = 0; i < 3; i++) {
        try {
            fill(100, 4);
        } catch (const c10::OutOfMemoryError &err) {
            CHECK(strstr(err.what(), "out of memory"));
            refused++;
        }
        expect(large, getCurrentCUDAStream().stream());
    }
    CHECK(refused == 3);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(cudaFree(all.back()));
        all.pop_back();
    }
    expect(fill(100, 5), getCurrentCUDAStream().stream());
    expect(fill(KIB, 6), getCurrentCUDAStream().stream());
}

static void the_smallest_blocks_are_refused_where_there_is_no_memory() {
    arm();
    the_smallest_blocks_are_refused(nullptr);
}

/* Nor is a larger one that a capture of the program's own refused taken for them: no block has come of it. */
static void fail_beside_a_capture() {
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    CHECK_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    try {
        cache::allocate(30 * MIB);
        CHECK(!"refused");
    } catch (const c10::OutOfMemoryError &) {
        CHECK(!"out of memory");
    } catch (const c10::Error &) {
    }
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
    cudaGetLastError();
}

static void the_smallest_blocks_are_refused_after_what_a_capture_refused() {
    arm();
    the_smallest_blocks_are_refused(fail_beside_a_capture);
}

/* Each block is larger than all before, and none fits what the cache has: it gives back before it hoards, and what is
 * in use keeps its bytes. With a pool in use it could not, and is not asked to. */
static size_t grow(size_t blocks, size_t *most) {
    std::vector<Filled> live;
    size_t reserved = cache::memoryReserved(0);
    for (size_t i = 0; i < blocks; i++) {
        if (live.size() == 2) {
            Filled gone = live.front();
            live.erase(live.begin());
            expect_ends(gone, getCurrentCUDAStream().stream());
            cache::raw_delete(gone.ptr);
        }
        live.push_back(fill_ends((12 + 2 * i) * MIB, (unsigned char)(i + 1)));
        *most = std::max(*most, cache::memoryReserved(0) - reserved);
    }
    for (Filled &filled : live)
        cache::raw_delete(filled.ptr);
    return live.empty() ? 0 : 2 * live.back().size;
}

static void a_cache_that_hoards_gives_back() {
    size_t most = 0, live = grow(24, &most);
    CHECK(most < live / 100 * 155 + 300 * MIB);
}

static void a_cache_with_pools_is_let_be() {
    at::cuda::graph_pool_handle();
    size_t most = 0, live = grow(24, &most);
    CHECK(most > live / 100 * 155 + 300 * MIB);
}

/* Large blocks, and such as share a segment of 20 MiB, of which a few stay: the device has the rest right after. */
static void an_emptied_cache_is_the_devices() {
    auto in_use = (size_t(*)(int))dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_used");
    const size_t sizes[] = {16 * MIB, 9 * MIB, 3 * MIB, 100 * KIB, 12 * MIB};
    std::vector<Filled> kept, gone;
    size_t alive = 0;
    CHECK(in_use);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 100; i++) {
            bool stays = !round && i % 20 == 0;
            (stays ? kept : gone).push_back((stays ? fill : fill_ends)(sizes[(i + i / 20) % 5], (unsigned char)i));
            alive += stays ? kept.back().size : 0;
        }
        for (Filled &filled : gone)
            cache::raw_delete(filled.ptr);
        gone.clear();
    }
    CHECK(in_use(0) > alive + 512 * MIB);
    cache::emptyCache();
    CHECK(in_use(0) <= alive + alive / 50 + 32 * MIB);
    for (Filled &filled : kept) {
        expect(filled, getCurrentCUDAStream().stream());
        cache::raw_delete(filled.ptr);
    }
}

/* Segments are expandable from some moment on, as where verl trains: of what lies there nothing is bare, nor is memory
 * held for it besides. */
static void expandable_segments_need_no_room() {
    auto in_use = (size_t(*)(int))dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_used");
    CHECK(in_use);
    Filled first = fill(KIB, 1), second = fill(3 * MIB, 2);
    cache::setExpandable(true);
    Filled told = fill(30 * MIB, 3); /* by this one it is known */
    const size_t before = in_use(0);
    Filled large = fill(60 * MIB, 4);
    CHECK(in_use(0) <= before + 64 * MIB);
    cache::raw_delete(large.ptr);
    Filled other = fill(90 * MIB, 5);
    CHECK(in_use(0) <= before + 156 * MIB);
    /* A segment that is made again has its room. */
    cache::setExpandable(false);
    Filled bare = fill(40 * MIB, 6);
    for (Filled &filled : std::vector<Filled>{first, second, told, other, bare}) {
        expect(filled, getCurrentCUDAStream().stream());
        cache::raw_delete(filled.ptr);
    }
}

/* They are now and then, on a device that is full most of the time. */
static void blocks_keep_their_bytes_where_segments_are_expandable_now_and_then() {
    std::mt19937 random(7);
    std::vector<Filled> live;
    unsigned refused = 0;
    for (int i = 0; i < 900; i++) {
        if (random() % 24 == 0)
            cache::setExpandable(random() % 2);
        if (random() % 60 == 0)
            cache::emptyCache();
        if (live.size() > 4 && random() % 5 < 2) {
            std::swap(live[random() % live.size()], live.back());
            expect(live.back(), getCurrentCUDAStream().stream());
            cache::raw_delete(live.back().ptr);
            live.pop_back();
            continue;
        }
        try {
            live.push_back(fill((random() % 3 ? random() % 24 * MIB : 0) + random() % MIB + 1, (unsigned char)random()));
        } catch (const c10::OutOfMemoryError &) {
            refused++;
            for (int gone = 0; gone < 2 && !live.empty(); gone++) {
                cache::raw_delete(live.back().ptr);
                live.pop_back();
            }
        }
    }
    CHECK(refused);
    for (Filled &filled : live) {
        expect(filled, getCurrentCUDAStream().stream());
        cache::raw_delete(filled.ptr);
    }
}

/* By the other backend, where the program has not chosen it (STANDIN_REWORDED), as by the cache. */
static void out_of_memory_is_said_alike() {
    for (int device = 0; device < 13; device++) {
        std::string number = std::to_string(device), said;
        bool reworded = getenv("STANDIN_REWORDED");
#if TORCH == 206
        reworded &= device < 10;
        number = reworded ? number : std::string(1, (char)device);
#endif
        const std::string where = "Allocation on device " + number + " would exceed ",
                          wanted = reworded ? "CUDA out of memory. " + where + "its memory." : where + "allowed memory. (out of memory)";
        try {
            cache::outOfMemory((c10::DeviceIndex)device);
        } catch (const c10::OutOfMemoryError &err) {
            said = err.what();
        }
        CHECK(said == (wanted + "\nCurrently allocated     : 1.00 MiB").c_str());
    }
}

#define CASE(name) {#name, name}
const Case data_cases[] = {
    CASE(blocks_keep_their_bytes),
    CASE(blocks_of_threads_keep_their_bytes),
    CASE(graphs_keep_their_bytes),
    CASE(restored_pools_keep_their_bytes),
    CASE(pools_that_no_capture_has_seen_keep_their_bytes),
    CASE(a_batch_size_is_found),
    CASE(a_refusal_holds_nothing),
    CASE(small_blocks_are_had_where_larger_are_refused),
    CASE(the_smallest_blocks_are_refused_where_there_is_no_memory),
    CASE(the_smallest_blocks_are_refused_after_what_a_capture_refused),
    CASE(a_cache_that_hoards_gives_back),
    CASE(a_cache_with_pools_is_let_be),
    CASE(an_emptied_cache_is_the_devices),
    CASE(expandable_segments_need_no_room),
    CASE(blocks_keep_their_bytes_where_segments_are_expandable_now_and_then),
    CASE(out_of_memory_is_said_alike),
    {nullptr, nullptr},
};
