/* Remapping: a contiguous range is built of chunks that lie apart. They get a second mapping in a hole; the old one
 * becomes a zombie, and stays until its addresses or its entry in the driver are needed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/chunk.h"

#include <errno.h>

bool vp_chunk_ready(const struct vp_memory *mem, const struct vp_chunk *chunk, struct vp_timeline *timeline) {
    const struct vp_request req = {.timeline = timeline};
    CUdeviceptr addr = chunk->current->addr, end = addr + chunk->size;
    const struct vp_region *r = vp_region_at(mem, addr);
    return r->state == VP_FREE && vp_region_end(r) >= end && vp_range_usable(r, addr, end, &req, VP_USE_READY);
}

/* Copies the pieces of a region for the same bytes mapped `delta` bytes further on. */
static struct vp_piece *pieces_copy(struct vp_memory *mem, const struct vp_region *r, uint64_t delta) {
    struct vp_piece *first = NULL, **link = &first;
    for (const struct vp_piece *p = r->pieces; p; p = p->next) {
        struct vp_piece *q = vp_slab_alloc(&mem->piece_slab);
        *q = (struct vp_piece){.end = p->end + delta, .age = p->age, .stream = p->stream};
        vp_fence_unite(mem->timelines, &q->fence, &p->fence);
        *link = q;
        link = &q->next;
    }
    return first;
}

void vp_mapping_switch(struct vp_memory *mem, struct vp_mapping *to) {
    struct vp_chunk *chunk = to->chunk;
    CUdeviceptr old = chunk->current->addr;
    struct vp_region *from = vp_region_carve(mem, old, old + chunk->size);
    struct vp_region *here = vp_region_carve(mem, to->addr, to->addr + chunk->size);
    assert(from->state == VP_FREE && (here->state == VP_ZOMBIE || here->state == VP_BUILDING));
    /* Exactly what waits for the old mapping to end also waits for the bytes. */
    struct vp_piece *pieces = pieces_copy(mem, from, to->addr - old);
    vp_region_unfile(from);
    from->state = VP_ZOMBIE;
    vp_region_clear_pieces(mem, here);
    here->state = here->state == VP_BUILDING ? VP_BUILDING : VP_FREE;
    here->pieces = pieces;
    mem->away -= chunk->current != chunk->home;
    if (chunk->current != chunk->home)
        vp_list_append(&mem->zombies, &chunk->current->zombie);
    vp_list_remove(&to->zombie);
    vp_mapping_tell(mem, chunk->current);
    vp_mapping_tell(mem, to);
    chunk->current = to;
    mem->switches++;
    mem->away += chunk->current != chunk->home;
    vp_region_join(mem, from);
    vp_region_join(mem, here);
}

int vp_mapping_prepare(struct vp_memory *mem, struct vp_chunk **chunks, size_t n) {
    size_t pieces = 0;
    for (size_t i = 0; i < n; i++) {
        if (!chunks[i]->current)
            continue;
        CUdeviceptr addr = chunks[i]->current->addr;
        for (const struct vp_piece *p = vp_piece_at(vp_region_at(mem, addr), addr); p; p = p->next) {
            pieces++;
            if (p->end >= addr + chunks[i]->size)
                break;
        }
    }
    return vp_space_reserve(mem, 8 * n + 2 * pieces + 8);
}

/* Makes the mappings just made current. What was zombie becomes free; what is building stays building. */
static void make_current(struct vp_memory *mem, struct vp_chunk **chunks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct vp_chunk *chunk = chunks[i];
        struct vp_mapping *m = chunk->mappings;
        if (chunk->current) {
            vp_mapping_switch(mem, m);
            continue;
        }
        chunk->current = chunk->home = m;
        vp_chunk_tell(mem, chunk);
        vp_list_remove(&m->zombie);
        struct vp_region *r = vp_region_carve(mem, m->addr, vp_mapping_end(m));
        if (r->state == VP_BUILDING) {
            vp_region_one_piece(mem, r, &(struct vp_fence){0}, 0);
            continue;
        }
        r->state = VP_FREE;
        vp_region_join(mem, r);
    }
    mem->stats.stitches++;
}

int vp_stitch_map(struct vp_memory *mem, struct vp_chunk **chunks, size_t n, CUdeviceptr addr) {
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += chunks[i]->size;
    int err = vp_mapping_prepare(mem, chunks, n);
    if (!err)
        err = vp_chunk_map(mem, chunks, n, addr);
    if (err)
        return err;
    if (vp_region_at(mem, addr)->state != VP_BUILDING) {
        assert(vp_region_at(mem, addr)->state == VP_HOLE);
        struct vp_region *r = vp_region_turn(mem, addr, addr + size, VP_ZOMBIE);
        vp_region_one_piece(mem, r, &(struct vp_fence){0}, 0);
        vp_region_join(mem, r);
    }
    make_current(mem, chunks, n);
    return 0;
}

int vp_stitch_begin(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end, bool planned) {
    int err = vp_space_reserve(mem, 4);
    if (err)
        return err;
    assert(vp_region_at(mem, addr)->state == VP_HOLE);
    struct vp_region *r = vp_region_turn(mem, addr, end, VP_BUILDING);
    r->planned = planned;
    r->pieces = NULL;
    return 0;
}

void vp_stitch_end(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr built, CUdeviceptr end) {
    for (CUdeviceptr next; addr < end; addr = next) {
        struct vp_region *r = vp_region_at(mem, addr);
        assert(r->state == VP_BUILDING);
        next = vp_region_end(r);
        r->state = addr < built ? VP_FREE : VP_HOLE;
        r->planned = false;
        vp_region_join(mem, r);
    }
}

