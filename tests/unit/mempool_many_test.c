/* Stream-ordered memory pools: many of them, and many devices. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "base/clock.h"
#include "process/state.h"

/* It took 13 ms. */
Test(mempool, many_pools_that_keep_memory_are_told_of_at_once) {
    enum { POOLS = 3000, TRIES = 5, MOST_NS = 2000000 };
    static CUmemoryPool pools[POOLS];
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    size_t unused, total;
    CUdeviceptr a;
    uint64_t best = UINT64_MAX, value;
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
    for (int i = 0; i < TRIES; i++) {
        const uint64_t begin = vp_clock_ns();
        cu_ok(vp_api_mem_info(&unused, &total));
        const uint64_t took = vp_clock_ns() - begin;
        best = took < best ? took : best;
    }
    cr_assert_eq(unused, total - MiB);
    cr_assert_lt(best, MOST_NS);
    for (int i = 0; i < POOLS; i++) {
        cu_ok(cuMemPoolDestroy(pools[i]));
        vp_api_pool_destroying(pools[i]);
        vp_api_pool_destroyed(pools[i], true);
    }
    door_close();
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
