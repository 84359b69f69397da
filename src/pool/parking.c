/* Blocks that the pool parks in stream caches, and frees for good when the caches give them up. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/parking.h"

#include "memory/sleep.h"
#include "pool/bare/bare.h"
#include "pool/learnt/ahead.h"
#include "pool/learnt/learn.h"
#include "pool/place.h"

/* The cache of a timeline; NULL: it has none, or is of another device. */
static struct vp_stream_cache *cache_known(const struct vp_pool *pool, const struct vp_timeline *timeline) {
    return timeline->store && timeline->context->device == pool->mem.device ? timeline->store->cache : NULL;
}

/* The same, made if need be. NULL: the policy has none, the timeline is of another device or gone, or out of memory. */
static struct vp_stream_cache *cache_of(struct vp_pool *pool, struct vp_timeline *timeline) {
    bool parks = pool->traits.parks && !timeline->gone;
    struct vp_stream_store *store = parks ? vp_stream_store_of(&pool->mem, timeline) : NULL;
    if (store && !store->cache)
        store->cache = vp_stream_cache_open(&pool->caches, timeline);
    return store ? store->cache : NULL;
}

/* Makes free memory of a block that has left a cache: behind the event of its free, or else behind a later one. */
static void settle(struct vp_pool *pool, struct vp_timeline *timeline, struct vp_evicted *evicted) {
    evicted->region->cache = NULL;
    if (vp_fence_empty(&evicted->fence))
        vp_fence_add_past_free(pool->mem.timelines, &evicted->fence, timeline, timeline->next);
    if (__builtin_expect(pool->learn != NULL, 0))
        vp_learn_freed(pool->learn, evicted->region->addr);
    vp_place_freed(pool, evicted->region);
    vp_region_release(&pool->mem, evicted->region, &evicted->fence);
}

static struct vp_stream_cache_block describe(const struct vp_pool *pool, struct vp_region *r) {
    return (struct vp_stream_cache_block){.addr = r->addr,
                                          .region = r,
                                          .asked = r->asked,
                                          .owner = r->owner,
                                          .serial = r->serial,
                                          .event = vp_pool_worth_event(pool, r)};
}

/* A program that begins again from nothing has made so many requests before; fewer are blocks that come and go. */
enum { ROUND = 64 };

/* Is this the last block alive, after a round of requests, in a program whose streams hardly reuse what they free? A
 * program that begins again from nothing asks for its blocks in the same order; if one were handed out from the cache,
 * all later ones would lie elsewhere than before. */
static bool is_last(struct vp_pool *pool, struct vp_stream_cache *cache, const struct vp_region *block) {
    size_t parked;
    if (!vp_stream_cache_was_vain(cache, &parked) || pool->mem.stats.live_bytes != block->asked + parked)
        return false;
    /* One free may ask twice. */
    if (pool->mem.stats.allocs != pool->emptied)
        pool->ends_round = pool->mem.stats.allocs - pool->emptied >= ROUND;
    pool->emptied = pool->mem.stats.allocs;
    return pool->ends_round;
}

/* Does a plan, being learnt or followed, need to see this large-zone block come and go? A run that learns does not see
 * what a cache hands out; in one that follows, such a block lies where the plan has others. */
static bool is_planned(const struct vp_pool *pool, const struct vp_region *block) {
    const struct vp_ahead *p = pool->ahead;
    const struct vp_space *space = vp_space_of(&pool->mem, block->addr);
    if (!space || space->zone != VP_ZONE_LARGE)
        return false;
    if (p && p->requests - p->begun <= p->plan.request_count && p->requests < VP_LEARNT_REQUESTS &&
        vp_ahead_in_step(p) != VP_AHEAD_OUT_OF_STEP)
        return true;
    if (!pool->learn || pool->learn->count == VP_LEARNT_REQUESTS)
        return false;
    pool->learn->gaps |= p && !p->plan.left;
    return !pool->learn->gaps;
}

bool vp_parking_park(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline,
                     struct vp_fence *fence) {
    const bool planned = __builtin_expect(pool->learn || pool->ahead, 0) && is_planned(pool, block);
    struct vp_stream_cache *cache = block->sync || planned ? NULL : cache_of(pool, timeline);
    struct vp_evicted oldest;
    if (!cache || vp_memory_sleeps(&pool->mem, block->addr))
        return false;
    if (is_last(pool, cache, block)) {
        vp_parking_flush_own(pool, timeline);
        return false;
    }
    if (vp_stream_cache_is_vain(cache))
        return false;
    const struct vp_stream_cache_block fresh = describe(pool, block);
    block->cache = cache;
    block->stream = timeline->id;
    vp_stream_cache_put(cache, &fresh, fence, &oldest);
    if (oldest.region)
        settle(pool, timeline, &oldest);
    return true;
}

