/* Slack and handle size: what leaves a program alone, what does not, and how far that goes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "pool/fresh.h"
#include "pool/slack.h"

#include <errno.h>

enum { BLOCKS = 48, WINDOW = 256, PERCENT = 5 };

static CUdeviceptr block[BLOCKS];
static int of_stream[BLOCKS];
static uint32_t seed;

static uint32_t rnd(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static void open_pool(unsigned slack, size_t limit) {
    const struct vp_pool_config config = {.handle = 256 * MiB, .va = 1024 * GiB, .slack = slack, .limit = limit};
    fx_open_pool("backing=ledger,capacity=64G,lazy=0", &vp_policy_vpool, &config);
    seed = 1;
}

/* No size of it comes twice, but by chance: nine tenths are small, as such that only small ones fit between. */
static size_t any_size(void) {
    const uint32_t most = rnd(10) ? 60 : 600;
    const size_t coarse = rnd(most) * MiB;
    return 4 * MiB + coarse + rnd(2048) * 512;
}

/* As layers of a network, whose sizes are few. */
static size_t same_size(unsigned i) {
    return 4 * MiB + i % 12 * 5 * MiB + 512;
}

static void put(unsigned i) {
    if (block[i])
        fx_free(block[i], of_stream[i]);
    block[i] = 0;
}

static void take(unsigned i, size_t size, int stream) {
    put(i);
    block[i] = fx_alloc(size, stream);
    of_stream[i] = stream;
}

static void never_repeats(unsigned events) {
    while (events--) {
        const unsigned i = rnd(BLOCKS);
        take(i, any_size(), 1);
    }
}

/* With no stream, as what a stream's cache serves does not count. */
static void repeats(unsigned rounds) {
    while (rounds--)
        for (unsigned i = 0; i < BLOCKS; i++)
            take(i, same_size(i), 0);
}

/* A few sizes in an order that never comes again. */
static void shuffles(unsigned events) {
    while (events--) {
        const unsigned i = rnd(BLOCKS);
        take(i, (4 * MiB << rnd(8)) + 512 * rnd(4), 1);
    }
}

static void end(void) {
    for (unsigned i = 0; i < BLOCKS; i++)
        put(i);
    fx_close();
}

static uint64_t maps(void) {
    return fx.pool.mem.stats.calls.map;
}

/* Above the peak, `percent` of it and 32 MiB; and half a percent, for what large handles pin beside live blocks. */
static bool held_within(double percent) {
    percent += 0.5;
    const struct vp_memory_stats *s = &fx.pool.mem.stats;
    return (double)s->peak_held_bytes <= (double)s->peak_live_bytes * (1 + percent / 100) + 32 * MiB;
}

Test(slack, a_program_that_repeats_is_left_alone) {
    open_pool(PERCENT, 0);
    repeats(40);
    cr_assert(vp_slack_percent(&fx.pool) == 0 && fx.pool.slack.steps == 0);
    cr_assert_eq(vp_slack_novelty(&fx.pool), 0);
    cr_assert_gt(fx.pool.slack.windows, 2, "it was looked at");
    const struct vp_memory_stats with = fx.pool.mem.stats;
    end();
    open_pool(0, 0);
    repeats(40);
    cr_assert_eq(fx.pool.mem.stats.peak_held_bytes, with.peak_held_bytes);
    cr_assert_eq(maps(), with.calls.map);
    end();
}

