/* What the pool leaves to others: limits, and idle memory given back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "process/ipc.h"
#include "pool/giving.h"

#include <stdlib.h>
#include <time.h>

static struct vp_pool *pool_of(int dev) {
    return vp_state.pools[dev];
}

static CUmemoryPool default_pool(int dev) {
    CUmemoryPool pool;
    cu_ok(cuDeviceGetDefaultMemPool(&pool, dev));
    return pool;
}

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0";

static int noes;

static bool no_for_a_while(CUdevice device) {
    return noes++ > 50;
}

/* Another process was being brought back when memory was asked for, and is by the time that this is looked at. */
Test(pressure, what_was_held_back_is_asked_for_again) {
    door_open(SIM);
    CUdeviceptr a = door_malloc(60 * MiB);
    cu_ok(door_free(a));
    vp_pool_trim(pool_of(0), 0);
    pool_of(0)->mem.may_grow = no_for_a_while;
    for (int i = 0; i < 3; i++) {
        noes = 0;
        a = door_malloc((20 + i) * MiB);
        cr_assert_gt(noes, 50);
        cu_ok(door_free(a));
        vp_pool_trim(pool_of(0), 0);
    }
    door_close();
}

/* A few bytes beside a model that fills the device: cudaMemGetInfo says that there are some. */
Test(pressure, a_small_request_gets_what_is_left_between_large_blocks) {
    CUdeviceptr more = 0;
    size_t unused = 0;
    door_open(SIM);
    CUstream stream = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr whole = door_take(64 * MiB - 24 * KiB, stream), small = door_malloc(1000),
                third = door_take(20 * KiB, stream);

    cr_assert_eq(small, whole + 64 * MiB - 24 * KiB);
    cr_assert(!vp_api_mem_info(&unused, NULL));
    cr_assert_lt(unused, 4 * KiB);
    cr_assert_eq(door_alloc(&more, 4 * KiB), CUDA_ERROR_OUT_OF_MEMORY);
    cu_ok(door_free(small));
    cu_ok(door_free_async(third, stream));
    cu_ok(door_free_async(whole, stream));
    cu_ok(cuStreamSynchronize(stream));
    cr_assert_eq(door_malloc(64 * MiB), whole, "and it is whole again");
    door_close();
}

/* What comes in whole granules has its chunks to itself, so that it can be shown to other processes. */
static CUresult whole_granules_beside_others(void) {
    CUdeviceptr more;
    setenv("VPOOL_HANDLE", "8M", 1);
    door_open(SIM);
    CUstream stream = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr whole = door_take(64 * MiB, stream);
    cu_ok(door_free_async(whole, stream));
    door_take(MiB + 1000, stream);
    door_malloc(56 * MiB);
    return door_alloc(&more, 6 * MiB);
}

Test(pressure, whole_granules_lie_beside_others_where_there_is_no_room_else) {
    cu_ok(whole_granules_beside_others());
    door_close();
}

Test(pressure, what_is_to_be_kept_apart_never_lies_beside_others) {
    setenv("VPOOL_IPC", "alone", 1);
    cr_assert_eq(whole_granules_beside_others(), CUDA_ERROR_OUT_OF_MEMORY);
    door_close();
}

/* A captured host function, imported memory of a renderer's and the like: nobody is shown anything by legacy IPC. */
Test(pressure, what_ties_the_process_alone_keeps_no_memory_apart) {
    door_open(SIM);
    vp_api_coupled("a test");
    cr_assert(!vp_ipc_alone(MiB + 1000));
    vp_api_shares("a test");
    cr_assert(vp_ipc_alone(MiB + 1000));
    cr_assert(!vp_ipc_alone(MiB - 1000));
    door_close();
}

