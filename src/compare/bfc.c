/* PyTorch's caching allocator (c10/cuda/CUDACachingAllocator), "best fit with coalescing", on our
 * mechanisms. As published:
 *   - sizes are rounded up to 512 bytes; requests of at most 1 MiB are small, the others large, and the two
 *     never share memory;
 *   - memory is got in segments: 2 MiB for small requests, 20 MiB for large ones below 10 MiB, and for the
 *     rest their size rounded up to 2 MiB;
 *   - a request takes the best fit among the free blocks of its own stream; what is over becomes a free
 *     block of its own if it is at least 512 bytes (small), or more than 1 MiB (large);
 *   - free neighbours unite within their segment;
 *   - with a largest size to split (max_split_size), larger blocks stay whole: smaller requests do not get
 *     them, and larger requests only if less than 20 MiB are over;
 *   - if the device has no more, every segment that is wholly free is given back, and the request tried
 *     again.
 *
 * A segment is one handle in a range of its own. Whereas the original is told by record_stream that other
 * streams used a block, here a block freed on another stream waits for it. Not modelled: rounding to powers
 * of two and the collection of old blocks, both off unless asked for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/bfc.h"

#include <errno.h>

enum {
    SMALL_SEGMENT = 2 << 20,
    LARGE_SHARED = 10 << 20, /* smaller requests share segments of the next size */
    LARGE_SEGMENT = 20 << 20,
    LARGE_ROUND = 2 << 20,
    WHOLE_OVER = 20 << 20, /* the most that may be left over in a block that is too large to split */
};

int vp_bfc_layout(struct vp_pool *pool, struct vp_request *req) {
    (void)pool;
    if (req->asked > SIZE_MAX / 4)
        return -ENOMEM;
    req->align = VP_QUANTUM;
    req->size = vp_round_up(req->asked, VP_QUANTUM);
    req->zone = req->size <= VP_BFC_SMALL ? VP_ZONE_SMALL : VP_ZONE_LARGE;
    return 0;
}

size_t vp_bfc_segment(const struct vp_pool *pool, size_t size) {
    size_t segment = vp_round_up(size, LARGE_ROUND);
    if (size < LARGE_SHARED)
        segment = size <= VP_BFC_SMALL ? SMALL_SEGMENT : LARGE_SEGMENT;
    return vp_round_up(segment, pool->mem.granularity);
}

/* Returns how many bytes of a run the request takes. */
static size_t taken(const struct vp_pool *pool, const struct vp_request *req, const struct vp_run *run) {
    size_t most = pool->config.split_most, over = vp_run_size(run) - req->size;
    bool split = over > VP_BFC_SMALL && (!most || req->size < most);
    if (req->zone == VP_ZONE_SMALL)
        split = over >= VP_QUANTUM;
    return split ? req->size : vp_run_size(run);
}

/* May a request have the run, though it is too large to split? */
static bool allowed(const struct vp_pool *pool, const struct vp_request *req, const struct vp_run *run) {
    size_t most = pool->config.split_most, size = vp_run_size(run);
    if (!most || size < most)
        return true;
    return req->size >= most && size < req->size + WHOLE_OVER;
}

static int grow(struct vp_pool *pool, const struct vp_request *req, struct vp_run *run) {
    CUdeviceptr addr;
    size_t size = vp_bfc_segment(pool, req->size);
    int err = vp_per_stream_hole(pool, req->zone, size, &addr);
    if (!err)
        err = vp_per_stream_map(pool, req, size, 1, addr);
    if (!err)
        *run = (struct vp_run){vp_region_at(&pool->mem, addr), addr, addr + size};
    return err;
}

int vp_bfc_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct vp_run run;
    int err = vp_per_stream_fit(pool, req, VP_RANK_SIZE, &run);
    if (err)
        return err;
    if (!run.region || !allowed(pool, req, &run)) {
        err = grow(pool, req, &run);
        if (err == -ENOMEM && vp_pool_trim(pool, 0))
            err = grow(pool, req, &run);
        if (err)
            return err;
    }
    return vp_per_stream_take(pool, &run, taken(pool, req, &run), req, out);
}

const struct vp_policy vp_policy_bfc = {
    .name = "bfc",
    .traits = {.events = VP_EVENTS_NEVER, .per_stream = true, .never_stitches = true},
    .layout = vp_bfc_layout,
    .alloc = vp_bfc_alloc,
};
