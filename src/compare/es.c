/* PyTorch's expandable segments (expandable_segments:True of its caching allocator), on our mechanisms. As
 * published:
 *   - each stream has one range of addresses for small requests (at most 1 MiB) and one for large ones, an
 *     eighth larger than the device's memory; pages of 2 MiB in the one and of 20 MiB in the other are
 *     mapped as they are needed;
 *   - a request takes the best fit among the free blocks of its range, where a block that could grow into
 *     unmapped addresses counts as large as it could become; what is over, 512 bytes and more, stays free;
 *   - if nothing fits, the lowest place that has unmapped addresses and room is completed: a free block
 *     before it is used along with it;
 *   - if the device has no more, the pages that are wholly free are unmapped and given back, and the
 *     request tried again; a range that has no page left is no longer its stream's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/per_stream.h"

#include <errno.h>

enum { SMALL_MOST = 1 << 20, SMALL_PAGE = 2 << 20, LARGE_PAGE = 20 << 20 };

/* A range is larger than the device's memory by one part in VA_OVER, so that free pages in the middle of it do not use
 * it up. */
enum { VA_OVER = 8 };

static int layout(struct vp_pool *pool, struct vp_request *req) {
    if (req->asked > SIZE_MAX / 4)
        return -ENOMEM;
    req->align = VP_QUANTUM;
    req->size = vp_round_up(req->asked, VP_QUANTUM);
    req->zone = req->size <= SMALL_MOST ? VP_ZONE_SMALL : VP_ZONE_LARGE;
    return 0;
}

static size_t page_size(const struct vp_pool *pool, enum vp_zone_name zone) {
    return vp_round_up(zone == VP_ZONE_SMALL ? SMALL_PAGE : LARGE_PAGE, pool->mem.granularity);
}

/* Finds another stream's range that has no page and is large enough; NULL: none. */
static struct vp_space *abandoned(struct vp_pool *pool, const struct vp_request *req) {
    struct vp_space *s;
    vp_list_each(s, &pool->mem.spaces, link)
        if (s->zone == req->zone && s->stream != vp_owner_of(req) && s->size >= req->size && vp_space_is_hole(s))
            return s;
    return NULL;
}

/* Gets a range for the request's stream: one that another stream no longer uses, else a new one. */
static int reserve(struct vp_pool *pool, const struct vp_request *req) {
    size_t total, va = pool->mem.va, page = page_size(pool, req->zone);
    struct vp_space *empty = abandoned(pool, req);
    if (empty) {
        empty->stream = vp_owner_of(req);
        return 0;
    }
    if (!va) {
        if (pool->mem.drv->cuDeviceTotalMem_v2(&total, pool->mem.device))
            return -EIO;
        va = total + total / VA_OVER;
    }
    int err = vp_space_add(&pool->mem, req->zone, vp_round_up(va > req->size ? va : req->size, page));
    /* The new range is the last of the list. */
    if (!err)
        vp_container_of(pool->mem.spaces.prev, struct vp_space, link)->stream = vp_owner_of(req);
    return err;
}

/* Are the bytes from `at` on either free and usable or unmapped, as far as the request needs? */
static bool room_at(const struct vp_space *s, const struct vp_region *r, CUdeviceptr at, const struct vp_request *req) {
    CUdeviceptr end = at + req->size;
    if (end > s->base + s->size)
        return false;
    for (; r && r->addr < end; r = vp_region_next(r)) {
        CUdeviceptr from = r->addr > at ? r->addr : at, to = vp_region_end(r) < end ? vp_region_end(r) : end;
        bool usable = r->state == VP_FREE && vp_range_usable(r, from, to, req, VP_USE_READY);
        if (!usable && r->state != VP_HOLE)
            return false;
    }
    return true;
}

/* Finds the lowest place in the stream's ranges that could be completed; 0: none. */
static CUdeviceptr find_place(struct vp_pool *pool, const struct vp_request *req) {
    struct vp_space *s;
    struct vp_region *r;
    vp_list_each(s, &pool->mem.spaces, link) {
        if (s->zone != req->zone || s->stream != vp_owner_of(req))
            continue;
        vp_list_each(r, &s->regions, va) {
            if (r->state != VP_HOLE)
                continue;
            struct vp_region *before = vp_region_prev(r);
            struct vp_run last = {0};
            if (before && before->state == VP_FREE)
                vp_per_stream_each(run, before, req)
                    last = run;
            if (last.region && last.end == r->addr && room_at(s, before, last.begin, req))
                return last.begin;
            if (room_at(s, r, r->addr, req))
                return r->addr;
        }
    }
    return 0;
}

/* Maps the pages that [at, at + size) still lacks. If a page cannot be had, what was mapped stays as free memory. */
static int complete(struct vp_pool *pool, const struct vp_request *req, CUdeviceptr at) {
    size_t page = page_size(pool, req->zone);
    for (CUdeviceptr end = at + req->size; at < end;) {
        struct vp_region *r = vp_region_at(&pool->mem, at);
        CUdeviceptr stop = vp_region_end(r);
        if (r->state == VP_HOLE) {
            size_t need = stop < end ? r->size : vp_round_up(end - at, page);
            int err = vp_per_stream_map(pool, req, page, need / page, at);
            if (err)
                return err;
            stop = at + need;
        }
        at = stop;
    }
    return 0;
}

static int grow(struct vp_pool *pool, const struct vp_request *req, struct vp_run *run) {
    CUdeviceptr at = find_place(pool, req);
    int err = 0;
    if (!at && !(err = reserve(pool, req)))
        at = find_place(pool, req);
    if (!err)
        err = complete(pool, req, at);
    if (!err)
        *run = (struct vp_run){vp_region_at(&pool->mem, at), at, at + req->size};
    return err;
}

static int alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct vp_run run;
    int err = vp_per_stream_fit(pool, req, VP_RANK_ROOM, &run);
    if (err)
        return err;
    if (!run.region) {
        err = grow(pool, req, &run);
        if (err == -ENOMEM && vp_pool_trim(pool, 0))
            err = grow(pool, req, &run);
        if (err)
            return err;
    }
    return vp_per_stream_take(pool, &run, req->size, req, out);
}

const struct vp_policy vp_policy_es = {
    .name = "es",
    .traits = {.events = VP_EVENTS_NEVER, .per_stream = true, .own_spaces = true},
    .layout = layout,
    .alloc = alloc,
};
