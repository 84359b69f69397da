/* Doors of the driver: streams, captures, contexts and peers, of which the pool must know when they begin and
 * end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doors.h"

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuStreamCreate)(stream, flags));

    if (ours && res == CUDA_SUCCESS)
        vp_api_stream_created(*stream);
    vp_door_leave();
    return res;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuStreamCreateWithPriority)(stream, flags, priority));

    if (ours && res == CUDA_SUCCESS)
        vp_api_stream_created(*stream);
    vp_door_leave();
    return res;
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned int flags, int priority) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuGreenCtxStreamCreate)(stream, context, flags, priority));

    if (ours && res == CUDA_SUCCESS)
        vp_api_stream_created(*stream);
    vp_door_leave();
    return res;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    CUresult res;

    if (vp_door_enter())
        vp_api_stream_destroying(stream);
    res = VP_REAL(cuStreamDestroy_v2)(stream);
    vp_door_leave();
    return res;
}

CUresult cuStreamDestroy(CUstream stream) {
    return cuStreamDestroy_v2(stream);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    CUresult res;
    bool ours = vp_door_enter();

    if (ours)
        vp_api_capture_beginning(stream);
    res = VP_REAL(cuStreamBeginCapture_v2)(stream, mode);
    if (ours)
        vp_api_capture_began(stream, res == CUDA_SUCCESS);
    vp_door_leave();
    return res;
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
    return cuStreamBeginCapture_v2(vp_door_per_thread(stream), mode);
}

CUresult cuStreamBeginCapture(CUstream stream) {
    CUresult res;
    bool ours = vp_door_enter();

    if (ours)
        vp_api_capture_beginning(stream);
    res = VP_REAL(cuStreamBeginCapture)(stream);
    if (ours)
        vp_api_capture_began(stream, res == CUDA_SUCCESS);
    vp_door_leave();
    return res;
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
    return cuStreamBeginCapture(vp_door_per_thread(stream));
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
    CUresult res;
    bool ours = vp_door_enter();

    if (ours)
        vp_api_capture_beginning(stream);
    res = VP_REAL(cuStreamBeginCaptureToGraph)(stream, graph, dependencies, edges, count, mode);
    if (ours)
        vp_api_capture_began(stream, res == CUDA_SUCCESS);
    vp_door_leave();
    return res;
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
    return cuStreamBeginCaptureToGraph(vp_door_per_thread(stream), graph, dependencies, edges, count, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    bool ours = vp_door_enter();
    CUresult res = VP_REAL(cuStreamEndCapture)(stream, graph);

    if (ours)
        vp_api_capture_ended(stream);
    vp_door_leave();
    return res;
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    return cuStreamEndCapture(vp_door_per_thread(stream), graph);
}

/* A context may run work, and so must be waited for by a cudaFree, before it ever allocates. */

static CUresult created(bool ours, CUresult res, CUcontext *context, bool primary) {
    if (ours && res == CUDA_SUCCESS)
        vp_api_context_created(*context, primary);
    vp_door_leave();
    return res;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    bool ours = vp_door_enter();

    return created(ours, VP_TRIED(ours, VP_REAL(cuCtxCreate_v2)(context, flags, device)), context, false);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags,
                        CUdevice device) {
    bool ours = vp_door_enter();

    return created(ours, VP_TRIED(ours, VP_REAL(cuCtxCreate_v3)(context, params, count, flags, device)), context,
                   false);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device) {
    bool ours = vp_door_enter();

    return created(ours, VP_TRIED(ours, VP_REAL(cuCtxCreate_v4)(context, params, flags, device)), context, false);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    bool ours = vp_door_enter();

    return created(ours, VP_TRIED(ours, VP_REAL(cuDevicePrimaryCtxRetain)(context, device)), context, true);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    CUresult res;
    bool ours = vp_door_enter();

    if (ours)
        vp_api_context_destroying(context);
    res = VP_REAL(cuCtxDestroy_v2)(context);
    if (ours)
        vp_api_context_destroyed(context, res == CUDA_SUCCESS);
    vp_door_context_ends();
    vp_door_leave();
    return res;
}

CUresult cuCtxDestroy(CUcontext context) {
    return cuCtxDestroy_v2(context);
}

/*
 * Ends the context if it was the last reference, which the driver alone can tell. Its own name for that, to which newer
 * drivers may have no function any more, is left out of newer headers.
 */
CUresult cuCtxDetach(CUcontext context) {
    unsigned int version;
    CUresult res;
    bool ours = vp_door_enter();

    if (ours)
        vp_api_context_destroying(context);
    res = VP_REAL(cuCtxDetach)(context);
    if (ours)
        vp_api_context_destroyed(context,
                                 res == CUDA_SUCCESS && VP_REAL(cuCtxGetApiVersion)(context, &version) != CUDA_SUCCESS);
    vp_door_context_ends();
    vp_door_leave();
    return res;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    CUcontext context = NULL;
    CUresult res;

    if (vp_door_enter() && VP_REAL(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS)
        vp_api_context_destroying(context);
    else
        context = NULL;
    res = VP_REAL(cuGreenCtxDestroy)(green);
    if (context)
        vp_api_context_destroyed(context, res == CUDA_SUCCESS);
    vp_door_context_ends();
    vp_door_leave();
    return res;
}

/* Whether a device's primary context has ended; to ask makes none. */
static bool primary_ended(CUdevice device) {
    unsigned int flags;
    int active;

    return VP_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && !active;
}

/*
 * A release ends the context only if it was the last one, which nobody but the driver can tell, and
 * afterwards.
 */
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CUresult res;
    CUcontext context = vp_door_enter() ? vp_api_primary(device, true) : NULL;

    if (context)
        vp_api_context_destroying(context);
    res = VP_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    if (context)
        vp_api_context_destroyed(context, res == CUDA_SUCCESS && primary_ended(device));
    vp_door_context_ends();
    vp_door_leave();
    return res;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    CUresult res;
    CUcontext context = vp_door_enter() ? vp_api_primary(device, false) : NULL;

    if (context)
        vp_api_context_destroying(context);
    res = VP_REAL(cuDevicePrimaryCtxReset_v2)(device);
    if (context)
        vp_api_context_destroyed(context, res == CUDA_SUCCESS);
    vp_door_context_ends();
    vp_door_leave();
    return res;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuCtxEnablePeerAccess)(peer, flags));

    if (ours && res == CUDA_SUCCESS && (res = vp_api_peer_enabled(peer)) != CUDA_SUCCESS)
        VP_REAL(cuCtxDisablePeerAccess)(peer);
    vp_door_leave();
    return res;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    bool ours = vp_door_enter();
    CUresult res = VP_REAL(cuCtxDisablePeerAccess)(peer);

    if (ours && res == CUDA_SUCCESS)
        vp_api_peer_disabled(peer);
    vp_door_leave();
    return res;
}
