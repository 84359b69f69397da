/*
 * Ranges worth keeping. A program that repeats itself asks again for the sizes that it asked for. The range once stitched for a size is still there, as
 * old mappings: if every chunk in it is wholly free, the chunks are switched back to it, and the driver is not asked at all. What VPMM calls zombies and GMLake
 * stitched blocks is this one thing.
 */
#include "pool/pool_private.h"
#include <stdlib.h>
#define K(n,d) ({ static int v_ = -1; if (v_ < 0) v_ = getenv(n) ? atoi(getenv(n)) : (d); v_; })

/* Ranges that are tried before a new one is built, and how much larger than the request they may be (1/OVER of it: what is over stays where it is,
 * and slowly growing requests then find a range). Measured on recorded programs: fewer tries build more ranges, more tries cost time at each request. */
enum { TRIES = 64, OVER = 2 };

/* Old mappings for each chunk, on the average, and a floor for small pools: more make repeating programs with long periods converge, and cost the
 * driver's bookkeeping (some hundred bytes each). */
enum { MAPPINGS_PER_CHUNK = 8, MAPPINGS_FLOOR = 4096, KEPT_MOST = 16384 };

int vp_kept_compare(const struct vp_kept *a, const struct vp_kept *b) {
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return a->serial < b->serial ? -1 : a->serial > b->serial;
}
RB_GENERATE(vp_kept_tree, vp_kept, by_size, vp_kept_compare)

static void kept_touch(struct vp_pool *pool, struct vp_kept *k) {
    vp_list_remove(&k->used);
    vp_list_append(&pool->kept_used, &k->used);
}

static void kept_remove(struct vp_pool *pool, struct vp_kept *k) {
    RB_REMOVE(vp_kept_tree, &pool->kept[k->zone], k);
    vp_list_remove(&k->used);
    vp_slab_free(&pool->kept_slab, k);
    pool->kept_count--;
}

void vp_kept_add(struct vp_pool *pool, CUdeviceptr addr, size_t size) {
    struct vp_kept *k = vp_slab_alloc(&pool->kept_slab);
    if (!k)
        return;
    k->addr = addr;
    k->size = size;
    k->zone = vp_space_of(pool, addr)->zone;
    k->serial = ++pool->kept_serial;
    vp_list_init(&k->used);
    RB_INSERT(vp_kept_tree, &pool->kept[k->zone], k);
    vp_list_append(&pool->kept_used, &k->used);
    if (++pool->kept_count > (size_t)K("KM", 16384))
        kept_remove(pool, vp_container_of(pool->kept_used.next, struct vp_kept, used));
}

/* Can all of [addr, end) be made free memory by switching alone? */
static bool range_available(struct vp_pool *pool, CUdeviceptr addr, CUdeviceptr end, const struct vp_request *req, enum vp_usable use) {
    uint64_t mark = ++pool->marks;
    const struct vp_mapping *last = NULL;
    size_t pieces = 0;
    for (CUdeviceptr at = addr; at < end;) {
        const struct vp_region *r = vp_region_at(pool, at);
        CUdeviceptr stop = vp_region_end(r) < end ? vp_region_end(r) : end;
        if (r->state == VP_FREE) {
            if (!vp_range_usable(r, at, stop, req, use))
                return false;
        } else if (r->state != VP_ZOMBIE) {
            return false;
        }
        /* A region may end inside a chunk, and the next one then begins in the same mapping. */
        for (CUdeviceptr next; at < stop; at = next < stop ? next : stop) {
            struct vp_mapping *m = vp_mapping_at(pool, at);
            next = m->addr + m->chunk->size;
            if (m == last)
                continue;
            /* A chunk that lies in the range twice would make two of its addresses live. */
            if (m->chunk->mark == mark || (r->state == VP_ZOMBIE && !vp_chunk_usable(pool, m->chunk, req, use)))
                return false;
            m->chunk->mark = mark;
            last = m;
            pieces += 4;
        }
        for (const struct vp_piece *p = r->pieces; p; p = p->next)
            pieces++;
    }
    return vp_space_reserve(pool, 2 * pieces + 64) == 0;
}

static bool try(struct vp_pool *pool, const struct vp_kept *k, const struct vp_request *req, enum vp_usable use) {
    CUdeviceptr end = k->addr + req->size;
    if (k->addr % req->align || !range_available(pool, k->addr, end, req, use))
        return false;
    for (CUdeviceptr at = k->addr; at < end;) {
        struct vp_mapping *m = vp_mapping_at(pool, at);
        if (m->chunk->current != m) {
            /* The pieces of chunks switched from elsewhere vary in number: ask anew for each. */
            if (vp_space_reserve(pool, 64) < 0)
                return false;
            vp_mapping_switch(pool, m);
        }
        at = m->addr + m->chunk->size;
    }
    return true;
}

struct vp_fit vp_kept_find(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, bool exact) {
    struct vp_kept key = { .size = exact ? req->size : req->size + 1 };
    struct vp_kept *k = RB_NFIND(vp_kept_tree, &pool->kept[req->zone], &key);
    size_t most = exact ? req->size : req->size + req->size / OVER;
    for (int i = 0; i < (exact ? K("TE",1024) : TRIES) && k && k->size <= most; i++, k = RB_NEXT(vp_kept_tree, &pool->kept[k->zone], k))
        if (try(pool, k, req, use)) {
            kept_touch(pool, k);
            pool->stats.reactivations++;
            return (struct vp_fit){ vp_region_at(pool, k->addr), k->addr };
        }
    return (struct vp_fit){ NULL, 0 };
}

void vp_kept_forget(struct vp_pool *pool, CUdeviceptr addr, CUdeviceptr end) {
    struct vp_kept *k, *tmp;
    vp_list_each_safe(k, tmp, &pool->kept_used, used)
        if (k->addr < end && k->addr + k->size > addr)
            kept_remove(pool, k);
}

void vp_kept_limit(struct vp_pool *pool) {
    size_t chunks = 0, most;
    struct vp_chunk *c;
    if (pool->mappings <= MAPPINGS_FLOOR && true)
        return;
    vp_list_each(c, &pool->chunks, link)
        chunks++;
    most = chunks * MAPPINGS_PER_CHUNK;
    if (most < MAPPINGS_FLOOR)
        most = MAPPINGS_FLOOR;
    while (pool->mappings > most && !vp_list_empty(&pool->kept_used)) {
        struct vp_kept *k = vp_container_of(pool->kept_used.next, struct vp_kept, used);
        CUdeviceptr addr = k->addr, end = k->addr + k->size;
        kept_remove(pool, k);
        vp_stitch_reap(pool, addr, end, false);
    }
}
