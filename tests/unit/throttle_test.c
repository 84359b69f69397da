/* The bounded wait of the host: when, for what, for how long, and what it learns. Time is the test's own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "pool/throttle.h"

#include <errno.h>

static const char SIM[] = "backing=ledger,capacity=16G,lazy=0";

enum { MS = 1000000 };
static const size_t BIG = 256 * MiB, OTHER = 260 * MiB;

static uint64_t now_ns, tick_ns;
static unsigned pauses;
static unsigned idle_after; /* so many pauses, stream 1 gets on; 0: it does not */
static void (*meanwhile)(void);

static unsigned busy_at; /* the look at the clock before which stream 0 gets work */

static uint64_t now(void) {
    if (busy_at && !--busy_at)
        fx_busy(0);
    return now_ns += tick_ns;
}

static void pause_ms(uint64_t waited_ns) {
    (void)waited_ns;
    now_ns += MS;
    if (++pauses == idle_after)
        fx_idle(1);
    if (meanwhile)
        meanwhile();
}

static void open_pool_on(const char *sim) {
    const struct vp_pool_config config = {.handle = 32 * MiB, .va = 64 * GiB, .pause = pause_ms, .now = now};
    now_ns = 3600ull * 1000 * MS;
    fx_open_pool(sim, &vp_policy_vpool, &config);
    fx.waits = VP_WAITS_HOST;
    now_ns += 3600ull * 1000 * MS;
}

static void open_pool(void) {
    open_pool_on(SIM);
}

static struct vp_timeline *timeline(int stream) {
    struct vp_timeline *l;
    cr_assert(!vp_timeline_get(&fx.timelines, fx.stream[stream], &l));
    return l;
}

static int try_alloc(size_t size, int stream, CUdeviceptr *out) {
    struct vp_request req = {.asked = size, .context = fx.context, .timeline = timeline(stream), .waits = fx.waits};
    struct vp_region *r = NULL;
    pauses = 0;
    int err = vp_throttle_alloc(&fx.pool, &req, &r);
    if (!err)
        *out = r->addr;
    cr_assert(vp_pool_check(&fx.pool, stderr));
    return err;
}

static CUdeviceptr alloc(size_t size, int stream) {
    CUdeviceptr addr = 0;
    cr_assert_eq(try_alloc(size, stream, &addr), 0);
    return addr;
}

/* Both streams have freed large blocks, so that frees record events; then stream 1 frees one that is still in use. */
static CUdeviceptr pending_block(size_t size) {
    for (int s = 1; s <= 2; s++) {
        fx_free(alloc(4 * MiB, s), s);
        cu_ok(cuStreamSynchronize(fx.stream[s]));
    }
    CUdeviceptr a = alloc(size, 1);
    fx_busy(1);
    fx_free(a, 1);
    return a;
}

static uint64_t stat_waits(void) {
    return fx.pool.mem.stats.waits_host;
}

Test(throttle, waits_for_what_another_stream_has_freed) {
    open_pool();
    CUdeviceptr a = pending_block(BIG);
    size_t held = fx.pool.mem.stats.held_bytes;
    idle_after = 7;
    CUdeviceptr b = alloc(BIG, 2);
    cr_assert_eq(b, a);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, held);
    cr_assert_eq(pauses, 7);
    cr_assert(stat_waits() == 1 && fx.pool.mem.stats.waits_fruitless == 0 && fx.pool.mem.stats.host_wait_ns == 7 * MS);
    cr_assert(fx.pool.mem.stats.waits_gpu == 0 && vp_sim_calls("cuStreamWaitEvent") == 0);
    fx_free(b, 2);
    fx_close();
}

/* An event over all streams would be one of the legacy stream there, which blocking streams wait for. */
Test(throttle, joins_no_streams_on_old_drivers) {
    CUstream stream[2];
    struct vp_timeline *seen;
    open_pool_on("backing=ledger,capacity=16G,lazy=0,timeout=300,driver=12000");
    for (int i = 0; i < 2; i++) {
        cu_ok(cuStreamCreate(&stream[i], CU_STREAM_DEFAULT));
        cr_assert_eq(vp_timeline_get(&fx.timelines, stream[i], &seen), 0);
    }
    pending_block(BIG);
    vp_sim_hold(stream[0]);
    cu_ok(cuMemsetD8Async(fx.scratch, 0, 1, stream[0]));
    fx.pool.throttle.lead_used_ns = MS;
    idle_after = 7;
    CUdeviceptr a = alloc(BIG, 2);
    cr_assert_eq(pauses, 7);
    cu_ok(cuMemsetD8Async(fx.scratch + 1, 0, 1, stream[1]));
    cu_ok(cuStreamSynchronize(stream[1]));
    vp_sim_release(stream[0]);
    fx_free(a, 2);
    fx_close();
}

