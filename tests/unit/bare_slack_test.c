/* Bare segments: what is held for fewer calls, where the sizes of blocks never come again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "pool/slack.h"

#include <stdlib.h>

/* A cache of many more addresses than are in use: a block lies at the beginning of one of its places. */
enum { PLACES = 32, ALIVE = 10, STEPS = 1000, WATCHED = 40, AT_ONCE = 320 };
static const size_t PLACE = 12 * MiB;

struct spent {
    unsigned long early, late; /* maps in WATCHED steps, before a window of blocks is over, and at the end */
    size_t live, held;
    struct vp_slack_state slack;
};

static uint32_t seed;
static size_t left_with; /* with a block, up to that: its size is a multiple of it; 0: none */

static uint32_t rnd(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static size_t new_size(unsigned step) {
    (void)step;
    return 4 * MiB + rnd(16384) * 512;
}

static size_t same_size(unsigned step) {
    return 4 * MiB + step % 30 * 256 * KiB;
}

static size_t mostly_new_size(unsigned step) {
    return step % 3 ? new_size(step) : same_size(0);
}

static unsigned any_place(unsigned step) {
    (void)step;
    return rnd(PLACES);
}

static unsigned next_place(unsigned step) {
    return step % 30;
}

/* New sizes at first, and then the same ones time and again. */
static size_t new_and_same_size(unsigned step) {
    return step < 400 ? new_size(step) : same_size(step);
}

static unsigned any_and_next_place(unsigned step) {
    return step < 400 ? any_place(step) : next_place(step);
}

/* With so much slack, on a device of that size. As many blocks are alive as there were steps ago. */
static struct spent run_for(unsigned steps, const char *slack, const char *sim, size_t (*size_of)(unsigned),
                            unsigned (*place_of)(unsigned)) {
    size_t sizes[PLACES] = {0};
    unsigned alive[ALIVE] = {0};
    struct spent spent = {0};
    setenv("VPOOL_SLACK", slack, 1);
    door_open(sim);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr seg = segment(PLACES * PLACE, s);
    seed = 1;
    for (unsigned step = 0; step < steps; step++) {
        unsigned *last = &alive[step % ALIVE], at = place_of(step);
        if (step >= ALIVE) {
            cr_assert(vp_bare_unused(seg + *last * PLACE, sizes[*last], false));
            sizes[*last] = 0;
        }
        if (size_of == new_and_same_size && step == 2000) {
            pool_of(0)->bare_slack.step = 1;
            pool_of(0)->bare_slack.cheap_windows = 14;
        }
        while (sizes[at])
            at = (at + 1) % PLACES;
        const size_t asked = size_of(step);
        sizes[ *last = at] = left_with ? vp_round_up(asked, left_with) : asked;
        const unsigned long before = maps();
        cu_ok(vp_bare_room(0, asked, on(s)));
        cr_assert(vp_bare_used(seg + at * PLACE, sizes[at], on(s)));
        spent.early += step >= 60 - WATCHED && step < 60 ? maps() - before : 0;
        spent.late += step >= steps - WATCHED ? maps() - before : 0;
    }
    cr_assert(vp_pool_check(pool_of(0), stderr));
    const struct vp_memory_stats stats = vp_pool_stats(pool_of(0));
    spent.live = stats.peak_live_bytes;
    spent.held = stats.peak_held_bytes;
    spent.slack = vp_slack_state(pool_of(0));
    door_close();
    return spent;
}

static struct spent run(const char *slack, const char *sim, size_t (*size_of)(unsigned),
                        unsigned (*place_of)(unsigned)) {
    return run_for(STEPS, slack, sim, size_of, place_of);
}

static const char ROOM[] = "backing=ledger,capacity=1G,granularity=64K,lazy=0",
                  LITTLE[] = "backing=ledger,capacity=136M,granularity=64K,lazy=0";

Test(bare, no_more_is_held_where_that_is_not_wanted) {
    const struct spent none = run("0", ROOM, new_size, any_place);
    cr_assert(none.slack.percent == 0 && none.held < none.live / 100 * 102);
}

/* And what chunks are rounded by: of small programs a 16th of what is alive. */
Test(bare, more_is_held_where_sizes_never_come_again) {
    const struct spent some = run("1", ROOM, new_size, any_place);
    cr_assert(some.slack.percent > 1 && some.slack.percent <= 10 && some.slack.novelty > 0.5 && some.slack.steps);
    cr_assert_gt(some.held, some.live / 100 * 104);
    cr_assert_leq(some.held, some.live / 100 * 110 + some.live / 16 + 2 * MiB, "%zu of %zu", some.held, some.live);
}

Test(bare, as_much_more_as_makes_it_cheap) {
    const struct spent much = run("5", ROOM, new_size, any_place);
    cr_assert_geq(much.slack.percent, 35);
    cr_assert_lt(much.late, much.early / 10 * 8, "%lu after %lu", much.late, much.early);
    cr_assert(much.held > much.live / 100 * 120 && much.held < much.live / 100 * 157);
}

/* Where next to all sizes are new nobody waits for whole windows. */
Test(bare, what_is_new_throughout_is_seen_at_once) {
    const struct spent all = run_for(AT_ONCE, "5", ROOM, new_size, any_place);
    cr_assert_geq(all.slack.percent, 35, "%.1f", all.slack.percent);
}

/* A cache leaves with a block what is not worth to be split off: what it tells of is alike, what is asked for is not.
 */
Test(bare, what_is_asked_for_counts) {
    left_with = MiB;
    const struct spent all = run_for(AT_ONCE, "5", ROOM, new_size, any_place);
    left_with = 0;
    cr_assert_geq(all.slack.percent, 35, "%.1f", all.slack.percent);
}

Test(bare, what_is_new_for_two_thirds_is_not_taken_for_that) {
    const struct spent most = run_for(AT_ONCE, "5", ROOM, mostly_new_size, any_place);
    cr_assert_leq(most.slack.percent, 5, "%.1f", most.slack.percent);
}

Test(bare, no_more_is_held_than_half_of_what_the_device_has) {
    const struct spent some = run("5", LITTLE, new_size, any_place);
    cr_assert(some.slack.percent >= 5 && some.slack.percent <= 20, "%.1f", some.slack.percent);
}

/* It takes 16 windows a step, of which the test waits for the last alone. */
Test(bare, it_goes_back_once_sizes_come_again) {
    const struct spent spent = run_for(4400, "5", ROOM, new_and_same_size, any_and_next_place);
    cr_assert_gt(spent.held, spent.live / 100 * 110);
    cr_assert_eq(spent.slack.percent, 0, "%.1f", spent.slack.percent);
    cr_assert_leq(held(), spent.live / 100 * 103, "%zu of %zu", held(), spent.live);
}

Test(bare, nothing_is_held_for_what_repeats_itself) {
    const struct spent same = run("50", ROOM, same_size, next_place);
    cr_assert(same.slack.percent == 0 && same.held < same.live / 100 * 102);
}

/* On a full device nothing is asked for in vain at each block. */
Test(bare, nothing_is_made_for_fewer_calls_on_a_full_device) {
    door_open("backing=ledger,capacity=96M,granularity=64K,lazy=0");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr seg = segment(PLACES * PLACE, s);
    size_t sizes[PLACES] = {0};
    unsigned long creates = 0;
    seed = 1;
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned at = step % PLACES, last = (step + PLACES - 9) % PLACES;
        if (sizes[last])
            cr_assert(vp_bare_unused(seg + last * PLACE, sizes[last], false));
        sizes[last] = 0;
        sizes[at] = new_size(step);
        cu_ok(vp_bare_room(0, sizes[at], on(s)));
        cr_assert(vp_bare_used(seg + at * PLACE, sizes[at], on(s)));
        if (step == STEPS / 2)
            creates = vp_sim_calls("cuMemCreate");
    }
    cr_assert_lt(vp_sim_calls("cuMemCreate") - creates, STEPS / 10, "%lu", vp_sim_calls("cuMemCreate") - creates);
    door_close();
}

/* The cache frees a block of the legacy stream, which CUDA hears nothing of. */
Test(bare, blocks_of_the_legacy_stream_join_no_others) {
    const size_t size = 40 * MiB;
    door_open("capacity=96M,granularity=64K,lazy=0,timeout=300");
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT);
    CUdeviceptr work = door_take(512, a), sign = door_take(512, b), seg = segment(80 * MiB, CU_STREAM_LEGACY);
    use(seg, size, CU_STREAM_LEGACY);
    unuse(seg, size);
    vp_sim_hold(a);
    cu_ok(cuMemsetD8Async(work, 1, 512, a));
    for (int i = 0; i < 4; i++) {
        use(seg + i % 2 * size, size, CU_STREAM_LEGACY);
        unuse(seg + i % 2 * size, size);
    }
    cu_ok(cuMemsetD8Async(sign, 1, 512, b));
    cu_ok(cuStreamSynchronize(b));
    vp_sim_release(a);
    door_close();
}
