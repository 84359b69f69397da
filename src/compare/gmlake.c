/* GMLake (Guo et al., ASPLOS 2024; arXiv 2401.08156), on our mechanisms. As published:
 *   - physical memory comes in chunks of one granule. A primitive block (pBlock) is a row of them at their
 *     first addresses, a stitched block (sBlock) a second row of addresses for chunks of several pBlocks.
 *     When an sBlock is freed, its chunks are free in their pBlocks again, and the sBlock is kept for the
 *     next request of its size. It can be had while every chunk of it is free;
 *   - a request, rounded up to whole chunks, is served by the first of
 *       S1  a pBlock or an sBlock of exactly its size;
 *       S2  the smallest larger pBlock, which is split;
 *       S3  several pBlocks, the largest first, of which the last is split, stitched to an sBlock;
 *       S4  a new pBlock of what all free ones together are short of, stitched to them;
 *       S5  out of memory, after what is wholly free has been given back;
 *   - requests below the fragmentation limit are not stitched: in place of S3 and S4 they get a new pBlock,
 *     as large as PyTorch's segment would be;
 *   - the sBlocks' addresses are limited: beyond, the least recently used are unmapped (StitchFree);
 *   - small requests, of at most 1 MiB, are left to PyTorch's caching allocator, from which the rest is
 *     derived too: a stream's memory is its own. (The paper draws that timeline at 2 MiB, the code that its
 *     authors published at 1 MiB.) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/bfc.h"

#include <errno.h>

static int layout(struct vp_pool *pool, struct vp_request *req) {
    if (req->asked > SIZE_MAX / 4)
        return -ENOMEM;
    bool small = req->asked <= VP_BFC_SMALL && req->asked < pool->mem.granularity;
    req->align = small ? VP_QUANTUM : pool->mem.granularity;
    req->size = vp_round_up(req->asked, req->align);
    req->zone = small ? VP_ZONE_SMALL : VP_ZONE_LARGE;
    return 0;
}

/* ---- S3 and S4 ---- */

/* Copies the stream's free pBlocks, at most `room`, into `runs`. Returns how many there are, and the sum of all in
 * `*bytes`. */
static size_t gather(struct vp_pool *pool, const struct vp_request *req, struct vp_run *runs, size_t room,
                     size_t *bytes) {
    const struct vp_space *s;
    struct vp_region *r;
    size_t count = 0;
    *bytes = 0;
    vp_list_each(s, &pool->mem.spaces, link)
        vp_list_each(r, &s->regions, va) {
            if (s->zone != VP_ZONE_LARGE || r->state != VP_FREE ||
                vp_mapping_at(&pool->mem, r->addr)->chunk->stream != vp_owner_of(req))
                continue;
            vp_per_stream_each(run, r, req) {
                if (count < room)
                    runs[count] = run;
                count++;
                *bytes += vp_run_size(&run);
            }
        }
    return count;
}

/* Chooses the first `n` chunks of the pBlocks, the largest block first; of equal ones, the lowest. */
static void choose(const struct vp_pool *pool, struct vp_run *runs, size_t count, struct vp_chunk **chunks, size_t n) {
    for (size_t have = 0; have < n;) {
        struct vp_run *best = &runs[0];
        for (size_t i = 1; i < count; i++)
            if (vp_run_size(&runs[i]) > vp_run_size(best))
                best = &runs[i];
        for (; best->begin < best->end && have < n; best->begin += pool->mem.granularity)
            chunks[have++] = vp_mapping_at(&pool->mem, best->begin)->chunk;
        best->end = best->begin;
    }
}

static int new_block(struct vp_pool *pool, const struct vp_request *req, size_t size, struct vp_run *run) {
    CUdeviceptr addr;
    int err = vp_per_stream_hole(pool, VP_ZONE_LARGE, size, &addr);
    if (!err)
        err = vp_per_stream_map(pool, req, pool->mem.granularity, size / pool->mem.granularity, addr);
    if (!err)
        *run = (struct vp_run){vp_region_at(&pool->mem, addr), addr, addr + size};
    return err;
}

/* Reaps the least recently used ranges, if work on them is over, while all ranges take more than `most` bytes of
 * addresses. */
static void shrink(struct vp_pool *pool, size_t most) {
    const struct vp_place *k;
    size_t bytes = 0;
    vp_list_each(k, &pool->place_used, used)
        bytes += k->size;
    if (bytes > most)
        vp_fit_refresh(&pool->mem);
    /* Ranges that are in use, or that wait for work to end, count as used just now. */
    for (size_t tries = pool->place_count; tries > 0 && bytes > most; tries--) {
        struct vp_place *oldest = vp_container_of(pool->place_used.next, struct vp_place, used);
        CUdeviceptr addr = oldest->addr, end = addr + oldest->size;
        vp_place_touch(pool, oldest);
        if (vp_stitch_reap(&pool->mem, addr, end, false)) {
            vp_place_remove(pool, oldest);
            bytes -= end - addr;
        }
    }
}

static int stitch(struct vp_pool *pool, const struct vp_request *req, struct vp_run *run) {
    size_t n = req->size / pool->mem.granularity, have, count, most = pool->config.stitched_most;
    CUdeviceptr addr;
    gather(pool, req, NULL, 0, &have);
    if (have < req->size) {
        int err = new_block(pool, req, req->size - have, run);
        if (err || !have)
            return err;
    }
    if (most)
        shrink(pool, most > req->size ? most - req->size : 0);
    int err = vp_per_stream_hole(pool, VP_ZONE_LARGE, req->size, &addr);
    if (err)
        return err;
    count = gather(pool, req, NULL, 0, &have);
    /* Finding a hole may have released idle memory. */
    if (have < req->size)
        return -ENOMEM;
    struct vp_run *runs = vp_pool_scratch(pool, count * sizeof *runs + n * sizeof(struct vp_chunk *));
    if (!runs)
        return -ENOMEM;
    struct vp_chunk **chunks = (struct vp_chunk **)(runs + count);
    gather(pool, req, runs, count, &have);
    choose(pool, runs, count, chunks, n);
    err = vp_stitch_map(&pool->mem, chunks, n, addr);
    if (err)
        return err;
    vp_place_add(pool, addr, req->size);
    *run = (struct vp_run){vp_region_at(&pool->mem, addr), addr, addr + req->size};
    return 0;
}

/* ---- the states ---- */

static int find(struct vp_pool *pool, struct vp_request *req, struct vp_run *run) {
    int err = vp_per_stream_fit(pool, req, VP_RANK_SIZE, run);
    if (err || (run->region && vp_run_size(run) == req->size))
        return err;
    struct vp_fit kept = vp_place_find(pool, req, VP_USE_READY);
    if (kept.region)
        *run = (struct vp_run){kept.region, kept.addr, kept.addr + req->size};
    return 0;
}

static int grow(struct vp_pool *pool, const struct vp_request *req, struct vp_run *run) {
    if (req->size >= pool->config.stitch_least)
        return stitch(pool, req, run);
    return new_block(pool, req, vp_bfc_segment(pool, req->size), run);
}

static int alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct vp_run run;
    if (req->zone == VP_ZONE_SMALL)
        return vp_bfc_alloc(pool, req, out);
    int err = find(pool, req, &run);
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

const struct vp_policy vp_policy_gmlake = {
    .name = "gmlake",
    .traits = {.events = VP_EVENTS_NEVER, .per_stream = true, .homes = true},
    .layout = layout,
    .alloc = alloc,
};