Test(slack, a_program_that_never_repeats_gets_some_up_to_the_bound) {
    open_pool(0, 0);
    never_repeats(8000);
    const uint64_t maps_without = maps(), held_without = fx.pool.mem.stats.peak_held_bytes;
    cr_assert(fx.pool.slack.windows == 0 && !fx.pool.slack.sizes, "0: nothing is even counted");
    end();
    open_pool(PERCENT, 0);
    never_repeats(8000);
    cr_assert_eq(vp_slack_percent(&fx.pool), PERCENT);
    cr_assert_gt(vp_slack_novelty(&fx.pool), 0.5);
    cr_assert_eq(fx.pool.slack.steps, 3);
    cr_assert(held_within(PERCENT), "%llu of %llu", (unsigned long long)fx.pool.mem.stats.peak_held_bytes,
              (unsigned long long)fx.pool.mem.stats.peak_live_bytes);
    cr_assert_gt(fx.pool.mem.stats.peak_held_bytes, held_without);
    cr_assert_lt(maps() * 2, maps_without, "%llu of %llu", (unsigned long long)maps(),
                 (unsigned long long)maps_without);
    end();
}

Test(slack, the_steps_follow_the_option) {
    open_pool(2, 0);
    never_repeats(8000);
    cr_assert_eq(vp_slack_percent(&fx.pool), 2);
    end();
}

/* New sizes alone are no reason: nothing was moved for them. */
Test(slack, what_costs_nothing_gets_nothing) {
    open_pool(PERCENT, 0);
    take(0, 64 * MiB, 1);
    put(0);
    for (unsigned i = 0; i < 5 * WINDOW; i++)
        fx_free(fx_alloc(MiB + (i + 1) * 512, 1), 1);
    cr_assert_gt(vp_slack_novelty(&fx.pool), 0.9);
    cr_assert_eq(fx.pool.slack.steps, 0);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 64 * MiB);
    end();
}

Test(slack, goes_when_it_is_paid_for_no_more) {
    open_pool(PERCENT, 0);
    never_repeats(8000);
    cr_assert_eq(vp_slack_percent(&fx.pool), PERCENT);
    repeats(60 * WINDOW / BLOCKS);
    cr_assert_eq(vp_slack_percent(&fx.pool), 0);
    end();
}

Test(slack, pressure_packs) {
    open_pool(PERCENT, 0);
    never_repeats(8000);
    struct vp_request req = {.asked = 100 * MiB, .size = 100 * MiB};
    fx.pool.mem.stats.held_bytes -= 200 * MiB;
    cr_assert(vp_slack_room(&fx.pool, &req, 0) && vp_slack_handle(&fx.pool, &req, 0));
    req.pressed = true;
    cr_assert(!vp_slack_room(&fx.pool, &req, 0) && !vp_slack_handle(&fx.pool, &req, 0), "this one");
    req.pressed = false;
    fx.pool.mem.limit = fx.pool.mem.stats.held_bytes;
    cr_assert(!vp_slack_room(&fx.pool, &req, 1) && !vp_slack_handle(&fx.pool, &req, 1), "at the limit");
    fx.pool.mem.limit = 0;
    fx.pool.mem.stats.held_bytes += 200 * MiB;
    CUdeviceptr never;
    cr_assert_eq(fx_try(63 * GiB, 1, &never), -ENOMEM);
    cr_assert_eq(vp_slack_percent(&fx.pool), 0, "and the next ones");
    cr_assert(!vp_slack_room(&fx.pool, &req, 0) && !vp_slack_handle(&fx.pool, &req, 0));
    never_repeats(32 * WINDOW);
    cr_assert_eq(vp_slack_percent(&fx.pool), 0, "for a while");
    never_repeats(80 * WINDOW);
    cr_assert_eq(vp_slack_percent(&fx.pool), PERCENT);
    end();
}

/* ---- small programs ---- */

