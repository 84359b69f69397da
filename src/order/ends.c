/* The ends of streams, of threads with their own streams, and of contexts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

/* From so many timelines on that are gone, a look is worthwhile whether they can be freed. */
enum { LINGER = 64 };

bool vp_timelines_linger(const struct vp_timelines *ls) {
    return ls->lingering >= LINGER && ls->lingering >= ls->tidy_at;
}

/* From now on the timeline's stream cannot be named: no capture of it runs, and its points live on. `told`: its events
 * tell of all that it has queued. */
static void timeline_gone(struct vp_timelines *ls, struct vp_timeline *timeline, bool told) {
    struct vp_context *ctx = timeline->context;
    timeline->gone = true;
    vp_list_remove(&timeline->of_thread);
    ls->last = NULL;
    if (timeline->kind == VP_TIMELINE_STREAM)
        vp_table_take(&ls->by_id, timeline->id);
    vp_timeline_capture_over(ls, timeline);
    /* Only the barrier tells of what it has still queued. */
    if (timeline->kind == VP_TIMELINE_STREAM && !told)
        ctx->uncovered = ctx->barrier->next;
    ls->lingering++;
}

void vp_timeline_destroying(struct vp_timelines *ls, struct vp_timeline *timeline) {
    if (ls->closing)
        ls->closing(ls->user, timeline);
    /* Without barriers, or while captures forbid them, only this event tells of its work. Without, if it cannot be
     * recorded, nothing ever will. */
    const bool alone = !ls->barriers || atomic_load(&ls->captures);
    int mode = vp_timelines_relax(ls);
    const bool lacks = (timeline->open || alone) && vp_timeline_record(ls, timeline, false) &&
                       !timeline->before_capture;
    if (lacks && !ls->barriers)
        vp_timeline_want_event(ls, timeline);
    vp_timelines_restore(ls, mode);
    timeline_gone(ls, timeline, alone && !lacks);
    vp_timelines_sweep(ls, VP_SWEPT);
    vp_timeline_unpend(ls, timeline);
}

void vp_timelines_thread_ended(struct vp_timelines *ls, struct vp_list *own) {
    struct vp_timeline *timeline, *next;
    vp_list_each_safe(timeline, next, own, of_thread) {
        if (ls->closing)
            ls->closing(ls->user, timeline);
        timeline_gone(ls, timeline, false);
        vp_timeline_unpend(ls, timeline);
    }
    vp_timelines_sweep(ls, VP_SWEPT);
}

void vp_context_mark(struct vp_timelines *ls, struct vp_context *ctx) {
    struct vp_timeline *timeline;
    int mode = vp_timelines_relax(ls);
    vp_list_each(timeline, &ctx->timelines, of_context)
        if (!timeline->gone && (timeline->kind == VP_TIMELINE_STREAM || (ls->barriers && !atomic_load(&ls->captures))))
            vp_timeline_record(ls, timeline, false);
    vp_timelines_restore(ls, mode);
}

bool vp_context_works(const struct vp_context *ctx) {
    const struct vp_timeline *timeline;
    vp_list_each(timeline, &ctx->timelines, of_context)
        if (!vp_list_empty(&timeline->events))
            return !ctx->sick && !ctx->lost && !ctx->gone;
    return false;
}

void vp_context_drop(struct vp_timelines *ls, struct vp_context *ctx) {
    struct vp_timeline *timeline, *next_timeline;
    struct vp_event *ev, *next_event;
    ls->current = NULL;
    if (vp_table_get(&ls->by_handle, (uintptr_t)ctx->handle) == ctx)
        vp_table_take(&ls->by_handle, (uintptr_t)ctx->handle);
    ctx->gone = true;
    ctx->lost = false;
    ctx->cover = 0;
    ctx->aside = NULL;
    vp_list_each_safe(timeline, next_timeline, &ctx->timelines, of_context) {
        if (ls->closing && !timeline->gone)
            ls->closing(ls->user, timeline);
        vp_list_each_safe(ev, next_event, &timeline->events, link)
            vp_event_recycle(ls, ev);
        if (!timeline->gone)
            timeline_gone(ls, timeline, false);
        vp_timeline_over(timeline);
        ls->moves++;
        vp_timeline_unpend(ls, timeline);
    }
    vp_list_each_safe(ev, next_event, &ctx->spare, link) {
        vp_list_remove(&ev->link);
        vp_slab_free(&ls->event_slab, ev);
    }
}

void vp_context_tidy(struct vp_timelines *ls) {
    vp_timelines_sweep(ls, ls->lingering);
    /* Twice as many as are left, so that those which cannot be freed yet are not looked at again and again. */
    ls->tidy_at = 2 * ls->lingering;
}
