/* Doors of the driver: stream-ordered memory, and its memory pools. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "adopt.h"
#include "make.h"

static void set_current(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED)
        vp_api_pool_set_current(location->id, pool);
}

/* Memory that CUDA allocates from a pool is not reported by any call. */
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
