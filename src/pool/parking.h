/* Parked blocks: blocks that the pool puts into stream caches, and frees for good when the caches give them up.
 *
 * To the rest of the pool a parked block is live. When a request's own cache cannot serve it, that cache is flushed:
 * its blocks become free memory. Tiny blocks stay: programs have many, and any small piece of free memory does as well;
 * they go only before a new chunk is needed. If no free memory is ready at once, the other caches are flushed before
 * anything else is tried. Those that serve their stream well keep a little until memory is really short, so that
 * threads which each repeat themselves do not take a few blocks from each other for ever. Live bytes are exact whenever
 * their peak is noted; in between they include parked blocks.
 *
 * The caller holds the library's lock. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* Parks a live block that `timeline` frees. `fence`: the point of the free if it recorded an event (its points pass
 * over), else NULL. False: not parked; the caller frees the block for good. */
bool vp_parking_park(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline,
                     struct vp_fence *fence);
/* Parks a live block that the cache gave out, and records an event for its free. False: take the slow path. */
bool vp_parking_free_event(struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr,
                           struct vp_stream_cache_block *out);
/* Takes a parked block that fits the request, as vp_stream_cache_take(); NULL: none. */
struct vp_region *vp_parking_unpark(struct vp_pool *pool, const struct vp_request *req);

/* Frees for good what the timeline's cache holds, except tiny blocks. */
void vp_parking_flush_own(struct vp_pool *pool, struct vp_timeline *timeline);
/* Frees for good what all caches hold, as far as `what` says, and adds their counts. False: no cache gave up any
 * block. */
bool vp_parking_flush_busy(struct vp_pool *pool, enum vp_flush what);
static inline bool vp_parking_holds(const struct vp_pool *pool) {
    return atomic_load_explicit(&pool->caches.busy, memory_order_relaxed) != NULL;
}
static inline bool vp_parking_flush(struct vp_pool *pool, enum vp_flush what) {
    return vp_parking_holds(pool) && vp_parking_flush_busy(pool, what);
}
/* A block that a cache gave up because a request of another stream wants exactly such a block. */
struct vp_handed {
    struct vp_evicted block;      /* region NULL: none */
    struct vp_timeline *timeline; /* the one that freed it */
};
/* As vp_parking_flush(). But if the only block given up has the size that `req` asks for and an event of its own, it
 * goes to `out` and is not freed: vp_handed_take() or vp_handed_settle() must follow. */
void vp_parking_flush_for(struct vp_pool *pool, enum vp_flush what, const struct vp_request *req,
                          struct vp_handed *out);
/* Gives the block to the request, whose stream waits for it if it must: as if it had been freed and found again. On
 * failure (see vp_fence_wait) nothing has changed. */
int vp_handed_take(struct vp_pool *pool, struct vp_handed *handed, const struct vp_request *req);
/* Frees the block for good, if there is one. */
void vp_handed_settle(struct vp_pool *pool, struct vp_handed *handed);
