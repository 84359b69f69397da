/* Stream caches: the fast path. Most frees are followed by a request for the same size on the same stream. What a
 * stream frees is therefore parked in its cache for a moment; taken from there, it costs neither a search nor a change
 * of the regions, and the library's lock is not taken: a cache has its own, which in a well-behaved program only one
 * thread ever wants. A cache knows blocks and its stream, and nothing of the pool: what it gives up (parking.h) it
 * hands out.
 *
 * Who may touch what: of a block that a cache has once held (region.cache), the cache's lock guards whether it is live;
 * the rest is as for other blocks. The fast path does not even look at the region: neighbouring regions lie side by
 * side in memory, and another thread's block may be the neighbour. Order of locks: the library's, then a cache's. Under
 * a cache's lock runs no driver call but cuStreamGetId.
 *
 * A free that others might wait for records an event, which is dear, and the dearer the more
 * threads do it. A cache that serves one such block after another while nobody else asks for what it holds is *calm*,
 * and parks without one; should somebody ask after all, for what is parked at that moment a later event must do. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/thread_safety.h"
#include "memory/memory.h"

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

/* The caches of one device. Under the library's lock, but for what is atomic. */
struct vp_stream_caches {
    struct vp_timelines *timelines;
    CUdevice device;
    struct vp_memory_stats *stats; /* where what they did is counted in the end */
    struct vp_list used, spare;    /* of vp_stream_cache.link; used again and never given back, since other threads may
                                      still look at one */
    _Atomic(struct vp_stream_cache *) busy; /* those that may hold blocks, linked by next_busy */
    atomic_bool several; /* several streams free blocks worth an event: frees record their own from now on */
    struct vp_slab slab;
};

/* Held for some ten nanoseconds: whoever finds it taken spins. */
struct VP_LOCK_TYPE vp_stream_cache_lock {
    atomic_bool taken;
};

/* Its lock guards all of it. What is atomic is looked at without it too, where a value of a moment ago will do: stored
 * relaxed, under the lock. */
struct vp_stream_cache {
    struct vp_stream_cache_lock lock;
    bool listed;       /* on vp_stream_caches.busy; whoever takes it from there, flushes it */
    atomic_uint count; /* of parked */
    uint64_t id;       /* of its timeline; 0: it has none */
    struct vp_timeline *timeline;
    atomic_uint_least32_t number; /* of its timeline */
    struct vp_stream_caches *all;
    struct vp_stream_cache *next_busy; /* vp_stream_caches.busy */
    struct vp_list link;               /* vp_stream_caches.used or spare */
    uint64_t serial, serial_end;       /* serials that may still be given, from the memory's */
    uint64_t allocs, frees;            /* not yet counted in `stats` */
    size_t spent;                      /* points of blocks that it gave out again, still among those of its timeline */
    atomic_uint calm;                  /* requests for large blocks served since somebody else wanted what it held */
    atomic_uint in_vain; /* blocks parked since a request was served; also stored under the library's lock alone */
    atomic_uint tiny;    /* how many of the parked ones are */
    size_t bytes;        /* parked, as asked for */
    _Atomic uint8_t kinds[VP_STREAM_CACHE_KINDS]; /* how many of the parked blocks have a tag of that kind: mostly there
                                                     is none of the one asked for */
    uint16_t tag[VP_STREAM_CACHE_PARKED];         /* of parked blocks, oldest first: so that a glance finds one */
    uint8_t slot[VP_STREAM_CACHE_PARKED]; /* in the same order, where in `parked` they are; then the slots that are
                                             free */
    struct {
        struct vp_stream_cache_block block;
        struct vp_fence fence; /* only if an event was recorded at the free; else a later one will do for others */
    } parked[VP_STREAM_CACHE_PARKED];
    _Atomic CUdeviceptr recent_at[VP_STREAM_CACHE_RECENT]; /* live blocks that this cache gave out, by address; some are
                                                              forgotten. 0: an empty slot */
    struct vp_stream_cache_block recent[VP_STREAM_CACHE_RECENT]; /* what it knows of each */
    char apart[64];                                              /* from what another thread writes */
};

/* ---- without the library's lock ---- */

/* A block of exactly `asked` bytes for `owner` that the stream parked last. `stream` is looked at under the cache's
 * lock: it must be the one that the cache belongs to, and no capture may run. False: the slow way must decide. `out` is
 * what the cache knows of the block. */
bool vp_stream_cache_alloc(struct vp_stream_cache *cache, CUstream stream, size_t asked, const void *owner,
                           struct vp_stream_cache_block *out);
