/* A program that draws its sizes: what a run learns that left the plan of the run before. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "learnt_test.h"

enum { STEPS = 60, ALIVE = 40 };

/* Of each step, some blocks of drawn sizes; each size comes twice, so that a cache would have what is free. */
static void run(unsigned seed) {
    for (int step = 0; step < STEPS; step++) {
        CUdeviceptr block[ALIVE];
        size_t size[ALIVE];
        for (int i = 0; i < ALIVE; i++) {
            seed = seed * 1103515245 + 12345;
            block[i] = take(size[i] = (40 + seed / 65536 % 64) * 2 * MiB);
        }
        for (int i = 0; i < ALIVE; i++) {
            fx_free(block[i], 1);
            fx_free(take(size[i]), 1);
        }
    }
}

static void learn(unsigned seed) {
    open_learning();
    run(seed);
    save_plan();
    fx_close();
}

/* Runs by the plan that there is, which it leaves, and learns. */
static void learn_again(unsigned seed, bool whole) {
    open_learning();
    cr_assert_eq(begin_with_plan(true), 0);
    builds = true;
    run(seed);
    cr_assert_lt(fx.pool.ahead->served, fx.pool.ahead->requests / 2);
    cr_assert_eq(fx.pool.learn->count == 2 * STEPS * ALIVE, whole);
    unlink(path);
    save_plan();
    fx_close();
}

static void load(struct vp_learnt *learnt) {
    char why[256];
    cr_assert_eq(vp_learnt_load(path, learnt, why, sizeof why), 0, "%s", why);
}

/* A stream's caches are as fast as ever where a plan is left, but what they serve is not known: the run after is
 * learnt instead. */
Test(drawn, of_two_runs_that_leave_the_plan_the_second_is_learnt_whole) {
    struct vp_learnt before, after;
    learn(1);
    load(&before);
    learn_again(2, false);
    load(&after);
    cr_assert_not(before.device[0].left);
    cr_assert(after.device[0].left);
    cr_assert_eq(after.device[0].request_count, before.device[0].request_count);
    cr_assert_eq(memcmp(after.device[0].requests, before.device[0].requests,
                        before.device[0].request_count * sizeof *before.device[0].requests),
                 0);
    vp_learnt_finish(&before);
    vp_learnt_finish(&after);
    learn_again(2, true);
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    cr_assert_not(fx.pool.ahead->plan.left);
    build_all();
    run(2);
    cr_assert_eq(fx.pool.ahead->served, fx.pool.ahead->requests);
    cr_assert(vp_ahead_fitted(fx.pool.ahead));
    close_with_plan();
}

static size_t largest_handle(void) {
    struct vp_learnt learnt;
    size_t most = 0;
    load(&learnt);
    for (size_t i = 0; i < learnt.device[0].run_count; i++)
        if (learnt.device[0].runs[i].size > most)
            most = learnt.device[0].runs[i].size;
    vp_learnt_finish(&learnt);
    return most;
}

/* The next run may draw other sizes: what is made for this one is to be of use for those. */
Test(drawn, its_handles_are_small) {
    learn(1);
    cr_assert_eq(largest_handle(), 8 * MiB);
    open_learning();
    for (int i = 0; i < 4; i++) {
        CUdeviceptr huge = take(2048 * MiB);
        fx_free(huge, 1);
    }
    save_plan();
    fx_close();
    cr_assert_eq(largest_handle(), 16 * MiB, "few for a block that is alone there");
    unlink(path);
}

enum { LARGE = 40, TIMES = 48 };

static void come_and_go(size_t size) {
    for (int i = 0; i < TIMES; i++)
        fx_free(take(size + (size_t)i % 2 * 2 * MiB), 1);
}

static void stay(size_t size) {
    CUdeviceptr block[LARGE];
    for (int i = 0; i < LARGE; i++)
        block[i] = take(size);
    for (int i = 0; i < LARGE; i++)
        fx_free(block[i], 1);
}

static void two_phases(bool strays) {
    come_and_go(8 * MiB);
    if (strays)
        stay(50 * MiB);
    come_and_go(16 * MiB);
    stay(64 * MiB);
}

/* Between the two it does something else, and what the pool made for that is idle when it is back. */
Test(drawn, a_program_that_comes_back_to_its_plan_holds_no_more_than_the_plan) {
    open_learning();
    two_phases(false);
    save_plan();
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    builds = true;
    two_phases(true);
    cr_assert_geq(fx.pool.ahead->served, 2 * TIMES);
    const uint64_t most = fx.pool.ahead->most;
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, most + most / 256 + 32 * MiB);
    close_with_plan();
}
