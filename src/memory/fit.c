/* Which free bytes a request may use, and which it gets: best fit, restricted by the pieces' fences. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/chunk.h"

/* Regions of other streams looked at before giving up: in order of size a hit comes early or hardly at all. */
enum { FOREIGN_LOOKS = 256 };

/* Is the request's stream ordered behind the piece, and not by luck? The piece was never freed, was freed by the same
 * stream, by a cudaFree or before a synchronise, or is waited for. */
static bool in_order(const struct vp_piece *p, const struct vp_request *req) {
    return !p->stream || p->stream == req->timeline->id || vp_timeline_id_is_barrier(p->stream) ||
           !vp_fence_ready(&p->fence, NULL) || vp_piece_synchronized(req->strict, p);
}

bool vp_piece_usable(const struct vp_piece *p, const struct vp_request *req, enum vp_usable use) {
    /* When nothing is left to wait for, bytes for which a wait may be queued may be taken. */
    if (vp_fence_ready(&p->fence, req->timeline))
        return !req->strict || req->pressed || use != VP_USE_READY || in_order(p, req);
    if (use == VP_USE_PENDING)
        return true;
    return use != VP_USE_READY && vp_fence_waitable(&p->fence, req->timeline, use == VP_USE_WAIT);
}

static inline bool usable(const struct vp_piece *p, const struct vp_request *req, enum vp_usable use) {
    return (vp_fence_empty(&p->fence) && !req->strict) || vp_piece_usable(p, req, use);
}

bool vp_range_usable(const struct vp_region *r, CUdeviceptr addr, CUdeviceptr end, const struct vp_request *req,
                     enum vp_usable use) {
    for (const struct vp_piece *p = vp_piece_at(r, addr);; p = p->next) {
        if (!usable(p, req, use))
            return false;
        if (p->end >= end)
            return true;
    }
}

/* The first place in [run, end) for a request that must be alone: it begins and ends at edges of chunks. 0: none. */
static CUdeviceptr first_whole(const struct vp_memory *mem, CUdeviceptr run, CUdeviceptr end, size_t size) {
    while (run < end && end - run >= size) {
        const struct vp_mapping *m = vp_mapping_at(mem, run);
        if (m->addr == run && vp_range_whole(mem, run, run + size))
            return run;
        run = m->addr + m->chunk->size;
    }
    return 0;
}

/* The first address in the region where the request fits into pieces that it may use or, with `host`, that the host
 * could wait for. 0: none. */
static CUdeviceptr first_run(const struct vp_memory *mem, const struct vp_region *r, const struct vp_request *req,
                             enum vp_usable use, bool host) {
    CUdeviceptr begin = r->addr, run = 0;
    for (const struct vp_piece *p = r->pieces; p; begin = p->end, p = p->next) {
        if (!(host ? vp_fence_host_waitable(&p->fence) : usable(p, req, use))) {
            run = 0;
            continue;
        }
        if (!run)
            run = begin;
        CUdeviceptr addr = req->alone ? first_whole(mem, run, p->end, req->size) : vp_align_up(run, req->align);
        if (addr && addr + req->size <= p->end)
            return addr;
    }
    return 0;
}

/* Best fit within one index. */
static struct vp_fit index_find(const struct vp_memory *mem, struct vp_index *index, const struct vp_request *req,
                                enum vp_usable use, bool host) {
    int looks = FOREIGN_LOOKS;
    if (!index->count)
        return (struct vp_fit){NULL, 0};
    for (struct vp_region *r = vp_index_first(index, req->size); r && looks-- > 0; r = vp_index_next(index, r)) {
        __builtin_prefetch(r->pieces);
        __builtin_prefetch(r->va.next);
        CUdeviceptr addr = first_run(mem, r, req, use, host);
        if (addr)
            return (struct vp_fit){r, addr};
    }
    return (struct vp_fit){NULL, 0};
}

static struct vp_fit better(struct vp_fit a, struct vp_fit b) {
    if (!a.region || !b.region)
        return a.region ? a : b;
    return vp_region_compare(a.region, b.region) <= 0 ? a : b;
}

struct vp_fit vp_fit_find(struct vp_memory *mem, const struct vp_request *req, enum vp_usable use) {
    enum vp_zone_name zone = req->zone;
    struct vp_fit fit = index_find(mem, &mem->met[zone], req, use, false);
    if (req->timeline && req->timeline->store && req->timeline->context->device == mem->device)
        fit = better(fit, index_find(mem, &req->timeline->store->index[zone], req, use, false));
    if (!fit.region || use != VP_USE_READY)
        fit = better(fit, index_find(mem, &mem->mixed[zone], req, use, false));
    /* A region indexed under another timeline may have a part that waits for nothing. */
    struct vp_index *index;
    if (!fit.region)
        vp_list_each_behind(index, &mem->mixed[VP_ZONES - 1].link, &mem->indexes, link)
            if (index->zone == zone && index->timeline != req->timeline)
                fit = better(fit, index_find(mem, index, req, use, false));
    return fit;
}