/* What the device had to do as the request began tells whether it ran out of work, though an earlier cudaFree's bytes
 * have waited for it until then. */
Test(throttle, asks_old_drivers_as_a_request_begins) {
    CUstream stream;
    struct vp_timeline *seen;
    open_pool_on("backing=ledger,capacity=16G,lazy=0,timeout=300,driver=12000");
    cu_ok(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    cr_assert_eq(vp_timeline_get(&fx.timelines, stream, &seen), 0);
    timeline(0);
    fx.pool.throttle.lead_used_ns = 10 * MS;
    tick_ns = MS;
    for (int round = 0; round < 2; round++) {
        const uint64_t lost = fx.pool.throttle.lost_ns;
        busy_at = 2;
        CUdeviceptr a = alloc(BIG, 2);
        cr_assert(!busy_at && fx.pool.throttle.lost_ns > lost, "%d", round);
        struct vp_fence fence = {0};
        cr_assert(!vp_fence_add_barrier(&fx.timelines, &fence, fx.context, false));
        vp_timelines_poll(&fx.timelines, true);
        vp_fence_clear(&fx.timelines, &fence);
        fx_idle(0);
        fx_free(a, 2);
    }
    fx_close();
}

/* Idle memory that is moved there is missing where it was: while there is room for the lag, new memory is made. */
Test(throttle, a_lag_gets_memory_of_its_own_before_idle_memory_is_moved) {
    open_pool();
    const size_t idle = 80 * MiB, wanted = 128 * MiB;
    CUdeviceptr base = alloc(4 * BIG, 2), left = alloc(idle, 2), between = alloc(32 * MiB, 2), right = alloc(idle, 2);
    CUdeviceptr pending = pending_block(wanted);
    fx_free(left, 2);
    fx_free(right, 2);
    cu_ok(cuStreamSynchronize(fx.stream[2]));
    const size_t held = fx.pool.mem.stats.held_bytes;
    const uint64_t moved = fx.pool.mem.switches;
    CUdeviceptr first = alloc(wanted, 2);
    cr_assert_neq(first, pending);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, held + wanted);
    cr_assert_eq(fx.pool.mem.switches, moved);
    /* More than an eighth is not held for it. */
    CUdeviceptr second = alloc(wanted, 2);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, held + wanted);
    cr_assert_gt(fx.pool.mem.switches, moved);
    CUdeviceptr blocks[] = {base, between, first, second};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        fx_free(blocks[i], 2);
    fx_close();
}

/* The first half of the place that is pending lies where the request is to be built. */
Test(throttle, a_look_at_what_is_pending_leaves_the_site_alone) {
    open_pool();
    const size_t half = 64 * MiB;
    pending_block(4 * MiB);
    CUdeviceptr base = alloc(4 * BIG, 2), y = alloc(half, 2), between = alloc(32 * MiB, 2), x = alloc(half, 2),
                behind = alloc(192 * MiB, 2);
    fx_free(x, 2);
    fx_free(y, 2);
    fx_free(alloc(2 * half, 2), 2);
    cr_assert_eq(alloc(half, 2) + alloc(half, 2), x + y);
    fx_free(behind, 2);
    cu_ok(cuStreamSynchronize(fx.stream[2]));
    vp_pool_trim(&fx.pool, 0);
    fx_free(y, 1);
    fx_free(x, 2);
    cu_ok(cuStreamSynchronize(fx.stream[2]));
    CUdeviceptr built = alloc(2 * half, 2);
    CUdeviceptr blocks[] = {base, between, built};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        fx_free(blocks[i], 2);
    fx_close();
}

