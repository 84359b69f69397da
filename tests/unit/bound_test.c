/* How long one call takes, and holds up others: what is made anew instead, and what is built in parts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "pool/bound.h"
#include "pool/giving.h"
#include "pool/learnt/ahead.h"
#include "pool/throttle.h"
#include "watch/snapshot.h"

#include <errno.h>

/* Free chunks, each with a live one behind it, so that no two lie side by side; and what asks for most of them. */
enum { CHUNKS = 1200, MOVED = 1000, MS = 1000000 };
static const size_t CHUNK = 8 * MiB;

static CUdeviceptr block[2 * CHUNKS];
static unsigned gaps;
static uint64_t part_began, longest_part;
static void (*meanwhile)(void);

static void gap(uint64_t waited_ns) {
    (void)waited_ns;
    const uint64_t took = vp_sim_cost_ns() - part_began;
    longest_part = took > longest_part ? took : longest_part;
    gaps++;
    cr_assert(vp_pool_check(&fx.pool, stderr));
    if (meanwhile)
        meanwhile();
    part_began = vp_sim_cost_ns();
}

static uint64_t now(void) {
    static uint64_t ns;
    return ns += MS;
}

static void open_pool(const char *sim, bool parts) {
    const struct vp_pool_config config = {
        .handle = 256 * MiB, .va = 1024 * GiB, .pause = parts ? gap : NULL, .now = now};
    fx_open_pool(sim, &vp_policy_vpool, &config);
    for (int i = 0; i < 2 * CHUNKS; i++)
        block[i] = fx_alloc(CHUNK, 0);
    for (int i = 0; i < 2 * CHUNKS; i += 2)
        fx_free(block[i], 0), block[i] = 0;
    vp_fit_refresh(&fx.pool.mem);
    gaps = 0;
    longest_part = 0;
    part_began = vp_sim_cost_ns();
}

static const char FULL[] = "backing=ledger,lazy=0,capacity=19240M", ROOM[] = "backing=ledger,lazy=0,capacity=64G";

static void end(void) {
    meanwhile = NULL;
    for (int i = 0; i < 2 * CHUNKS; i++)
        if (block[i])
            fx_free(block[i], 0);
    fx_close();
}

static const struct vp_memory_stats *stats(void) {
    return &fx.pool.mem.stats;
}

/* Who wants small handles gets them, whatever they take. */
Test(bound, no_handle_is_larger_than_is_wanted) {
    const struct vp_pool_config config = {.handle = 2 * MiB, .va = 64 * GiB};
    fx_open_pool(ROOM, &vp_policy_vpool, &config);
    CUdeviceptr a = fx_alloc(2 * GiB, 0);
    cr_assert_eq(stats()->calls.create, 1024);
    fx_free(a, 0);
    fx_close();
}

Test(bound, what_would_take_too_long_is_made_anew_and_given_back_later) {
    open_pool(ROOM, false);
    const uint64_t before = vp_sim_cost_ns(), held = stats()->held_bytes;
    CUdeviceptr a = fx_alloc(MOVED * CHUNK, 0);
    cr_assert_leq(vp_sim_cost_ns() - before, 5 * MS);
    cr_assert_eq(stats()->held_bytes - held, stats()->spared_bytes);
    cr_assert_gt(stats()->spared_bytes, MOVED / 2 * CHUNK);
    /* Calls that build nothing. */
    unsigned calls = 0;
    CUdeviceptr b = fx_alloc(CHUNK, 0);
    for (; fx.pool.bound.excess && calls < 100; calls++) {
        fx_free(b, 0);
        vp_fit_refresh(&fx.pool.mem);
        const uint64_t begin = vp_sim_cost_ns();
        b = fx_alloc(CHUNK, 0);
        cr_assert_leq(vp_sim_cost_ns() - begin, 5 * MS);
    }
    cr_assert(calls > 1 && calls < 100, "%u", calls);
    cr_assert_gt(stats()->returned_bytes, 0);
    cr_assert_leq(stats()->held_bytes, held + CHUNK + 32 * MiB, "%zu for %zu", (size_t)stats()->held_bytes,
                  (size_t)held);
    fx_free(a, 0);
    fx_free(b, 0);
    end();
}

