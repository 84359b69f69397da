/* Bare segments: what has memory, what it costs to move, and who may have it when. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "base/clock.h"

#include <stdlib.h>

Test(bare, a_segment_is_addresses_without_memory) {
    door_open(SIM);
    CUdeviceptr seg = segment(8 * MiB, door_stream(CU_STREAM_NON_BLOCKING)), base;
    size_t size;
    cr_assert_eq(held(), 0);
    cr_assert(!vp_api_address_range(&base, &size, seg + MiB) && base == seg && size == 8 * MiB);
    cr_assert(vp_api_address_range(&(CUdeviceptr){0}, NULL, seg + 8 * MiB) == VP_NOT_OURS);
    cr_assert(door_address_range(&base, &size, seg + MiB) == CUDA_SUCCESS && base == seg && size == 8 * MiB);
    cu_ok(door_free(seg));
    cr_assert(door_served);
    cr_assert(vp_api_address_range(&(CUdeviceptr){0}, NULL, seg) == VP_NOT_OURS);
    door_close();
}

/* A page is made beyond those that a block may touch: where it will lie is not known when room is made. */
Test(bare, a_block_has_its_pages_and_one_more) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(8 * MiB, s);
    use(seg + 10 * KiB, 100 * KiB, s);
    cr_assert_eq(held(), 3 * PAGE);
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 100 * KiB);
    cr_assert_eq(vp_pool_stats(pool_of(0)).allocs, 1);
    use(seg + 110 * KiB, 10 * KiB, s);
    cr_assert_leq(held(), 4 * PAGE);
    door_close();
}

Test(bare, a_block_again_at_its_address_costs_no_call_and_no_wait) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(8 * MiB, s);
    use(seg, 3 * MiB, s);
    busy(seg, s);
    unuse(seg, 3 * MiB);
    vp_bare_flush(pool_of(0)); /* whether it counts as free memory meanwhile or not */
    unsigned long before = vp_sim_calls(NULL);
    use(seg, 3 * MiB, s);
    unuse(seg, 3 * MiB);
    use(seg, 2 * MiB, s);
    cr_assert_eq(vp_sim_calls("cuMemMap") + vp_sim_calls("cuMemUnmap"), maps());
    cr_assert_leq(vp_sim_calls(NULL) - before, 4, "%lu", vp_sim_calls(NULL) - before);
    vp_sim_release(s);
    door_close();
}

/* What comes under its blocks would be what others have left. */
Test(bare, where_memory_is_to_read_zero_segments_have_some) {
    setenv("VPOOL_ZERO", "1", 1);
    door_open(SIM);
    struct vp_bare_stream s = on(door_stream(CU_STREAM_NON_BLOCKING));
    CUdeviceptr seg;
    cr_assert_eq(vp_bare_segment(&seg, 8 * MiB, s), VP_NOT_OURS);
    cr_assert_eq(vp_bare_room(0, MiB, s), VP_NOT_OURS);
    door_close();
}

/* ---- one set of chunks ---- */

Test(bare, what_a_cache_lets_go_of_serves_cudaMalloc) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s);
    use(seg, 16 * MiB, s);
    unuse(seg, 16 * MiB);
    cu_ok(cuStreamSynchronize(s));
    size_t before = held();
    door_malloc(12 * MiB);
    cr_assert_leq(held(), before + 2 * MiB, "%zu %zu", held(), before);
    door_close();
}

Test(bare, what_cudaFree_gave_serves_a_cache) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = door_malloc(16 * MiB), seg = segment(16 * MiB, s);
    cu_ok(door_free(block));
    cu_ok(cuCtxSynchronize());
    use(seg, 16 * MiB, s);
    cr_assert_leq(held(), 17 * MiB);
    door_close();
}

Test(bare, one_chunk_serves_two_addresses_in_turn_without_a_call) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 30 * MiB, s);
    for (int round = 0; round < 4; round++) {
        unsigned long before = maps();
        unuse(seg, 30 * MiB);
        use(seg + 32 * MiB, 30 * MiB, s);
        unuse(seg + 32 * MiB, 30 * MiB);
        use(seg, 30 * MiB, s);
        if (round)
            cr_assert_eq(maps(), before);
    }
    cr_assert_leq(held(), 31 * MiB);
    door_close();
}

/* ---- who may have it when ---- */

Test(bare, a_stream_has_what_its_own_blocks_left_at_once) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 30 * MiB, s);
    busy(seg, s);
    unuse(seg, 30 * MiB);
    use(seg + 32 * MiB, 30 * MiB, s);
    cr_assert_leq(held(), 31 * MiB);
    vp_sim_release(s);
    door_close();
}

