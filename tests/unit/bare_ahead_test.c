/* Bare segments whose memory is made ahead of the program, as an earlier run's plan says. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "pool/learnt/ahead.h"

enum { SLOTS = 8, MANY_SLOTS = 200, PAGES = 4 };
static unsigned slots = SLOTS;
/* Held for a block before it comes, as it may touch so much more than its size. */
static const size_t EDGE = (2 + VP_BARE_ENDS) * PAGE;
static struct vp_learnt_run runs[2];
static struct vp_learnt_slot no_slot;
static uint32_t no_request;
static struct vp_ahead_batch batch;
static unsigned waits;

static size_t slot_bytes(void) {
    return VP_SLOT_PAGES * PAGE;
}

static size_t planned_bytes(void) {
    return slots * slot_bytes() + PAGES * PAGE;
}

/* A plan of two runs. */
static void begin_with_runs(bool trusted) {
    struct vp_learnt learnt = {.device_count = 1};
    learnt.device[0] = (struct vp_learnt_device){.granularity = PAGE,
                                                 .peak_live = planned_bytes(),
                                                 .peak_held = planned_bytes(),
                                                 .runs = runs,
                                                 .slots = &no_slot,
                                                 .requests = &no_request,
                                                 .run_count = 2};
    cr_assert_eq(vp_ahead_start(pool_of(0), &learnt, trusted), 0);
}

/* Of some slots and some single pages, from the first address on. */
static void begin_with_plan(void) {
    runs[0] = (struct vp_learnt_run){0, slot_bytes(), slots, 0, VP_ZONE_BARE};
    runs[1] = (struct vp_learnt_run){slots * slot_bytes(), PAGE, PAGES, 0, VP_ZONE_BARE};
    begin_with_runs(true);
}

static void make_all(void) {
    while (vp_ahead_begin(pool_of(0)->ahead, &batch)) {
        vp_ahead_make(pool_of(0)->mem.drv, &batch);
        vp_ahead_end(pool_of(0)->ahead, &batch, true);
        cr_assert(vp_pool_check(pool_of(0), stderr));
    }
}

/* The builder hands over what it has in its hands. */
static bool hand_over(struct vp_pool *pool) {
    if (!pool->ahead->under_way)
        return false;
    vp_ahead_end(pool->ahead, &batch, true);
    waits++;
    return true;
}

static CUdeviceptr open_with_plan(CUstream *s) {
    door_open(SIM);
    *s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(planned_bytes(), *s);
    begin_with_plan();
    return seg;
}

Test(bare, what_was_made_ahead_lies_under_its_blocks_without_a_call) {
    CUstream s;
    CUdeviceptr seg = open_with_plan(&s);
    make_all();
    const size_t made = held();
    cr_assert(made <= planned_bytes() / 8 * 7 && made > planned_bytes() / 8 * 7 - slot_bytes(),
              "the last eighth is not: a run of another seed may do without");
    const unsigned long before = maps() + vp_sim_calls("cuMemSetAccess");
    use(seg, made - EDGE, s);
    cr_assert_eq(maps() + vp_sim_calls("cuMemSetAccess"), before);
    cr_assert_leq(held(), made);
    cu_ok(cuMemsetD8Async(seg, 3, made - EDGE, s));
    unuse(seg, made - EDGE);
    door_close();
}

/* As in the plan of a run that had no cache of its own. */
Test(bare, what_is_of_no_use_to_the_cache_is_not_made_ahead_of_it) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(planned_bytes(), s);
    pool_of(0)->bare->lifetimes = vp_lifetimes_create();
    runs[0] = (struct vp_learnt_run){0, slot_bytes(), SLOTS, 0, VP_ZONE_LARGE};
    runs[1] = (struct vp_learnt_run){6 * slot_bytes(), slot_bytes(), 1, 1, VP_ZONE_BARE};
    begin_with_runs(false);
    for (int i = 0; i < VP_LIFETIMES_WINDOW; i++) {
        use(seg, 4 * slot_bytes(), s);
        unuse(seg, 4 * slot_bytes());
    }
    const size_t before = held();
    make_all();
    cr_assert_eq(held(), before, "nothing is known of the program, and the plan may be another's");
    static uint32_t window;
    window = pool_of(0)->bare->lifetimes->windows[0];
    pool_of(0)->ahead->plan.windows = &window;
    pool_of(0)->ahead->plan.window_count = 1;
    make_all();
    cr_assert_eq(pool_of(0)->ahead->built[0], 0);
    cr_assert_eq(pool_of(0)->ahead->built[1], 1);
    door_close();
}

/* Nothing is made where the cache was faster. */
Test(bare, where_a_block_lies_already_nothing_is_made_ahead) {
    CUstream s;
    CUdeviceptr seg = open_with_plan(&s);
    use(seg, planned_bytes(), s);
    cu_ok(cuMemsetD8Async(seg, 3, planned_bytes(), s));
    make_all();
    cr_assert_leq(held(), planned_bytes() + EDGE);
    cr_assert_eq(pool_of(0)->mem.stats.planned_bytes, 0);
    unuse(seg, planned_bytes());
    door_close();
}

