/* Contexts: how they begin and end, and how an end shows that no call reported. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

#include "base/cancel.h"

/* Frees contexts that have ended and that nothing names. */
static void forget(struct vp_timelines *ls) {
    struct vp_context *ctx, *next;
    vp_list_each_safe(ctx, next, &ls->contexts, link)
        if (ctx->gone && !ctx->waiters && !ctx->pins && vp_list_empty(&ctx->timelines)) {
            vp_list_remove(&ctx->link);
            vp_slab_free(&ls->context_slab, ctx);
        }
}

/* An id that tells apart contexts with the same handle, one after another; 0: the driver has none. */
static uint64_t id_of(const struct vp_timelines *ls, CUcontext handle) {
    unsigned long long id = 0;
    return ls->drv->cuCtxGetId && !ls->drv->cuCtxGetId(handle, &id) ? id : 0;
}

/* A context with this handle that is being released, but lives on: it was not the last release. It gets no second
 * object. */
static struct vp_context *lives_on(const struct vp_timelines *ls, CUcontext handle) {
    struct vp_context *ctx;
    vp_list_each(ctx, &ls->contexts, link)
        if (ctx->handle == handle && ctx->ending && !ctx->gone && !ctx->lost && ctx->id && ctx->id == id_of(ls, handle))
            return ctx;
    return NULL;
}

static CUresult device_of(const struct vp_timelines *ls, CUcontext handle, CUdevice *dev) {
    const struct vp_entered entered = vp_context_enter(ls->drv, handle);
    const CUresult res = entered.refused ? entered.refused : ls->drv->cuCtxGetDevice(dev);
    vp_context_leave(ls->drv, entered);
    return res;
}

struct vp_context *vp_context_get(struct vp_timelines *ls, CUcontext handle) {
    struct vp_context *ctx = vp_table_get(&ls->by_handle, (uintptr_t)handle);
    if (ctx || !handle)
        return ctx;
    /* A context that another thread has destroyed stays current here. */
    if (vp_context_known(ls->drv, handle) || (ctx = lives_on(ls, handle)))
        return ctx;
    CUdevice dev;
    vp_cancel_hold();
    if (device_of(ls, handle, &dev) || dev >= VP_ORDER_DEVICES || vp_table_reserve(&ls->by_handle) < 0 ||
        vp_slab_reserve(&ls->timeline_slab, 1) < 0)
        return NULL;
    forget(ls);
    if (!(ctx = vp_slab_alloc(&ls->context_slab)))
        return NULL;
    ctx->registry = ls;
    ctx->handle = handle;
    ctx->device = dev;
    ctx->stats = &ls->stats[dev];
    ctx->id = id_of(ls, handle);
    vp_list_init(&ctx->timelines);
    vp_list_init(&ctx->spare);
    vp_list_append(&ls->contexts, &ctx->link);
    ctx->barrier = vp_timeline_new(ls, ctx, VP_TIMELINE_BARRIER, ++ls->barriers_made | UINT64_C(1) << 63);
    vp_table_add(&ls->by_handle, ctx);
    if (ls->arrived)
        ls->arrived(ls->user, ctx);
    return ctx;
}

struct vp_context *vp_context_on(const struct vp_timelines *ls, CUdevice dev) {
    struct vp_context *ctx, *found = NULL;
    vp_list_each(ctx, &ls->contexts, link)
        if (ctx->device == dev && !ctx->gone && !ctx->ending && (!found || ctx->primary))
            found = ctx;
    return found;
}

void vp_context_end(struct vp_timelines *ls, struct vp_context *ctx) {
    atomic_store(&ctx->ending, true);
    ls->current = NULL;
    vp_table_take(&ls->by_handle, (uintptr_t)ctx->handle);
}

struct vp_context *vp_context_ending(struct vp_timelines *ls, CUcontext handle) {
    struct vp_context *ctx;
    vp_list_each(ctx, &ls->contexts, link)
        if (ctx->handle == handle && ctx->ending && !ctx->gone)
            return ctx;
    return NULL;
}

void vp_context_revive(struct vp_timelines *ls, struct vp_context *ctx) {
    atomic_store(&ctx->ending, false);
    if (!vp_table_get(&ls->by_handle, (uintptr_t)ctx->handle) && !vp_table_reserve(&ls->by_handle))
        vp_table_add(&ls->by_handle, ctx);
}

struct vp_context *vp_context_current(struct vp_timelines *ls) {
    CUcontext handle = NULL;
    if (ls->drv->cuCtxGetCurrent(&handle) || !handle)
        return NULL;
    if (__builtin_expect(ls->current && ls->current->handle == handle, true))
        return ls->current;
    ls->current = vp_table_get(&ls->by_handle, (uintptr_t)handle);
    return ls->current || vp_context_known(ls->drv, NULL) ? ls->current : vp_context_get(ls, handle);
}

/* ---- ends that no call reported ---- */

static bool tells_of_an_end(CUresult res) {
    return res == CUDA_ERROR_INVALID_HANDLE || res == CUDA_ERROR_INVALID_CONTEXT ||
           res == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool vp_context_dead(const struct vp_timelines *ls, const struct vp_context *ctx) {
    const CUresult res = vp_context_known(ls->drv, ctx->handle);
    return tells_of_an_end(res) || res == CUDA_ERROR_DEINITIALIZED;
}

bool vp_context_lives(const struct vp_timelines *ls, const struct vp_context *ctx) {
    return !vp_context_dead(ls, ctx) && (!ctx->id || id_of(ls, ctx->handle) == ctx->id);
}

static void lose(struct vp_timelines *ls, struct vp_context *ctx) {
    struct vp_timeline *timeline;
    ls->current = NULL;
    if (vp_table_get(&ls->by_handle, (uintptr_t)ctx->handle) == ctx)
        vp_table_take(&ls->by_handle, (uintptr_t)ctx->handle);
    atomic_store(&ctx->ending, true);
    ctx->lost = ls->lost = true;
    vp_list_each(timeline, &ctx->timelines, of_context) {
        vp_timeline_over(timeline);
    }
    ls->moves++;
}

bool vp_context_error_stays(CUresult res) {
    switch (res) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR ... CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE: return true;
    default: return false;
    }
}

bool vp_context_died(struct vp_context *ctx, CUresult res) {
    struct vp_timelines *ls = ctx->registry;
    /* Without ids: only we destroy our events. One that is gone went with its context, though another context may live
     * under the same handle by now, as after a reset. */
    if (tells_of_an_end(res) && !ctx->ending &&
        (!vp_context_lives(ls, ctx) || (!ctx->id && res == CUDA_ERROR_INVALID_HANDLE))) {
        lose(ls, ctx);
        return true;
    }
    return false;
}

void vp_context_failed(struct vp_context *ctx, CUresult res) {
    if (vp_context_died(ctx, res))
        return;
    ctx->error = res;
    if (!ctx->sick && vp_context_error_stays(res)) {
        ctx->sick = res;
        ctx->registry->sick = true;
    }
}

struct vp_context *vp_context_lost(struct vp_timelines *ls) {
    struct vp_context *ctx;
    vp_list_each(ctx, &ls->contexts, link)
        if (ctx->lost)
            return ctx;
    ls->lost = false;
    return NULL;
}

void vp_context_check(struct vp_timelines *ls, struct vp_context *ctx) {
    if (!ctx->ending && !vp_context_lives(ls, ctx))
        lose(ls, ctx);
}