Test(bare, another_stream_has_it_only_when_work_is_over) {
    door_open(SIM);
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr from = segment(16 * MiB, f), to = segment(16 * MiB, s);
    use(from, 8 * MiB, f);
    busy(from, f);
    unuse(from, 8 * MiB);
    use(to, 8 * MiB, s);
    cr_assert_geq(held(), 16 * MiB);
    unuse(to, 8 * MiB);
    vp_sim_release(f);
    cu_ok(cuCtxSynchronize());
    size_t before = held();
    use(to, 16 * MiB, s);
    cr_assert_leq(held(), before + 8 * PAGE, "%zu %zu", held(), before);
    door_close();
}

/* Its old mapping is still there. */
Test(bare, what_served_another_since_comes_back_only_when_work_is_over) {
    door_open(SIM);
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr mine = segment(20 * MiB, s), other = segment(20 * MiB, f);
    use(mine, 20 * MiB, s);
    unuse(mine, 20 * MiB);
    cu_ok(cuCtxSynchronize());
    use(other, 20 * MiB, f);
    cr_assert_leq(held(), 21 * MiB);
    busy(other, f);
    unuse(other, 20 * MiB);
    use(mine, 20 * MiB, s);
    cr_assert_geq(held(), 40 * MiB);
    vp_sim_release(f);
    door_close();
}

Test(bare, cudaMalloc_has_it_only_when_work_is_over) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s);
    use(seg, 8 * MiB, s);
    busy(seg, s);
    unuse(seg, 8 * MiB);
    door_malloc(8 * MiB);
    cr_assert_geq(held(), 16 * MiB);
    vp_sim_release(s);
    door_close();
}

/* Others than its stream may use it still, of which the cache tells no more than that. */
Test(bare, behind_a_barrier_not_even_its_own_stream_has_it_elsewhere) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 10 * MiB, s);
    busy(seg, side);
    cr_assert(vp_bare_unused(seg, 10 * MiB, true));
    use(seg + 32 * MiB, 10 * MiB, s);
    cr_assert_geq(held(), 20 * MiB);
    vp_sim_release(side);
    door_close();
}

/* What side work still touches must be remembered while another block is in the same page. */
Test(bare, a_barrier_is_not_forgotten_by_the_next_block) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 10 * MiB, s);
    busy(seg, side);
    cr_assert(vp_bare_unused(seg, 10 * MiB, true));
    use(seg, 10 * MiB, s);
    unuse(seg, 10 * MiB);
    use(seg + 32 * MiB, 10 * MiB, s);
    cr_assert_geq(held(), 20 * MiB);
    vp_sim_release(side);
    door_close();
}

/* However many chunks lie under a block. */
Test(bare, a_barrier_is_one_event) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 30 * MiB, s);
    busy(seg + 20 * MiB, side);
    const unsigned long before = vp_sim_calls("cuCtxRecordEvent");
    cr_assert(vp_bare_unused(seg, 30 * MiB, true));
    cr_assert_eq(vp_sim_calls("cuCtxRecordEvent") - before, 1);
    use(seg + 32 * MiB, 30 * MiB, s);
    cr_assert_geq(held(), 60 * MiB);
    vp_sim_release(side);
    door_close();
}

Test(bare, where_the_stream_is_not_known_all_work_must_be_over) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg;
    cu_ok(vp_bare_segment(&seg, 64 * MiB, (struct vp_bare_stream){0}));
    use(seg, 10 * MiB, s);
    busy(seg, s);
    unuse(seg, 10 * MiB);
    use(seg + 32 * MiB, 10 * MiB, s);
    cr_assert_geq(held(), 20 * MiB);
    vp_sim_release(s);
    door_close();
}

Test(bare, a_second_stream_makes_a_segments_stream_unknown) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 10 * MiB, s);
    use(seg + 11 * MiB, MiB, other);
    busy(seg, other);
    unuse(seg, 10 * MiB);
    use(seg + 32 * MiB, 10 * MiB, s);
    cr_assert_geq(held(), 21 * MiB);
    vp_sim_release(other);
    door_close();
}

Test(bare, a_stream_that_ends_leaves_segments_of_none) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 10 * MiB, s);
    use(seg + 11 * MiB, 5 * MiB, s);
    unuse(seg, 10 * MiB);
    cu_ok(door_stream_destroy(s));
    busy(seg, other);
    unuse(seg + 11 * MiB, 5 * MiB);
    use(seg + 32 * MiB, 15 * MiB, other);
    cr_assert_geq(held(), 20 * MiB);
    vp_sim_release(other);
    door_close();
}

