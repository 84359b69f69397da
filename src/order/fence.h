/* Fences: sets of points that must be reached before bytes change hands. fence.c tells the rules. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "order/timeline.h"

/* One requirement: all that was queued on the timeline up to there must be over. */
struct vp_point {
    struct vp_timeline *timeline;
    uint64_t seq : 63;
    uint64_t waitable : 1; /* its event was recorded at the free itself */
    struct vp_point *next;
};
/* No event has these numbers. */
#define VP_POINT_OF_THE_END (UINT64_MAX >> 2) /* reached when the timeline's context ends */
#define VP_POINT_NEVER (UINT64_MAX >> 1)

/* A set of points: all must be reached before another owner may touch the bytes. All zero: the empty set. */
struct vp_fence {
    struct vp_point first; /* its timeline is NULL in an empty set; further points are from a slab */
};

#define vp_fence_each(p, fence) for (const struct vp_point *p = &(fence)->first; p && p->timeline; p = p->next)

static inline bool vp_fence_empty(const struct vp_fence *fence) {
    return !fence->first.timeline;
}

/* Passes the points of `from` to `to`. Copies single words: reading two words at once that were just written one by one
 * takes longer. */
static inline void vp_fence_pass(struct vp_fence *to, struct vp_fence *from) {
    for (size_t at = 0; at < sizeof *to; at += sizeof(uint64_t))
        __builtin_memcpy((char *)to + at, (char *)from + at, sizeof(uint64_t));
    from->first.timeline = NULL;
}

/* Adds to `fence` the point of a free that happens now on `timeline`. With `record` the free gets an event of its own;
 * without it, or if none can be recorded, a later event must do. 0, or -ENOMEM with nothing changed. */
int vp_fence_add_free(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline, bool record);
/* The same into an empty fence, for a free that the calling thread makes on that stream. If vp_timeline_joins(), it
 * gets its event, and a wait for the stream then also covers what the legacy stream had before, as after CUDA's own
 * free; an event alone does not do that (H200). */
int vp_fence_add_command(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline, bool record);
/* The point of an earlier free on `timeline` that recorded no event, into an empty fence: nothing if the timeline's
 * context is gone. `seq`: the number that the timeline's next event had at the free. */
void vp_fence_add_past_free(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline,
                            uint64_t seq);
/* The same for a free that promises the end of all work of a context so far (cudaFree). `record` where all blocking
 * streams can be named (vp_timelines_all_named): only in a call of the program that waits for the device in CUDA. */
int vp_fence_add_barrier(struct vp_timelines *ls, struct vp_fence *fence, struct vp_context *ctx, bool record);

void vp_fence_clear(struct vp_timelines *ls, struct vp_fence *fence);
/* Adds the points of `from` to `to`. If memory runs out, `to` becomes stricter than both, never laxer. */
void vp_fence_unite(struct vp_timelines *ls, struct vp_fence *to, const struct vp_fence *from);
/* Are both empty, or the same single point? Larger sets count as different. */
bool vp_fence_same(const struct vp_fence *a, const struct vp_fence *b);

/* Drops points that are met; true if none is left. Makes no driver call. */
bool vp_fence_settle_points(struct vp_timelines *ls, struct vp_fence *fence);
static inline bool vp_fence_settle(struct vp_timelines *ls, struct vp_fence *fence) {
    return vp_fence_empty(fence) || vp_fence_settle_points(ls, fence);
}
/* May work queued now on `timeline` touch the bytes without a wait? (NULL: may anyone?) */
bool vp_fence_ready(const struct vp_fence *fence, const struct vp_timeline *timeline);
/* May `timeline` wait on the GPU until the bytes are its own? Only if each unmet point is waitable and, with `early`,
 * no host function can hold it up. */
bool vp_fence_waitable(const struct vp_fence *fence, const struct vp_timeline *timeline, bool early);
/* May the host wait for it? Only if each unmet point is a waitable one of a barrier. */
bool vp_fence_host_waitable(const struct vp_fence *fence);

/* Makes `timeline` wait for each point that it is not behind already. 0; -EBUSY: a point is not waitable, is of another
 * context that refuses, or `timeline` captures; -EIO. */
int vp_fence_wait(struct vp_timelines *ls, const struct vp_fence *fence, struct vp_timeline *timeline);
/* The event of the first unmet waitable point, held until vp_event_put(); NULL: none. */
struct vp_event *vp_fence_event(const struct vp_fence *fence);
