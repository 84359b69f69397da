/* Doors of the driver: physical memory handles that the program creates itself. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"

/* The device of a handle, or of a part of a device; -1: host memory. The number of a part is above that of its device.
 */
static CUdevice device_of(const CUmemAllocationProp *prop) {
    const int type = (int)prop->location.type, id = prop->location.id;
    return type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN ? id & 0xff
           : type == CU_MEM_LOCATION_TYPE_DEVICE               ? id
                                                               : -1;
}

/* How much of it is memory of a device. */
static size_t memory_of(size_t size, const CUmemAllocationProp *prop) {
    return prop && device_of(prop) >= 0 ? size : VP_HOST_MEMORY;
}

VP_DOORS_VMM(VP_MAKE)