/* As cudaFree and cudaMalloc promise: what comes to lie there is nobody's but the new owner's. */
Test(bare, addresses_that_were_freed_are_new_only_when_work_is_over) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(10 * MiB, s);
    use(seg, 10 * MiB, s);
    unuse(seg, 10 * MiB);
    vp_sim_hold(side);
    cu_ok(cuMemsetD8Async(seg, 1, MiB, side));
    cu_ok(door_free(seg));
    CUdeviceptr again = segment(10 * MiB, s);
    cr_assert_eq(again, seg);
    release_soon(side);
    use(again, 10 * MiB, s);
    cr_assert_eq(vp_sim_pending(), 0);
    door_close();
}

/* ---- captures ---- */

Test(bare, what_a_capture_used_stays) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), c = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s);
    use(seg, MiB, s);
    cu_ok(door_begin_capture(c, CU_STREAM_CAPTURE_MODE_RELAXED));
    use(seg + MiB, 4 * MiB, s);
    unuse(seg + MiB, 4 * MiB);
    cu_ok(door_end_capture(c, NULL));
    use(seg + 8 * MiB, 4 * MiB, s); /* will be used, too */
    unuse(seg + 8 * MiB, 4 * MiB);
    cu_ok(cuCtxSynchronize());
    vp_pool_trim(pool_of(0), 0);
    cr_assert_geq(held(), 9 * MiB);
    unuse(seg, MiB);
    cu_ok(door_free(seg));
    cu_ok(cuCtxSynchronize());
    vp_pool_trim(pool_of(0), 0);
    cr_assert_eq(held(), 0);
    door_close();
}

Test(bare, what_was_freed_in_a_capture_stays) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), c = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(32 * MiB, s);
    use(seg, 4 * MiB, s);
    use(seg + 8 * MiB, 4 * MiB, s);
    cu_ok(door_begin_capture(c, CU_STREAM_CAPTURE_MODE_RELAXED));
    unuse(seg, 4 * MiB);
    cu_ok(door_end_capture(c, NULL));
    unuse(seg + 8 * MiB, 4 * MiB);
    cu_ok(cuCtxSynchronize());
    vp_pool_trim(pool_of(0), 0);
    cr_assert_eq(held(), 4 * MiB);
    door_close();
}

/* ---- pins ---- */

Test(bare, what_is_pinned_has_memory_and_keeps_it) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s), other = segment(8 * MiB, s);
    use(seg, MiB, s);
    unuse(seg, MiB);
    cu_ok(vp_bare_pin(seg + 4 * MiB, 2 * MiB));
    cu_ok(vp_bare_pin(other + MiB, 0));
    cu_ok(cuCtxSynchronize());
    vp_pool_trim(pool_of(0), 0);
    cr_assert_eq(held(), 10 * MiB);
    cu_ok(cuMemsetD8(other, 1, 8 * MiB));
    cr_assert_eq(vp_bare_pin(0x1000, 1), VP_NOT_OURS);
    cu_ok(door_free(seg));
    cu_ok(door_free(other));
    vp_pool_trim(pool_of(0), 0);
    cr_assert_eq(held(), 0);
    door_close();
}

Test(bare, an_exported_segment_has_memory_and_goes_back_to_the_device) {
    CUipcMemHandle handle;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(8 * MiB, s);
    use(seg, MiB, s);
    cu_ok(vp_api_ipc_get(&handle, seg + 100));
    cr_assert(held() - 8 * MiB <= (1 + VP_BARE_ENDS) * PAGE);
    unuse(seg, MiB);
    cu_ok(door_free(seg));
    cu_ok(cuCtxSynchronize());
    door_malloc(MiB);
    cr_assert_leq(held(), 2 * MiB);
    door_close();
}

/* ---- ends ---- */

