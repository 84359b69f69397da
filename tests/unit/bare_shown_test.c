/* Bare segments whose memory other processes were shown. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

/* A segment in use, which others were shown; its cache frees it while work on it is not over. */
static CUdeviceptr show_and_free(size_t size, CUstream s, CUstream side) {
    CUipcMemHandle handle;
    const CUdeviceptr seg = segment(size, s);
    use(seg, size, s);
    cu_ok(vp_api_ipc_get(&handle, seg));
    busy(seg, side);
    unuse(seg, size);
    cu_ok(door_free(seg));
    cr_assert_gt(pool_of(0)->mem.exported, 0);
    return seg;
}

/* The cache's next segment lies where that one was, and a block in it, by when work there is over, has memory of its
 * own. */
static void use_where_it_was(CUdeviceptr at, size_t size, CUstream s, CUstream side) {
    const struct vp_chunk *chunk;
    cr_assert_eq(segment(size, s), at);
    cu_ok(vp_bare_room(0, size, on(s)));
    vp_sim_release(side);
    cu_ok(cuCtxSynchronize());
    cr_assert(vp_bare_used(at, size, on(s)));
    cr_assert(vp_pool_check(pool_of(0), stderr));
    vp_list_each(chunk, &pool_of(0)->mem.spares, link)
        cr_assert(!chunk->exported);
    vp_list_each(chunk, &pool_of(0)->mem.chunks, link)
        cr_assert(!chunk->exported || vp_region_at(&pool_of(0)->mem, chunk->current->addr)->state != VP_BACKED);
    cu_ok(cuMemsetD8Async(at, 2, size, s));
}

/* Though the device has no more than the block needs, and what goes back another process may have first. */
Test(bare, what_others_were_shown_is_no_later_blocks) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr other = segment(64 * MiB, s);
    use(other, 8 * MiB + 2 * PAGE, s);
    const CUdeviceptr at = show_and_free(8 * MiB, s, side);
    unuse(other, 8 * MiB + 2 * PAGE);
    leave_no_more(other + 32 * MiB, s);
    use_where_it_was(at, 8 * MiB, s, side);
    door_close();
}

/* Nor at an address where it lay before. */
Test(bare, what_others_were_shown_goes_back_from_wherever_it_was_mapped) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr before = segment(8 * MiB, s);
    use(before, 8 * MiB, s);
    unuse(before, 8 * MiB);
    vp_sim_others(0, 96 * MiB - held());
    const CUdeviceptr at = show_and_free(8 * MiB, s, side);
    vp_sim_others(0, 0);
    use_where_it_was(at, 8 * MiB, s, side);
    door_close();
}

/* It is room for a block as it goes back, at once or in a moment. */
static void have_what_was_shown(bool pending) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr other = segment(96 * MiB, s);
    show_and_free(60 * MiB, s, side);
    if (pending) {
        release_soon(side);
    } else {
        vp_sim_release(side);
        cu_ok(cuCtxSynchronize());
    }
    use(other, 60 * MiB, s);
    cu_ok(cuMemsetD8Async(other, 1, 60 * MiB, s));
    door_close();
}

Test(bare, what_others_were_shown_is_room_for_a_block_when_it_is_over) {
    have_what_was_shown(false);
}

Test(bare, what_others_were_shown_is_waited_for) {
    have_what_was_shown(true);
}
