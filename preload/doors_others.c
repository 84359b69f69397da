/* Doors of the driver: memory that is none of ours. Whoever asks for it gets CUDA's own; but when it runs
 * out, what we keep may be what is missing: it is given back, waited for if need be, and the call made again
 * (VP_TRIED). So it is at every door of a call that takes memory of the device, here and in other files.
 *
 * No doors for that have: what takes a few bytes of memory that the driver has already (events, texture and
 * surface objects); what maps memory that exists, which takes page tables (cuMemMap, cuMemSetAccess,
 * cuExternalMemoryGetMapped*, cuGraphicsMapResources, imported handles and pools); copies and memsets, which
 * stage in the host's memory; and launches of kernels. A launch may load the kernel's code or make room for
 * its local memory, but CUDA does not promise that one which fails has queued nothing, and it is no call to
 * lengthen. Whoever loads lazily and runs short calls cuFuncLoad or asks for the function first.
 *
 * Handles that the program makes itself (cuMemCreate) are counted besides, so that the statistics can say
 * whose the device's memory is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doors.h"

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuMemCreate)(handle, size, prop, flags));

    /* Memory of the host has no device. */
    if (ours && res == CUDA_SUCCESS && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        vp_api_other_created(prop->location.id, *handle, size);
    vp_door_leave();
    return res;
}

/* Told before: once the driver has let go of it, another thread may be given the same handle. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    CUresult res;

    if (vp_door_enter())
        vp_api_other_released(handle);
    res = VP_REAL(cuMemRelease)(handle);
    vp_door_leave();
    return res;
}

/* An allocation of the pool has no handle of its own: refused, as cuMemAlloc's memory is. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *ptr) {
    CUresult res;
    bool ours = vp_door_enter();

    if (ours && vp_api_owns((CUdeviceptr)(uintptr_t)ptr)) {
        res = CUDA_ERROR_INVALID_VALUE;
    } else {
        if (ours)
            ptr = (void *)(uintptr_t)vp_api_asked_address((CUdeviceptr)(uintptr_t)ptr);
        res = VP_REAL(cuMemRetainAllocationHandle)(handle, ptr);
        if (ours && res == CUDA_SUCCESS)
            vp_api_other_retained(*handle);
    }
    vp_door_leave();
    return res;
}

/* Pools that can be exported stay with CUDA; a block of the pool is none of theirs. */
CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr ptr) {
    CUresult res;

    if (vp_door_enter() && vp_api_owns(ptr))
        res = CUDA_ERROR_INVALID_VALUE;
    else
        res = VP_REAL(cuMemPoolExportPointer)(data, ptr);
    vp_door_leave();
    return res;
}

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned int flags) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuMemAllocManaged)(ptr, size, flags));

    vp_door_leave();
    return res;
}

CUresult cuMemAllocHost_v2(void **ptr, size_t size) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuMemAllocHost_v2)(ptr, size));

    vp_door_leave();
    return res;
}

CUresult cuMemHostAlloc(void **ptr, size_t size, unsigned int flags) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuMemHostAlloc)(ptr, size, flags));

    vp_door_leave();
    return res;
}

CUresult cuMemHostRegister_v2(void *ptr, size_t size, unsigned int flags) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuMemHostRegister_v2)(ptr, size, flags));

    vp_door_leave();
    return res;
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuArrayCreate_v2)(array, desc));

    vp_door_leave();
    return res;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuArray3DCreate_v2)(array, desc));

    vp_door_leave();
    return res;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuMipmappedArrayCreate)(array, desc, levels));

    vp_door_leave();
    return res;
}

/*
 * A graph that allocates gets its memory when it is made, uploaded or launched: in one piece, before any of it is
 * queued.
 */

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuGraphInstantiateWithFlags)(exec, graph, flags));

    vp_door_leave();
    return res;
}

static CUresult instantiate(__typeof__(&cuGraphInstantiateWithParams) real, CUgraphExec *exec, CUgraph graph,
                            CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, real(exec, graph, params));

    vp_door_leave();
    return res;
}

/* The stream to upload on is in the parameters, and means another by each name. */
CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return instantiate(VP_REAL(cuGraphInstantiateWithParams), exec, graph, params);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return instantiate(VP_REAL(cuGraphInstantiateWithParams_ptsz), exec, graph, params);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuGraphUpload)(exec, stream));

    vp_door_leave();
    return res;
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return cuGraphUpload(exec, vp_door_per_thread(stream));
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuGraphLaunch)(exec, stream));

    vp_door_leave();
    return res;
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return cuGraphLaunch(exec, vp_door_per_thread(stream));
}
