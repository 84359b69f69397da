/* Pages of bare segments, one mapping at a time: taken into use, free again, taken away. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/chunk.h"

#include <errno.h>

/* Regions and pieces that one step of these functions may need. */
enum { NODES = 4 };

int vp_backing_take(struct vp_memory *mem, const struct vp_mapping *m) {
    struct vp_region *r = vp_region_at(mem, m->addr);
    int err = vp_space_reserve(mem, NODES);
    if (err)
        return err;
    assert(r->state == VP_FREE && m == m->chunk->current && r->space->zone == VP_ZONE_BARE);
    r = vp_region_take(mem, r, m->addr, m->addr + m->chunk->size);
    r->state = VP_BACKED;
    return 0;
}

int vp_backing_drop(struct vp_memory *mem, const struct vp_mapping *m, struct vp_fence *fence) {
    struct vp_region *r = vp_region_at(mem, m->addr);
    int err = vp_space_reserve(mem, NODES);
    if (err)
        return err;
    assert(r->state == VP_BACKED && r->addr == m->addr && r->size == m->chunk->size);
    /* Free bytes of a sleeping chunk are nobody's until it wakes. */
    r->state = m->chunk->asleep ? VP_RETIRED : VP_FREE;
    vp_region_one_piece(mem, r, fence, ++mem->age);
    vp_region_join(mem, r);
    return 0;
}

int vp_backing_retire(struct vp_memory *mem, const struct vp_mapping *m, struct vp_fence *fence) {
    int err = vp_space_reserve(mem, 2 * NODES);
    if (!err)
        err = vp_backing_drop(mem, m, fence);
    if (err)
        return err;
    vp_region_join(mem, vp_region_turn(mem, m->addr, m->addr + m->chunk->size, VP_RETIRED));
    mem->exports_changed = true;
    return 0;
}

int vp_backing_unmap(struct vp_memory *mem, struct vp_mapping *m) {
    struct vp_chunk *chunk = m->chunk;
    const CUdeviceptr addr = m->addr, end = addr + chunk->size;
    if (!vp_mapping_over(mem, m))
        return -EAGAIN;
    if (chunk->current == m) {
        struct vp_mapping *other = chunk->mappings;
        while (other == m)
            other = other->next;
        /* What other processes were shown is never used again. */
        if (!other || chunk->exported)
            return vp_chunk_give_back(mem, chunk) ? 0 : -EAGAIN;
        if (vp_mapping_prepare(mem, &chunk, 1) < 0)
            return -ENOMEM;
        vp_mapping_switch(mem, other);
    }
    return vp_stitch_reap(mem, addr, end, true) ? 0 : -EAGAIN;
}
