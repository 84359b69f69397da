/* Stream caches: what a stream frees is parked for it, and comes back to it alone. Each test goes the way of the doors,
 * so that the fast path is taken where it may be; driver calls tell which way it was. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "process/state.h"
#include "pool/stream_cache.h"

#include <stdlib.h>

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0,timeout=300";

enum { SIZE = 64 << 10 };

/* The invariants would be proved after each operation: then there is no fast path. */
static void open_fast(const char *sim) {
    setenv("VPOOL_CHECK", "0", 1);
    door_open(sim);
    cr_assert(vp_state.fast);
}

/* Driver calls that the slow path makes and the fast one does not. */
static unsigned long slow_calls(void) {
    return vp_sim_calls("cuStreamGetCtx") + vp_sim_calls("cuStreamGetFlags") + vp_sim_calls("cuEventRecord") +
           vp_sim_calls("cuMemCreate");
}

/* Allocates and frees on the stream until the fast path serves it. */
static CUdeviceptr warm(CUstream s, size_t size) {
    CUdeviceptr at = 0;
    for (int i = 0; i < 4; i++) {
        at = door_take(size, s);
        cu_ok(door_free_async(at, s));
    }
    return at;
}

Test(stream_cache, a_pair_repeated_calls_nobody) {
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = warm(s, SIZE);
    unsigned long before = slow_calls();
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(door_take(SIZE, s), at);
        cu_ok(door_free_async(at, s));
    }
    cr_assert_eq(slow_calls(), before);
    door_close();
}

/* After an error that stays CUDA answers whoever allocates with it. */
Test(stream_cache, serves_no_more_where_all_fails) {
    CUdeviceptr ptr;
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    warm(s, SIZE);
    vp_sim_fail("cuStreamSynchronize", -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    vp_sim_fail("cuMemAllocAsync", -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(door_stream_synchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(door_alloc_async(&ptr, SIZE, NULL, s), CUDA_ERROR_ILLEGAL_ADDRESS);
    door_close();
}

/* The handle of a destroyed stream comes back as another stream: what the first had parked is not its. */
Test(stream_cache, a_handle_given_out_again_is_another_stream) {
    open_fast(SIM);
    CUstream held = door_stream(CU_STREAM_NON_BLOCKING), f = door_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;
    CUdeviceptr scratch = door_malloc(512), a = warm(f, SIZE);
    vp_sim_hold(held);
    cu_ok(cuMemsetD8Async(scratch, 0, 1, held));
    cu_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    cu_ok(cuEventRecord(event, held));
    cu_ok(cuStreamWaitEvent(f, event, 0));
    cr_assert_eq(door_take(SIZE, f), a);
    cu_ok(cuMemsetD8Async(a, 1, SIZE, f));
    cu_ok(door_free_async(a, f));
    cu_ok(door_stream_destroy(f));
    CUstream again = door_stream(CU_STREAM_NON_BLOCKING);
    cr_assert_eq(again, f);
    cr_assert_neq(door_take(SIZE, again), a, "work of the first is queued there");
    vp_sim_release(held);
    cu_ok(cuCtxSynchronize());
    door_close();
}

/* The legacy stream is another in each context: one thread uses that of two devices, by the same handle. */
Test(stream_cache, the_legacy_stream_is_that_of_the_current_context) {
    CUcontext context[2];
    CUdeviceptr at[2], again;
    int device = -1;
    open_fast("capacity=64M,granularity=64K,lazy=0,devices=2");
    cu_ok(cuCtxGetCurrent(&context[0]));
    cu_ok(cuDevicePrimaryCtxRetain(&context[1], 1));
    vp_api_context_created(context[1], true);
    for (int round = 0; round < 8; round++) {
        int d = round % 3 % 2;
        cu_ok(cuCtxSetCurrent(context[d]));
        at[d] = warm(CU_STREAM_LEGACY, SIZE);
        cu_ok(cuCtxSetCurrent(context[1 - d]));
        again = door_take(SIZE, CU_STREAM_LEGACY);
        cr_assert_neq(again, at[d], "round %d: a block of device %d", round, d);
        if (vp_api_pointer_attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, again) == VP_NOT_OURS)
            cu_ok(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, again));
        cr_assert_eq(device, 1 - d);
        cu_ok(door_free_async(again, CU_STREAM_LEGACY));
    }
    door_close();
}

/* A block whose free is worth an event belongs to the stream that frees it, even where the handle means that of another
 * context now. */
Test(stream_cache, a_large_block_waits_for_the_stream_that_frees_it) {
    CUcontext context[2];
    open_fast("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=2");
    cu_ok(cuCtxGetCurrent(&context[0]));
    cu_ok(cuDevicePrimaryCtxRetain(&context[1], 1));
    vp_api_context_created(context[1], true);
    cu_ok(cuCtxSetCurrent(context[1]));
    CUdeviceptr there = door_take(SIZE, CU_STREAM_LEGACY);
    cu_ok(cuCtxSetCurrent(context[0]));
    warm(door_stream(CU_STREAM_NON_BLOCKING), 4 * MiB);
    CUdeviceptr a = warm(CU_STREAM_LEGACY, 4 * MiB);
    cr_assert_eq(door_take(4 * MiB, CU_STREAM_LEGACY), a);
    cu_ok(cuCtxSetCurrent(context[1]));
    vp_sim_hold(CU_STREAM_LEGACY);
    cu_ok(cuMemsetD8Async(there, 1, SIZE, CU_STREAM_LEGACY));
    cu_ok(door_free_async(a, CU_STREAM_LEGACY));
    cu_ok(cuCtxSetCurrent(context[0]));
    unsigned long waits = vp_sim_calls("cuStreamWaitEvent");
    cr_assert(door_take(4 * MiB, CU_STREAM_LEGACY) != a || vp_sim_calls("cuStreamWaitEvent") > waits,
              "work that may touch it is queued in the other context");
    cu_ok(cuCtxSetCurrent(context[1]));
    vp_sim_release(CU_STREAM_LEGACY);
    cu_ok(cuCtxSynchronize());
    cu_ok(cuCtxSetCurrent(context[0]));
    door_close();
}

/* A cache is used again for another stream, while a thread still remembers it by the handle of the first. */
Test(stream_cache, a_lane_used_again_is_another_streams) {
    open_fast(SIM);
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING);
    warm(f, SIZE);
    cu_ok(door_stream_destroy(f));
    CUstream g = door_stream(CU_STREAM_NON_BLOCKING), x = door_stream(CU_STREAM_NON_BLOCKING);
    cr_assert_eq(g, f);
    CUdeviceptr a = warm(x, SIZE);
    vp_sim_hold(x);
    cr_assert_eq(door_take(SIZE, x), a);
    cu_ok(cuMemsetD8Async(a, 1, SIZE, x));
    cu_ok(door_free_async(a, x));
    cr_assert_neq(door_take(SIZE, g), a, "work of another stream is queued there");
    vp_sim_release(x);
    cu_ok(cuCtxSynchronize());
    door_close();
}

