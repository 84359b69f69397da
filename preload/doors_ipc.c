/* Doors of the driver: memory shared with other processes by legacy IPC. A handle that the pool made is opened
 * by us, any other by CUDA.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doors.h"

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr) {
    CUresult res = vp_door_enter() ? vp_api_ipc_get(handle, ptr) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_REAL(cuIpcGetMemHandle)(handle, ptr);
    vp_door_leave();
    return res;
}

/* Whoever opens memory of another process may have to wait for it from now on. */
static CUresult opened(bool ours, CUresult res) {
    if (ours && res == CUDA_SUCCESS)
        vp_api_coupled("memory of another process opened");
    vp_door_leave();
    return res;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags) {
    bool ours = vp_door_enter();
    CUresult res = ours ? vp_api_ipc_open(ptr, &handle, flags) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_TRIED(ours, VP_REAL(cuIpcOpenMemHandle_v2)(ptr, handle, flags));
    return opened(ours, res);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags) {
    bool ours = vp_door_enter();
    CUresult res = ours ? vp_api_ipc_open(ptr, &handle, flags) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_TRIED(ours, VP_REAL(cuIpcOpenMemHandle)(ptr, handle, flags));
    return opened(ours, res);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr) {
    CUresult res = vp_door_enter() ? vp_api_ipc_close(ptr) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_REAL(cuIpcCloseMemHandle)(ptr);
    vp_door_leave();
    return res;
}
