/* Lines of work beside captures, in contexts that end, and on drivers before 12.5. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline_test.h"

#include <errno.h>
#include <sys/resource.h>

/* ---- captures ---- */

static CUstreamCaptureStatus capture_status(CUstream stream) {
    CUstreamCaptureStatus status;
    cu_ok(cuStreamIsCapturing(stream, &status));
    return status;
}

static void end_capture(CUstream stream) {
    CUgraph graph;
    cr_assert_eq(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE, "the capture was destroyed");
    cu_ok(cuStreamEndCapture(stream, &graph));
    cu_ok(cuGraphDestroy(graph));
    fx.timelines.captures--;
}

static void begin_capture(CUstream stream, CUstreamCaptureMode mode) {
    fx.timelines.captures++;
    cu_ok(cuStreamBeginCapture(stream, mode));
}

Test(timeline, a_capture_is_left_alone) {
    struct vp_timeline *timeline;
    struct vp_fence barrier = {0}, stream, own;
    fx_open(SIM);
    fx_busy(2);
    own = freed(timeline_of(fx.stream[2]), true);
    begin_capture(fx.stream[1], CU_STREAM_CAPTURE_MODE_GLOBAL);
    cr_assert_eq(vp_timeline_get(&fx.timelines, fx.stream[1], &timeline), -EBUSY);
    cr_assert(!vp_fence_add_barrier(&fx.timelines, &barrier, fx.context, true));
    cr_assert(!barrier.first.waitable && barriers() == 0, "no barrier while anything of the context captures");
    stream = freed(timeline_of(fx.stream[2]), true);
    cr_assert(stream.first.waitable, "another stream's event is allowed");
    cr_assert(!over(&barrier) && !over(&stream) && barriers() == 0);
    vp_sim_release(fx.stream[2]);
    vp_sim_step(100);
    cr_assert(over(&stream) && over(&own), "queries are relaxed");
    cr_assert(!over(&barrier));
    end_capture(fx.stream[1]);
    cr_assert(over(&barrier) && barriers() == 1);
    fx_close();
}

/* It may have begun since the wait was asked for: while memory was waited for, the lock was let go. A wait for work
 * outside would destroy it. */
Test(timeline, a_stream_that_captures_waits_for_nobody) {
    CUstreamCaptureStatus status;
    fx_open(SIM);
    fx_busy(2);
    struct vp_timeline *asks = timeline(1);
    struct vp_fence c = freed(timeline(2), true);
    begin_capture(fx.stream[1], CU_STREAM_CAPTURE_MODE_RELAXED);
    cr_assert_eq(vp_fence_wait(&fx.timelines, &c, asks), -EBUSY);
    cu_ok(cuStreamIsCapturing(fx.stream[1], &status));
    cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    end_capture(fx.stream[1]);
    cr_assert_eq(vp_fence_wait(&fx.timelines, &c, asks), 0);
    fx_idle(2);
    cr_assert(over(&c));
    fx_close();
}

Test(timeline, the_legacy_stream_rests_while_a_blocking_one_captures) {
    CUstream blocking;
    struct vp_timeline *legacy, *found;
    fx_open(SIM);
    cu_ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    legacy = timeline_of(0);
    struct vp_fence before = freed(legacy, false);
    begin_capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    cr_assert_eq(vp_timeline_get(&fx.timelines, 0, &found), -EBUSY);
    struct vp_fence during = freed(legacy, true);
    cr_assert(!during.first.waitable && !over(&before) && !over(&during) && records() == 0);
    end_capture(blocking);
    cr_assert(over(&before) && over(&during));
    cu_ok(cuStreamDestroy(blocking));
    fx_close();
}

/* ---- contexts ---- */

