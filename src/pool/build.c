/* How a new range is made: where it begins, which wholly free chunks move into it, and fresh ones for the rest.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pool/build.h"

#include "pool/slack.h"
#include "pool/throttle.h"

#include <errno.h>

/*
 * Handles of the large zone. A remap costs by the handle, not by the byte, and a handle that a block covers in part is
 * pinned whole: so the handle grows with the request. With one in 128 it is remapped in some 128 calls however large it
 * is. One in 256 makes half as many calls again and spares a tenth of the waste; one in 64 saves a third of them and
 * wastes twice as much. Below 8 MiB the calls become too many: 4 MiB doubles them. Measured on recorded programs
 * (scripts/bench prints the frontier) and on training (there 286, 183 and 125 ms of driver time for 1.0044, 1.0049
 * and 1.0097 times what was live).
 */
enum { HANDLE_SHARE = 128, HANDLE_LEAST = 8 << 20 };

/* Fresh bytes, in largest handles, from which on a range ends in small handles even where large ones come out even.
 * Lower, and a program that grows step by step ends up with small handles only. */
enum { ENDS_FROM = 3 };

/* ---- harvest: which wholly free chunks ---- */

struct candidate {
    struct vp_chunk *chunk;
    size_t region : 63; /* size of the free region around it */
    size_t ready : 1;   /* no wait needed */
};

struct harvest {
    struct candidate *list; /* room for every chunk of the pool */
    size_t count;
    const struct vp_request *req;
    enum vp_usable use;
    CUdeviceptr skip, skip_end; /* the part of a region that stays where it is */
};

static void harvest_region(struct vp_pool *pool, struct harvest *h, const struct vp_region *r) {
    size_t largest = h->req->zone == VP_ZONE_SMALL && !h->req->pressed ? pool->mem.granularity : SIZE_MAX;
    CUdeviceptr at = r->space->base + vp_round_up(r->addr - r->space->base, pool->mem.granularity);
    while (at < vp_region_end(r)) {
        struct vp_chunk *chunk = vp_mapping_at(&pool->mem, at)->chunk;
        CUdeviceptr begin = chunk->current->addr, end = begin + chunk->size;
        bool skipped = begin < h->skip_end && end > h->skip;
        if (begin == at && end <= vp_region_end(r) && chunk->size <= largest && !skipped &&
            vp_range_usable(r, at, end, h->req, h->use))
            h->list[h->count++] = (struct candidate){chunk, r->size, vp_range_usable(r, at, end, h->req, VP_USE_READY)};
        at = end;
    }
}

static void harvest_index(struct vp_pool *pool, struct harvest *h, struct vp_index *index) {
    for (struct vp_region *r = vp_index_first(index, pool->mem.granularity); r; r = vp_index_next(index, r))
        harvest_region(pool, h, r);
}

static void harvest_all(struct vp_pool *pool, struct harvest *h) {
    struct vp_index *index;
    for (int z = 0; z < VP_ZONES; z++) {
        harvest_index(pool, h, &pool->mem.met[z]);
        harvest_index(pool, h, &pool->mem.mixed[z]);
    }
    vp_list_each(index, &pool->mem.timeline_indexes, link)
        harvest_index(pool, h, index);
}

/* Those that need no wait first. Large chunks first: a handle costs the same whatever its size. Then those whose region
 * is of least use otherwise; then the lowest, so that a repeating program repeats its addresses. */
static bool before(const struct candidate *a, const struct candidate *b) {
    if (a->ready != b->ready)
        return a->ready;
    if (a->chunk->size != b->chunk->size)
        return a->chunk->size > b->chunk->size;
    if (a->region != b->region)
        return a->region < b->region;
    return a->chunk->current->addr < b->chunk->current->addr;
}

/* Heap sort: libc's qsort may call malloc. */
static void sort(struct candidate *c, size_t n) {
    for (size_t start = n / 2, end = n; end > 1;) {
        if (start > 0) {
            start--;
        } else {
            struct candidate t = c[--end];
            c[end] = c[0];
            c[0] = t;
        }
        for (size_t i = start, j; (j = 2 * i + 1) < end; i = j) {
            if (j + 1 < end && before(&c[j], &c[j + 1]))
                j++;
            if (!before(&c[i], &c[j]))
                break;
            struct candidate t = c[i];
            c[i] = c[j];
            c[j] = t;
        }
    }
}

/*
 * Puts the chosen chunks to the front of the list: `want` bytes, or all there are. Greedy by size; what is then short
 * is made up by the smallest chunk that covers it, whose rest stays free right behind the new range; not if the request
 * is to be alone.
 */