/* A stream that captures is CUDA's, whatever its cache holds. */
Test(stream_cache, a_capturing_stream_gets_none_of_it) {
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = warm(s, SIZE), live = door_take(SIZE, s), node = 0;
    cr_assert_eq(live, at);
    cu_ok(door_free_async(live, s));
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_alloc_async(&node, SIZE, NULL, s));
    cr_assert(!door_served && node != at, "a node of the graph");
    cu_ok(door_free_async(node, s));
    cr_assert(!door_served);
    cu_ok(door_end_capture(s, NULL));
    cr_assert_eq(door_take(SIZE, s), at, "it was parked all the while");
    door_close();
}

/* A block freed on one stream and wanted by another, while the first has work queued on it. */
static void wanted_by_another(size_t size) {
    open_fast("capacity=64M,granularity=64K,lazy=0,timeout=300");
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = warm(f, size);
    vp_sim_hold(f);
    cr_assert_eq(door_take(size, f), a);
    cu_ok(cuMemsetD8Async(a, 1, size, f));
    cu_ok(door_free_async(a, f));
    /* All else that is free goes back, and the caches give up what they hold. */
    door_relieve();
    CUdeviceptr b = door_malloc(size), c = door_take(size, s);
    cr_assert(b != a && c != a, "cudaMalloc: %#llx, another stream: %#llx, freed: %#llx", b, c, a);
    vp_sim_release(f);
    cu_ok(cuCtxSynchronize());
    door_close();
}

Test(stream_cache, a_small_block_waits_for_its_stream) {
    wanted_by_another(SIZE);
}

Test(stream_cache, a_large_block_waits_for_its_stream) {
    wanted_by_another(4 * MiB);
}

/* Sizes are exact: the neighbour of a small block is not overwritten because a request was served by a smaller one. */
Test(stream_cache, a_block_serves_its_own_size) {
    size_t size = 0;
    CUdeviceptr base = 0;
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr small = door_take(512, s), wall = door_take(512, s);
    cu_ok(door_free_async(small, s));
    CUdeviceptr large = door_take(SIZE, s);
    cr_assert(large != small);
    cr_assert(!vp_api_address_range(&base, &size, large) && size == SIZE);
    cr_assert(wall != large);
    door_close();
}

