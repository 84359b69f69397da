/* Contexts: when they begin and end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"
#include "process/poison.h"

#include "base/clock.h"

/* The context has ended: drops what belonged to it. */
static VP_LOCKED void drop(struct vp_context *ctx) {
    int captures = atomic_load(&vp_state.timelines.captures);
    /* If another context has its handle by now, blocks made since may be that one's: they stay. */
    bool replaced = ctx->lost && !vp_context_dead(&vp_state.timelines, ctx);
    vp_poison_context_over(ctx);
    vp_context_drop(&vp_state.timelines, ctx);
    ctx->pins += replaced;
    if (!replaced)
        vp_imports_drop_context(ctx);
    vp_pools_each(pool) {
        if (!replaced)
            vp_pool_drop_context(pool, ctx);
        vp_memory_refile(&pool->mem);
    }
    vp_peers_forget(ctx);
    vp_context_tidy(&vp_state.timelines);
    if (captures)
        vp_captures_over();
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
        if (vp_sync_flag)
            vp_sync_memops(ctx);
    }
    vp_leave();
}

static VP_LOCKED void nap(void) {
    vp_step_out();
    vp_clock_nap();
    vp_step_in();
}

void vp_api_context_destroying(CUcontext handle) {
    if (!handle || !vp_enter())
        return;
    struct vp_context *ctx = vp_table_get(&vp_state.timelines.by_handle, (uintptr_t)handle);
    if (ctx)
        vp_context_end(&vp_state.timelines, ctx);
    else
        ctx = vp_context_ending(&vp_state.timelines, handle);
    if (ctx)
        ctx->pins++;
    while (ctx && ctx->waiters)
        nap();
    if (ctx)
        ctx->pins--;
    vp_leave();
}

/* Nanoseconds that the end of a green context waits for its work, and that of a primary context for another thread's.
 */
static const uint64_t END_WAIT = 2000000000;

bool vp_api_green_is_over(CUcontext handle) {
    if (!handle || !vp_enter())
        return true;
    struct vp_timelines *ls = &vp_state.timelines;
    struct vp_context *ctx = vp_table_get(&ls->by_handle, (uintptr_t)handle);
    const uint64_t until = vp_clock_wait_ns() + END_WAIT;
    bool works = ctx != NULL;
    if (ctx) {
        ctx->pins++;
        vp_context_mark(ls, ctx);
        while ((works = vp_context_works(ctx)) && vp_clock_wait_ns() < until) {
            nap();
            vp_timelines_poll(ls, false);
        }
        ctx->pins--;
    }
    vp_leave();
    return !works;
}

void vp_api_context_destroyed(CUcontext handle, bool ended) {
    if (!handle || !vp_enter())
        return;
    struct vp_context *ctx = vp_context_ending(&vp_state.timelines, handle);
    /* Another thread may have begun a new one meanwhile. */
    ended = ended || (ctx && !vp_context_lives(&vp_state.timelines, ctx));
    if (ctx && !ended)
        vp_context_revive(&vp_state.timelines, ctx);
    if (ctx && ended) {
        const CUdevice dev = ctx->device;
        drop(ctx);
        /* A green one held the primary, which may have ended with it; and a reset of that ends all green ones. */
        vp_list_each(ctx, &vp_state.timelines.contexts, link)
            if (ctx->device == dev && !ctx->gone)
                vp_context_check(&vp_state.timelines, ctx);
    }
    vp_leave();
}

/* A context that is ending is found before one that has begun since. */
static VP_LOCKED struct vp_context *primary_of(CUdevice dev) {
    struct vp_context *ctx, *found = NULL;
    vp_list_each(ctx, &vp_state.timelines.contexts, link)
        if (!ctx->gone && !ctx->lost && ctx->device == dev && ctx->primary && (!found || ctx->ending))
            found = ctx;
    return found;
}

CUcontext vp_api_primary(CUdevice dev, bool releasing) {
    CUcontext handle = NULL;
    struct vp_context *ctx;
    if (!vp_enter())
        return NULL;
    /* Of two threads that end it at once, the second may find it alive or gone. A fork may have left it so. */
    const uint64_t until = vp_clock_wait_ns() + END_WAIT;
    while ((ctx = primary_of(dev)) && ctx->ending && vp_clock_wait_ns() < until)
        nap();
    if (ctx && !ctx->ending) {
        if (!releasing || ctx->retains <= 1) {
            handle = ctx->handle;
            vp_context_end(&vp_state.timelines, ctx);
        }
        if (releasing && ctx->retains)
            ctx->retains--;
    }
    vp_leave();
    return handle;
}
