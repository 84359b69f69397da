/* Doors of the driver: memory in the order of streams, and the pools that it is from. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "adopt.h"
#include "make.h"

static void set_current(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED)
        vp_api_pool_set_current(location->id, pool);
}

/* What a pool hands out is told of by no call of its own. */
static void of_type(CUmemAllocationType type) {
    if (type == CU_MEM_ALLOCATION_TYPE_MANAGED)
        vp_api_tied(VP_TIE_MANAGED);
}

static void pool_created(CUmemoryPool pool, const CUmemPoolProps *props) {
    of_type(props->allocType);
    if (!vp_api_pool_created(pool, props))
        vp_api_passed(VP_PASSED_cuMemPoolCreate);
}

VP_DOORS_MEMPOOL(VP_MAKE)
