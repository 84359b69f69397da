/* Stream-ordered memory pools: attributes, pools of the program's own, trimming, access. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "process/state.h"

#include <string.h>

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0,devices=2";

static CUmemoryPool default_pool(int dev) {
    CUmemoryPool pool;
    cu_ok(cuDeviceGetDefaultMemPool(&pool, dev));
    return pool;
}

/* As the door. */
static uint64_t get(CUmemoryPool pool, CUmemPool_attribute which) {
    uint64_t value = 0;
    CUresult res = vp_api_pool_get_attribute(pool, which, &value);
    if (res == VP_NOT_OURS)
        res = cuMemPoolGetAttribute(pool, which, &value);
    cu_ok(res);
    return value;
}

static CUresult set(CUmemoryPool pool, CUmemPool_attribute which, uint64_t value) {
    CUresult res = vp_api_pool_set_attribute(pool, which, &value);
    cr_assert(res != VP_NOT_OURS);
    return res;
}

static CUmemoryPool pool_create(int dev) {
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev}};
    CUmemoryPool pool;
    cu_ok(cuMemPoolCreate(&pool, &props));
    cr_assert(vp_api_pool_created(pool, &props));
    return pool;
}

static void pool_destroy(CUmemoryPool pool) {
    cu_ok(cuMemPoolDestroy(pool));
    vp_api_pool_destroying(pool);
    vp_api_pool_destroyed(pool, true);
}

static CUresult alloc_from(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream) {
    CUresult res = vp_api_alloc_async(out, size, pool, stream);
    cr_assert(res != VP_NOT_OURS);
    return res;
}

static void trim(CUmemoryPool pool, size_t keep) {
    cr_assert(!vp_api_pool_trim_to(pool, keep));
}

Test(mempool, attributes_of_the_default_pool) {
    const CUmemPool_attribute flags[] = {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                         CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                         CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
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

Test(mempool, accounts) {
    door_open(SIM);
    CUmemoryPool pool = default_pool(0);
    cr_assert(!set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
    CUdeviceptr a = door_take(8 * MiB, 0), b = door_take(700, 0);
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 8 * MiB + 700);
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), vp_sim_used_vmm(0));
    cu_ok(door_free_async(a, 0));
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 700);
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 8 * MiB + 700);
    cr_assert_eq(set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 5), CUDA_ERROR_INVALID_VALUE, "a mark can only be reset");
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

/* Frameworks add what a pool holds idle to what is free, to see what they may still ask for. */
static void count_once(void) {
    const uint64_t thresholds[] = {0, 4 * MiB, UINT64_MAX};
    size_t unused, total;
    door_open(SIM);
    CUmemoryPool pool = default_pool(0);
    CUdeviceptr kept = door_take(8 * MiB, 0);
    for (int i = 0; i < 3; i++) {
        if (i)
            cr_assert(!set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, thresholds[i]));
        CUdeviceptr sync = door_malloc(8 * MiB);
        cu_ok(door_free_async(door_take(16 * MiB, 0), 0));
        cu_ok(door_free(sync));
        cu_ok(door_synchronize());
        cr_assert(!vp_api_mem_info(&unused, &total));
        if (i < 2)
            cr_assert_eq(unused, total - 8 * MiB, "nobody has had any kept and asked what is reserved");
        uint64_t idle = get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) - get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        cr_assert(!vp_api_mem_info(&unused, &total));
        cr_assert_eq(unused + idle, total - 8 * MiB);
        cr_assert(i || !idle, "CUDA gives back what nobody asks it to keep");
        trim(pool, 0);
        cr_assert(!vp_api_mem_info(&unused, &total));
        cr_assert_eq(unused, total - 8 * MiB);
    }
    cu_ok(door_free_async(kept, 0));
    door_close();
}

Test(mempool, what_is_idle_is_counted_once) {
    count_once();
}

Test(mempool, what_is_idle_is_counted_once_under_a_limit) {
    setenv("VPOOL_LIMIT", "40M", 1);
    count_once();
}

