/* Fences: the sets of points that must be reached before bytes change hands. The rules are told in fence.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "order/timeline.h"

/* One requirement: what was queued on the timeline up to there must be over. */
struct vp_point {
    struct vp_timeline *timeline;
    uint64_t seq : 63;
    uint64_t waitable : 1; /* an event was recorded at the very free */
    struct vp_point *next;
};
/* No event has these numbers. */
#define VP_POINT_OF_THE_END (UINT64_MAX >> 2) /* of the timeline's context */
#define VP_POINT_NEVER (UINT64_MAX >> 1)

/* A set of points: all must be reached before another owner may touch the bytes. All zero: the empty set. */
struct vp_fence {
    struct vp_point first; /* its timeline is NULL if the set is empty; the others are from a slab */
};

#define vp_fence_each(p, fence) for (const struct vp_point *p = &(fence)->first; p && p->timeline; p = p->next)

static inline bool vp_fence_empty(const struct vp_fence *fence) {
    return !fence->first.timeline;
}

/* The points of `from` pass to `to`: word by word, since two at once that were just written one by one take longer. */
static inline void vp_fence_pass(struct vp_fence *to, struct vp_fence *from) {
    for (size_t at = 0; at < sizeof *to; at += sizeof(uint64_t))
        __builtin_memcpy((char *)to + at, (char *)from + at, sizeof(uint64_t));
    from->first.timeline = NULL;
}

/* The point of a free that happens now on `timeline`, added to `fence` (whatever it held before). With `record` the
 * free gets its own event; where that is not to be had, or without `record`, a later event must do. Returns 0, or
 * -ENOMEM with nothing changed. */
int vp_fence_add_free(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline, bool record);
/* The same of a free that the calling thread makes on that stream, in an empty fence. Where vp_timeline_joins() it gets
 * its event, and whoever waits for the stream waits for what the legacy one has had before, too, as by CUDA's own: an
 * event alone does not do (H200). */
int vp_fence_add_command(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline, bool record);
/* The point of a free that happened on `timeline` earlier, with no event of its own, in an empty fence: none if
 * the timeline's context is gone. The timeline's next event had the number `seq` at the free. */
void vp_fence_add_late(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline, uint64_t seq);
/* The same for a free that promises the end of all work of a context so far (cudaFree). `record` where blocking streams
 * can all be named (vp_timelines_all_named): only within a call of the program's that waits for the device in CUDA. */
int vp_fence_add_barrier(struct vp_timelines *ls, struct vp_fence *fence, struct vp_context *ctx, bool record);

void vp_fence_clear(struct vp_timelines *ls, struct vp_fence *fence);
/* Adds the points of `from` to `to`; for want of memory it gets stricter than both, never laxer. */
void vp_fence_unite(struct vp_timelines *ls, struct vp_fence *to, const struct vp_fence *from);
/* Said of empty sets and of single points; larger sets pass for different. */
bool vp_fence_same(const struct vp_fence *a, const struct vp_fence *b);

/* Drops the points that are met; true if none is left. Asks the driver nothing. */
bool vp_fence_settle_points(struct vp_timelines *ls, struct vp_fence *fence);
static inline bool vp_fence_settle(struct vp_timelines *ls, struct vp_fence *fence) {
    return vp_fence_empty(fence) || vp_fence_settle_points(ls, fence);
}
/* May work queued now on `timeline` touch the bytes with no more waiting? (`timeline` NULL: may anyone?) */
bool vp_fence_ready(const struct vp_fence *fence, const struct vp_timeline *timeline);
/* Could `timeline` be made ready by waiting on the GPU under the rules: waitable points only, and for `early`, no
 * host function may hold them up? */
bool vp_fence_waitable(const struct vp_fence *fence, const struct vp_timeline *timeline, bool early);
/* Could the host wait for it: each point met, or a waitable one of a barrier? */
bool vp_fence_host_waitable(const struct vp_fence *fence);

/* Makes `timeline` wait for every point that it is not behind already. 0, -EBUSY (one is not waitable, or is of another
 * context and refuses; or `timeline` captures) or -EIO. */
int vp_fence_wait(struct vp_timelines *ls, const struct vp_fence *fence, struct vp_timeline *timeline);
/* The event of the first unmet point that is waitable, held until vp_event_put(); NULL if there is none. */
struct vp_event *vp_fence_event(const struct vp_fence *fence);