/* Some 100 MiB alive on four streams, of blocks from 4 KiB to 3 MiB; no work is ever over unless it is waited for. */
static double small_program(int waits) {
    const struct vp_pool_config config = {.handle = 256 * MiB, .va = 1024 * GiB, .slack = PERCENT};
    enum { SMALL_BLOCKS = 128, ROUNDS = 20000 };
    static CUdeviceptr small[SMALL_BLOCKS];
    static int stream[SMALL_BLOCKS];
    fx_open_pool("backing=ledger,capacity=64G,lazy=100", &vp_policy_vpool, &config);
    fx.waits = waits;
    seed = 1;
    for (unsigned n = 0; n < ROUNDS; n++) {
        const unsigned i = rnd(SMALL_BLOCKS);
        if (small[i])
            fx_free(small[i], rnd(4) ? stream[i] : 1 + (int)rnd(4));
        stream[i] = 1 + (int)rnd(4);
        const size_t size = i % 2 ? 4 * KiB + rnd(1500) * 512 : MiB + rnd(4096) * 512;
        small[i] = fx_alloc(size, stream[i]);
    }
    const struct vp_memory_stats stats = fx.pool.mem.stats;
    for (unsigned i = 0; i < SMALL_BLOCKS; i++)
        if (small[i])
            fx_free(small[i], stream[i]);
    fx_close();
    return (double)stats.peak_held_bytes / (double)stats.peak_live_bytes;
}

Test(slack, a_small_program_on_several_streams_holds_little_more_than_is_alive) {
    const double held = small_program(VP_WAITS_EARLY);
    cr_assert_lt(held, 1.5, "%.3f times", held);
}

static size_t largest_chunk(void) {
    const struct vp_chunk *chunk;
    size_t largest = 0;
    vp_list_each(chunk, &fx.pool.mem.chunks, link)
        largest = chunk->size > largest ? chunk->size : largest;
    return largest;
}

/* Every program is small at first, and its handles large; one that stays so gets small ones. */
Test(slack, a_small_program_has_small_handles) {
    const struct vp_pool_config config = {.handle = 256 * MiB, .va = 1024 * GiB, .slack = PERCENT};
    fx_open_pool("backing=ledger,capacity=64G,lazy=0", &vp_policy_vpool, &config);
    take(0, 16 * MiB + 512, 1);
    cr_assert_eq(largest_chunk(), 8 * MiB);
    put(0);
    for (unsigned i = 0; i < 100; i++)
        take(0, (i % 8 + 1) * MiB, 0);
    put(0);
    cu_ok(cuStreamSynchronize(fx.stream[1]));
    vp_pool_trim(&fx.pool, 0);
    for (unsigned i = 0; i < 5; i++)
        take(i, 16 * MiB + 512, 1);
    cr_assert_eq(largest_chunk(), 2 * MiB);
    /* Until it is large. */
    take(5, 256 * MiB, 1);
    take(6, 16 * MiB + 512, 1);
    cr_assert_eq(largest_chunk(), 8 * MiB);
    end();
}

/* Steps of a training whose sizes all drift. What is saved is freed in reverse, between temporaries. */
static void drifts(unsigned steps) {
    for (unsigned n = 0; n < steps; n++) {
        const size_t more = 10000 + n;
        for (unsigned i = 0; i < BLOCKS; i++) {
            const size_t size = (2 + i * 17 % 29) * (MiB / 10000) * more;
            take(i, size, 1);
            fx_free(fx_alloc(size / 10 * 7, 1), 1);
        }
        for (unsigned i = BLOCKS; i--; put(i))
            fx_free(fx_alloc((2 + i * 17 % 29) * (MiB / 10000) * more / 10 * 11, 1), 1);
    }
}

Test(slack, what_drifts_lies_side_by_side_and_is_not_moved) {
    open_pool(PERCENT, 0);
    drifts(200);
    cr_assert(vp_slack_roams(&fx.pool));
    cr_assert_eq(maps(), fx.pool.mem.stats.calls.create);
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, fx.pool.mem.stats.peak_live_bytes / 100 * 102, "%llu of %llu",
                  (unsigned long long)fx.pool.mem.stats.peak_held_bytes,
                  (unsigned long long)fx.pool.mem.stats.peak_live_bytes);
    end();
}

/* One of them by another of about its size. */
static void replace(unsigned i) {
    const size_t size = 48 * MiB + rnd(8192) * 512;
    take(i < BLOCKS ? i : rnd(BLOCKS), size, 1);
}