/* A request that the cache cannot serve makes it give up what it holds, but not tiny blocks: the next one of that size
 * is served. */
Test(stream_cache, tiny_blocks_stay_parked) {
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr tiny = warm(s, 512), small = door_take(4096, s);
    struct vp_pool *pool = vp_state.pools[0];
    cr_assert_eq(vp_stream_caches_parked(&pool->caches, NULL), 512);
    cu_ok(door_free_async(small, s));
    cr_assert_eq(vp_stream_caches_parked(&pool->caches, NULL), 512 + 4096);
    door_take(2 * 4096, s);
    cr_assert_eq(vp_stream_caches_parked(&pool->caches, NULL), 512);
    unsigned long before = slow_calls();
    cr_assert_eq(door_take(512, s), tiny);
    cr_assert_eq(slow_calls(), before);
    door_close();
}

/* They are free memory like any other before a chunk is created. */
Test(stream_cache, tiny_blocks_go_before_memory_is_made) {
    enum { BLOCKS = (64 << 10) / 512, FREED = 32 };
    CUdeviceptr block[BLOCKS];
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = door_take(512, s);
    cr_assert_eq(vp_sim_calls("cuMemCreate"), 1);
    for (int i = 0; i < FREED; i++)
        cu_ok(door_free_async(block[i], s));
    cr_assert_eq(vp_stream_caches_parked(&vp_state.pools[0]->caches, NULL), FREED * 512);
    CUdeviceptr at = door_take(FREED * 512, s);
    cr_assert(at >= block[0] && at < block[BLOCKS - 1]);
    cr_assert_eq(vp_sim_calls("cuMemCreate"), 1);
    door_close();
}

/* More than a cache has room for: the oldest leave it, and each of the others is served from it once. */
Test(stream_cache, the_oldest_block_makes_room) {
    enum { BLOCKS = 48 };
    CUdeviceptr block[BLOCKS], again[BLOCKS];
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = door_take(512 + 8 * i, s);
    for (int i = 0; i < BLOCKS; i++)
        cu_ok(door_free_async(block[i], s));
    for (int i = BLOCKS - 1; i >= 0; i -= 2) {
        again[i] = door_take(512 + 8 * i, s);
        cr_assert(i < BLOCKS - VP_STREAM_CACHE_PARKED || again[i] == block[i]);
    }
    for (int i = BLOCKS - 2; i >= 0; i -= 2) {
        again[i] = door_take(512 + 8 * i, s);
        cr_assert(i < BLOCKS - VP_STREAM_CACHE_PARKED || again[i] == block[i]);
    }
    for (int i = 0; i < BLOCKS; i++)
        for (int j = 0; j < i; j++)
            cr_assert_neq(again[i], again[j]);
    door_close();
}

/* Allocates and frees a block until the cache holds it, which it does not always do with sizes that hardly repeat. */
static const struct vp_stream_cache *park(CUstream s, size_t size) {
    const struct vp_stream_cache *cache = NULL;
    do {
        cu_ok(door_free_async(door_take(size, s), s));
        cache = vp_container_of(vp_state.pools[0]->caches.used.next, struct vp_stream_cache, link);
    } while (!atomic_load(&cache->count));
    cr_assert_eq(atomic_load(&cache->count), 1);
    return cache;
}

/* A cache finds blocks by a tag, which different sizes may share. */
Test(stream_cache, sizes_may_look_alike) {
    enum { TAGS = 1 << 16, LEAST = 4096 };
    size_t *size_of = calloc(TAGS, sizeof *size_of), size = LEAST, found = 0;
    CUdeviceptr base = 0;
    cr_assert(size_of);
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (const struct vp_stream_cache *cache;; size += 8) {
        cache = park(s, size);
        if (size_of[cache->tag[0]])
            break;
        size_of[cache->tag[0]] = size;
    }
    const struct vp_stream_cache *cache = park(s, size);
    size_t other = size_of[cache->tag[0]];
    cr_assert(other && other < size);
    cache = park(s, other);
    cr_assert_eq(cache->parked[cache->slot[0]].block.asked, other);
    CUdeviceptr block = door_take(size, s);
    cr_assert(!vp_api_address_range(&base, &found, block));
    cr_assert_eq(found, size, "%zu bytes for %zu", found, size);
    free(size_of);
    door_close();
}

