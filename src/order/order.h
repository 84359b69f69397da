/* What the files of the registry of lines share: line.c, context.c, cover.c. */
#ifndef VP_LINE_PRIVATE_H
#define VP_LINE_PRIVATE_H

#include "order/timeline.h"

/* While no capture runs, and none can begin before the caller lets the lock go, there is nothing to relax. */
enum { VP_NOT_RELAXED = -1 };

static inline int vp_lines_relax(const struct vp_lines *ls) {
    return atomic_load_explicit(&ls->captures, memory_order_acquire) ? (int)vp_capture_relax(ls) : VP_NOT_RELAXED;
}

static inline void vp_lines_restore(const struct vp_lines *ls, int mode) {
    if (mode != VP_NOT_RELAXED)
        vp_capture_restore(ls, (CUstreamCaptureMode)mode);
}

/* ---- context.c ---- */

struct vp_line *vp_line_new(struct vp_lines *ls, struct vp_context *ctx, enum vp_line_kind kind, uint64_t id);
/* Runs with `ctx` current; undone by vp_context_leave() with what it returned. */
bool vp_context_enter(const struct vp_lines *ls, const struct vp_context *ctx);
void vp_context_leave(const struct vp_lines *ls, bool entered);
/*
 * A call on an event of the context failed with `res`: has the context ended, with nobody telling us? (By a route without a door.) Its points then count as met; it is dropped
 * when vp_context_lost() has told of it.
 */
bool vp_context_died(struct vp_context *ctx, CUresult res);

/* ---- line.c ---- */

bool vp_stream_captures(const struct vp_lines *ls, CUstream stream);
bool vp_line_nameable(const struct vp_lines *ls, const struct vp_line *line);
int vp_line_record(struct vp_lines *ls, struct vp_line *line);
/* Has the legacy stream nothing to do, nor any blocking one? Asked, which holds nothing up. */
bool vp_lines_blocking_idle(const struct vp_lines *ls, const struct vp_context *ctx);
void vp_line_met(struct vp_line *line, uint64_t seq);
void vp_line_quiet(struct vp_lines *ls, struct vp_line *line);
void vp_event_recycle(struct vp_lines *ls, struct vp_event *ev);
/* The line's stream cannot be named any more: no capture of it runs, and its points live on. */
void vp_line_gone(struct vp_lines *ls, struct vp_line *line);
/* No capture of its stream runs (any more). */
void vp_line_capture_over(struct vp_lines *ls, struct vp_line *line);

/* Is it a barrier one of whose points many events stand for together? */
static inline bool vp_line_covered(const struct vp_line *line) {
    return line->kind == VP_LINE_BARRIER && line->context->cover;
}

#endif
