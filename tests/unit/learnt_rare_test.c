/* What is rare: a plan that is too long for its file, or made under other options; and a thread that is cancelled. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "learnt_test.h"

#include "base/cancel.h"

#include <sys/stat.h>

/* So many sizes, each once: their places alone are more than a file may have. */
enum { SIZES = 65000 };

static CUdeviceptr take_one(int i) {
    return fx_alloc(1 * GiB + (size_t)i * 64 * KiB, 1);
}

Test(learnt, of_a_run_that_is_too_long_the_beginning_is_kept) {
    struct stat st;
    open_learning();
    for (int i = 0; i < SIZES; i++)
        fx_free(take_one(i), 1);
    save_plan();
    fx_close();
    cr_assert(!stat(path, &st) && st.st_size <= VP_LEARNT_BYTES && st.st_size > VP_LEARNT_BYTES / 4);
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    const struct vp_ahead *plan = fx.pool.ahead;
    cr_assert(plan->plan.request_count >= SIZES / 4 && plan->plan.request_count < SIZES);
    cr_assert_eq(plan->plan.total_requests, SIZES);
    for (int i = 0; i < 1000; i++)
        fx_free(take_one(i), 1);
    cr_assert_eq(plan->served, plan->requests);
    close_with_plan();
}

static char text[VP_LEARNT_BYTES];

/* No run has more handles than a file may list; the last ones are left out. */
Test(learnt, of_too_many_handles_the_first_are_kept) {
    static struct vp_learnt_run runs[VP_LEARNT_RUNS];
    struct vp_learnt learnt = {.device_count = 1}, read;
    struct vp_learnt_device *d = &learnt.device[0];
    const char *why = NULL;
    unsigned line;
    *d = (struct vp_learnt_device){.granularity = 2 * MiB, .runs = runs};
    for (uint64_t i = 0; i < VP_LEARNT_HANDLES + 10; i++)
        vp_learnt_add_run(d, VP_ZONE_BARE, i * 2 * MiB, 2 * MiB, (uint32_t)(i / 16));
    const size_t length = vp_learnt_print(&learnt, text);
    cr_assert_eq(vp_learnt_parse(text, length, &read, &why, &line), 0, "line %u: %s", line, why);
    cr_assert_eq(read.device[0].handle_count, VP_LEARNT_HANDLES);
    vp_learnt_finish(&read);
}

/* All that can be of many is shortened until a file takes it. */
Test(learnt, of_several_devices_that_map_much_again_the_beginning_is_kept) {
    static struct vp_learnt_again agains[VP_LEARNT_AGAINS];
    static uint32_t windows[VP_LEARNT_WINDOWS];
    static struct vp_learnt learnt = {.device_count = VP_LEARNT_DEVICES}, read;
    char why[256];
    for (unsigned i = 0; i < VP_LEARNT_AGAINS; i++)
        agains[i] = (struct vp_learnt_again){i * 2 * MiB, (VP_LEARNT_AGAINS + i * 2) * 2 * MiB, 2 * MiB, 1, i};
    for (unsigned i = 0; i < VP_LEARNT_DEVICES; i++)
        learnt.device[i] = (struct vp_learnt_device){.device = i,
                                                     .granularity = 2 * MiB,
                                                     .agains = agains,
                                                     .again_count = VP_LEARNT_AGAINS,
                                                     .windows = windows,
                                                     .window_count = VP_LEARNT_WINDOWS};
    strcpy(path, "/tmp/learnt.XXXXXX");
    close(mkstemp(path));
    cr_assert_eq(vp_learnt_save(path, &learnt), 0);
    cr_assert_eq(vp_learnt_load(path, &read, why, sizeof why), 0, "%s", why);
    cr_assert_eq(read.device_count, VP_LEARNT_DEVICES);
    cr_assert_gt(read.device[0].again_count, 0);
    vp_learnt_finish(&read);
    unlink(path);
}

/* ---- other options ---- */

Test(learnt, no_handle_is_larger_than_is_wanted_now) {
    const struct vp_pool_config small = {.handle = 8 * MiB, .va = 64 * GiB};
    CUdeviceptr weights[40];
    open_learning();
    for (int i = 0; i < 40; i++)
        weights[i] = take(20 * MiB);
    save_plan();
    for (int i = 0; i < 40; i++)
        fx_free(weights[i], 1);
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &small);
    cr_assert_eq(begin_with_plan(true), 0);
    cr_assert_gt(build_all(), 0);
    cr_assert_eq(fx.pool.mem.largest, small.handle, "%zu MiB", fx.pool.mem.largest / MiB);
    for (int i = 0; i < 40; i++)
        weights[i] = take(20 * MiB);
    cr_assert_eq(fx.pool.ahead->served, 40);
    cr_assert_eq(fx.pool.mem.largest, small.handle);
    for (int i = 0; i < 40; i++)
        fx_free(weights[i], 1);
    close_with_plan();
}

/* ---- cancelled ---- */