static size_t choose(struct candidate *c, size_t n, size_t want, bool alone, size_t *bytes) {
    size_t taken = 0, sum = 0;
    for (size_t i = 0; i < n && sum < want; i++)
        if (c[i].chunk->size <= want - sum) {
            struct candidate t = c[i];
            for (size_t j = i; j > taken; j--)
                c[j] = c[j - 1];
            c[taken++] = t;
            sum += t.chunk->size;
        }
    if (sum < want && taken < n && !alone) {
        size_t least = taken;
        for (size_t i = taken; i < n; i++)
            if (c[i].chunk->size < c[least].chunk->size)
                least = i;
        struct candidate t = c[least];
        c[least] = c[taken];
        c[taken++] = t;
        sum += t.chunk->size;
    }
    *bytes = sum;
    return taken;
}

/* ---- where to build ---- */

/* How much what grows may do so (1/GROWS_BY) before it needs other addresses. */
enum { GROWS_BY = 2 };

struct site {
    CUdeviceptr begin; /* where the block will begin */
    CUdeviceptr hole;  /* where new mappings begin; not before the end of the block: none are needed */
};

/* The longest usable end of a free region that lies right before a hole with room. False if there is none. */
static bool find_end(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct site *site) {
    struct vp_space *s;
    struct vp_region *hole, *before_hole;
    size_t longest = 0;
    vp_list_each(s, &pool->mem.spaces, link) {
        if (s->zone != req->zone)
            continue;
        vp_list_each(hole, &s->holes, holes) {
            before_hole = vp_region_prev(hole);
            if (!before_hole || before_hole->state != VP_FREE ||
                hole->size < (vp_slack_roams(pool) ? 0 : req->size) + pool->config.handle)
                continue;
            CUdeviceptr run = 0, begin = before_hole->addr;
            for (const struct vp_piece *p = before_hole->pieces; p; begin = p->end, p = p->next)
                run = !vp_piece_usable(p, req, use) ? 0 : run ? run : begin;
            run = run ? vp_round_up(run, req->align) : 0;
            if (run && run < hole->addr && hole->addr - run > longest && hole->addr - run < req->size &&
                hole->size - pool->config.handle >= req->size - (hole->addr - run)) {
                longest = hole->addr - run;
                *site = (struct site){run, hole->addr};
            }
        }
    }
    return longest > 0;
}

/* A hole by itself, `room` bytes of which stay free for what lies before it to grow: for room alone nothing is given
 * up. */
static int find_hole(struct vp_pool *pool, const struct vp_request *req, size_t room, struct site *site) {
    struct vp_region *hole;
    int err = vp_pool_hole(pool, req->zone, vp_round_up(req->size, pool->mem.granularity) + pool->config.handle + room,
                           !room, &hole);
    if (!err)
        *site = (struct site){hole->addr + room, hole->addr + room};
    return err;
}

/* One that is some part of the request at least (1/LONG_END). */
enum { LONG_END = 8 };

static bool find_long_end(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct site *site) {
    return find_end(pool, req, use, site) && site->hole - site->begin >= req->size / LONG_END;
}

/*
 * A place that is too small, and can be made longer. What grows gets addresses of its own, with as many behind it as it
 * may need: they cost nothing. Else the end of a free region; else a hole. In a program that roams nearly every size
 * grows from another, and a long end is as good as addresses of its own.
 */
static int find_site(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct site *site) {
    if (req->alone)
        return find_hole(pool, req, 0, site);
    if (!vp_slack_packs(pool, req) && req->zone == VP_ZONE_LARGE && vp_place_grows(pool, req)) {
        site->begin = vp_place_find_smaller(pool, req, use, &site->hole).addr;
        if (site->begin || (vp_slack_roams(pool) && find_long_end(pool, req, use, site)) ||
            find_hole(pool, req, vp_round_up(req->size / GROWS_BY + pool->config.handle, pool->mem.granularity),
                      site) == 0)
            return 0;
    }
    return find_end(pool, req, use, site) ? 0 : find_hole(pool, req, 0, site);
}

/* ---- build ---- */

/*
 * Fresh chunks of `bytes` together: the largest handles, then what is left in falling powers of two. The end of a block
 * then lies in a small handle, of which little is pinned when the block behind it stays; and later ranges find small
 * handles to end in.
 */
