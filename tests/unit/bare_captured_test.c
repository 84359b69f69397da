/* Bare segments and captures: what a graph gets is no work's any more, and what is idle is had in a capture, too. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* The one goes on after what the other has got so far. */
static void follow(CUstream after, CUstream stream) {
    CUevent event;
    cu_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    cu_ok(cuEventRecord(event, stream));
    cu_ok(cuStreamWaitEvent(after, event, 0));
    cu_ok(cuEventDestroy(event));
}

/* Far from the minute that a block waits for its memory at most. */
static const unsigned SOON_MS = 10000;

static unsigned begun_ms;

static void begin_here(CUstream s) {
    begun_ms = (unsigned)(vp_clock_ns() / 1000000);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void soon(void) {
    cr_assert_lt((unsigned)(vp_clock_ns() / 1000000) - begun_ms, SOON_MS);
}

/* A pool of a graph's had blocks before it was captured: its stream is known. The graph is launched on another one. */
Test(bare, what_a_graph_gets_is_ready_for_every_stream) {
    CUgraph graph;
    CUgraphExec launched;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 10 * MiB, s);
    busy(seg, s);
    unuse(seg, 10 * MiB);
    begin_here(s);
    use(seg + 16 * MiB, 10 * MiB, s);
    cu_ok(cuMemsetD8Async(seg + 16 * MiB, 7, 10 * MiB, s));
    cu_ok(door_end_capture(s, &graph));
    cu_ok(cuGraphInstantiateWithFlags(&launched, graph, 0));
    cu_ok(cuGraphLaunch(launched, other));
    cu_ok(cuStreamSynchronize(other));
    vp_sim_release(s);
    cu_ok(cuStreamSynchronize(s));
    for (size_t i = 0; i < 10 * MiB; i++)
        cr_assert_eq(((unsigned char *)(seg + 16 * MiB))[i], 7, "byte %zu", i);
    door_close();
}