/* Stream 2 can have another block of the same size at once. Where there is none, it waits for the oldest place, which
 * is what the next round will ask for again. */
Test(throttle, waits_for_the_oldest_place_where_no_other_is_ready) {
    open_pool();
    CUdeviceptr first = alloc(BIG, 1), second = alloc(BIG, 1);
    fx_free(second, 2);
    cu_ok(cuStreamSynchronize(fx.stream[2]));
    fx_free(alloc(4 * MiB, 1), 1);
    fx_busy(1);
    fx_free(first, 1);
    size_t held = fx.pool.mem.stats.held_bytes;
    idle_after = 7;
    CUdeviceptr a = alloc(BIG, 2), b;
    cr_assert(a == second && pauses == 0);
    b = alloc(BIG, 2);
    cr_assert(b == first && pauses == 7 && fx.pool.mem.stats.held_bytes == held);
    fx_free(a, 2);
    fx_free(b, 2);
    fx_idle(1);
    fx_close();
}

Test(throttle, is_bounded_and_learns) {
    open_pool();
    CUdeviceptr a = pending_block(4 * BIG);
    CUdeviceptr b = alloc(OTHER, 2);
    cr_assert(b != a && pauses == 50, "50 ms, then new memory");
    cr_assert(stat_waits() == 1 && fx.pool.mem.stats.waits_fruitless == 1);
    CUdeviceptr c = alloc(OTHER, 2);
    cr_assert(pauses && pauses < 20, "for 250 ms after a wait in vain no longer than the memory is worth: %u", pauses);
    now_ns += 250 * MS;
    CUdeviceptr d = alloc(OTHER, 2);
    cr_assert_eq(pauses, 50, "the next one");
    now_ns += 59000ull * MS;
    CUdeviceptr e = alloc(OTHER, 2);
    cr_assert_eq(pauses, 0, "two in a row: none for a minute");
    now_ns += 1001ull * MS;
    CUdeviceptr f = alloc(OTHER, 2);
    cr_assert_eq(pauses, 50);
    now_ns += 119000ull * MS;
    CUdeviceptr g = alloc(OTHER, 2);
    cr_assert_eq(pauses, 0, "then for two");
    cr_assert_eq(fx.pool.mem.stats.waits_fruitless, 4);
    CUdeviceptr all[] = {b, c, d, e, f, g};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fx_free(all[i], 2);
    fx_close();
}

/* Many maps are to come, which need the lead of the host. */
static void expect_maps(void) {
    fx.pool.throttle.opened = fx.pool.throttle.maps_at = now_ns;
    fx.pool.throttle.maps = fx.pool.mem.stats.calls.map;
    fx.pool.throttle.remaps_ns = 60 * MS;
}

/* Then a wait may take what the memory is worth. Such waits in vain are one, in the end. */
Test(throttle, short_waits_in_vain_are_one_when_they_took_as_long) {
    open_pool();
    CUdeviceptr blocks[40];
    unsigned count = 0, taken = 0, longest = 0;
    pending_block(16 * BIG);
    do {
        expect_maps();
        blocks[count++] = alloc(OTHER, 2);
        taken += pauses;
        longest = pauses > longest ? pauses : longest;
    } while (count < 40 && (pauses || !taken));
    cr_assert(taken >= 100 && taken < 120 && longest < 20, "%u ms in all, %u at most", taken, longest);
    cr_assert_eq(fx.pool.mem.stats.waits_fruitless, stat_waits());
    while (count)
        fx_free(blocks[--count], 2);
    fx_close();
}

Test(throttle, the_lead_is_used_up_only_where_no_maps_are_to_come) {
    for (int many = 0; many < 2; many++) {
        open_pool();
        CUdeviceptr a = pending_block(BIG), b;
        fx.pool.throttle.opened = now_ns;
        if (many)
            expect_maps();
        idle_after = 40;
        b = alloc(BIG, 2);
        cr_assert(many ? b != a && pauses < 20 : b == a && pauses == 40, "%u pauses", pauses);
        fx_free(b, 2);
        fx_idle(1);
        fx_close();
    }
}