/* What was given out is held no more, though the cache holds others. */
Test(stream_cache, a_block_among_others_is_given_out_once) {
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = warm(s, 256), b = door_take(512, s);
    cu_ok(door_free_async(b, s));
    cr_assert_eq(vp_stream_caches_parked(&vp_state.pools[0]->caches, NULL), 256 + 512);
    cr_assert_eq(door_take(512, s), b);
    cr_assert_neq(door_take(512, s), b);
    cr_assert_eq(door_take(256, s), a);
    door_close();
}

/* Two live blocks are two: what has left the cache is in it no more. */
Test(stream_cache, a_block_is_given_out_once) {
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    warm(s, SIZE);
    CUdeviceptr at[20];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            at[i] = door_take(SIZE, s);
            for (int k = 0; k < i; k++)
                cr_assert(at[k] + SIZE <= at[i] || at[i] + SIZE <= at[k], "blocks %d and %d", k, i);
        }
        for (int i = 0; i < 20; i++)
            cu_ok(door_free_async(at[i], s));
    }
    door_close();
}

Test(stream_cache, a_parked_block_cannot_be_freed_again) {
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = warm(s, SIZE), base = 0;
    size_t size;
    cr_assert_neq(door_free_async(at, s), CUDA_SUCCESS);
    cr_assert_neq(door_free(at), CUDA_SUCCESS);
    cr_assert(!vp_api_owns(at));
    cr_assert(vp_api_address_range(&base, &size, at) != CUDA_SUCCESS);
    cr_assert_eq(door_take(SIZE, s), at, "it is there still, and once");
    cr_assert_neq(door_take(SIZE, s), at);
    door_close();
}

