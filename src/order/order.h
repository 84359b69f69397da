/* What the files of this folder share. Each calls only those whose sections come before its own; fence.c, ends.c and
 * poll.c stand on all of these. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "order/fence.h"

#include "base/clock.h"

/* ---- call.c ---- */

/* While no capture runs, and none can begin before the caller lets the lock go, there is nothing to relax. */
enum { VP_NOT_RELAXED = -1 };

static inline int vp_timelines_relax(const struct vp_timelines *ls) {
    return atomic_load_explicit(&ls->captures, memory_order_acquire) ? (int)vp_capture_relax(ls) : VP_NOT_RELAXED;
}

static inline void vp_timelines_restore(const struct vp_timelines *ls, int mode) {
    if (mode != VP_NOT_RELAXED)
        vp_capture_restore(ls, (CUstreamCaptureMode)mode);
}

bool vp_stream_captures(const struct vp_timelines *ls, CUstream stream);
/* As vp_context_enter(), for a call on a stream of `ctx`, if its handle means one of whatever context is current. */
struct vp_entered vp_stream_enter(const struct vp_timelines *ls, const struct vp_context *ctx, CUstream stream);
/* Has the legacy stream nothing to do, nor any blocking one? Asked, which holds nothing up. */
bool vp_timelines_blocking_idle(const struct vp_timelines *ls, const struct vp_context *ctx);

/* A look at the clock takes a third as long as the calls that are timed here: one call in so many counts for all. */
enum { VP_TIMED = 16 };

static inline uint64_t vp_timer_begin(struct vp_timelines *ls) {
    return ls->calls++ % VP_TIMED ? 0 : vp_clock_ns();
}

static inline void vp_timer_end(struct vp_context *ctx, uint64_t begin) {
    if (begin)
        ctx->stats->ns += VP_TIMED * (vp_clock_ns() - begin);
}

/* ---- timeline.c ---- */

struct vp_timeline *vp_timeline_new(struct vp_timelines *ls, struct vp_context *ctx, enum vp_timeline_kind kind,
                                    uint64_t id);
/* It has something to ask for, or something to record. */
static inline void vp_timeline_pend(struct vp_timelines *ls, struct vp_timeline *timeline) {
    if (vp_list_empty(&timeline->pending))
        vp_list_append(&ls->pending, &timeline->pending);
}
/* A point has the number of the next event: it is to be recorded some day. */
void vp_timeline_want_event(struct vp_timelines *ls, struct vp_timeline *timeline);
/* All its points count as reached. */
void vp_timeline_over(struct vp_timeline *timeline);
/* How many of the timelines that ended a sweep looks at in passing: more than end between two sweeps. */
enum { VP_SWEPT = 16 };
/* Looks at so many timelines that are gone, and frees those that no point names. Not while a region is being filed. */
void vp_timelines_sweep(struct vp_timelines *ls, size_t most);

/* Is it a barrier one of whose points many events stand for together? */
static inline bool vp_timeline_covered(const struct vp_timeline *timeline) {
    return timeline->kind == VP_TIMELINE_BARRIER && timeline->context->cover;
}
/* All points up to this one were seen reached. */
static inline void vp_timeline_met(struct vp_timeline *timeline, uint64_t seq) {
    if (seq > timeline->met)
        timeline->met = seq;
    if (timeline->host_func && timeline->met >= timeline->host_func) {
        timeline->host_func = 0;
        timeline->context->registry->host_funcs--;
    }
    if (vp_timeline_covered(timeline) && timeline->met >= timeline->context->cover)
        timeline->context->cover = 0;
}
/* Takes a timeline off the pending list if there is nothing left to ask. */
static inline void vp_timeline_quiet(struct vp_timelines *ls, struct vp_timeline *timeline) {
    if (!vp_list_empty(&timeline->events) || timeline->open || vp_timeline_covered(timeline))
        return;
    vp_list_remove(&timeline->pending);
    if (timeline->gone)
        vp_list_append(&ls->ended, &timeline->pending);
}

/* ---- context.c ---- */

/* A call on an event of the context failed with `res`: has the context ended unseen, by a route without a
 * door? Its points then count as met; it is dropped when vp_context_lost() has told of it. */
bool vp_context_died(struct vp_context *ctx, CUresult res);

/* ---- event.c ---- */

/* Records the timeline's next event, after everything that it has queued so far: on its stream, or over the whole
 * context where this thread cannot name the stream (another thread's per-thread stream, a destroyed one). Drivers
 * without context barriers have the legacy stream for that, which covers all but the non-blocking ones. Fails while a
 * capture forbids it; the points then stay open.
 *
 * `late`: not within a call of the program's on that stream; else nothing stands for the stream, which may be made to
 * wait for the event. One on the legacy stream makes later work of blocking streams wait for earlier work of others,
 * which may in turn wait for it: the program has not asked for that, and could hang by it. A barrier holds nothing up.
 */
int vp_timeline_record(struct vp_timelines *ls, struct vp_timeline *timeline, bool late);
/* The event has left its timeline: another may use it. */
void vp_event_recycle(struct vp_timelines *ls, struct vp_event *ev);

/* ---- stream.c ---- */

/* Asks whether those contexts live whose streams capture, and whether these still do: a capture that ended unseen holds
 * up every barrier. */
void vp_timelines_check_captures(struct vp_timelines *ls);
/* A blocking stream of ours, for drivers without barriers: an event there comes behind what the legacy stream has
 * queued, and nothing comes behind it that does not come behind that anyway. NULL: there is none to be had. */
struct vp_timeline *vp_context_aside(struct vp_timelines *ls, struct vp_context *ctx);

/* ---- cover.c ---- */

/* Goes on with the context's cover, or begins one. True if the barrier's `met` moved. */
bool vp_context_cover(struct vp_timelines *ls, struct vp_context *ctx);
