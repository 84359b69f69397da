/* Events: recording them on timelines, and asking whether they have completed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

#include "base/cancel.h"

#include <errno.h>

static struct vp_event *event_take(struct vp_timelines *ls, struct vp_context *ctx) {
    if (!vp_list_empty(&ctx->spare)) {
        struct vp_event *ev = vp_container_of(ctx->spare.next, struct vp_event, link);
        vp_list_remove(&ev->link);
        ev->dropped = false;
        return ev;
    }
    struct vp_event *ev = vp_slab_alloc(&ls->event_slab);
    if (!ev)
        return NULL;
    vp_list_init(&ev->link);
    ev->context = ctx;
    vp_cancel_hold();
    const struct vp_entered entered = vp_context_enter(ls->drv, ctx->handle);
    bool made = !entered.refused && !ls->drv->cuEventCreate(&ev->handle, CU_EVENT_DISABLE_TIMING);
    vp_context_leave(ls->drv, entered);
    if (!made) {
        vp_slab_free(&ls->event_slab, ev);
        return NULL;
    }
    return ev;
}

void vp_event_recycle(struct vp_timelines *ls, struct vp_event *ev) {
    vp_list_remove(&ev->link);
    if (ev->refs)
        ev->dropped = true;
    else if (ev->context->gone)
        vp_slab_free(&ls->event_slab, ev);
    else
        vp_list_insert(&ev->context->spare, &ev->link);
}

void vp_event_put(struct vp_timelines *ls, struct vp_event *ev) {
    if (--ev->refs == 0 && ev->dropped)
        vp_event_recycle(ls, ev);
}

/* ---- asking ---- */

static bool event_done(struct vp_timelines *ls, struct vp_event *ev) {
    ev->context->stats->queries++;
    CUresult res = ls->drv->cuEventQuery(ev->handle);
    if (res && res != CUDA_ERROR_NOT_READY)
        vp_context_failed(ev->context, res);
    return res == CUDA_SUCCESS;
}

/* Asks the timeline's events, oldest first, until one has not completed. Often all have, as the newest tells. */
bool vp_timeline_poll(struct vp_timelines *ls, struct vp_timeline *timeline) {
    uint64_t before = timeline->met, begin = vp_timer_begin(ls);
    bool all = false;
    while (!vp_list_empty(&timeline->events) && !timeline->context->ending) {
        struct vp_event *ev = vp_container_of(timeline->events.next, struct vp_event, link);
        struct vp_event *newest = vp_container_of(timeline->events.prev, struct vp_event, link);
        if (!all && !event_done(ls, ev))
            break;
        if (!all && timeline->met == before && newest != ev)
            all = event_done(ls, newest);
        vp_timeline_met(timeline, ev->seq);
        timeline->event_count--;
        vp_event_recycle(ls, ev);
    }
    vp_timer_end(timeline->context, begin);
    ls->moves += timeline->met != before;
    return timeline->met != before;
}

/* ---- recording ---- */

/* Can the calling thread name this timeline's stream? Of per-thread streams it can name only its own, which the id
 * tells: a thread's handle may be reused. A stream that captures, or has joined another's capture, must not be asked
 * for its id. */
static bool nameable(struct vp_timelines *ls, const struct vp_timeline *timeline) {
    if (timeline->kind != VP_TIMELINE_STREAM || timeline->gone || timeline->lost)
        return false;
    if (!timeline->per_thread)
        return true;
    unsigned long long id = 0;
    const struct vp_entered entered = vp_context_enter(ls->drv, timeline->context->handle);
    bool own = !entered.refused && !vp_timeline_captures(ls, CU_STREAM_PER_THREAD) &&
               !ls->drv->cuStreamGetId(CU_STREAM_PER_THREAD, &id) && id + 1 == timeline->id;
    vp_context_leave(ls->drv, entered);
    return own;
}

/* Pending events from which on a timeline asks by itself whether some are done: each costs the driver memory. */
enum { EVENTS_SPARE = 64 };

/* The context or the stream may have ended by a route without a door. In the first case nothing more is recorded, in
 * the second the next event goes over the context. Without context ids an invalid stream handle must not pass for the
 * end of the event's context. */
static void record_failed(struct vp_timelines *ls, struct vp_timeline *timeline, struct vp_event *ev, CUresult res) {
    bool lost = res == CUDA_ERROR_INVALID_HANDLE && ls->drv->cuEventQuery(ev->handle) != CUDA_ERROR_INVALID_HANDLE;
    if ((!lost || timeline->context->id) && vp_context_died(timeline->context, res))
        return;
    if (lost && timeline->kind == VP_TIMELINE_STREAM && !timeline->gone &&
        (uintptr_t)timeline->stream > (uintptr_t)CU_STREAM_PER_THREAD)
        timeline->lost = true;
}

