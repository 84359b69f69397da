/* What the published caching allocators share: memory is got for one stream and serves that stream alone.
 * What belongs to different streams, or was got by different calls, lies apart, so that it never unites.
 *
 * The stream 0 stands for cudaMalloc, whose blocks anyone may use at once: what belongs to it is given out
 * only when all work on it is known to be over. A block that was freed on another stream than its own goes
 * back to its own, once that stream may use it. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "compare/compare.h"

/* A free block, as these allocators see it: neighbouring free bytes that the request may use. */
struct vp_run {
    struct vp_region *region; /* NULL: none */
    CUdeviceptr begin, end;
};

static inline uint64_t vp_owner_of(const struct vp_request *req) {
    return req->timeline ? req->timeline->id : 0;
}

static inline size_t vp_run_size(const struct vp_run *run) {
    return run->end - run->begin;
}

/* What a search prefers: the smallest run; or the one that is smallest together with the hole behind it,
 * into which it could grow. */
enum vp_rank { VP_RANK_SIZE, VP_RANK_ROOM };

/* Finds the best fit among the runs of the request's own stream; of equal ones, the lowest. If nothing fits, and work
 * of other streams on the stream's memory may be over, the driver is asked first. 0, with `run->region` NULL if nothing
 * fits; -EAGAIN: the host should wait (see vp_pool_alloc()); -EIO. */
int vp_per_stream_fit(struct vp_pool *pool, struct vp_request *req, enum vp_rank rank, struct vp_run *run);
/* Returns the next usable run of a free region, from `at` on, or one without region. */
struct vp_run vp_per_stream_next(struct vp_region *r, CUdeviceptr at, const struct vp_request *req);
#define vp_per_stream_each(run, r, req)                                                                                \
    for (struct vp_run run = vp_per_stream_next(r, (r)->addr, req); run.region;                                        \
         run = vp_per_stream_next(r, run.end, req))

/* Makes the first `size` bytes of a run live. 0, -ENOMEM (no metadata) or -EIO. */
int vp_per_stream_take(struct vp_pool *pool, const struct vp_run *run, size_t size, const struct vp_request *req,
                       struct vp_region **out);

/* Makes a hole with an unmapped granule on either side. `*addr` is the first address between them. 0 or -ENOMEM. */
int vp_per_stream_hole(struct vp_pool *pool, enum vp_zone_name zone, size_t size, CUdeviceptr *addr);
/* Maps `n` new chunks of `chunk` bytes side by side into the hole at `addr`, for the request's stream. 0, -ENOMEM or
 * -EIO, with nothing changed. */
int vp_per_stream_map(struct vp_pool *pool, const struct vp_request *req, size_t chunk, size_t n, CUdeviceptr addr);