/* Each is made longer until it serves all of them. */
Test(slack, blocks_that_are_alike_are_made_longer_where_they_lie) {
    open_pool(PERCENT, 0);
    for (unsigned n = 0; n < BLOCKS * 100; n++)
        replace(n);
    const uint64_t before = maps();
    for (unsigned n = 0; n < 1000; n++)
        replace(BLOCKS);
    cr_assert(fx.pool.slack.alike_sizes);
    cr_assert_leq(maps() - before, 30, "%llu", (unsigned long long)(maps() - before));
    cr_assert(held_within(PERCENT));
    end();
}

Test(slack, known_sizes_in_no_order_are_no_rest) {
    open_pool(PERCENT, 0);
    never_repeats(4 * WINDOW);
    shuffles(60 * WINDOW);
    cr_assert_lt(vp_slack_novelty(&fx.pool), 0.05);
    cr_assert_eq(vp_slack_percent(&fx.pool), PERCENT, "it is still dear");
    cr_assert_lt(fx.pool.slack.still_windows, 32, "nor is it taken for one that repeats itself");
    repeats(60 * WINDOW / BLOCKS);
    cr_assert_eq(vp_slack_percent(&fx.pool), 0);
    cr_assert(vp_slack_roams(&fx.pool), "what is free goes on lying in one piece");
    end();
}

/* Where a block goes that fits into a free region as well as into its old place, at the beginning of a longer one. */
static bool goes_to_its_old_place(bool roams) {
    open_pool(PERCENT, 0);
    fx.pool.slack.roams = roams;
    const size_t size = 600 * MiB + 512;
    CUdeviceptr other = fx_alloc(size + 8 * MiB, 1), wall = fx_alloc(9 * MiB, 1);
    CUdeviceptr place = fx_alloc(size, 1), behind = fx_alloc(100 * MiB, 1), end_wall = fx_alloc(10 * MiB, 1);
    fx_free(other, 1);
    fx_free(place, 1);
    fx_free(behind, 1);
    fx_free(fx_alloc(20 * MiB, 1), 1); /* so that the stream's cache gives back what it has */
    CUdeviceptr again = fx_alloc(size, 1);
    const bool old = again == place;
    cr_assert(old || again == other);
    fx_free(again, 1);
    fx_free(wall, 1);
    fx_free(end_wall, 1);
    end();
    return old;
}

/* It would cut up what is free, however large the block. */
Test(slack, what_is_free_comes_before_an_old_place_in_a_program_that_roams) {
    cr_assert(goes_to_its_old_place(false));
    cr_assert(!goes_to_its_old_place(true));
}

/* What they leave becomes ready piece by piece, where a GPU lags. */
Test(slack, where_the_host_waits_large_blocks_of_several_streams_keep_their_places) {
    open_pool(PERCENT, 0);
    never_repeats(2 * WINDOW);
    fx.pool.slack.grade = 0;
    const size_t peak = fx.pool.mem.stats.peak_live_bytes;
    const struct vp_request small = {.size = peak / 300, .waits = VP_WAITS_HOST},
                            large = {.size = peak / 200, .waits = VP_WAITS_HOST},
                            early = {.size = peak / 200, .waits = VP_WAITS_EARLY};
    cr_assert(!vp_slack_keeps_place(&fx.pool, &large));
    fx_free(fx_alloc(8 * MiB, 2), 2);
    fx_free(fx_alloc(8 * MiB, 1), 1);
    cr_assert(vp_slack_roams(&fx.pool) && fx.pool.caches.several);
    cr_assert(vp_slack_keeps_place(&fx.pool, &large));
    cr_assert(!vp_slack_keeps_place(&fx.pool, &small) && !vp_slack_keeps_place(&fx.pool, &early));
    end();
}

