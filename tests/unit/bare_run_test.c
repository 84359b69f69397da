/* Bare segments: blocks that come and go as one run of pages, and what breaks it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

enum { SLOT = VP_SLOT_PAGES };

static const struct vp_bare_run *run_at(CUdeviceptr at) {
    const struct vp_bare *bare = pool_of(0)->bare;
    return &bare->runs[vp_round_up(at - bare->base, PAGE) / PAGE];
}

static uint32_t word_at(CUdeviceptr at) {
    return atomic_load(&run_at(at)->word);
}

/* So often that it is a run. */
static void repeat(CUdeviceptr at, size_t size, CUstream s) {
    for (int i = 0; i < 2; i++) {
        use(at, size, s);
        unuse(at, size);
    }
}

static struct vp_timeline *timeline_of(CUstream s) {
    struct vp_timeline *timeline;
    cr_assert_geq(vp_timeline_get(&vp_state.timelines, s, &timeline), 0);
    return timeline;
}

/* The stream's next event comes. */
static void record(CUstream s) {
    struct vp_fence fence = {0};
    vp_fence_add_free(&vp_state.timelines, &fence, timeline_of(s), true);
    vp_fence_clear(&vp_state.timelines, &fence);
}

Test(bare, a_block_that_comes_again_and_again_is_a_run) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s), at = seg + 3 * PAGE / 2;
    use(at, 4 * MiB, s);
    unuse(at, 4 * MiB);
    cr_assert_eq(word_at(at), 0);
    use(at, 4 * MiB, s);
    unuse(at, 4 * MiB);
    cr_assert_eq(word_at(at), VP_RUN_WHOLE | 63);
    unsigned long before = vp_sim_calls(NULL);
    use(at, 4 * MiB, s);
    cr_assert_eq(word_at(at), VP_RUN_WHOLE | VP_RUN_USED | 63);
    use(at + 4 * MiB, 2 * PAGE, s); /* beside it, in its last page */
    unuse(at, 4 * MiB);
    unuse(at + 4 * MiB, 2 * PAGE);
    use(at, 4 * MiB, s);
    cr_assert_leq(vp_sim_calls(NULL) - before, 8);
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 4 * MiB);
    door_close();
}

/* Pages in use, of chunks with blocks, are counted alike both ways. */
Test(bare, a_run_counts_the_pages_that_its_block_has) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 10 * KiB, s);
    const size_t none = atomic_load(&pool_of(0)->bare->used);
    for (size_t from = 0; from < 2 * SLOT * PAGE; from += 3 * PAGE / 2) {
        const CUdeviceptr at = seg + 10 * KiB + from;
        use(at, 3 * MiB, s);
        const size_t first = atomic_load(&pool_of(0)->bare->used);
        unuse(at, 3 * MiB);
        cr_assert_eq(atomic_load(&pool_of(0)->bare->used), none);
        for (int i = 0; i < 3; i++) {
            use(at, 3 * MiB, s);
            cr_assert_eq(atomic_load(&pool_of(0)->bare->used), first, "%zu: %zu, not %zu", from,
                         atomic_load(&pool_of(0)->bare->used), first);
            unuse(at, 3 * MiB);
            cr_assert_eq(atomic_load(&pool_of(0)->bare->used), none);
        }
    }
    door_close();
}

Test(bare, a_run_breaks_when_its_memory_goes) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s), other;
    repeat(seg, 48 * MiB, s);
    cu_ok(cuStreamSynchronize(s));
    cu_ok(door_alloc(&other, 70 * MiB));
    cu_ok(cuMemsetD8(other, 1, 70 * MiB));
    cr_assert(!(word_at(seg) & VP_RUN_WHOLE));
    cu_ok(door_free(other));
    use(seg, 48 * MiB, s);
    cu_ok(cuMemsetD8Async(seg, 2, 48 * MiB, s));
    cr_assert_leq(held(), 96 * MiB);
    door_close();
}

Test(bare, a_run_in_use_keeps_its_memory) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s), other;
    repeat(seg, 48 * MiB, s);
    use(seg, 48 * MiB, s);
    cu_ok(cuMemsetD8Async(seg, 2, 48 * MiB, s));
    cu_ok(cuStreamSynchronize(s));
    cr_assert_eq(door_alloc(&other, 60 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    vp_pool_trim(pool_of(0), 0);
    cr_assert_eq(word_at(seg), VP_RUN_WHOLE | VP_RUN_USED | 48 * MiB / PAGE);
    cr_assert_geq(held(), 48 * MiB);
    cu_ok(cuMemsetD8(seg, 3, 48 * MiB));
    door_close();
}

/* When a run was left is what counts, not when its pages were before they were one. */
Test(bare, what_a_run_left_another_stream_has_only_when_work_is_over) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr from = segment(16 * MiB, s), to = segment(16 * MiB, other);
    repeat(from, 8 * MiB, s);
    record(s);
    cu_ok(cuCtxSynchronize());
    use(from, 8 * MiB, s);
    busy(from, s);
    unuse(from, 8 * MiB);
    use(to, 8 * MiB, other);
    cr_assert_geq(held(), 16 * MiB);
    vp_sim_release(s);
    door_close();
}