/* What counts for one memory pool does not count for another. */
Test(stream_cache, a_memory_pool_gets_its_own_blocks) {
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool, standard;
    CUdeviceptr at = 0, other = 0;
    cuuint64_t used = 0;
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    at = warm(s, SIZE);
    cu_ok(cuMemPoolCreate(&pool, &props));
    cr_assert(vp_api_pool_created(pool, &props));
    cu_ok(cuDeviceGetDefaultMemPool(&standard, 0));
    cr_assert(!vp_api_alloc_async(&other, SIZE, pool, s));
    cr_assert_neq(at, 0);
    cr_assert(!vp_api_pool_get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    cr_assert_geq(used, SIZE, "it counts there");
    cr_assert(!vp_api_pool_get_attribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    cr_assert_eq(used, 0, "and not here");
    cu_ok(door_free_async(other, s));
    door_close();
}

/* The thread's other streams, and other threads' blocks, go to where they belong. */
Test(stream_cache, what_is_parked_is_counted_as_freed) {
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at[4];
    for (int i = 0; i < 4; i++)
        at[i] = door_take(SIZE, s);
    for (int i = 0; i < 4; i++)
        cu_ok(door_free_async(at[i], s));
    cr_assert(vp_enter());
    struct vp_memory_stats stats = vp_pool_stats(vp_state.pools[0]);
    vp_leave();
    cr_assert_eq(stats.live_bytes, 0);
    cr_assert_eq(stats.allocs, stats.frees);
    door_close();
}

/* Taken back by its stream, a block gives up its event, and is freed with another: a stream that has no memory waits
 * for that. */
Test(stream_cache, an_event_in_a_lane_can_be_waited_for) {
    setenv("VPOOL_WAIT", "early", 1);
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    warm(other, 4 * MiB);
    door_relieve();
    CUdeviceptr a = warm(s, 4 * MiB);
    for (int i = 0; i < 8; i++) {
        unsigned long events = vp_sim_calls("cuEventRecord");
        cr_assert_eq(door_take(4 * MiB, s), a);
        cr_assert_eq(vp_sim_calls("cuEventRecord"), events);
        cu_ok(door_free_async(a, s));
        cr_assert_eq(vp_sim_calls("cuEventRecord"), events + 1);
    }
    cr_assert_eq(door_take(4 * MiB, s), a);
    vp_sim_hold(s);
    cu_ok(cuMemsetD8Async(a, 1, 4 * MiB, s));
    cu_ok(door_free_async(a, s));
    unsigned long waits = vp_sim_calls("cuStreamWaitEvent");
    cr_assert_eq(door_take(4 * MiB, other), a);
    cr_assert_eq(vp_sim_calls("cuStreamWaitEvent"), waits + 1);
    vp_sim_release(s);
    cu_ok(cuCtxSynchronize());
    door_close();
}

/* What one stream frees another takes, large as it is: it is counted as freed and allocated, and goes on from there to
 * the next. */
Test(stream_cache, a_block_goes_from_stream_to_stream) {
    open_fast(SIM);
    CUstream s[3] = {door_stream(CU_STREAM_NON_BLOCKING), door_stream(CU_STREAM_NON_BLOCKING),
                     door_stream(CU_STREAM_NON_BLOCKING)};
    CUdeviceptr at = warm(s[0], 4 * MiB);
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(door_take(4 * MiB, s[i % 3]), at, "round %d", i);
        cu_ok(cuMemsetD8Async(at, (unsigned char)i, 4 * MiB, s[i % 3]));
        cu_ok(door_free_async(at, s[i % 3]));
        cr_assert(vp_enter());
        const struct vp_pool *pool = vp_state.pools[0];
        cr_assert_eq(pool->mem.stats.live_bytes, 4 * MiB, "parked");
        cr_assert_eq(pool->mem.stats.peak_live_bytes, 4 * MiB);
        cr_assert(vp_pool_check(pool, stderr));
        vp_leave();
    }
    cr_assert(vp_enter());
    struct vp_memory_stats stats = vp_pool_stats(vp_state.pools[0]);
    vp_leave();
    cr_assert_eq(stats.live_bytes, 0);
    cr_assert_eq(stats.allocs, 104);
    cr_assert_eq(stats.frees, 104);
    door_close();
}

/* Of two places of a size the older is taken, whichever of them lies ready in a cache: else programs do not repeat
 * their addresses. */
Test(stream_cache, what_another_has_parked_is_no_younger_than_the_oldest) {
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr small = door_take(512, other), older = door_take(4 * MiB, s), younger = door_take(4 * MiB, s);
    cu_ok(door_free_async(older, other));
    small = door_take(1024, other); /* its cache gives up the older one */
    cu_ok(door_free_async(younger, s));
    cr_assert_eq(door_take(4 * MiB, other), older);
    cr_assert_eq(door_take(4 * MiB, other), younger);
    cu_ok(door_free_async(small, s));
    door_close();
}

/* A stream of another device takes a block over: it is no business of that device's caches. */
Test(stream_cache, a_block_taken_over_stays_with_its_device) {
    CUcontext context[2];
    CUmemoryPool pool;
    CUdeviceptr at = 0;
    open_fast("capacity=64M,granularity=64K,lazy=0,devices=2");
    cu_ok(cuCtxGetCurrent(&context[0]));
    cu_ok(cuDevicePrimaryCtxRetain(&context[1], 1));
    vp_api_context_created(context[1], true);
    cu_ok(cuDeviceGetDefaultMemPool(&pool, 0));
    warm(door_stream(CU_STREAM_NON_BLOCKING), 4 * MiB);
    cu_ok(cuCtxSetCurrent(context[1]));
    CUstream there = door_stream(CU_STREAM_NON_BLOCKING);
    warm(there, SIZE);
    for (int i = 0; i < 4; i++) {
        cu_ok(cuCtxSetCurrent(context[0]));
        CUstream here = door_stream(CU_STREAM_NON_BLOCKING);
        CUdeviceptr parked = warm(here, 4 * MiB);
        cu_ok(cuCtxSetCurrent(context[1]));
        cr_assert(!vp_api_alloc_async(&at, 4 * MiB, pool, there));
        cr_assert_eq(at, parked);
        cu_ok(door_free_async(at, there));
        door_relieve();
        cr_assert(vp_enter());
        for (int d = 0; d < 2; d++)
            cr_assert(vp_pool_check(vp_state.pools[d], stderr));
        vp_leave();
    }
    cu_ok(cuCtxSetCurrent(context[0]));
    door_close();
}

/* A free that others might wait for has an event of its own, also in the cache: whoever takes the block gives that up.
 */
Test(stream_cache, a_point_in_a_lane_is_given_up) {
    unsigned long long id;
    open_fast(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    warm(other, 4 * MiB);
    for (int i = 0; i < 50; i++)
        cu_ok(door_free_async(door_take(4 * MiB, s), s));
    cr_assert_gt(vp_sim_calls("cuEventRecord"), 0, "the frees have events");
    cu_ok(cuCtxSynchronize());
    door_relieve();
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    cu_ok(cuStreamGetId(s, &id));
    const struct vp_timeline *timeline = vp_table_get(&vp_state.timelines.by_id, id + 1);
    cr_assert(timeline);
    cr_assert_eq(timeline->refs, 0, "%zu points are left of memory that is gone", timeline->refs);
    door_close();
}
