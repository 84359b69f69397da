/* Doors of the driver: memory shared with other processes. A process that opens such memory may have to wait for
 * others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "adopt.h"
#include "make.h"
#include "process/bare.h"

/* If the memory lies in a bare segment, the other process gets the whole segment. */
static CUresult shared(CUipcMemHandle *out, CUdeviceptr ptr) {
    CUresult res = vp_bare_pin(ptr, 0);
    res = res == CUDA_ERROR_OUT_OF_MEMORY ? res : vp_api_ipc_get(out, ptr);
    if (res == CUDA_ERROR_INVALID_VALUE)
        vp_adopt_refused(NULL);
    if (res == VP_NOT_OURS && !(res = VP_REAL(cuIpcGetMemHandle)(out, ptr)))
        vp_api_tied(VP_TIE_EXPORT);
    return res;
}

/* CUDA binds stream-ordered memory that others cannot be shown to objects that they cannot be shown, either. */
static atomic_bool unshared;

static void multicast_created(const CUmulticastObjectProp *prop) {
    unshared |= !prop->handleTypes;
    vp_api_tied(VP_TIE_MULTICAST);
}

#define OPEN(symbol)                                                                                                   \
    CUresult symbol(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags) {                                     \
        bool ours = vp_door_enter();                                                                                   \
        CUresult res = ours ? vp_api_ipc_open(ptr, &handle, flags) : VP_NOT_OURS;                                      \
        bool native = res == VP_NOT_OURS;                                                                              \
        if (native)                                                                                                    \
            res = VP_TRIED(ours, VP_HOST_MEMORY, VP_REAL(symbol)(ptr, handle, flags));                                 \
        if (ours && res == CUDA_SUCCESS)                                                                               \
            vp_api_shares("memory of another process opened");                                                         \
        if (ours && res == CUDA_SUCCESS && native) /* what the pool has opened it also knows to be closed */           \
            vp_api_tied(VP_TIE_IMPORT);                                                                                \
        vp_door_leave();                                                                                               \
        return res;                                                                                                    \
    }
OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)
VP_DOORS_IPC(VP_MAKE)
