/* What the files of the registry of timelines share: timeline.c, context.c, cover.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VP_TIMELINE_PRIVATE_H
#define VP_TIMELINE_PRIVATE_H

#include "order/timeline.h"

/* While no capture runs, and none can begin before the caller lets the lock go, there is nothing to relax. */
enum { VP_NOT_RELAXED = -1 };

static inline int vp_timelines_relax(const struct vp_timelines *ls) {
    return atomic_load_explicit(&ls->captures, memory_order_acquire) ? (int)vp_capture_relax(ls) : VP_NOT_RELAXED;
}

static inline void vp_timelines_restore(const struct vp_timelines *ls, int mode) {
    if (mode != VP_NOT_RELAXED)
        vp_capture_restore(ls, (CUstreamCaptureMode)mode);
}

/* ---- context.c ---- */

struct vp_timeline *vp_timeline_new(struct vp_timelines *ls, struct vp_context *ctx, enum vp_timeline_kind kind,
                                    uint64_t id);
/* Runs with `ctx` current; undone by vp_context_leave() with what it returned. */
bool vp_context_enter(const struct vp_timelines *ls, const struct vp_context *ctx);
void vp_context_leave(const struct vp_timelines *ls, bool entered);
/*
 * A call on an event of the context failed with `res`: has the context ended, with nobody telling us? (By a route
 * without a door.) Its points then count as met; it is dropped when vp_context_lost() has told of it.
 */
bool vp_context_died(struct vp_context *ctx, CUresult res);

/* ---- timeline.c ---- */

bool vp_stream_captures(const struct vp_timelines *ls, CUstream stream);
bool vp_timeline_nameable(const struct vp_timelines *ls, const struct vp_timeline *timeline);
int vp_timeline_record(struct vp_timelines *ls, struct vp_timeline *timeline);
/* Has the legacy stream nothing to do, nor any blocking one? Asked, which holds nothing up. */
bool vp_timelines_blocking_idle(const struct vp_timelines *ls, const struct vp_context *ctx);
void vp_timeline_met(struct vp_timeline *timeline, uint64_t seq);
void vp_timeline_quiet(struct vp_timelines *ls, struct vp_timeline *timeline);
void vp_event_recycle(struct vp_timelines *ls, struct vp_event *ev);
/* The timeline's stream cannot be named any more: no capture of it runs, and its points live on. */
void vp_timeline_gone(struct vp_timelines *ls, struct vp_timeline *timeline);
/* No capture of its stream runs (any more). */
void vp_timeline_capture_over(struct vp_timelines *ls, struct vp_timeline *timeline);

/* Is it a barrier one of whose points many events stand for together? */
static inline bool vp_timeline_covered(const struct vp_timeline *timeline) {
    return timeline->kind == VP_TIMELINE_BARRIER && timeline->context->cover;
}

#endif
