/* Stream caches: the fast path. Most frees are followed by a request for the same size on the same stream. What a
 * stream frees is therefore parked in its cache for a moment; taken from there, it costs neither a search nor a change
 * of the regions, and the library's lock is not taken: a cache has its own, which in a well-behaved program only one
 * thread ever wants.
 *
 * To the rest of the pool a parked block is live. Before a request is served otherwise, its own cache is flushed: what
 * it holds becomes free memory for good, but for tiny blocks, of which there are many in most programs: whatever lies
 * about in small pieces serves as well, and only before a chunk is needed do they go too. If there is no free memory to
 * be had at once, the other caches are, before anything else is tried; but those that serve their stream well may keep
 * a little until memory is really short, so that threads which each repeat themselves do not rob each other for ever of
 * a few blocks too few for all. Live bytes are exact whenever a peak of them is noted; in between they include what is
 * parked.
 *
 * Who may touch what: of a block that a cache has once held (region.cache), the cache's lock guards whether it is live;
 * the rest is as for other blocks. The fast path does not even look at the region: neighbouring regions lie side by
 * side in memory, and another thread's block may be the neighbour. Order of locks: the library's, then a cache's. Under
 * a cache's lock runs no driver call but cuStreamGetId.
 *
 * A free that others might wait for records an event (see vp_pool_worth_event), which is dear, and the dearer the more
 * threads do it. A cache that serves one such block after another while nobody else asks for what it holds is *calm*,
 * and parks without one; should somebody ask after all, then for what is parked at that moment a later event must do.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_STREAM_CACHE_H
#define VP_STREAM_CACHE_H

#include "pool/pool.h"

/* Blocks parked: few, so that finding one is a glance. Blocks remembered: so that a free needs no look-up that others
 * lock. */
enum { VP_STREAM_CACHE_PARKED = 32, VP_STREAM_CACHE_RECENT = 128, VP_STREAM_CACHE_KINDS = 256 };

/* A block, as the fast path knows it. */
struct vp_stream_cache_block {
    CUdeviceptr addr;
    struct vp_region *region;
    size_t asked;
    const void *owner;
    uint64_t serial; /* of its present allocation; newer than the region's */
    bool event;      /* its free is worth one, if others may want it */
};

/* Its lock guards all of it. What is atomic is looked at without it too, where a value of a moment ago will do: stored
 * relaxed, under the lock. */
struct vp_stream_cache {
    atomic_bool locked;
    bool listed;       /* on vp_pool.busy_caches; whoever lists it, flushes it */
    atomic_uint count; /* of parked */
    uint64_t id;       /* of its timeline; 0: it has none */
    struct vp_timeline *timeline;
    atomic_uint_least32_t number; /* of its timeline */
    struct vp_pool *pool;
    struct vp_stream_cache *next_busy; /* vp_pool.busy_caches */
    struct vp_list link;               /* vp_pool.caches or spare_caches */
    uint64_t serial, serial_end;       /* serials that may still be given, from the pool's */
    uint64_t allocs, frees;            /* not yet counted by the pool */
    size_t spent;                      /* points of blocks that it gave out again, still among those of its timeline */
    atomic_uint calm;                  /* requests for large blocks served since somebody else wanted what it held */
    atomic_uint in_vain; /* blocks parked since a request was served; also stored under the library's lock alone */
    atomic_uint tiny;    /* how many of the parked ones are */
    size_t bytes;        /* parked, as asked for */
    _Atomic uint8_t kinds[VP_STREAM_CACHE_KINDS]; /* how many of the parked blocks have a tag of that kind: mostly there
                                                     is none of the one asked for */
    uint16_t tag[VP_STREAM_CACHE_PARKED];         /* of parked blocks, oldest first: so that a glance finds one */
    uint8_t place[VP_STREAM_CACHE_PARKED]; /* in the same order, where in `parked` they are; then the places that are
                                              free */
    struct {
        struct vp_stream_cache_block block;
        struct vp_fence fence; /* only if an event was recorded at the free; else a later one will do for others */
    } parked[VP_STREAM_CACHE_PARKED];
    _Atomic CUdeviceptr recent_at[VP_STREAM_CACHE_RECENT]; /* live blocks that this cache gave out, by address; some are
                                                              forgotten. 0: an empty place */
    struct vp_stream_cache_block recent[VP_STREAM_CACHE_RECENT]; /* what it knows of each */
    char apart[64];                                              /* from what another thread writes */
};

/* ---- without the library's lock ---- */

