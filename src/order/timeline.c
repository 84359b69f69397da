/* The registry of timelines, and what is known of each. Makes no driver calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

atomic_uint vp_worked, vp_awaited;

void vp_timelines_init(struct vp_timelines *ls, const struct vp_driver *drv) {
    *ls = (struct vp_timelines){.drv = drv, .barriers = drv->cuCtxRecordEvent != NULL};
    atomic_store(&vp_worked, 0); /* whoever notes more tells the registry, too */
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

struct vp_timeline *vp_timeline_new(struct vp_timelines *ls, struct vp_context *ctx, enum vp_timeline_kind kind,
                                    uint64_t id) {
    struct vp_timeline *timeline = vp_slab_alloc(&ls->timeline_slab);
    if (!timeline)
        return NULL;
    timeline->kind = kind;
    timeline->id = id;
    timeline->birth = ++ls->timelines_made;
    timeline->next = 1;
    timeline->context = ctx;
    vp_list_init(&timeline->events);
    vp_list_init(&timeline->pending);
    vp_list_init(&timeline->capturing);
    vp_list_init(&timeline->of_thread);
    vp_list_append(&ctx->timelines, &timeline->of_context);
    return timeline;
}

void vp_timeline_want_event(struct vp_timelines *ls, struct vp_timeline *timeline) {
    timeline->open = true;
    vp_timeline_pend(ls, timeline);
}

void vp_timeline_host_func(struct vp_timelines *ls, struct vp_timeline *timeline) {
    if (!timeline->host_func && !ls->host_funcs++)
        ls->host_funcs_from = ls->recorded;
    timeline->host_func = timeline->next;
    vp_timeline_want_event(ls, timeline);
}

void vp_timeline_over(struct vp_timeline *timeline) {
    timeline->open = false;
    vp_timeline_met(timeline, VP_POINT_OF_THE_END);
}

void vp_timelines_sweep(struct vp_timelines *ls, size_t most) {
    for (size_t i = 0; i < most && !vp_list_empty(&ls->ended); i++) {
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
