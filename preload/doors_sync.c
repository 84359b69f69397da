/* Doors of the driver: where the program waits on the host. CUDA gives memory above a pool's release threshold
 * back there; so do we, if the program has set one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doors.h"

static bool noted(bool ours, CUresult res) {
    return ours && res == CUDA_SUCCESS && vp_api_sync_matters();
}

CUresult cuStreamSynchronize(CUstream stream) {
    bool ours = vp_door_enter();
    CUresult res = VP_REAL(cuStreamSynchronize)(stream);

    if (noted(ours, res))
        vp_api_stream_synchronized(stream);
    vp_door_leave();
    return res;
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return cuStreamSynchronize(vp_door_per_thread(stream));
}

CUresult cuCtxSynchronize(void) {
    bool ours = vp_door_enter();
    CUresult res = VP_REAL(cuCtxSynchronize)();

    if (noted(ours, res))
        vp_api_context_synchronized();
    vp_door_leave();
    return res;
}

/* Of any context: as an event, it says nothing of the current one's streams. */
CUresult cuCtxSynchronize_v2(CUcontext context) {
    bool ours = vp_door_enter();
    CUresult res = VP_REAL(cuCtxSynchronize_v2)(context);

    if (noted(ours, res))
        vp_api_event_synchronized();
    vp_door_leave();
    return res;
}

CUresult cuEventSynchronize(CUevent event) {
    bool ours = vp_door_enter();
    CUresult res = VP_REAL(cuEventSynchronize)(event);

    if (noted(ours, res))
        vp_api_event_synchronized();
    vp_door_leave();
    return res;
}