/*
 * A block of exactly `asked` bytes for `owner` that the stream parked last. `stream` is looked at under the cache's
 * lock: it must be the one that the cache belongs to, and no capture may run. False: the slow way must decide. `out` is
 * what the cache knows of the block.
 */
bool vp_stream_cache_alloc(struct vp_stream_cache *cache, CUstream stream, size_t asked, const void *owner,
                           struct vp_stream_cache_block *out);
/* Parks a live block that the cache gave out, if its free needs no event. */
enum vp_stream_cache_answer {
    VP_STREAM_CACHE_ELSE,  /* the slow way must decide */
    VP_STREAM_CACHE_EVENT, /* vp_stream_cache_free_event() may do */
    VP_STREAM_CACHE_DONE
};
enum vp_stream_cache_answer vp_stream_cache_free(struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr,
                                                 struct vp_stream_cache_block *out);

/* ---- under the library's lock ---- */

/* The cache of a timeline, made if need be; NULL: the policy has none, the timeline is of another device, or memory ran
 * out. */
struct vp_stream_cache *vp_stream_cache_of(struct vp_pool *pool, struct vp_timeline *timeline);
/* Is the timeline's cache calm? */
bool vp_stream_cache_calm(const struct vp_timeline *timeline);
/* Parks a live block that the cache gave out, with an event of its own. False: the slow way must decide. */
bool vp_stream_cache_free_event(struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr,
                                struct vp_stream_cache_block *out);
/* Parks a live block that `timeline` frees. `fence`: its point, if the free recorded an event (then passed over), else
 * NULL. False: free it for good. */
bool vp_stream_cache_park(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline,
                          struct vp_fence *fence);
/* A block as vp_stream_cache_alloc() would find, whatever it waits for; NULL: none. */
struct vp_region *vp_stream_cache_unpark(struct vp_pool *pool, const struct vp_request *req);
/* Is the block live (and not parked)? If so, it leaves its cache: from here on the library's lock alone guards it. */
bool vp_stream_cache_recall(struct vp_region *block);
/* The timeline whose cache holds the block: live to the pool, it is free to the program then. NULL: none. */
const struct vp_timeline *vp_stream_cache_holding(const struct vp_region *block);
/* Frees for good what the timeline's cache holds, but for tiny blocks. */
void vp_stream_cache_flush(struct vp_pool *pool, const struct vp_timeline *timeline);
enum vp_flush {
    VP_FLUSH_SOME, /* no tiny blocks, and of caches that serve their stream well none at all: those keep 32 MiB together
                    */
    VP_FLUSH_MOST, /* tiny ones too */
    VP_FLUSH_ALL
};
/* Frees for good what caches hold, and counts what they did. False: no cache held anything. */
bool vp_stream_caches_flush(struct vp_pool *pool, enum vp_flush what);
/* A block that a cache gave up because a request of another stream wants one just like it: live to the pool, and
 * nobody's. */
struct vp_handed {
    struct vp_region *region;     /* NULL: none */
    struct vp_timeline *timeline; /* that freed it */
    struct vp_fence fence;
};
/*
 * As vp_stream_caches_flush(), for a request of a stream: if all that caches give up is one block of the size that it
 * asks for, with an event of its own, that is not freed for good but handed out, for vp_handed_take() or
 * vp_handed_settle().
 */
void vp_stream_caches_flush_for(struct vp_pool *pool, enum vp_flush what, const struct vp_request *req,
                                struct vp_handed *out);
/* Makes it the request's, whose stream waits for it if it must: as if it had been freed for good and found again. On
 * failure (see vp_fence_wait) nothing changed. */
int vp_handed_take(struct vp_pool *pool, struct vp_handed *handed, const struct vp_request *req);
/* Frees it for good, if there is one. */
void vp_handed_settle(struct vp_pool *pool, struct vp_handed *handed);
/* Counts what the caches did and flushes nothing. Returns the bytes that they hold, as asked for. */
uint64_t vp_stream_caches_count(struct vp_pool *pool);
/* Bytes that caches hold for an owner (NULL: for all), as asked for. */
uint64_t vp_stream_caches_parked(struct vp_pool *pool, const void *owner);
/* Returns when no call without the library's lock is under way that has not seen what was stored before. */
void vp_stream_caches_pass(struct vp_pool *pool);
/* The timeline ends (its stream can still be named): frees for good what it holds, and parks no more. */
void vp_stream_cache_close(struct vp_pool *pool, struct vp_timeline *timeline);

#endif