/* Where work still used what is idle, calls look at it once; the rest is for the next time that the program waits. */
Test(bound, what_work_still_used_goes_back_at_a_synchronise) {
    open_pool(ROOM, false);
    fx_busy(1);
    for (int i = 0; i < 2 * CHUNKS; i += 2)
        block[i] = fx_alloc(CHUNK, 1);
    for (int i = 0; i < 2 * CHUNKS; i += 2)
        fx_free(block[i], 1), block[i] = 0;
    CUdeviceptr a = fx_alloc(MOVED * CHUNK, 1);
    const uint64_t excess = fx.pool.bound.excess;
    cr_assert_gt(excess, MOVED / 2 * CHUNK);
    for (unsigned i = 0; i < 100; i++)
        fx_free(fx_alloc(CHUNK, 1), 1);
    vp_giving_settle(&fx.pool);
    cr_assert(stats()->returned_bytes == 0 && vp_giving_is_due(&fx.pool));
    fx_idle(1);
    for (unsigned i = 0; i < 1000 && vp_giving_is_due(&fx.pool); i++) {
        const uint64_t begin = vp_sim_cost_ns();
        vp_giving_settle(&fx.pool);
        cr_assert_leq(vp_sim_cost_ns() - begin, 5 * MS);
    }
    cr_assert(!vp_giving_is_due(&fx.pool));
    cr_assert_gt(stats()->returned_bytes, excess / 10 * 9, "%llu of %llu", (unsigned long long)stats()->returned_bytes,
                 (unsigned long long)excess);
    fx_free(a, 1);
    end();
}

Test(bound, a_few_hundred_are_moved) {
    open_pool(ROOM, false);
    CUdeviceptr a = fx_alloc(500 * CHUNK, 0);
    cr_assert_eq(stats()->spared_bytes, 0);
    fx_free(a, 0);
    end();
}

/* Its plan made small handles, and saved more than that. */
Test(bound, by_a_plan_of_its_own_some_more_are_moved) {
    static struct vp_ahead plan = {.kin = true, .ended = true};
    open_pool(ROOM, false);
    fx.pool.ahead = &plan;
    CUdeviceptr a = fx_alloc(MOVED * CHUNK, 0);
    cr_assert_eq(stats()->spared_bytes, 0);
    fx_free(a, 0);
    fx.pool.ahead = NULL;
    end();
}

/* Its sizes never come again, and so it would pay for that each time. */
Test(bound, in_a_program_that_roams_a_few_hundred_take_too_long) {
    open_pool(ROOM, false);
    fx.pool.config.slack = 5;
    fx.pool.slack.roams = true;
    uint64_t before = vp_sim_cost_ns();
    CUdeviceptr a = fx_alloc(500 * CHUNK, 0);
    cr_assert_leq(vp_sim_cost_ns() - before, 5 * MS);
    const uint64_t spared = stats()->spared_bytes, creates = stats()->calls.create;
    cr_assert_gt(spared, 300 * CHUNK);
    /* What is short anyway is no excess, however few handles it is made in. */
    before = vp_sim_cost_ns();
    CUdeviceptr b = fx_alloc(3000 * CHUNK, 0);
    cr_assert_leq(vp_sim_cost_ns() - before, 6 * MS, "%llu us", (unsigned long long)(vp_sim_cost_ns() - before) / 1000);
    cr_assert_leq(stats()->calls.create - creates, 40);
    cr_assert_leq(stats()->spared_bytes - spared, CHUNKS * CHUNK);
    fx_free(a, 0);
    fx_free(b, 0);
    end();
}

