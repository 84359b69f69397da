/* Stream-ordered memory pools: several and many of them, and many devices. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "process/state.h"

/* It took 13 ms. */
Test(mempool, many_pools_that_keep_memory_are_told_of_at_once) {
    enum { POOLS = 3000, MOST_NS = 2000000 };
    static CUmemoryPool pools[POOLS];
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    size_t unused, total;
    CUdeviceptr a;
    uint64_t value;
    door_open("capacity=64M,granularity=64K,lazy=0");
    for (int i = 0; i < POOLS; i++) {
        cu_ok(cuMemPoolCreate(&pools[i], &props));
        cr_assert(vp_api_pool_created(pools[i], &props));
        value = UINT64_MAX;
        cu_ok(vp_api_pool_set_attribute(pools[i], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
        cu_ok(vp_api_pool_get_attribute(pools[i], CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    }
    cu_ok(vp_api_alloc_async(&a, MiB, pools[POOLS - 1], 0));
    cu_ok(door_free_async(a, 0));
    const uint64_t took = LEAST_NS(cu_ok(vp_api_mem_info(&unused, &total)));
    cr_assert_eq(unused, total - MiB);
    cr_assert_lt(took, MOST_NS);
    for (int i = 0; i < POOLS; i++) {
        cu_ok(cuMemPoolDestroy(pools[i]));
        vp_api_pool_destroying(pools[i]);
        vp_api_pool_destroyed(pools[i], true);
    }
    door_close();
}

/* TensorRT-LLM plans its cache with what is free and, asked behind that, what its pool has idle. */
Test(mempool, what_was_told_as_free_is_not_told_as_reserved) {
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    size_t unused, total;
    CUdeviceptr a, kept;
    CUmemoryPool pool;
    uint64_t value = UINT64_MAX, used;
    door_open("capacity=64M,granularity=64K,lazy=0");
    cu_ok(cuMemPoolCreate(&pool, &props));
    cr_assert(vp_api_pool_created(pool, &props));
    cu_ok(vp_api_pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    for (int i = 0; i < 4; i++) {
        cu_ok(vp_api_alloc_async(&a, 16 * MiB, pool, 0));
        cu_ok(vp_api_alloc_async(&kept, MiB, pool, 0));
        cu_ok(door_free_async(a, 0));
        cu_ok(vp_api_mem_info(&unused, &total));
        if (i < 2) {
            cu_ok(vp_api_pool_get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
            cu_ok(vp_api_pool_get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
            cr_assert_eq(unused + (value - used), total - (i + 1) * MiB, "%zu and %lu of %zu", unused, value - used,
                         total);
        }
    }
    /* Who asks at another time is told of what the pool keeps, from then on as no longer free. */
    cu_ok(door_free_async(kept, 0));
    cu_ok(vp_api_pool_get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    cr_assert_geq(value, 19 * MiB);
    for (int i = 0; i < 2; i++) {
        cu_ok(vp_api_mem_info(&unused, &total));
        cr_assert_eq(unused, total - value);
        cu_ok(vp_api_pool_get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    }
    door_close();
}

static uint64_t get(CUmemoryPool pool, CUmemPool_attribute which) {
    uint64_t value = 0;
    cu_ok(vp_api_pool_get_attribute(pool, which, &value));
    return value;
}

/* PyTorch looks for room for cuDNN's workspaces so: all that is free, or half of it and so on. */
Test(mempool, a_trial_of_what_is_free_leaves_nothing) {
    size_t unused, total;
    uint64_t most = UINT64_MAX;
    CUmemoryPool pool;
    CUdeviceptr tried;
    door_open("capacity=256M,granularity=64K,lazy=100");
    cu_ok(cuDeviceGetDefaultMemPool(&pool, 0));
    cu_ok(vp_api_pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
    CUdeviceptr kept = door_take(8 * MiB, 0);
    for (int i = 0; i < 4; i++) {
        cu_ok(cuMemsetD8Async(kept, 1, 8 * MiB, 0));
        cu_ok(vp_api_mem_info(&unused, &total));
        cr_assert_eq(unused, total - 8 * MiB, "%d: %zu", i, unused);
        vp_sim_others(0, unused - (unused >> i % 3));
        for (int half = 0; half < i % 3; half++)
            cr_assert_eq(vp_api_alloc_async(&tried, unused >> half, NULL, 0), CUDA_ERROR_OUT_OF_MEMORY);
        cu_ok(door_free_async(door_take(unused >> i % 3, 0), 0));
        vp_sim_others(0, 0);
        cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * MiB);
        cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 8 * MiB);
        cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 8 * MiB);
        size_t still;
        cu_ok(vp_api_mem_info(&still, &total));
        cr_assert_eq(still, unused);
        for (int n = 0; n < 1000 && vp_sim_used_vmm(0) > 8 * MiB; n++)
            cu_ok(door_synchronize());
        cr_assert_eq(vp_sim_used_vmm(0), 8 * MiB);
    }
    /* What else comes meanwhile makes it a block like others. */
    cu_ok(vp_api_mem_info(&unused, &total));
    vp_sim_others(0, unused / 4);
    cr_assert_eq(vp_api_alloc_async(&tried, unused, NULL, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr half = door_take(unused / 2, 0), other = door_take(MiB, 0);
    cu_ok(door_free_async(half, 0));
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 9 * MiB + unused / 2);
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 9 * MiB + unused / 2);
    cu_ok(door_free_async(other, 0));
    cu_ok(door_free_async(kept, 0));
    door_close();
}

/* Half of what is free is a workspace like others, where nobody has tried for more; and so is all, where it is kept. */
Test(mempool, a_block_of_what_is_free_that_is_used_is_one_like_others) {
    const struct timespec moment = {.tv_nsec = 20000000};
    for (int all = 0; all < 2; all++) {
        size_t unused, total;
        CUmemoryPool pool;
        door_open("capacity=256M,granularity=64K,lazy=0");
        cu_ok(cuDeviceGetDefaultMemPool(&pool, 0));
        CUdeviceptr kept = door_take(8 * MiB, 0);
        cu_ok(vp_api_mem_info(&unused, &total));
        const size_t size = all ? unused : unused / 2;
        CUdeviceptr used = door_take(size, 0);
        if (all)
            nanosleep(&moment, NULL);
        cu_ok(door_free_async(used, 0));
        cr_expect_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 8 * MiB + size);
        cr_expect_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 8 * MiB + size);
        cu_ok(door_free_async(kept, 0));
        door_close();
    }
}

/* Each device is asked for its own once, however often CUDA's own pool is allocated from. */
Test(mempool, a_pool_that_is_not_ours_is_not_looked_for_at_each_allocation) {
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool, other;
    CUdeviceptr a;
    unsigned long asked = 0;
    door_open("capacity=64M,granularity=64K,lazy=0,devices=8");
    cu_ok(door_free(door_malloc(MiB)));
    cu_ok(cuMemPoolCreate(&pool, &props));
    cr_assert(!vp_api_pool_created(pool, &props));
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(vp_api_alloc_async(&a, MiB, pool, 0), VP_NOT_OURS);
        if (!i)
            asked = vp_sim_calls("cuDeviceGetDefaultMemPool");
    }
    cr_assert_eq(vp_sim_calls("cuDeviceGetDefaultMemPool"), asked);
    cu_ok(cuDeviceGetDefaultMemPool(&other, 7));
    cu_ok(vp_api_alloc_async(&a, MiB, other, 0));
    cr_assert_eq(vp_sim_used_vmm(7), MiB, "one that is a default pool is found still");
    cu_ok(door_free_async(a, 0));
    cu_ok(cuMemPoolDestroy(pool));
    door_close();
}

/* Nothing else has asked for that device yet. */
Test(mempool, another_devices_default_pool) {
    CUmemoryPool pool;
    CUdeviceptr a;
    uint64_t used;
    door_open("capacity=64M,granularity=64K,lazy=0,devices=2");
    cu_ok(cuDeviceGetDefaultMemPool(&pool, 1));
    cu_ok(vp_api_alloc_async(&a, MiB, pool, 0));
    cr_assert_eq(vp_sim_used_vmm(1), MiB);
    cu_ok(vp_api_pool_get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    cr_assert_eq(used, MiB);
    cu_ok(door_free_async(a, 0));
    cr_assert(door_served);
    door_close();
}

static uint64_t reserved(CUmemoryPool pool) {
    uint64_t value = 0;
    cu_ok(vp_api_pool_get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    return value;
}

/* So CUDA promises, whatever else the device has, and takes nothing of another pool's. */
Test(mempool, trim_keeps_what_was_asked_for_beside_others) {
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    enum { OWN, OTHER, DEFAULT };
    CUmemoryPool pools[3];
    CUdeviceptr blocks[DEFAULT];
    door_open("capacity=64M,granularity=64K,lazy=0");
    door_malloc(20 * MiB);
    for (int i = 0; i < DEFAULT; i++) {
        uint64_t all = UINT64_MAX;
        cu_ok(cuMemPoolCreate(&pools[i], &props));
        cr_assert(vp_api_pool_created(pools[i], &props));
        cu_ok(vp_api_pool_set_attribute(pools[i], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
        cu_ok(vp_api_alloc_async(&blocks[i], i == OWN ? 8 * MiB : 4 * MiB, pools[i], 0));
    }
    cu_ok(door_free_async(blocks[OWN], 0));
    cu_ok(door_free_async(blocks[OTHER], 0));
    cu_ok(cuDeviceGetDefaultMemPool(&pools[DEFAULT], 0));
    cu_ok(cuCtxSynchronize());
    for (int keep = 6; keep >= 0; keep -= 6) {
        cu_ok(vp_api_pool_trim_to(pools[OWN], (size_t)keep * MiB));
        cr_assert_eq(reserved(pools[OWN]), keep * MiB);
        cr_assert_eq(vp_sim_used_vmm(0), (24 + keep) * MiB);
    }
    cu_ok(vp_api_pool_trim_to(pools[DEFAULT], 0));
    cu_ok(vp_api_pool_trim_to(pools[OTHER], SIZE_MAX));
    cr_assert_eq(reserved(pools[OTHER]), 4 * MiB);
    cu_ok(vp_api_pool_trim_to(pools[OTHER], 0));
    cr_assert_eq(vp_sim_used_vmm(0), 20 * MiB);
    door_close();
}

/* What another pool may keep is idle all the same, and free. */
Test(mempool, a_default_pool_that_is_to_keep_nothing_has_nothing_idle) {
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const uint64_t keeps[] = {0, 3 * MiB, UINT64_MAX};
    uint64_t all = UINT64_MAX;
    CUmemoryPool own, usual;
    CUdeviceptr a;
    size_t unused, total;
    door_open("capacity=64M,granularity=64K,lazy=0");
    cu_ok(cuMemPoolCreate(&own, &props));
    cr_assert(vp_api_pool_created(own, &props));
    cu_ok(vp_api_pool_set_attribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    cu_ok(cuDeviceGetDefaultMemPool(&usual, 0));
    for (size_t i = 0; i < sizeof keeps / sizeof *keeps; i++) {
        uint64_t keep = keeps[i];
        cu_ok(vp_api_pool_set_attribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
        cu_ok(vp_api_alloc_async(&a, 8 * MiB, NULL, 0));
        cu_ok(door_free_async(a, 0));
        cu_ok(door_synchronize());
        cr_assert_eq(reserved(usual), keep < 8 * MiB ? keep : 8 * MiB);
        cu_ok(vp_api_mem_info(&unused, &total));
        cr_assert_eq(unused + reserved(own) + reserved(usual), total);
    }
    door_close();
}

/* The stream of the free waits for that device's work. */
Test(mempool, one_that_is_destroyed_stays_open_until_what_it_freed_is_over) {
    const CUmemAccessDesc other = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (int late = 0; late < 2; late++) {
        CUmemoryPool pool;
        CUdeviceptr a;
        CUevent event;
        CUcontext here = door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=2"),
                  there = door_context(1);
        cu_ok(cuCtxSetCurrent(there));
        CUstream t = door_stream(CU_STREAM_NON_BLOCKING);
        cu_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        cu_ok(cuCtxSetCurrent(here));
        CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
        cu_ok(door_pool_create(&pool, 0));
        cu_ok(vp_api_pool_set_access(pool, &other, 1));
        cu_ok(door_alloc_async(&a, 4 * MiB, pool, s));
        cu_ok(cuStreamSynchronize(s));
        vp_sim_hold(t);
        cu_ok(cuCtxSetCurrent(there));
        cu_ok(cuMemsetD8Async(a, 5, 4 * MiB, t));
        cu_ok(cuEventRecord(event, t));
        cu_ok(cuCtxSetCurrent(here));
        cu_ok(cuStreamWaitEvent(s, event, 0));
        if (late)
            cu_ok(door_pool_destroy(pool));
        cu_ok(door_free_async(a, s));
        if (!late)
            cu_ok(door_pool_destroy(pool));
        vp_api_synchronized(VP_WAITED_EVENT, NULL);
        vp_sim_release(t);
        cu_ok(cuStreamSynchronize(t));
        cr_assert_eq(vp_sim_violations(), 0);
        cu_ok(door_stream_synchronize(s));
        vp_api_synchronized(VP_WAITED_EVENT, NULL);
        cr_assert_eq(vp_state.pools[0]->mem.peers, 0, "and then it is closed");
        cu_ok(cuEventDestroy(event));
    }
    door_close();
}

/* What is parked of the second one goes while the first is looked at, and it with that. */
Test(mempool, one_that_ends_while_another_stays_open_holds_up_nobody, .timeout = 20) {
    const CUmemAccessDesc other = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool open, second;
    CUdeviceptr a, b;
    door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=2");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), t = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_pool_create(&open, 0));
    cu_ok(vp_api_pool_set_access(open, &other, 1));
    cu_ok(door_alloc_async(&a, 4 * MiB, open, s));
    cu_ok(door_pool_create(&second, 0));
    cu_ok(door_alloc_async(&b, MiB / 4, second, t));
    cu_ok(door_pool_destroy(second));
    cu_ok(door_pool_destroy(open));
    cu_ok(door_free_async(b, t));
    vp_api_synchronized(VP_WAITED_EVENT, NULL);
    cu_ok(door_free_async(a, s));
    cu_ok(cuCtxSynchronize());
    vp_api_synchronized(VP_WAITED_EVENT, NULL);
    cr_assert_eq(vp_state.pools[0]->mem.peers, 0);
    door_close();
}

/* The time of a synchronise while so many blocks are alive, and some free between them. */
static uint64_t synchronise_beside(CUdeviceptr *blocks, int from, int to, CUstream s) {
    for (int i = from; i < to; i++)
        cu_ok(vp_api_alloc_async(&blocks[i], 5 * MiB / 4, NULL, s));
    for (int i = from; i < to; i += 4) {
        cu_ok(door_free_async(blocks[i], s));
        blocks[i] = 0;
    }
    return LEAST_NS(vp_api_synchronized(VP_WAITED_STREAM, s));
}

static void forbid_reuse(CUmemoryPool pool) {
    int no = 0;
    cu_ok(vp_api_pool_set_attribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &no));
    cu_ok(vp_api_pool_set_attribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no));
}

/* Out of memory is worse. */
Test(mempool, forbidden_reuse_is_better_than_no_memory) {
    CUmemoryPool pool;
    door_open("capacity=64M,granularity=64K");
    cu_ok(cuDeviceGetDefaultMemPool(&pool, 0));
    forbid_reuse(pool);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_free_async(door_take(60 * MiB, s), s));
    cu_ok(cuStreamSynchronize(s));
    cu_ok(door_free_async(door_take(60 * MiB, 0), 0));
    cu_ok(door_stream_destroy(s));
    door_close();
}

/* Though they lie side by side, and one stream has freed both. */
Test(mempool, forbidden_reuse_tells_what_was_freed_since_the_synchronise) {
    CUmemoryPool pool;
    CUdeviceptr a, b;
    door_open("capacity=64M,granularity=64K,lazy=0");
    cu_ok(cuDeviceGetDefaultMemPool(&pool, 0));
    forbid_reuse(pool);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), t = door_stream(CU_STREAM_NON_BLOCKING);
    a = door_take(2 * MiB, s);
    b = door_take(2 * MiB, s);
    cr_assert_eq(b, a + 2 * MiB);
    cu_ok(door_free_async(a, s));
    cu_ok(door_stream_synchronize(s));
    cu_ok(door_free_async(b, s));
    vp_parking_flush(vp_state.pools[0], VP_FLUSH_ALL);
    vp_timelines_poll_for(&vp_state.timelines, 1000 * 1000 * 1000);
    door_take(4 * MiB, t);
    cr_assert_eq(vp_state.pools[0]->mem.stats.held_bytes, 6 * MiB, "the first is taken, and not the second");
    door_close();
}

/* Its end is no reason to forget that the program has waited for it. */
Test(mempool, forbidden_reuse_knows_of_a_synchronise_whose_stream_has_ended) {
    CUmemoryPool pool;
    door_open("capacity=64M,granularity=64K,lazy=0");
    cu_ok(cuDeviceGetDefaultMemPool(&pool, 0));
    forbid_reuse(pool);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), t = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_free_async(door_take(4 * MiB, s), s));
    cu_ok(door_stream_synchronize(s));
    cu_ok(door_stream_destroy(s));
    vp_timelines_poll_for(&vp_state.timelines, 1000 * 1000 * 1000);
    door_take(4 * MiB, t);
    cr_assert_eq(vp_state.pools[0]->mem.stats.held_bytes, 4 * MiB);
    door_close();
}

/* The time of a synchronise with so many pieces of free memory of two streams, which live blocks keep apart. */
static uint64_t synchronise_strictly(CUdeviceptr *blocks, int from, int to, CUstream s) {
    for (int i = from; i < to; i++)
        cu_ok(vp_api_alloc_async(&blocks[i], 5 * MiB / 4, NULL, s));
    for (int i = from; i < to; i += 2)
        cu_ok(door_free_async(blocks[i], s));
    vp_api_synchronized(VP_WAITED_STREAM, s);
    return LEAST_NS(vp_api_synchronized(VP_WAITED_STREAM, s));
}

/* Each looked at all that was free: 0.3 ms where that lay in 10,000 pieces. */
Test(mempool, a_synchronise_without_opportunistic_reuse_looks_at_no_free_memory) {
    enum { FEW = 64, MANY = 2048 };
    static CUdeviceptr blocks[MANY];
    CUmemoryPool pool;
    CUdeviceptr a;
    CUstream s, t;
    door_open("capacity=4G,granularity=2M,lazy=0,backing=ledger");
    cu_ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    cu_ok(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    cu_ok(cuDeviceGetDefaultMemPool(&pool, 0));
    forbid_reuse(pool);
    const uint64_t few = synchronise_strictly(blocks, 0, FEW, s), many = synchronise_strictly(blocks, FEW, MANY, s);
    cr_assert_lt(many, 4 * few + 1000, "%lu and %lu ns", few, many);
    const size_t held = vp_state.pools[0]->mem.stats.held_bytes;
    cu_ok(vp_api_alloc_async(&a, 5 * MiB / 4, NULL, t));
    cr_assert_eq(vp_state.pools[0]->mem.stats.held_bytes, held, "what the program has waited for is taken");
    door_close();
}

/* Each looked at all chunks, to give back what is idle above a threshold, and to find these went through the blocks
 * before them: 50 to 150 us beside 20,000 to 40,000 blocks in 1 to 2 GiB. */
Test(mempool, a_synchronise_that_can_give_nothing_back_looks_at_no_chunk) {
    enum { FEW = 64, MANY = 1024 };
    static CUdeviceptr blocks[MANY];
    uint64_t none = 0;
    CUmemoryPool pool;
    CUstream s;
    setenv("VPOOL_HANDLE", "2M", true);
    door_open("capacity=4G,granularity=2M,lazy=0,backing=ledger");
    cu_ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    cu_ok(cuDeviceGetDefaultMemPool(&pool, 0));
    cu_ok(vp_api_pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
    const uint64_t few = synchronise_beside(blocks, 0, FEW, s), many = synchronise_beside(blocks, FEW, MANY, s);
    cr_assert_lt(many, 4 * few + 1000, "%lu and %lu ns", few, many);
    /* What can go goes. */
    const size_t held = vp_state.pools[0]->mem.stats.held_bytes;
    for (int i = 0; i < MANY; i++)
        if (blocks[i])
            cu_ok(door_free_async(blocks[i], s));
    vp_api_synchronized(VP_WAITED_STREAM, s);
    cr_assert_gt(held, 1024 * MiB);
    cr_assert_eq(vp_state.pools[0]->mem.stats.held_bytes, 0);
    door_close();
}