/* Blocks that got addresses of their own are free, when it is seen that the program roams. */
Test(slack, what_lies_apart_is_brought_to_the_rest_before_more_is_made) {
    open_pool(PERCENT, 0);
    CUdeviceptr most = fx_alloc(2 * GiB, 1), least = fx_alloc(20 * MiB, 1);
    CUdeviceptr one = fx_alloc(21 * MiB, 1), other = fx_alloc(22 * MiB, 1);
    fx_free(one, 1);
    fx_free(other, 1);
    fx.pool.slack.roams = true;
    const size_t held = fx.pool.mem.stats.held_bytes;
    CUdeviceptr longer = fx_alloc(100 * MiB, 1);
    cr_assert_eq(longer, other, "made longer");
    cr_assert_eq(fx.pool.mem.stats.held_bytes, held + (100 - 22 - 22) * MiB);
    fx_free(longer, 1);
    cr_assert_eq(fx_alloc(99 * MiB, 1), longer, "and stays so");
    fx_free(longer, 1);
    fx_free(most, 1);
    fx_free(least, 1);
    end();
}

/* Weights that are all alike, and then `n` blocks of sizes that are not. */
static bool roams_after(unsigned n) {
    open_pool(PERCENT, 0);
    for (unsigned i = 0; i < 40; i++)
        fx_free(fx_alloc(32 * MiB, 1 + (int)i % 2), 1 + (int)i % 2);
    for (unsigned i = 0; i < n; i++) {
        const size_t mibs = 2 + i * 7 % 31;
        fx_free(fx_alloc(mibs * MiB + (i + 1) * 512, 1), 1);
    }
    const bool roams = vp_slack_roams(&fx.pool);
    cr_assert_eq(fx.pool.slack.windows, 0);
    end();
    return roams;
}

Test(slack, sizes_that_are_new_and_differ_are_seen_before_a_window_is_over) {
    cr_assert(!roams_after(18));
    cr_assert(roams_after(28));
}

static uint64_t records(void) {
    return fx.timelines.stats[0].records;
}

/* Before memory is made for it; and others may wait for it, as for what is freed around it. */
Test(slack, where_streams_roam_a_small_block_lies_in_what_is_left_between_large_ones) {
    open_pool(PERCENT, 0);
    fx.waits = VP_WAITS_EARLY;
    const CUdeviceptr early = fx_alloc(64 * KiB, 3);
    never_repeats(2 * WINDOW);
    fx_free(fx_alloc(8 * MiB, 2), 2);
    fx_free(fx_alloc(8 * MiB, 1), 1);
    cr_assert(vp_slack_roams_apart(&fx.pool));
    CUdeviceptr small[512], last = 0;
    const size_t size = 900 * KiB;
    unsigned n = 0;
    while (n < 512 && vp_space_of(&fx.pool.mem, last = small[n++] = fx_alloc(size, 3))->zone == VP_ZONE_SMALL)
        continue;
    cr_assert_eq(vp_space_of(&fx.pool.mem, last)->zone, VP_ZONE_LARGE);
    cr_assert(vp_pool_worth_event(&fx.pool, vp_pool_find(&fx.pool, last)));
    cr_assert(!vp_pool_worth_event(&fx.pool, vp_pool_find(&fx.pool, early)));
    const uint64_t before = records();
    fx_free(last, 3);
    cr_assert_gt(records(), before);
    while (--n)
        fx_free(small[n - 1], 3);
    fx_free(early, 3);
    end();
}

enum { FILL = 512 };

/* Small blocks of stream 3 until one lies in the small zone, which comes last of `*n`: what is left between large ones
 * comes first. */
static CUdeviceptr fill(CUdeviceptr *small, unsigned *n, size_t size) {
    do
        small[*n] = fx_alloc(size, 3);
    while (vp_space_of(&fx.pool.mem, small[(*n)++])->zone != VP_ZONE_SMALL && *n < FILL);
    cr_assert_eq(vp_space_of(&fx.pool.mem, small[*n - 1])->zone, VP_ZONE_SMALL);
    return small[*n - 1];
}

