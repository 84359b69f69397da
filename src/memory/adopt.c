/* Handles that were made and mapped without the lock become chunks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/chunk.h"

#include <errno.h>

int vp_chunk_adopt(struct vp_memory *mem, CUmemGenericAllocationHandle handle, size_t size, CUdeviceptr addr) {
    int err = vp_space_reserve(mem, 8);
    if (!err)
        err = vp_slab_reserve(&mem->mapping_slab, 1);
    struct vp_chunk *chunk = err ? NULL : vp_slab_alloc(&mem->chunk_slab);
    if (!chunk)
        return -ENOMEM;
    struct vp_region *r = vp_region_carve(mem, addr, addr + size);
    assert(r->state == VP_BUILDING && !r->pieces);
    struct vp_mapping *m = vp_slab_alloc(&mem->mapping_slab);
    *m = (struct vp_mapping){.addr = addr, .chunk = chunk};
    vp_list_init(&m->zombie);
    *chunk = (struct vp_chunk){.handle = handle,
                               .size = size,
                               .current = m,
                               .home = m,
                               .mappings = m,
                               .planned = true,
                               .birth = ++mem->births};
    vp_list_append(&mem->chunks, &chunk->link);
    mem->chunk_count++;
    mem->mappings++;
    mem->largest = vp_greater(mem->largest, size);
    vp_memory_note_held(mem, size);
    vp_mapping_note(mem, m, true);
    vp_region_one_piece(mem, r, &(struct vp_fence){0}, 0);
    r->planned = false;
    r->state = VP_FREE;
    vp_region_join(mem, r);
    mem->stats.planned_bytes += size;
    return 0;
}
