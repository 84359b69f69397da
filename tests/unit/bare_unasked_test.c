/* Bare segments: a pool is set back, which tells of all its blocks and then frees those that were free. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

static void told(CUdeviceptr at, size_t size, CUstream s) {
    cr_assert(vp_bare_used(at, size, on(s)));
}

static void gone(CUdeviceptr at, size_t size) {
    cr_assert(vp_bare_unused(at, size, false));
}

/* As a graph's segment is. */
static void pin(CUdeviceptr at, CUstream s) {
    CUstream c = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_begin_capture(c, CU_STREAM_CAPTURE_MODE_RELAXED));
    use(at, MiB, s);
    unuse(at, MiB);
    cu_ok(door_end_capture(c, NULL));
}

Test(bare, what_had_memory_is_set_back_without_a_call) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 8 * MiB, s);
    use(seg + 8 * MiB, 30 * MiB, s);
    unuse(seg + 8 * MiB, 30 * MiB);
    const unsigned long before = maps() + vp_sim_calls("cuMemCreate");
    const size_t had = held();
    for (int round = 0; round < 4; round++) {
        gone(seg, 8 * MiB);
        told(seg, 8 * MiB, s);
        told(seg + 8 * MiB, 30 * MiB, s);
        gone(seg + 8 * MiB, 30 * MiB);
    }
    cr_assert_eq(maps() + vp_sim_calls("cuMemCreate"), before);
    cr_assert_eq(held(), had);
    door_close();
}

/* Addresses that never had memory get some for that moment. It is anybody's then. */
Test(bare, what_had_none_is_idle_when_its_block_is_gone) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(80 * MiB, s);
    use(seg, 8 * MiB, s);
    told(seg + 8 * MiB, 72 * MiB, s);
    gone(seg + 8 * MiB, 72 * MiB);
    door_malloc(60 * MiB);
    cr_assert_leq(held(), 81 * MiB);
    door_close();
}

Test(bare, what_had_none_does_not_stay_in_a_graphs_segment) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(80 * MiB, s);
    pin(seg, s);
    told(seg + MiB, 79 * MiB, s);
    cr_assert_geq(held(), 79 * MiB);
    gone(seg + MiB, 79 * MiB);
    cu_ok(cuCtxSynchronize());
    vp_pool_trim(pool_of(0), 0);
    cr_assert_leq(held(), MiB + PAGE);
    cr_assert_geq(held(), MiB); /* the graph's own */
    cr_assert(vp_pool_check(pool_of(0), stderr));
    door_close();
}

Test(bare, what_a_graph_may_know_stays_though_no_room_was_asked_for) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), c = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(80 * MiB, s);
    pin(seg, s);
    told(seg + MiB, 40 * MiB, s);
    cu_ok(door_begin_capture(c, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_end_capture(c, NULL));
    gone(seg + MiB, 40 * MiB);
    cu_ok(cuCtxSynchronize());
    vp_pool_trim(pool_of(0), 0);
    cr_assert_geq(held(), 41 * MiB);
    door_close();
}

/* The device has not enough for all of them at once, but for those that stay. */
static void set_back(bool pinned, bool first) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(200 * MiB, s), stays = seg + (first ? 2 : 70) * MiB, dead = seg + (first ? 70 : 2) * MiB;
    if (pinned)
        pin(seg, s);
    told(first ? stays : dead, 60 * MiB, s);
    told(first ? dead : stays, 60 * MiB, s);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    gone(dead, 60 * MiB);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cu_ok(cuMemsetD8Async(stays, 1, 60 * MiB, s));
    cu_ok(cuStreamSynchronize(s));
    cr_assert_eq(vp_bare_room(0, 60 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    unuse(stays, 60 * MiB);
    use(seg + 70 * MiB, 20 * MiB, s);
    door_close();
}

Test(bare, one_that_stays_has_memory_when_those_that_go_are_gone) {
    set_back(false, false);
}

Test(bare, one_that_comes_first_keeps_its_memory) {
    set_back(false, true);
}

Test(bare, one_that_stays_in_a_graphs_segment_has_memory_too) {
    set_back(true, false);
}
