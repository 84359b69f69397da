/* Doors of the driver: handles of physical memory that the program makes itself. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"

/* Memory of the host has no device. */
static void created(CUmemGenericAllocationHandle handle, size_t size, const CUmemAllocationProp *prop) {
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        vp_api_other_created(prop->location.id, handle, size);
}

/* What of it is to be had of a device. */
static size_t memory_of(size_t size, const CUmemAllocationProp *prop) {
    return prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? size : VP_HOST_MEMORY;
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

VP_DOORS_VMM(VP_MAKE)