/* As CUDA does: PyTorch asks in the relaxed mode where its own stream captures, and only there. */
Test(bare, a_capture_forbids_segments_as_cuda_does) {
    CUdeviceptr seg;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    segment(8 * MiB, s);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    cu_ok(door_segment(&seg, 8 * MiB, on(s)));
    cu_ok(vp_bare_room(0, 3 * MiB, on(s)));
    cr_assert_eq(vp_bare_segment(&seg, 8 * MiB, on(s)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    cr_assert(!vp_bare_promised(pool_of(0)->bare), "no block comes");
    cr_assert_eq(door_end_capture(s, NULL), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    door_close();
}

static atomic_bool captured;
static CUcontext made_current;

static void *capture_beside(void *stream) {
    cu_ok(cuCtxSetCurrent(made_current));
    begin_here(stream);
    atomic_store(&captured, true);
    cu_ok(door_end_capture(stream, NULL));
    return NULL;
}

static pthread_t capturer;

/* Another thread begins a capture, and has not begun yet. */
static void capture_awaits(CUstream stream) {
    cr_assert(!pthread_create(&capturer, NULL, capture_beside, stream));
    usleep(10000);
    cr_assert(!atomic_load(&captured));
}

static void capture_begins(void) {
    pthread_join(capturer, NULL);
    cr_assert(atomic_load(&captured));
    door_close();
}

/* What is idle outside captures is not all to be had in one. */
Test(bare, a_capture_begins_behind_the_block_that_room_was_made_for) {
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    cu_ok(vp_bare_room(0, 8 * MiB, on(s)));
    capture_awaits(other);
    cr_assert(vp_bare_used(seg, 8 * MiB, on(s)));
    capture_begins();
}

/* Of any device, also one that is promised while another device's is waited for. */
Test(bare, a_capture_begins_behind_the_blocks_of_all_devices) {
    made_current = door_open("capacity=96M,granularity=64K,devices=2,lazy=0,timeout=3000");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr near = segment(64 * MiB, s), far;
    cu_ok(cuCtxSetCurrent(door_context(1)));
    cu_ok(vp_bare_segment(&far, 64 * MiB, (struct vp_bare_stream){0}));
    cu_ok(vp_bare_room(1, 8 * MiB, (struct vp_bare_stream){0}));
    capture_awaits(other);
    cu_ok(vp_bare_room(0, 8 * MiB, on(s)));
    cr_assert(vp_bare_used(far, 8 * MiB, (struct vp_bare_stream){0}));
    usleep(10000);
    cr_assert(!atomic_load(&captured));
    cr_assert(vp_bare_used(near, 8 * MiB, on(s)));
    capture_begins();
}

enum { SMALL = 120 };

/* Most of the device is idle under small blocks that were, whose stream is not known; and work on it is over. */
static void small_blocks_were(struct vp_bare_stream stream) {
    CUdeviceptr seg;
    cu_ok(vp_bare_segment(&seg, 80 * MiB, stream));
    for (size_t i = 0; i < SMALL; i++) {
        cu_ok(vp_bare_room(0, 512 * KiB, stream));
        cr_assert(vp_bare_used(seg + i * 512 * KiB, 512 * KiB, stream));
    }
    cu_ok(cuMemsetD8(seg, 1, 60 * MiB));
    for (size_t i = 0; i < SMALL; i++)
        cr_assert(vp_bare_unused(seg + i * 512 * KiB, 512 * KiB, !stream.known));
    cr_assert(vp_pool_check(pool_of(0), stderr));
}

/* Its stream captures itself, has joined the capture, or is not known: no event is to be had any more that would tell
 * that. */
static void idle_is_had(bool captures, bool joins, bool known) {
    CUdeviceptr seg;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    small_blocks_were(known ? on(captures ? s : side) : (struct vp_bare_stream){0});
    begin_here(s);
    if (joins) {
        follow(side, s);
    }
    cu_ok(vp_bare_segment(&seg, 80 * MiB, on(s)));
    use(seg, 60 * MiB, s);
    cu_ok(cuMemsetD8Async(seg, 7, 60 * MiB, s));
    soon();
    if (joins) {
        follow(s, side);
    }
    cu_ok(door_end_capture(s, NULL));
    door_close();
}

Test(bare, what_the_stream_that_captures_has_left_is_had) {
    idle_is_had(true, false, true);
}

Test(bare, what_a_stream_that_has_joined_has_left_is_had) {
    idle_is_had(false, true, true);
}

Test(bare, what_anyone_has_left_is_had_in_a_capture) {
    idle_is_had(false, false, false);
}

Test(bare, what_anyone_has_left_is_had_where_streams_have_joined) {
    idle_is_had(false, true, false);
}

/* The cache frees a segment in a capture. Whether work there is over is learnt stream by stream; of one that has joined
 * the capture nobody can tell: then there is no room, rather than a block without memory. */
static void freed_meanwhile(bool joins) {
    CUdeviceptr seg;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr gone = segment(60 * MiB, side);
    use(gone, 60 * MiB, side);
    unuse(gone, 60 * MiB);
    begin_here(s);
    if (joins) {
        follow(side, s);
    }
    cu_ok(vp_bare_segment(&seg, 80 * MiB, on(s)));
    cu_ok(door_free(gone));
    cr_assert_eq(vp_bare_room(0, 60 * MiB, on(s)), joins ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
    if (!joins) {
        cr_assert(vp_bare_used(seg, 60 * MiB, on(s)));
        cu_ok(cuMemsetD8Async(seg, 7, 60 * MiB, s));
    }
    soon();
    if (joins) {
        follow(s, side);
    }
    cu_ok(door_end_capture(s, NULL));
    if (joins)
        use(seg, 60 * MiB, s);
    door_close();
}

Test(bare, what_is_freed_in_a_capture_is_had_when_it_is_over) {
    freed_meanwhile(false);
}

Test(bare, what_cannot_be_seen_to_be_over_is_no_room) {
    freed_meanwhile(true);
}

/* Work of a freed segment may be queued at its addresses, and nobody can tell: a new one lies elsewhere meanwhile. */
static void addresses_meanwhile(bool joins) {
    CUdeviceptr seg;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr gone = segment(20 * MiB, side);
    use(gone, 10 * MiB, side);
    unuse(gone, 10 * MiB);
    begin_here(s);
    if (joins) {
        follow(side, s);
    }
    cu_ok(door_free(gone));
    cu_ok(vp_bare_segment(&seg, 20 * MiB, on(s)));
    use(seg, 10 * MiB, s);
    cu_ok(cuMemsetD8Async(seg, 7, 10 * MiB, s));
    soon();
    if (joins) {
        follow(s, side);
    }
    cu_ok(door_end_capture(s, NULL));
    cu_ok(cuCtxSynchronize());
    cr_assert_eq(segment(10 * MiB, side), gone);
    door_close();
}

Test(bare, a_segment_freed_in_a_capture_leaves_no_block_waiting_there) {
    addresses_meanwhile(false);
}

Test(bare, a_segment_freed_where_streams_have_joined_leaves_no_block_waiting_there) {
    addresses_meanwhile(true);
}

/* What the device has is counted on for 10 ms, by a clock that may be late by a tick; then it is asked anew. */
static void was_asked_seldom(unsigned long before, uint64_t begin) {
    cr_assert_leq(vp_sim_calls("cuMemGetInfo") - before, 1 + (vp_clock_ns() - begin) / 2000000);
}

/* Each block that is freed in a graph's segment, of which nothing becomes idle, would have all that is held looked at
 * for the next one. */
Test(bare, in_a_graphs_segment_room_stays_known) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s), other = segment(16 * MiB, s);
    use(other, 16 * MiB, s);
    begin_here(s);
    use(seg, 4 * MiB, s);
    unuse(seg, 4 * MiB);
    unsigned long before = vp_sim_calls("cuMemGetInfo");
    uint64_t begin = vp_clock_ns();
    for (int i = 0; i < 20; i++) {
        use(seg, 4 * MiB, s);
        unuse(seg, 4 * MiB);
    }
    was_asked_seldom(before, begin);
    cu_ok(door_end_capture(s, NULL));
    unuse(other, 16 * MiB); /* it is idle */
    use(seg, 4 * MiB, s);
    unuse(seg, 4 * MiB);
    before = vp_sim_calls("cuMemGetInfo");
    begin = vp_clock_ns();
    for (int i = 0; i < 100; i++) {
        use(seg, 4 * MiB, s);
        unuse(seg, 4 * MiB);
    }
    was_asked_seldom(before, begin);
    door_close();
}

/* Single pages lie under a half of each slot that a block comes to fill, and what else is idle are bodies. No slot can
 * let go of its pages for one, where no event is to be had; so a body makes way for single pages. */
static void slots_with_single_pages(bool captures, bool pending) {
    enum { SLOTS = 4 };
    const size_t slot = VP_SLOT_PAGES * PAGE, size = SLOTS * slot - PAGE;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg, other = segment(16 * MiB, s), freed = pending ? door_malloc(2 * MiB) : 0;
    cu_ok(vp_bare_segment(&seg, 16 * MiB, (struct vp_bare_stream){0}));
    for (size_t i = 0; i < SLOTS; i++)
        use(seg + i * slot + PAGE, 2 * PAGE, s);
    use(other, 2 * slot, s);
    for (size_t i = 0; i < SLOTS; i++)
        unuse(seg + i * slot + PAGE, 2 * PAGE);
    unuse(other, 2 * slot);
    leave_no_more(other + 8 * MiB, s);
    if (captures) {
        begin_here(side);
        follow(s, side);
    }
    if (pending)
        cu_ok(door_free(freed));
    cu_ok(vp_bare_room(0, size, on(s)));
    vp_sim_others(0, captures ? 96 * MiB - held() : VP_SIM_ALL);
    cr_assert(vp_bare_used(seg, size, on(s)));
    cr_assert_eq(vp_bare_lacking(pool_of(0)->bare, seg, size), 0);
    if (captures) {
        soon();
        follow(side, s);
        cu_ok(door_end_capture(side, NULL));
    }
    vp_sim_others(0, 0);
    door_close();
}

Test(bare, slots_with_single_pages_are_filled_in_a_capture) {
    slots_with_single_pages(true, false);
}

/* What another stream has freed is not to be had before the capture's end, and not waited for until then. */
Test(bare, slots_with_single_pages_are_filled_in_a_capture_beside_what_is_pending) {
    slots_with_single_pages(true, true);
}

/* Nothing goes back for it: another process would have that at once. */
Test(bare, slots_with_single_pages_are_filled_beside_a_robber) {
    slots_with_single_pages(false, false);
}

/* In a segment of a graph's no slot can let go of its pages at all, once they are a block's: what is idle there makes
 * way before. */
Test(bare, slots_with_single_pages_are_filled_in_a_graphs_segment) {
    enum { SLOTS = 4 };
    const size_t slot = VP_SLOT_PAGES * PAGE, size = SLOTS * slot - PAGE;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s), other = segment(16 * MiB, s);
    struct vp_bare *bare = pool_of(0)->bare;
    for (size_t i = 0; i < SLOTS; i++)
        use(seg + i * slot + PAGE, PAGE, s);
    use(other, 3 * slot, s);
    for (size_t i = 0; i < SLOTS; i++)
        unuse(seg + i * slot + PAGE, PAGE);
    cu_ok(door_free(seg));
    cr_assert_eq(segment(16 * MiB, s), seg); /* what that one had is there */
    begin_here(s);
    use(seg + 8 * MiB, PAGE, s);
    cu_ok(door_end_capture(s, NULL));
    unuse(other, 3 * slot);
    leave_no_more(other + 8 * MiB, s);
    cu_ok(vp_bare_room(0, size, on(s)));
    vp_sim_others(0, VP_SIM_ALL);
    cr_assert(vp_bare_used(seg, size, on(s)));
    cr_assert_eq(vp_bare_lacking(bare, seg, size), 0);
    vp_sim_others(0, 0);
    door_close();
}

/* Pages that blocks left in a capture stay where they are, and no body fits in the slots around them. What is idle are
 * bodies, and so more single pages than a block's ends need are held before it is promised room. */
static void slots_beside_kept_pages(size_t spare, bool known) {
    enum { SLOTS = 8, KEPT = 5 };
    const size_t slot = VP_SLOT_PAGES * PAGE;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s), other = segment(16 * MiB, s);
    for (size_t i = 0; i < KEPT; i++)
        use(seg + i * slot + PAGE, PAGE, s);
    use(other, SLOTS * slot, s);
    unuse(other, SLOTS * slot);
    vp_sim_others(0, 96 * MiB - held() - spare);
    usleep(20000); /* what was counted on the device is not any more */
    const size_t size = (vp_bare_all_of(vp_bare_idle_pages(pool_of(0), false)) - VP_BARE_ROOM_PAGES - 2) * PAGE;
    begin_here(side);
    if (known)
        cu_ok(vp_bare_room(0, size, on(s)));
    for (size_t i = 0; i < KEPT; i++)
        unuse(seg + i * slot + PAGE, PAGE);
    cu_ok(door_end_capture(side, NULL));
    cu_ok(vp_bare_room(0, size, on(s)));
    vp_sim_others(0, VP_SIM_ALL);
    cr_assert(vp_bare_used(seg, size, on(s)));
    cr_assert_eq(vp_bare_lacking(pool_of(0)->bare, seg, size), 0);
    vp_sim_others(0, 0);
    door_close();
}

