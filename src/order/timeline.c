/* Timelines, the points on them, and fences made of points: see timeline.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

#include "base/cancel.h"
#include "base/clock.h"

#include <errno.h>

void vp_timelines_init(struct vp_timelines *ls, const struct vp_driver *drv) {
    *ls = (struct vp_timelines){.drv = drv, .barriers = drv->cuCtxRecordEvent != NULL};
    vp_list_init(&ls->contexts);
    vp_list_init(&ls->pending);
    vp_list_init(&ls->ended);
    vp_list_init(&ls->capturing);
    vp_slab_init(&ls->timeline_slab, sizeof(struct vp_timeline));
    vp_slab_init(&ls->event_slab, sizeof(struct vp_event));
    vp_slab_init(&ls->context_slab, sizeof(struct vp_context));
    vp_slab_init(&ls->point_slab, sizeof(struct vp_point));
}

void vp_timelines_finish(struct vp_timelines *ls) {
    struct vp_context *ctx;
    struct vp_timeline *timeline;
    vp_list_each(ctx, &ls->contexts, link)
        vp_list_each(timeline, &ctx->timelines, of_context)
            vp_list_remove(&timeline->of_thread);
    vp_slab_finish(&ls->timeline_slab);
    vp_slab_finish(&ls->event_slab);
    vp_slab_finish(&ls->context_slab);
    vp_slab_finish(&ls->point_slab);
    vp_table_finish(&ls->by_id);
    vp_table_finish(&ls->by_handle);
}

CUstreamCaptureMode vp_capture_relax(const struct vp_timelines *ls) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ls->drv->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void vp_capture_restore(const struct vp_timelines *ls, CUstreamCaptureMode mode) {
    ls->drv->cuThreadExchangeStreamCaptureMode(&mode);
}

/* ---- time spent in calls ---- */

/* A look at the clock takes a third as long as the calls that are timed here: one call in so many counts for all. */
enum { TIMED = 16 };

static uint64_t timer_begin(struct vp_timelines *ls) {
    return ls->calls++ % TIMED ? 0 : vp_clock_ns();
}

static void timer_end(struct vp_context *ctx, uint64_t begin) {
    if (begin)
        ctx->stats.ns += TIMED * (vp_clock_ns() - begin);
}

/* ---- events ---- */

