/* The pool: peers, what its handles can do, and what a device may lack. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <errno.h>

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0";

/* ---- peers ---- */

static unsigned long long access_of(CUdeviceptr addr, int device) {
    const CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = 0;
    cu_ok(cuMemGetAccess(&flags, &where, addr));
    return flags;
}

Test(pool, peers_reach_every_mapping_present_and_future) {
    fx_open_pool("capacity=64M,granularity=64K,devices=3", &vp_policy_vpool, NULL);
    CUdeviceptr a = fx_alloc(2 * MiB, 1), wall = fx_alloc(MiB, 1), b = fx_alloc(MiB, 1);
    cr_assert_eq(access_of(a, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    cr_assert(!vp_memory_set_peers(&fx.pool.mem, 1 << 1));
    fx_free(a, 1);
    fx_free(b, 1);
    CUdeviceptr c = fx_alloc(5 * MiB, 1);
    for (size_t at = 0; at < 5 * MiB; at += MiB) {
        cr_assert_eq(access_of(c + at, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        cr_assert_eq(access_of(c + at, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        cr_assert_eq(access_of(c + at, 2), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    cr_assert_eq(access_of(wall, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(access_of(a, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "old mappings too: they may be taken back");
    cr_assert(!vp_memory_set_peers(&fx.pool.mem, 1 << 2));
    cr_assert_eq(access_of(wall, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    cr_assert_eq(access_of(wall, 2), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fx_close();
}

/* Enabled before there was a pool: it has no byte that they cannot reach, or does not come to be. */
Test(pool, peers_from_before_the_pool_reach_it) {
    const struct vp_pool_config config = {.handle = MiB, .va = GiB, .pages = 16, .peers = 1 << 0 | 1 << 1};
    static struct vp_pool other;
    fx_open_pool("capacity=64M,granularity=64K,devices=3", &vp_policy_vpmm, &config);
    CUdeviceptr a = fx_alloc(MiB / 2, 1), b = fx_alloc(4 * MiB, 1);
    cr_assert_eq(access_of(a, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(access_of(a, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(access_of(b, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(access_of(b, 2), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    vp_sim_fail("cuMemSetAccess", -1, CUDA_ERROR_NOT_SUPPORTED);
    cr_assert_eq(vp_pool_init(&other, &fx.drv, &fx.timelines, 0, &vp_policy_vpmm, &config), -EIO);
    vp_sim_fail("cuMemSetAccess", 0, CUDA_SUCCESS);
    fx_close();
}

/* Setting access fails at each mapping in turn: what was open stays so, what was not is not. */
Test(pool, peers_change_whole_or_not_at_all) {
    fx_open_pool("capacity=64M,granularity=64K,devices=3", &vp_policy_vpool, NULL);
    CUdeviceptr at[4];
    for (int i = 0; i < 4; i++)
        at[i] = fx_alloc(MiB, 1);
    cr_assert(!vp_memory_set_peers(&fx.pool.mem, 1 << 1));
    /* 1 goes and 2 comes: two calls for each mapping. */
    for (int nth = 1; nth <= 8; nth++) {
        vp_sim_fail("cuMemSetAccess", nth, CUDA_ERROR_OUT_OF_MEMORY);
        cr_assert_eq(vp_memory_set_peers(&fx.pool.mem, 1 << 2), -ENOMEM);
        for (int i = 0; i < 4; i++) {
            cr_assert_eq(access_of(at[i], 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
            cr_assert_eq(access_of(at[i], 2), CU_MEM_ACCESS_FLAGS_PROT_NONE);
        }
    }
    cr_assert(!vp_memory_set_peers(&fx.pool.mem, 1 << 2));
    cr_assert_eq(access_of(at[3], 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    cr_assert_eq(access_of(fx_alloc(9 * MiB, 1), 2), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fx_close();
}

/* llama.cpp shuts its devices out for each long prompt and lets them in for each answer: a call for each chunk of a
 * model. */
Test(pool, peers_that_come_and_go_cost_two_turns) {
    fx_open_pool("capacity=64M,granularity=64K,devices=3", &vp_policy_vpool, NULL);
    CUdeviceptr a = fx_alloc(2 * MiB, 1);
    unsigned long calls = 0;
    for (int turn = 0; turn < 8; turn++) {
        if (turn == 3)
            calls = vp_sim_calls("cuMemSetAccess");
        cr_assert(!vp_memory_set_peers(&fx.pool.mem, turn % 2 ? 0 : 1 << 1));
        cr_assert_eq(access_of(a, 1), turn == 1 ? CU_MEM_ACCESS_FLAGS_PROT_NONE : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    cr_assert_eq(vp_sim_calls("cuMemSetAccess"), calls);
    cr_assert_eq(access_of(fx_alloc(9 * MiB, 1), 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(access_of(a, 2), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    fx_close();
}

/* Opened for copies: nobody asked, so nobody is told where the driver refuses. What the program opens besides comes and
 * goes, and closes nothing. */
Test(pool, copiers_are_let_in_where_they_can_be) {
    fx_open_pool("capacity=64M,granularity=64K,devices=4", &vp_policy_vpool, NULL);
    CUdeviceptr a = fx_alloc(MiB, 1), b = fx_alloc(MiB, 1);
    vp_sim_fail("cuMemSetAccess", 2, CUDA_ERROR_NOT_SUPPORTED);
    cr_assert(!vp_memory_add_copier(&fx.pool.mem, 3));
    cr_assert_eq(access_of(a, 3), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    cr_assert(!vp_memory_add_copier(&fx.pool.mem, 3), "it is not asked again for each copy");
    cr_assert(vp_memory_add_copier(&fx.pool.mem, 0) && vp_memory_add_copier(&fx.pool.mem, 1) &&
              vp_memory_add_copier(&fx.pool.mem, 2));
    cr_assert_eq(access_of(b, 2), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(access_of(fx_alloc(9 * MiB, 1), 2), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

    unsigned long before = vp_sim_calls("cuMemSetAccess");
    cr_assert(!vp_memory_set_peers(&fx.pool.mem, 1 << 1));
    cr_assert(!vp_memory_set_peers(&fx.pool.mem, 0));
    cr_assert(vp_memory_add_copier(&fx.pool.mem, 1));
    cr_assert_eq(vp_sim_calls("cuMemSetAccess"), before);
    cr_assert_eq(access_of(a, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

    /* Later memory that cannot be opened to them comes to be all the same; to the program's peers it must be open. */
    cr_assert(!vp_memory_set_peers(&fx.pool.mem, 1 << 1));
    vp_sim_fail("cuMemSetAccess", 1, CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr c = fx_alloc(12 * MiB, 1);
    cr_assert_eq(access_of(c, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(access_of(c, 2), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    cr_assert(vp_memory_add_copier(&fx.pool.mem, 1));
    cr_assert(!vp_memory_add_copier(&fx.pool.mem, 2));
    fx_close();
}

/* What another device has free tells nothing of it. */
Test(pool, no_other_device_is_asked_for_its_memory) {
    size_t left, total;
    CUcontext other;
    fx_open_pool("capacity=64M,granularity=64K,devices=2", &vp_policy_vpool, NULL);
    cu_ok(cuDevicePrimaryCtxRetain(&other, 1));
    cu_ok(cuCtxSetCurrent(other));
    cr_assert(vp_memory_ask_device(&fx.pool.mem, &left, &total));
    atomic_store(&fx.context->ending, true);
    cr_assert(!vp_memory_ask_device(&fx.pool.mem, &left, &total));
    atomic_store(&fx.context->ending, false);
    cu_ok(cuCtxSetCurrent(fx.handle));
    cu_ok(cuDevicePrimaryCtxRelease(1));
    fx_close();
}

/* ---- what handles can do ---- */

/* For export and RDMA where the device has them; where it then refuses, for less, and at last plain ones. */
Test(pool, handles_are_exportable_and_rdma_capable) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    for (int refused = 0; refused < 3; refused++) {
        fx_open_pool(SIM, &vp_policy_vpool, NULL);
        cr_assert_eq(fx.pool.mem.prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        cr_assert_eq(fx.pool.mem.prop.allocFlags.gpuDirectRDMACapable, 1);
        for (int i = 0; i < refused; i++)
            vp_sim_fail("cuMemCreate", i + 1, CUDA_ERROR_NOT_PERMITTED);
        CUdeviceptr a = fx_alloc(MiB, 1);
        cu_ok(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)a));
        cu_ok(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
        cu_ok(cuMemRelease(handle));
        cr_assert_eq(prop.allocFlags.gpuDirectRDMACapable, !refused);
        cr_assert_eq(prop.requestedHandleTypes, refused > 1 ? 0 : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        fx_free(a, 1);
        fx_close();
        vp_sim_reset();
    }
}

/* ---- the ends ---- */

Test(pool, impossible_sizes_are_out_of_memory) {
    CUdeviceptr addr = 1;
    fx_open_pool(SIM, &vp_policy_vpool, NULL);
    const size_t sizes[] = {65 * MiB, (size_t)1 << 40, SIZE_MAX / 2, SIZE_MAX - 511, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int stream = 0; stream < 2; stream++) {
            cr_assert_eq(fx_try(sizes[i], stream, &addr), -ENOMEM);
            cr_assert_eq(addr, 1);
        }
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 0, "and nothing stays of the attempt");
    fx_script("a+60", MiB);
    fx_close();
}

Test(pool, a_device_without_virtual_memory_is_refused) {
    const struct vp_pool_config config = {.handle = MiB};
    fx_open("capacity=64M,granularity=64K,vmm=0");
    cr_assert_eq(vp_pool_init(&fx.pool, &fx.drv, &fx.timelines, 0, &vp_policy_vpool, &config), -EOPNOTSUPP);
    fx.pool.mem.drv = NULL;
    fx_close();
}

Test(pool, reservations_are_halved_while_they_are_refused) {
    const struct vp_pool_config config = {.handle = MiB};
    fx_open(SIM);
    for (int i = 1; i <= 3; i++)
        vp_sim_fail("cuMemAddressReserve", i, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert(!vp_pool_init(&fx.pool, &fx.drv, &fx.timelines, 0, &vp_policy_vpool, &config));
    cr_assert_eq(fx.pool.mem.stats.calls.reserve, 4);
    fx_script("a+40 b+1 c+9", MiB);
    fx_close();
}

Test(pool, half_of_an_odd_reservation_is_whole_granules) {
    const struct vp_pool_config config = {.handle = MiB, .va = 8 * GiB + 512 * KiB};
    fx_open(SIM);
    vp_sim_fail("cuMemAddressReserve", 1, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert(!vp_pool_init(&fx.pool, &fx.drv, &fx.timelines, 0, &vp_policy_vpool, &config));
    vp_sim_fail("cuMemAddressReserve", 0, CUDA_SUCCESS);
    fx_free(fx_alloc(2 * MiB, 1), 1);
    fx_free(fx_alloc(1000, 1), 1);
    fx_close();
}

/* ---- what is idle ---- */

/* The time of a look for chunks that are free, of which there are none, or one. */
static uint64_t look(bool any) {
    return LEAST_NS(cr_assert_eq(vp_pool_shrinkable(&fx.pool), any));
}

/* Each free region between the blocks in them was looked at: 20 us for 4,096 of these in 261 chunks. */
Test(pool, a_look_for_free_chunks_looks_at_no_more_regions_than_there_are_chunks) {
    enum { BLOCKS = 8192, LAST = 128 };
    static CUdeviceptr blocks[BLOCKS];
    const struct vp_pool_config config = {.handle = 64 * MiB};
    fx_open_pool("capacity=32G,granularity=2M,lazy=0,backing=ledger", &vp_policy_vpool, &config);
    fx_free(fx_alloc(BLOCKS * 2 * MiB, 1), 1);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = fx_alloc(2 * MiB, 1);
    cr_assert_lt(fx.pool.mem.chunk_count, 300);
    for (int i = 0; i < BLOCKS - LAST; i += 64)
        fx_free(blocks[i], 1);
    const uint64_t few = look(false);
    for (int i = 0; i < BLOCKS - LAST; i += 2)
        if (i % 64)
            fx_free(blocks[i], 1);
    const uint64_t many = look(false);
    cr_assert_lt(many, 8 * few + 1000, "%lu and %lu ns", few, many);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 2 || i >= BLOCKS - LAST)
            fx_free(blocks[i], 1);
    look(true);
    fx_close();
}