Test(bare, slots_beside_kept_pages_are_filled) {
    slots_beside_kept_pages(0, false);
}

Test(bare, slots_beside_kept_pages_are_filled_where_the_device_has_more) {
    slots_beside_kept_pages(4 * MiB, false);
}

/* Room for such a block was known, and nothing that is idle has gone. */
Test(bare, slots_beside_pages_kept_since_are_filled) {
    slots_beside_kept_pages(0, true);
}

/* A block's ends lie in a page each of two bodies, which are most of what is idle. Neither can be let go of once it is
 * the block's, where no event is to be had: so they are not taken whole; unless its own stream still has work on them,
 * which nobody waits for. */
static void ends_in_bodies(bool busy_there, bool robbed) {
    enum { MIDDLE = 4 };
    const size_t slot = VP_SLOT_PAGES * PAGE, size = (MIDDLE * VP_SLOT_PAGES + 2) * PAGE;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING),
             idle = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg, other = segment(16 * MiB, idle);
    cu_ok(vp_bare_segment(&seg, 16 * MiB, busy_there ? on(s) : (struct vp_bare_stream){0}));
    use(seg, slot, s);
    use(seg + (MIDDLE + 1) * slot, slot, s);
    use(other, busy_there ? 3 * slot : slot, idle);
    for (size_t i = 0; i < 8; i++)
        use(other + MiB + i * slot, PAGE, idle);
    unuse(other, busy_there ? 3 * slot : slot);
    for (size_t i = 0; i < 8; i++)
        unuse(other + MiB + i * slot, PAGE);
    if (busy_there)
        busy(seg, s);
    unuse(seg, slot);
    unuse(seg + (MIDDLE + 1) * slot, slot);
    leave_no_more(other + 8 * MiB, idle);
    begin_here(side);
    if (!busy_there) {
        follow(s, side);
    }
    if (robbed)
        vp_sim_others(0, 0);
    cu_ok(vp_bare_room(0, size, on(s)));
    vp_sim_others(0, 96 * MiB - held());
    cr_assert(vp_bare_used(seg + slot - PAGE, size, on(s)));
    cr_assert_eq(vp_bare_lacking(pool_of(0)->bare, seg + slot - PAGE, size), 0);
    soon();
    if (!busy_there) {
        follow(side, s);
    }
    cu_ok(door_end_capture(side, NULL));
    vp_sim_others(0, 0);
    if (busy_there)
        vp_sim_release(s);
    door_close();
}