Test(bound, a_full_device_is_not_asked_in_vain_each_time) {
    open_pool(FULL, false);
    CUdeviceptr a = fx_alloc(MOVED * CHUNK, 0);
    cr_assert(stats()->spared_bytes == 0 && fx.pool.bound.rest > 0);
    fx_free(a, 0);
    end();
}

Test(bound, is_built_in_parts_where_the_device_is_full) {
    open_pool(FULL, true);
    const size_t held = stats()->held_bytes;
    CUdeviceptr a = fx_alloc(MOVED * CHUNK, 0);
    cr_assert_geq(gaps, 4);
    cr_assert_leq(longest_part, 5 * MS, "%llu", (unsigned long long)longest_part);
    cr_assert(stats()->held_bytes == held && !fx.pool.bound.under_way);
    fx_free(a, 0);
    end();
}

/* Were it made until the device has no more, each request would take as long as to clear all of that. */
Test(bound, what_the_device_lacks_is_asked_for_before_it_is_made) {
    const struct vp_pool_config config = {.handle = 256 * MiB, .va = 1024 * GiB};
    fx_open_pool(ROOM, &vp_policy_vpool, &config);
    CUdeviceptr half = fx_alloc(32 * GiB, 0), more;
    const uint64_t creates = stats()->calls.create, held = stats()->held_bytes;
    cr_assert_eq(fx_try(33 * GiB, 0, &more), -ENOMEM);
    cr_assert_leq(stats()->calls.create - creates, 2, "%lu", (unsigned long)(stats()->calls.create - creates));
    cr_assert(stats()->held_bytes == held && stats()->peak_held_bytes == held);
    /* What is called free may be less than there is. */
    vp_sim_fail("cuMemGetInfo_v2", -1, CUDA_ERROR_UNKNOWN);
    more = fx_alloc(31 * GiB, 0);
    vp_sim_fail("cuMemGetInfo_v2", 0, CUDA_SUCCESS);
    cr_assert_eq(stats()->held_bytes, 63 * GiB);
    fx_free(half, 0);
    fx_free(more, 0);
    fx_close();
}

Test(bound, a_device_that_fails_does_not_lack_memory) {
    const struct vp_pool_config config = {.handle = 256 * MiB, .va = 1024 * GiB};
    fx_open_pool(ROOM, &vp_policy_vpool, &config);
    CUdeviceptr more;
    vp_sim_fail("cuMemGetInfo_v2", -1, CUDA_ERROR_UNKNOWN);
    vp_sim_fail("cuMemCreate", -1, CUDA_ERROR_UNKNOWN);
    cr_assert_eq(fx_try(8 * GiB, 0, &more), -EIO);
    vp_sim_fail("cuMemCreate", 0, CUDA_SUCCESS);
    vp_sim_fail("cuMemGetInfo_v2", 0, CUDA_SUCCESS);
    fx_close();
}

Test(bound, what_the_device_lacks_is_asked_for_before_anything_moves) {
    open_pool(FULL, true);
    const uint64_t maps = stats()->calls.map;
    CUdeviceptr a;
    cr_assert_eq(fx_try(2 * CHUNKS * CHUNK, 0, &a), -ENOMEM);
    cr_assert(stats()->calls.map == maps && gaps == 0);
    end();
}

/* ---- what others do meanwhile ---- */

static CUdeviceptr stolen[CHUNKS];
static unsigned thefts;

static void steal(void) {
    for (int i = 0; i < 30; i++)
        stolen[thefts++] = fx_alloc(CHUNK, 0);
}

static void give_up_stolen(void) {
    while (thefts)
        fx_free(stolen[--thefts], 0);
}

Test(bound, others_may_take_what_is_left) {
    open_pool(FULL, true);
    meanwhile = steal;
    CUdeviceptr a = fx_alloc(MOVED * CHUNK, 0);
    meanwhile = NULL;
    cr_assert_eq(thefts, gaps * 30);
    give_up_stolen();
    fx_free(a, 0);
    end();
}

