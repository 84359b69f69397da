/* What surrounds our own driver calls: the capture mode, the current context, and the care not to disturb captures. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

CUstreamCaptureMode vp_capture_relax(const struct vp_timelines *ls) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ls->drv->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void vp_capture_restore(const struct vp_timelines *ls, CUstreamCaptureMode mode) {
    ls->drv->cuThreadExchangeStreamCaptureMode(&mode);
}

bool vp_stream_captures(const struct vp_timelines *ls, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    /* The legacy stream answers 906 while a blocking stream captures, and an event there would destroy that capture. */
    return ls->drv->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool vp_timeline_captures(struct vp_timelines *ls, CUstream stream) {
    return atomic_load_explicit(&ls->captures, memory_order_acquire) > 0 && vp_stream_captures(ls, stream);
}

CUresult vp_context_known(const struct vp_driver *drv, CUcontext handle) {
    unsigned int version;
    return drv->cuCtxGetApiVersion(handle, &version);
}

struct vp_entered vp_context_enter(const struct vp_driver *drv, CUcontext handle) {
    struct vp_entered entered = {0};
    CUcontext now = NULL;
    if (handle && (drv->cuCtxGetCurrent(&now) || now != handle)) {
        entered.refused = vp_context_known(drv, handle);
        if (!entered.refused)
            entered.refused = drv->cuCtxPushCurrent_v2(handle);
        entered.pushed = !entered.refused;
    }
    return entered;
}

void vp_context_leave(const struct vp_driver *drv, struct vp_entered entered) {
    CUcontext popped;
    if (entered.pushed)
        drv->cuCtxPopCurrent_v2(&popped);
}

/* The legacy and the per-thread stream are named relative to the current context. */
struct vp_entered vp_stream_enter(const struct vp_timelines *ls, const struct vp_context *ctx, CUstream stream) {
    return vp_context_enter(ls->drv, (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD ? ctx->handle : NULL);
}

bool vp_timelines_blocking_idle(const struct vp_timelines *ls, const struct vp_context *ctx) {
    const struct vp_entered entered = vp_context_enter(ls->drv, ctx->handle);
    /* While a blocking stream captures this says so; any other question would end that capture. */
    bool idle = !entered.refused && !vp_stream_captures(ls, CU_STREAM_LEGACY) &&
                !ls->drv->cuStreamQuery(CU_STREAM_LEGACY);
    vp_context_leave(ls->drv, entered);
    return idle;
}