/* Servers make a pool that keeps everything, and plan with what is free and what the pool has idle. */
Test(mempool, what_a_pool_of_the_programs_own_keeps_is_told_as_its_own) {
    size_t unused, total;
    CUdeviceptr a;
    door_open(SIM);
    CUmemoryPool own = pool_create(0), other = pool_create(0), pool = default_pool(0);
    cr_assert(!set(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
    cr_assert(!set(other, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 2 * MiB));
    CUdeviceptr sync = door_malloc(8 * MiB);
    cu_ok(alloc_from(&a, 16 * MiB, own, 0));
    cu_ok(door_free_async(a, 0));
    cu_ok(door_free(sync));
    cu_ok(door_synchronize());
    cr_assert_eq(get(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    cr_assert_eq(get(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 16 * MiB, "not what cudaFree gave back");
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0, "the default pool keeps nothing");
    cr_assert(!vp_api_mem_info(&unused, &total));
    cr_assert_eq(unused, total - 16 * MiB);
    cu_ok(alloc_from(&a, 4 * MiB, other, 0));
    cu_ok(door_free_async(a, 0));
    cr_assert_eq(get(other, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * MiB, "as far as it is to keep it");
    cr_assert(!vp_api_mem_info(&unused, &total));
    cr_assert_eq(unused, total - 18 * MiB);
    trim(own, 6 * MiB);
    cr_assert_leq(get(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 6 * MiB);
    trim(own, 0);
    cr_assert_eq(get(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    cu_ok(door_free(door_malloc(8 * MiB)));
    cr_assert_eq(get(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0, "it has had none since");
    cr_assert(!vp_api_mem_info(&unused, &total));
    cr_assert_eq(unused + get(other, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), total);
    pool_destroy(own);
    pool_destroy(other);
    cr_assert(!vp_api_mem_info(&unused, &total));
    cr_assert_eq(unused, total);
    door_close();
}

Test(mempool, trim_keeps_what_was_asked_for) {
    door_open(SIM);
    CUmemoryPool pool = default_pool(0);
    cr_assert(!set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
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

/* Whole handles go back alone, as pieces of CUDA's own pools do: tests of libcu++'s rely on it. */
Test(mempool, a_trim_leaves_what_lies_beside_live_blocks) {
    const size_t size = 8 * KiB, keeps[] = {1024, SIZE_MAX, size + 2048, 0};
    CUdeviceptr a, b;
    door_open(SIM);
    CUmemoryPool own = pool_create(0);
    cr_assert(!set(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
    cu_ok(alloc_from(&a, size, own, 0));
    cu_ok(alloc_from(&b, size, own, 0));
    cu_ok(door_free_async(a, 0));
    for (int i = 0; i < 4; i++) {
        trim(own, keeps[i]);
        cr_assert_eq(get(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * size, "%d", i);
    }
    cu_ok(door_free_async(b, 0));
    cu_ok(door_synchronize());
    trim(own, size + 2048);
    cr_assert_eq(get(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * size);
    trim(own, 0);
    cr_assert_eq(get(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    door_close();
}

Test(mempool, pools_of_the_programs_own_share_the_devices_memory) {
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
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MiB, "the current pool is the one that allocates");
    pool_destroy(pool);
    door_take(4 * MiB, 0);
    cr_assert_eq(get(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 6 * MiB, "and the default one again");
    cu_ok(door_free_async(c, 0));
    cr_assert(door_served, "a block outlives its pool");
    cu_ok(door_free_async(b, 0));
    door_close();
}

/* The driver gives a destroyed pool's handle out again: it is another pool. */
Test(mempool, a_pools_handle_comes_back) {
    CUdeviceptr a, b;
    uint64_t value;
    door_open("capacity=64M,granularity=64K,lazy=0");
    CUmemoryPool first = pool_create(0);
    cu_ok(alloc_from(&a, MiB, first, 0));
    pool_destroy(first);
    cr_assert(vp_api_pool_get_attribute(first, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value) == VP_NOT_OURS);
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
Test(mempool, another_devices_pool) {
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
    cu_ok(door_stream_destroy(s));
    door_close();
}

/* RMM makes each of its pools so, from CUDA 12.8 on, and asks whether what they hand out is. */
static void a_pool_for_decompression(const char *sim, bool ours) {
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                  .usage = CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS};
    CUmemPoolProps other = props;
    CUmemoryPool pool;
    CUdeviceptr ptr, beside = 0;
    int can = false;
    other.usage |= 0x40;
    door_open(sim);
    cu_ok(cuMemPoolCreate(&pool, &props));
    cr_assert(!vp_api_pool_created(pool, &other), "nobody knows what that is for");
    cr_assert_eq(vp_api_pool_created(pool, &props), ours);
    if (ours) {
        cu_ok(alloc_from(&ptr, MiB, pool, 0));
        cr_assert_eq(vp_sim_used_vmm(0), MiB);
        cu_ok(vp_api_pointer_attribute(&can, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, ptr));
        cr_assert(can);
        beside = door_take(MiB, 0);
        cu_ok(vp_api_pointer_attribute(&can, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, beside));
        cr_assert(!can, "the default pool is not for that");
        cu_ok(door_free_async(ptr, 0));
        cu_ok(door_free_async(beside, 0));
    }
    pool_destroy(pool);
    door_close();
}

Test(mempool, a_pool_for_decompression_is_ours_where_no_engine_decompresses) {
    a_pool_for_decompression(SIM, true);
}

Test(mempool, a_pool_for_decompression_is_cudas_where_an_engine_does) {
    a_pool_for_decompression("capacity=64M,granularity=64K,decompress=1", false);
}

Test(mempool, what_is_not_ours_goes_to_cuda) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUdeviceptr ptr;
    uint64_t value;
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = 3};
    CUmemPoolProps small = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = props.location, .maxSize = 4 * MiB};
    door_open(SIM);
    cu_ok(cuMemPoolCreate(&pool, &small));
    cr_assert(!vp_api_pool_created(pool, &small), "so is one with a largest size");
    cu_ok(cuMemPoolDestroy(pool));
    small.maxSize = 0;
    small.reserved[sizeof small.reserved - 1] = 1;
    cu_ok(cuMemPoolCreate(&pool, &small));
    cr_assert(!vp_api_pool_created(pool, &small), "and one of a kind that only a younger CUDA knows");
    cu_ok(cuMemPoolDestroy(pool));
    cu_ok(cuMemPoolCreate(&pool, &props));
    cr_assert(!vp_api_pool_created(pool, &props), "an exportable pool is CUDA's");
    cr_assert(vp_api_alloc_async(&ptr, 512, pool, 0) == VP_NOT_OURS);
    cr_assert(vp_api_pool_get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value) == VP_NOT_OURS);
    cr_assert(vp_api_pool_trim_to(pool, 0) == VP_NOT_OURS);
    cr_assert(vp_api_pool_set_access(pool, &desc, 1) == VP_NOT_OURS);
    cr_assert(vp_api_pool_get_attribute(NULL, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value) == VP_NOT_OURS);
    cr_assert(vp_api_pool_get_attribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, NULL) == VP_NOT_OURS);
    cr_assert(vp_api_pool_get_attribute(default_pool(0), (CUmemPool_attribute)999, &value) == VP_NOT_OURS);
    cu_ok(cuDeviceSetMemPool(0, pool));
    vp_api_pool_set_current(0, pool);
    cu_ok(door_alloc_async(&ptr, 512, NULL, 0));
    cr_assert(!door_served, "while it is the current one");
    cu_ok(door_free_async(ptr, 0));
    cu_ok(cuDeviceSetMemPool(0, default_pool(0)));
    vp_api_pool_set_current(0, default_pool(0));
    cu_ok(door_free_async(door_take(512, 0), 0));
    cu_ok(cuDeviceSetMemPool(0, pool));
    vp_api_pool_set_current(0, pool);
    pool_destroy(pool);
    cu_ok(door_free_async(door_take(512, 0), 0)); /* CUDA has made the default one current */
    door_close();
}

static CUmemAccess_flags pool_access(CUmemoryPool pool, int dev) {
    CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
    CUmemAccess_flags flags = 77;
    cu_ok(cuMemPoolGetAccess(&flags, pool, &where));
    return flags;
}

static unsigned long long access_of(CUdeviceptr addr, int dev) {
    CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
    unsigned long long flags = 77;
    cu_ok(cuMemGetAccess(&flags, &where, addr));
    return flags;
}

static CUresult open_to(CUmemoryPool pool, int dev, CUmemAccess_flags flags) {
    const CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev}, .flags = flags};
    CUresult res = vp_api_pool_set_access(pool, &desc, 1);
    cr_assert(res != VP_NOT_OURS);
    return res;
}

static const CUmemAccess_flags NONE = CU_MEM_ACCESS_FLAGS_PROT_NONE, BOTH = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

Test(mempool, access) {
    door_open(SIM);
    CUmemoryPool pool = default_pool(0);
    CUdeviceptr a = door_take(MiB, 0);
    cr_assert_eq(pool_access(pool, 1), NONE);
    cu_ok(open_to(pool, 1, BOTH));
    cr_assert_eq(pool_access(pool, 1), BOTH);
    cr_assert_eq(access_of(a, 1), BOTH);
    cr_assert_eq(access_of(door_take(9 * MiB, 0), 1), BOTH, "what comes later, too");
    cu_ok(open_to(pool, 1, NONE));
    cr_assert_eq(pool_access(pool, 1), NONE);
    cr_assert_eq(access_of(a, 1), NONE);
    cr_assert_eq(open_to(pool, 0, NONE), CUDA_ERROR_INVALID_DEVICE, "its own device cannot be shut out");
    cr_assert_eq(open_to(pool, 99, BOTH), CUDA_ERROR_INVALID_DEVICE);
    door_close();
}

/* What one pool opens, another one's closing does not take away; nor does a pool that ends while it has blocks. */
Test(mempool, access_of_several_pools) {
    CUdeviceptr a;
    door_open(SIM);
    CUmemoryPool one = pool_create(0), two = pool_create(0);
    cu_ok(alloc_from(&a, MiB, one, 0));
    cu_ok(open_to(one, 1, BOTH));
    cu_ok(open_to(two, 1, BOTH));
    cu_ok(open_to(two, 1, NONE));
    cr_assert_eq(access_of(a, 1), BOTH);
    pool_destroy(one);
    cr_assert_eq(access_of(a, 1), BOTH);
    cu_ok(door_free_async(a, 0));
    pool_destroy(two);
    CUdeviceptr b = door_take(MiB, 0);
    cr_assert_eq(access_of(b, 1), NONE);
    door_close();
}

/* A failure half-way leaves everything as it was, in the driver's own pool too. */
Test(mempool, access_that_fails) {
    CUdeviceptr at[5];
    door_open(SIM);
    CUmemoryPool pool = default_pool(0);
    for (int i = 0; i < 5; i++)
        at[i] = door_take(9 * MiB, 0);
    vp_sim_fail("cuMemSetAccess", 3, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(open_to(pool, 1, BOTH), CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(access_of(at[i], 1), NONE);
    cr_assert_eq(pool_access(pool, 1), NONE);
    cu_ok(open_to(pool, 1, BOTH));
    vp_sim_fail("cuMemSetAccess", 3, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(open_to(pool, 1, NONE), CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(access_of(at[i], 1), BOTH);
    cr_assert_eq(pool_access(pool, 1), BOTH);
    door_close();
}

/* ---- where the program waits on the host ---- */

/* As the doors where the program waits on the host. */
static void synchronize(enum vp_waited how, CUstream stream) {
    CUevent event;
    switch (how) {
    case VP_WAITED_CONTEXT: cu_ok(cuCtxSynchronize()); break;
    case VP_WAITED_STREAM: cu_ok(cuStreamSynchronize(stream)); break;
    case VP_WAITED_EVENT:
        cu_ok(cuEventCreate(&event, 0));
        cu_ok(cuEventRecord(event, stream));
        cu_ok(cuEventSynchronize(event));
        cu_ok(cuEventDestroy(event));
    }
    vp_api_synchronized(how, how == VP_WAITED_CONTEXT ? NULL : stream);
}

Test(mempool, a_release_threshold_that_is_set_is_obeyed) {
    door_open("capacity=256M,granularity=64K,lazy=0,devices=2");
    CUmemoryPool pool = default_pool(0);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (enum vp_waited how = VP_WAITED_CONTEXT; how <= VP_WAITED_EVENT; how++) {
        CUdeviceptr kept = door_take(4 * MiB, s), a = door_take(32 * MiB, s), b = door_take(32 * MiB, s);
        if (how == VP_WAITED_CONTEXT) {
            cu_ok(door_free_async(a, s));
            synchronize(how, s);
            cr_assert(!atomic_load(&vp_state.sync_matters));
            cr_assert_geq(vp_sim_used_vmm(0), 68 * MiB, "nobody has set it: what is held stays");
            cr_assert(!set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
            synchronize(how, s);
            cr_assert(!atomic_load(&vp_state.sync_matters), "and under the highest one");
            a = door_take(32 * MiB, s);
        }
        cr_assert(!set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 20 * MiB));
        synchronize(how, s);
        cr_assert_geq(vp_sim_used_vmm(0), 68 * MiB, "nothing is idle");
        cu_ok(door_free_async(a, s));
        cu_ok(door_free_async(b, s));
        cr_assert_geq(vp_sim_used_vmm(0), 68 * MiB, "not before a synchronise");
        synchronize(how, s);
        uint64_t held = get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        cr_assert_eq(held, vp_sim_used_vmm(0));
        cr_assert(held >= 20 * MiB && held <= 28 * MiB, "%zu", (size_t)held);
        cr_assert(!set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0));
        synchronize(how, s);
        cr_assert_leq(vp_sim_used_vmm(0), 8 * MiB);
        cu_ok(door_free_async(kept, s));
        synchronize(how, s);
        cr_assert_eq(vp_sim_used_vmm(0), 0);
    }
    cu_ok(door_stream_destroy(s));
    door_close();
}

/* What is idle is everybody's: thresholds add up, and one at the top keeps all. */
Test(mempool, release_thresholds_of_several_pools) {
    CUdeviceptr a;
    door_open(SIM);
    CUmemoryPool own = pool_create(0);
    cr_assert(!set(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0));
    cr_assert(!set(default_pool(0), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
    cu_ok(alloc_from(&a, 32 * MiB, own, 0));
    cu_ok(door_free_async(a, 0));
    synchronize(VP_WAITED_CONTEXT, 0);
    cr_assert_eq(vp_sim_used_vmm(0), 32 * MiB);
    cr_assert(!set(default_pool(0), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 8 * MiB));
    synchronize(VP_WAITED_CONTEXT, 0);
    cr_assert_leq(vp_sim_used_vmm(0), 16 * MiB);
    pool_destroy(own);
    door_close();
}

static void check_strict(bool wait, enum vp_waited how) {
    CUdeviceptr a, b;
    CUmemoryPool pool = pool_create(0);
    cr_assert(!set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0));
    cr_assert(!set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, wait));
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(alloc_from(&a, 2 * MiB, pool, f));
    cu_ok(cuMemsetD8Async(a, 1, 2 * MiB, f));
    cu_ok(door_free_async(a, f));
    cu_ok(cuCtxSynchronize()); /* unseen: the stream is over, and nobody was told */
    cu_ok(alloc_from(&b, 2 * MiB, pool, f));
    cr_assert_eq(a, b, "its own stream takes it");
    cu_ok(door_free_async(b, f));
    cu_ok(cuCtxSynchronize());
    cu_ok(alloc_from(&b, 2 * MiB, pool, s));
    if (wait) {
        cr_assert_eq(a, b, "a wait may be queued for it");
    } else {
        cr_assert_neq(a, b, "that it was seen over is not enough");
        cu_ok(door_free_async(b, s));
        synchronize(how, f);
        CUstream t = door_stream(CU_STREAM_NON_BLOCKING);
        cu_ok(alloc_from(&b, 2 * MiB, pool, t));
        cr_assert_eq(a == b, how != VP_WAITED_EVENT, "the program has waited for its stream");
        if (how == VP_WAITED_STREAM) {
            CUdeviceptr c;
            cu_ok(alloc_from(&c, 2 * MiB, pool, t));
            cr_assert(c != a && c != b);
            cu_ok(door_free_async(c, t));
            cu_ok(door_free_async(b, f));
            cu_ok(cuCtxSynchronize());
            vp_parking_flush(vp_state.pools[0], VP_FLUSH_ALL);
            vp_timelines_poll_for(&vp_state.timelines, 1000 * 1000 * 1000);
            cu_ok(alloc_from(&b, 2 * MiB, pool, t));
            cr_assert_neq(a, b, "but not since it was freed again");
        }
        cu_ok(door_stream_destroy(t));
    }
    cu_ok(door_free_async(b, s));
    cu_ok(door_stream_destroy(f));
    cu_ok(door_stream_destroy(s));
    pool_destroy(pool);
}

Test(mempool, opportunistic_reuse_can_be_forbidden) {
    setenv("VPOOL_WAIT", "early", 1);
    door_open(SIM);
    check_strict(true, VP_WAITED_CONTEXT);
    cu_ok(cuCtxSynchronize());
    trim(default_pool(0), 0);
    check_strict(false, VP_WAITED_CONTEXT);
    cu_ok(cuCtxSynchronize());
    trim(default_pool(0), 0);
    check_strict(false, VP_WAITED_STREAM);
    cu_ok(cuCtxSynchronize());
    trim(default_pool(0), 0);
    check_strict(false, VP_WAITED_EVENT);
    door_close();
}

/* ---- accounts ---- */

Test(mempool, what_others_have_is_not_in_the_default_pools_account) {
    CUdeviceptr a, b;
    door_open(SIM);
    CUmemoryPool pool = default_pool(0), own = pool_create(0);
    cr_assert(!set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
    a = door_malloc(16 * MiB);
    cu_ok(alloc_from(&b, 8 * MiB, own, 0));
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    cr_assert_eq(get(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * MiB);
    cu_ok(door_free(a));
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 16 * MiB, "what is idle is");
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 16 * MiB);
    cr_assert_eq(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    cu_ok(door_free_async(b, 0));
    pool_destroy(own);
    door_close();
}
