/* Fences: when bytes that one owner has freed may be used by another.
 *
 * The goal: nobody gets bytes that work still uses, and no program waits for anything that it would not have waited for
 * with CUDA alone.
 *
 * What is known. A timeline numbers its events; the next one gets `next`. A free leaves a *point* (timeline, seq) in
 * the fence of its bytes: all that was queued before the free is over once event `seq`, or a later one, has completed.
 * A point is *met* when the driver has said so of such an event (seq <= timeline->met). Nothing is inferred from time,
 * and an error is no answer. A free by itself records no event: its point has the number of an event to come, and while
 * only one stream uses the pool none is ever recorded.
 *
 *     stream 1   work  free a  work  free b     event 1     work  free c, which records event 2
 *     fence            {(1,1)}       {(1,1)}                      {(1,2) waitable}
 *
 * Fences belong to bytes and move with them. The fence of united bytes is the union of both; of two points of one
 * timeline the later remains. When memory runs out a fence becomes stricter, never laxer.
 *
 * When bytes may be used. Work queued now on a stream may use the bytes if each point is met or is the stream's own,
 * whose next work comes after it anyway. Memory for all (cudaMalloc) has no stream, and takes only what is met. Beyond
 * that there are two ways to wait:
 *   - the stream waits on the GPU for the points' events (vp_fence_wait);
 *   - the host waits for the barrier that a cudaFree recorded (vp_fence_event): CUDA's own cudaFree waits there, too.
 *
 * Why this cannot hang. Only a *waitable* point is waited for: one whose event was recorded at the free itself. The
 * event of any other point comes later, behind work that may itself wait for whoever asks:
 *
 *     stream 1   free a   kernel that spins until stream 2 has set a flag   event 1
 *     stream 2                                                              wait for event 1, use a, set the flag
 *
 * Here stream 2 would wait for itself for ever. An event at the free would stand before the kernel. For the same reason
 * the union of two points is waitable only if the earlier one is met. So a wait adds no dependency except on what
 * preceded the free. It may still hang on something outside (another process, a host function), so callers that wait
 * early, before they have tried anything else, ask for points that no host function can hold up. Asking whether a later
 * event has completed is always allowed, since that stops nobody; event.c records such events so that they hold up no
 * stream. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

#include <errno.h>

static bool point_met(const struct vp_point *p) {
    return p->seq <= p->timeline->met;
}

static void point_free(struct vp_timelines *ls, struct vp_point *p) {
    p->timeline->refs--;
    vp_slab_free(&ls->point_slab, p);
}

static __attribute__((noinline)) void fence_add_more(struct vp_timelines *ls, struct vp_fence *fence,
                                                     struct vp_timeline *timeline, uint64_t seq, bool waitable) {
    struct vp_point *first = &fence->first, *p = first;
    for (; p; p = p->next) {
        if (p->timeline != timeline)
            continue;
        /* The union of two points of one timeline is the later one. Its event comes too late for the bytes of the
         * earlier one, unless that is met. */
        p->waitable = waitable && seq >= p->seq && (seq == p->seq ? p->waitable : point_met(p));
        p->seq = seq > p->seq ? seq : p->seq;
        return;
    }
    p = vp_slab_alloc(&ls->point_slab);
    if (!p) {
        /* Out of memory, so stricter: the first point becomes one that only the end of its context reaches; or that is
         * never reached, if another context's end would be needed, too. */
        const bool never = seq == VP_POINT_NEVER || first->seq == VP_POINT_NEVER;
        const bool same = first->timeline->context == timeline->context && !never;
        first->seq = same ? VP_POINT_OF_THE_END : VP_POINT_NEVER;
        first->waitable = 0;
        return;
    }
    *p = (struct vp_point){.timeline = timeline, .seq = seq, .waitable = waitable, .next = first->next};
    first->next = p;
    timeline->refs++;
}

/* Adds a point; a point of the same timeline that it covers is replaced. */
static inline void fence_add(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline,
                             uint64_t seq, bool waitable) {
    if (!vp_fence_empty(fence)) {
        fence_add_more(ls, fence, timeline, seq, waitable);
        return;
    }
    fence->first = (struct vp_point){.timeline = timeline, .seq = seq, .waitable = waitable};
    timeline->refs++;
}

/* The point of a free with no event of its own. */
static void add_open(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline) {
    vp_timeline_want_event(ls, timeline);
    fence_add(ls, fence, timeline, timeline->next, false);
}