/* Something of stream 3 is over every 40 ms. */
static void others_get_on(void) {
    struct vp_fence over = {0};
    if (pauses % 40)
        return;
    cr_assert(!vp_fence_add_free(&fx.timelines, &over, timeline(3), true));
    cu_ok(cuStreamSynchronize(fx.stream[3]));
    vp_fence_clear(&fx.timelines, &over);
}

/* Who sees the device get on waits for longer than 50 ms; but for no longer than a second. */
Test(throttle, a_wait_goes_on_while_work_gets_done) {
    for (int ends = 0; ends < 2; ends++) {
        open_pool();
        CUdeviceptr a = pending_block(BIG), b;
        meanwhile = others_get_on;
        idle_after = ends ? 170 : 0;
        b = alloc(BIG, 2);
        cr_assert(ends ? b == a && pauses == 170 : b != a && pauses == 1000, "%u pauses", pauses);
        meanwhile = NULL;
        fx_free(b, 2);
        fx_idle(1);
        fx_close();
    }
}

/* What is made for a program that grows it will soon need anyway; but not without bound. */
Test(throttle, a_program_that_grows_need_not_wait) {
    open_pool();
    CUdeviceptr base = alloc(4 * BIG, 2), pending = pending_block(BIG);
    size_t held = fx.pool.mem.stats.held_bytes;
    CUdeviceptr grown = alloc(OTHER, 2);
    cr_assert(pauses == 0 && grown != pending && fx.pool.mem.stats.held_bytes == held + OTHER);
    fx_free(grown, 2);
    fx_free(base, 2);
    fx_close();

    open_pool();
    pending = pending_block(BIG);
    idle_after = 3;
    grown = alloc(OTHER, 2);
    cr_assert_eq(pauses, 3, "as much again is more than a quarter");
    fx_free(grown, 2);
    fx_close();
}

/* A place in vain: no further wait for one, but for memory. */
Test(throttle, waits_for_places_are_given_up_by_themselves) {
    open_pool();
    CUdeviceptr a = pending_block(BIG), b = alloc(BIG, 2);
    cr_assert(b != a && pauses == 50 && fx.pool.mem.stats.waits_fruitless == 1);
    fx_free(b, 2);
    cu_ok(cuStreamSynchronize(fx.stream[2]));
    cr_assert(alloc(BIG, 3) == b && pauses == 0, "another one is ready");
    fx_idle(1);
    CUdeviceptr c = pending_block(BIG);
    idle_after = 9;
    CUdeviceptr d = alloc(OTHER, 2);
    cr_assert(pauses == 9 && fx.pool.mem.stats.waits_fruitless == 1, "at once");
    (void)c;
    fx_free(b, 3);
    fx_free(d, 2);
    fx_close();
}

/* What else is idle serves where the place of a size is pending; in vain waited for once, it is not again. */
Test(throttle, a_place_that_was_waited_for_in_vain_is_not_again) {
    CUdeviceptr half[4], between[4];
    open_pool();
    for (int i = 0; i < 4; i++) {
        half[i] = alloc(BIG / 2, 2);
        between[i] = alloc(32 * MiB, 2);
    }
    CUdeviceptr a = pending_block(BIG);
    for (int i = 0; i < 4; i++)
        fx_free(half[i], 2);
    cu_ok(cuStreamSynchronize(fx.stream[2]));
    CUdeviceptr b = alloc(BIG, 2);
    cr_assert(b != a && pauses == 50 && fx.pool.mem.stats.waits_fruitless == 1);
    fx_busy(2);
    fx_free(b, 2);
    CUdeviceptr c = alloc(BIG, 3);
    cr_assert(c != a && c != b && pauses == 0, "%u pauses", pauses);
    fx_free(c, 3);
    for (int i = 0; i < 4; i++)
        fx_free(between[i], 2);
    fx_idle(1);
    fx_idle(2);
    fx_close();
}

static void third_gets_on(void) {
    if (pauses == 5)
        fx_idle(3);
}

