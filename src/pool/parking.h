/* Parked blocks: what the pool puts into stream caches, and frees for good when they give it up.
 *
 * To the rest of the pool a parked block is live. Before a request is served otherwise, its own cache is flushed: what
 * it holds becomes free memory for good, but for tiny blocks, of which there are many in most programs: whatever lies
 * about in small pieces serves as well, and only before a chunk is needed do they go too. If there is no free memory to
 * be had at once, the other caches are, before anything else is tried; but those that serve their stream well may keep
 * a little until memory is really short, so that threads which each repeat themselves do not rob each other for ever of
 * a few blocks too few for all. Live bytes are exact whenever a peak of them is noted; in between they include what is
 * parked.
 *
 * All of it under the library's lock. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* Parks a live block that `timeline` frees. `fence`: its point, if the free recorded an event (its points then pass
 * over), else NULL. False: free it for good. */
bool vp_parking_park(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline,
                     struct vp_fence *fence);
/* Parks a live block that the cache gave out, with an event of its own. False: the slow way must decide. */
bool vp_parking_free_event(struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr,
                           struct vp_stream_cache_block *out);
/* A block of the request's stream as vp_stream_cache_take() finds it; NULL: none. */
struct vp_region *vp_parking_unpark(struct vp_pool *pool, const struct vp_request *req);

/* Frees for good what the timeline's cache holds, but for tiny blocks. */
void vp_parking_flush_own(struct vp_pool *pool, struct vp_timeline *timeline);
/* Frees for good what caches hold, and counts what they did. False: no cache held anything. */
bool vp_parking_flush_busy(struct vp_pool *pool, enum vp_flush what);
static inline bool vp_parking_holds(const struct vp_pool *pool) {
    return atomic_load_explicit(&pool->caches.busy, memory_order_relaxed) != NULL;
}
static inline bool vp_parking_flush(struct vp_pool *pool, enum vp_flush what) {
    return vp_parking_holds(pool) && vp_parking_flush_busy(pool, what);
}
/* A block that a cache gave up because a request of another stream wants one just like it. */
struct vp_handed {
    struct vp_evicted block;      /* without region: none */
    struct vp_timeline *timeline; /* that freed it */
};
/* As vp_parking_flush(), for a request of a stream: if all that caches give up is one block of the size that it asks
 * for, with an event of its own, that is handed out instead of freed, for vp_handed_take() or vp_handed_settle(). */
void vp_parking_flush_for(struct vp_pool *pool, enum vp_flush what, const struct vp_request *req,
                          struct vp_handed *out);
/* Makes it the request's, whose stream waits for it if it must: as if it had been freed for good and found again. On
 * failure (see vp_fence_wait) nothing changed. */
int vp_handed_take(struct vp_pool *pool, struct vp_handed *handed, const struct vp_request *req);
/* Frees it for good, if there is one. */
void vp_handed_settle(struct vp_pool *pool, struct vp_handed *handed);