static CUresult(CUDAAPI *real_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                      unsigned long long);
static bool made, left;

/* As one that goes to the kernel. What unwinds the thread's stack tells the sanitizer nothing of it. */
__attribute__((no_sanitize("address"))) static CUresult CUDAAPI create_at_a_point(CUmemGenericAllocationHandle *out,
                                                                                  size_t size,
                                                                                  const CUmemAllocationProp *prop,
                                                                                  unsigned long long flags) {
    pthread_testcancel();
    return real_create(out, size, prop, flags);
}

__attribute__((no_sanitize("address"))) static void *make_while_cancelled(void *unused) {
    (void)unused;
    vp_cancel_arm(); /* as with the library's lock */
    pthread_cancel(pthread_self());
    fx_alloc(12 * MiB, 1);
    made = true;
    vp_cancel_release();
    pthread_testcancel();
    left = true;
    return NULL;
}

/* Under the lock, which it would take along. */
Test(learnt, a_thread_is_not_cancelled_while_it_makes_what_the_plan_has) {
    pthread_t thread;
    open_learning();
    fx_free(take(12 * MiB), 1);
    save_plan();
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    fx_free(fx_alloc(64 * KiB, 1), 1);
    real_create = fx.drv.cuMemCreate;
    fx.drv.cuMemCreate = create_at_a_point;
    cr_assert(!pthread_create(&thread, NULL, make_while_cancelled, NULL) && !pthread_join(thread, NULL));
    cr_assert(made && !left);
    cr_assert_eq(fx.pool.ahead->served, 1);
    fx.drv.cuMemCreate = real_create;
    close_with_plan();
}

/* Weights, and steps in which blocks come and go; at the end nothing is alive. */
enum { FIRST = 12, EACH = 6 };

static void try_once(int steps) {
    CUdeviceptr weights[FIRST];
    for (int i = 0; i < FIRST; i++) {
        fx_free(take(40 * MiB), 1);
        weights[i] = take(40 * MiB);
    }
    for (int step = 0; step < steps; step++)
        for (size_t i = 0; i < EACH; i++)
            fx_free(take((60 + i % 3 * 20) * MiB), 1);
    for (int i = 0; i < FIRST; i++)
        fx_free(weights[i], 1);
}

/* As where trials are made one after the other in one process, some of them cut short. */
Test(learnt, a_program_that_begins_again_has_its_places_from_the_first_request_on) {
    static const int trials[] = {20, 20, 3, 20};
    unsigned requests = 0;
    open_learning();
    try_once(20);
    save_plan();
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    builds = true;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        try_once(trials[i]);
        requests += 2 * FIRST + EACH * (unsigned)trials[i];
        cr_assert_eq(fx.pool.ahead->requests, requests, "no cache has served any");
        cr_assert_eq(fx.pool.ahead->served, requests, "trial %zu: %lu of %u", i, fx.pool.ahead->served, requests);
    }
    close_with_plan();
}

/* A program in which nothing stays is always at its beginning. */
Test(learnt, who_begins_again_and_again_is_served_by_caches_at_last) {
    open_learning();
    for (int i = 0; i < 2 * VP_AHEAD_GRAM; i++)
        fx_free(fx_alloc(8 * MiB, 1), 1);
    save_plan();
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    build_all();
    for (int i = 0; i < 2 * VP_LEARNT_REQUESTS; i++)
        fx_free(fx_alloc(8 * MiB, 1), 1);
    cr_assert_leq(fx.pool.ahead->requests, VP_LEARNT_REQUESTS + 1);
    close_with_plan();
}

/* A plan of handles alone, as of a run whose places were no better than what it found by itself. */
Test(learnt, a_plan_without_requests_has_no_first_one) {
    static struct vp_learnt_run run = {0, 8 * 1048576, 4, 0, VP_ZONE_LARGE};
    struct vp_learnt learnt = {.device_count = 1};
    learnt.device[0] = (struct vp_learnt_device){
        .granularity = 2 * MiB, .peak_live = 32 * MiB, .peak_held = 32 * MiB, .runs = &run, .run_count = 1};
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(vp_ahead_start(&fx.pool, &learnt, true), 0);
    for (size_t i = 0; i < VP_AHEAD_GRAM; i++)
        fx_free(fx_alloc((8 + i) * MiB, 1), 1);
    cr_assert_eq(fx.pool.ahead->requests, VP_AHEAD_GRAM);
    cr_assert_eq(fx.pool.ahead->found, 0);
    fx_close();
}

static void small_then_large(void) {
    for (int i = 0; i < 40; i++)
        take(512 * KiB);
    build_all();
    take(640 * MiB);
}

/* At its start a program is faster than the builder of its plan. */
Test(learnt, what_is_there_for_small_blocks_is_not_made_again) {
    open_learning();
    small_then_large();
    save_plan();
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    small_then_large();
    cr_assert_leq(fx.pool.mem.stats.held_bytes, fx.pool.ahead->plan.peak_held);
    close_with_plan();
}
