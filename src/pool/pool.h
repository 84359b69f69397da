/* A pool decides who gets which bytes of one device's memory (memory/memory.h).
 *
 * A policy (policy.h) decides with the mechanisms declared here and in memory/. Nothing here locks: the caller holds
 * the library's lock. The fast path (parking.h, stream_cache.h) runs beside it, on blocks that are parked for one
 * stream. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/chunk.h"
#include "memory/fit.h"
#include "pool/stream_cache.h"

#include <stdio.h>

struct vp_place;
RB_HEAD(vp_place_tree, vp_place);
RB_HEAD(vp_open_places, vp_place);
RB_HEAD(vp_taken_places, vp_place);

struct vp_stalloc_plan;
struct vp_learn;
struct vp_ahead;
struct vp_pool;

struct vp_pool_config {
    size_t handle;        /* largest handle to create, bytes */
    size_t va;            /* size of the first reservation, bytes; 0: automatic */
    size_t addresses;     /* address space of the process, bytes; 0: unlimited */
    size_t pages;         /* granules to map in advance (vpmm) */
    size_t split_most;    /* blocks of this size and more are not split (bfc); 0: all are */
    size_t stitch_least;  /* smaller requests are not stitched (gmlake) */
    size_t stitched_most; /* most bytes of addresses for stitched blocks (gmlake); 0: no limit */
    uint64_t peers;       /* devices that may access the memory from the beginning, one bit each */
    size_t limit;         /* most bytes to hold, as if the device had no more; 0: no limit */
    bool rdma; /* memory is created so that other devices can reach it by themselves (RDMA), where the device can */
    unsigned slack; /* percent of the peak that may be held above it to save driver calls */
    bool check;     /* check the invariants after each operation */
    void (*account)(void *owner, size_t asked,
                    bool taken); /* a block begins or ceases to count for its owner; NULL: not reported */
    void (*dropped)(CUdevice device,
                    const struct vp_region *block); /* called before a block ends with its context; may be NULL */
    /* The host's wait: releases the caller's lock for a moment, the longer the longer it has waited already
     * (nanoseconds), and takes it again. NULL: the host never waits. `now`: the clock of such waits, in nanoseconds. */
    void (*pause)(uint64_t waited_ns);
    bool at_once; /* no range is built in parts: the lock is kept throughout */
    uint64_t (*now)(void);
    uint64_t (*now_about)(void); /* the same, cheap, but some milliseconds behind; NULL: use `now` */
    /* Like `pause`: waits until the range being made ahead of the program (ahead.h) is handed over. False: do not wait
     * for it. NULL: never wait. */
    bool (*await_ahead)(struct vp_pool *pool);
    const struct vp_stalloc_plan *plan; /* planned places of requests (stalloc); NULL: no plan */
};

/* What the pool has learnt from the host's waits for memory that other streams freed: throttle.h. Times in ns. */
struct vp_throttle {
    uint64_t opened;          /* when the pool was opened */
    uint64_t not_before;      /* no wait before this time */
    uint64_t short_before;    /* only short waits before this time */
    uint64_t rested;          /* when `short_before` was last set */
    uint64_t longest_ns;      /* the longest wait that succeeded */
    uint64_t rest_ns;         /* the last long rest after waits in vain; 0: a wait has succeeded since */
    unsigned fruitless;       /* number of waits in vain in a row */
    uint64_t vain_ns;         /* total time of short waits in vain since one succeeded */
    size_t lacking;           /* bytes of new memory that the last request to wait wanted; 0: it waited for a place */
    uint64_t no_place_before; /* no wait for a place before this time */
    uint64_t lost_ns;         /* estimate: time of the program that waits have cost */
    uint64_t lead_used_ns;    /* how much of the host's lead over the device its waits may have used up */
    uint64_t waited_at;       /* when the last of these waits ended */
    size_t granted;           /* bytes that may be held without a wait, since waits had cost too much */
    unsigned grants;          /* how often the next such grant has doubled */
    struct vp_fence probe;    /* all that the device had to do when a request began, at `probe_at` */
    uint64_t probe_at;
    uint64_t probed_at;     /* when the probe was last looked at */
    bool idle;              /* the device had nothing left to do then */
    uint64_t maps, maps_at; /* driver maps counted so far, and when they were last counted */
    uint64_t remaps_ns;     /* time that recent maps have taken; decays */
};

