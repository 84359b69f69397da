/* Doors of the driver: handles of physical memory that the program makes itself. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"

/* The device that it is of, or a part of which; -1: it is the host's. The part's number stands above the device's. */
static CUdevice device_of(const CUmemAllocationProp *prop) {
    const int type = (int)prop->location.type, id = prop->location.id;
    return type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN ? id & 0xff
           : type == CU_MEM_LOCATION_TYPE_DEVICE               ? id
                                                               : -1;
}

/* What of it is to be had of a device. */
static size_t memory_of(size_t size, const CUmemAllocationProp *prop) {
    return prop && device_of(prop) >= 0 ? size : VP_HOST_MEMORY;
}

VP_DOORS_VMM(VP_MAKE)