/* As a whole it can serve any request; by itself the free of a small block has no event, and nobody waits for it. */
Test(slack, where_streams_roam_the_last_block_of_a_chunk_leaves_it_to_all) {
    open_pool(PERCENT, 0);
    fx.waits = VP_WAITS_EARLY;
    never_repeats(2 * WINDOW);
    fx_free(fx_alloc(8 * MiB, 2), 2);
    fx_free(fx_alloc(8 * MiB, 1), 1);
    cr_assert(vp_slack_roams_apart(&fx.pool));
    CUdeviceptr small[FILL];
    unsigned n = 0;
    const CUdeviceptr one = fill(small, &n, 900 * KiB), other = fx_alloc(900 * KiB + 512, 3);
    cr_assert_eq(vp_mapping_at(&fx.pool.mem, other), vp_mapping_at(&fx.pool.mem, one));
    cr_assert(!vp_pool_worth_event(&fx.pool, vp_pool_find(&fx.pool, one)));
    uint64_t before = records();
    fx_free(other, 3);
    cr_assert_eq(records(), before);
    fx_free(fx_alloc(8 * MiB, 1), 1); /* what caches hold becomes free */
    cr_assert(vp_pool_worth_event(&fx.pool, vp_pool_find(&fx.pool, one)));
    before = records();
    fx_free(one, 3);
    cr_assert_gt(records(), before);
    while (--n)
        fx_free(small[n - 1], 3);
    end();
}

/* Else the next small block of that stream would fetch it again. */
Test(slack, where_streams_roam_what_small_blocks_have_moved_stays) {
    open_pool(PERCENT, 0);
    fx.waits = VP_WAITS_EARLY;
    const CUdeviceptr large = fx_alloc(2 * MiB, 1), between = fx_alloc(3 * MiB, 1);
    never_repeats(2 * WINDOW);
    fx_free(fx_alloc(8 * MiB, 2), 2);
    fx_free(large, 1);
    fx_free(fx_alloc(8 * MiB, 1), 1);
    cr_assert(vp_slack_roams_apart(&fx.pool));
    fx.pool.mem.limit = fx.pool.mem.stats.held_bytes;
    CUdeviceptr small[FILL];
    unsigned n = 0;
    const struct vp_mapping *m = vp_mapping_at(&fx.pool.mem, fill(small, &n, 900 * KiB));
    cr_assert(m->chunk->mappings->next, "it lay elsewhere before");
    cr_assert_eq(m->chunk->home, m);
    while (n)
        fx_free(small[--n], 3);
    fx_free(between, 1);
    end();
}

/* So that the half of what one block leaves is of use to another. */
Test(slack, where_streams_roam_a_few_new_granules_are_handles_of_their_own) {
    open_pool(PERCENT, 0);
    never_repeats(2 * WINDOW);
    const struct vp_request small = {.asked = 3 * MiB, .size = 3 * MiB, .zone = VP_ZONE_LARGE},
                            large = {.asked = 64 * MiB, .size = 64 * MiB, .zone = VP_ZONE_LARGE};
    cr_assert_gt(vp_fresh_handle(&fx.pool, &small, 4 * MiB), 2 * MiB);
    fx_free(fx_alloc(8 * MiB, 2), 2);
    fx_free(fx_alloc(8 * MiB, 1), 1);
    cr_assert_eq(vp_fresh_handle(&fx.pool, &small, 4 * MiB), 2 * MiB);
    cr_assert_gt(vp_fresh_handle(&fx.pool, &small, 6 * MiB), 2 * MiB);
    cr_assert_gt(vp_fresh_handle(&fx.pool, &large, 4 * MiB), 2 * MiB);
    end();
}