bool vp_parking_free_event(struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr,
                           struct vp_stream_cache_block *out) {
    struct vp_timelines *timelines = cache->all->timelines;
    struct vp_timeline *timeline = cache->timeline;
    struct vp_fence fence = {0};
    struct vp_evicted oldest;
    unsigned at = vp_stream_cache_knows(cache, stream, addr);
    if (at == VP_STREAM_CACHE_RECENT || vp_fence_add_command(timelines, &fence, timeline, true))
        return false;
    /* Two threads may free the block at once: an error of the program's, which must do us no harm. */
    if (!vp_stream_cache_put_known(cache, at, addr, &fence, out, &oldest)) {
        vp_fence_clear(timelines, &fence);
        return false;
    }
    if (oldest.region)
        settle(vp_container_of(cache->all, struct vp_pool, caches), timeline, &oldest);
    return true;
}

struct vp_region *vp_parking_unpark(struct vp_pool *pool, const struct vp_request *req) {
    struct vp_stream_cache *cache = req->timeline ? cache_known(pool, req->timeline) : NULL;
    return cache ? vp_stream_cache_take(cache, req->asked, req->owner, &pool->mem.serial) : NULL;
}

/* ---- what caches give up ---- */

/* A request of another stream that may take a block over, and the block it gets. */
struct wanted {
    const struct vp_request *req;
    struct vp_handed *out;
    bool more; /* more than one block was given up */
};

static bool is_wanted(const struct wanted *w, const struct vp_evicted *evicted) {
    return w && !w->more && !w->out->block.region && !vp_fence_empty(&evicted->fence) &&
           evicted->region->asked == w->req->asked && evicted->region->owner == w->req->owner;
}

void vp_handed_settle(struct vp_pool *pool, struct vp_handed *handed) {
    if (handed->block.region)
        settle(pool, handed->timeline, &handed->block);
    handed->block.region = NULL;
}

int vp_handed_take(struct vp_pool *pool, struct vp_handed *handed, const struct vp_request *req) {
    struct vp_region *r = handed->block.region;
    struct vp_stream_cache *cache = cache_known(pool, req->timeline);
    int err = vp_fit_await(&pool->mem, &handed->block.fence, req->timeline);
    if (err)
        return err;
    vp_fence_clear(pool->mem.timelines, &handed->block.fence);
    handed->block.region = NULL;
    vp_region_account(&pool->mem, r, false);
    vp_fit_go_live(&pool->mem, r, req);
    if (cache) {
        r->cache = cache;
        const struct vp_stream_cache_block block = describe(pool, r);
        vp_stream_cache_remember(cache, &block);
    }
    return 0;
}

/* Frees for good what a cache gave up, oldest first; but one block may go to `w` (NULL: to nobody). */
static void settle_all(struct vp_pool *pool, struct vp_timeline *timeline, struct vp_evicted *evicted, unsigned n,
                       struct wanted *w) {
    for (unsigned i = 0; i < n; i++) {
        if (is_wanted(w, &evicted[i])) {
            *w->out = (struct vp_handed){evicted[i], timeline};
            continue;
        }
        if (w) {
            w->more = true;
            vp_handed_settle(pool, w->out);
        }
        settle(pool, timeline, &evicted[i]);
    }
}

static __attribute__((noinline)) void flush(struct vp_pool *pool, struct vp_stream_cache *cache) {
    struct vp_evicted evicted[VP_STREAM_CACHE_PARKED];
    settle_all(pool, cache->timeline, evicted, vp_stream_cache_evict(cache, evicted), NULL);
}

void vp_parking_flush_own(struct vp_pool *pool, struct vp_timeline *timeline) {
    struct vp_stream_cache *cache = cache_known(pool, timeline);
    if (cache && vp_stream_cache_has_some(cache))
        flush(pool, cache);
}

static bool flush_busy(struct vp_pool *pool, enum vp_flush what, struct wanted *w) {
    struct vp_evicted evicted[VP_STREAM_CACHE_PARKED];
    struct vp_stream_cache *cache, *next;
    size_t kept = 0;
    unsigned n;
    bool any = false;
    for (cache = atomic_exchange(&pool->caches.busy, NULL); cache; cache = next) {
        next = cache->next_busy;
        any |= vp_stream_cache_evict_busy(cache, what, &kept, evicted, &n);
        settle_all(pool, cache->timeline, evicted, n, w);
    }
    return any;
}

bool vp_parking_flush_busy(struct vp_pool *pool, enum vp_flush what) {
    return flush_busy(pool, what, NULL);
}

void vp_parking_flush_for(struct vp_pool *pool, enum vp_flush what, const struct vp_request *req,
                          struct vp_handed *out) {
    flush_busy(pool, what, &(struct wanted){.req = req, .out = out});
}

void vp_pool_close_timeline(struct vp_pool *pool, struct vp_timeline *timeline) {
    struct vp_evicted evicted[VP_STREAM_CACHE_PARKED];
    struct vp_stream_cache *cache = cache_known(pool, timeline);
    vp_bare_close_timeline(pool, timeline);
    vp_fit_close_timeline(&pool->mem, timeline);
    if (!cache)
        return;
    timeline->store->cache = NULL;
    settle_all(pool, timeline, evicted, vp_stream_cache_close(cache, evicted), NULL);
}
