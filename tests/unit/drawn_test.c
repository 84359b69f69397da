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

/* What the next run moves for a block of a tenth more is moved still, and not made anew. */
Test(drawn, no_block_lies_in_more_than_some_hundred_handles) {
    enum { MANY = 1200, MOST = 1000 };
    static const size_t HUGE_BLOCK = 9 * GiB;
    const struct vp_pool_config wide = {.handle = 256 * MiB, .va = 256 * GiB};
    CUdeviceptr block[MANY];
    struct vp_learnt learnt;
    unsigned handles = 0;
    fx_open_pool("backing=ledger,capacity=64G,lazy=0", &vp_policy_vpool, &wide);
    fx.pool.learn = vp_learn_create();
    fx_free(take(HUGE_BLOCK), 1);
    for (int i = 0; i < MANY; i++)
        block[i] = take(7 * MiB);
    for (int i = 0; i < MANY; i++)
        fx_free(block[i], 1);
    save_plan();
    fx_close();
    load(&learnt);
    for (size_t i = 0; i < learnt.device[0].run_count; i++)
        handles += learnt.device[0].runs[i].count;
    cr_assert_leq(handles, MOST, "%u", handles);
    vp_learnt_finish(&learnt);
    unlink(path);
}

/* ---- it begins as the plan's did ---- */

enum { WEIGHTS = 80, STATES = 8 };

/* Weights of one size, and then all is of another. */
static void weights_and_run(unsigned seed) {
    for (int i = 0; i < WEIGHTS; i++)
        take(8 * MiB);
    for (size_t i = 0; i < 64; i++)
        fx_free(take((40 + i % 32 * 2 + seed) * 2 * MiB), 1);
    fx_free(take((2000 + seed) * MiB), 1);
    for (int i = 0; i < STATES; i++)
        take((64 + seed) * MiB);
    run(seed);
}

static size_t planned_in_large_handles(void) {
    const struct vp_chunk *chunk;
    size_t bytes = 0;
    vp_list_each(chunk, &fx.pool.mem.chunks, link)
        bytes += chunk->planned && chunk->size > 16 * MiB ? chunk->size : 0;
    return bytes;
}

static void open_with_plan_of_a_seed(void) {
    open_learning();
    weights_and_run(1);
    save_plan();
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(false), 0);
}

/* Other sizes or not, it will need about as much: made by the builder, and no larger than others may use it. */
Test(drawn, what_begins_as_the_plan_did_has_most_of_its_memory_made_ahead) {
    builds = false;
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    weights_and_run(2);
    const struct vp_memory_stats without = fx.pool.mem.stats;
    fx_close();
    open_with_plan_of_a_seed();
    builds = true;
    weights_and_run(2);
    const struct vp_ahead *a = fx.pool.ahead;
    const size_t made = fx.pool.mem.stats.planned_bytes;
    cr_assert_eq(vp_ahead_in_step(a), VP_AHEAD_OUT_OF_STEP);
    cr_assert_geq(made, a->most / 4 * 3, "%zu of %zu MiB", made / MiB, a->most / MiB);
    cr_assert_leq(made, a->most - a->most / 8, "%zu of %zu MiB", made / MiB, a->most / MiB);
    cr_assert_leq(fx.pool.mem.stats.calls.create, without.calls.create / 2, "%lu of %lu",
                  fx.pool.mem.stats.calls.create, without.calls.create);
    cr_assert_leq(planned_in_large_handles(), (WEIGHTS * 8 + 128) * MiB);
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, without.peak_held_bytes / 50 * 51);
    close_with_plan();
}

static unsigned in_parts;
static CUresult(CUDAAPI *real_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                      unsigned long long);

static CUresult CUDAAPI fail_in_parts(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
                                      unsigned long long flags) {
    const struct vp_ahead *a = fx.pool.ahead;
    const bool part = a->under_way && a->kin && size == 16 * MiB;
    return part && in_parts++ % 6 == 5 ? CUDA_ERROR_OUT_OF_MEMORY : real_create(out, size, prop, flags);
}

/* Of a handle that is made in parts some are refused: those that are there are held, and the rest is nobody's. */
Test(drawn, what_fails_in_parts_loses_nothing) {
    size_t before, after, total;
    open_with_plan_of_a_seed();
    cu_ok(fx.drv.cuMemGetInfo_v2(&before, &total));
    real_create = fx.drv.cuMemCreate;
    fx.drv.cuMemCreate = fail_in_parts;
    builds = true;
    weights_and_run(2);
    cu_ok(fx.drv.cuMemGetInfo_v2(&after, &total));
    cr_assert_gt(in_parts, 6);
    cr_assert_gt(fx.pool.ahead->refusals, 0);
    cr_assert_eq(before - after, fx.pool.mem.stats.held_bytes);
    cr_assert(vp_pool_check(&fx.pool, stderr));
    close_with_plan();
}

/* A run of another seed may do without. */
Test(drawn, the_last_eighth_is_made_ahead_when_it_is_due) {
    open_learning();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < WEIGHTS; i++)
            take(40 * MiB);
        if (round)
            cr_assert_leq(fx.pool.mem.stats.held_bytes, fx.pool.ahead->most / 8 * 7);
        for (int i = 0; i < 100; i++)
            fx_free(take(400 * MiB), 1);
        for (int i = 0; i < 10; i++)
            take(100 * MiB);
        if (round)
            break;
        save_plan();
        fx_close();
        fx_open_pool(LEDGER, &vp_policy_vpool, &config);
        cr_assert_eq(begin_with_plan(true), 0);
        build_all();
        builds = true;
    }
    cr_assert(vp_ahead_fitted(fx.pool.ahead));
    cr_assert_eq(fx.pool.mem.stats.calls.create, 0);
    close_with_plan();
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
