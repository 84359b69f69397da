/* Lines of work, and the points on them that memory must wait for.
 *
 * A *timeline* is something whose work completes in order as far as we can see it: a stream, or the barrier of a
 * context (one event over all its streams). Frees are numbered along a timeline. The *point* (timeline, seq) is reached
 * once an event recorded as number `seq` or later has completed; a point that the host has *seen* reached is *met*.
 * Most points never get an event: while only one stream uses the pool nobody asks.
 *
 * A point is *waitable* if event `seq` was recorded at that very free. Only such an event may be waited for. A
 * later event also covers the point and may be asked; to wait for it could hang the program, since work queued in
 * between may itself wait for us.
 *
 * Everything here runs under the one lock of the library (see api.c), which the caller holds; it is let go by nobody
 * below.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_TIMELINE_H
#define VP_TIMELINE_H

#include "base/list.h"
#include "base/table.h"
#include "base/slab.h"
#include "driver/driver.h"

#include <stdatomic.h>

struct vp_timeline;

/* One requirement: what was queued on the timeline up to there must be over. */
struct vp_point {
    struct vp_timeline *timeline;
    uint64_t seq : 63;
    uint64_t waitable : 1; /* an event was recorded at the very free */
    struct vp_point *next;
};

/* A set of points: all must be reached before another owner may touch the bytes. All zero: the empty set. */
struct vp_fence {
    struct vp_point first; /* its timeline is NULL if the set is empty; the others are from a slab */
};

#define vp_fence_each(p, fence) for (const struct vp_point *p = &(fence)->first; p && p->timeline; p = p->next)

static inline bool vp_fence_empty(const struct vp_fence *fence) {
    return !fence->first.timeline;
}

/* An event recorded on a timeline. */
struct vp_event {
    struct vp_list link; /* vp_timeline.events, oldest first, or vp_context.spare */
    CUevent handle;
    uint64_t seq;    /* on its timeline */
    uint64_t serial; /* among all events ever recorded */
    unsigned refs;   /* threads that wait for it outside the lock; the last one recycles it if it left its timeline */
    bool dropped;    /* left its timeline meanwhile */
    struct vp_context *context;
};

enum vp_timeline_kind { VP_TIMELINE_STREAM, VP_TIMELINE_BARRIER };

static inline bool vp_timeline_id_is_barrier(uint64_t id) {
    return id >> 63;
}

/* What one timeline has waited for lately, so that it need not wait twice. A small cache; losing an entry costs a wait.
 */
enum { VP_SEEN = 8 };

struct vp_timeline {
    uint64_t id; /* cuStreamGetId + 1: unique in the process; top bit set for a barrier. A stream that was taken for
                    ended and comes back gets another timeline */
    enum vp_timeline_kind kind;
    uint64_t birth;  /* of this timeline among all ever made, from 1: what its points are counted along */
    uint32_t number; /* of this stream among all ever seen, from 1 */
    CUstream stream;
    bool per_thread; /* only its own thread can name it */
    bool nonblocking;
    bool gone;     /* the stream was destroyed, or its thread has ended; its events live on */
    bool lost;     /* the stream was destroyed, and nobody has told us */
    bool open;     /* some point has number `next`: no event covers it yet */
    uint64_t next; /* the number that the next event gets */
    uint64_t met;  /* every point up to here was seen reached */
    uint64_t rest; /* while its stream captures: the number of an event behind all its real work; 0: none is known */
    uint64_t host_func; /* the point behind a host function that is not known to be over; 0: there is none */
    uint64_t cover_for,
        cover;             /* vp_context.cover that it takes part in; and its own point that this needs (see cover.c) */
    struct vp_list events; /* of vp_event.link: recorded, not yet seen completed */
    size_t event_count, ask_at; /* how many these are, and how many make it ask some by itself */
    size_t refs;                /* points that name this timeline */
    struct {
        uint64_t birth, seq;
    } seen[VP_SEEN]; /* this timeline waits behind those points already */
    unsigned seen_at;
    struct vp_context *context;
    struct vp_list of_context; /* vp_context.timelines */
    struct vp_list
        pending; /* vp_timelines.pending: has events or open points; or vp_timelines.ended: is gone, and has neither */
    struct vp_list capturing; /* vp_timelines.capturing, while its stream captures */
    struct vp_list of_thread; /* of a thread's own stream: what vp_timelines.of_thread gave, until the thread ends */
    struct vp_stream_store *store; /* what the pool of its device keeps for it; NULL until it frees there */
};

