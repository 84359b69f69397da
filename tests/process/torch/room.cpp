/* Room that is made for a block before the cache chooses one: as much as that may take. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "guest.h"

#include <cstdlib>
#include <thread>
#include <vector>

/* Where sizes are rounded up, there is room for what comes of it. */
static void room_is_for_the_size_that_is_rounded_up() {
    arm();
    for (size_t size : {600 * KIB, 4 * MIB, 4 * MIB + 1, 9 * MIB - 512, 33 * MIB, 3 * KIB + 5}) {
        size_t since = told_count();
        cache::allocate(size);
        /* What is left of a large block stays with it, if it is no more. */
        CHECK(told_last(since, 'u').size - told_last(since, 'r').size < (size > MIB ? MIB : 0) + 512);
    }
    CHECK(told_last(0, 'r').size == 3 * KIB + 512);
}

/* Where large blocks are not split, there is room for all of the one that may come. */
static void room_is_for_a_block_that_is_not_split() {
    arm();
    void *large = cache::allocate(59 * MIB);
    cache::raw_delete(large);
    size_t since = told_count();
    large = cache::allocate(41 * MIB);
    size_t room = told_last(since, 'r').size, block = told_last(since, 'u').size;
    CHECK(block == 60 * MIB);
    CHECK(getenv("TOLD_LATER") || room >= block);
    cache::raw_delete(large);
    since = told_count();
    large = cache::allocate(42 * MIB);
    CHECK(told_last(since, 'u').size == 60 * MIB && told_last(since, 'r').size >= 60 * MIB);
    /* Of smaller ones no more is made sure of. */
    since = told_count();
    cache::allocate(30 * MIB);
    CHECK(told_last(since, 'r').size == 30 * MIB);
}

/* As torch.cuda.memory._set_allocator_settings() does. */
static void set(const char *text) {
#if TORCH < 210
    cache::setAllocatorSettings(text);
#else
    c10::CachingAllocator::AcceleratorAllocatorConfig config;
    config.parseArgs(text);
#endif
}

/* vLLM has large blocks not split for a while: as it loads a model. */
static void settings_are_obeyed_while_they_last() {
    arm();
    cache::raw_delete(cache::allocate(59 * MIB));
    set("garbage_collection_threshold:0.8,max_split_size_mb:80,max_split_size_mb:40");
    size_t since = told_count();
    cache::raw_delete(cache::allocate(41 * MIB));
    CHECK(told_last(since, 'u').size == 60 * MIB && told_last(since, 'r').size >= 60 * MIB);
    set("garbage_collection_threshold:0.8");
    since = told_count();
    cache::raw_delete(cache::allocate(42 * MIB));
    CHECK(told_last(since, 'u').size == 42 * MIB && told_last(since, 'r').size == 42 * MIB);
}

/* Another thread's block takes the room that was made for this one while the cache has its lock released. */
static void a_lock_that_is_released_leaves_no_block_without_memory() {
    static void *others;
    arm();
    cache::raw_delete(cache::allocate(150 * MIB));
    set("max_split_size_mb:512, release_lock_on_cudamalloc : True");
    cache::in_between = [] {
        cache::in_between = nullptr;
        std::thread([] { others = cache::allocate(140 * MIB); }).join();
    };
    bool refused = false;
    const size_t since = told_count();
    try {
        cache::allocate(200 * MIB);
    } catch (const c10::OutOfMemoryError &) {
        refused = true;
    }
    CHECK(refused && others);
    CHECK_OK(cudaMemset(others, 1, 140 * MIB));
    cache::raw_delete(others);
    set("max_split_size_mb:512");
    cache::emptyCache();
    CHECK_OK(cudaMemset(cache::allocate(200 * MIB), 1, 200 * MIB));
    CHECK(!told_number(since, 's'));
}

