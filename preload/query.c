/* Doors of the driver: queries about memory, and attributes that are set. Memory that a call shares by other means than
 * its address must stay backed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"
#include "process/bare.h"

/* If the pool has no answer, keeps the driver from taking freed memory for live. */
static CUresult asked(CUresult res, CUdeviceptr *ptr) {
    if (res == VP_NOT_OURS)
        *ptr = vp_api_asked_address(*ptr);
    return res;
}

/* The driver takes all mapped memory for registered host memory, too. */
static void *no_host_memory(void *ptr) {
    return (void *)vp_api_mapped_address((CUdeviceptr)ptr, 0, false);
}

/* Of memory that it has allocated itself CUDA tells of no access that was set (0, on an H200). */
static void access_is_ours(unsigned long long *flags, CUdeviceptr ptr) {
    if (vp_api_owns(ptr))
        *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr) {
    bool ours = vp_door_enter();
    CUdeviceptr asked = ours ? vp_api_asked_address(ptr) : ptr;
    CUresult res = VP_REAL(cuPointerGetAttributes)(count, attributes, data, asked);
    /* Here there is no error for one of them: what has no answer is zero by now. */
    for (unsigned int i = 0; ours && res == CUDA_SUCCESS && i < count; i++)
        (void)vp_api_pointer_attribute(data[i], attributes[i], ptr);
    vp_door_leave();
    return res;
}

VP_DOORS_QUERY(VP_MAKE)
