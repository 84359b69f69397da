/* Timelines: what completes in order as far as we can see it, and the registry of all of them.
 *
 * A timeline is a stream, or the barrier of a context (one event over all its streams). Its events are numbered; what
 * that means for memory is told in fence.c. Everything in this folder runs under the one lock of the library, which
 * the caller holds, and which nothing in here lets go. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/slab.h"
#include "base/table.h"
#include "order/context.h"

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

/* What one timeline has waited for lately, so that it need not wait twice. A small cache; a lost entry costs a wait. */
enum { VP_SEEN = 8 };
/* NAMELESS: blocking ones are among them that other threads cannot name, or of which nothing more is known. */
enum { VP_JOINS_LEGACY = 1, VP_JOINS_BLOCKING = 2, VP_JOINS_NAMELESS = 4 };

struct vp_timeline {
    uint64_t id; /* cuStreamGetId + 1: unique in the process; top bit set for a barrier. A stream that was taken for
                    ended and comes back gets another timeline */
    enum vp_timeline_kind kind;
    uint64_t birth;  /* of this timeline among all ever made, from 1: what its points are counted along */
    uint32_t number; /* of this stream among all ever seen, from 1 */
    CUstream stream;
    bool per_thread; /* only its own thread can name it */
    bool nonblocking;
    atomic_uint turn, awaited; /* of vp_timelines.turns, and vp_awaited: what our last command there came behind */
    bool gone;                 /* the stream was destroyed, or its thread has ended; its events live on */
    bool lost;                 /* the stream was destroyed unseen */
    bool open;                 /* some point has number `next`: no event covers it yet */
    _Atomic uint64_t next;     /* the number that the next event gets */
    atomic_bool recording;     /* it is being recorded; told only if some thread may ask without the lock */
    bool asked_unlocked;
    uint64_t met;  /* every point up to here was seen reached */
    uint64_t rest; /* while its stream captures: the number of an event behind all its real work; 0: none is known */
    uint64_t host_func;         /* the point behind a host function that is not known to be over; 0: there is none */
    uint64_t cover_for;         /* vp_context.cover that it takes part in */
    uint64_t cover;             /* and its own point that this needs (see cover.c) */
    struct vp_list events;      /* of vp_event.link: recorded, not yet seen completed */
    size_t event_count, ask_at; /* how many these are, and how many make it ask some by itself */
    size_t refs;                /* points that name this timeline */
    struct {
        uint64_t birth, seq;
    } seen[VP_SEEN]; /* this timeline waits behind those points already */
    unsigned seen_at;
    struct vp_context *context;
    struct vp_list of_context; /* vp_context.timelines */
    struct vp_list pending;    /* vp_timelines.pending: has events or open points; or vp_timelines.ended: is gone, and
                                  has neither */
    struct vp_list capturing;  /* vp_timelines.capturing, while its stream captures */
    struct vp_list of_thread;  /* of a thread's own stream: what vp_timelines.of_thread gave, until the thread ends */
    struct vp_stream_store *store; /* what the pool of its device keeps for it; NULL until it frees there */
};

/* The registry. One for a process (or for a test). */
struct vp_timelines {
    const struct vp_driver *drv;
    struct vp_table by_id;      /* vp_timeline by stream id */
    struct vp_timeline *last;   /* of these the one that was asked for last; NULL: none is known */
    struct vp_table by_handle;  /* vp_context by handle; a destroyed one is taken out at once */
    struct vp_context *current; /* of these the one that was some thread's current one last; NULL: none is known */
    struct vp_list contexts;    /* of vp_context.link: those that live; and destroyed ones, forgotten when the next one
                                   comes and no point names them */
    struct vp_list pending;     /* of vp_timeline.pending */
    struct vp_list ended;       /* of vp_timeline.pending: freed later, once no point names them */
    struct vp_list capturing;   /* of vp_timeline.capturing */
    size_t lingering;           /* timelines that are gone and not yet freed */
    size_t tidy_at;             /* how many of them make vp_timelines_linger() say so */
    bool lost;                  /* some context is */
    struct vp_slab timeline_slab, event_slab, context_slab, point_slab;
    atomic_int captures; /* captures that run now: while 0, nothing asks for them */
    _Atomic uint64_t captures_begun;
    bool barriers;        /* the driver has cuCtxRecordEvent */
    atomic_uint joins;    /* VP_JOINS_: of the streams that wait for each other */
    atomic_uint turns[2]; /* how often a free found work noted on the legacy stream; and on others */
    uint64_t barriers_made, timelines_made;
    uint32_t streams_seen;
    uint64_t recorded;        /* events recorded so far */
    size_t host_funcs;        /* timelines with `host_func` */
    uint64_t host_funcs_from; /* events up to this one were recorded before any of these was queued */
    uint64_t calls;           /* of those that are timed, one in some */
    uint64_t moves;           /* how often some timeline's `met` moved */
    struct vp_timeline_stats stats[VP_ORDER_DEVICES];
    /* What the layers above are told, or asked; NULL: they are not. */
    void *user;
    /* A context is first seen. */
    void (*arrived)(void *user, struct vp_context *ctx);
    /* A timeline ends; its stream, or the end of its context, can still be named. */
    void (*closing)(void *user, struct vp_timeline *timeline);
    /* A timeline's memory is about to be used again. */
    void (*forget)(void *user, struct vp_timeline *timeline);
    /* Where to link the calling thread's own streams, for vp_timelines_thread_ended(); NULL: its end is not told. */
    struct vp_list *(*of_thread)(void *user);
};

