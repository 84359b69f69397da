/* Contexts: what is known of each, from when it is first seen until nothing names it any more. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/list.h"
#include "driver/driver.h"

#include <stdatomic.h>

struct vp_timelines;

/* By CUDA's rule the legacy stream's work comes behind all that blocking streams (per-thread ones too) had before, and
 * the reverse. vp_worked: on which of them work was queued since a free last came behind it by a command. It is set
 * after the call that queues the work, so that whoever knows of the work finds it set. */
enum { VP_WORK_LEGACY = 1, VP_WORK_NAMED = 2, VP_WORK_OWN = 4, VP_WORK_OTHERS = VP_WORK_NAMED | VP_WORK_OWN };
extern atomic_uint vp_worked;
/* Counts the waits of whole contexts for an event, which their streams make from their next command on. */
extern atomic_uint vp_awaited;

/* Contexts of devices from this number on are ignored: masks have one bit for each device. */
enum { VP_ORDER_DEVICES = 64 };

/* Counts for all contexts of a device. */
struct vp_timeline_stats {
    uint64_t records, barriers, queries,
        waits;   /* calls of cuEventRecord, cuCtxRecordEvent, cuEventQuery, cuStreamWaitEvent */
    uint64_t ns; /* time spent in them, from a sample */
};

struct vp_context {
    CUcontext handle;
    struct vp_timelines *registry; /* the registry it belongs to */
    uint64_t id;                   /* cuCtxGetId: unique in the process, unlike handles; 0: the driver lacks it */
    CUdevice device;
    struct vp_timeline *barrier;
    struct vp_timeline *aside; /* vp_context_aside(), once needed; else NULL */
    struct vp_list timelines;  /* of vp_timeline.of_context; owned */
    struct vp_list spare;      /* of vp_event.link; owned */
    struct vp_list link;       /* in vp_timelines.contexts */
    bool primary;              /* the primary context of its device */
    unsigned retains;          /* of a primary context: retains that the doors saw, less releases */
    bool synced;               /* CU_CTX_SYNC_MEMOPS was set, and stays set */
    bool gone;                 /* destroyed: all its work is over, and its handles are dead */
    atomic_bool ending;        /* being destroyed: its handles must no longer be used, but its work may still run */
    unsigned waiters;          /* threads that ask one of its events without the lock; they watch `ending` */
    /* Last answer of a query or wait in it that was neither done nor not-ready; 0: none since the last reset. */
    CUresult error;
    CUresult sick;        /* an error that no context recovers from: the driver gives it to every call */
    unsigned pins;        /* threads that allocate for it and may have released the lock: the struct stays */
    bool lost;            /* has ended unseen; vp_context_lost() reports it */
    uint64_t cover;       /* a point of the barrier that many events stand for together; 0: none (cover.c) */
    bool cover_idle;      /* what the legacy stream covers was seen over since the cover began */
    uint64_t cover_birth; /* timelines with a later birth are of streams made since */
    uint64_t uncovered;   /* a stream ended, and only this point of the barrier or a later one tells of its work */
    struct vp_timeline_stats *stats; /* those of its device */
};

/* The calling thread's current context; NULL: none, or out of memory. */
struct vp_context *vp_context_current(struct vp_timelines *ls);
/* The context of a handle (which must be alive); NULL: it is none of a known device, or out of memory. */
struct vp_context *vp_context_get(struct vp_timelines *ls, CUcontext handle);
/* A context of the device that can be made current, preferably the primary one; NULL: none. */
struct vp_context *vp_context_on(const struct vp_timelines *ls, CUdevice dev);
/* To be called before a context is destroyed. From now on none of its handles is used, and its own handle is no longer
 * looked up, since the driver may give it to another context before we learn of the end. The caller then waits, without
 * the lock, until `waiters` is 0. */
void vp_context_end(struct vp_timelines *ls, struct vp_context *ctx);
/* To be called before a green context is destroyed: records events behind all that is queued in it. */
void vp_context_mark(struct vp_timelines *ls, struct vp_context *ctx);
/* Are some of its events still pending? */
bool vp_context_works(const struct vp_context *ctx);
/* The oldest context with this handle for which vp_context_end() was called; NULL: none. */
struct vp_context *vp_context_ending(struct vp_timelines *ls, CUcontext handle);
/* The driver answered a query or wait in it with an error: keeps that in `error`, unless it shows that the context
 * ended unseen. */
void vp_context_failed(struct vp_context *ctx, CUresult res);
/* Does the driver answer every call in the context with this error from then on, until the context is destroyed? */
bool vp_context_error_stays(CUresult res);
/* A context that was to be destroyed lives on after all. */
void vp_context_revive(struct vp_timelines *ls, struct vp_context *ctx);
/* A context that was found to have ended without vp_context_end(), and is to be dropped; NULL: none. */
struct vp_context *vp_context_lost(struct vp_timelines *ls);
/* Does the driver know the context (NULL: the current one)? CUDA_SUCCESS, or why not. Safe for any handle, even of an
 * ended context, which could be entered like any other although most calls then crash. */
CUresult vp_context_known(const struct vp_driver *drv, CUcontext handle);
/* What vp_context_leave() undoes. */
struct vp_entered {
    CUresult refused; /* not entered: a question to the legacy stream would reach another context's */
    bool pushed;
};
/* Makes a context current, unless it is; nothing for NULL. Driver calls that need one stand between enter and leave. */
struct vp_entered vp_context_enter(const struct vp_driver *drv, CUcontext handle);
void vp_context_leave(const struct vp_driver *drv, struct vp_entered entered);
/* Does the driver know no context under its handle (any more)? */
bool vp_context_dead(const struct vp_timelines *ls, const struct vp_context *ctx);
/* Does it live, and has no other context its handle? */
bool vp_context_lives(const struct vp_timelines *ls, const struct vp_context *ctx);
/* Checks that the context we know under a handle is the one that lives: ours may have ended unseen, and another have
 * begun. If so, ours is lost. */
void vp_context_check(struct vp_timelines *ls, struct vp_context *ctx);
/* The end of a context, announced before: all its points count as met, its streams and events are forgotten. The struct
 * stays valid while points name it. */
void vp_context_drop(struct vp_timelines *ls, struct vp_context *ctx);
/* Frees all timelines that are gone and that no point names. Sweeps in passing are too few where contexts end without
 * their streams being destroyed. The struct of a context goes after its last timeline. */
void vp_context_tidy(struct vp_timelines *ls);