/* What the builder has in its hands is in no index, and mapped by it. */
Test(bare, a_block_waits_for_what_is_being_made_under_it) {
    CUstream s;
    CUdeviceptr seg = open_with_plan(&s);
    pool_of(0)->config.await_ahead = hand_over;
    cr_assert(vp_ahead_begin(pool_of(0)->ahead, &batch));
    vp_ahead_make(pool_of(0)->mem.drv, &batch);
    use(seg, MiB, s);
    cr_assert_eq(waits, 1);
    cr_assert_leq(held(), planned_bytes() + MiB + EDGE, "what was not seen is held for the block before it comes");
    cu_ok(cuMemsetD8Async(seg, 3, MiB, s));
    unuse(seg, MiB);
    door_close();
}

/* It is idle memory as soon as it is there: programs plan by what is told as free. */
Test(bare, what_is_being_made_ahead_is_told_as_free) {
    CUstream s;
    size_t before, now, all;
    open_with_plan(&s);
    pool_of(0)->config.await_ahead = hand_over;
    cu_ok(vp_api_mem_info(&before, &all));
    cr_assert(vp_ahead_begin(pool_of(0)->ahead, &batch));
    vp_ahead_make(pool_of(0)->mem.drv, &batch);
    cu_ok(vp_api_mem_info(&now, &all));
    cr_assert_eq(now, before, "%zu KiB less", (before - now) / KiB);
    cr_assert_eq(waits, 1);
    door_close();
}

/* No block ever lay there, but what others did with the memory elsewhere must be over before one does. */
Test(bare, what_was_made_ahead_and_lent_waits_for_the_borrower) {
    CUstream s;
    CUdeviceptr seg = open_with_plan(&s);
    CUstream other = door_stream(CU_STREAM_NON_BLOCKING);
    make_all();
    CUdeviceptr block = door_malloc(SLOTS * slot_bytes());
    cr_assert_leq(held(), planned_bytes() + slot_bytes());
    vp_sim_hold(other);
    cu_ok(cuMemsetD8Async(block, 9, SLOTS * slot_bytes(), other));
    cu_ok(door_free(block));
    release_soon(other);
    use(seg, SLOTS * slot_bytes(), s);
    cu_ok(cuMemsetD8Async(seg, 3, SLOTS * slot_bytes(), s));
    cu_ok(cuCtxSynchronize());
    size_t wrong = 0;
    for (size_t i = 0; i < SLOTS * slot_bytes(); i++)
        wrong += ((unsigned char *)seg)[i] != 3;
    cr_assert_eq(wrong, 0);
    unuse(seg, SLOTS * slot_bytes());
    door_close();
}

static void (*pause_before)(uint64_t);
static bool begun;

/* The library's lock is let go: the builder begins something there. */
static void build_meanwhile(uint64_t waited) {
    if (!begun && (begun = vp_ahead_begin(pool_of(0)->ahead, &batch)))
        vp_ahead_make(pool_of(0)->mem.drv, &batch);
    pause_before(waited);
}

/* It waits for what is idle, to spare memory, while the device has more. */
Test(bare, a_block_that_waits_for_memory_awaits_what_is_begun_under_it) {
    CUstream s;
    slots = MANY_SLOTS;
    CUdeviceptr seg = open_with_plan(&s);
    CUstream other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr lent = segment(8 * MiB, other);
    use(lent, 8 * MiB, other);
    busy(lent, other);
    unuse(lent, 8 * MiB);
    pool_of(0)->config.await_ahead = hand_over;
    pause_before = pool_of(0)->config.pause;
    pool_of(0)->config.pause = build_meanwhile;
    release_soon(other);
    use(seg, 2 * MiB, s);
    cr_assert(begun);
    cr_assert(!vp_bare_lacking(pool_of(0)->bare, seg, 2 * MiB));
    cu_ok(cuMemsetD8Async(seg, 3, 2 * MiB, s));
    unuse(seg, 2 * MiB);
    door_close();
}

/* It is no more the device's, and not yet ours: who lacks it waits until it is. */
Test(bare, what_is_being_made_ahead_is_room_for_a_block) {
    CUstream s;
    slots = MANY_SLOTS;
    CUdeviceptr seg = open_with_plan(&s);
    pool_of(0)->config.await_ahead = hand_over;
    use(seg + 40 * MiB, PAGE, s);
    vp_sim_others(0, 84 * MiB - held());
    cr_assert(vp_ahead_begin(pool_of(0)->ahead, &batch));
    vp_ahead_make(pool_of(0)->mem.drv, &batch);
    cr_assert_geq(batch.count * batch.size, 4 * MiB);
    use(seg + 20 * MiB, 10 * MiB, s);
    cr_assert_eq(waits, 1);
    cr_assert_eq(pool_of(0)->ahead->held_back, 0);
    cu_ok(cuMemsetD8Async(seg + 20 * MiB, 3, 10 * MiB, s));
    door_close();
}
