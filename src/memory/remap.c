/* Remapping: a contiguous range is built of chunks that lie apart. The chunks get a second mapping in a hole; their old
 * one turns zombie, and stays until its addresses or its entry in the driver are needed elsewhere.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pool/stream_cache.h"
#include "pool/pool_private.h"

#include <errno.h>
#include <sys/mman.h>

void *vp_pool_scratch(struct vp_pool *pool, size_t bytes) {
    if (bytes > pool->scratch.bytes) {
        size_t want = vp_round_up(bytes + bytes / 8, 65536);
        void *mem = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mem == MAP_FAILED)
            return NULL;
        if (pool->scratch.mem)
            munmap(pool->scratch.mem, pool->scratch.bytes);
        pool->scratch = (struct scratch){mem, want};
    }
    return pool->scratch.mem;
}

bool vp_chunk_usable(const struct vp_pool *pool, const struct vp_chunk *chunk, const struct vp_request *req,
                     enum vp_usable use) {
    CUdeviceptr addr = chunk->current->addr, end = addr + chunk->size;
    const struct vp_region *r = vp_region_at(pool, addr);
    return r->state == VP_FREE && vp_region_end(r) >= end && vp_range_usable(r, addr, end, req, use);
}

/* Pieces of [addr, end) as they are for the same bytes seen `delta` further on. */
static struct vp_piece *pieces_copy(struct vp_pool *pool, const struct vp_region *r, uint64_t delta) {
    struct vp_piece *first = NULL, **link = &first;
    for (const struct vp_piece *p = r->pieces; p; p = p->next) {
        struct vp_piece *q = vp_slab_alloc(&pool->piece_slab);
        *q = (struct vp_piece){.end = p->end + delta, .age = p->age, .stream = p->stream};
        vp_fence_copy(pool->timelines, &q->fence, &p->fence);
        *link = q;
        link = &q->next;
    }
    return first;
}

void vp_mapping_switch(struct vp_pool *pool, struct vp_mapping *to) {
    struct vp_chunk *chunk = to->chunk;
    CUdeviceptr old = chunk->current->addr;
    struct vp_region *from = vp_region_carve(pool, old, old + chunk->size);
    struct vp_region *here = vp_region_carve(pool, to->addr, to->addr + chunk->size);
    assert(from->state == VP_FREE && here->state == VP_ZOMBIE);
    /* What waits for the old mapping to end is exactly what waits for the bytes. */
    struct vp_piece *pieces = pieces_copy(pool, from, to->addr - old);
    vp_region_unfile(from);
    from->state = VP_ZOMBIE;
    vp_region_clear_pieces(pool, here);
    here->state = VP_FREE;
    here->pieces = pieces;
    here->index = NULL;
    pool->away -= chunk->current != chunk->home;
    if (chunk->current != chunk->home)
        vp_list_append(&pool->zombies, &chunk->current->zombie);
    vp_list_remove(&to->zombie);
    chunk->current = to;
    pool->switches++;
    pool->away += chunk->current != chunk->home;
    vp_region_join(pool, from);
    vp_region_join(pool, here);
}

/* Metadata for switching these chunks. */
static int reserve_nodes(struct vp_pool *pool, struct vp_chunk **chunks, size_t n) {
    size_t pieces = 0;
    for (size_t i = 0; i < n; i++) {
        if (!chunks[i]->current)
            continue;
        CUdeviceptr addr = chunks[i]->current->addr;
        for (const struct vp_piece *p = vp_piece_at(vp_region_at(pool, addr), addr); p; p = p->next) {
            pieces++;
            if (p->end >= addr + chunks[i]->size)
                break;
        }
    }
    return vp_space_reserve(pool, 8 * n + 2 * pieces + 8);
}

