/* Stream caches: the fast path.
 *
 * Most frees are followed by a request for the same size on the same stream. So what a stream frees is parked in its
 * cache for a moment. Taking it from there needs no search, no change of regions and not the library's lock: a cache
 * has a lock of its own, which in most programs only one thread ever takes. A cache knows its stream and its blocks,
 * and nothing of the pool; what it gives up it hands to the caller (parking.h).
 *
 * Who may touch what: once a cache has held a block (region.cache), the cache's lock guards whether it is live; the
 * rest of the region is guarded as for other blocks. The fast path does not even read the region: neighbouring regions
 * lie side by side in memory, and the neighbour may be another thread's block. Lock order: the library's, then a
 * cache's. Under a cache's lock no driver call is made but cuStreamGetId.
 *
 * A free that others might wait for records an event, which costs much, and more with more threads. A cache that serves
 * one such block after another while nobody else wants its blocks is *calm*, and parks them without events. If somebody
 * else asks later, a later event must do for the blocks parked then. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/thread_safety.h"
#include "memory/memory.h"

/* Parked blocks: few, so that one is found at a glance. Recent blocks: remembered so that their free needs no look-up
 * under the library's lock. */
enum { VP_STREAM_CACHE_PARKED = 32, VP_STREAM_CACHE_RECENT = 128, VP_STREAM_CACHE_KINDS = 256 };

/* A block, as the fast path knows it. */
struct vp_stream_cache_block {
    CUdeviceptr addr;
    struct vp_region *region;
    size_t asked;
    const void *owner;
    uint64_t serial; /* of its present allocation; newer than the region's own */
    bool event;      /* its free is worth an event, if others may want it */
};

/* The caches of one device. The library's lock guards this, except what is atomic. */
struct vp_stream_caches {
    struct vp_timelines *timelines;
    CUdevice device;
    struct vp_memory_stats *stats; /* the caches' counts end up here */
    struct vp_list used, spare;    /* of vp_stream_cache.link, owned; never freed: other threads may read one */
    _Atomic(struct vp_stream_cache *) busy; /* caches that may hold blocks, linked by next_busy */
    atomic_bool several; /* several streams want large blocks: frees of such record events from now on */
    struct vp_slab slab;
};

/* Held for some ten nanoseconds: a thread that finds it taken spins. */
struct VP_LOCK_TYPE vp_stream_cache_lock {
    atomic_bool taken;
};

/* The lock guards all members. Atomic ones are stored under it, relaxed, and also read without it where a slightly old
 * value will do. */
struct vp_stream_cache {
    struct vp_stream_cache_lock lock;
    bool listed;       /* in vp_stream_caches.busy; whoever takes the cache out there flushes it */
    atomic_uint count; /* parked blocks */
    uint64_t id;       /* of its timeline; 0: no timeline */
    struct vp_timeline *timeline;
    atomic_uint_least32_t number; /* vp_timeline.number */
    struct vp_stream_caches *all;
    struct vp_stream_cache *next_busy; /* in vp_stream_caches.busy */
    struct vp_list link;               /* in vp_stream_caches.used or spare */
    uint64_t serial, serial_end;       /* the range of serials that the cache may still give out */
    uint64_t allocs, frees;            /* not yet counted in `stats` */
    size_t spent;     /* parked blocks with a fence that were given out again: points still counted in timeline->refs */
    atomic_uint calm; /* requests for large blocks served in a row while nobody else wanted its blocks */
    atomic_uint in_vain; /* blocks parked since a request was served; also stored under the library's lock alone */
    atomic_uint tiny;    /* parked blocks that are tiny */
    size_t bytes;        /* of parked blocks, as asked for */
    _Atomic uint8_t kinds[VP_STREAM_CACHE_KINDS]; /* parked blocks with a tag of each kind; mostly 0 for a request's */
    uint16_t tag[VP_STREAM_CACHE_PARKED];         /* of parked blocks, oldest first, to find one at a glance */
    uint8_t slot[VP_STREAM_CACHE_PARKED]; /* in the same order: their index in `parked`; behind them the free indices */
    struct {
        struct vp_stream_cache_block block;
        struct vp_fence fence; /* only if the free recorded an event; else a later one must do for others */
    } parked[VP_STREAM_CACHE_PARKED];
    _Atomic CUdeviceptr recent_at[VP_STREAM_CACHE_RECENT]; /* addresses of live blocks that it gave out; 0: empty */
    struct vp_stream_cache_block recent[VP_STREAM_CACHE_RECENT]; /* what it knows of each */
    char apart[64];                                              /* keeps other threads' writes in another cache line */
};

/* ---- without the library's lock ---- */

/* Takes the parked block of exactly `asked` bytes for `owner` that `stream` freed last. Checks under the cache's lock
 * that `stream` is the cache's own and that no capture runs. False: take the slow path. `*out`: what the cache knows of
 * the block. */
