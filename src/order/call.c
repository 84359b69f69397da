/* What stands around our own driver calls: the mode of captures, the current context, captures left alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

#include <errno.h>

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
    /* The legacy stream answers 906 while a blocking stream captures: an event there would destroy that capture. */
    return ls->drv->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool vp_timeline_captures(struct vp_timelines *ls, CUstream stream) {
    return atomic_load_explicit(&ls->captures, memory_order_acquire) > 0 && vp_stream_captures(ls, stream);
}

int vp_context_enter(const struct vp_timelines *ls, const struct vp_context *ctx) {
    CUcontext now = NULL;
    if (!ls->drv->cuCtxGetCurrent(&now) && now == ctx->handle)
        return 0;
    return ls->drv->cuCtxPushCurrent_v2(ctx->handle) ? -EBUSY : 1;
}

void vp_context_leave(const struct vp_timelines *ls, int entered) {
    CUcontext popped;
    if (entered > 0)
        ls->drv->cuCtxPopCurrent_v2(&popped);
}

/* Legacy and per-thread are names relative to the current context. */
int vp_stream_enter(const struct vp_timelines *ls, const struct vp_context *ctx, CUstream stream) {
    return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD ? vp_context_enter(ls, ctx) : 0;
}

bool vp_timelines_blocking_idle(const struct vp_timelines *ls, const struct vp_context *ctx) {
    int entered = vp_context_enter(ls, ctx);
    /* It answers that it captures while a blocking stream does, and another question would end that capture. */
    bool idle = entered >= 0 && !vp_stream_captures(ls, CU_STREAM_LEGACY) && ls->drv->cuStreamQuery &&
                !ls->drv->cuStreamQuery(CU_STREAM_LEGACY);
    vp_context_leave(ls, entered);
    return idle;
}
