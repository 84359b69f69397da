/* What happens to streams, contexts, captures and the process; and what outsiders may do to us. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include "watch/dump.h"
#include "base/clock.h"
#include "pool/stream_cache.h"

/* ---- streams ---- */

void vp_api_stream_created(CUstream stream) {
    struct vp_timeline *timeline;
    if (!vp_enter())
        return;
    /* Where there is no barrier, or while captures forbid it, every stream is needed by name. */
    vp_timeline_get(&vp_state.timelines, stream, &timeline);
    vp_leave();
}

void vp_timelines_tidy(void) {
    if (!vp_timelines_linger(&vp_state.timelines))
        return;
    vp_timelines_poll(&vp_state.timelines, true);
    for (int dev = 0; dev < VP_DEVICES; dev++)
        if (vp_state.pools[dev] && vp_state.pools[dev]->moves != vp_state.timelines.moves)
            vp_pool_refile(vp_state.pools[dev]);
}

void vp_api_stream_destroying(CUstream stream) {
    /* The default streams are nobody's to destroy. */
    if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD || !vp_enter())
        return;
    /* To ask a capturing stream for its id would destroy the capture. */
    struct vp_timeline *timeline = vp_timeline_capturing(&vp_state.timelines, stream);
    if (timeline || !vp_timeline_get(&vp_state.timelines, stream, &timeline))
        vp_timeline_destroying(&vp_state.timelines, timeline);
    vp_timelines_tidy();
    vp_leave();
}

void vp_api_host_function(CUstream stream) {
    struct vp_timeline *timeline;
    if (!vp_enter())
        return;
    if (!vp_timeline_get(&vp_state.timelines, stream, &timeline))
        vp_timeline_host_func(&vp_state.timelines, timeline);
    vp_leave();
}

/* ---- captures ---- */

/* This thread holds the lock while the driver begins its capture. */
static __thread bool begins __attribute__((tls_model("initial-exec")));

/*
 * Who asks the driver whether a stream captures, and then records an event there, must not have a capture begin in
 * between: it would take the event, or, on a blocking stream, be destroyed by one on the legacy stream. So nobody else
 * is in the library until it has begun.
 */
void vp_api_capture_beginning(CUstream stream) {
    struct vp_timeline *timeline;
    if (!vp_enter())
        return;
    begins = true;
    if (!vp_timeline_get(&vp_state.timelines, stream, &timeline) && vp_list_empty(&timeline->capturing)) {
        vp_timeline_capture(&vp_state.timelines, timeline, true);
        for (int dev = 0; dev < VP_DEVICES; dev++)
            if (vp_state.pools[dev])
                vp_stream_caches_pass(vp_state.pools[dev]);
    }
}

/* What was freed while captures ran can get its event once there is none. */
static void captures_over(void) {
    if (!atomic_load(&vp_state.timelines.captures))
        vp_timelines_poll(&vp_state.timelines, true);
}

static void capture_ended(CUstream stream) {
    unsigned long long id;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    /* A refused end (by the wrong thread, say) leaves the capture running. */
    bool over = vp_state.drv.cuStreamIsCapturing(stream, &status) || status == CU_STREAM_CAPTURE_STATUS_NONE;
    if (!over || vp_state.drv.cuStreamGetId(stream, &id))
        return;
    struct vp_timeline *timeline = vp_table_get(&vp_state.timelines.by_id, id + 1);
    if (timeline)
        vp_timeline_capture(&vp_state.timelines, timeline, false);
    captures_over();
}

void vp_api_capture_began(CUstream stream, bool ok) {
    if (!begins)
        return;
    begins = false;
    if (!ok)
        capture_ended(stream);
    vp_leave();
}

void vp_api_capture_ended(CUstream stream) {
    if (!vp_enter())
        return;
    capture_ended(stream);
    vp_leave();
}

/* ---- contexts ---- */

/* It has ended: what it had goes with it. */
static void drop(struct vp_context *ctx) {
    CUcontext handle = ctx->handle;
    int captures = atomic_load(&vp_state.timelines.captures);
    /* If another context has its handle by now, blocks made since may be that one's: they stay. */
    bool replaced = ctx->lost && !vp_context_dead(&vp_state.timelines, ctx);
    vp_context_drop(&vp_state.timelines, ctx);
    ctx->pins += replaced;
    if (!replaced)
        vp_imports_drop_context(handle);
    for (int dev = 0; dev < VP_DEVICES; dev++)
        if (vp_state.pools[dev]) {
            if (!replaced)
                vp_pool_drop_context(vp_state.pools[dev], ctx);
            vp_pool_refile(vp_state.pools[dev]);
        }
    vp_peers_forget(ctx);
    if (captures)
        captures_over();
}

