/* Bare segments: a cache that is emptied. What it kept idle is the device's again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "base/clock.h"

static const char LARGE[] = "capacity=1G,granularity=64K,lazy=0,timeout=3000";

enum { SEGMENTS = 40 };

/* What is to be held at most, with so much alive. */
static size_t at_most(size_t alive) {
    return alive + alive / 50 + 32 * MiB;
}

/* A cache that frees all segments without a block, and makes no other call. */
static void empty(CUdeviceptr *seg, int n) {
    for (int i = 0; i < n; i++)
        cu_ok(door_free(seg[i]));
}

/* One block in each segment, used and left; `works`: with work on it that is not over. */
static void fill(CUdeviceptr *seg, int n, size_t size, CUstream s, bool works) {
    for (int i = 0; i < n; i++) {
        seg[i] = segment(size, s);
        use(seg[i], size, s);
    }
    if (works)
        busy(seg[0], s);
    for (int i = 0; i < n; i++)
        unuse(seg[i], size);
}

/* Blocks that stay. */
static void keep(size_t bytes, CUstream s) {
    use(segment(bytes, s), bytes, s);
}

Test(bare, a_cache_that_is_emptied_gives_its_memory_back) {
    CUdeviceptr seg[SEGMENTS];
    door_open(LARGE);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    keep(32 * MiB, s);
    fill(seg, SEGMENTS, 10 * MiB, s, false);
    cr_assert_geq(held(), 400 * MiB);
    empty(seg, SEGMENTS);
    cr_assert_leq(held(), at_most(32 * MiB), "%zu", held());
    cr_assert_eq(pool_of(0)->mem.stats.regrets, 0);
    door_close();
}

/* Most is alive, and nearly all that is not lies in segments that stay: the one that goes tells that none of it is of
 * use to the cache. */
Test(bare, a_cache_that_is_emptied_gives_back_what_lies_beside_blocks) {
    CUdeviceptr seg[SEGMENTS];
    door_open(LARGE);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    keep(500 * MiB, s);
    fill(seg, SEGMENTS, 10 * MiB, s, false);
    for (int i = 1; i < SEGMENTS; i++)
        use(seg[i] + 3 * MiB, MiB, s);
    cr_assert_geq(held(), 900 * MiB);
    empty(seg, 1);
    cr_assert_leq(held(), at_most(500 * MiB + (SEGMENTS - 1) * MiB), "%zu", held());
    cr_assert(vp_pool_check(pool_of(0), stderr));
    door_close();
}

/* What work still uses goes at the next synchronise; and by the end of the emptying, if it was over by then. */
Test(bare, a_cache_that_is_emptied_while_work_runs_gives_back_at_the_next_synchronise) {
    CUdeviceptr seg[SEGMENTS];
    door_open(LARGE);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    keep(32 * MiB, s);
    for (int round = 0; round < 2; round++) {
        fill(seg, SEGMENTS, 10 * MiB, s, true);
        pool_of(0)->giving.not_before = 0; /* the second time is soon after the first */
        empty(seg, SEGMENTS / 2);
        cr_assert_geq(held(), 400 * MiB);
        if (round)
            empty(seg + SEGMENTS / 2, SEGMENTS / 2);
        cr_assert_geq(held(), 400 * MiB);
        vp_sim_release(s);
        if (round)
            cu_ok(door_stream_synchronize(s));
        else
            empty(seg + SEGMENTS / 2, SEGMENTS / 2);
        cr_assert_leq(held(), at_most(32 * MiB), "%d: %zu", round, held());
    }
    door_close();
}

/* As a loop that empties the cache in each step: that is let be, but now and then. */
Test(bare, a_cache_that_is_emptied_all_the_time_keeps_its_memory) {
    CUdeviceptr seg[SEGMENTS];
    enum { STEPS = 24 };
    unsigned long first = 0, most = 3;
    door_open(LARGE);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    const uint64_t begin = vp_clock_ns();
    for (int step = 0; step < STEPS; step++) {
        fill(seg, SEGMENTS, 10 * MiB, s, false);
        empty(seg, SEGMENTS);
        cu_ok(door_stream_synchronize(s));
        if (!first)
            first = vp_sim_calls("cuMemCreate");
    }
    const uint64_t regrets = pool_of(0)->mem.stats.regrets, took = vp_clock_ns() - begin;
    /* The first rest is a tenth of a second, and each is twice as long as the one before. */
    for (uint64_t rest = 100000000; rest < took; rest *= 2)
        most++;
    cr_assert(regrets >= 1 && regrets <= most && most < STEPS - 4, "%lu of %lu", (unsigned long)regrets, most);
    cr_assert_leq(vp_sim_calls("cuMemCreate"), (most + 2) * first);
    door_close();
}

/* What it has freed since it was looked at last is memory that cudaMalloc may wait for. */
Test(bare, what_a_cache_has_freed_is_waited_for) {
    CUdeviceptr more;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 64 * MiB, s);
    busy(seg, s);
    unuse(seg, 64 * MiB);
    release_soon(s);
    cu_ok(door_alloc(&more, 48 * MiB));
    cu_ok(door_free(more));
    door_close();
}