/* And so it does for each of its pages when they are in another run. */
Test(bare, when_a_run_was_left_is_known_of_its_pages_in_another) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr from = segment(16 * MiB, s), to = segment(16 * MiB, other);
    repeat(from, 8 * MiB, s);
    record(s);
    cu_ok(cuCtxSynchronize());
    use(from, 8 * MiB, s);
    busy(from, s);
    unuse(from, 8 * MiB);
    repeat(from, 4 * MiB, s);
    cr_assert_eq(word_at(from), VP_RUN_WHOLE | 4 * MiB / PAGE);
    use(to, 8 * MiB, other);
    cr_assert_geq(held(), 16 * MiB);
    vp_sim_release(s);
    door_close();
}

/* Another thread is about to record an event, which comes before the work, or fails: a free that takes no lock sees
 * that. */
static void free_while_recording(bool recorded) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr from = segment(16 * MiB, s), to = segment(16 * MiB, other);
    struct vp_timeline *timeline = timeline_of(s);
    cr_assert(timeline->asked_unlocked); /* else who records need not say so */
    repeat(from, 8 * MiB, s);
    record(s);
    cu_ok(cuCtxSynchronize());
    use(from, 8 * MiB, s);
    const uint64_t number = timeline->next;
    if (recorded) {
        record(s);
        vp_timelines_poll(&vp_state.timelines, false);
    }
    atomic_store(&timeline->next, number);
    atomic_store(&timeline->recording, true);
    busy(from, s);
    cr_assert(vp_bare_unused(from, 8 * MiB, false));
    atomic_store(&timeline->next, number + recorded);
    atomic_store(&timeline->recording, false);
    use(to, 8 * MiB, other);
    cr_assert_geq(held(), 16 * MiB);
    vp_sim_release(s);
    door_close();
}

Test(bare, a_free_is_behind_no_event_that_is_being_recorded) {
    free_while_recording(true);
}

Test(bare, a_free_is_behind_an_event_though_one_failed_meanwhile) {
    free_while_recording(false);
}

Test(bare, a_run_ends_with_its_segment) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s);
    repeat(seg, 8 * MiB, s);
    use(seg, 8 * MiB, s);
    cu_ok(door_free(seg));
    cr_assert_eq(segment(16 * MiB, s), seg);
    cr_assert_eq(word_at(seg), 0);
    use(seg, 8 * MiB, s);
    cu_ok(cuMemsetD8Async(seg, 2, 8 * MiB, s));
    door_close();
}

/* A block across a run that nobody uses holds its own part of it, and what breaks the run takes nothing from it. */
Test(bare, a_block_across_an_idle_run_keeps_its_memory) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s), other;
    repeat(seg, 40 * MiB, s);
    use(seg + 8 * MiB, 16 * MiB, s);
    cu_ok(cuMemsetD8Async(seg + 8 * MiB, 1, 16 * MiB, s));
    cu_ok(cuStreamSynchronize(s));
    cu_ok(door_alloc(&other, 70 * MiB));
    cu_ok(cuMemsetD8(seg + 8 * MiB, 1, 16 * MiB));
    cr_assert(vp_pool_check(pool_of(0), stderr));
    unuse(seg + 8 * MiB, 16 * MiB);
    cu_ok(door_free(other));
    use(seg, 40 * MiB, s);
    cu_ok(cuMemsetD8Async(seg, 2, 40 * MiB, s));
    door_close();
}

/* Its last page, which another block has too, may lack memory: the block is counted page by page then. */
Test(bare, a_run_beside_a_page_without_memory_is_backed) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    const size_t size = 4 * SLOT * PAGE + PAGE / 2;
    repeat(seg, size, s);
    struct vp_mapping *m = vp_mapping_at(&pool_of(0)->mem, seg + 4 * SLOT * PAGE);
    cr_assert(m && vp_bare_let_go(pool_of(0), m));
    cr_assert(vp_bare_room(0, size, on(s)) == CUDA_SUCCESS && vp_bare_used(seg, size, on(s)));
    cr_assert_eq(word_at(seg), 4 * SLOT);
    unuse(seg, size);
    for (int i = 0; i < 3; i++) {
        use(seg, size, s);
        cu_ok(cuMemsetD8Async(seg, 2, size, s));
        unuse(seg, size);
    }
    cr_assert_eq(word_at(seg), VP_RUN_WHOLE | 4 * SLOT);
    door_close();
}