/* Of a device of so many bytes, or under such a limit. */
static void take_and_free_what_lies_alone(size_t size) {
    enum { BLOCKS = 10 };
    CUdeviceptr blocks[BLOCKS];
    size_t unused = 0;
    setenv("VPOOL_IPC", "alone", 1);
    door_open(SIM);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = door_malloc(65 * KiB);
    cr_assert(!vp_api_mem_info(&unused, NULL));
    cr_assert_eq(unused, size - BLOCKS * 128 * KiB);
    for (int i = 0; i < BLOCKS; i++)
        cu_ok(door_free(blocks[i]));
    cr_assert(!vp_api_mem_info(&unused, NULL));
    cr_assert_eq(unused, size);
    door_close();
}

Test(pressure, what_blocks_have_beyond_what_was_asked_for_is_not_free) {
    take_and_free_what_lies_alone(64 * MiB);
}

Test(pressure, what_blocks_have_beyond_what_was_asked_for_is_not_free_under_a_limit) {
    setenv("VPOOL_LIMIT", "16M", 1);
    take_and_free_what_lies_alone(16 * MiB);
}

Test(pressure, a_limit_is_the_size_of_the_device) {
    CUdeviceptr more = 0;
    size_t unused = 0, total = 0;
    setenv("VPOOL_LIMIT", "16M", 1);
    door_open(SIM);
    CUdeviceptr a = door_malloc(12 * MiB);
    cr_assert(!vp_api_mem_info(&unused, &total));
    cr_assert_eq(total, 16 * MiB);
    cr_assert_eq(unused, 4 * MiB);
    cr_assert_eq(door_alloc(&more, 5 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_leq(vp_sim_used_vmm(0), 16 * MiB);
    cu_ok(door_free(a));
    a = door_malloc(16 * MiB);
    cr_assert_eq(vp_sim_used_vmm(0), 16 * MiB, "idle memory counts, and is used again");
    cu_ok(door_free(a));
    door_close();
}

/* Who takes a part of what there is asks first. */
Test(pressure, a_limit_is_told_before_the_first_allocation) {
    size_t unused = 0, total = 0;
    setenv("VPOOL_LIMIT", "16M", 1);
    door_open(SIM);
    cr_assert(!vp_api_mem_info(&unused, &total));
    cr_assert_eq(total, 16 * MiB);
    cr_assert_eq(unused, 16 * MiB);
    cu_ok(door_free(door_malloc(unused)));
    door_close();
}

Test(pressure, a_limit_in_percent) {
    CUdeviceptr more = 0;
    size_t unused = 0, total = 0;
    setenv("VPOOL_LIMIT", "25%", 1);
    door_open(SIM);
    CUdeviceptr a = door_malloc(15 * MiB);
    cr_assert(!vp_api_mem_info(&unused, &total));
    cr_assert_eq(total, 16 * MiB, "to the byte");
    cr_assert_eq(door_alloc(&more, 2 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    cu_ok(door_free(a));
    door_close();
}

Test(pressure, what_was_not_needed_for_a_period_goes_back) {
    door_open(SIM);
    CUdeviceptr a = door_malloc(8 * MiB), b = door_malloc(16 * MiB);
    cu_ok(door_free(b));
    cr_assert(vp_enter());
    vp_pressure_tick();
    cr_assert_geq(vp_sim_used_vmm(0), 24 * MiB, "it was needed in this period");
    vp_pressure_tick();
    vp_leave();
    cr_assert_lt(vp_sim_used_vmm(0), 9 * MiB);
    cu_ok(door_free(a));
    door_close();
}

/* Its edges, and what fragments, are needed for a peak as much as what is live at it. */
Test(pressure, a_repeating_program_loses_nothing_by_time) {
    CUdeviceptr block[6] = {0};
    door_open(SIM);
    for (int round = 0; round < 6; round++) {
        for (size_t i = 0; i < 6; i++)
            block[i] = door_malloc((i + 1) * MiB + 512 * i);
        for (size_t i = 0; i < 6; i += 2)
            cu_ok(door_free(block[i]));
        block[0] = door_malloc(8 * MiB - 512);
        unsigned long before = vp_sim_calls("cuMemCreate");
        cr_assert(vp_enter());
        vp_pressure_tick();
        vp_leave();
        for (size_t i = 1; i < 6; i += 2)
            cu_ok(door_free(block[i]));
        cu_ok(door_free(block[0]));
        if (round > 1)
            cr_assert_eq(vp_sim_calls("cuMemCreate"), before);
    }
    cr_assert_eq(pool_of(0)->mem.stats.regrets, 0);
    door_close();
}

/* ---- given back by itself ---- */

static const char LARGE[] = "capacity=256M,granularity=64K,lazy=0";

Test(pressure, a_large_free_gives_idle_memory_back_at_once) {
    door_open(LARGE);
    CUdeviceptr kept = door_malloc(4 * MiB), a = door_malloc(40 * MiB), b = door_malloc(40 * MiB);
    cu_ok(door_free(a));
    cr_assert_leq(vp_sim_used_vmm(0), 46 * MiB, "%zu", vp_sim_used_vmm(0));
    cu_ok(door_free(b));
    cr_assert_leq(vp_sim_used_vmm(0), 6 * MiB);
    cr_assert_gt(pool_of(0)->mem.stats.given_back, 79 * MiB);
    cu_ok(door_free(kept));
    door_close();
}

/* What PyTorch's own cache does in empty_cache(): most is live, and the rest comes in many pieces. */
Test(pressure, a_row_of_frees_gives_back_what_is_not_most) {
    CUdeviceptr piece[20];
    door_open(LARGE);
    CUdeviceptr kept = door_malloc(100 * MiB);
    for (int i = 0; i < 20; i++)
        piece[i] = door_malloc(4 * MiB);
    for (int i = 0; i < 20; i++)
        cu_ok(door_free(piece[i]));
    cr_assert_leq(vp_sim_used_vmm(0), 102 * MiB + 32 * MiB);
    cu_ok(door_free(kept));
    door_close();
}

Test(pressure, a_single_free_of_a_part_gives_nothing_back) {
    door_open(LARGE);
    CUdeviceptr kept = door_malloc(100 * MiB), part = door_malloc(20 * MiB);
    cu_ok(door_free(part));
    cr_assert_geq(vp_sim_used_vmm(0), 120 * MiB);
    cu_ok(door_free(kept));
    door_close();
}

Test(pressure, what_work_still_uses_goes_at_the_next_synchronise) {
    door_open("capacity=256M,granularity=64K,lazy=100");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(80 * MiB);
    vp_sim_hold(s);
    cu_ok(cuMemsetD8Async(a, 1, 80 * MiB, s));
    cu_ok(door_free(a));
    cr_assert_geq(vp_sim_used_vmm(0), 80 * MiB);
    cr_assert(atomic_load(&vp_state.sync_matters));
    vp_sim_release(s);
    cu_ok(door_stream_synchronize(s));
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    door_close();
}

Test(pressure, what_a_trim_had_to_leave_goes_at_the_next_synchronise) {
    door_open("capacity=256M,granularity=64K,lazy=100");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_take(80 * MiB, s);
    vp_sim_hold(s);
    cu_ok(cuMemsetD8Async(a, 1, 80 * MiB, s));
    cu_ok(door_free_async(a, s));
    cu_ok(door_pool_trim(default_pool(0), 0));
    cr_assert_geq(vp_sim_used_vmm(0), 80 * MiB);
    vp_sim_release(s);
    cu_ok(door_stream_synchronize(s));
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    door_close();
}

/* Else each synchronise gives back what the next round needs, while others always have work queued. */
static void goes_on_after_a_trim(bool for_good) {
    unsigned long made = 0;
    CUdeviceptr a, b;
    door_open("capacity=256M,granularity=64K,lazy=90");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), busy = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 60; i++) {
        a = door_take(8 * MiB, s);
        b = door_take(4 * MiB, busy);
        if (i == 10 && for_good)
            vp_sim_hold(busy);
        for (int k = 0; k < 20; k++)
            cu_ok(cuMemsetD8Async(b, 1, 4 * MiB, busy));
        cu_ok(door_free_async(b, busy));
        cu_ok(door_free_async(a, s));
        if (i == 10)
            cu_ok(door_pool_trim(default_pool(0), 0));
        cu_ok(door_stream_synchronize(s));
        made = i == 20 ? vp_sim_calls("cuMemCreate") : made;
    }
    cr_assert_eq(vp_sim_calls("cuMemCreate"), made);
    vp_sim_release(busy);
    door_close();
}

Test(pressure, a_trim_is_over_with_the_work_that_it_left_memory_to) {
    goes_on_after_a_trim(false);
}

Test(pressure, a_trim_is_over_though_that_work_is_not) {
    goes_on_after_a_trim(true);
}

/* Each time natively, and here a dozen times in ten minutes. */
Test(pressure, giving_back_is_regretted) {
    door_open(LARGE);
    for (int i = 0; i < 200; i++)
        cu_ok(door_free(door_malloc(64 * MiB)));
    cr_assert_leq(pool_of(0)->mem.stats.regrets, 4, "%lu", pool_of(0)->mem.stats.regrets);
    cr_assert_geq(pool_of(0)->mem.stats.regrets, 1);
    cr_assert(pool_of(0)->giving.due, "the last of it goes at a synchronise, when the period is over");
    for (int i = 0; i < 50 && vp_sim_used_vmm(0); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        cu_ok(door_synchronize());
    }
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    door_close();
}

/* ---- lent ---- */

Test(pressure, idle_memory_is_lent_longest_idle_first) {
    door_open("capacity=256M,granularity=64K,lazy=0");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), busy = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr kept = door_take(10 * MiB, s), old = door_take(20 * MiB, s), young = door_take(20 * MiB, s),
                used = door_take(20 * MiB, busy);
    cu_ok(door_free_async(old, s));
    cu_ok(door_stream_synchronize(s));
    cu_ok(door_free_async(young, s));
    cu_ok(door_stream_synchronize(s));
    vp_sim_hold(busy);
    cu_ok(cuMemsetD8Async(used, 1, 100, busy));
    cu_ok(door_free_async(used, busy));
    cr_assert(vp_enter());
    size_t given = vp_giving_lend(pool_of(0), 15 * MiB);
    cr_assert(given >= 15 * MiB && given <= 24 * MiB, "%zu", given);
    cr_assert_eq(vp_mapping_at(&pool_of(0)->mem, old + 8 * MiB), NULL, "it goes first");
    cr_assert(vp_mapping_at(&pool_of(0)->mem, young + 19 * MiB));
    given = vp_giving_lend(pool_of(0), SIZE_MAX);
    cr_assert(given >= 15 * MiB && given <= 26 * MiB, "what is live or in use stays: %zu", given);
    cr_assert_eq(vp_giving_lend(pool_of(0), SIZE_MAX), 0);
    cr_assert_geq(pool_of(0)->mem.stats.lent_bytes, 35 * MiB);
    vp_leave();
    vp_sim_release(busy);
    *(char *)kept = 1;
    door_close();
}

/* What others take and give up again is seen at once. */
Test(pressure, others_may_have_the_device) {
    CUdeviceptr a = 0;
    door_open(LARGE);
    vp_sim_others(0, 200 * MiB);
    cr_assert_eq(door_alloc(&a, 100 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    vp_sim_others(0, 100 * MiB);
    cu_ok(door_free(door_malloc(100 * MiB)));
    door_close();
}

Test(pressure, what_the_device_has_free_is_told_after_giving_back) {
    size_t unused = 0, total = 0;
    door_open(LARGE);
    cu_ok(door_free(door_malloc(64 * MiB)));
    cr_assert(!door_mem_info(&unused, &total));
    cr_assert_eq(unused, total);
    door_close();
}

/* Pool memory never went back to other processes (onnxruntime #9509, jax #20022). */
Test(pressure, idle_memory_goes_back_by_time) {
    setenv("VPOOL_IDLE_TRIM", "1", 1);
    door_open(SIM);
    cu_ok(door_free(door_malloc(16 * MiB)));
    for (int i = 0; i < 100 && vp_sim_used_vmm(0); i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    door_close();
}