void vp_contexts_drop_lost(void) {
    struct vp_context *ctx;
    while ((ctx = vp_context_lost(&vp_state.timelines)))
        drop(ctx);
}

void vp_api_context_created(CUcontext handle, bool primary) {
    if (!handle || !vp_enter())
        return;
    struct vp_context *ctx = vp_context_get(&vp_state.timelines, handle);
    if (ctx) {
        /* One that ended unseen may have had this handle. */
        vp_context_check(&vp_state.timelines, ctx);
        if (ctx->lost) {
            vp_contexts_drop_lost();
            ctx = vp_context_get(&vp_state.timelines, handle);
        }
    }
    if (ctx) {
        ctx->primary |= primary;
        ctx->retains += primary;
    }
    vp_leave();
}

void vp_api_context_destroying(CUcontext handle) {
    if (!handle || !vp_enter())
        return;
    struct vp_context *ctx = vp_table_get(&vp_state.timelines.by_handle, (uintptr_t)handle);
    if (ctx) {
        vp_context_end(&vp_state.timelines, ctx);
        ctx->pins++;
    }
    while (ctx && ctx->waiters) {
        vp_leave();
        vp_clock_nap();
        if (!vp_enter())
            return;
    }
    if (ctx)
        ctx->pins--;
    vp_leave();
}

void vp_api_context_destroyed(CUcontext handle, bool ended) {
    if (!handle || !vp_enter())
        return;
    struct vp_context *ctx = vp_context_ending(&vp_state.timelines, handle);
    if (ctx && !ended)
        vp_context_revive(&vp_state.timelines, ctx);
    if (ctx && ended)
        drop(ctx);
    vp_leave();
}

CUcontext vp_api_primary(CUdevice dev, bool releasing) {
    CUcontext handle = NULL;
    struct vp_context *ctx;
    if (!vp_enter())
        return NULL;
    vp_list_each(ctx, &vp_state.timelines.contexts, link)
        if (!ctx->gone && !ctx->ending && ctx->device == dev && ctx->primary) {
            if (!releasing || ctx->retains <= 1)
                handle = ctx->handle;
            if (releasing && ctx->retains)
                ctx->retains--;
        }
    vp_leave();
    return handle;
}

/* ---- coupling ---- */

void vp_api_coupled(const char *why) {
    if (!atomic_exchange(&vp_state.coupled, true))
        vp_log(VP_LOG_INFO,
               "coupled with other processes or devices (%s): shared memory is kept apart, and no stream waits early",
               why);
}

/* ---- the process ---- */

/* A tool's callback may fork under a driver call of ours: then the lock is this thread's already. */
void vp_api_fork_prepare(void) {
    if (vp_inside)
        return;
    vp_imports_fork_prepare();
    pthread_mutex_lock(&vp_state.lock);
    vp_trace_fork_prepare();
}

void vp_api_fork_parent(void) {
    if (vp_inside)
        return;
    vp_trace_fork_parent();
    pthread_mutex_unlock(&vp_state.lock);
    vp_imports_fork_parent();
}

/*
 * The parent's CUDA does not exist here: what it had is not ours to hand out or to count. A child whose parent used
 * none starts afresh. Nothing here waits or allocates: after _Fork() it runs late, and other threads may have held any
 * lock.
 */
void vp_api_fork_child(void) {
    bool used = false;
    vp_process_mark();
    pthread_mutex_init(&vp_state.lock, NULL);
    vp_trace_fork_child();
    vp_imports_fork_child();
    vp_shared_stats_leave_to_parent();
    vp_ipc_leave_to_parent();
    vp_dump_fork_child();
    for (int dev = 0; dev < VP_DEVICES; dev++)
        used |= vp_state.pools[dev] != NULL;
    if (used) {
        atomic_store(&vp_state.phase, VP_REFUSED);
        atomic_store(&vp_copies_matter, false);
    }
}

void vp_api_exit(void) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&said))
        return;
    if (!vp_process_is_marked())
        vp_api_fork_child();
    vp_pressure_stop();
    vp_ipc_stop();
    vp_shared_stats_remove();
    vp_dump_end();
    vp_oom_end();
    vp_stats_write();
    vp_trace_end();
}