static bool any_building(void) {
    const struct vp_space *s;
    const struct vp_region *r;
    vp_list_each(s, &fx.pool.mem.spaces, link)
        vp_list_each(r, &s->regions, va)
            if (r->state == VP_BUILDING)
                return true;
    return false;
}

/* So much that the rest does not do; but no more than there is, as the last one would wait for the build. */
static void steal_much(void) {
    for (int i = 0; i < 100 && thefts < 400; i++)
        stolen[thefts++] = fx_alloc(CHUNK, 0);
}

/* What is half built becomes free memory, whoever wants it. */
Test(bound, fails_when_they_take_too_much_and_leaves_all_of_it) {
    open_pool(FULL, true);
    CUdeviceptr a;
    meanwhile = steal_much;
    cr_assert_eq(fx_try(MOVED * CHUNK, 0, &a), -ENOMEM);
    meanwhile = NULL;
    cr_assert(!fx.pool.bound.under_way && vp_pool_check(&fx.pool, stderr));
    cr_assert(!any_building());
    give_up_stolen();
    vp_fit_refresh(&fx.pool.mem);
    a = fx_alloc(MOVED * CHUNK, 0);
    fx_free(a, 0);
    end();
}

static unsigned waited;

static void end_of_build(void) {
    waited++;
    fx.pool.bound.under_way = false;
}

/* As another thread would, while this one has let the lock go. */
static void ask_for_too_much(void) {
    CUdeviceptr never;
    if (gaps < 7) /* what is left would be built in parts, too */
        return;
    meanwhile = end_of_build;
    cr_assert_eq(fx_try(4 * CHUNKS * CHUNK, 0, &never), -ENOMEM);
    meanwhile = NULL;
    fx.pool.bound.under_way = true;
}

/* Were it to fail, what is half built would be free: that is not out of memory yet. */
Test(bound, who_finds_no_memory_waits_for_a_build_to_end) {
    open_pool(FULL, true);
    meanwhile = ask_for_too_much;
    CUdeviceptr a = fx_alloc(1100 * CHUNK, 0);
    cr_assert_eq(waited, 1);
    fx_free(a, 0);
    end();
}

static void look(void) {
    struct vp_snapshot snap;
    struct vp_digest digest;
    size_t bytes = 0;
    cr_assert_eq(vp_snapshot_take(&fx.pool, &snap), 0);
    vp_snapshot_digest(&snap, UINT64_MAX, &digest);
    const struct vp_snap_chunk *c = snap.chunks.items;
    for (size_t i = 0; i < snap.chunks.count; i++)
        bytes += c[i].size;
    cr_assert_eq(bytes, stats()->held_bytes);
    cr_assert_eq(stats()->live_bytes + digest.internal + digest.pinned + digest.pending + digest.idle, bytes);
    vp_snapshot_finish(&snap);
}

static void trim_all(void) {
    vp_pool_trim(&fx.pool, 0);
}

static void reap_all(void) {
    vp_stitch_reap_all(&fx.pool.mem);
}

static void settle(void) {
    vp_exports_settle(&fx.pool);
    vp_pool_drop_context(&fx.pool, (struct vp_context *)8);
    vp_pool_synchronized(&fx.pool, NULL);
    cr_assert(vp_pool_find_inside(&fx.pool, block[1]));
    cr_assert_eq(vp_memory_set_peers(&fx.pool.mem, 0), 0);
}

Test(bound, others_may_look_reap_and_settle) {
    void (*const all[])(void) = {look, reap_all, settle};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        open_pool(FULL, true);
        meanwhile = all[i];
        CUdeviceptr a = fx_alloc(MOVED * CHUNK, 0);
        fx_free(a, 0);
        end();
    }
}

