/* Host memory behind device addresses: see spill.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/spill.h"

bool vp_spill_possible(struct vp_memory *mem) {
    size_t granularity = 0;
    if (mem->host_prop.type)
        return true;
    if (!vp_memory_attribute(mem, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return false;
    /* The device's NUMA node. Without NUMA there is one node, number 0. */
    const int node = vp_memory_attribute(mem, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node > 0 ? node : 0},
    };
    if (mem->drv->cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ||
        !granularity || mem->granularity % granularity)
        return false;
    mem->host_prop = prop;
    return true;
}

/* Where host memory begins in a block: it is the block's end. */
static CUdeviceptr host_begin(const struct vp_memory *mem, const struct vp_region *block) {
    vp_mappings_each(m, mem, block->addr, vp_region_end(block))
        if (m->chunk->host)
            return m->addr;
    return vp_region_end(block);
}

bool vp_spill_holds(const struct vp_memory *mem, CUdeviceptr addr) {
    const struct vp_region *r = mem->spilled_live && vp_mapping_at(mem, addr) ? vp_region_at(mem, addr) : NULL;
    return r && r->state == VP_LIVE && r->spilled;
}

void vp_spill_went_live(struct vp_memory *mem, struct vp_region *block) {
    block->spilled = true;
    mem->spilled_live += vp_region_end(block) - host_begin(mem, block);
    mem->stats.spills++;
}

/* Regions and pieces needed to cut one part out of a region. */
enum { NODES = 8 };

CUdeviceptr vp_spill_release(struct vp_memory *mem, struct vp_region *block) {
    const CUdeviceptr begin = host_begin(mem, block), end = vp_region_end(block);
    block->spilled = false;
    mem->spilled_live -= end - begin;
    mem->exports_changed = true;
    if (vp_space_reserve(mem, NODES) == 0)
        return begin;
    block->exported = true;
    vp_mappings_each(m, mem, block->addr, begin) {
        mem->exported += !m->chunk->exported;
        m->chunk->exported = true;
    }
    return 0;
}

void vp_spill_retire(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end) {
    assert(vp_region_at(mem, addr)->state == VP_FREE);
    vp_region_join(mem, vp_region_turn(mem, addr, end, VP_RETIRED));
}