bool vp_stream_cache_alloc(struct vp_stream_cache *cache, CUstream stream, size_t asked, const void *owner,
                           struct vp_stream_cache_block *out);
/* Parks a live block that the cache gave out, if its free needs no event. */
enum vp_stream_cache_answer {
    VP_STREAM_CACHE_ELSE,  /* take the slow path */
    VP_STREAM_CACHE_EVENT, /* try vp_parking_free_event() */
    VP_STREAM_CACHE_DONE
};
enum vp_stream_cache_answer vp_stream_cache_free(struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr,
                                                 struct vp_stream_cache_block *out);

/* ---- under the library's lock ---- */

/* A block that has left a cache: live to the memory, but nobody's. With its fence, if its free recorded an event. */
struct vp_evicted {
    struct vp_region *region;
    struct vp_fence fence;
};

enum vp_flush {
    /* Not tiny blocks, nor those of caches that serve their stream well: these keep up to 32 MiB together. */
    VP_FLUSH_SOME,
    VP_FLUSH_MOST, /* tiny blocks too */
    VP_FLUSH_ALL
};

void vp_stream_caches_init(struct vp_stream_caches *all, struct vp_timelines *timelines, CUdevice device,
                           struct vp_memory_stats *stats);
/* Gives a timeline a cache; NULL: out of memory. */
struct vp_stream_cache *vp_stream_cache_open(struct vp_stream_caches *all, struct vp_timeline *timeline);
/* The timeline ends: the cache gives up all blocks, into `out` (room for VP_STREAM_CACHE_PARKED); returns how many. */
unsigned vp_stream_cache_close(struct vp_stream_cache *cache, struct vp_evicted *out);
/* Do sizes hardly repeat, so that this block had better not be parked? (One in 8 is, as a test.) May miss a request
 * served at the same moment; the next one counts. */
bool vp_stream_cache_is_vain(struct vp_stream_cache *cache);
/* The same without that exception. `*bytes`: what the cache holds, as asked for. */
bool vp_stream_cache_was_vain(struct vp_stream_cache *cache, size_t *bytes);
bool vp_stream_cache_is_calm(const struct vp_stream_cache *cache);

/* Parks a block that the timeline frees. `fence`: its point if the free recorded an event (its points pass over), else
 * NULL. `*oldest`: the block that had to make room; region NULL: none. */
void vp_stream_cache_put(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block,
                         struct vp_fence *fence, struct vp_evicted *oldest);
/* Where the cache remembers a live block that it gave out; VP_STREAM_CACHE_RECENT: nowhere, or not the cache's
 * stream. */
unsigned vp_stream_cache_knows(const struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr);
/* As put, for the block remembered at `at`, which is copied to `*block`. False: it is no longer remembered there. */
bool vp_stream_cache_put_known(struct vp_stream_cache *cache, unsigned at, CUdeviceptr addr, struct vp_fence *fence,
                               struct vp_stream_cache_block *block, struct vp_evicted *oldest);
/* Takes a block as vp_stream_cache_alloc() does, whatever it waits for; NULL: none. Advances `*serial`. */
struct vp_region *vp_stream_cache_take(struct vp_stream_cache *cache, size_t asked, const void *owner,
                                       uint64_t *serial);
/* The stream was given this block on the slow path: remembers it. */
void vp_stream_cache_remember(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block);
/* If the block, which has a cache, is live and not parked, it leaves its cache: from then on only the library's lock
 * guards it. False: it is parked. */
bool vp_stream_cache_recall(struct vp_region *block);
/* The timeline whose cache has the block parked: live to the memory, but free to the program. NULL: none. */
const struct vp_timeline *vp_stream_cache_holding(const struct vp_region *block);
/* Gives up all blocks but tiny ones, oldest first; returns their number. has_some: would that change anything? */
bool vp_stream_cache_has_some(const struct vp_stream_cache *cache);
unsigned vp_stream_cache_evict(struct vp_stream_cache *cache, struct vp_evicted *out);
/* The same for a cache taken from the busy list, as far as `what` says; false: it keeps all. `*kept`: bytes that caches
 * have kept so far. */
bool vp_stream_cache_evict_busy(struct vp_stream_cache *cache, enum vp_flush what, size_t *kept, struct vp_evicted *out,
                                unsigned *n);

/* Adds the counts of all caches to the statistics, without a flush. Returns the parked bytes, as asked for. */
uint64_t vp_stream_caches_count(struct vp_stream_caches *all);
/* Parked bytes of an owner (NULL: of all), as asked for. */
uint64_t vp_stream_caches_parked(struct vp_stream_caches *all, const void *owner);
/* Returns once every fast-path call under way has seen all stores made before this call. */
void vp_stream_caches_await_calls(struct vp_stream_caches *all);