int vp_stitch_hole(struct vp_memory *mem, enum vp_zone_name zone, size_t size, bool must, struct vp_region **hole) {
    /* With limited addresses only requests that must have some get any. */
    if (mem->va_step && !must)
        return -ENOMEM;
    if ((*hole = vp_index_first(&mem->holes[zone], size)))
        return 0;
    /* Twice what is needed and at least 1 GiB, so that this is rare. */
    size_t least = vp_round_up(size, mem->granularity), want = vp_round_up(size * 2, UINT64_C(1) << 30);
    const size_t step = mem->va ? mem->va : mem->va_step;
    if (step)
        want = vp_round_up(vp_greater(step, least), mem->granularity);
    /* First tries to double the addresses, so that there are few spaces however far the program grows. */
    size_t more = mem->va_step ? want : vp_greater(mem->space_bytes, want);
    bool added = (more > want && !vp_space_add(mem, zone, more)) || !vp_space_add(mem, zone, want) ||
                 !vp_space_add(mem, zone, least);
    if (!added && must)
        vp_stitch_reap_all(mem);
    return (*hole = vp_index_first(&mem->holes[zone], size)) ? 0 : -ENOMEM;
}

int vp_mapping_unmap(struct vp_memory *mem, struct vp_mapping *m) {
    CUdeviceptr addr = m->addr;
    size_t size = m->chunk->size;
    int err = vp_space_reserve(mem, 4);
    if (!err)
        err = vp_chunk_unmap(mem, m);
    if (err)
        return err;
    struct vp_region *r = vp_region_turn(mem, addr, addr + size, VP_HOLE);
    vp_region_clear_pieces(mem, r);
    vp_region_join(mem, r);
    return 0;
}

void vp_mapping_go_home(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end) {
    while (addr < end && mem->away) {
        const struct vp_mapping *m = vp_mapping_at(mem, addr);
        struct vp_chunk *chunk = m->chunk;
        addr = m->addr + chunk->size;
        /* In a bare segment the current chunk needs no fence; at a home there it would first have to be ready. */
        if (m == chunk->home || m != chunk->current || vp_space_of(mem, chunk->home->addr)->zone == VP_ZONE_BARE)
            continue;
        const struct vp_region *r = vp_region_at(mem, m->addr);
        /* Without metadata it stays where it is: that costs order, not correctness. */
        if (r->state == VP_FREE && vp_region_end(r) >= addr && vp_mapping_prepare(mem, &chunk, 1) == 0)
            vp_mapping_switch(mem, chunk->home);
    }
}

void vp_mapping_settle(struct vp_memory *mem, struct vp_chunk *chunk) {
    if (chunk->home == chunk->current)
        return;
    vp_list_append(&mem->zombies, &chunk->home->zombie);
    chunk->home = chunk->current;
    vp_chunk_tell(mem, chunk);
    mem->away--;
}

bool vp_mapping_over(const struct vp_memory *mem, const struct vp_mapping *m) {
    const struct vp_request anyone = {0};
    return vp_range_usable(vp_region_at(mem, m->addr), m->addr, m->addr + m->chunk->size, &anyone, VP_USE_READY);
}

bool vp_stitch_reap(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end, bool homes) {
    bool all = true;
    while (addr < end) {
        struct vp_mapping *m = vp_mapping_at(mem, addr);
        addr = m ? m->addr + m->chunk->size : addr + mem->granularity;
        if (!m)
            continue;
        if (m->chunk->current == m || (m->chunk->home == m && !homes) || !vp_mapping_over(mem, m) ||
            vp_mapping_unmap(mem, m) < 0)
            all = false;
        else
            mem->stats.reaps++;
    }
    return all;
}

void vp_stitch_reap_some(struct vp_memory *mem, size_t n, size_t tries) {
    for (; n > 0 && tries > 0 && !vp_list_empty(&mem->zombies); tries--) {
        struct vp_mapping *m = vp_container_of(mem->zombies.next, struct vp_mapping, zombie);
        if (vp_mapping_over(mem, m) && vp_mapping_unmap(mem, m) == 0) {
            mem->stats.reaps++;
            n--;
        } else {
            vp_list_remove(&m->zombie);
            vp_list_append(&mem->zombies, &m->zombie);
        }
    }
}

void vp_stitch_reap_all(struct vp_memory *mem) {
    struct vp_space *s;
    struct vp_region *r, *next;
    vp_list_each(s, &mem->spaces, link)
        for (r = vp_container_of(s->regions.next, struct vp_region, va); r; r = next) {
            CUdeviceptr addr = r->addr, end = vp_region_end(r);
            if (r->state == VP_ZOMBIE) {
                vp_stitch_reap(mem, addr, end, true);
                r = vp_region_at(mem, end - 1);
            }
            next = vp_region_next(r);
        }
}

bool vp_chunk_give_back(struct vp_memory *mem, struct vp_chunk *chunk) {
    struct vp_mapping *m, *next;
    if (vp_chunk_is_kept(mem, chunk))
        return false;
    for (m = chunk->mappings; m; m = m->next)
        if (!vp_mapping_over(mem, m))
            return false;
    for (m = chunk->mappings; m; m = next) {
        next = m->next;
        if (m != chunk->current && vp_mapping_unmap(mem, m) < 0)
            return false;
    }
    if (vp_mapping_unmap(mem, chunk->current) < 0)
        return false;
    vp_chunk_destroy(mem, chunk);
    return true;
}