/* What the pool has noticed of the program, for slack and the size of handles: slack.h. A window is 256 requests. */
struct vp_slack {
    uint32_t *sizes;                   /* sizes seen, in quanta, hashed; owned; NULL: none yet */
    unsigned count, novel;             /* requests of this window, and how many of them had a size never seen before */
    unsigned last_novel;               /* `novel` of the window before */
    uint64_t windows;                  /* windows completed */
    uint64_t maps;                     /* the driver's maps when this window began */
    unsigned novel_windows;            /* windows in a row with new sizes */
    unsigned cheap_windows;            /* windows in a row that cost next to nothing */
    unsigned step;                     /* current step of slack */
    uint64_t steps;                    /* steps up and down so far */
    bool over;                         /* a step down was made: more may be held than is allowed now */
    unsigned rest;                     /* windows left without slack */
    unsigned grade;                    /* current grade of handle sizes */
    bool roams;                        /* sizes hardly ever come again */
    bool alike_sizes;                  /* and all are of about the same size */
    size_t last_new;                   /* the last size that was new */
    unsigned alike;                    /* new sizes of this window that were about as large as the new one before */
    unsigned early_count, early_novel; /* the first requests, small ones too: their number, and new sizes among them */
    size_t early_size;                 /* the size of the last of them */
    bool early, early_over;            /* most of them were new and differed; and that is settled */
    unsigned still_windows;            /* windows in a row with next to no new sizes */
    uint32_t recent; /* the last 32 requests, one bit each: set if the size was new and unlike the one before */
    uint64_t price;  /* cost of a request in the last window, ns */
    bool edge;       /* little of the device was left when chunk `edge_birth`, the newest then, was created */
    uint64_t edge_birth;
};

/* How long a call may take: bound.h. */
struct vp_bound {
    size_t excess;   /* bytes created anew to keep calls short, still to be given back */
    size_t tries;    /* chunks looked at in a row in vain, to give one back */
    unsigned passes; /* how often all chunks were */
    unsigned rest;   /* calls left in which nothing is created anew: the device had no more */
    bool under_way;  /* a thread is building a range in parts, and may have released the lock */
};

/* When idle memory goes back by itself: giving.h. Times in nanoseconds. */
struct vp_giving {
    uint64_t not_before;         /* nothing goes back before this time */
    uint64_t period_ns;          /* no memory goes back for so long after a regret, which doubles it */
    uint64_t given_at;           /* when memory last went back */
    size_t regret_from;          /* if so many bytes are held again, that is regretted; SIZE_MAX: nothing to regret */
    size_t freed;                /* bytes freed by cudaFree since the last large allocation */
    size_t tried;                /* no further try until `freed` is as much */
    bool emptied;                /* these frees emptied a cache */
    bool due;                    /* memory is to go back at the next synchronise */
    size_t deferred;             /* bytes that the last requested trim had to leave, as work still used them */
    size_t loose;                /* of `deferred`: bytes that only a trial allocation created, and nobody may keep */
    uint64_t until;              /* number of the last event of that work; 0: not recorded yet */
    uint64_t top_live, top_held; /* the most bytes that were live, and those held then */
};

struct vp_policy;

/* How a pool works, as its policy wants it. */
struct vp_traits {
    enum {
        VP_EVENTS_WORTH,  /* frees of large blocks record an event, once several streams want large blocks */
        VP_EVENTS_ALWAYS, /* every free does, even while one stream alone uses the pool */
        VP_EVENTS_NEVER,  /* none does: no stream waits for another's event, and later events are asked */
        VP_EVENTS_CHOSEN, /* those frees do that the policy chooses: wants_event() */
    } events;
    bool by_stream, per_stream, homes; /* as in struct vp_memory */
    bool host_waits;     /* by default the host waits for what other streams have freed, not the stream: throttle.h */
    bool parks;          /* blocks are parked: parking.h */
    bool gives;          /* idle memory goes back by itself: giving.h */
    bool one_zone;       /* there is no small zone */
    bool own_spaces;     /* the policy reserves its addresses itself */
    bool never_stitches; /* a range is never built of chunks that lie apart */
};

struct vp_bare;

struct vp_pool {
    struct vp_memory mem;
    struct vp_bare *bare;   /* bare segments (bare.h), owned; NULL: none so far */
    struct vp_learn *learn; /* records for the next run (learn.h), owned; NULL: off */
    struct vp_ahead *ahead; /* follows what an earlier run learnt (ahead.h), owned; NULL: nothing */
    const struct vp_policy *policy;
    void *books; /* the policy's own data; NULL: none */
    struct vp_traits traits;
    struct vp_pool_config config;
    uint64_t recent_peak; /* most live bytes since the reader of this last reset it */
    struct vp_stream_caches caches;
    uint64_t emptied; /* stats.allocs when nothing was alive last, as a cache that served nothing saw it (parking.c) */
    bool ends_round;  /* and many allocations had been made since the time before */
    struct vp_place_tree places[VP_ZONES];
    struct vp_open_places open_places[VP_ZONES]; /* the places that may be free */
    struct vp_taken_places taken_places;         /* the places in which a live block was seen, by its address */
    struct vp_list place_used;                   /* of vp_place.used; owned */
    size_t place_count;
    uint64_t place_serial;
    struct vp_slab place_slab;
    bool waits_early;      /* some request allowed its stream to wait before memory is created */
    uint64_t first_stream; /* id of the first stream seen that wants large blocks; 0: none yet */
    bool stricts;          /* requests may be strict: `stream` of freed pieces is kept */
    struct {
        void *mem;
        size_t bytes;
    } scratch;
    struct vp_throttle throttle;
    struct vp_slack slack, bare_slack; /* of what the pool places, and of blocks over bare segments */
    struct vp_bound bound;
    struct vp_giving giving;
    uint64_t tight_until;  /* blocks are placed tightly until stats.allocs reaches this: tight.h */
    uint64_t barrier_rest; /* until this time (ns) cudaMalloc waits for no earlier cudaFree; 0: it may wait */
};

