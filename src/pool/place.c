/* Places worth keeping.
 *
 * A program that repeats itself asks for the same sizes in the same order. So each place where a request was served is
 * remembered by its size. If all of its bytes are free there, or in chunks that can be switched back, the request is
 * served there again, without a driver call. What VPMM calls zombies and GMLake stitched blocks is a part of this.
 *
 * Of several places of one size the *oldest* that is available is taken, before any other choice. A program that starts
 * again from an earlier state (all freed, say, or the end of a training step) then repeats its addresses: at its n-th
 * request the same bytes are live as the last time, so the same place is the oldest available one, and newer ones are
 * not looked at. From the second round on nothing is built, and no more is held than the first round needed.
 * Exceptions: fences for which no wait is allowed, and blocks that stream caches hand out. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/place.h"

/* Places of the exact size that are tried, apart from those known to hold a live block. With too few (32, say), a model
 * of many equal layers builds again what it has. */
enum { TRIES = 512 };

/* Larger places that are tried before a range is built, and how much larger they may be: by 1/OVER of the request. The
 * rest stays where it is, and slowly growing requests then find a range. Measured on recorded programs: with fewer
 * tries more ranges are built, more tries cost time at each request that finds no fit. */
enum { TRIES_LARGER = 64, OVER = 2 };

/* Smaller places that are tried before a range is built, and how much smaller they may be: by 1/UNDER of the request,
 * or any for requests from ANY_FROM bytes on. What grows step by step, like a decoder's cache by one token, then needs
 * a few more handles instead of a new range for each step: with a place for all of its steps decoding takes a quarter
 * of the driver time. The largest tensors of a program with varying lengths have a new size in each step: fine-tuning
 * takes two thirds of the time so. Smaller requests would waste more with places of any size. */
enum { TRIES_SMALLER = 64, UNDER = 16, ANY_FROM = 256 << 20 };

/* Smaller places that are marked extendable. A size has doubled if DOUBLED halvings of it, within 1/ABOUT, have places:
 * with four a recorded program has sizes that do not double again. */
enum { EXTENDABLE_MOST = 16, DOUBLED = 5, ABOUT = 128 };

/* Old mappings kept for each chunk, on average, and at least. More let programs with long periods come to rest, and
 * cost the driver some hundred bytes each. Decoding with a growing cache needs some ten a chunk: with 8, half of its
 * driver time went into rebuilding what had been reaped. Video of some 450 MiB needs ninety: with 40, two fifths. */
enum { MAPPINGS_PER_CHUNK = 32, MAPPINGS_FLOOR = 16384 };

/* Old mappings looked at when a range is built while there are too many: twice the range's own, and REAPS_LEAST. If
 * work on one is not over it is passed by; once it is, an excess goes as fast as it came. A range costs the driver some
 * 25 us a mapping, a look far less. */
enum { REAPS_PER_CHUNK = 2, REAPS_LEAST = 64 };

RB_GENERATE(vp_place_tree, vp_place, by_size, vp_place_compare)

void vp_place_touch(struct vp_pool *pool, struct vp_place *k) {
    vp_list_remove(&k->used);
    vp_list_append(&pool->place_used, &k->used);
}

void vp_place_remove(struct vp_pool *pool, struct vp_place *k) {
    vp_place_close(pool, k);
    RB_REMOVE(vp_place_tree, &pool->places[k->space->zone], k);
    vp_list_remove(&k->used);
    vp_slab_free(&pool->place_slab, k);
    pool->place_count--;
}

void vp_places_leave(struct vp_pool *pool, const struct vp_space *space) {
    struct vp_place *k, *next;
    vp_list_each_safe(k, next, &pool->place_used, used)
        if (k->space == space)
            vp_place_remove(pool, k);
}

void vp_place_add(struct vp_pool *pool, CUdeviceptr addr, size_t size) {
    struct vp_place *k = vp_slab_alloc(&pool->place_slab);
    /* Forgetting a place when memory runs out only costs time later. */
    if (!k)
        return;
    *k = (struct vp_place){
        .addr = addr, .size = size, .serial = ++pool->place_serial, .space = vp_space_of(&pool->mem, addr)};
    RB_INSERT(vp_place_tree, &pool->places[k->space->zone], k);
    vp_place_open(pool, k);
    vp_list_append(&pool->place_used, &k->used);
    if (++pool->place_count > VP_PLACE_MOST)
        vp_place_remove(pool, vp_container_of(pool->place_used.next, struct vp_place, used));
}