/* Chooses where the next event goes: to a stream, or over the whole context. -EBUSY: nowhere now. */
static int choose(struct vp_timelines *ls, const struct vp_timeline *timeline, bool outside, CUstream *stream,
                  bool *over_context) {
    const bool own = timeline->stream == CU_STREAM_LEGACY, named = vp_timelines_all_named(ls);
    *stream = timeline->stream;
    *over_context = false;
    if (!nameable(ls, timeline)) {
        if (timeline->kind == VP_TIMELINE_STREAM && (!outside || (!ls->barriers && timeline->nonblocking)))
            return -EBUSY;
        *over_context = ls->barriers;
        *stream = CU_STREAM_LEGACY;
    }
    if (!outside || *over_context || *stream != CU_STREAM_LEGACY || !(own || named) || !(ls->joins & VP_JOINS_BLOCKING))
        return 0;
    /* An event from outside on the legacy stream would join blocking streams. */
    if (ls->barriers && !atomic_load_explicit(&ls->captures, memory_order_acquire))
        *over_context = true;
    else if (own && named && timeline->context->aside)
        *stream = timeline->context->aside->stream;
    else if (!vp_timelines_blocking_idle(ls, timeline->context))
        return -EBUSY;
    return 0;
}

int vp_timeline_record(struct vp_timelines *ls, struct vp_timeline *timeline, bool outside) {
    struct vp_context *ctx = timeline->context;
    CUstream stream;
    bool over_context;
    int err = ctx->ending ? -EBUSY : choose(ls, timeline, outside, &stream, &over_context);
    if (err)
        return err;
    const bool capturing = atomic_load_explicit(&ls->captures, memory_order_acquire) > 0;
    const struct vp_entered entered = over_context ? (struct vp_entered){0} : vp_stream_enter(ls, ctx, stream);
    struct vp_event *ev = NULL;
    if (entered.refused || (capturing && (over_context || vp_stream_captures(ls, stream))))
        err = -EBUSY;
    else if (!(ev = event_take(ls, ctx)))
        err = -ENOMEM;
    if (!err) {
        if (timeline->asked_unlocked)
            atomic_store(&timeline->recording, true);
        uint64_t begin = vp_timer_begin(ls);
        CUresult res = over_context ? ls->drv->cuCtxRecordEvent(ctx->handle, ev->handle)
                                    : ls->drv->cuEventRecord(ev->handle, stream);
        vp_timer_end(ctx, begin);
        ctx->stats->barriers += over_context;
        ctx->stats->records += !over_context;
        if (res) {
            record_failed(ls, timeline, ev, res);
            err = -EIO;
        }
    }
    vp_context_leave(ls->drv, entered);
    /* A thread that sees `recording` false also sees the next number. */
    if (!err) {
        ev->seq = atomic_load_explicit(&timeline->next, memory_order_relaxed);
        atomic_store_explicit(&timeline->next, ev->seq + 1, memory_order_relaxed);
    }
    atomic_store_explicit(&timeline->recording, false, memory_order_release);
    if (err) {
        if (ev)
            vp_event_recycle(ls, ev);
        return err;
    }
    ev->serial = ++ls->recorded;
    timeline->open = false;
    vp_list_append(&timeline->events, &ev->link);
    vp_timeline_pend(ls, timeline);
    if (++timeline->event_count > timeline->ask_at) {
        vp_timeline_poll(ls, timeline);
        timeline->ask_at = 2 * timeline->event_count + EVENTS_SPARE;
    }
    return 0;
}

/* An event of a context in which a capture runs, recorded outside of it; NULL: none is known. There was one as the
 * capture began, which may be recorded again elsewhere by now. */
static const struct vp_event *event_beside_captures(struct vp_timelines *ls) {
    const struct vp_timeline *captured, *timeline;
    vp_list_each(captured, &ls->capturing, capturing) {
        struct vp_context *ctx = captured->context;
        vp_context_check(ls, ctx);
        if (ctx->ending)
            continue;
        if (!vp_list_empty(&ctx->spare))
            return vp_container_of(ctx->spare.next, struct vp_event, link);
        vp_list_each(timeline, &ctx->timelines, of_context)
            if (!vp_list_empty(&timeline->events))
                return vp_container_of(timeline->events.next, struct vp_event, link);
    }
    return NULL;
}

/* The driver alone knows whose captures forbid what to whom: it is asked by a call that it refuses where it refuses
 * cuMemAlloc and cuMemFree (H200), and that does nothing else. */
bool vp_captures_forbid(struct vp_timelines *ls) {
    const struct vp_event *ev = event_beside_captures(ls);
    return ev && ls->drv->cuEventQuery(ev->handle) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void vp_timeline_record_outside(struct vp_timelines *ls, struct vp_timeline *timeline) {
    int mode = vp_timelines_relax(ls);
    vp_timeline_record(ls, timeline, true);
    vp_timelines_restore(ls, mode);
}