/* Must a free there be a command, as by CUDA's own: have streams that it waits for by the legacy one's rule had work
 * since the last that was, or was a context to wait for an event? Without the lock, too. */
static inline bool vp_timeline_joins(const struct vp_timelines *ls, const struct vp_timeline *timeline) {
    const bool legacy = timeline->stream == CU_STREAM_LEGACY;
    return timeline->awaited != vp_awaited ||
           (!timeline->nonblocking && ls->joins & VP_JOINS_LEGACY && ls->joins & VP_JOINS_BLOCKING &&
            (vp_worked & (legacy ? VP_WORK_OTHERS : VP_WORK_LEGACY) || ls->turns[legacy] != timeline->turn));
}

/* Without barriers: are there blocking streams, all of which can be named? */
static inline bool vp_timelines_all_named(const struct vp_timelines *ls) {
    return !ls->barriers && (ls->joins & (VP_JOINS_BLOCKING | VP_JOINS_NAMELESS)) == VP_JOINS_BLOCKING;
}

void vp_timelines_init(struct vp_timelines *ls, const struct vp_driver *drv);
/* Frees our memory; makes no driver call. */
void vp_timelines_finish(struct vp_timelines *ls);

/* The timeline of a stream handle, as the calling thread means it. -ENODEV: no context; -EBUSY: captures; -ENOMEM. */
int vp_timeline_get(struct vp_timelines *ls, CUstream stream, struct vp_timeline **out);
/* True if the stream captures now. Asks the driver only while captures run. */
bool vp_timeline_captures(struct vp_timelines *ls, CUstream stream);
/* A host function was queued on the timeline: it may hold up what is freed behind it, on whatever stream, since streams
 * wait for each other. */
void vp_timeline_host_func(struct vp_timelines *ls, struct vp_timeline *timeline);
/* A capture begins on the stream, which is then counted. A stream that captures can be given no event, and needs none,
 * if it got one before: drivers without context barriers need it, and others while captures forbid it. */
void vp_timeline_capture(struct vp_timelines *ls, struct vp_timeline *timeline);
/* No capture of its stream runs (any more). */
void vp_timeline_capture_over(struct vp_timelines *ls, struct vp_timeline *timeline);
/* The timeline of a stream's handle, without asking the driver, or NULL. Of a thread's own it is not to be asked. A
 * stream of a context that is ending may have given its handle to another. Goes through all timelines. */
struct vp_timeline *vp_timeline_named(const struct vp_timelines *ls, CUstream stream);
/* Before cuStreamDestroy: gives open points their event. */
void vp_timeline_destroying(struct vp_timelines *ls, struct vp_timeline *timeline);
/* The calling thread ends, and its own streams with it: those linked to the list. Makes no driver call, since the
 * thread's part of the driver may be gone. */
void vp_timelines_thread_ended(struct vp_timelines *ls, struct vp_list *own);
/* True now and then, when many timelines that are gone linger: it is time to poll, to file the free regions anew, so
 * that no point names them any more, and for vp_context_tidy(). */
bool vp_timelines_linger(const struct vp_timelines *ls);

/* An event behind what the timeline has queued so far, that holds nobody up; if it is to be had. */
void vp_timeline_record_late(struct vp_timelines *ls, struct vp_timeline *timeline);
/* Gives back an event that vp_fence_event() gave. */
void vp_event_put(struct vp_timelines *ls, struct vp_event *ev);

/* Asks what has completed, first recording an event for open points if `flush`. True if any timeline's `met` moved.
 * Errors that the driver reports are noted in the contexts that they are of. */
bool vp_timelines_poll(struct vp_timelines *ls, bool flush);

/* The same of one timeline alone, with no flush. */
bool vp_timeline_poll(struct vp_timelines *ls, struct vp_timeline *timeline);

/* While captures forbid barriers: looks, stream by stream, whether what the open barriers wait for is over. Makes no
 * stream wait for anything. Dearer than a poll; for those who would otherwise have to give up. True if any timeline's
 * `met` moved. */
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
