/* Learns stream by stream what a barrier would tell.
 *
 * While any stream of a context captures, no event can be recorded over the context, and what cudaFree gave back stays
 * in quarantine. On an idle device that must not end in "out of memory". So a caller that would have to give up begins
 * a *cover*: a point of the barrier that is reached once
 *   - each non-blocking stream has reached an event recorded since. A capturing stream gets none, and needs none if it
 *     got one before its capture began: no work has gone there since;
 *   - and the legacy stream was seen idle since, which tells of all blocking streams, other threads' own included. It
 *     is asked, and gets no event: that would make later work of blocking streams wait for earlier work of others,
 *     which may in turn wait for it. While a blocking stream captures, the legacy stream cannot be asked, and there is
 *     no cover;
 *   - and streams that were destroyed beside captures have reached the events that they got as they ended. Of others
 *     only a barrier tells what they have still queued: one that was destroyed when it had joined a capture, a
 *     thread's own. Until the next barrier there is no cover then.
 *
 * Drivers before 12.5 have no barriers, and would need that event on the legacy stream. There each stream is known by
 * name, so that covers serve at any time. If the legacy stream is not idle, blocking streams get events of their own, a
 * stream of ours stands in for the legacy stream, and destroyed streams got their last event as they ended. Streams
 * made since are not asked: a program that makes a new one before the last has ended would never see its memory again.
 * Nor are non-blocking ones, which fences name beside the barrier. Only per-thread streams cannot be named by other
 * threads: where they are used, the legacy stream gets its event after all. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

/* Has the stream done what it had queued when the cover began? */
static bool timeline_over(struct vp_timelines *ls, struct vp_timeline *timeline, uint64_t cover) {
    if (timeline->cover_for != cover) {
        if (timeline->before_capture)
            timeline->cover = timeline->before_capture;
        else if (vp_timeline_record(ls, timeline, true) == 0)
            timeline->cover = timeline->next - 1;
        else
            return false;
        timeline->cover_for = cover;
    }
    if (timeline->met < timeline->cover)
        vp_timeline_poll(ls, timeline);
    return timeline->met >= timeline->cover;
}

/* Need the cover not ask this stream, whatever that has queued? */
static bool left_out(const struct vp_timelines *ls, const struct vp_context *ctx, const struct vp_timeline *timeline) {
    if (timeline->kind != VP_TIMELINE_STREAM || timeline->stream == CU_STREAM_LEGACY)
        return true;
    if (ls->barriers)
        return timeline->gone ? vp_list_empty(&timeline->events) : !timeline->nonblocking;
    return timeline->nonblocking || (timeline->birth > ctx->cover_birth && timeline != ctx->aside);
}

static bool over(struct vp_timelines *ls, struct vp_context *ctx) {
    ctx->cover_idle = ctx->cover_idle || vp_timelines_blocking_idle(ls, ctx);
    const bool by_name = !ctx->cover_idle && vp_timelines_all_named(ls) && vp_context_aside(ls, ctx);
    bool all = by_name || ctx->cover_idle;
    struct vp_timeline *timeline;
    vp_list_each(timeline, &ctx->timelines, of_context) {
        if (left_out(ls, ctx, timeline))
            continue;
        if (timeline->gone)
            all &= !timeline->open && vp_list_empty(&timeline->events);
        else if (timeline->nonblocking || by_name)
            all &= timeline_over(ls, timeline, ctx->cover);
    }
    return all;
}

bool vp_context_cover(struct vp_timelines *ls, struct vp_context *ctx) {
    struct vp_timeline *barrier = ctx->barrier;
    if (ctx->ending || (!barrier->open && !ctx->cover) || (ls->barriers && ctx->uncovered > barrier->met))
        return false;
    if (!ctx->cover) {
        /* What is freed from now on is not behind it. */
        ctx->cover = barrier->next++;
        ctx->cover_birth = ls->timelines_made;
        ctx->cover_idle = barrier->open = false;
    }
    if (!over(ls, ctx))
        return false;
    vp_timeline_met(barrier, ctx->cover);
    vp_timeline_unpend(ls, barrier);
    ls->moves++;
    return true;
}

bool vp_timelines_cover(struct vp_timelines *ls) {
    bool moved = false;
    struct vp_context *ctx;
    int mode = vp_timelines_relax(ls);
    vp_timelines_check_captures(ls);
    vp_list_each(ctx, &ls->contexts, link)
        if (!ctx->gone)
            moved |= vp_context_cover(ls, ctx);
    vp_timelines_restore(ls, mode);
    return moved;
}