/* Parks a live block that the cache gave out, if its free needs no event. */
enum vp_stream_cache_answer {
    VP_STREAM_CACHE_ELSE,  /* the slow way must decide */
    VP_STREAM_CACHE_EVENT, /* vp_parking_free_event() may do */
    VP_STREAM_CACHE_DONE
};
enum vp_stream_cache_answer vp_stream_cache_free(struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr,
                                                 struct vp_stream_cache_block *out);

/* ---- under the library's lock ---- */

/* A block that has left a cache, live to the memory and nobody's; and its fence, if its free recorded an event. */
struct vp_evicted {
    struct vp_region *region;
    struct vp_fence fence;
};

enum vp_flush {
    VP_FLUSH_SOME, /* no tiny blocks, and of caches that serve their stream well none: those keep 32 MiB together */
    VP_FLUSH_MOST, /* tiny ones too */
    VP_FLUSH_ALL
};

void vp_stream_caches_init(struct vp_stream_caches *all, struct vp_timelines *timelines, CUdevice device,
                           struct vp_memory_stats *stats);
/* A cache for a timeline; NULL: memory ran out. */
struct vp_stream_cache *vp_stream_cache_open(struct vp_stream_caches *all, struct vp_timeline *timeline);
/* The timeline ends: the cache gives up all that it holds, into `out` (VP_STREAM_CACHE_PARKED); returns how many. */
unsigned vp_stream_cache_close(struct vp_stream_cache *cache, struct vp_evicted *out);
/* Did sizes hardly repeat, so that one more block had better not be parked? A request served meanwhile may go
 * unnoticed: then the next one counts. */
bool vp_stream_cache_is_vain(struct vp_stream_cache *cache);
/* The same, whichever block this is. `*bytes`: what it holds, as asked for. */
bool vp_stream_cache_was_vain(struct vp_stream_cache *cache, size_t *bytes);
bool vp_stream_cache_is_calm(const struct vp_stream_cache *cache);

/* Parks a block that the timeline frees. `fence`: its point, if the free recorded an event (its points then pass over),
 * else NULL. `oldest` is what had to make room; without region: nothing. */
void vp_stream_cache_put(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block,
                         struct vp_fence *fence, struct vp_evicted *oldest);
/* Where the cache remembers a live block that it gave out, if the stream is its own; else VP_STREAM_CACHE_RECENT. */
unsigned vp_stream_cache_knows(const struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr);
/* The same as put, of the block that is remembered there, which comes out in `block`. False: it no longer is. */
bool vp_stream_cache_put_known(struct vp_stream_cache *cache, unsigned at, CUdeviceptr addr, struct vp_fence *fence,
                               struct vp_stream_cache_block *block, struct vp_evicted *oldest);
/* A block as vp_stream_cache_alloc() would find, whatever it waits for; NULL: none. Takes serials from `*serial`. */
struct vp_region *vp_stream_cache_take(struct vp_stream_cache *cache, size_t asked, const void *owner,
                                       uint64_t *serial);
/* Its stream was given that block otherwise. */
void vp_stream_cache_remember(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block);
/* Is the block, which has a cache, live (and not parked)? If so, it leaves its cache: from here on the library's lock
 * alone guards it. */
bool vp_stream_cache_recall(struct vp_region *block);
/* The timeline whose cache holds the block: live to the memory, it is free to the program then. NULL: none. */
const struct vp_timeline *vp_stream_cache_holding(const struct vp_region *block);
/* Gives up what it holds, but for tiny blocks, oldest first. Returns how many. And would that change anything? */
bool vp_stream_cache_has_some(const struct vp_stream_cache *cache);
unsigned vp_stream_cache_evict(struct vp_stream_cache *cache, struct vp_evicted *out);
/* The same of a cache that was taken from the busy ones, as far as `what` says; false: it keeps all. `kept`: bytes that
 * caches have kept so far. */
bool vp_stream_cache_evict_busy(struct vp_stream_cache *cache, enum vp_flush what, size_t *kept, struct vp_evicted *out,
                                unsigned *n);

/* Counts what the caches did and flushes nothing. Returns the bytes that they hold, as asked for. */
uint64_t vp_stream_caches_count(struct vp_stream_caches *all);
/* Bytes that caches hold for an owner (NULL: for all), as asked for. */
uint64_t vp_stream_caches_parked(struct vp_stream_caches *all, const void *owner);
/* Returns when no call without the library's lock is under way that has not seen what was stored before. */
void vp_stream_caches_pass(struct vp_stream_caches *all);