/* Some of what was lacking has come free, though not all in time: whoever works so is not held up, but behind. */
Test(throttle, a_wait_that_gained_something_is_not_in_vain) {
    open_pool();
    CUdeviceptr c = alloc(BIG, 3);
    pending_block(BIG);
    fx_busy(3);
    fx_free(c, 3);
    meanwhile = third_gets_on;
    CUdeviceptr a = alloc(2 * BIG, 2);
    cr_assert(pauses == 55 && stat_waits() == 1 && fx.pool.mem.stats.waits_fruitless == 0,
              "%u pauses, %llu waits, %llu in vain", pauses, (unsigned long long)stat_waits(),
              (unsigned long long)fx.pool.mem.stats.waits_fruitless);
    meanwhile = NULL;
    CUdeviceptr b = alloc(BIG, 2);
    cr_assert(pauses == 220 && fx.pool.mem.stats.waits_fruitless == 1,
              "the next one may take longer, and gains nothing");
    fx_free(a, 2);
    fx_free(b, 2);
    fx_close();
}

/* A wait of 40 ms that succeeded lets the next one take 160. */
Test(throttle, long_waits_that_succeed_make_the_bound_longer) {
    open_pool();
    pending_block(BIG);
    idle_after = 40;
    CUdeviceptr a = alloc(BIG, 2);
    idle_after = 0;
    fx_busy(2);
    fx_free(a, 2);
    CUdeviceptr b = alloc(BIG, 1);
    cr_assert_eq(pauses, 160);
    fx_free(b, 1);
    fx_close();
}

Test(throttle, small_requests_and_small_excess_need_no_wait) {
    open_pool();
    CUdeviceptr base = alloc(2 * BIG, 2);
    pending_block(16 * MiB);
    CUdeviceptr a = alloc(16 * MiB, 2);
    cr_assert_eq(pauses, 0, "within 32 MiB of what is alive");
    fx_free(a, 2);
    fx_idle(1);
    pending_block(BIG);
    CUdeviceptr b = alloc(512 * KiB, 2);
    cr_assert_eq(pauses, 0, "small");
    fx_free(b, 2);
    fx_free(base, 2);
    fx_close();
}

enum { MANY = 32 };

/* What stream 1 has freed is pending. To make all of it once more for stream 2 would be a fifth of what is alive. */
Test(throttle, in_a_small_program_small_requests_wait_too) {
    open_pool();
    const size_t small = 512 * KiB;
    CUdeviceptr base = alloc(64 * MiB, 2), block[MANY];
    for (int i = 0; i < MANY; i++)
        block[i] = alloc(small, 1);
    fx_busy(1);
    for (int i = 0; i < MANY; i++)
        fx_free(block[i], 1);
    const size_t before = fx.pool.mem.stats.held_bytes;
    idle_after = 3;
    for (int i = 0; i < MANY; i++)
        block[i] = alloc(small, 2);
    const struct vp_memory_stats *s = &fx.pool.mem.stats;
    cr_assert(s->waits_host == 1 && s->waits_fruitless == 0, "%llu waits", (unsigned long long)s->waits_host);
    cr_assert(s->held_bytes - before <= 6 * MiB, "%zu more", (size_t)s->held_bytes - before);
    for (int i = 0; i < MANY; i++)
        fx_free(block[i], 2);
    fx_free(base, 2);
    fx_close();
}

Test(throttle, what_the_stream_itself_has_freed_is_not_waited_for) {
    open_pool();
    CUdeviceptr a = pending_block(BIG), b = alloc(BIG, 1);
    cr_assert(b == a && pauses == 0);
    CUdeviceptr c = alloc(2 * BIG, 1);
    cr_assert_eq(pauses, 0, "nothing else is pending");
    fx_free(b, 1);
    fx_free(c, 1);
    fx_close();
}

Test(throttle, never_waits_while_a_capture_runs) {
    open_pool();
    pending_block(BIG);
    atomic_fetch_add(&fx.timelines.captures, 1);
    CUdeviceptr a = alloc(BIG, 2);
    cr_assert_eq(pauses, 0);
    atomic_fetch_sub(&fx.timelines.captures, 1);
    fx_free(a, 2);
    fx_close();
}

/* A program whose waits leave the device idle again and again pays with memory, once they have cost a hundredth of its
 * time and 50 ms: a 16th of what is alive for each 5 ms beyond. */