Test(bare, addresses_come_to_an_end) {
    CUdeviceptr first, ptr;
    CUresult res = CUDA_SUCCESS;
    size_t got = 0;
    door_open(SIM);
    struct vp_bare_stream s = on(door_stream(CU_STREAM_NON_BLOCKING));
    cu_ok(vp_bare_segment(&first, 32 * MiB, s));
    while (!(res = vp_bare_segment(&ptr, 32 * MiB, s)))
        got++;
    cr_assert_eq(res, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert(got >= 7 && got < 24); /* eight times the memory */
    cr_assert_eq(held(), 0);
    cu_ok(door_free(first));
    cu_ok(vp_bare_segment(&ptr, 32 * MiB, s));
    door_close();
}

/* ---- a cache that hoards ---- */

/* So many segments of 4 MiB, in each of which a block has been. */
static void hoard(CUdeviceptr *seg, int n, CUstream s) {
    for (int i = 0; i < n; i++) {
        seg[i] = segment(4 * MiB, s);
        use(seg[i], 4 * MiB, s);
        unuse(seg[i], 4 * MiB);
    }
}

Test(bare, a_cache_that_hoards_is_asked_to_give_back) {
    CUdeviceptr seg[8];
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    hoard(seg, 2, s);
    cr_assert(!vp_bare_is_crowded(0, 4 * MiB));
    hoard(seg + 2, 2, s);
    cr_assert(vp_bare_is_crowded(0, 4 * MiB));
    cr_assert(!vp_bare_is_crowded(1, 4 * MiB));
    /* It gives back, and what is idle serves the next at once, where it is. */
    unsigned long before = maps();
    for (int i = 0; i < 4; i++)
        cu_ok(door_free(seg[i]));
    cr_assert_eq(segment(4 * MiB, s), seg[0]);
    use(seg[0], 4 * MiB, s);
    cr_assert_eq(maps(), before);
    /* What is in use is no hoard. */
    for (int i = 1; i < 5; i++) {
        cr_assert(!vp_bare_is_crowded(0, 4 * MiB));
        seg[i] = segment(4 * MiB, s);
        use(seg[i], 4 * MiB, s);
    }
    door_close();
}

/* It would wait for them before it gives anything back, and a capture keeps it from that. */
Test(bare, a_cache_is_not_asked_to_give_back_while_others_work) {
    CUdeviceptr seg[4];
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    hoard(seg, 4, s);
    cr_assert(vp_bare_is_crowded(0, 4 * MiB));
    use(seg[3], MiB, s);
    busy(seg[3], side);
    cr_assert(vp_bare_unused(seg[3], MiB, true));
    cr_assert(!vp_bare_is_crowded(0, 4 * MiB));
    vp_sim_release(side);
    cu_ok(cuStreamSynchronize(side));
    cr_assert(vp_bare_is_crowded(0, 4 * MiB));
    CUstream c = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_begin_capture(c, CU_STREAM_CAPTURE_MODE_RELAXED));
    cr_assert(!vp_bare_is_crowded(0, 4 * MiB));
    cu_ok(door_end_capture(c, NULL));
    door_close();
}

/* Nor where that work began before the cache was found to hoard. */
Test(bare, a_cache_that_begins_to_hoard_is_not_asked_while_others_work) {
    CUdeviceptr seg[5];
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    seg[4] = segment(4 * MiB, s);
    use(seg[4], MiB, s);
    busy(seg[4], side);
    cr_assert(vp_bare_unused(seg[4], MiB, true));
    hoard(seg, 4, s);
    cr_assert(!vp_bare_is_crowded(0, 4 * MiB));
    vp_sim_release(side);
    cu_ok(cuStreamSynchronize(side));
    cr_assert(vp_bare_is_crowded(0, 4 * MiB));
    door_close();
}

/* What it frees when it was asked is behind its own stream alone, as if it had kept it; the device keeps its memory. */
Test(bare, what_was_given_back_when_asked_waits_for_nobody_else) {
    CUdeviceptr seg[4];
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    hoard(seg, 4, s);
    const size_t had = held();
    busy(seg[0], side); /* of no interest to the cache */
    cr_assert(vp_bare_is_crowded(0, 4 * MiB));
    for (int i = 0; i < 4; i++)
        cu_ok(door_free(seg[i]));
    cr_assert_eq(segment(4 * MiB, s), seg[0]);
    use(seg[0], 4 * MiB, s);
    cr_assert(vp_sim_pending());
    cr_assert_eq(held(), had);
    vp_sim_release(side);
    door_close();
}

/* Nor does the next segment lie where another stream's work would have to be over first: it may be that of a peer which
 * waits for this one. */
