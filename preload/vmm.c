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

VP_DOORS_VMM(VP_MAKE)