int vp_stitch_map(struct vp_pool *pool, struct vp_chunk **chunks, size_t n, CUdeviceptr addr) {
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += chunks[i]->size;
    int err = reserve_nodes(pool, chunks, n);
    if (err)
        return err;
    struct vp_mapping **maps = mmap(NULL, n * sizeof *maps, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (maps == MAP_FAILED)
        return -ENOMEM;
    err = vp_chunk_map(pool, chunks, n, addr, maps);
    if (!err) {
        struct vp_region *r = vp_region_carve(pool, addr, addr + size);
        assert(r->state == VP_HOLE);
        vp_region_unfile(r);
        r->state = VP_ZOMBIE;
        r->index = NULL;
        vp_region_one_piece(pool, r, &(struct vp_fence){0}, 0);
        vp_region_join(pool, r);
        for (size_t i = 0; i < n; i++) {
            if (chunks[i]->current) {
                vp_mapping_switch(pool, maps[i]);
                continue;
            }
            chunks[i]->current = chunks[i]->home = maps[i];
            vp_list_remove(&maps[i]->zombie);
            r = vp_region_carve(pool, maps[i]->addr, maps[i]->addr + chunks[i]->size);
            r->state = VP_FREE;
            vp_region_join(pool, r);
        }
        pool->stats.stitches++;
    }
    munmap(maps, n * sizeof *maps);
    return err;
}

static struct vp_region *smallest_hole(struct vp_pool *pool, enum vp_zone_name zone, size_t size) {
    struct vp_space *s;
    struct vp_region *r, *best = NULL;
    vp_list_each(s, &pool->spaces, link)
        if (s->zone == zone)
            vp_list_each(r, &s->holes, holes)
                if (r->size >= size && (!best || vp_region_compare(r, best) < 0))
                    best = r;
    return best;
}

int vp_stitch_hole(struct vp_pool *pool, enum vp_zone_name zone, size_t size, bool must, struct vp_region **hole) {
    if ((*hole = smallest_hole(pool, zone, size)))
        return 0;
    /* Twice what is needed, and no less than a GiB, so that this stays rare. */
    size_t least = vp_round_up(size, pool->granularity), want = vp_round_up(size * 2, UINT64_C(1) << 30);
    if (pool->config.va)
        want = vp_round_up(pool->config.va > least ? pool->config.va : least, pool->granularity);
    /* At first as many again as there are: however far it grows, there are few spaces. */
    size_t more = pool->space_bytes > want ? pool->space_bytes : want;
    bool added = (more > want && !vp_space_add(pool, zone, more)) || !vp_space_add(pool, zone, want) ||
                 !vp_space_add(pool, zone, least);
    if (!added && must)
        vp_stitch_reap_all(pool);
    /* No addresses are to be had any more, and what is free lies scattered among the holes: give it up, so that they
     * unite. */
    if (must && !smallest_hole(pool, zone, size))
        vp_pool_trim(pool, 0);
    return (*hole = smallest_hole(pool, zone, size)) ? 0 : -ENOMEM;
}

/* The bytes of a mapping turn into a hole. */
static int unmap(struct vp_pool *pool, struct vp_mapping *m) {
    CUdeviceptr addr = m->addr;
    size_t size = m->chunk->size;
    int err = vp_space_reserve(pool, 4);
    if (!err)
        err = vp_chunk_unmap(pool, m);
    if (err)
        return err;
    struct vp_region *r = vp_region_carve(pool, addr, addr + size);
    vp_region_unfile(r);
    vp_region_clear_pieces(pool, r);
    r->state = VP_HOLE;
    vp_list_init(&r->holes);
    vp_region_join(pool, r);
    return 0;
}

void vp_mapping_go_home(struct vp_pool *pool, CUdeviceptr addr, CUdeviceptr end) {
    while (addr < end && pool->away) {
        const struct vp_mapping *m = vp_mapping_at(pool, addr);
        struct vp_chunk *chunk = m->chunk;
        addr = m->addr + chunk->size;
        if (m == chunk->home || m != chunk->current)
            continue;
        const struct vp_region *r = vp_region_at(pool, m->addr);
        /* Without memory for the metadata it stays where it is: that costs order, not correctness. */
        if (r->state == VP_FREE && vp_region_end(r) >= addr && reserve_nodes(pool, &chunk, 1) == 0)
            vp_mapping_switch(pool, chunk->home);
    }
}

static bool mapping_over(const struct vp_pool *pool, const struct vp_mapping *m) {
    const struct vp_request anyone = {0};
    return vp_range_usable(vp_region_at(pool, m->addr), m->addr, m->addr + m->chunk->size, &anyone, VP_USE_READY);
}

bool vp_stitch_reap(struct vp_pool *pool, CUdeviceptr addr, CUdeviceptr end, bool homes) {
    bool all = true;
    while (addr < end) {
        struct vp_mapping *m = vp_mapping_at(pool, addr);
        addr = m ? m->addr + m->chunk->size : addr + pool->granularity;
        if (!m)
            continue;
        if (m->chunk->current == m || (m->chunk->home == m && !homes) || !mapping_over(pool, m) || unmap(pool, m) < 0)
            all = false;
        else
            pool->stats.reaps++;
    }
    return all;
}

void vp_stitch_reap_some(struct vp_pool *pool, size_t n, size_t tries) {
    for (; n > 0 && tries > 0 && !vp_list_empty(&pool->zombies); tries--) {
        struct vp_mapping *m = vp_container_of(pool->zombies.next, struct vp_mapping, zombie);
        if (mapping_over(pool, m) && unmap(pool, m) == 0) {
            pool->stats.reaps++;
            n--;
        } else {
            vp_list_remove(&m->zombie);
            vp_list_append(&pool->zombies, &m->zombie);
        }
    }
}

void vp_stitch_reap_all(struct vp_pool *pool) {
    struct vp_space *s;
    struct vp_region *r, *next;
    vp_list_each(s, &pool->spaces, link)
        for (r = vp_container_of(s->regions.next, struct vp_region, va); r; r = next) {
            CUdeviceptr addr = r->addr, end = vp_region_end(r);
            if (r->state == VP_ZOMBIE) {
                vp_stitch_reap(pool, addr, end, true);
                r = vp_region_at(pool, end - 1);
            }
            next = vp_region_next(r);
        }
}

bool vp_chunk_give_back(struct vp_pool *pool, struct vp_chunk *chunk) {
    struct vp_mapping *m, *next;
    for (m = chunk->mappings; m; m = m->next)
        if (!mapping_over(pool, m))
            return false;
    for (m = chunk->mappings; m; m = next) {
        next = m->next;
        if (m != chunk->current && unmap(pool, m) < 0)
            return false;
    }
    if (unmap(pool, chunk->current) < 0)
        return false;
    vp_chunk_destroy(pool, chunk);
    return true;
}

bool vp_pool_shrinkable(const struct vp_pool *pool) {
    const struct vp_chunk *chunk;
    vp_list_each(chunk, &pool->chunks, link) {
        const struct vp_region *r = vp_region_at(pool, chunk->current->addr);
        if (r->state == VP_FREE && vp_region_end(r) >= chunk->current->addr + chunk->size)
            return true;
    }
    return false;
}

size_t vp_pool_trim(struct vp_pool *pool, size_t keep) {
    const struct vp_request anyone = {0};
    size_t before = pool->stats.held_bytes;
    struct vp_chunk *chunk, *tmp;
    if (before <= keep)
        return 0;
    vp_stream_caches_flush(pool, VP_FLUSH_ALL);
    vp_timelines_poll_for(pool->timelines, VP_SETTLE_NS);
    vp_fit_refresh(pool);
    vp_exports_settle(pool);
    vp_list_each_safe(chunk, tmp, &pool->chunks, link) {
        if (pool->stats.held_bytes <= keep)
            break;
        if (pool->stats.held_bytes - chunk->size >= keep && vp_chunk_usable(pool, chunk, &anyone, VP_USE_READY))
            vp_chunk_give_back(pool, chunk);
    }
    return before - pool->stats.held_bytes;
}