struct vp_fit vp_fit_host(struct vp_memory *mem, const struct vp_request *req, const struct vp_fence **fence) {
    enum vp_zone_name zone = req->zone;
    struct vp_fit fit = index_find(mem, &mem->mixed[zone], req, VP_USE_READY, true);
    struct vp_index *index;
    vp_list_each_behind(index, &mem->mixed[VP_ZONES - 1].link, &mem->indexes, link)
        if (index->zone == zone && index->timeline->kind == VP_TIMELINE_BARRIER)
            fit = better(fit, index_find(mem, index, req, VP_USE_READY, true));
    if (fit.region) {
        const struct vp_piece *p = vp_piece_at(fit.region, fit.addr);
        while (vp_fence_ready(&p->fence, NULL) && p->end < fit.addr + req->size)
            p = p->next;
        *fence = &p->fence;
    }
    return fit;
}

static bool index_has_chunk(const struct vp_memory *mem, const struct vp_index *index, size_t *looks) {
    const struct vp_region *r = index->count ? vp_index_first(index, mem->granularity) : NULL;
    for (; r && *looks; r = vp_index_next(index, r), --*looks)
        vp_mappings_each(m, mem, r->addr, vp_region_end(r))
            if (m->addr >= r->addr && m->addr + m->chunk->size <= vp_region_end(r))
                return true;
    return false;
}

static bool one_is_free(const struct vp_memory *mem) {
    const struct vp_chunk *chunk;
    vp_list_each(chunk, &mem->chunks, link) {
        const struct vp_region *r = vp_region_at(mem, chunk->current->addr);
        if (r->state == VP_FREE && vp_region_end(r) >= chunk->current->addr + chunk->size)
            return true;
    }
    return false;
}

bool vp_fit_has_chunk(const struct vp_memory *mem) {
    /* With large chunks there may be many more free regions, between the blocks in them, than chunks. */
    size_t looks = mem->chunk_count;
    const struct vp_index *index;
    vp_list_each(index, &mem->indexes, link)
        if (index_has_chunk(mem, index, &looks))
            return true;
    return !looks && one_is_free(mem);
}

static void refresh_index(struct vp_memory *mem, struct vp_index *index) {
    for (struct vp_region *r = index->count ? vp_index_first(index, 0) : NULL, *next; r; r = next) {
        next = vp_index_next(index, r);
        vp_region_refile(mem, r);
    }
}

void vp_memory_refile(struct vp_memory *mem) {
    struct vp_index *index, *next;
    vp_list_each_safe_behind(index, next, &mem->met[VP_ZONES - 1].link, &mem->indexes, link)
        refresh_index(mem, index);
    mem->moves = mem->timelines->moves;
}

/* What has waited for nothing is filed anew, too: vp_piece_synchronized() no longer knows the timeline by its id. */
void vp_fit_close_timeline(struct vp_memory *mem, const struct vp_timeline *timeline) {
    struct vp_index *index, *next;
    if (timeline->store && timeline->store->synchronized)
        vp_list_each_safe(index, next, &mem->indexes, link)
            refresh_index(mem, index);
}

bool vp_fit_refresh(struct vp_memory *mem) {
    vp_timelines_poll(mem->timelines, true);
    /* Somebody else may have asked since the last time, and moved our timelines. */
    bool moved = mem->moves != mem->timelines->moves;
    if (moved)
        vp_memory_refile(mem);
    return moved;
}

int vp_fit_await(struct vp_memory *mem, const struct vp_fence *fence, struct vp_timeline *timeline) {
    if (vp_fence_ready(fence, timeline))
        return 0;
    int err = vp_fence_wait(mem->timelines, fence, timeline);
    mem->stats.waits_gpu += !err;
    return err;
}

int vp_fit_wait(struct vp_memory *mem, struct vp_region *r, CUdeviceptr addr, CUdeviceptr end,
                const struct vp_request *req) {
    for (struct vp_piece *p = vp_piece_at(r, addr);; p = p->next) {
        int err = vp_fit_await(mem, &p->fence, req->timeline);
        if (err || p->end >= end)
            return err;
    }
}