struct vp_timeline_stats {
    uint64_t records, barriers, queries,
        waits;   /* calls of cuEventRecord, cuCtxRecordEvent, cuEventQuery, cuStreamWaitEvent */
    uint64_t ns; /* spent in them, by a sample */
};

struct vp_context {
    CUcontext handle;
    struct vp_timelines *registry; /* the registry that it is in */
    uint64_t id; /* cuCtxGetId: unique in the process, which handles are not; 0: the driver lacks it */
    CUdevice device;
    struct vp_timeline *barrier;
    struct vp_list timelines; /* of vp_timeline.of_context; owned */
    struct vp_list spare;     /* of vp_event.link; owned */
    struct vp_list link;      /* vp_timelines.contexts */
    bool primary;             /* the device's primary context */
    unsigned retains;         /* of a primary context: those that the doors saw, less the releases */
    bool gone;                /* destroyed: all its work is over, its handles are dead */
    atomic_bool ending;       /* being destroyed: its handles are not to be used any more, its work may still run */
    unsigned waiters;         /* threads that ask one of its events outside the lock; they look at `ending` */
    CUresult error; /* the last answer of a query or wait in it that was neither done nor not-ready; 0: none since it
                       was set back */
    bool sick; /* the driver has answered with an error that no context recovers from: whatever is asked of it fails */
    unsigned pins;      /* threads that allocate for it and may have let the lock go: the struct stays */
    bool lost;          /* has ended without a word to us: vp_timelines_lost() tells of it */
    bool bygone;        /* keeps the counts of those of its device that were forgotten */
    uint64_t cover;     /* a point of the barrier that many events together stand for; 0: none (see cover.c) */
    bool cover_idle;    /* what the legacy stream covers was seen over since */
    uint64_t uncovered; /* a stream ended of which only the barrier's point of this number, or a later one, tells */
    struct vp_timeline_stats stats;
};

/* The registry. One for a process (or for a test). */
struct vp_timelines {
    const struct vp_driver *drv;
    struct vp_table by_id;     /* vp_timeline by stream id */
    struct vp_table by_handle; /* vp_context by handle; a destroyed one is taken out at once */
    struct vp_list contexts;   /* of vp_context.link: those that live; and destroyed ones, forgotten when the next one
                                  comes and no point names them */
    struct vp_list pending;    /* of vp_timeline.pending */
    struct vp_list ended;      /* of vp_timeline.pending: freed later, once no point names them */
    struct vp_list capturing;  /* of vp_timeline.capturing */
    size_t lingering;          /* timelines that are gone and not yet freed */
    size_t tidy_at;            /* how many of them make vp_timelines_linger() say so */
    bool lost;                 /* some context is */
    struct vp_slab timeline_slab, event_slab, context_slab, point_slab;
    atomic_int captures; /* captures that run now: while 0, nothing asks for them */
    bool barriers;       /* the driver has cuCtxRecordEvent */
    uint64_t barriers_made, timelines_made;
    uint32_t streams_seen;
    uint64_t recorded;        /* events recorded so far */
    size_t host_funcs;        /* timelines with `host_func` */
    uint64_t host_funcs_from; /* events up to this one were recorded before any of these was queued */
    uint64_t calls;           /* of those that are timed, one in some */
    uint64_t moves;           /* how often some timeline's `met` moved */
    void (*arrived)(void *user, struct vp_context *ctx); /* told of each context when it is first seen */
    void (*closing)(void *user,
                    struct vp_timeline
                        *timeline); /* told while a timeline's stream, or the end of its context, can still be named */
    void (*forget)(void *user, struct vp_timeline *timeline); /* told before a timeline's memory is used again */
    struct vp_list *(*of_thread)(void *user);                 /* where to link the calling thread's own streams, for
                                                                 vp_timelines_thread_ended(); NULL: its end is not told */
    void *user;
};