Test(throttle, waits_are_given_up_for_memory_where_they_cost_time) {
    open_pool();
    uint64_t opened = now_ns - 3600ull * 1000 * MS;
    unsigned waited = 0, not = 0;
    now_ns = opened + 1000 * MS;
    for (int i = 0; i < 200; i++) {
        pending_block(BIG);
        idle_after = 2;
        CUdeviceptr a = alloc(BIG, 2);
        pauses ? waited++ : not++;
        idle_after = 0;
        fx_idle(1);
        fx_free(a, 2);
        cu_ok(cuStreamSynchronize(fx.stream[2]));
        vp_pool_trim(&fx.pool, 0);
    }
    cr_assert(fx.pool.throttle.lost_ns <= 1000 * MS / 100 + 50 * MS + 2 * MS, "%llu",
              (unsigned long long)fx.pool.throttle.lost_ns);
    cr_assert(waited >= 50 && waited <= 140 && not> 50 && fx.pool.throttle.granted >= 2 * BIG, "%u %u %zu", waited, not,
              fx.pool.throttle.granted);
    fx_close();
}

/* What the waits cost is told by what the device has left to do, then and later. */
Test(throttle, the_device_tells_what_is_lost) {
    open_pool();
    pending_block(BIG);
    idle_after = 7;
    fx_busy(0);
    CUdeviceptr a = alloc(BIG, 2);
    cr_assert(pauses == 7 && fx.pool.throttle.lost_ns == 0, "another stream still had work");
    tick_ns = MS;
    CUdeviceptr b = alloc(BIG, 2);
    cr_assert(pauses == 0 && fx.pool.throttle.lost_ns == 0, "and has");
    fx_idle(0);
    CUdeviceptr c = alloc(BIG, 2);
    uint64_t lost = fx.pool.throttle.lost_ns;
    cr_assert(pauses == 0 && lost >= MS && lost <= 3 * MS, "in a later request's driver calls there was none: %llu",
              (unsigned long long)lost);
    for (int i = 0; i < 20; i++)
        fx_free(alloc(BIG + (size_t)i * 64 * MiB, 3), 3), vp_pool_trim(&fx.pool, 0);
    lost = fx.pool.throttle.lost_ns;
    cr_assert(lost >= 7 * MS && lost <= 8 * MS, "no more than was waited: %llu", (unsigned long long)lost);
    tick_ns = 0;
    CUdeviceptr all[] = {a, b, c};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fx_free(all[i], 2);
    fx_close();
}

/* ---- what ends meanwhile ---- */

static CUstream third;
static struct vp_timeline *third_line;

static void destroy_third(void) {
    meanwhile = NULL;
    vp_timeline_destroying(&fx.timelines, third_line);
    cu_ok(cuStreamDestroy(third));
}

Test(throttle, a_stream_that_ends_meanwhile_ends_the_wait) {
    struct vp_region *r = NULL;
    open_pool();
    pending_block(BIG);
    cu_ok(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    cr_assert(!vp_timeline_get(&fx.timelines, third, &third_line));
    struct vp_request req = {.asked = BIG, .context = fx.context, .timeline = third_line, .waits = VP_WAITS_HOST};
    meanwhile = destroy_third;
    third_line->refs++;
    cr_assert_eq(vp_throttle_alloc(&fx.pool, &req, &r), -ENODEV);
    third_line->refs--;
    cr_assert(stat_waits() == 1 && vp_pool_check(&fx.pool, stderr));
    fx_close();
}

static void end_context(void) {
    atomic_store(&fx.context->ending, true);
    fx.context->gone = pauses == 9;
}

Test(throttle, a_context_that_ends_meanwhile_ends_the_wait) {
    CUdeviceptr a;
    open_pool();
    pending_block(BIG);
    meanwhile = end_context;
    cr_assert(try_alloc(BIG, 2, &a) == -ENODEV && pauses == 9);
    atomic_store(&fx.context->ending, false);
    fx.context->gone = false;
    fx_close();
}

/* A release that was not the last one. */
static void seem_to_end(void) {
    atomic_store(&fx.context->ending, pauses < 5);
}

Test(throttle, a_context_that_lives_on_goes_on_waiting) {
    CUdeviceptr a;
    open_pool();
    CUdeviceptr pending = pending_block(BIG);
    meanwhile = seem_to_end;
    idle_after = 8;
    cr_assert(try_alloc(BIG, 2, &a) == 0 && a == pending && pauses == 8);
    fx_free(a, 2);
    fx_close();
}