static int create_chunks(struct vp_pool *pool, size_t bytes, size_t largest, struct vp_chunk **out, size_t *count) {
    size_t n = 0, spared = bytes >= ENDS_FROM * largest ? pool->mem.granularity : 0;
    int err = 0;
    while (bytes && !err) {
        size_t size = largest;
        if (bytes <= largest)
            for (size = pool->mem.granularity; size * 2 + spared <= bytes; size *= 2)
                continue;
        err = vp_chunk_create(&pool->mem, size, &out[n]);
        if (!err) {
            n++;
            bytes -= size;
        }
    }
    *count = n;
    return err;
}

/* The largest handle that is created for a request, `fresh` bytes of which are new: a power of two of granules. */
static size_t handle_for(const struct vp_pool *pool, const struct vp_request *req, size_t fresh) {
    size_t size = pool->mem.granularity, most = req->size / HANDLE_SHARE;
    if (req->zone == VP_ZONE_SMALL)
        return size;
    const size_t coarse = vp_slack_handle(pool, req, fresh);
    if (most < HANDLE_LEAST)
        most = HANDLE_LEAST;
    if (most < coarse)
        most = coarse;
    if (most > pool->config.handle)
        most = pool->config.handle;
    while (size * 2 <= most)
        size *= 2;
    return size;
}

/*
 * For what is to be alone in its chunks all those left over are too large. Nothing is created while enough free memory
 * lies about: the smallest goes back to the device, and what is lacking is created in its stead.
 */
static void break_one(struct vp_pool *pool, const struct candidate *c, size_t n) {
    const struct candidate *least = NULL;
    for (size_t i = 0; i < n; i++)
        if (c[i].ready && (!least || c[i].chunk->size < least->chunk->size))
            least = &c[i];
    if (least)
        vp_chunk_give_back(&pool->mem, least->chunk);
}

/* Is there something free that fits, but is not ready yet? */
static bool fit_pending(struct vp_pool *pool, const struct vp_request *req) {
    return vp_place_is_pending(pool, req) || vp_fit_find(&pool->mem, req, VP_USE_PENDING).region;
}

/* What has moved in a program that roams stays: its old place is not wanted again, and here it lies beside the rest. */
static bool stays(const struct vp_pool *pool, const struct vp_request *req) {
    return req->zone == VP_ZONE_LARGE && vp_slack_roams(pool);
}

int vp_build(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out) {
    struct site site;
    int err = find_site(pool, req, use, &site);
    if (err)
        return err;
    size_t there = site.hole - site.begin,
           want = there < req->size ? vp_round_up(req->size - there, pool->mem.granularity) : 0;
    size_t fresh_most = want / pool->mem.granularity + 1, chunks_most = pool->mem.chunk_count + fresh_most;
    size_t list_bytes = pool->mem.chunk_count * sizeof(struct candidate),
           chunk_bytes = chunks_most * sizeof(struct vp_chunk *);
    struct harvest h = {.req = req, .use = use, .skip = site.begin, .skip_end = site.hole};
    h.list = vp_pool_scratch(pool, list_bytes > chunk_bytes ? list_bytes : chunk_bytes);
    if (!h.list)
        return -ENOMEM;
    const bool lags = want && vp_throttle_room(pool, req, want) && fit_pending(pool, req);
    const bool created = lags || (want && vp_slack_room(pool, req, want));
    if (want && !created)
        harvest_all(pool, &h);
    sort(h.list, h.count);
    size_t bytes, old = choose(h.list, h.count, want, req->alone, &bytes), fresh = 0;
    if (want && !created && vp_throttle_due(pool, req, want - bytes))
        return -EAGAIN;
    if (req->alone && bytes < want)
        break_one(pool, h.list + old, h.count - old);
    /* The chosen chunks move up to the front of the same memory, each over what was read before. */
    struct vp_chunk **chunks = (struct vp_chunk **)h.list;
    for (size_t i = 0; i < old; i++) {
        struct vp_chunk *chunk = h.list[i].chunk;
        chunks[i] = chunk;
    }
    if (bytes < want)
        err = create_chunks(pool, want - bytes, handle_for(pool, req, want - bytes), chunks + old, &fresh);
    if (!err && want)
        err = vp_stitch_map(&pool->mem, chunks, old + fresh, site.hole);
    if (err) {
        while (fresh)
            vp_chunk_destroy(&pool->mem, chunks[old + --fresh]);
        return err;
    }
    for (size_t i = 0; i < old && stays(pool, req); i++)
        vp_mapping_settle(&pool->mem, chunks[i]);
    vp_place_add(pool, site.begin, req->size);
    vp_place_limit(pool, old + fresh);
    return vp_fit_take(&pool->mem, (struct vp_fit){vp_region_at(&pool->mem, site.begin), site.begin}, req, out);
}
