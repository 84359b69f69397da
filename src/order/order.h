/* What the files of this folder share. Each file calls only those whose sections stand before its own; fence.c, ends.c
 * and poll.c use them all. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "order/fence.h"

#include "base/clock.h"

/* ---- call.c ---- */

/* There is nothing to relax: no capture runs, and none can begin before the caller releases the lock. */
enum { VP_NOT_RELAXED = -1 };

static inline int vp_timelines_relax(const struct vp_timelines *ls) {
    return atomic_load_explicit(&ls->captures, memory_order_acquire) ? (int)vp_capture_relax(ls) : VP_NOT_RELAXED;
}

static inline void vp_timelines_restore(const struct vp_timelines *ls, int mode) {
    if (mode != VP_NOT_RELAXED)
        vp_capture_restore(ls, (CUstreamCaptureMode)mode);
}

bool vp_stream_captures(const struct vp_timelines *ls, CUstream stream);
/* As vp_context_enter(), but only if the handle means another stream in each context (legacy, per-thread). */
struct vp_entered vp_stream_enter(const struct vp_timelines *ls, const struct vp_context *ctx, CUstream stream);
/* Have the legacy stream and all blocking streams nothing to do? Asking holds nothing up. */
bool vp_timelines_blocking_idle(const struct vp_timelines *ls, const struct vp_context *ctx);

/* Reading the clock takes a third as long as the calls timed here: one call in so many is timed, and counts for all. */
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
/* Puts it on the pending list: it has an event to ask for, or one to record. */
static inline void vp_timeline_pend(struct vp_timelines *ls, struct vp_timeline *timeline) {
    if (vp_list_empty(&timeline->pending))
        vp_list_append(&ls->pending, &timeline->pending);
}
/* A point has the number of the next event, so that this must be recorded some day. */
void vp_timeline_want_event(struct vp_timelines *ls, struct vp_timeline *timeline);
/* Counts all its points as reached. */
void vp_timeline_over(struct vp_timeline *timeline);
/* How many ended timelines a sweep in passing looks at: more than end between two sweeps. */
enum { VP_SWEPT = 16 };
/* Looks at up to `most` timelines that are gone, and frees those that no point names. Not while a region is filed. */
void vp_timelines_sweep(struct vp_timelines *ls, size_t most);

/* Is it a barrier with a point that many events stand for together? */
static inline bool vp_timeline_covered(const struct vp_timeline *timeline) {
    return timeline->kind == VP_TIMELINE_BARRIER && timeline->context->cover;
}
/* Notes that all points up to `seq` were seen reached. */
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
/* Takes a timeline off the pending list if there is nothing left to ask or record. */
static inline void vp_timeline_unpend(struct vp_timelines *ls, struct vp_timeline *timeline) {
    if (!vp_list_empty(&timeline->events) || timeline->open || vp_timeline_covered(timeline))
        return;
    vp_list_remove(&timeline->pending);
    if (timeline->gone)
        vp_list_append(&ls->ended, &timeline->pending);
}

/* ---- context.c ---- */

/* A call on an event of the context failed with `res`: has the context ended by a route without a door? If so, its
 * points count as met; vp_context_lost() then reports it to be dropped. */
bool vp_context_died(struct vp_context *ctx, CUresult res);

/* ---- event.c ---- */

/* Records the timeline's next event, after all it has queued so far: on its stream, or over the whole context where
 * this thread cannot name the stream (another thread's per-thread stream, a destroyed one). Drivers without context
 * barriers use the legacy stream for that, which covers all but non-blocking streams. 0; -EBUSY, -ENOMEM or -EIO: the
 * points stay open. Fails while a capture forbids it.
 *
 * `outside`: the program is not in a call on that stream. Without it the event is recorded on the stream itself or not
 * at all, since the stream may be made to wait for it. An event on the legacy stream makes later work of blocking
 * streams wait for earlier work of others, which may in turn wait for it. A program that did not ask for that could
 * hang, so an event from outside is not put there; a barrier holds nothing up. */
int vp_timeline_record(struct vp_timelines *ls, struct vp_timeline *timeline, bool outside);
/* The event has left its timeline: another timeline may use it. */
void vp_event_recycle(struct vp_timelines *ls, struct vp_event *ev);

/* ---- stream.c ---- */

/* Asks whether the contexts of capturing streams live, and whether these streams still capture: a capture whose end
 * went unseen would hold up every barrier. */
void vp_timelines_check_captures(struct vp_timelines *ls);
/* For drivers without barriers: a blocking stream of our own. An event on it comes behind all that the legacy stream
 * has queued, and holds up nothing that the legacy stream would not. NULL: none to be had. */
struct vp_timeline *vp_context_aside(struct vp_timelines *ls, struct vp_context *ctx);

/* ---- cover.c ---- */

/* Continues the context's cover, or begins one. True if the barrier's `met` moved. */
bool vp_context_cover(struct vp_timelines *ls, struct vp_context *ctx);