/* ---- the pool as a whole ---- */

/* Opens the pool of a device, whose context must be current, and reserves addresses. 0, -EOPNOTSUPP (the device
 * cannot), -ENOMEM or -EIO. */
int vp_pool_init(struct vp_pool *pool, const struct vp_driver *drv, struct vp_timelines *timelines, CUdevice dev,
                 const struct vp_policy *policy, const struct vp_pool_config *config) __attribute__((cold));
/* Unmaps, releases and frees everything, at the driver too; all work must be over. */
void vp_pool_finish(struct vp_pool *pool) __attribute__((cold));

/* Allocates. 0: `*out` is a live region. -ENOMEM: nothing fits and the device has no more. -EAGAIN: see `await`.
 * -EOPNOTSUPP: the policy leaves such requests to CUDA. -EIO: another driver error (vp_pool_error: the pool's, or that
 * of the request's context if a query reported it). On failure the pool is as before, except that idle memory may have
 * moved. */
int vp_pool_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out);
/* The driver's error behind an -EIO, of the pool's calls or of `ctx` (may be NULL); 0: none. `forget` resets both. */
CUresult vp_pool_error(const struct vp_pool *pool, const struct vp_context *ctx);
void vp_pool_error_forget(struct vp_pool *pool, struct vp_context *ctx);

/* The live region that begins at `addr`; the one that contains it; NULL: none. It leaves its stream cache, so that the
 * fast path no longer sees it. */
struct vp_region *vp_pool_find(struct vp_pool *pool, CUdeviceptr addr);
struct vp_region *vp_pool_find_inside(const struct vp_pool *pool, CUdeviceptr addr);
/* Prefetches what freeing a live region reads first: its neighbours, which lie far apart in memory. */
void vp_pool_expect_free(const struct vp_region *block);
/* Frees a live region from vp_pool_find(), behind a fence (of vp_fence_add_free or vp_fence_add_barrier), whose points
 * pass to the pool. Never fails. */
void vp_pool_free(struct vp_pool *pool, struct vp_region *block, struct vp_fence *fence);
/* Frees a region on a stream: the stream's cache parks it, or it becomes free memory behind what the stream has queued.
 * 0, or -ENOMEM with nothing changed. */
int vp_pool_free_async(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline);
/* With several streams in use, a free of this size and more records an event, so that others can wait for exactly that
 * free. For fewer bytes the event would cost more than they are worth. */
enum { VP_EVENT_WORTH = 1 << 20 };

/* A program with a peak of live bytes below this is small: what rounding and waits cost little elsewhere is much
 * there. */
enum { VP_SMALL_PROGRAM = 256 << 20 };

static inline bool vp_pool_is_small(const struct vp_pool *pool) {
    return pool->mem.stats.peak_live_bytes < VP_SMALL_PROGRAM;
}

/* The peak of live bytes, if `more` bytes were live than are now. */
static inline uint64_t vp_pool_peak_with(const struct vp_pool *pool, uint64_t more) {
    return vp_greater(pool->mem.stats.live_bytes + more, pool->mem.stats.peak_live_bytes);
}

/* Is the free of a block worth an event of its own, if several streams are in use? Large blocks are. Small ones matter
 * only where streams wait, for events alone, before memory is created, and then in three cases. In a small program most
 * of what each stream freed would stay its own for good: mixed sizes on 16 streams held 5.5 times what was alive, and
 * 1.3 times with events. A block between large ones keeps what is free around it from serving another stream in one
 * piece. And in a program that roams the last block in a chunk keeps the whole chunk from others: eight decoders with
 * temporaries of up to 2 MiB had a twelfth of what was alive in such chunks. */
static inline bool vp_pool_worth_event(const struct vp_pool *pool, const struct vp_region *block) {
    if (block->size >= VP_EVENT_WORTH || !pool->waits_early)
        return block->size >= VP_EVENT_WORTH;
    return vp_pool_is_small(pool) || (!block->bare && (block->space->zone == VP_ZONE_LARGE ||
                                                       (pool->slack.roams && vp_pin_is_last(&pool->mem, block))));
}

