/* Stream-ordered memory pools: attributes, pools of the program's own, trimming, access. */
#include "fixture.h"

#include "api/api_private.h"

#include <string.h>

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0,devices=2";

static CUmemoryPool default_pool(int dev)
{
    CUmemoryPool pool;
    cu_ok(cuDeviceGetDefaultMemPool(&pool, dev));
    return pool;
}

static uint64_t get(CUmemoryPool pool, CUmemPool_attribute which)
{
    uint64_t value = 0;
    CUresult res;
    cr_assert(vp_api_pool_get_attribute(pool, which, &value, &res) && !res);
    return value;
}

static CUresult set(CUmemoryPool pool, CUmemPool_attribute which, uint64_t value)
{
    CUresult res;
    cr_assert(vp_api_pool_set_attribute(pool, which, &value, &res));
    return res;
}

static CUmemoryPool pool_create(int dev)
{
    const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev } };
    CUmemoryPool pool;
    cu_ok(cuMemPoolCreate(&pool, &props));
    cr_assert(vp_api_pool_created(pool, &props));
    return pool;
}

static void pool_destroy(CUmemoryPool pool)
{
    cu_ok(cuMemPoolDestroy(pool));
    vp_api_pool_destroying(pool);
    vp_api_pool_destroyed(pool, true);
}

static CUresult alloc_from(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
    CUresult res;
    cr_assert(vp_api_alloc_async(out, size, pool, stream, &res));
    return res;
}

static void trim(CUmemoryPool pool, size_t keep)
{
    CUresult res;
    cr_assert(vp_api_pool_trim_to(pool, keep, &res) && !res);
}

Test(mempool, attributes_of_the_default_pool)
{
    const CUmemPool_attribute flags[] = { CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                          CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                          CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES };
    door_open(SIM);
    CUmemoryPool pool = default_pool(0);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(get(pool, flags[i]), 1);
        cr_assert(!set(pool, flags[i], 0) && get(pool, flags[i]) == 0);
        cr_assert(!set(pool, flags[i], 1) && get(pool, flags[i]) == 1);
    }
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    cr_assert(!set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), UINT64_MAX);
    door_close();
}

Test(mempool, accounts)
{
    door_open(SIM);
    CUmemoryPool pool = default_pool(0);
    CUdeviceptr a = door_take(8 * MiB, 0), b = door_take(700, 0);
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 8 * MiB + 700);
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), vp_sim_used_vmm(0));
    cu_ok(door_free_async(a, 0));
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 700);
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 8 * MiB + 700);
    cr_assert_eq(set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 5), CUDA_ERROR_INVALID_VALUE,
                 "a mark can only be reset");
    cr_assert(!set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0));
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 700);
    cu_ok(cuCtxSynchronize());
    trim(pool, 0);
    cr_assert_leq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * KiB);
    cr_assert_geq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 8 * MiB);
    cr_assert(!set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0));
    cr_assert_leq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 64 * KiB);
    cu_ok(door_free_async(b, 0));
    door_close();
}

Test(mempool, trim_keeps_what_was_asked_for)
{
    door_open(SIM);
    CUmemoryPool pool = default_pool(0);
    cu_ok(door_free_async(door_take(8 * MiB, 0), 0));
    cu_ok(cuCtxSynchronize());
    trim(pool, 16 * MiB);
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * MiB);
    trim(pool, 3 * MiB);
    cr_assert_geq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 3 * MiB);
    cr_assert_leq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * MiB);
    trim(pool, 0);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    door_close();
}