Test(bare, what_was_given_back_when_asked_is_in_no_other_streams_way, .timeout = 100) {
    CUdeviceptr seg[4];
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    hoard(seg, 4, s);
    for (int i = 0; i < 4; i++)
        busy(seg[i], s);
    cr_assert(vp_bare_is_crowded(0, 4 * MiB));
    for (int i = 0; i < 4; i++)
        cu_ok(door_free(seg[i]));
    const CUdeviceptr next = segment(4 * MiB, other);
    const uint64_t begin = vp_clock_ns();
    use(next, 4 * MiB, other);
    cr_assert_leq(vp_clock_ns() - begin, 1000000000);
    cu_ok(cuMemsetD8Async(next, 1, 4 * MiB, other));
    cr_assert(vp_sim_pending());
    vp_sim_release(s);
    door_close();
}

Test(bare, room_is_refused_before_anything_changes) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    use(seg, 80 * MiB, s);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(vp_bare_room(0, 64 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 80 * MiB);
    unuse(seg, 80 * MiB);
    cu_ok(vp_bare_room(0, 64 * MiB, on(s)));
    use(seg, 64 * MiB, s);
    cr_assert_leq(held(), 96 * MiB);
    door_close();
}

Test(bare, what_is_pending_is_waited_for_before_room_is_refused) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), f = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr from = segment(64 * MiB, f), to = segment(64 * MiB, s);
    use(from, 64 * MiB, f);
    vp_sim_hold(f);
    cu_ok(cuMemsetD8Async(from, 1, MiB, f));
    unuse(from, 64 * MiB);
    release_soon(f);
    cu_ok(vp_bare_room(0, 48 * MiB, on(s)));
    use(to, 48 * MiB, s);
    cr_assert_leq(held(), 96 * MiB);
    door_close();
}

/* What it lies in is of no use as it is, and goes back to the device first. */
Test(bare, what_is_pending_elsewhere_is_waited_for_before_room_is_refused) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), f = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr to = segment(64 * MiB, s), other = door_take(60 * MiB, f);
    vp_sim_hold(f);
    cu_ok(cuMemsetD8Async(other, 1, MiB, f));
    cu_ok(door_free_async(other, f));
    vp_sim_others(0, 96 * MiB - held());
    release_soon(f);
    cu_ok(vp_bare_room(0, 48 * MiB, on(s)));
    cr_assert(vp_bare_used(to, 48 * MiB, on(s)));
    cu_ok(cuMemsetD8Async(to, 2, 48 * MiB, s));
    door_close();
}

/* Memory that was reserved is there whatever becomes of the device meanwhile. */
Test(bare, scarce_room_is_made_sure_of) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    use(seg, 80 * MiB, s);
    cu_ok(vp_bare_room(0, 31 * MiB / 2, on(s)));
    vp_sim_fail("cuMemCreate", -1, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert(vp_bare_used(seg + 80 * MiB, 31 * MiB / 2, on(s)));
    cu_ok(cuMemsetD8Async(seg + 80 * MiB, 1, 31 * MiB / 2, s));
    cu_ok(cuStreamSynchronize(s));
    vp_sim_fail("cuMemCreate", 0, CUDA_SUCCESS);
    door_close();
}

Test(bare, a_context_takes_its_segments_along) {
    door_open(SIM);
    CUcontext ctx = door_context(0);
    cu_ok(cuCtxSetCurrent(ctx));
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(8 * MiB, s);
    use(seg, 4 * MiB, s);
    cu_ok(door_context_destroy(ctx));
    cr_assert(vp_api_address_range(&(CUdeviceptr){0}, NULL, seg) == VP_NOT_OURS);
    vp_pool_trim(pool_of(0), 0);
    door_close();
}

/* A chunk may be mapped for cudaMalloc, and come back to its place in the segment: behind what was done to it there. */
Test(bare, what_was_allocated_in_between_has_its_memory_until_work_on_it_is_over) {
    const size_t size = VP_SLOT_PAGES * PAGE;
    CUdeviceptr other;
    uint8_t byte;
    door_open("capacity=1M,granularity=64K,lazy=0,timeout=3000");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), t = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = segment(size, s);
    use(block, size, s);
    unuse(block, size);
    vp_chunk_release_spares(&pool_of(0)->mem, SIZE_MAX);
    vp_sim_others(0, MiB - held());
    cu_ok(door_alloc(&other, size));
    vp_sim_others(0, 0);
    vp_sim_hold(t);
    cu_ok(cuMemsetD8Async(other, 2, size, t));
    cu_ok(door_free(other));
    release_soon(t);
    use(block, size, s);
    cu_ok(cuMemsetD8Async(block, 1, size, s));
    cu_ok(cuStreamSynchronize(s));
    cu_ok(cuStreamSynchronize(t));
    cu_ok(cuMemcpyDtoH(&byte, block, 1));
    cr_assert_eq(byte, 1);
    door_close();
}
