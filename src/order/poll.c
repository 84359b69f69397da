/* Polls all timelines, and records events for those that lack one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

bool vp_timelines_poll(struct vp_timelines *ls, bool flush) {
    bool moved = false;
    struct vp_timeline *timeline, *tmp;
    int mode = vp_timelines_relax(ls);
    if (!vp_list_empty(&ls->ended))
        vp_timelines_sweep(ls, VP_SWEPT);
    vp_list_each_safe(timeline, tmp, &ls->pending, pending) {
        const bool covered = vp_timeline_covered(timeline);
        const bool due = flush && (timeline->open || (covered && vp_list_empty(&timeline->events)));
        if (timeline->kind == VP_TIMELINE_BARRIER && vp_timelines_all_named(ls)) {
            moved |= (due || covered) && vp_context_cover(ls, timeline->context);
            if (due && covered && timeline->open && !vp_timeline_covered(timeline)) /* what came since is next */
                moved |= vp_context_cover(ls, timeline->context);
        } else if (due) {
            if (timeline->stream == CU_STREAM_LEGACY && vp_timelines_all_named(ls))
                vp_context_aside(ls, timeline->context);
            vp_timeline_record(ls, timeline, timeline->kind == VP_TIMELINE_STREAM);
        }
        moved |= vp_timeline_poll(ls, timeline);
        vp_timeline_unpend(ls, timeline);
    }
    vp_timelines_restore(ls, mode);
    return moved;
}

void vp_timelines_poll_for(struct vp_timelines *ls, uint64_t ns) {
    uint64_t begin = vp_clock_ns();
    do
        vp_timelines_poll(ls, true);
    while (vp_timelines_waiting(ls, ls->recorded) && vp_clock_ns() - begin < ns);
}
