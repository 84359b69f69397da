/* Memory pools by place and type: beside those of devices, from 13.0 on, those of the host's memory and of managed
 * memory. By CUDA's headers: what a device answers about them was not recorded. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pools.h"

#include <string.h>

#if CUDA_VERSION >= 13000
static struct place {
    struct sim_pool *default_pool, *pool;
} places[2][4 + SIM_MAX_DEVICES]; /* managed or not; by type, and devices last */

static bool exists(const CUmemLocation *location, CUmemAllocationType type) {
    const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (!location || (!managed && type != CU_MEM_ALLOCATION_TYPE_PINNED))
        return false;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_NONE: return managed; /* INVALID has the same number */
    case CU_MEM_LOCATION_TYPE_DEVICE: return sim_device_ok(location->id);
    case CU_MEM_LOCATION_TYPE_HOST: return true;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: return location->id == SIM_HOST_NODE;
    default: return false;
    }
}

static struct place *place_of(const CUmemLocation *location, bool managed) {
    return &places[managed][location->type == CU_MEM_LOCATION_TYPE_DEVICE ? 4 + location->id : (int)location->type];
}

static struct sim_pool *pool_at(const CUmemLocation *location, bool managed) {
    const bool device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct sim_pool *pool = sim_pool_new(device ? location->id : 0, false);
    pool->located = location->type;
    pool->managed = managed;
    pool->access = managed ? ~0u : device ? pool->access : 0;
    return pool;
}

CUresult sim_pool_of(const CUmemPoolProps *props, struct sim_pool **out) {
    const bool managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (sim.options.driver < 13000 && (managed || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE))
        return managed ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    if (!exists(&props->location, props->allocType) ||
        (props->handleTypes && (managed || props->location.type == CU_MEM_LOCATION_TYPE_HOST)))
        return CUDA_ERROR_INVALID_VALUE;
    *out = pool_at(&props->location, managed);
    return CUDA_SUCCESS;
}

static CUresult get(CUmemoryPool *out, const CUmemLocation *location, CUmemAllocationType type, bool current) {
    const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (!out || !exists(location, type))
        return CUDA_ERROR_INVALID_VALUE;
    if (!managed && location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        *out = (current ? sim_pool_current(location->id) : sim_pool_default(location->id))->handle;
        return CUDA_SUCCESS;
    }
    struct place *place = place_of(location, managed);
    if (!place->default_pool) {
        place->default_pool = pool_at(location, managed);
        place->default_pool->is_default = true;
    }
    *out = (current && place->pool ? place->pool : place->default_pool)->handle;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 13000, cuMemGetDefaultMemPool,
        (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type), (pool, location, type)) {
    return get(pool, location, type, false);
}

SIM_API(SIM_SURE, 13000, cuMemGetMemPool, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type),
        (pool, location, type)) {
    return get(pool, location, type, true);
}

SIM_API(SIM_SURE, 13000, cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool handle),
        (location, type, handle)) {
    struct sim_pool *pool = handle ? sim_handle_get(SIM_POOL, handle) : NULL;
    const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || pool->imported || !exists(location, type) || pool->managed != managed ||
        pool->located != location->type ||
        (location->type == CU_MEM_LOCATION_TYPE_DEVICE && pool->device != location->id))
        return CUDA_ERROR_INVALID_VALUE;
    if (managed || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        place_of(location, managed)->pool = pool;
    else
        sim.devices[location->id].pool = pool;
    return CUDA_SUCCESS;
}

/* A pool that is destroyed is no longer any place's current one. */
void sim_places_forget(const struct sim_pool *pool) {
    for (size_t i = 0; i < sizeof(places[0]) / sizeof(places[0][0]); i++)
        if (places[pool->managed][i].pool == pool)
            places[pool->managed][i].pool = NULL;
}

void sim_places_reset(void) {
    memset(places, 0, sizeof(places));
}
#else
CUresult sim_pool_of(const CUmemPoolProps *props, struct sim_pool **out) {
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    *out = sim_device_ok(props->location.id) ? sim_pool_new(props->location.id, false) : NULL;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sim_places_forget(const struct sim_pool *pool) {
    (void)pool;
}

void sim_places_reset(void) {
}
#endif