/* Prepares a live synchronous block for another process, which can map only whole handles: what is free beside it in
 * its handles is taken out of use. When the block is freed, its handles go back to the device as soon as all work on
 * them is over. 0; -EBUSY: it sleeps; -EOPNOTSUPP: the device cannot; -EXDEV: part of it lies in host memory;
 * -ENOMEM. */
int vp_pool_export(struct vp_pool *pool, struct vp_region *block);
/* What vp_pool_export() would return, as far as that is known beforehand. */
int vp_pool_export_check(struct vp_pool *pool, const struct vp_region *block);
/* Would the other process see no other live block? */
bool vp_pool_lies_alone(const struct vp_pool *pool, const struct vp_region *block);
/* The chunk that holds the live byte `addr`; `*offset`: where in it. */
const struct vp_chunk *vp_pool_chunk_at(const struct vp_pool *pool, CUdeviceptr addr, size_t *offset);

/* The program waited on the host for a stream (NULL: the device): strict requests may now take what that had freed. */
void vp_pool_synchronized(struct vp_pool *pool, const struct vp_timeline *timeline);
/* Is any chunk wholly free? If work still uses it, it will be idle when that has ended. */
bool vp_pool_shrinkable(const struct vp_pool *pool);
/* Gives idle chunks back until at most `keep` bytes are held or none is idle. Returns the bytes given back. */
size_t vp_pool_trim(struct vp_pool *pool, size_t keep);
/* A context has ended: frees its synchronous blocks. */
void vp_pool_drop_context(struct vp_pool *pool, const struct vp_context *ctx);
/* A timeline ends (its stream can still be named): frees for good what is parked for it; it parks no more. */
void vp_pool_close_timeline(struct vp_pool *pool, struct vp_timeline *timeline);
/* The struct of the timeline is about to be reused. */
static inline void vp_pool_drop_timeline(struct vp_pool *pool, struct vp_timeline *timeline) {
    vp_stream_store_drop(&pool->mem, timeline);
}

/* Counts a wait of the host of `ns` nanoseconds. */
static inline void vp_pool_waited(struct vp_pool *pool, uint64_t ns, bool in_vain) {
    pool->mem.stats.waits_host++;
    pool->mem.stats.waits_fruitless += in_vain;
    pool->mem.stats.host_wait_ns += ns;
}

/* Raises `*peak` to `now` bytes less the parked ones, counted for an owner (NULL: for all). */
void vp_pool_note_peak(uint64_t now, uint64_t *peak, struct vp_pool *pool, const void *owner);
/* The counts, including the fast path's; flushes the caches for that. */
struct vp_memory_stats vp_pool_stats(struct vp_pool *pool);
/* A number, never 0, that changes with each allocation and free. To be asked while nothing is parked. */
static inline uint64_t vp_pool_generation(const struct vp_pool *pool) {
    return pool->mem.stats.allocs + pool->mem.stats.frees + 1;
}
/* Bytes held of the device that are not live. What PyTorch's cache has freed counts as not live. */
uint64_t vp_pool_idle(struct vp_pool *pool);

/* How long to poll after the program has synchronised, ns: the events that we had not recorded before then complete at
 * once. A busy device is not waited for. */
enum { VP_SETTLE_NS = 50000 };

/* A new range takes at most so many bytes of addresses more than was asked for: its last chunk may be larger than what
 * was missing. */
static inline size_t vp_pool_room(const struct vp_pool *pool) {
    return pool->mem.largest > pool->config.handle ? pool->mem.largest : pool->config.handle;
}

/* As vp_stitch_hole(); with `must`, idle memory is given up if no addresses are left. */
int vp_pool_hole(struct vp_pool *pool, enum vp_zone_name zone, size_t size, bool must, struct vp_region **hole);
/* Scratch memory of at least `bytes`, contents undefined, valid until the next call; NULL: out of memory. */
void *vp_pool_scratch(struct vp_pool *pool, size_t bytes);
/* export.c. Gives exported chunks back to the device once all their blocks are freed and all work on them is over. */
void vp_exports_settle(struct vp_pool *pool);

/* Checks the invariants. False: one is broken; which, is written to `out` if not NULL. */
bool vp_pool_check(const struct vp_pool *pool, FILE *out);
/* The same after each step with VPOOL_CHECK. */
static inline void vp_pool_verify(const struct vp_pool *pool) {
    if (pool->config.check && !vp_pool_check(pool, stderr))
        assert(!"vp_pool_check");
}
/* Bytes of host memory that describe the pool. */
size_t vp_pool_metadata(const struct vp_pool *pool);