/* Legacy and per-thread are names relative to the current context. */
static bool stream_enter(const struct vp_timelines *ls, const struct vp_context *ctx, CUstream stream) {
    return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD && vp_context_enter(ls, ctx);
}

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
    bool entered = vp_context_enter(ls, ctx);
    CUresult res = ls->drv->cuEventCreate(&ev->handle, CU_EVENT_DISABLE_TIMING);
    vp_context_leave(ls, entered);
    if (res) {
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

static void timeline_pend(struct vp_timelines *ls, struct vp_timeline *timeline) {
    if (vp_list_empty(&timeline->pending))
        vp_list_append(&ls->pending, &timeline->pending);
}

void vp_timeline_met(struct vp_timeline *timeline, uint64_t seq) {
    if (seq > timeline->met)
        timeline->met = seq;
    if (timeline->host_func && timeline->met >= timeline->host_func) {
        timeline->host_func = 0;
        timeline->context->registry->host_funcs--;
    }
    if (vp_timeline_covered(timeline) && timeline->met >= timeline->context->cover)
        timeline->context->cover = 0;
}

bool vp_stream_captures(const struct vp_timelines *ls, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    /* The legacy stream answers 906 while a blocking stream captures: an event there would destroy that capture. */
    return ls->drv->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool vp_timeline_captures(struct vp_timelines *ls, CUstream stream) {
    return atomic_load_explicit(&ls->captures, memory_order_acquire) > 0 && vp_stream_captures(ls, stream);
}

/* How many of the timelines that ended a sweep looks at: more than end between two of them. */
enum { SWEPT = 16 };

/* Lines that are gone and no longer named. Freed only here, so that no free index vanishes while a region is being
 * refiled. */
static void sweep(struct vp_timelines *ls) {
    for (int i = 0; i < SWEPT && !vp_list_empty(&ls->ended); i++) {
        struct vp_timeline *timeline = vp_container_of(ls->ended.next, struct vp_timeline, pending);
        vp_list_remove(&timeline->pending);
        if (timeline->refs) {
            vp_list_append(&ls->ended, &timeline->pending);
            continue;
        }
        if (ls->forget)
            ls->forget(ls->user, timeline);
        vp_list_remove(&timeline->of_context);
        vp_slab_free(&ls->timeline_slab, timeline);
        ls->lingering--;
    }
}

/* Takes a timeline off the pending list if there is nothing left to ask. */
void vp_timeline_quiet(struct vp_timelines *ls, struct vp_timeline *timeline) {
    if (!vp_list_empty(&timeline->events) || timeline->open || vp_timeline_covered(timeline))
        return;
    vp_list_remove(&timeline->pending);
    if (timeline->gone)
        vp_list_append(&ls->ended, &timeline->pending);
}

bool vp_timelines_linger(struct vp_timelines *ls) {
    /* Twice as many as were left the last time: what cannot come free yet is not looked at again and again. */
    if (ls->lingering < ls->tidy_at)
        return false;
    ls->tidy_at = 2 * ls->lingering;
    return true;
}

/* Can the calling thread name this timeline's stream? Of per-thread streams it can name its own only; the id tells, a
 * thread's handle may come back. */
bool vp_timeline_nameable(const struct vp_timelines *ls, const struct vp_timeline *timeline) {
    if (timeline->kind != VP_TIMELINE_STREAM || timeline->gone || timeline->lost || !timeline->per_thread)
        return timeline->kind == VP_TIMELINE_STREAM && !timeline->gone && !timeline->lost;
    unsigned long long id = 0;
    bool entered = vp_context_enter(ls, timeline->context);
    CUresult res = ls->drv->cuStreamGetId(CU_STREAM_PER_THREAD, &id);
    vp_context_leave(ls, entered);
    return !res && id + 1 == timeline->id;
}

static bool event_done(struct vp_timelines *ls, struct vp_event *ev) {
    ev->context->stats.queries++;
    CUresult res = ls->drv->cuEventQuery(ev->handle);
    if (res && res != CUDA_ERROR_NOT_READY)
        vp_context_failed(ev->context, res);
    return res == CUDA_SUCCESS;
}

/* Asks the timeline's events, oldest first, until one has not completed. Where the oldest has, often all have: the
 * newest tells. */
static bool timeline_poll(struct vp_timelines *ls, struct vp_timeline *timeline) {
    uint64_t before = timeline->met, begin = timer_begin(ls);
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
    timer_end(timeline->context, begin);
    ls->moves += timeline->met != before;
    return timeline->met != before;
}

/* Events that a timeline may have pending before it asks whether some are done, though nobody wants to know: each costs
 * the driver some memory. */
enum { EVENTS_SPARE = 64 };

/* Of the two handles that a call was given, is it the stream's that is none? Where contexts have no ids this must not
 * pass for the end of the event's context. */
static bool stream_lost(const struct vp_timelines *ls, const struct vp_event *ev, CUresult res) {
    return res == CUDA_ERROR_INVALID_HANDLE && ls->drv->cuEventQuery(ev->handle) != CUDA_ERROR_INVALID_HANDLE;
}

/* The context may have ended, or the stream, by a route without a door: then never again, or over the context the next
 * time. */
static void record_failed(struct vp_timelines *ls, struct vp_timeline *timeline, struct vp_event *ev, CUresult res) {
    bool lost = stream_lost(ls, ev, res);
    if ((!lost || timeline->context->id) && vp_context_died(timeline->context, res))
        return;
    if (lost && timeline->kind == VP_TIMELINE_STREAM && !timeline->gone &&
        (uintptr_t)timeline->stream > (uintptr_t)CU_STREAM_PER_THREAD)
        timeline->lost = true;
}

/*
 * Records the timeline's next event, after everything that it has queued so far: on its stream, or over the whole
 * context where this thread cannot name the stream (another thread's per-thread stream, a destroyed one). Drivers
 * without context barriers have the legacy stream for that, which covers all but the non-blocking ones. Fails while a
 * capture forbids it; the points then stay open.
 *
 * `late`: not within a call of the program's on that stream. An event on the legacy stream makes later work of blocking
 * streams wait for earlier work of others, which may in turn wait for it: the program has not asked for that, and could
 * hang by it. A barrier holds nothing up.
 */
static int record(struct vp_timelines *ls, struct vp_timeline *timeline, bool late) {
    struct vp_context *ctx = timeline->context;
    if (ctx->ending)
        return -EBUSY;
    CUstream stream = timeline->stream;
    bool over_context = false;
    if (!vp_timeline_nameable(ls, timeline)) {
        if (!ls->barriers && timeline->kind == VP_TIMELINE_STREAM && timeline->nonblocking)
            return -EBUSY;
        over_context = ls->barriers;
        stream = CU_STREAM_LEGACY;
    }
    bool capturing = atomic_load_explicit(&ls->captures, memory_order_acquire) > 0,
         joins = late && timeline->stream == CU_STREAM_LEGACY;
    if (joins && !capturing)
        over_context |= ls->barriers;
    else if (joins && !vp_timelines_blocking_idle(ls, ctx))
        return -EBUSY;
    bool entered = !over_context && stream_enter(ls, ctx, stream);
    struct vp_event *ev = NULL;
    int err = capturing && (over_context || vp_stream_captures(ls, stream)) ? -EBUSY : 0;
    if (!err && !(ev = event_take(ls, ctx)))
        err = -ENOMEM;
    if (!err) {
        uint64_t begin = timer_begin(ls);
        CUresult res = over_context ? ls->drv->cuCtxRecordEvent(ctx->handle, ev->handle)
                                    : ls->drv->cuEventRecord(ev->handle, stream);
        timer_end(ctx, begin);
        ctx->stats.barriers += over_context;
        ctx->stats.records += !over_context;
        err = res ? -EIO : 0;
        if (res)
            record_failed(ls, timeline, ev, res);
    }
    vp_context_leave(ls, entered);
    if (err) {
        if (ev)
            vp_event_recycle(ls, ev);
        return err;
    }
    ev->seq = timeline->next++;
    ev->serial = ++ls->recorded;
    timeline->open = false;
    vp_list_append(&timeline->events, &ev->link);
    timeline_pend(ls, timeline);
    if (++timeline->event_count > timeline->ask_at) {
        timeline_poll(ls, timeline);
        timeline->ask_at = 2 * timeline->event_count + EVENTS_SPARE;
    }
    return 0;
}

int vp_timeline_record(struct vp_timelines *ls, struct vp_timeline *timeline) {
    return record(ls, timeline, false);
}

void vp_timeline_host_func(struct vp_timelines *ls, struct vp_timeline *timeline) {
    if (!timeline->host_func && !ls->host_funcs++)
        ls->host_funcs_from = ls->recorded;
    timeline->host_func = timeline->next;
    timeline->open = true;
    timeline_pend(ls, timeline);
}

bool vp_timelines_waiting(const struct vp_timelines *ls, uint64_t serial) {
    const struct vp_timeline *timeline;
    vp_list_each(timeline, &ls->pending, pending)
        if (!vp_list_empty(&timeline->events) && !timeline->context->sick && !timeline->context->lost &&
            vp_container_of(timeline->events.next, struct vp_event, link)->serial <= serial)
            return true;
    return false;
}

bool vp_timelines_open(const struct vp_timelines *ls) {
    const struct vp_timeline *timeline;
    vp_list_each(timeline, &ls->pending, pending)
        if (timeline->open || vp_timeline_covered(timeline))
            return true;
    return false;
}

void vp_timelines_poll_for(struct vp_timelines *ls, uint64_t ns) {
    uint64_t begin = vp_clock_ns();
    do
        vp_timelines_poll(ls, true);
    while (vp_timelines_waiting(ls, ls->recorded) && vp_clock_ns() - begin < ns);
}

bool vp_timelines_poll(struct vp_timelines *ls, bool flush) {
    bool moved = false;
    struct vp_timeline *timeline, *tmp;
    int mode = vp_timelines_relax(ls);
    sweep(ls);
    vp_list_each_safe(timeline, tmp, &ls->pending, pending) {
        if (flush && (timeline->open || (vp_timeline_covered(timeline) && vp_list_empty(&timeline->events))))
            record(ls, timeline, timeline->kind == VP_TIMELINE_STREAM);
        moved |= timeline_poll(ls, timeline);
        vp_timeline_quiet(ls, timeline);
    }
    vp_timelines_restore(ls, mode);
    return moved;
}

/* ---- streams ---- */

/* Lines of streams that ended in a way nobody told us of go when their context does. */
int vp_timeline_get(struct vp_timelines *ls, CUstream stream, struct vp_timeline **out) {
    unsigned long long id;
    if (vp_timeline_captures(ls, stream))
        return -EBUSY;
    if (ls->drv->cuStreamGetId(stream, &id))
        return -ENODEV;
    struct vp_timeline *timeline = vp_table_get(&ls->by_id, id + 1);
    if (timeline) {
        *out = timeline;
        return 0;
    }
    CUcontext handle;
    unsigned flags = 0;
    vp_cancel_hold();
    if (ls->drv->cuStreamGetCtx(stream, &handle))
        return -ENODEV;
    struct vp_context *ctx = vp_context_get(ls, handle);
    /* What is queued in a new context must not hang on one that ended unseen, and had its handle: with that one's
     * points it would count as done. */
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
    timeline->number = ++ls->streams_seen;
    struct vp_list *own = timeline->per_thread && ls->of_thread ? ls->of_thread(ls->user) : NULL;
    if (own)
        vp_list_append(own, &timeline->of_thread);
    vp_table_add(&ls->by_id, timeline);
    *out = timeline;
    return 0;
}

struct vp_timeline *vp_timeline_capturing(const struct vp_timelines *ls, CUstream stream) {
    struct vp_timeline *timeline;
    vp_list_each(timeline, &ls->capturing, capturing)
        if (timeline->stream == stream && !timeline->per_thread && !timeline->context->ending)
            return timeline;
    return NULL;
}

void vp_timeline_capture_over(struct vp_timelines *ls, struct vp_timeline *timeline) {
    timeline->rest = 0;
    if (vp_list_empty(&timeline->capturing))
        return;
    vp_list_remove(&timeline->capturing);
    atomic_fetch_sub(&ls->captures, 1);
}

void vp_timeline_capture(struct vp_timelines *ls, struct vp_timeline *timeline, bool begins) {
    if (!begins) {
        vp_timeline_capture_over(ls, timeline);
        return;
    }
    /* Another stream may be capturing already. */
    int mode = vp_timelines_relax(ls);
    timeline->rest = vp_timeline_record(ls, timeline) == 0 ? timeline->next - 1 : 0;
    vp_timelines_restore(ls, mode);
    vp_list_append(&ls->capturing, &timeline->capturing);
    atomic_fetch_add(&ls->captures, 1);
}

/* ---- ends ---- */

/* Lines that are gone, from which on the first look is taken whether they might come free. */
enum { LINGER = 64 };

void vp_timeline_gone(struct vp_timelines *ls, struct vp_timeline *timeline) {
    struct vp_context *ctx = timeline->context;
    timeline->gone = true;
    vp_list_remove(&timeline->of_thread);
    if (timeline->kind == VP_TIMELINE_STREAM)
        vp_table_take(&ls->by_id, timeline->id);
    vp_timeline_capture_over(ls, timeline);
    /* What it has still queued, the barrier alone tells. */
    if (timeline->kind == VP_TIMELINE_STREAM)
        ctx->uncovered = ctx->barrier->next;
    if (!ls->lingering++ && ls->tidy_at < LINGER)
        ls->tidy_at = LINGER;
}

void vp_timeline_destroying(struct vp_timelines *ls, struct vp_timeline *timeline) {
    if (ls->closing)
        ls->closing(ls->user, timeline);
    int mode = vp_timelines_relax(ls);
    if (timeline->open)
        vp_timeline_record(ls, timeline);
    vp_timelines_restore(ls, mode);
    vp_timeline_gone(ls, timeline);
    sweep(ls);
    vp_timeline_quiet(ls, timeline);
}

void vp_timelines_thread_ended(struct vp_timelines *ls, struct vp_list *own) {
    struct vp_timeline *timeline, *next;
    vp_list_each_safe(timeline, next, own, of_thread) {
        if (ls->closing)
            ls->closing(ls->user, timeline);
        vp_timeline_gone(ls, timeline);
        vp_timeline_quiet(ls, timeline);
    }
    sweep(ls);
}

/* ---- conditions ---- */

static bool point_met(const struct vp_point *p) {
    return p->seq <= p->timeline->met;
}

static void point_drop(struct vp_point *p) {
    p->timeline->refs--;
}

void vp_timeline_drop_points(struct vp_timeline *timeline, size_t n) {
    timeline->refs -= n;
}

/* Adds a point, replacing one of the same timeline that it covers. Needs a spare point in the slab. */
static void fence_add(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline, uint64_t seq,
                      bool waitable) {
    struct vp_point *first = &fence->first;
    if (!first->timeline) {
        *first = (struct vp_point){.timeline = timeline, .seq = seq, .waitable = waitable};
        timeline->refs++;
        return;
    }
    struct vp_point *p = first;
    for (; p; p = p->next) {
        if (p->timeline != timeline)
            continue;
        /* The union of two points of one timeline is the later; its event is late for the bytes of the earlier, unless
         * that is met. */
        bool both = p->seq == seq;
        bool clean = both ? p->waitable && waitable : point_met(p) ? waitable : false;
        if (seq >= p->seq) {
            p->seq = seq;
            p->waitable = clean;
        } else {
            p->waitable = 0;
        }
        return;
    }
    p = vp_slab_alloc(&ls->point_slab);
    if (!p) {
        /* Never laxer for want of memory: the first point becomes one that only the end of its context reaches. */
        first->seq = UINT64_MAX >> 2;
        first->waitable = 0;
        return;
    }
    *p = (struct vp_point){.timeline = timeline, .seq = seq, .waitable = waitable, .next = first->next};
    first->next = p;
    timeline->refs++;
}

static int fence_reserve(struct vp_timelines *ls, const struct vp_fence *more) {
    size_t n = 0;
    vp_fence_each(p, more)
        n++;
    return n ? vp_slab_reserve(&ls->point_slab, n) : 0;
}

int vp_fence_add_free(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline, bool record) {
    if (vp_slab_reserve(&ls->point_slab, 1) < 0)
        return -ENOMEM;
    if (record) {
        int mode = vp_timelines_relax(ls);
        int err = vp_timeline_record(ls, timeline);
        vp_timelines_restore(ls, mode);
        if (!err) {
            fence_add(ls, fence, timeline, timeline->next - 1, true);
            return 0;
        }
    }
    timeline->open = true;
    timeline_pend(ls, timeline);
    fence_add(ls, fence, timeline, timeline->next, false);
    return 0;
}

void vp_fence_add_late(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline) {
    if (timeline->context->gone)
        return;
    timeline->open = true;
    timeline_pend(ls, timeline);
    fence_add(ls, fence, timeline, timeline->next, false);
}

/* The point behind all real work of a stream that captures. */
static int fence_at_rest(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline) {
    int err = vp_slab_reserve(&ls->point_slab, 1);
    if (!err)
        fence_add(ls, fence, timeline, timeline->rest, false);
    return err;
}

/* Without context barriers, the barrier timeline is the legacy stream; each non-blocking stream needs its own event
 * beside it. */
int vp_fence_add_barrier(struct vp_timelines *ls, struct vp_fence *fence, struct vp_context *ctx, bool record) {
    struct vp_timeline *timeline;
    int err = vp_fence_add_free(ls, fence, ctx->barrier, record);
    if (!ls->barriers)
        vp_list_each(timeline, &ctx->timelines, of_context)
            if (!err && timeline->nonblocking && !timeline->gone)
                err = timeline->rest ? fence_at_rest(ls, fence, timeline)
                                     : vp_fence_add_free(ls, fence, timeline, record);
    return err;
}

int vp_fence_unite(struct vp_timelines *ls, struct vp_fence *to, const struct vp_fence *from) {
    int err = fence_reserve(ls, from);
    if (err)
        return err;
    vp_fence_each(p, from)
        fence_add(ls, to, p->timeline, p->seq, p->waitable);
    return 0;
}

int vp_fence_copy(struct vp_timelines *ls, struct vp_fence *to, const struct vp_fence *from) {
    *to = (struct vp_fence){0};
    return vp_fence_unite(ls, to, from);
}

void vp_fence_clear(struct vp_timelines *ls, struct vp_fence *fence) {
    struct vp_point *first = &fence->first;
    if (!first->timeline)
        return;
    for (struct vp_point *p = first->next, *next; p; p = next) {
        next = p->next;
        point_drop(p);
        vp_slab_free(&ls->point_slab, p);
    }
    first->next = NULL;
    point_drop(first);
    first->timeline = NULL;
}

bool vp_fence_same(const struct vp_fence *one, const struct vp_fence *other) {
    const struct vp_point *a = &one->first, *b = &other->first;
    if (!a->timeline || !b->timeline)
        return a->timeline == b->timeline;
    return a->timeline == b->timeline && a->seq == b->seq && a->waitable == b->waitable && !a->next && !b->next;
}

bool vp_fence_settle(struct vp_timelines *ls, struct vp_fence *fence) {
    struct vp_point *first = &fence->first;
    if (!first->timeline)
        return true;
    for (struct vp_point **link = &first->next; *link;) {
        struct vp_point *p = *link;
        if (point_met(p)) {
            *link = p->next;
            point_drop(p);
            vp_slab_free(&ls->point_slab, p);
        } else {
            link = &p->next;
        }
    }
    if (!point_met(first))
        return false;
    point_drop(first);
    struct vp_point *p = first->next;
    if (!p) {
        first->timeline = NULL;
        return true;
    }
    *first = *p;
    vp_slab_free(&ls->point_slab, p);
    return false;
}

/* Does work of `timeline` come after the point by itself: on the same stream, or with the point met? */
static bool timeline_behind(const struct vp_timeline *timeline, const struct vp_point *p) {
    return p->timeline == timeline || point_met(p);
}

/*
 * Did `timeline` wait for the point, or a later one, before? Saves a wait, and no more: what a request may use must not
 * hang on a cache that forgets, nor on a late point that unites with a later one before the block is taken.
 */
static bool timeline_waited(const struct vp_timeline *timeline, const struct vp_point *p) {
    for (unsigned i = 0; i < VP_SEEN; i++)
        if (timeline->seen[i].birth == p->timeline->birth && timeline->seen[i].seq >= p->seq)
            return true;
    return false;
}

bool vp_fence_ready(const struct vp_fence *fence, const struct vp_timeline *timeline) {
    vp_fence_each(p, fence)
        if (!timeline_behind(timeline, p))
            return false;
    return true;
}

/* The event of exactly that point: mostly of the last ones. */
static struct vp_event *point_event(const struct vp_point *p) {
    for (const struct vp_list *at = p->timeline->events.prev; at != &p->timeline->events; at = at->prev) {
        struct vp_event *ev = vp_container_of(at, struct vp_event, link);
        if (ev->seq <= p->seq)
            return ev->seq == p->seq ? ev : NULL;
    }
    return NULL;
}

/* May the point hang on a host function? That of another stream will do, if its own stream waits for that one. */
static bool point_held_up(const struct vp_point *p) {
    const struct vp_timelines *ls = p->timeline->context->registry;
    const struct vp_event *ev = ls->host_funcs ? point_event(p) : NULL;
    return ls->host_funcs && (!ev || ev->serial > ls->host_funcs_from);
}

bool vp_fence_waitable(const struct vp_fence *fence, const struct vp_timeline *timeline, bool early) {
    vp_fence_each(p, fence)
        if (!timeline_behind(timeline, p) &&
            (!p->waitable || p->timeline->context->ending || (early && point_held_up(p))))
            return false;
    return timeline != NULL;
}

bool vp_fence_host_waitable(const struct vp_fence *fence) {
    vp_fence_each(p, fence)
        if (!point_met(p) &&
            !(p->waitable && p->timeline->kind == VP_TIMELINE_BARRIER && !p->timeline->context->ending))
            return false;
    return true;
}

int vp_fence_wait(struct vp_timelines *ls, const struct vp_fence *fence, struct vp_timeline *timeline) {
    vp_fence_each(p, fence) {
        if (timeline_behind(timeline, p) || timeline_waited(timeline, p))
            continue;
        struct vp_event *ev = point_event(p);
        if (!ev || !p->waitable)
            return -EBUSY;
        uint64_t begin = timer_begin(ls);
        bool entered = stream_enter(ls, timeline->context, timeline->stream);
        /* Its capture may have begun while memory was waited for without the lock; a wait for work outside would
         * destroy it. */
        bool captures = vp_timeline_captures(ls, timeline->stream);
        CUresult res = captures ? CUDA_SUCCESS : ls->drv->cuStreamWaitEvent(timeline->stream, ev->handle, 0);
        vp_context_leave(ls, entered);
        timer_end(timeline->context, begin);
        if (captures)
            return -EBUSY;
        timeline->context->stats.waits++;
        /* What ended unseen is over, and nothing is left to wait for. */
        if (res && vp_context_died(p->timeline->context, res))
            continue;
        if (res) {
            /* It may be the other side that fails: a request of this one goes on without it. */
            vp_context_failed(p->timeline->context, res);
            return p->timeline->context == timeline->context ? -EIO : -EBUSY;
        }
        timeline->seen[timeline->seen_at].birth = p->timeline->birth;
        timeline->seen[timeline->seen_at].seq = p->seq;
        timeline->seen_at = (timeline->seen_at + 1) % VP_SEEN;
    }
    return 0;
}

struct vp_event *vp_fence_event(const struct vp_fence *fence) {
    vp_fence_each(p, fence) {
        struct vp_event *ev = point_met(p) || !p->waitable ? NULL : point_event(p);
        if (ev) {
            ev->refs++;
            return ev;
        }
    }
    return NULL;
}