int vp_fence_add_free(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline, bool record) {
    if (vp_slab_reserve(&ls->point_slab, 1) < 0)
        return -ENOMEM;
    if (record) {
        int mode = vp_timelines_relax(ls);
        int err = vp_timeline_record(ls, timeline, false);
        vp_timelines_restore(ls, mode);
        if (!err) {
            fence_add(ls, fence, timeline, timeline->next - 1, true);
            return 0;
        }
    }
    add_open(ls, fence, timeline);
    return 0;
}

void vp_fence_add_past_free(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline,
                            uint64_t seq) {
    if (timeline->context->gone)
        return;
    if (seq >= timeline->next)
        add_open(ls, fence, timeline);
    else
        fence_add(ls, fence, timeline, seq, false);
}

/* Without context barriers the barrier timeline is the legacy stream. Beside it each non-blocking stream needs its own
 * event; one that captures or is gone has its last. */
int vp_fence_add_barrier(struct vp_timelines *ls, struct vp_fence *fence, struct vp_context *ctx, bool record) {
    struct vp_timeline *timeline;
    int err = vp_fence_add_free(ls, fence, ctx->barrier, record);
    if (!ls->barriers)
        vp_list_each(timeline, &ctx->timelines, of_context) {
            const uint64_t last = timeline->gone ? timeline->next - !timeline->open : timeline->before_capture;
            if (err || !timeline->nonblocking || (timeline->gone && last <= timeline->met))
                continue;
            if (!last)
                err = vp_fence_add_free(ls, fence, timeline, record);
            else if (!(err = vp_slab_reserve(&ls->point_slab, 1)))
                fence_add(ls, fence, timeline, last, false);
        }
    return err;
}

void vp_fence_unite(struct vp_timelines *ls, struct vp_fence *to, const struct vp_fence *from) {
    vp_fence_each(p, from)
        fence_add(ls, to, p->timeline, p->seq, p->waitable);
}

void vp_fence_clear(struct vp_timelines *ls, struct vp_fence *fence) {
    struct vp_point *first = &fence->first;
    if (!first->timeline)
        return;
    for (struct vp_point *p = first->next, *next; p; p = next) {
        next = p->next;
        point_free(ls, p);
    }
    first->timeline->refs--;
    *first = (struct vp_point){0};
}

bool vp_fence_same(const struct vp_fence *one, const struct vp_fence *other) {
    const struct vp_point *a = &one->first, *b = &other->first;
    if (!a->timeline || !b->timeline)
        return a->timeline == b->timeline;
    return a->timeline == b->timeline && a->seq == b->seq && a->waitable == b->waitable && !a->next && !b->next;
}

bool vp_fence_settle_points(struct vp_timelines *ls, struct vp_fence *fence) {
    struct vp_point *first = &fence->first;
    for (struct vp_point **link = &first->next; *link;) {
        struct vp_point *p = *link;
        if (point_met(p)) {
            *link = p->next;
            point_free(ls, p);
        } else {
            link = &p->next;
        }
    }
    if (!point_met(first))
        return false;
    first->timeline->refs--;
    struct vp_point *p = first->next;
    *first = p ? *p : (struct vp_point){0};
    if (p)
        vp_slab_free(&ls->point_slab, p);
    return !p;
}

/* Does work of `timeline` come after the point anyway: the point is met, or of the same stream? But not if it stands
 * for other streams, too. */
static bool timeline_behind(const struct vp_timeline *timeline, const struct vp_point *p) {
    return (p->timeline == timeline && p->seq < VP_POINT_OF_THE_END) || point_met(p);
}

/* Has `timeline` waited for the point, or a later one, before? This only saves a wait: what a request may use must not
 * depend on a cache that forgets, nor on a late point that unites with a later one before the block is taken. */
static bool timeline_waited(const struct vp_timeline *timeline, const struct vp_point *p) {
    for (unsigned i = 0; i < VP_SEEN; i++)
        if (timeline->seen[i].birth == p->timeline->birth && timeline->seen[i].seq >= p->seq)
            return true;
    return false;
}

bool vp_fence_ready(const struct vp_fence *fence, const struct vp_timeline *timeline) {
    vp_fence_each(p, fence)
        if (!timeline_behind(timeline, p))
            return false;
    return true;
}

/* The event of exactly that point: mostly one of the last. */
static struct vp_event *point_event(const struct vp_point *p) {
    for (const struct vp_list *at = p->timeline->events.prev; at != &p->timeline->events; at = at->prev) {
        struct vp_event *ev = vp_container_of(at, struct vp_event, link);
        if (ev->seq <= p->seq)
            return ev->seq == p->seq ? ev : NULL;
    }
    return NULL;
}

