/* The published VPMM policy (Virtual Pool Memory Manager), on our mechanisms: whole pages, an event at each free, and
 * this order:
 *   1. best fit among what the calling stream itself freed;
 *   2. best fit among what others freed and has completed;
 *   3. the oldest region in flight that is large enough, after a wait for its event;
 *   4. a hole: fresh pages for what all free memory together is short of, then the oldest free regions, the stream's
 * own first, remapped behind them as far as needed. What is left of a region keeps its stream, event and age. Blocks
 * smaller than a page are left to CUDA, as published.
 *
 * It waits on the GPU where the original blocks the host, and under the library's rules for waits. A page's old mapping
 * is unmapped as soon as its event is seen completed; until then it is a zombie, which nobody takes back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/compare.h"

#include <errno.h>

static int layout(struct vp_pool *pool, struct vp_request *req) {
    if (req->asked > SIZE_MAX / 4)
        return -ENOMEM;
    if (req->asked < pool->mem.granularity)
        return -EOPNOTSUPP;
    req->align = pool->mem.granularity;
    req->size = vp_round_up(req->asked, pool->mem.granularity);
    req->zone = VP_ZONE_LARGE;
    return 0;
}

/* What VPMM calls a free region: neighbouring free memory of one stream. */
struct run {
    struct vp_region *region;
    CUdeviceptr begin, end;
    uint64_t stream, age; /* age of its oldest part */
};

/* Makes the run that begins at `piece` (whose first byte is `begin`). Returns the piece behind the run. */
static const struct vp_piece *run_at(struct vp_region *r, const struct vp_piece *piece, CUdeviceptr begin,
                                     struct run *run) {
    *run = (struct run){r, begin, piece->end, piece->stream, piece->age};
    for (piece = piece->next; piece && piece->stream == run->stream; piece = piece->next) {
        run->end = piece->end;
        if (piece->age < run->age)
            run->age = piece->age;
    }
    return piece;
}

enum order { BY_SIZE, BY_AGE };

static bool better(const struct run *a, const struct run *b, enum order order) {
    size_t sa = a->end - a->begin, sb = b->end - b->begin;
    if (order == BY_AGE)
        return a->age < b->age;
    return sa != sb ? sa < sb : a->begin < b->begin;
}

/* Finds the best run that is large enough, of the stream's own or of others, usable in this way. */
static struct vp_fit find(struct vp_pool *pool, const struct vp_request *req, bool own, enum vp_usable use,
                          enum order order) {
    struct run run, best = {0};
    struct vp_region *r;
    struct vp_space *s;
    const struct vp_piece *p;
    uint64_t self = req->timeline ? req->timeline->id : 0;
    vp_list_each(s, &pool->mem.spaces, link)
        vp_list_each(r, &s->regions, va) {
            CUdeviceptr begin = r->addr;
            for (p = r->state == VP_FREE ? r->pieces : NULL; p; begin = run.end) {
                p = run_at(r, p, begin, &run);
                bool mine = run.stream == self || !run.stream;
                if (mine == own && run.end - run.begin >= req->size && (!best.region || better(&run, &best, order)) &&
                    vp_range_usable(r, run.begin, run.begin + req->size, req, use))
                    best = run;
            }
        }
    return (struct vp_fit){best.region, best.begin};
}

/* ---- phase 4 ---- */

struct harvest {
    const struct vp_request *req;
    enum vp_usable use;
    struct vp_chunk **chunks;
    size_t count, want;
};

/* Orders runs by age, then address: is `a` before `b`? */
static bool older(const struct run *a, const struct run *b) {
    return a->age != b->age ? a->age < b->age : a->begin < b->begin;
}

/* Finds the next run after `last` in that order (`last` NULL: the first). False: there is none. */
static bool next_run(struct vp_pool *pool, const struct vp_request *req, bool own, const struct run *last,
                     struct run *out) {
    struct run run;
    struct vp_region *r;
    struct vp_space *s;
    uint64_t self = req->timeline ? req->timeline->id : 0;
    bool found = false;
    vp_list_each(s, &pool->mem.spaces, link)
        vp_list_each(r, &s->regions, va) {
            CUdeviceptr begin = r->addr;
            for (const struct vp_piece *p = r->state == VP_FREE ? r->pieces : NULL; p; begin = run.end) {
                p = run_at(r, p, begin, &run);
                bool mine = run.stream == self || !run.stream;
                if (mine == own && (!last || older(last, &run)) && (!found || older(&run, out))) {
                    *out = run;
                    found = true;
                }
            }
        }
    return found;
}