Test(bare, ends_in_bodies_are_not_taken_whole_in_a_capture) {
    ends_in_bodies(false, false);
}

/* More was to be had of the device when room was made, and another process has it now. */
Test(bare, ends_in_bodies_are_not_taken_whole_in_a_capture_that_is_robbed) {
    ends_in_bodies(false, true);
}

Test(bare, ends_in_bodies_of_its_own_are_not_waited_for_in_a_capture) {
    ends_in_bodies(true, false);
}

/* Only single pages are ready, and a body that another stream has freed is not to be had before the capture's end. */
Test(bare, single_pages_serve_a_body_in_a_capture) {
    enum { SINGLES = 19 };
    const size_t slot = VP_SLOT_PAGES * PAGE;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s), other = segment(16 * MiB, s), freed = door_malloc(2 * MiB);
    for (size_t i = 0; i < SINGLES; i++)
        use(other + i * slot, PAGE, s);
    for (size_t i = 0; i < SINGLES; i++)
        unuse(other + i * slot, PAGE);
    vp_sim_others(0, 96 * MiB - held());
    usleep(20000); /* what was counted on the device is not any more */
    begin_here(side);
    cu_ok(door_free(freed));
    use(seg, 4 * slot, s);
    cr_assert_eq(vp_bare_lacking(pool_of(0)->bare, seg, 4 * slot), 0);
    soon();
    cu_ok(door_end_capture(side, NULL));
    vp_sim_others(0, 0);
    door_close();
}