/* Begins another turn: what is noted from now on belongs to it. */
static unsigned next_turn(struct vp_timelines *ls, bool legacy) {
    const unsigned others = legacy ? VP_WORK_OTHERS : VP_WORK_LEGACY;
    if (atomic_load(&vp_worked) & others) {
        atomic_fetch_add(&ls->turns[legacy], 1); /* first, for readers without the lock */
        atomic_fetch_and(&vp_worked, ~others);
    }
    return atomic_load_explicit(&ls->turns[legacy], memory_order_relaxed);
}

int vp_fence_add_command(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline, bool record) {
    const bool joins = vp_timeline_joins(ls, timeline), legacy = timeline->stream == CU_STREAM_LEGACY;
    const unsigned turn = joins ? next_turn(ls, legacy) : 0, awaited = vp_awaited;
    int err = vp_fence_add_free(ls, fence, timeline, record || joins);
    const struct vp_event *ev = err || !joins || !fence->first.waitable ? NULL : point_event(&fence->first);
    bool done = ev && legacy;
    if (ev && !legacy) {
        const struct vp_entered entered = vp_stream_enter(ls, timeline->context, timeline->stream);
        done = !entered.refused && !ls->drv->cuStreamWaitEvent(timeline->stream, ev->handle, 0);
        vp_context_leave(ls->drv, entered);
    }
    if (done) {
        timeline->awaited = awaited;
        timeline->turn = turn;
    }
    if (done && legacy)
        atomic_fetch_or(&vp_worked, VP_WORK_LEGACY);
    return err;
}

/* Can a host function hold up the point? Any stream's can, if the point's stream waits for that stream. */
static bool point_held_up(const struct vp_point *p) {
    const struct vp_timelines *ls = p->timeline->context->registry;
    const struct vp_event *ev = ls->host_funcs ? point_event(p) : NULL;
    return ls->host_funcs && (!ev || ev->serial > ls->host_funcs_from);
}

bool vp_fence_waitable(const struct vp_fence *fence, const struct vp_timeline *timeline, bool early) {
    vp_fence_each(p, fence)
        if (!timeline_behind(timeline, p) &&
            (!p->waitable || p->timeline->context->ending || (early && point_held_up(p))))
            return false;
    return timeline != NULL;
}

bool vp_fence_host_waitable(const struct vp_fence *fence) {
    vp_fence_each(p, fence)
        if (!point_met(p) &&
            !(p->waitable && p->timeline->kind == VP_TIMELINE_BARRIER && !p->timeline->context->ending))
            return false;
    return true;
}

int vp_fence_wait(struct vp_timelines *ls, const struct vp_fence *fence, struct vp_timeline *timeline) {
    vp_fence_each(p, fence) {
        if (timeline_behind(timeline, p) || timeline_waited(timeline, p))
            continue;
        struct vp_event *ev = point_event(p);
        if (!ev || !p->waitable)
            return -EBUSY;
        uint64_t begin = vp_timer_begin(ls);
        const struct vp_entered entered = vp_stream_enter(ls, timeline->context, timeline->stream);
        /* A capture may have begun while memory was waited for without the lock. A wait for outside work would end
         * it. */
        bool refused = entered.refused || vp_timeline_captures(ls, timeline->stream);
        CUresult res = refused ? CUDA_SUCCESS : ls->drv->cuStreamWaitEvent(timeline->stream, ev->handle, 0);
        vp_context_leave(ls->drv, entered);
        vp_timer_end(timeline->context, begin);
        if (refused)
            return -EBUSY;
        timeline->context->stats->waits++;
        /* A context that ended unseen has no work left to wait for. */
        if (res && vp_context_died(p->timeline->context, res))
            continue;
        if (res) {
            /* The other context may be the one that fails: a request of this one can go on without it. */
            vp_context_failed(p->timeline->context, res);
            return p->timeline->context == timeline->context ? -EIO : -EBUSY;
        }
        timeline->seen[timeline->seen_at].birth = p->timeline->birth;
        timeline->seen[timeline->seen_at].seq = p->seq;
        timeline->seen_at = (timeline->seen_at + 1) % VP_SEEN;
    }
    return 0;
}

struct vp_event *vp_fence_event(const struct vp_fence *fence) {
    vp_fence_each(p, fence) {
        struct vp_event *ev = point_met(p) || !p->waitable ? NULL : point_event(p);
        if (ev) {
            ev->refs++;
            return ev;
        }
    }
    return NULL;
}