void vp_timelines_init(struct vp_timelines *ls, const struct vp_driver *drv);
/* Frees our memory; makes no driver call. */
void vp_timelines_finish(struct vp_timelines *ls);

/* The calling thread's current context, or NULL if there is none or memory ran out. */
struct vp_context *vp_context_current(struct vp_timelines *ls);
/* The context of that handle (which must be alive), or NULL. */
struct vp_context *vp_context_get(struct vp_timelines *ls, CUcontext handle);
/* A context of that device which can be made current, the primary one if there is one; or NULL. */
struct vp_context *vp_context_on(const struct vp_timelines *ls, CUdevice dev);
/*
 * Before a context is destroyed: from now on none of its handles is touched, and its own is looked up no more, since
 * the driver may give it to another context before we hear of the end. The caller then waits, letting the lock go,
 * until nobody is left in `waiters`.
 */
void vp_context_end(struct vp_timelines *ls, struct vp_context *ctx);
/* The context that vp_context_end() was told of under this handle, the oldest first; NULL if there is none. */
struct vp_context *vp_context_ending(struct vp_timelines *ls, CUcontext handle);
/* The driver answered a query or a wait in it with an error: kept in `error`, unless it shows that the context has
 * ended with nobody telling us. */
void vp_context_failed(struct vp_context *ctx, CUresult res);
/* It lives on after all. */
void vp_context_revive(struct vp_timelines *ls, struct vp_context *ctx);
/* The sum of what the contexts of a device counted. */
struct vp_timeline_stats vp_timelines_stats(const struct vp_timelines *ls, CUdevice dev);
/* A context that was found to have ended, without vp_context_end(): to be dropped. NULL: there is none. */
struct vp_context *vp_context_lost(struct vp_timelines *ls);
/* Does the driver know no context under its handle (any more)? */
bool vp_context_dead(const struct vp_timelines *ls, const struct vp_context *ctx);
/* Asks whether the context that we know under a handle is the one that lives: it may have ended unseen, and another
 * have begun. */
void vp_context_check(struct vp_timelines *ls, struct vp_context *ctx);
/* Asks whether those contexts live whose streams capture, and whether these still do: a capture that ended unseen holds
 * up every barrier. */
void vp_timelines_check_captures(struct vp_timelines *ls);
/* The end of a context that was told of before: all its points count as met, its streams and events are forgotten. The
 * struct stays valid as long as points name it. */
void vp_context_drop(struct vp_timelines *ls, struct vp_context *ctx);

/* The timeline of a stream handle, as the calling thread means it. -ENODEV: no context; -EBUSY: it captures; -ENOMEM.
 */
int vp_timeline_get(struct vp_timelines *ls, CUstream stream, struct vp_timeline **out);
/* True if the stream captures now. Asks the driver only while captures run. */
bool vp_timeline_captures(struct vp_timelines *ls, CUstream stream);
/* A host function was queued on the timeline: it may hold up what is freed behind it, on whatever stream, since streams
 * wait for each other. */
void vp_timeline_host_func(struct vp_timelines *ls, struct vp_timeline *timeline);
/*
 * A capture begins on the stream (which is then counted), or is over. A stream that captures can be given no event, and
 * needs none, if it got one before: drivers without context barriers need it, and others while captures forbid these.
 */
void vp_timeline_capture(struct vp_timelines *ls, struct vp_timeline *timeline, bool begins);
/* The timeline of a stream that captures as far as we know, or NULL. Of a thread's own it is not to be asked. A stream
 * of a context that is ending may have given its handle to another. */
struct vp_timeline *vp_timeline_capturing(const struct vp_timelines *ls, CUstream stream);
/* Before cuStreamDestroy: gives open points their event. */
void vp_timeline_destroying(struct vp_timelines *ls, struct vp_timeline *timeline);
/* The calling thread ends, and its own streams with it: those linked to the list. Makes no driver call, since the
 * thread's part of the driver may be gone. */
void vp_timelines_thread_ended(struct vp_timelines *ls, struct vp_list *own);
/* True now and then, when many timelines that are gone linger: it is time to poll and to file the free regions anew, so
 * that no point names them any more. */
