/* Timelines: sequences of work that completes in order, as far as we can see; and the registry of all timelines.
 *
 * A timeline is a stream, or the barrier of a context (one event over all its streams). Its events are numbered;
 * fence.c tells what that means for memory. All functions of this folder run under the library's lock, which the caller
 * holds and which none of them releases. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/slab.h"
#include "base/table.h"
#include "order/context.h"

/* An event of ours, recorded on a timeline. */
struct vp_event {
    struct vp_list link; /* in vp_timeline.events, oldest first, or vp_context.spare */
    CUevent handle;
    uint64_t seq;    /* number on its timeline */
    uint64_t serial; /* number among all events ever recorded */
    unsigned refs;   /* threads that wait for it without the lock; the last one recycles it if `dropped` */
    bool dropped;    /* it has left its timeline meanwhile */
    struct vp_context *context;
};

enum vp_timeline_kind { VP_TIMELINE_STREAM, VP_TIMELINE_BARRIER };

static inline bool vp_timeline_id_is_barrier(uint64_t id) {
    return id >> 63;
}

/* Points that a timeline remembers to have waited for, so that it need not wait twice. A lost entry costs a wait. */
enum { VP_SEEN = 8 };
/* NAMELESS: some blocking streams cannot be named by other threads, or nothing more is known of them. */
enum { VP_JOINS_LEGACY = 1, VP_JOINS_BLOCKING = 2, VP_JOINS_NAMELESS = 4 };

struct vp_timeline {
    uint64_t id; /* cuStreamGetId + 1, unique in the process; top bit set: a barrier. A stream that comes back after it
                    was taken for ended gets another timeline */
    enum vp_timeline_kind kind;
    uint64_t birth;  /* number of this timeline among all ever made, from 1 */
    uint32_t number; /* number of this stream among all ever seen, from 1 */
    CUstream stream;
    bool per_thread; /* a per-thread stream: only its own thread can name it */
    bool nonblocking;
    atomic_uint turn, awaited; /* values of vp_timelines.turns and vp_awaited that our last command there came behind */
    bool gone;                 /* the stream was destroyed, or its thread has ended; its events live on */
    bool lost;                 /* the stream was destroyed unseen */
    bool open;                 /* some point has number `next`, which no event covers yet */
    _Atomic uint64_t next;     /* number of the next event */
    atomic_bool recording;     /* the next event is being recorded; stored only if `asked_unlocked` */
    bool asked_unlocked;       /* some thread may read `next` and `recording` without the lock */
    uint64_t met;              /* all points up to this one were seen reached */
    uint64_t before_capture; /* while its stream captures: number of an event behind all its real work; 0: none known */
    uint64_t host_func;      /* point behind a host function that is not known to be over; 0: none */
    uint64_t cover_for;      /* vp_context.cover that it takes part in */
    uint64_t cover;          /* and its own point that this needs (cover.c) */
    struct vp_list events;   /* of vp_event.link, oldest first: recorded, not yet seen completed */
    size_t event_count, ask_at; /* their number, and the number at which it polls by itself */
    size_t refs;                /* points that name this timeline */
    struct {
        uint64_t birth, seq;
    } seen[VP_SEEN]; /* points that this timeline waits behind already */
    unsigned seen_at;
    struct vp_context *context;
    struct vp_list of_context; /* in vp_context.timelines */
    struct vp_list pending;    /* in vp_timelines.pending with events or open points, in `ended` if gone without */
    struct vp_list capturing;  /* in vp_timelines.capturing, while its stream captures */
    struct vp_list of_thread; /* of a per-thread stream: in the list of vp_timelines.of_thread, until the thread ends */
    struct vp_stream_store *store; /* what the pool of its device keeps for it; NULL until it first frees there */
};

/* The registry: one for a process, or for a test. */
struct vp_timelines {
    const struct vp_driver *drv;
    struct vp_table by_id;      /* vp_timeline by id */
    struct vp_timeline *last;   /* the one that was last looked up in it; NULL: unknown */
    struct vp_table by_handle;  /* vp_context by handle; a destroyed one is taken out at once */
    struct vp_context *current; /* the one that was last some thread's current context; NULL: unknown */
    struct vp_list contexts;    /* of vp_context.link; owned; destroyed ones are forgotten when the next one comes */
    struct vp_list pending;     /* of vp_timeline.pending */
    struct vp_list ended;       /* of vp_timeline.pending: to be freed once no point names them */
    struct vp_list capturing;   /* of vp_timeline.capturing */
    size_t lingering;           /* timelines that are gone but not freed */
    size_t tidy_at;             /* how many of them make vp_timelines_linger() true */
    bool lost;                  /* some context is lost (vp_context.lost) */
    bool sick;                  /* some context was, since the process began (vp_context.sick) */
    struct vp_slab timeline_slab, event_slab, context_slab, point_slab;
    atomic_int captures; /* captures that run now; while 0, nobody asks streams whether they capture */
    _Atomic uint64_t captures_begun;
    bool barriers;        /* the driver has cuCtxRecordEvent (12.5) */
    atomic_uint joins;    /* VP_JOINS_ flags: kinds of streams seen that wait for each other */
    atomic_uint turns[2]; /* how often a free found work noted on the legacy stream; on other streams */
    uint64_t barriers_made, timelines_made;
    uint32_t streams_seen;
    uint64_t recorded;        /* events recorded so far */
    size_t host_funcs;        /* timelines with a `host_func` */
    uint64_t host_funcs_from; /* events up to this one were recorded before the first of these functions was queued */
    uint64_t calls;           /* calls that might be timed; one in VP_TIMED is */
    uint64_t moves;           /* times that some timeline's `met` moved */
    struct vp_timeline_stats stats[VP_ORDER_DEVICES];
    /* Callbacks of the layers above; NULL: not called. */
    void *user;
    /* A context is seen for the first time. */
    void (*arrived)(void *user, struct vp_context *ctx);
    /* A timeline ends. Fences can still name its stream, or the end of its context. */
    void (*closing)(void *user, struct vp_timeline *timeline);
    /* The struct of a timeline is about to be reused. */
    void (*forget)(void *user, struct vp_timeline *timeline);
    /* The list for the calling thread's own streams, for vp_timelines_thread_ended(); NULL: the thread's end is not
     * reported. */
    struct vp_list *(*of_thread)(void *user);
};