/* The region that holds `addr`: mostly `*last`; another look-up would walk back over the same pages. */
static const struct vp_region *region_near(struct vp_pool *pool, CUdeviceptr addr, const struct vp_region **last) {
    if (!*last || addr - (*last)->addr >= (*last)->size)
        *last = vp_region_at(&pool->mem, addr);
    return *last;
}

/* The state of a place for a request. */
enum place {
    PLACE_TAKEN, /* some bytes, here or where they are current, are not free, or not for the request */
    PLACE_GONE,  /* a part is no longer mapped */
    PLACE_FREE,  /* free memory */
    PLACE_AWAY,  /* free memory once its chunks are switched back */
};

/* Sets `*block` to the live block, if any, that keeps region `r` from being free up to the end of the range. */
static void note_block(const struct vp_region *r, struct vp_region **block) {
    r = r->state == VP_FREE ? vp_region_next(r) : r;
    *block = r && r->state == VP_LIVE ? (struct vp_region *)r : NULL;
}

/* `*block`: a live block in the way; untouched if none is known. */
static enum place range_find(struct vp_pool *pool, const struct vp_place *k, CUdeviceptr end,
                             const struct vp_request *req, enum vp_usable use, struct vp_region **block) {
    const CUdeviceptr addr = k->addr;
    const struct vp_region *last = vp_region_in(&pool->mem, k->space, addr);
    size_t pieces = 0;
    if (last->state == VP_FREE && vp_region_end(last) >= end)
        return vp_range_usable(last, addr, end, req, use) ? PLACE_FREE : PLACE_TAKEN;
    const uint64_t mark = ++pool->mem.marks;
    for (CUdeviceptr at = addr; at < end;) {
        const struct vp_mapping *m = vp_mapping_at(&pool->mem, at);
        if (!m)
            return PLACE_GONE;
        if (m->chunk->mark == mark)
            return PLACE_TAKEN; /* twice in the range: two of its addresses would be live */
        m->chunk->mark = mark;
        /* Of the current mapping only the part in the range must be free; of another mapping the whole chunk, wherever
         * it is current. */
        bool here = m->chunk->current == m;
        CUdeviceptr begin = here ? at : m->chunk->current->addr, stop = m->chunk->current->addr + m->chunk->size;
        if (here && stop > end)
            stop = end;
        const struct vp_region *r = region_near(pool, begin, &last);
        if (r->state != VP_FREE || vp_region_end(r) < stop) {
            note_block(r, block);
            return PLACE_TAKEN;
        }
        if (!vp_range_usable(r, begin, stop, req, use))
            return PLACE_TAKEN;
        for (const struct vp_piece *p = vp_piece_at(r, begin); p; p = p->end < stop ? p->next : NULL)
            pieces++;
        pieces += 4;
        at = m->addr + m->chunk->size;
    }
    return vp_space_reserve(&pool->mem, 2 * pieces + 64) == 0 ? PLACE_AWAY : PLACE_TAKEN;
}

/* The state of the first `size` bytes of a place whose first byte is mapped. */
static enum place place_find(struct vp_pool *pool, const struct vp_place *k, size_t size, const struct vp_request *req,
                             enum vp_usable use, struct vp_region **block) {
    CUdeviceptr end = k->addr + size;
    if (pool->traits.per_stream &&
        vp_mapping_at(&pool->mem, k->addr)->chunk->stream != (req->timeline ? req->timeline->id : 0))
        return PLACE_TAKEN;
    if (req->alone && !vp_range_whole(&pool->mem, k->addr, end))
        return PLACE_TAKEN;
    return vp_is_aligned(k->addr, req->align) ? range_find(pool, k, end, req, use, block) : PLACE_TAKEN;
}

/* Makes free memory of the first `size` bytes of a place that is free or away. False: neither, or out of metadata. */
static bool switch_back(struct vp_pool *pool, struct vp_place *k, size_t size, enum place place) {
    bool switched = false;
    if (place != PLACE_AWAY)
        return place == PLACE_FREE;
    vp_mappings_each(m, &pool->mem, k->addr, k->addr + size)
        if (m->chunk->current != m) {
            /* The chunks switched so far may have brought any number of pieces here: reserve again for each. */
            if (vp_space_reserve(&pool->mem, 64) < 0)
                return false;
            vp_mapping_switch(&pool->mem, m);
            switched = true;
        }
    pool->mem.stats.reactivations += switched;
    return true;
}

