/* Streams: the timeline of a handle, and captures on it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

#include "base/cancel.h"

#include <errno.h>

/* Makes the timeline of a stream that is seen for the first time. */
static __attribute__((noinline, cold)) int begin(struct vp_timelines *ls, CUstream stream, unsigned long long id,
                                                 struct vp_timeline **out) {
    struct vp_timeline *timeline;
    CUcontext handle;
    unsigned flags = 0;
    vp_cancel_hold();
    if (ls->drv->cuStreamGetCtx(stream, &handle))
        return -ENODEV;
    struct vp_context *ctx = vp_context_get(ls, handle);
    /* A context that ended unseen may have had the same handle. The new one's work must not get its points, which count
     * as met. */
    if (ctx)
        vp_context_check(ls, ctx);
    if (ctx && ctx->lost)
        ctx = vp_context_get(ls, handle);
    if (!ctx)
        return -ENODEV;
    ls->drv->cuStreamGetFlags(stream, &flags);
    if (vp_table_reserve(&ls->by_id) < 0 || !(timeline = vp_timeline_new(ls, ctx, VP_TIMELINE_STREAM, id + 1)))
        return -ENOMEM;
    timeline->stream = stream ? stream : CU_STREAM_LEGACY;
    timeline->per_thread = stream == CU_STREAM_PER_THREAD;
    timeline->nonblocking = flags & CU_STREAM_NON_BLOCKING;
    if (timeline->stream == CU_STREAM_LEGACY)
        ls->joins |= VP_JOINS_LEGACY;
    else if (!timeline->nonblocking)
        ls->joins |= VP_JOINS_BLOCKING | (timeline->per_thread ? VP_JOINS_NAMELESS : 0);
    timeline->number = ++ls->streams_seen;
    struct vp_list *own = timeline->per_thread && ls->of_thread ? ls->of_thread(ls->user) : NULL;
    if (own)
        vp_list_append(own, &timeline->of_thread);
    vp_table_add(&ls->by_id, timeline);
    *out = timeline;
    return 0;
}

/* Timelines of streams that ended unseen are freed with their context. */
int vp_timeline_get(struct vp_timelines *ls, CUstream stream, struct vp_timeline **out) {
    unsigned long long id;
    if (atomic_load_explicit(&ls->captures, memory_order_acquire) > 0 && vp_stream_captures(ls, stream))
        return -EBUSY;
    if (ls->drv->cuStreamGetId(stream, &id))
        return -ENODEV;
    if (!ls->last || ls->last->id != id + 1)
        ls->last = vp_table_get(&ls->by_id, id + 1);
    if (__builtin_expect(!ls->last, false))
        return begin(ls, stream, id, out);
    *out = ls->last;
    return 0;
}

struct vp_timeline *vp_context_aside(struct vp_timelines *ls, struct vp_context *ctx) {
    CUstream stream;
    if (ctx->aside || ctx->ending)
        return ctx->aside;
    vp_cancel_hold();
    const struct vp_entered entered = vp_context_enter(ls->drv, ctx->handle);
    const bool made = !entered.refused && !ls->drv->cuStreamCreate(&stream, CU_STREAM_DEFAULT);
    struct vp_timeline *aside;
    /* Another context may have begun under the handle, unseen, and own the stream. */
    if (made && vp_timeline_get(ls, stream, &aside))
        ls->drv->cuStreamDestroy_v2(stream);
    else if (made)
        aside->context->aside = aside;
    vp_context_leave(ls->drv, entered);
    return ctx->aside;
}

struct vp_timeline *vp_timeline_named(const struct vp_timelines *ls, CUstream stream) {
    const struct vp_context *ctx;
    struct vp_timeline *timeline;
    vp_list_each(ctx, &ls->contexts, link)
        vp_list_each(timeline, &ctx->timelines, of_context)
            if (timeline->stream == stream && !timeline->per_thread && !timeline->gone && !timeline->lost &&
                !ctx->ending)
                return timeline;
    return NULL;
}

void vp_timeline_capture_over(struct vp_timelines *ls, struct vp_timeline *timeline) {
    timeline->before_capture = 0;
    if (vp_list_empty(&timeline->capturing))
        return;
    vp_list_remove(&timeline->capturing);
    atomic_fetch_sub(&ls->captures, 1);
}

void vp_timeline_capture(struct vp_timelines *ls, struct vp_timeline *timeline) {
    /* Only a barrier tells of what a destroyed stream has queued, and none can be recorded during the capture. */
    struct vp_context *ctx;
    vp_list_each(ctx, &ls->contexts, link)
        if (ls->barriers && !atomic_load(&ls->captures) && !ctx->ending && !ctx->gone && ctx->uncovered &&
            ctx->uncovered == ctx->barrier->next)
            vp_timeline_record(ls, ctx->barrier, false);
    /* Another stream may be capturing already. */
    int mode = vp_timelines_relax(ls);
    timeline->before_capture = vp_timeline_record(ls, timeline, false) == 0 ? timeline->next - 1 : 0;
    vp_timelines_restore(ls, mode);
    vp_list_append(&ls->capturing, &timeline->capturing);
    atomic_fetch_add(&ls->captures, 1);
    atomic_fetch_add(&ls->captures_begun, 1);
}

void vp_timelines_check_captures(struct vp_timelines *ls) {
    struct vp_timeline *timeline, *next;
    vp_list_each_safe(timeline, next, &ls->capturing, capturing) {
        struct vp_context *ctx = timeline->context;
        if (ctx->ending)
            continue;
        vp_context_check(ls, ctx);
        if (ctx->lost) {
            vp_timeline_capture_over(ls, timeline);
        } else if (!timeline->per_thread) {
            CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
            CUresult res = ls->drv->cuStreamIsCapturing(timeline->stream, &status);
            if (res == CUDA_ERROR_INVALID_HANDLE || (!res && status == CU_STREAM_CAPTURE_STATUS_NONE))
                vp_timeline_capture_over(ls, timeline);
        }
    }
}