static struct vp_bare_segment *going, *coming;
static unsigned looks;
static CUresult(CUDAAPI *real_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                      unsigned long long);
static CUresult(CUDAAPI *real_info)(size_t *, size_t *);

static CUresult CUDAAPI create(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
                               unsigned long long flags) {
    looks = 0;
    return real_create(out, size, prop, flags);
}

/* After the last try to make memory other processes are asked, without the lock. At the fourth look that is over, and
 * the segment has ended with its context meanwhile, and another has begun. */
static CUresult CUDAAPI look(size_t *left, size_t *total) {
    if (++looks == 4 && !coming) {
        vp_bare_remove(pool_of(0), going, &(struct vp_fence){0});
        cr_assert_eq(vp_bare_add(pool_of(0), 64 * MiB, vp_context_current(&vp_state.timelines), NULL, &coming), 0);
    }
    return real_info(left, total);
}

Test(bare, a_segment_that_ends_while_others_are_asked_for_memory) {
    CUdeviceptr all;
    CUgraph graph;
    size_t left, total;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    going = vp_bare_at(pool_of(0)->bare, seg);
    cu_ok(cuMemGetInfo(&left, &total));
    cu_ok(cuMemAlloc(&all, left));
    begin_here(s);
    vp_bare_promise(pool_of(0)->bare);
    real_create = vp_state.drv.cuMemCreate;
    real_info = vp_state.drv.cuMemGetInfo_v2;
    vp_state.drv.cuMemCreate = create;
    vp_state.drv.cuMemGetInfo_v2 = look;
    cr_assert(vp_bare_used(seg, 40 * MiB, on(s)));
    cr_assert(coming, "the others were asked");
    cr_assert(!coming->pinned && !pool_of(0)->bare->gave_up, "of this one nobody has said anything");
    vp_state.drv.cuMemGetInfo_v2 = real_info;
    cu_ok(door_end_capture(s, &graph));
    cu_ok(cuMemFree(all));
    cr_assert(vp_pool_check(pool_of(0), stderr));
    use(coming->whole.addr, 40 * MiB, s);
    door_close();
}