static bool switch_over(struct vp_pool *pool, struct vp_place *k, size_t size, enum place place) {
    if (!switch_back(pool, k, size, place))
        return false;
    vp_place_touch(pool, k);
    return true;
}

/* The state of the beginning of a place that is at least as large as the request. */
static enum place look_at(struct vp_pool *pool, const struct vp_place *k, const struct vp_request *req,
                          enum vp_usable use, struct vp_region **block) {
    *block = NULL;
    return vp_space_granule(&pool->mem, k->space, k->addr)->mapping ? place_find(pool, k, req->size, req, use, block)
                                                                    : PLACE_GONE;
}

/* The first place of at least `size` bytes, whether it may be free or not. */
static struct vp_place *first_from(struct vp_pool *pool, const struct vp_request *req, size_t size) {
    struct vp_place key = {.size = size};
    return RB_NFIND(vp_place_tree, &pool->places[req->zone], &key);
}

/* The first place that will do, from `k` on, of at most `most` bytes. With `open`, looks at open places, and sets those
 * aside in which a block lies. These, and gone places, which are forgotten, do not count as tries. */
static inline struct vp_fit find(struct vp_pool *pool, struct vp_place *k, bool open, size_t most, int tries,
                                 const struct vp_request *req, enum vp_usable use) {
    struct vp_region *block;
    for (struct vp_place *next; tries > 0 && k && k->size <= most; k = next) {
        next = open ? RB_NEXT(vp_open_places, &pool->open_places[req->zone], k)
                    : RB_NEXT(vp_place_tree, &pool->places[req->zone], k);
        enum place place = look_at(pool, k, req, use, &block);
        if (place == PLACE_GONE)
            vp_place_remove(pool, k);
        else if (switch_over(pool, k, req->size, place))
            return (struct vp_fit){vp_region_in(&pool->mem, k->space, k->addr), k->addr};
        else if (open && block)
            vp_place_take(pool, k, block);
        else
            tries--;
    }
    return (struct vp_fit){NULL, 0};
}

/* The oldest open place of the request's size. */
static struct vp_place *oldest_open(struct vp_pool *pool, const struct vp_request *req) {
    struct vp_place key = {.size = req->size};
    return RB_NFIND(vp_open_places, &pool->open_places[req->zone], &key);
}

struct vp_fit vp_place_find(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    return find(pool, oldest_open(pool, req), true, req->size, TRIES, req, use);
}

struct vp_fit vp_place_find_at(struct vp_pool *pool, CUdeviceptr addr, const struct vp_request *req,
                               enum vp_usable use) {
    struct vp_place there = {.addr = addr, .size = req->size, .space = vp_space_of(&pool->mem, addr)};
    struct vp_region *block;
    const enum place place = there.space ? look_at(pool, &there, req, use, &block) : PLACE_GONE;
    if (!switch_back(pool, &there, req->size, place))
        return (struct vp_fit){NULL, 0};
    return (struct vp_fit){vp_region_at(&pool->mem, addr), addr};
}

bool vp_place_is_pending(struct vp_pool *pool, const struct vp_request *req) {
    struct vp_place *k = oldest_open(pool, req);
    struct vp_region *block;
    for (int tries = TRIES; tries > 0 && k && k->size == req->size;
         k = RB_NEXT(vp_open_places, &pool->open_places[req->zone], k)) {
        enum place place = look_at(pool, k, req, VP_USE_PENDING, &block);
        if (place >= PLACE_FREE)
            return true;
        tries -= place != PLACE_GONE;
    }
    return false;
}

bool vp_place_is_oldest(struct vp_pool *pool, const struct vp_request *req, CUdeviceptr addr) {
    struct vp_place *k = first_from(pool, req, req->size);
    if (!k || k->size != req->size || k->addr != addr)
        return false;
    vp_place_touch(pool, k);
    return true;
}

struct vp_fit vp_place_find_larger(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    return find(pool, first_from(pool, req, req->size + 1), false, req->size + req->size / OVER, TRIES_LARGER, req,
                use);
}

/* The end of what is mapped from the beginning of a place on, looking no farther than `size` bytes; 0: not even the
 * place is mapped. */