/* What is idle goes back to the device, and is made anew. What is half built is not idle. */
Test(bound, others_may_trim) {
    open_pool(FULL, true);
    meanwhile = trim_all;
    CUdeviceptr a = fx_alloc(MOVED * CHUNK, 0);
    cr_assert_gt(stats()->calls.release, CHUNKS / 2);
    fx_free(a, 0);
    end();
}

static void end_context(void) {
    fx.context->gone = gaps == 3;
}

Test(bound, a_context_that_ends_meanwhile_ends_the_build) {
    CUdeviceptr a;
    open_pool(FULL, true);
    meanwhile = end_context;
    cr_assert_eq(fx_try(MOVED * CHUNK, 0, &a), -ENODEV);
    cr_assert(gaps == 3 && !fx.pool.bound.under_way && vp_pool_check(&fx.pool, stderr));
    fx.context->gone = false;
    end();
}

/* Free memory of stream 1 alone, less than would be made anew. */
static void leave_to_stream_1(int chunks) {
    for (int i = 0; i < 2 * CHUNKS; i += 2)
        block[i] = fx_alloc(CHUNK, 1);
    fx_busy(1);
    for (int i = 0; i < 2 * chunks; i += 2)
        fx_free(block[i], 1), block[i] = 0;
}

/* A block of one handle, larger than any before; and so little is left beside it that the build ends in that. */
static void leave_a_large_handle(void) {
    struct vp_request req = {.asked = 512 * MiB, .context = fx.context, .alone = true, .whole = true};
    struct vp_region *r;
    if (gaps < 3) /* what is left is less than that */
        return;
    meanwhile = NULL;
    cr_assert_eq(vp_pool_alloc(&fx.pool, &req, &r), 0);
    cr_assert_eq(fx.pool.mem.largest, 512 * MiB);
    fx_free(r->addr, 1);
    for (int i = 0; i < 20; i++)
        stolen[thefts++] = fx_alloc(CHUNK, 1);
}

/* The addresses of a build have room for the largest handle that there was when it began. */
Test(bound, others_may_make_handles_larger_than_any) {
    open_pool(ROOM, true);
    leave_to_stream_1(500);
    meanwhile = leave_a_large_handle;
    CUdeviceptr a = fx_alloc(500 * CHUNK, 1);
    cr_assert_eq(thefts, 20);
    cr_assert(vp_pool_check(&fx.pool, stderr));
    fx_free(a, 1);
    fx_idle(1);
    give_up_stolen();
    end();
}

static void begin_capture(void) {
    struct vp_timeline *timeline;
    meanwhile = NULL;
    cr_assert_eq(vp_timeline_get(&fx.timelines, fx.stream[2], &timeline), 0);
    vp_timeline_capture(&fx.timelines, timeline);
    cu_ok(cuStreamBeginCapture(fx.stream[2], CU_STREAM_CAPTURE_MODE_GLOBAL));
}

/* Whether the device had work when the request began is asked at its end. */
Test(bound, a_capture_that_begins_meanwhile_goes_on) {
    struct vp_region *r;
    CUgraph graph;
    open_pool(ROOM, true);
    struct vp_request req = {.asked = 500 * CHUNK, .context = fx.context, .waits = VP_WAITS_HOST};
    fx_busy(3);
    fx.pool.throttle.lead_used_ns = MS;
    cr_assert_eq(vp_timeline_get(&fx.timelines, fx.stream[1], &req.timeline), 0);
    meanwhile = begin_capture;
    cr_assert_eq(vp_throttle_alloc(&fx.pool, &req, &r), 0);
    cr_assert(gaps && fx.pool.throttle.probed_at);
    cu_ok(cuStreamEndCapture(fx.stream[2], &graph));
    cu_ok(cuGraphDestroy(graph));
    struct vp_timeline *timeline = vp_timeline_named(&fx.timelines, fx.stream[2]);
    vp_timeline_capture_over(&fx.timelines, timeline);
    cr_assert_eq(fx.context->error, CUDA_SUCCESS);
    fx_free(r->addr, 1);
    fx_idle(3);
    end();
}