/* What is lacking is made then all the same: so it is to be little. */
Test(slack, where_streams_roam_and_no_slack_is_left_a_request_opens_few_granules) {
    open_pool(PERCENT, 0);
    never_repeats(2 * WINDOW);
    const struct vp_request req = {.asked = 7 * MiB, .size = 7 * MiB, .zone = VP_ZONE_LARGE},
                            large = {.asked = 64 * MiB, .size = 64 * MiB, .zone = VP_ZONE_LARGE};
    const uint64_t held = fx.pool.mem.stats.held_bytes;
    fx.pool.mem.stats.held_bytes = 2 * held;
    cr_assert(!vp_slack_crowded(&fx.pool, &req));
    fx.pool.mem.stats.held_bytes = held;
    fx_free(fx_alloc(8 * MiB, 2), 2);
    fx_free(fx_alloc(8 * MiB, 1), 1);
    const uint64_t now = fx.pool.mem.stats.held_bytes;
    fx.pool.mem.stats.held_bytes = now / 2;
    cr_assert(!vp_slack_crowded(&fx.pool, &req));
    fx.pool.mem.stats.held_bytes = 2 * now;
    cr_assert(vp_slack_crowded(&fx.pool, &req));
    cr_assert(!vp_slack_crowded(&fx.pool, &large));
    fx.pool.mem.stats.held_bytes = now;
    end();
}

/* What lies beside a live block in its chunk will be lacking. */
Test(slack, handles_stay_small_at_the_edge) {
    open_pool(PERCENT, 0);
    never_repeats(2 * WINDOW);
    struct vp_request req = {.asked = 640 * MiB, .size = 640 * MiB};
    struct vp_memory *mem = &fx.pool.mem;
    mem->stats.held_bytes -= 200 * MiB;
    cr_assert_gt(vp_slack_handle(&fx.pool, &req, 0), 8 * MiB);
    mem->limit = mem->stats.held_bytes / 10 * 11;
    cr_assert_eq(vp_slack_handle(&fx.pool, &req, 0), 0, "of what the user allows");
    mem->limit = 0;
    mem->stats.held_bytes += 200 * MiB;
    CUdeviceptr most = fx_alloc(56 * GiB, 2);
    cr_assert_eq(vp_slack_handle(&fx.pool, &req, 0), 0, "of the device");
    fx_free(most, 2);
    end();
}

static CUdeviceptr alloc_whole(size_t size) {
    struct vp_request req = {.asked = size, .context = fx.context, .alone = true, .whole = true};
    struct vp_region *r;
    cr_assert_eq(vp_pool_alloc(&fx.pool, &req, &r), 0);
    return r->addr;
}

/* What is chosen for a range may be more than it lacks by less than the largest handle, and some are larger than any
 * that is made otherwise. */
Test(slack, a_range_is_built_at_an_end_with_room_for_the_largest_handle) {
    const struct vp_pool_config config = {.handle = 8 * MiB, .va = 64 * GiB, .slack = PERCENT};
    fx_open_pool("backing=ledger,capacity=64G,lazy=0", &vp_policy_vpool, &config);
    CUdeviceptr end = fx_alloc(24 * MiB, 1), hole = fx_alloc(80 * MiB, 1), live[3], large[2];
    for (int i = 0; i < 2; i++) {
        live[i] = fx_alloc(8 * MiB, 1);
        large[i] = alloc_whole(64 * MiB);
    }
    live[2] = fx_alloc(8 * MiB, 1);
    cr_assert_eq(fx.pool.mem.largest, 64 * MiB);
    fx_free(hole, 1);
    cu_ok(cuStreamSynchronize(fx.stream[1]));
    vp_pool_trim(&fx.pool, 0);
    fx_free(end, 1);
    fx_free(large[0], 1);
    fx_free(large[1], 1);
    fx.pool.slack.roams = true;
    fx.pool.mem.stats.peak_live_bytes = fx.pool.mem.stats.live_bytes; /* no slack is left */
    CUdeviceptr a = fx_alloc(94 * MiB, 1);
    fx_free(a, 1);
    for (int i = 0; i < 3; i++)
        fx_free(live[i], 1);
    fx_close();
}