/* Must a free on this stream be a command in the stream, like CUDA's own? It must if streams for which it waits by the
 * legacy stream's rule had work since the last such command, or if a context was made to wait for an event. May be
 * called without the lock. */
static inline bool vp_timeline_joins(const struct vp_timelines *ls, const struct vp_timeline *timeline) {
    const bool legacy = timeline->stream == CU_STREAM_LEGACY;
    return timeline->awaited != vp_awaited ||
           (!timeline->nonblocking && ls->joins & VP_JOINS_LEGACY && ls->joins & VP_JOINS_BLOCKING &&
            (vp_worked & (legacy ? VP_WORK_OTHERS : VP_WORK_LEGACY) || ls->turns[legacy] != timeline->turn));
}

/* For drivers without barriers: are there blocking streams, and can all of them be named? */
static inline bool vp_timelines_all_named(const struct vp_timelines *ls) {
    return !ls->barriers && (ls->joins & (VP_JOINS_BLOCKING | VP_JOINS_NAMELESS)) == VP_JOINS_BLOCKING;
}

void vp_timelines_init(struct vp_timelines *ls, const struct vp_driver *drv);
/* Frees our memory; makes no driver call. */
void vp_timelines_finish(struct vp_timelines *ls);

/* The timeline of a stream handle, as the calling thread means it. 0; -ENODEV: no context; -EBUSY: the stream captures;
 * -ENOMEM. */
int vp_timeline_get(struct vp_timelines *ls, CUstream stream, struct vp_timeline **out);
/* Does the stream capture now? Asks the driver only while captures run. */
bool vp_timeline_captures(struct vp_timelines *ls, CUstream stream);
/* A host function was queued on the timeline. It may hold up what is freed behind it on any stream, since streams wait
 * for each other. */
void vp_timeline_host_func(struct vp_timelines *ls, struct vp_timeline *timeline);
/* A capture begins on the stream, and is counted. A capturing stream can be given no event. It needs none if it got one
 * before: drivers without context barriers need that event, others too while captures forbid barriers. */
void vp_timeline_capture(struct vp_timelines *ls, struct vp_timeline *timeline);
/* No capture runs on its stream (any more). */
void vp_timeline_capture_over(struct vp_timelines *ls, struct vp_timeline *timeline);
/* The timeline of a stream handle, without a driver call; NULL: unknown. Not for per-thread streams. A stream of a
 * context that is ending is left out, as another may have got its handle. Walks all timelines. */
struct vp_timeline *vp_timeline_named(const struct vp_timelines *ls, CUstream stream);
/* To be called before cuStreamDestroy: records the event of open points. */
void vp_timeline_destroying(struct vp_timelines *ls, struct vp_timeline *timeline);
/* The calling thread ends, and with it its own streams, which the list links. Makes no driver call, since the thread's
 * part of the driver may be gone. */
void vp_timelines_thread_ended(struct vp_timelines *ls, struct vp_list *own);
/* True now and then, when many timelines linger that are gone: time to poll, to refile the free regions so that no
 * point names them, and to call vp_context_tidy(). */
bool vp_timelines_linger(const struct vp_timelines *ls);

/* Records, if possible, an event behind what the timeline has queued so far; it holds nobody up. */
void vp_timeline_record_outside(struct vp_timelines *ls, struct vp_timeline *timeline);
/* Releases an event from vp_fence_event(). */
void vp_event_put(struct vp_timelines *ls, struct vp_event *ev);

/* Asks what has completed; with `flush` first records an event for open points. True if any timeline's `met` moved.
 * Errors that the driver reports are noted in their contexts. */
bool vp_timelines_poll(struct vp_timelines *ls, bool flush);

/* The same for one timeline, without flush. */
bool vp_timeline_poll(struct vp_timelines *ls, struct vp_timeline *timeline);

/* While captures forbid barriers: checks stream by stream whether what the open barriers wait for is over. Makes no
 * stream wait. Slower than a poll; for callers that would otherwise have to give up. True if any `met` moved. */
bool vp_timelines_cover(struct vp_timelines *ls);

/* Is an event pending that was recorded as number `serial` (of ls->recorded) or earlier, and can yet complete? */
bool vp_timelines_waiting(const struct vp_timelines *ls, uint64_t serial);
/* Are there points that no event covers yet, or no single one? */
bool vp_timelines_open(const struct vp_timelines *ls);
/* Polls until nothing recorded is pending, for at most `ns` nanoseconds: on an idle device an event completes half a
 * microsecond after it was recorded. */
void vp_timelines_poll_for(struct vp_timelines *ls, uint64_t ns);

/* Does CUDA refuse the calling thread's calls that are unsafe beside a capture, as synchronous allocations are? Like
 * any such call, the question ends the captures that forbid it. To be asked in the thread's own capture mode. */
bool vp_captures_forbid(struct vp_timelines *ls);

/* Relaxes the calling thread's capture mode around our own driver calls; must be restored on every path. */
CUstreamCaptureMode vp_capture_relax(const struct vp_timelines *ls);
void vp_capture_restore(const struct vp_timelines *ls, CUstreamCaptureMode mode);