bool vp_timelines_linger(struct vp_timelines *ls);

/*
 * The point of a free that happens now on `timeline`, added to `fence` (whatever it held before). With `record` the
 * free gets its own event; where that is not to be had, or without `record`, a later event must do. Returns 0, or
 * -ENOMEM with nothing changed.
 */
int vp_fence_add_free(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline, bool record);
/* The point of a free that happened on `timeline` earlier, with no event of its own, as the (empty) condition: met if
 * the timeline's context is gone. */
void vp_fence_add_late(struct vp_timelines *ls, struct vp_fence *fence, struct vp_timeline *timeline);
/* The same for a free that promises the end of all work of a context so far (cudaFree). */
int vp_fence_add_barrier(struct vp_timelines *ls, struct vp_fence *fence, struct vp_context *ctx, bool record);

/* Drops `n` points of a timeline whose conditions were passed over without being cleared. */
void vp_timeline_drop_points(struct vp_timeline *timeline, size_t n);

int vp_fence_copy(struct vp_timelines *ls, struct vp_fence *to, const struct vp_fence *from);
void vp_fence_clear(struct vp_timelines *ls, struct vp_fence *fence);
/* Adds the points of `from` to `to`. 0 or -ENOMEM (`to` is then stricter than before, never laxer). */
int vp_fence_unite(struct vp_timelines *ls, struct vp_fence *to, const struct vp_fence *from);
bool vp_fence_same(const struct vp_fence *a, const struct vp_fence *b);

/* Drops the points that are met; true if none is left. Asks the driver nothing. */
bool vp_fence_settle(struct vp_timelines *ls, struct vp_fence *fence);
/* May work queued now on `timeline` touch the bytes with no more waiting? (`timeline` NULL: may anyone?) */
bool vp_fence_ready(const struct vp_fence *fence, const struct vp_timeline *timeline);
/* Could `timeline` be made ready by waiting on the GPU under the rules: own points only, and for `early`, nothing
 * outside may hold them up? */
bool vp_fence_waitable(const struct vp_fence *fence, const struct vp_timeline *timeline, bool early);
/* Could the host wait for it: each point met, or the own barrier of a cudaFree? */
bool vp_fence_host_waitable(const struct vp_fence *fence);

/*
 * Makes `timeline` wait for every point that it is not behind already. 0, -EBUSY (one is not its free's own, so that
 * nothing may wait for it, or is of another context and refuses; or `timeline` captures) or -EIO.
 */
int vp_fence_wait(struct vp_timelines *ls, const struct vp_fence *fence, struct vp_timeline *timeline);
/* The event of the first unmet point of a waitable condition, held until vp_event_put(); NULL if all are met. */
struct vp_event *vp_fence_event(const struct vp_fence *fence);
void vp_event_put(struct vp_timelines *ls, struct vp_event *ev);

/*
 * Asks what has completed, first recording an event for open points if `flush`. True if any timeline's `met` moved.
 * Errors that the driver reports are noted in the contexts that they are of.
 */
bool vp_timelines_poll(struct vp_timelines *ls, bool flush);

/*
 * While captures forbid barriers: looks, stream by stream, whether what the open barriers wait for is over. Makes no
 * stream wait for anything. Dearer than a poll; for those who would otherwise have to give up. True if any timeline's
 * `met` moved.
 */
bool vp_timelines_cover(struct vp_timelines *ls);

/* Is an event still pending that was recorded as number `serial` (of ls->recorded) or before, and can yet complete? */
bool vp_timelines_waiting(const struct vp_timelines *ls, uint64_t serial);
/* Are there points that no event covers yet, or not the one event? */
bool vp_timelines_open(const struct vp_timelines *ls);
/* Polls until nothing recorded is pending, at most for so long: on an idle device an event is done half a microsecond
 * after it was recorded. */
void vp_timelines_poll_for(struct vp_timelines *ls, uint64_t ns);

/* The calling thread's capture mode, relaxed around our own driver calls; restore on every path. */
CUstreamCaptureMode vp_capture_relax(const struct vp_timelines *ls);
void vp_capture_restore(const struct vp_timelines *ls, CUstreamCaptureMode mode);

#endif
