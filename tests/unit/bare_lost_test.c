/* Bare segments: what blocks pin of chunks beside themselves, and which chunks are needed last. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "memory/fit.h"

#include <pthread.h>
#include <unistd.h>

static size_t pages_used(void) {
    return vp_bare_all_of(atomic_load(&pool_of(0)->bare->used));
}

/* Blocks of a page each, in segments of their own, where a large one had its memory. What its chunks have beyond those
 * segments could serve nobody. */
Test(bare, what_lies_beyond_a_segment_is_not_kept_for_it) {
    enum { COUNT = 64 };
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr large = segment(COUNT * VP_SLOT_PAGES * PAGE, s), small[COUNT];
    use(large, COUNT * VP_SLOT_PAGES * PAGE, s);
    unuse(large, COUNT * VP_SLOT_PAGES * PAGE);
    cu_ok(door_free(large));
    for (int i = 0; i < COUNT; i++) {
        small[i] = segment(PAGE, s);
        cr_assert_eq(small[i], large + (CUdeviceptr)i * VP_SLOT_PAGES * PAGE);
        use(small[i], PAGE, s);
    }
    cr_assert_leq(pages_used(), COUNT + 8 + VP_SLOT_PAGES, "%zu", pages_used());
    door_close();
}

/* But work on it is not waited for. */
Test(bare, what_lies_beyond_a_segment_is_kept_rather_than_waited_for) {
    enum { COUNT = 64 };
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr large = segment(COUNT * VP_SLOT_PAGES * PAGE, s);
    use(large, COUNT * VP_SLOT_PAGES * PAGE, s);
    pool_of(0)->bare->gives = true; /* the cache gives it back because it was asked to: the stream has it at once */
    busy(large, s);
    unuse(large, COUNT * VP_SLOT_PAGES * PAGE);
    cu_ok(door_free(large));
    release_soon(s);
    for (int i = 0; i < COUNT; i++)
        use(segment(PAGE, s), PAGE, s);
    cr_assert_eq(vp_pool_stats(pool_of(0)).waits_host, 0);
    door_close();
}

/* All that the stream has done so far was seen to be over. */
static void work_is_over(CUdeviceptr seg, CUstream s) {
    struct vp_fence fence = {0};
    vp_fence_add_free(&vp_state.timelines, &fence, vp_bare_at(pool_of(0)->bare, seg)->timeline, true);
    vp_fence_clear(&vp_state.timelines, &fence);
    cu_ok(cuStreamSynchronize(s));
    vp_fit_refresh(&pool_of(0)->mem);
}

/* Of the slots at both ends of each block two pages are lost. Where blocks come there again, less is. */
Test(bare, what_was_lost_is_not_lost_again) {
    enum { BLOCKS = 4, LET_BE = 8 };
    const size_t slot = VP_SLOT_PAGES * PAGE, block = 8 * slot - 4 * PAGE, rest = 40 * MiB;
    door_open("capacity=256M,granularity=64K,lazy=0,timeout=3000");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(BLOCKS * 8 * slot, s), other = segment(rest, s);
    use(other, rest, s);
    use(seg, BLOCKS * 8 * slot, s); /* each slot has a chunk of its own size */
    unuse(seg, BLOCKS * 8 * slot);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < BLOCKS; i++)
            use(seg + 8 * i * slot + 2 * PAGE, block, s);
        const size_t lost = pages_used() - (rest + BLOCKS * block) / PAGE;
        if (!round)
            cr_assert_eq(lost, 4 * BLOCKS, "%zu", lost);
        else
            cr_assert_leq(lost, LET_BE + 4, "%zu", lost);
        vp_bare_forget_bounds(pool_of(0)); /* it looks again at what is idle */
        cu_ok(vp_bare_room(0, MiB, on(s)));
        for (size_t i = 0; i < BLOCKS; i++)
            unuse(seg + 8 * i * slot + 2 * PAGE, block);
        work_is_over(seg, s);
    }
    door_close();
}

/* A block lies in single pages at its ends, and comes again and again; beside it are bodies that nobody comes back to.
 */
Test(bare, single_pages_that_are_used_all_the_time_do_not_move) {
    const size_t slot = VP_SLOT_PAGES * PAGE, block = 5 * slot;
    door_open("capacity=256M,granularity=64K,lazy=0,timeout=3000");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr old = segment(16 * MiB, s), busy = segment(2 * MiB, s), next = segment(8 * MiB, s);
    use(old, 16 * MiB, s);
    use(busy + PAGE, block, s);
    unuse(old, 16 * MiB);
    work_is_over(old, s);
    for (int i = 0; i < 20; i++) {
        unuse(busy + PAGE, block);
        use(busy + PAGE, block, s);
    }
    unuse(busy + PAGE, block);
    for (size_t i = 0; i < 4; i++)
        use(next + i * 2 * MiB + PAGE, block, s);
    const unsigned long before = vp_sim_calls("cuMemMap");
    use(busy + PAGE, block, s);
    cr_assert_eq(vp_sim_calls("cuMemMap"), before, "%lu calls", vp_sim_calls("cuMemMap") - before);
    door_close();
}