Test(timeline, events_go_to_the_streams_own_context) {
    CUcontext other = NULL, now;
    CUstream there;
    fx_open("capacity=64M,granularity=64K,lazy=0,devices=2");
    cu_ok(cuDevicePrimaryCtxRetain(&other, 1));
    cu_ok(cuCtxSetCurrent(other));
    cu_ok(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    cu_ok(cuCtxSetCurrent(fx.handle));
    struct vp_timeline *l = timeline_of(there);
    cr_assert(l->context != fx.context && l->context->handle == other && l->context->device == 1);
    vp_sim_hold(there);
    struct vp_fence c = freed(l, true);
    cr_assert(c.first.waitable && vp_fence_waitable(&c, timeline(1), true));
    cr_assert(!vp_fence_wait(&fx.timelines, &c, timeline(1)));
    cu_ok(cuCtxGetCurrent(&now));
    cr_assert_eq(now, fx.handle);
    cr_assert(!over(&c));
    vp_sim_release(there);
    cr_assert(over(&c));
    cu_ok(cuDevicePrimaryCtxReset(1));
    fx_close();
}

/* The first context's end tells nothing of the other's work, nor does it where more is united with that. */
Test(timeline, a_union_over_contexts_waits_for_all_though_memory_ran_out) {
    CUcontext other = NULL;
    struct rlimit limit, none;
    fx_open("capacity=64M,granularity=64K,lazy=0,devices=2");
    cu_ok(cuDevicePrimaryCtxRetain(&other, 1));
    struct vp_context *ctx = vp_context_get(&fx.timelines, other);
    cu_ok(cuCtxSetCurrent(other));
    struct vp_fence both = freed(timeline_of(0), true), more = freed(timeline_of(CU_STREAM_PER_THREAD), true);
    cu_ok(cuCtxSetCurrent(fx.handle));
    fx_busy(1);
    while (fx.timelines.point_slab.spare)
        vp_slab_alloc(&fx.timelines.point_slab);
    struct vp_fence here = freed(timeline(1), true);
    cr_assert(!getrlimit(RLIMIT_AS, &limit));
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    while (fx.timelines.point_slab.spare)
        vp_slab_alloc(&fx.timelines.point_slab);
    cr_assert(!setrlimit(RLIMIT_AS, &none));
    vp_fence_unite(&fx.timelines, &both, &here);
    vp_fence_unite(&fx.timelines, &more, &both);
    setrlimit(RLIMIT_AS, &limit);
    cu_ok(cuDevicePrimaryCtxReset(1));
    vp_context_drop(&fx.timelines, ctx);
    cr_assert(!over(&both));
    cr_assert(!over(&more));
    fx_idle(1);
    vp_fence_clear(&fx.timelines, &more);
    vp_fence_clear(&fx.timelines, &both);
    vp_fence_clear(&fx.timelines, &here);
    fx_close();
}

Test(timeline, a_contexts_end_meets_its_points) {
    CUcontext other = NULL, again = NULL;
    fx_open("capacity=64M,granularity=64K,lazy=0,devices=2");
    cu_ok(cuDevicePrimaryCtxRetain(&other, 1));
    struct vp_context *ctx = vp_context_get(&fx.timelines, other);
    cu_ok(cuCtxPushCurrent(other));
    struct vp_fence own = freed(timeline_of(0), true), late = freed(timeline_of(CU_STREAM_PER_THREAD), false),
                    barrier = {0};
    cr_assert(!vp_fence_add_barrier(&fx.timelines, &barrier, ctx, true));
    struct vp_event *held = vp_fence_event(&barrier);
    cu_ok(cuCtxPopCurrent(&again));
    cu_ok(cuDevicePrimaryCtxReset(1));
    vp_context_drop(&fx.timelines, ctx);
    if (held)
        vp_event_put(&fx.timelines, held);
    cr_assert(vp_fence_ready(&own, NULL) && vp_fence_ready(&late, NULL) && vp_fence_ready(&barrier, NULL));
    cr_assert(over(&own) && over(&late) && over(&barrier));
    cu_ok(cuDevicePrimaryCtxRetain(&again, 1));
    cr_assert(vp_context_get(&fx.timelines, again) != ctx, "also when the handle is the same");
    cu_ok(cuDevicePrimaryCtxReset(1));
    fx_close();
}

/* ---- drivers before 12.5 ---- */

static const char OLD[] = "capacity=64M,granularity=64K,lazy=0,driver=12000";

Test(timeline, without_context_barriers_every_stream_counts) {
    CUstream blocking;
    fx_open(OLD);
    cr_assert(!fx.timelines.barriers);
    cu_ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    timeline(1), timeline(2);
    fx_busy(1);
    vp_sim_hold(blocking);
    cu_ok(cuMemsetD8Async(fx.scratch, 0, 1, blocking));
    struct vp_fence c = freed_by_all(true);
    cr_assert(!over(&c));
    vp_sim_release(blocking);
    cu_ok(cuStreamSynchronize(blocking));
    cr_assert(!over(&c), "a non-blocking stream is not behind the legacy one");
    fx_idle(1);
    cr_assert(over(&c));
    cr_assert_eq(barriers(), 0);
    cu_ok(cuStreamDestroy(blocking));
    fx_close();
}

Test(timeline, without_context_barriers_captures_only_delay) {
    CUstream blocking;
    fx_open(OLD);
    cu_ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    begin_capture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL);
    struct vp_fence c = freed_by_all(true);
    cr_assert(!over(&c));
    end_capture(blocking);
    cr_assert(over(&c), "and then the memory comes back");
    cu_ok(cuStreamDestroy(blocking));
    fx_close();
}
