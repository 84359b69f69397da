/* A program that follows a plan, and a block whose place is not to be had. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "learnt_test.h"

enum { HEAVY = 40, TIMES = 48 };

/* Weights; a block that goes, and a large one, which comes again and again. */
static void begin(int stream, CUdeviceptr weights[HEAVY]) {
    for (int i = 0; i < HEAVY; i++)
        weights[i] = take(40 * MiB);
    CUdeviceptr large = take(200 * MiB), before = fx_alloc(7 * MiB, stream);
    fx_free(before, stream);
    fx_free(large, 1);
}

/* And in the place of the first a block that stays. */
static void stay(int stream, CUdeviceptr weights[HEAVY], CUdeviceptr *one) {
    begin(stream, weights);
    *one = take(7 * MiB);
}

static void leave(CUdeviceptr weights[HEAVY], CUdeviceptr one) {
    fx_free(one, 1);
    for (int i = 0; i < HEAVY; i++)
        fx_free(weights[i], 1);
}

static void learn_who_stays(void) {
    CUdeviceptr weights[HEAVY], one;
    open_learning();
    stay(1, weights, &one);
    for (int i = 0; i < 3; i++)
        fx_free(take(200 * MiB), 1);
    save_plan();
    leave(weights, one);
    fx_close();
}

static bool is_planned(CUdeviceptr addr) {
    const struct vp_ahead *p = fx.pool.ahead;
    return addr >= p->base[VP_ZONE_LARGE] && addr < p->end[VP_ZONE_LARGE];
}

/* In some hole of the plan's it would lie in the way of what is to lie there, again and again. */
Test(displaced, a_block_that_stays_and_does_not_get_its_place_is_in_nobodys_way) {
    CUdeviceptr weights[HEAVY], one;
    learn_who_stays();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    builds = true;
    fx.waits = VP_WAITS_NEVER;
    fx_busy(2);
    stay(2, weights, &one);
    cr_assert_eq(fx.pool.ahead->served, HEAVY + 2);
    cr_assert_not(is_planned(one));
    for (int i = 0; i < 3; i++) {
        CUdeviceptr large = take(200 * MiB);
        cr_assert(is_planned(large));
        fx_free(large, 1);
    }
    cr_assert_eq(fx.pool.ahead->served, HEAVY + 5);
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, fx.pool.ahead->plan.peak_held + 8 * MiB);
    fx_idle(2);
    leave(weights, one);
    close_with_plan();
}

/* A few blocks that the plan does not know, and it goes on as before with all others. */
Test(displaced, a_program_is_in_step_as_long_as_its_blocks_have_their_places) {
    CUdeviceptr weights[HEAVY], one, stranger[3];
    learn_who_stays();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    builds = true;
    stay(1, weights, &one);
    CUdeviceptr large = take(200 * MiB);
    for (int i = 0; i < 3; i++)
        stranger[i] = take(23 * MiB);
    cr_assert_eq(vp_ahead_in_step(fx.pool.ahead), VP_AHEAD_IN_STEP);
    for (int i = 0; i < 3; i++)
        fx_free(stranger[i], 1);
    fx_free(large, 1);
    leave(weights, one);
    close_with_plan();
}

/* Nor is anything lost where it cannot be made: then it lies where it can, as ever. */
Test(displaced, a_block_that_gets_no_memory_beside_the_plan_lies_in_it) {
    static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
    learn_who_stays();
    for (int i = 0; i < 3; i++) {
        CUdeviceptr weights[HEAVY], one;
        fx_open_pool(LEDGER, &vp_policy_vpool, &config);
        cr_assert_eq(begin_with_plan(true), 0);
        builds = true;
        fx.waits = VP_WAITS_NEVER;
        fx_busy(2);
        begin(2, weights);
        vp_sim_fail(calls[i], -1, CUDA_ERROR_OUT_OF_MEMORY);
        one = take(7 * MiB);
        vp_sim_fail(calls[i], 0, CUDA_SUCCESS);
        cr_assert(is_planned(one), "%s", calls[i]);
        cr_assert(vp_pool_check(&fx.pool, stderr));
        fx_idle(2);
        leave(weights, one);
        fx_close();
    }
    unlink(path);
}

/* A limit is a limit. */
Test(displaced, nothing_is_made_beside_the_plan_beyond_the_limit) {
    struct vp_pool_config limited = config;
    CUdeviceptr weights[HEAVY], one;
    learn_who_stays();
    limited.limit = 1808 * MiB; /* what the plan holds */
    fx_open_pool(LEDGER, &vp_policy_vpool, &limited);
    cr_assert_eq(begin_with_plan(true), 0);
    builds = true;
    fx.waits = VP_WAITS_NEVER;
    fx_busy(2);
    stay(2, weights, &one);
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, limited.limit);
    fx_idle(2);
    leave(weights, one);
    close_with_plan();
}

/* Weights, and a block that comes and goes, and ends in a handle of a granule; then small ones, more than in the plan's
 * run. */
static void small_and_large(int small) {
    for (int i = 0; i < HEAVY; i++)
        take(40 * MiB);
    for (int i = 0; i < TIMES; i++)
        fx_free(take(206 * MiB), 1);
    for (int i = 0; i < small; i++)
        take(512 * KiB);
}

static void small_and_large_by_plan(int small, size_t limit) {
    struct vp_pool_config limited = config;
    limited.limit = limit;
    fx_open_pool(LEDGER, &vp_policy_vpool, &limited);
    cr_assert_eq(begin_with_plan(true), 0);
    builds = true;
    small_and_large(small);
}

/* A granule that they took would lack in the midst of a place. */
Test(displaced, small_blocks_take_no_memory_from_the_places_of_large_ones) {
    open_learning();
    small_and_large(0);
    fx_free(take(206 * MiB), 1);
    save_plan();
    fx_close();
    small_and_large_by_plan(8, 0);
    fx_free(take(206 * MiB), 1);
    cr_assert_eq(fx.pool.ahead->served, HEAVY + TIMES + 1);
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, fx.pool.ahead->plan.peak_held + 8 * 512 * KiB);
    fx_close();
    /* Where that is all there may be, they do. */
    const size_t limit = (HEAVY * 40 + 206) * MiB;
    small_and_large_by_plan(4, limit);
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, limit);
    close_with_plan();
}
