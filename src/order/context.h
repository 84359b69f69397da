/* Contexts: what is known of each, from when it is first seen until nothing names it any more. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/list.h"
#include "driver/driver.h"

#include <stdatomic.h>

struct vp_timelines;

/* By CUDA's rule what is queued on the legacy stream comes behind all that blocking streams have had, threads' own ones
 * among them, and the reverse. Here: on which of them work was queued since a free last came behind that by a command.
 * It is noted after the call that queued it, so that whoever knows of the work finds it noted. */
enum { VP_WORK_LEGACY = 1, VP_WORK_NAMED = 2, VP_WORK_OWN = 4, VP_WORK_OTHERS = VP_WORK_NAMED | VP_WORK_OWN };
extern atomic_uint vp_worked;
/* How often a context was to wait for an event, which its streams do from their next command on. */
extern atomic_uint vp_awaited;

/* Contexts of devices from that number on are not known here: masks have a bit for each device. */
enum { VP_ORDER_DEVICES = 64 };

/* What the contexts of a device have counted. */
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
    struct vp_timeline *aside; /* vp_context_aside(), once it was needed; else NULL */
    struct vp_list timelines;  /* of vp_timeline.of_context; owned */
    struct vp_list spare;      /* of vp_event.link; owned */
    struct vp_list link;       /* vp_timelines.contexts */
    bool primary;              /* the device's primary context */
    unsigned retains;          /* of a primary context: those that the doors saw, less the releases */
    bool synced;               /* CU_CTX_SYNC_MEMOPS was set, and stays */
    bool gone;                 /* destroyed: all its work is over, its handles are dead */
    atomic_bool ending;        /* being destroyed: its handles are not to be used any more, its work may still run */
    unsigned waiters;          /* threads that ask one of its events outside the lock; they look at `ending` */
    CUresult error; /* the last answer of a query or wait in it that was neither done nor not-ready; 0: none since it
                       was set back */
    CUresult
        sick; /* the error the driver has answered with that no context recovers from: whatever is asked of it fails */
    unsigned pins;        /* threads that allocate for it and may have let the lock go: the struct stays */
    bool lost;            /* has ended unseen: vp_context_lost() tells of it */
    uint64_t cover;       /* a point of the barrier that many events together stand for; 0: none (see cover.c) */
    bool cover_idle;      /* what the legacy stream covers was seen over since */
    uint64_t cover_birth; /* timelines made later are of streams made since */
    uint64_t uncovered;   /* a stream ended of which only the barrier's point of this number, or a later one, tells */
    struct vp_timeline_stats *stats; /* of its device */
};

/* The calling thread's current context, or NULL if there is none or memory ran out. */
struct vp_context *vp_context_current(struct vp_timelines *ls);
/* The context of that handle (which must be alive), or NULL. */
struct vp_context *vp_context_get(struct vp_timelines *ls, CUcontext handle);
/* A context of that device which can be made current, the primary one if there is one; or NULL. */
struct vp_context *vp_context_on(const struct vp_timelines *ls, CUdevice dev);
/* Before a context is destroyed: from now on none of its handles is touched, and its own is looked up no more, since
 * the driver may give it to another context before we hear of the end. The caller then waits, letting the lock go,
 * until no thread is left in `waiters`. */
void vp_context_end(struct vp_timelines *ls, struct vp_context *ctx);
/* Before a green context is destroyed: marks all that is queued in it by events. */
void vp_context_mark(struct vp_timelines *ls, struct vp_context *ctx);
/* Are some of its events still to come? */
bool vp_context_works(const struct vp_context *ctx);
/* The context that vp_context_end() was told of under this handle, the oldest first; NULL if there is none. */
struct vp_context *vp_context_ending(struct vp_timelines *ls, CUcontext handle);
/* The driver answered a query or a wait in it with an error: kept in `error`, unless it ended unseen, as that shows. */
void vp_context_failed(struct vp_context *ctx, CUresult res);
/* After such an error the driver answers every call in the context with it, until that is destroyed. */
bool vp_context_error_stays(CUresult res);
/* It lives on after all. */
void vp_context_revive(struct vp_timelines *ls, struct vp_context *ctx);
/* A context that was found to have ended, without vp_context_end(): to be dropped. NULL: there is none. */
struct vp_context *vp_context_lost(struct vp_timelines *ls);
/* Does the driver know the context, NULL being the current one? CUDA_SUCCESS; or why not. Whatever the handle was, this
 * may be asked: one that has ended can be entered like any other, and most calls crash then. */
CUresult vp_context_known(const struct vp_driver *drv, CUcontext handle);
/* What vp_context_leave() undoes. */
struct vp_entered {
    CUresult refused; /* nobody gets in: what is asked of the legacy stream would be asked of another context's */
    bool pushed;
};
/* Makes a context current, unless it is; nothing for NULL. Driver calls that need one stand between this and the next.
 */
struct vp_entered vp_context_enter(const struct vp_driver *drv, CUcontext handle);
void vp_context_leave(const struct vp_driver *drv, struct vp_entered entered);
/* Does the driver know no context under its handle (any more)? */
bool vp_context_dead(const struct vp_timelines *ls, const struct vp_context *ctx);
/* Does it live, and no other under its handle? */
bool vp_context_lives(const struct vp_timelines *ls, const struct vp_context *ctx);
/* Asks whether the context that we know under a handle is the one that lives: it may have ended unseen, and another
 * have begun. */
void vp_context_check(struct vp_timelines *ls, struct vp_context *ctx);
/* The end of a context that was told of before: all its points count as met, its streams and events are forgotten. The
 * struct stays valid as long as points name it. */
void vp_context_drop(struct vp_timelines *ls, struct vp_context *ctx);
/* Frees the timelines that are gone and that no point names any more: one by one in passing is too few where contexts
 * end and their streams were never destroyed. The structs of contexts go with their last ones. */
void vp_context_tidy(struct vp_timelines *ls);