Test(mempool, pools_of_the_programs_own_share_the_devices_memory)
{
    CUdeviceptr a, b, c;
    door_open(SIM);
    CUmemoryPool pool = pool_create(0);
    cu_ok(alloc_from(&a, 2 * MiB, pool, 0));
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2 * MiB);
    cr_assert_eq(get(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    cu_ok(door_free_async(a, 0));
    b = door_take(2 * MiB, 0);
    cr_assert_eq(a, b, "nothing is hidden from one that the other could use");
    cu_ok(cuDeviceSetMemPool(0, pool));
    vp_api_pool_set_current(0, pool);
    c = door_take(MiB, 0);
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MiB,
                 "the current pool is the one that allocates");
    pool_destroy(pool);
    door_take(4 * MiB, 0);
    cr_assert_eq(get(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 6 * MiB,
                 "and the default one again");
    cu_ok(door_free_async(c, 0));
    cr_assert(door_served, "a block outlives its pool");
    cu_ok(door_free_async(b, 0));
    door_close();
}

/* The driver gives a destroyed pool's handle out again: it is another pool. */
Test(mempool, a_pools_handle_comes_back)
{
    CUdeviceptr a, b;
    CUresult res;
    uint64_t value;
    door_open("capacity=64M,granularity=64K,lazy=0");
    CUmemoryPool first = pool_create(0);
    cu_ok(alloc_from(&a, MiB, first, 0));
    pool_destroy(first);
    cr_assert(!vp_api_pool_get_attribute(first, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value, &res));
    CUmemoryPool second = pool_create(0);
    cr_assert_eq(second, first);
    cr_assert_eq(get(second, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    cu_ok(alloc_from(&b, 512, second, 0));
    cu_ok(door_free_async(a, 0));
    cr_assert_eq(get(second, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 512);
    cu_ok(door_free_async(b, 0));
    pool_destroy(second);
    door_close();
}

/* A pool's memory is its device's, whatever stream it is asked on. */
Test(mempool, another_devices_pool)
{
    CUcontext there;
    CUdeviceptr a;
    CUcontext here = door_open(SIM);
    cu_ok(cuDevicePrimaryCtxRetain(&there, 1));
    vp_api_context_created(there, true);
    cu_ok(cuCtxSetCurrent(there));
    CUmemoryPool pool = pool_create(1);
    cu_ok(cuCtxSetCurrent(here));
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 3; i++) {
        cu_ok(alloc_from(&a, MiB, pool, s));
        cr_assert_eq(vp_sim_used_vmm(1), MiB);
        cu_ok(door_free_async(a, s));
        cr_assert(door_served);
    }
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    pool_destroy(pool);
    door_stream_destroy(s);
    door_close();
}

Test(mempool, what_is_not_ours_goes_to_cuda)
{
    CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                             .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
    CUmemoryPool pool;
    CUdeviceptr ptr;
    CUresult res;
    uint64_t value;
    CUmemLocation where = { .type = CU_MEM_LOCATION_TYPE_DEVICE };
    CUmemAccess_flags flags;
    door_open(SIM);
    cu_ok(cuMemPoolCreate(&pool, &props));
    cr_assert(!vp_api_pool_created(pool, &props), "an exportable pool is CUDA's");
    cr_assert(!vp_api_alloc_async(&ptr, 512, pool, 0, &res));
    cr_assert(!vp_api_pool_get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value, &res));
    cr_assert(!vp_api_pool_trim_to(pool, 0, &res));
    cr_assert(!vp_api_pool_get_access(&flags, pool, &where, &res));
    cr_assert(!vp_api_pool_get_attribute(NULL, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value, &res));
    cr_assert(!vp_api_pool_get_attribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, NULL, &res));
    cr_assert(!vp_api_pool_get_attribute(default_pool(0), (CUmemPool_attribute)999, &value, &res));
    cu_ok(cuDeviceSetMemPool(0, pool));
    vp_api_pool_set_current(0, pool);
    cu_ok(door_alloc_async(&ptr, 512, 0));
    cr_assert(!door_served, "while it is the current one");
    cu_ok(door_free_async(ptr, 0));
    cu_ok(cuDeviceSetMemPool(0, default_pool(0)));
    vp_api_pool_set_current(0, default_pool(0));
    cu_ok(door_free_async(door_take(512, 0), 0));
    door_close();
}

Test(mempool, access)
{
    CUmemAccess_flags flags;
    CUresult res;
    door_open(SIM);
    CUmemoryPool pool = default_pool(0);
    CUmemLocation peer = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 };
    CUmemAccessDesc desc = { .location = peer, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUdeviceptr a = door_take(MiB, 0);
    unsigned long long real = 0;
    cr_assert(vp_api_pool_get_access(&flags, pool, &peer, &res) && !res &&
              flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    cr_assert(vp_api_pool_set_access(pool, &desc, 1, &res) && !res);
    cr_assert(vp_api_pool_get_access(&flags, pool, &peer, &res) && !res &&
              flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cu_ok(cuMemGetAccess(&real, &peer, a));
    cr_assert_eq(real, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    cr_assert(vp_api_pool_set_access(pool, &desc, 1, &res) && !res);
    cu_ok(cuMemGetAccess(&real, &peer, a));
    cr_assert_eq(real, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    desc.location.id = 0;
    cr_assert(vp_api_pool_set_access(pool, &desc, 1, &res) && res == CUDA_ERROR_INVALID_VALUE,
              "its own device cannot be shut out");
    desc.location.id = 99;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    cr_assert(vp_api_pool_set_access(pool, &desc, 1, &res) && res != CUDA_SUCCESS);
    cu_ok(door_free_async(a, 0));
    door_close();
}
