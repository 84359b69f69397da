/* Shared by the published policies that keep memory per stream. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/per_stream.h"

#include <errno.h>

struct vp_run vp_per_stream_next(struct vp_region *r, CUdeviceptr at, const struct vp_request *req) {
    struct vp_run run = {0};
    if (at >= vp_region_end(r))
        return run;
    for (const struct vp_piece *p = vp_piece_at(r, at); p; at = p->end, p = p->next) {
        if (!vp_piece_usable(p, req, VP_USE_READY)) {
            if (run.region)
                break;
            continue;
        }
        if (!run.region)
            run = (struct vp_run){.region = r, .begin = at};
        run.end = p->end;
    }
    return run;
}

/* ---- the search ---- */

struct search {
    const struct vp_pool *pool;
    const struct vp_request *req;
    enum vp_rank rank;
    struct vp_run best;
    size_t best_rank;
    bool held_up; /* some of the stream's memory waits for work that may not be over */
};

static size_t rank_of(const struct search *s, const struct vp_run *run) {
    const struct vp_region *next = vp_region_next(run->region);
    bool last = run->end == vp_region_end(run->region), grows = next && last && next->state == VP_HOLE;
    return vp_run_size(run) + (grows && s->rank == VP_RANK_ROOM ? next->size : 0);
}

static void look_at(struct search *s, struct vp_region *r) {
    size_t usable = 0;
    if (vp_mapping_at(&s->pool->mem, r->addr)->chunk->stream != vp_owner_of(s->req))
        return;
    vp_per_stream_each(run, r, s->req) {
        size_t rank = rank_of(s, &run);
        usable += vp_run_size(&run);
        if (vp_run_size(&run) < s->req->size)
            continue;
        if (!s->best.region || rank < s->best_rank || (rank == s->best_rank && run.begin < s->best.begin)) {
            s->best = run;
            s->best_rank = rank;
        }
    }
    s->held_up |= usable < r->size;
}

/* Looks at regions of `least` bytes and more. `whole`: each region of the index is one run, so that the
 * search ends where they become larger than the best. */
static void search_index(struct search *s, const struct vp_index *index, size_t least, bool whole) {
    for (struct vp_region *r = vp_index_first(index, least); r; r = vp_index_next(index, r)) {
        if (whole && s->best.region && r->size > s->best_rank)
            break;
        look_at(s, r);
    }
}

static struct search search(const struct vp_pool *pool, const struct vp_request *req, enum vp_rank rank) {
    struct search s = {.pool = pool, .req = req, .rank = rank};
    const struct vp_index *index;
    search_index(&s, &pool->mem.met[req->zone], req->size, true);
    if (req->timeline && req->timeline->store && req->timeline->context->device == pool->mem.device)
        search_index(&s, &req->timeline->store->index[req->zone], req->size, true);
    search_index(&s, &pool->mem.mixed[req->zone], req->size, false);
    if (s.best.region)
        return s;
    /* Searches all memory that is held up, small or large: together with its neighbours it might be large enough. */
    search_index(&s, &pool->mem.mixed[req->zone], 0, false);
    vp_list_each(index, &pool->mem.indexes, link)
        if (index->zone == req->zone && index->timeline && index->timeline != req->timeline)
            search_index(&s, index, 0, false);
    return s;
}

/* Returns what the host could wait for: the barrier of a cudaFree. */
static struct vp_event *host_event(const struct vp_pool *pool, const struct vp_request *req) {
    const struct vp_index *index;
    struct vp_event *ev = NULL;
    vp_list_each(index, &pool->mem.indexes, link) {
        if (index->zone != req->zone || !index->timeline || index->timeline->kind != VP_TIMELINE_BARRIER)
            continue;
        for (struct vp_region *r = vp_index_first(index, req->size); r && !ev; r = vp_index_next(index, r))
            if (vp_mapping_at(&pool->mem, r->addr)->chunk->stream == vp_owner_of(req))
                for (const struct vp_piece *p = r->pieces; p && !ev; p = p->next)
                    ev = vp_fence_host_waitable(&p->fence) ? vp_fence_event(&p->fence) : NULL;
    }
    return ev;
}

int vp_per_stream_fit(struct vp_pool *pool, struct vp_request *req, enum vp_rank rank, struct vp_run *run) {
    struct search s = search(pool, req, rank);
    if (!s.best.region && s.held_up) {
        vp_fit_refresh(&pool->mem);
        if (req->context->error)
            return -EIO;
        s = search(pool, req, rank);
    }
    /* Plain CUDA had already waited, in cudaFree. */
    if (!s.best.region && s.held_up && !req->timeline && !req->impatient && (req->await = host_event(pool, req)))
        return -EAGAIN;
    *run = s.best;
    return 0;
}

int vp_per_stream_take(struct vp_pool *pool, const struct vp_run *run, size_t size, const struct vp_request *req,
                       struct vp_region **out) {
    struct vp_request whole = *req;
    whole.size = size;
    return vp_fit_take(&pool->mem, (struct vp_fit){run->region, run->begin}, &whole, out);
}

/* ---- new memory ---- */

int vp_per_stream_hole(struct vp_pool *pool, enum vp_zone_name zone, size_t size, CUdeviceptr *addr) {
    struct vp_region *hole;
    int err = vp_pool_hole(pool, zone, size + 2 * pool->mem.granularity, true, &hole);
    if (!err)
        *addr = hole->addr + pool->mem.granularity;
    return err;
}

int vp_per_stream_map(struct vp_pool *pool, const struct vp_request *req, size_t chunk, size_t n, CUdeviceptr addr) {
    struct vp_chunk **chunks = vp_pool_scratch(pool, n * sizeof *chunks);
    size_t made = 0;
    int err = chunks ? 0 : -ENOMEM;
    while (!err && made < n && !(err = vp_chunk_create(&pool->mem, chunk, false, &chunks[made])))
        chunks[made++]->stream = vp_owner_of(req);
    if (!err)
        err = vp_stitch_map(&pool->mem, chunks, n, addr);
    while (err && made)
        vp_chunk_destroy(&pool->mem, chunks[--made]);
    return err;
}