/* A pool may split none of its blocks: what comes is as large as its segment. Others are not alike. */
static void room_is_for_what_a_pool_does_not_split() {
    arm();
    cache::MempoolId id = at::cuda::graph_pool_handle();
    cache::beginAllocateToPool(0, id, nullptr);
    void *large = cache::allocate(59 * MIB);
    cache::raw_delete(large);
    size_t since = told_count();
    large = cache::allocate(30 * MIB);
    CHECK(told_last(since, 'u').size == 60 * MIB);
    cache::endAllocateToPool(0, id);
    since = told_count();
    cache::allocate(41 * MIB);
    CHECK(told_last(since, 'r').size == 41 * MIB);
    cache::raw_delete(large);
}

/* The first block of a segment that is not split may be more than there is memory for: what was asked for has some. */
static void a_block_that_is_not_split_has_what_was_asked_for() {
    arm();
    std::vector<void *> others;
    cache::MempoolId id = at::cuda::graph_pool_handle();
    cache::beginAllocateToPool(0, id, nullptr);
    cache::raw_delete(cache::allocate(60 * MIB));
    cache::endAllocateToPool(0, id);
    try {
        for (;;)
            others.push_back(cache::allocate(2 * MIB));
    } catch (const c10::OutOfMemoryError &) {
    }
    for (int i = 0; i < 15; i++) {
        cache::raw_delete(others.back());
        others.pop_back();
    }
    cache::beginAllocateToPool(0, id, nullptr);
    const size_t since = told_count(), size = 5 * MIB;
    char *block = (char *)cache::allocate(size);
    CHECK(told_last(since, 'u').size == 60 * MIB);
    std::vector<char> bytes(size);
    CHECK_OK(cudaMemset(block, 7, size));
    CHECK_OK(cudaMemcpy(bytes.data(), block, size, cudaMemcpyDeviceToHost));
    CHECK(bytes == std::vector<char>(size, 7));
    cache::raw_delete(block);
    cache::endAllocateToPool(0, id);
}

static size_t told_as_free() {
    size_t bytes, all;
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaMemGetInfo(&bytes, &all));
    return bytes;
}

/* What a graph writes to, and what others were shown, is not free, though it is in no block: vLLM and SGLang ask what
 * their graphs take, and plan by what is left. */
static void what_stays_under_no_block_is_not_free() {
    arm();
    CUDAStream side = makeStream(0);
    const cache::MempoolId id = at::cuda::graph_pool_handle();
    cudaGraph_t graph;
    size_t before = told_as_free(), had = 0;
    setCurrentCUDAStream(side);
    cache::beginAllocateToPool(0, id, side.stream());
    CHECK_OK(cudaStreamBeginCapture(side.stream(), cudaStreamCaptureModeRelaxed));
    void *block = cache::allocate(60 * MIB);
    CHECK_OK(cudaMemsetAsync(block, 1, 60 * MIB, side.stream()));
    cache::raw_delete(block);
    CHECK_OK(cudaStreamEndCapture(side.stream(), &graph));
    cache::endAllocateToPool(0, id);
    CHECK(told_as_free() <= before - 60 * MIB);
    setCurrentCUDAStream(makeStream(0));
    /* A segment that another process was shown, beside a block of it. */
    before = told_as_free();
    cache::raw_delete(cache::allocate(40 * MIB));
    cudaIpcMemHandle_t handle;
    CHECK(told_as_free() == before);
    block = cache::allocate(30 * MIB);
    CHECK_OK(cudaIpcGetMemHandle(&handle, cache::getBaseAllocation(block)));
    CHECK(told_as_free() <= before - 40 * MIB);
    /* And what is told as free is there. */
    before = told_as_free();
    try {
        for (; had < before; had += 2 * MIB)
            CHECK(cache::allocate(2 * MIB));
    } catch (const c10::OutOfMemoryError &) {
    }
    CHECK(had + 24 * MIB >= before);
}

#define CASE(name) {#name, name}
const Case room_cases[] = {
    CASE(room_is_for_the_size_that_is_rounded_up),
    CASE(room_is_for_a_block_that_is_not_split),
    CASE(settings_are_obeyed_while_they_last),
    CASE(a_lock_that_is_released_leaves_no_block_without_memory),
    CASE(room_is_for_what_a_pool_does_not_split),
    CASE(a_block_that_is_not_split_has_what_was_asked_for),
    CASE(what_stays_under_no_block_is_not_free),
    {nullptr, nullptr},
};