/* Times of use: pauses of 3 and of 50. */
static uint32_t guess_after(unsigned rested) {
    struct vp_bare_past past;
    uint32_t last = 0, now = 0, guess;
    cr_assert_eq(vp_bare_past_init(&past), 0);
    for (int i = 0; i < 12; i++) {
        const unsigned pause = i % 4 == 3 ? 50 : 3;
        for (unsigned k = 0; k < pause; k++, now++)
            vp_bare_past_block(&past, now * 4096, now * 512 + 512);
        vp_bare_past_slot(&past, &last);
    }
    const uint32_t used = now;
    for (unsigned k = 0; k < rested; k++, now++)
        vp_bare_past_block(&past, now * 4096, now * 512 + 512);
    cr_assert_eq(past.match, 0);
    guess = vp_bare_past_guess(&past, last) - used;
    vp_bare_past_finish(&past);
    return guess;
}

Test(bare, a_slots_next_use_is_guessed_by_its_pauses) {
    cr_assert_eq(guess_after(1), 3);
    cr_assert_eq(guess_after(2), 3);
    cr_assert_eq(guess_after(3), 50);
    cr_assert_eq(guess_after(49), 50);
    /* So long it never was: as long again, twice. */
    cr_assert_eq(guess_after(60), 180);
}

/* A block's head lies in the last page of a body that nobody else is in, and one page is lacking. What else is lost is
 * so much that the body is let go of at once, but others have work queued again and again. */
static atomic_bool is_through;
static CUcontext made_current;
static CUdeviceptr other;

static void *work_on(void *unused) {
    CUstream streams[2];
    (void)unused;
    cu_ok(cuCtxSetCurrent(made_current));
    for (int i = 0; i < 2; i++)
        streams[i] = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; !atomic_load(&is_through); i ^= 1) {
        vp_sim_hold(streams[i]);
        cu_ok(cuMemsetD8Async(other, 1, KiB, streams[i]));
        vp_sim_release(streams[!i]);
        usleep(2000);
    }
    vp_sim_release(streams[0]);
    vp_sim_release(streams[1]);
    return NULL;
}

Test(bare, what_is_let_go_of_for_a_block_that_lacks_memory_is_let_go_of_once, .timeout = 60) {
    enum { LOST = 4, SINGLES = 11 };
    const size_t slot = VP_SLOT_PAGES * PAGE;
    pthread_t thread;
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_alloc(&other, KiB));
    CUdeviceptr seg, big = segment(64 * MiB, s);
    cu_ok(vp_bare_segment(&seg, 32 * MiB, (struct vp_bare_stream){0}));
    use(big, 60 * MiB, s);
    for (size_t i = 0; i < LOST; i++)
        use(seg + 16 * MiB + i * slot, slot, s);
    for (size_t i = 0; i < SINGLES; i++)
        use(seg + 20 * MiB + i * slot, PAGE, s);
    use(seg, slot, s);
    use(seg + 8 * MiB, slot, s);
    for (size_t i = 0; i < LOST; i++) {
        unuse(seg + 16 * MiB + i * slot, slot);
        use(seg + 16 * MiB + i * slot, PAGE, s);
    }
    unuse(seg, slot);
    unuse(seg + 8 * MiB, slot);
    for (size_t i = 0; i < SINGLES; i++)
        unuse(seg + 20 * MiB + i * slot, PAGE);
    leave_no_more(seg + 24 * MiB, s);
    cr_assert_eq(pthread_create(&thread, NULL, work_on, NULL), 0);
    usleep(10000);
    use(seg + 3 * PAGE, 17 * PAGE, s);
    cr_assert_eq(vp_bare_lacking(pool_of(0)->bare, seg + 3 * PAGE, 17 * PAGE), 0);
    atomic_store(&is_through, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    vp_sim_others(0, 0);
    door_close();
}

static size_t spare_pages(void) {
    const struct vp_chunk *chunk;
    size_t pages = 0;
    vp_list_each(chunk, &pool_of(0)->mem.spares, link)
        pages += chunk->size / PAGE;
    return pages;
}

/* It may begin anywhere in a page, and reach into the next one. */
Test(bare, a_small_block_has_room_for_both_its_ends) {
    door_open("capacity=96M,granularity=64K,lazy=0,timeout=3000");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(32 * MiB, s), small = segment(2 * MiB, s);
    use(seg, 24 * MiB, s);
    for (CUdeviceptr at = seg + 24 * MiB; spare_pages() > 1; at += VP_SLOT_PAGES * PAGE)
        use(at, PAGE, s);
    for (size_t left = spare_pages(); left <= 2; left++) {
        vp_sim_others(0, 96 * MiB - held() - (left - spare_pages()) * PAGE);
        usleep(20000);
        cr_assert_eq(vp_bare_room(0, PAGE, on(s)), left < 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS, "%zu", left);
    }
    use(small + PAGE / 2, PAGE, s);
    cr_assert_eq(vp_bare_lacking(pool_of(0)->bare, small + PAGE / 2, PAGE), 0);
    vp_sim_others(0, 0);
    door_close();
}