static CUdeviceptr mapped_end(const struct vp_pool *pool, const struct vp_place *k, size_t size) {
    const struct vp_space *s = vp_space_of(&pool->mem, k->addr);
    const struct vp_mapping *m = vp_mapping_at(&pool->mem, k->addr + k->size - 1);
    CUdeviceptr end = 0;
    for (; m && vp_mapping_at(&pool->mem, k->addr);
         m = end - s->base < s->size ? vp_space_granule(&pool->mem, s, end)->mapping : NULL) {
        end = m->addr + m->chunk->size;
        if (end - k->addr >= size)
            break;
    }
    return end;
}

/* Unmapped bytes from `addr` on, where the mappings of a place end. */
static size_t room_at(const struct vp_pool *pool, CUdeviceptr addr) {
    const struct vp_space *s = vp_space_of(&pool->mem, addr - 1);
    const struct vp_region *r = addr - s->base < s->size ? vp_region_at(&pool->mem, addr) : NULL;
    return r && r->state == VP_HOLE ? vp_region_end(r) - addr : 0;
}

static struct vp_place *smaller(struct vp_pool *pool, struct vp_place *k, const struct vp_request *req) {
    k = k ? RB_PREV(vp_place_tree, &pool->places[req->zone], k) : RB_MAX(vp_place_tree, &pool->places[req->zone]);
    return k && (req->size >= ANY_FROM || k->size >= req->size - req->size / UNDER) ? k : NULL;
}

bool vp_place_grows(struct vp_pool *pool, const struct vp_request *req) {
    return smaller(pool, first_from(pool, req, req->size), req);
}

struct vp_fit vp_place_find_smaller(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use,
                                    CUdeviceptr *end) {
    struct vp_place *k = first_from(pool, req, req->size), *largest = NULL;
    enum place place, largest_place = PLACE_TAKEN;
    struct vp_region *block;
    for (int tries = TRIES_SMALLER; tries-- > 0 && (k = smaller(pool, k, req));) {
        CUdeviceptr stop = mapped_end(pool, k, req->size);
        bool whole = stop - k->addr >= req->size;
        if (!stop || (!whole && (largest || room_at(pool, stop) < req->size - (stop - k->addr) + vp_pool_room(pool))) ||
            (place = place_find(pool, k, whole ? req->size : stop - k->addr, req, use, &block)) < PLACE_FREE)
            continue;
        largest = k;
        largest_place = place;
        *end = stop;
        if (whole)
            break;
    }
    size_t size = largest ? *end - largest->addr : 0;
    if (!largest || !switch_over(pool, largest, size < req->size ? size : req->size, largest_place))
        return (struct vp_fit){NULL, 0};
    return (struct vp_fit){vp_region_at(&pool->mem, largest->addr), largest->addr};
}

bool vp_place_doubles(struct vp_pool *pool, const struct vp_request *req) {
    for (size_t size = req->size / 2; size >= req->size >> DOUBLED; size /= 2) {
        const struct vp_place *k = first_from(pool, req, size - size / ABOUT);
        if (!k || k->size > size + size / ABOUT)
            return false;
    }
    return true;
}

uint64_t vp_place_mark_extendable(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    struct vp_place *k = first_from(pool, req, req->size), *extendable[EXTENDABLE_MOST];
    struct vp_region *block;
    size_t n = 0;
    for (int tries = TRIES_SMALLER; tries-- > 0 && n < EXTENDABLE_MOST && (k = smaller(pool, k, req));) {
        const CUdeviceptr stop = mapped_end(pool, k, req->size);
        if (k->size < req->size / 2)
            break;
        if (stop && room_at(pool, stop) + (stop - k->addr) >= req->size + vp_pool_room(pool) &&
            place_find(pool, k, k->size, req, use, &block) >= PLACE_FREE)
            extendable[n++] = k;
    }
    const uint64_t mark = ++pool->mem.marks;
    while (n--)
        vp_mappings_each(m, &pool->mem, extendable[n]->addr, extendable[n]->addr + extendable[n]->size)
            m->chunk->mark = mark;
    return mark;
}

void vp_place_limit(struct vp_pool *pool, size_t built) {
    const size_t most = vp_greater(pool->mem.chunk_count * MAPPINGS_PER_CHUNK, MAPPINGS_FLOOR);
    if (pool->mem.mappings > most)
        vp_stitch_reap_some(&pool->mem, pool->mem.mappings - most, REAPS_PER_CHUNK * built + REAPS_LEAST);
}