/* Each of its calls fails once: all is as it was but for idle memory that may have moved. */
Test(bound, survives_each_call_that_fails) {
    static const char *const call[] = {"cuMemMap", "cuMemSetAccess", "cuMemCreate"};
    for (unsigned c = 0; c < sizeof call / sizeof *call; c++)
        for (unsigned nth = 1; nth < MOVED; nth += 173) {
            open_pool(FULL, true);
            vp_sim_fail(call[c], nth, CUDA_ERROR_UNKNOWN);
            CUdeviceptr a = 0;
            int err = fx_try(MOVED * CHUNK, 0, &a);
            vp_sim_fail(call[c], 0, CUDA_SUCCESS);
            cr_assert(!err || (err == -EIO && !fx.pool.bound.under_way), "%s %u: %d", call[c], nth, err);
            cr_assert(vp_pool_check(&fx.pool, stderr));
            vp_pool_error_forget(&fx.pool, fx.context);
            if (err)
                a = fx_alloc(MOVED * CHUNK, 0);
            fx_free(a, 0);
            end();
        }
}

/* ---- in what a plan had ---- */

static CUdeviceptr beside;

static void end_plan(void) {
    if (beside)
        return;
    vp_ahead_stop(fx.pool.ahead);
    beside = fx_alloc(300 * MiB, 1);
}

/* All that the builder makes goes back to the device: a hole among the plan's addresses, where others build, too. */
static void make_and_return(struct vp_ahead *plan) {
    struct vp_ahead_batch batch;
    while (vp_ahead_begin(plan, &batch)) {
        vp_ahead_make(&fx.drv, &batch);
        vp_ahead_end(plan, &batch, true);
    }
    cr_assert_gt(stats()->planned_bytes, 300 * CHUNK);
    vp_pool_trim(&fx.pool, 0);
}

Test(bound, a_plan_that_ends_meanwhile_takes_nothing_of_the_build) {
    static const size_t LARGE = 100 * CHUNK;
    static struct vp_learnt_run runs[] = {{0, CHUNK, 4096, 0, VP_ZONE_LARGE}, {32 * GiB, CHUNK, 8, 9, VP_ZONE_LARGE}};
    static struct vp_learnt_slot slot = {LARGE, 64 * GiB, false};
    static uint32_t requests[4];
    const struct vp_pool_config config = {.handle = 256 * MiB, .va = 1024 * GiB, .pause = gap, .now = now};
    struct vp_learnt learnt = {.device_count = 1};
    learnt.device[0] = (struct vp_learnt_device){.granularity = 2 * MiB,
                                                 .peak_live = 32 * GiB,
                                                 .peak_held = 32 * GiB,
                                                 .runs = runs,
                                                 .slots = &slot,
                                                 .requests = requests,
                                                 .run_count = 2,
                                                 .slot_count = 1,
                                                 .request_count = 4};
    CUdeviceptr some[4];
    fx_open_pool(ROOM, &vp_policy_vpool, &config);
    cr_assert_eq(vp_ahead_start(&fx.pool, &learnt, true), 0);
    make_and_return(fx.pool.ahead);
    for (int i = 0; i < 4; i++)
        some[i] = fx_alloc(LARGE, 1);
    fx_free(some[0], 1);
    fx_free(some[2], 1);
    gaps = 0;
    meanwhile = end_plan;
    CUdeviceptr a = fx_alloc(170 * CHUNK, 1);
    meanwhile = NULL;
    cr_assert(gaps && a < fx.pool.ahead->end[VP_ZONE_LARGE], "it is built in parts, and there");
    cr_assert(beside + 300 * MiB <= a || a + 170 * CHUNK <= beside);
    cr_assert(vp_pool_check(&fx.pool, stderr));
    fx_free(a, 1);
    fx_free(beside, 1);
    fx_free(some[1], 1);
    fx_free(some[3], 1);
    fx_close();
}