static void harvest(struct vp_pool *pool, struct harvest *h, bool own) {
    struct run run, last;
    for (bool more = next_run(pool, h->req, own, NULL, &run); more && h->count < h->want;
         last = run, more = next_run(pool, h->req, own, &last, &run))
        for (CUdeviceptr at = run.begin; at < run.end && h->count < h->want; at += pool->mem.granularity)
            if (vp_range_usable(run.region, at, at + pool->mem.granularity, h->req, h->use))
                h->chunks[h->count++] = vp_mapping_at(&pool->mem, at)->chunk;
}

static size_t usable_pages(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    struct vp_region *r;
    struct vp_space *s;
    size_t pages = 0;
    vp_list_each(s, &pool->mem.spaces, link)
        vp_list_each(r, &s->regions, va)
            for (CUdeviceptr at = r->addr; r->state == VP_FREE && at < vp_region_end(r); at += pool->mem.granularity)
                pages += vp_range_usable(r, at, at + pool->mem.granularity, req, use);
    return pages;
}

/* Maps `fresh` new pages and then the harvested ones into a hole. */
static int build(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_fit *fit) {
    struct vp_region *hole;
    /* Find the hole first: that may release idle pages. */
    int err = vp_pool_hole(pool, VP_ZONE_LARGE, req->size, true, &hole);
    CUdeviceptr addr = err ? 0 : hole->addr;
    size_t pages = req->size / pool->mem.granularity, have = usable_pages(pool, req, use);
    size_t fresh = have < pages ? pages - have : 0, created = 0;
    struct harvest h = {.req = req, .use = use, .want = pages, .count = fresh};
    if (err || !(h.chunks = vp_pool_scratch(pool, pages * sizeof *h.chunks)))
        return -ENOMEM;
    harvest(pool, &h, true);
    harvest(pool, &h, false);
    if (h.count != pages)
        return -EIO;
    while (created < fresh && !(err = vp_chunk_create(&pool->mem, pool->mem.granularity, false, &h.chunks[created])))
        created++;
    if (!err)
        err = vp_stitch_map(&pool->mem, h.chunks, pages, addr);
    if (err) {
        while (created)
            vp_chunk_destroy(&pool->mem, h.chunks[--created]);
        return err;
    }
    *fit = (struct vp_fit){vp_region_at(&pool->mem, addr), addr};
    return 0;
}

static int alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    enum vp_usable waits = req->pressed ? VP_USE_WAIT_ANY : VP_USE_WAIT;
    bool may_wait = req->timeline && (req->waits == VP_WAITS_EARLY || (req->waits == VP_WAITS_LATE && req->pressed));
    enum vp_usable use = may_wait ? waits : VP_USE_READY;
    struct vp_fit fit = find(pool, req, true, VP_USE_READY, BY_SIZE);
    if (!fit.region) {
        vp_fit_refresh(&pool->mem);
        if (req->context->error)
            return -EIO;
        vp_stitch_reap_all(&pool->mem);
        fit = find(pool, req, true, VP_USE_READY, BY_SIZE);
    }
    if (!fit.region)
        fit = find(pool, req, false, VP_USE_READY, BY_SIZE);
    if (!fit.region && may_wait)
        fit = find(pool, req, false, waits, BY_AGE);
    if (!fit.region) {
        const struct vp_fence *fence;
        if (!req->timeline && !req->impatient && vp_fit_host(&pool->mem, req, &fence).region &&
            (req->await = vp_fence_event(fence)))
            return -EAGAIN;
        int err = build(pool, req, use, &fit);
        if (err)
            return err;
    }
    int err = vp_fit_take(&pool->mem, fit, req, out);
    vp_stitch_reap_all(&pool->mem);
    return err;
}

/* The pages that VPMM maps in advance become one free region. */
static int open(struct vp_pool *pool) {
    if (!pool->config.pages)
        return 0;
    struct vp_request req = {
        .size = pool->config.pages * pool->mem.granularity, .align = pool->mem.granularity, .zone = VP_ZONE_LARGE};
    struct vp_fit fit;
    return build(pool, &req, VP_USE_READY, &fit);
}

const struct vp_policy vp_policy_vpmm = {
    .name = "vpmm",
    .traits = {.events = VP_EVENTS_ALWAYS, .by_stream = true, .one_zone = true},
    .open = open,
    .layout = layout,
    .alloc = alloc,
};
