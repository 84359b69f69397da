/* A pool: who gets which bytes of one device's memory (memory/memory.h).
 *
 * A policy (policy.h) decides by the mechanisms declared here and in memory/. Nothing here locks: the caller does.
 * Beside it runs the fast path, on blocks that are parked for one stream (parking.h, stream_cache.h). */
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
    size_t handle;        /* largest handle that is created, bytes */
    size_t va;            /* first reservation, bytes; 0: automatic */
    size_t addresses;     /* that the process may have in all, bytes; 0: any number */
    size_t pages;         /* granules to map in advance (vpmm) */
    size_t split_most;    /* blocks from this size on are not split (bfc); 0: all are */
    size_t stitch_least;  /* smaller requests are not stitched (gmlake) */
    size_t stitched_most; /* bytes of addresses that stitched blocks may take (gmlake); 0: any number */
    uint64_t peers;       /* devices that may access from the beginning, one bit each */
    size_t limit;         /* most bytes to hold, as if the device had no more; 0: no limit */
    bool rdma;            /* memory is made for other devices to reach by themselves, where the device can */
    unsigned slack;       /* percent of the peak that may be held above it, for fewer calls */
    bool check;           /* walk the invariants after each operation */
    void (*account)(void *owner, size_t asked,
                    bool taken); /* a block begins or ends to count for its owner; NULL: nobody wants to know */
    void (*dropped)(CUdevice device,
                    const struct vp_region *block); /* before a block ends with its context; may be NULL */
    /* How the host waits: lets the caller's lock go for a moment, the longer the longer the wait has lasted
     * (nanoseconds), and takes it again. NULL: it never waits. `now`: the time that such waits are measured by, in
     * nanoseconds. */
    void (*pause)(uint64_t waited_ns);
    bool at_once; /* nothing lets the lock go between the parts of a range */
    uint64_t (*now)(void);
    uint64_t (*now_about)(void); /* the same but some milliseconds behind, and cheap; NULL: `now` */
    /* Waits until what is made ahead of the program (ahead.h) was handed over, as pause does; false: it is not to be
     * waited for. NULL: it never is. */
    bool (*await_ahead)(struct vp_pool *pool);
    const struct vp_stalloc_plan *plan; /* where requests are to lie (stalloc); NULL: nobody has planned */
};

/* What the pool has learnt of waiting on the host for what other streams have freed: throttle.h. Times in ns. */
struct vp_throttle {
    uint64_t opened;       /* when the pool was */
    uint64_t not_before;   /* no wait until then */
    uint64_t short_before; /* only short ones until then */
    uint64_t rested;       /* when that was last decided */
    uint64_t longest_ns;   /* the longest wait that succeeded */
    uint64_t rest_ns;      /* the last long rest after waits in vain; 0: none since one succeeded */
    unsigned fruitless;    /* waits in vain, in a row */
    uint64_t vain_ns;      /* what shorter ones have taken since one was of use */
    size_t lacking; /* bytes of new memory that the last request to wait would have made; 0: it waits for a place */
    uint64_t no_place_before; /* no wait for a place until then */
    uint64_t lost_ns;         /* of the program's time, as estimated */
    uint64_t ahead_ns; /* the host may be so much less far ahead of the device, for its waits, the last of which ended
                          at `waited_at` */
    uint64_t waited_at;
    size_t granted;        /* so many bytes may be held without a wait, since waits had cost enough */
    unsigned grants;       /* so often, so far */
    struct vp_fence probe; /* all that the device had to do when a request began, at `probe_at` */
    uint64_t probe_at;
    uint64_t probed_at;     /* when that was last looked at, and */
    bool idle;              /* the device had nothing left to do */
    uint64_t maps, maps_at; /* of the driver so far, and when they were last counted in */
    uint64_t remaps_ns;     /* what those of late have taken */
};

/* What the program does, as far as slack and handle size follow it: slack.h. */
struct vp_slack {
    uint32_t *sizes;                   /* those seen, in quanta; NULL: none yet */
    unsigned count, novel;             /* requests of this window, and those of a size never seen */
    unsigned last_novel;               /* those of the window before */
    uint64_t windows;                  /* that are over */
    uint64_t maps;                     /* of the driver, when this one began */
    unsigned novel_windows;            /* so many in a row had new sizes */
    unsigned cheap_windows;            /* so many in a row cost next to nothing */
    unsigned step;                     /* of slack */
    uint64_t steps;                    /* up and down, so far */
    bool over;                         /* down: more may be held than is allowed by now */
    unsigned rest;                     /* no slack for so many windows */
    unsigned grade;                    /* of the size of handles */
    bool roams;                        /* its sizes hardly ever come again */
    bool alike_sizes;                  /* and are all about as large */
    size_t last_new;                   /* the last size that was new */
    unsigned alike;                    /* of this window's new ones, those about as large as the one before */
    unsigned early_count, early_novel; /* of the first requests, small ones too, and those of a size never seen */
    size_t early_size;                 /* the last of them */
    bool early, early_over;            /* most were, and differed; it is no longer asked */
    unsigned still_windows;            /* so many in a row had next to no new sizes */
    uint32_t recent;                   /* of the last 32 requests, a bit for each of a size that was new and differed */
    uint64_t price;                    /* of a request in the last window, in nanoseconds */
    bool edge; /* little was left of the device when chunk `edge_birth` was the last that was made */
    uint64_t edge_birth;
};

/* How long a call may take: bound.h. */
struct vp_bound {
    size_t excess;   /* made anew so that a call need not take long, and yet to be given back */
    size_t tries;    /* chunks looked at for that in vain, one after the other */
    unsigned passes; /* so often all were */
    unsigned rest;   /* so many calls are not helped so: the device had no more */
    bool under_way;  /* a thread builds a range in parts, and may have let the lock go */
};

/* When idle memory goes back by itself: giving.h. Times in nanoseconds. */
struct vp_giving {
    uint64_t not_before;         /* none does until then */
    uint64_t period_ns;          /* that a regret doubles */
    uint64_t given_at;           /* when some did last */
    size_t regret_from;          /* held bytes from which on that is regretted; SIZE_MAX: it cannot be */
    size_t freed;                /* bytes that cudaFree took since the last large allocation */
    size_t tried;                /* of these, below which another try is in vain */
    bool emptied;                /* and they emptied a cache */
    bool due;                    /* some is to go at the next synchronise, by itself */
    size_t left;                 /* and so much that the last trim that was asked for had to leave to work */
    size_t loose;                /* of that, what was made for nothing: nobody's to keep */
    uint64_t until;              /* which is over when these events are; 0: they are still to be recorded */
    uint64_t top_live, top_held; /* the most that was live, and what was held for it */
};

struct vp_policy;

/* How a pool works, as its policy wants it. */
struct vp_traits {
    enum {
        VP_EVENTS_WORTH,  /* frees of large blocks record an event of their own, once several streams free such */
        VP_EVENTS_ALWAYS, /* every free does, even while one stream alone uses the pool */
        VP_EVENTS_NEVER,  /* none does: no stream ever waits for another's, and later events are asked */
        VP_EVENTS_CHOSEN, /* those do that the policy chooses: wants_event() */
    } events;
    bool by_stream, per_stream, homes; /* as in struct vp_memory */
    bool host_waits; /* in time, the host waits for what other streams have freed, instead of the stream: throttle.h */
    bool parks;      /* blocks are parked: parking.h */
    bool gives;      /* idle memory goes back by itself: giving.h */
    bool one_zone;   /* there is no small zone */
    bool own_spaces; /* it reserves its addresses itself */
    bool never_stitches; /* it never builds one range of chunks that lie apart */
};

struct vp_bare;

struct vp_pool {
    struct vp_memory mem;
    struct vp_bare *bare;   /* bare segments (bare.h); NULL: none so far */
    struct vp_learn *learn; /* for the next run (learn.h); NULL: nothing is learnt */
    struct vp_ahead *ahead; /* what an earlier run has learnt (ahead.h); NULL: nothing */
    const struct vp_policy *policy;
    void *books; /* the policy's own; NULL: it keeps none */
    struct vp_traits traits;
    struct vp_pool_config config;
    uint64_t recent_peak; /* most bytes live since whoever reads it set it back */
    struct vp_stream_caches caches;
    uint64_t emptied; /* allocations when nothing was alive, as far as a cache that served nothing saw it (parking.c) */
    bool ends_round;  /* many had been made since the time before */
    struct vp_place_tree places[VP_ZONES];
    struct vp_open_places open_places[VP_ZONES]; /* those of them that may be free */
    struct vp_taken_places taken_places;         /* and those in which a block was seen that is live still, by its
                                                    address */
    struct vp_list place_used;                   /* of vp_place.used */
    size_t place_count;
    uint64_t place_serial;
    struct vp_slab place_slab;
    bool waits_early;      /* some request let its stream wait before more memory is made */
    uint64_t first_stream; /* id of the first stream that freed a block worth an event; 0: none yet */
    bool stricts;          /* there may be strict requests: who freed what is kept */
    struct {
        void *mem;
        size_t bytes;
    } scratch;
    struct vp_throttle throttle;
    struct vp_slack slack, bare_slack; /* what the pool places, and blocks over bare segments */
    struct vp_bound bound;
    struct vp_giving giving;
    uint64_t tight_until;  /* blocks lie as tight as can be up to so many allocations: tight.h */
    uint64_t barrier_rest; /* cudaMalloc waits for no earlier cudaFree until then, in nanoseconds; 0: it may */
};

/* ---- the pool as a whole ---- */

/* Opens the pool of a device, whose context must be current. Reserves addresses. 0, or -EOPNOTSUPP (the device cannot),
 * -ENOMEM, -EIO. */
int vp_pool_init(struct vp_pool *pool, const struct vp_driver *drv, struct vp_timelines *timelines, CUdevice dev,
                 const struct vp_policy *policy, const struct vp_pool_config *config) __attribute__((cold));
/* Unmaps, releases and gives back everything at the driver (all work must be over), and frees our memory. */
void vp_pool_finish(struct vp_pool *pool) __attribute__((cold));

/* Allocates. 0 and a live region; -ENOMEM: nothing fits and the device has no more; -EAGAIN: see `await`; -EOPNOTSUPP:
 * the policy leaves such requests to CUDA; -EIO: the driver failed otherwise (its error is the pool's, or that of the
 * request's context if a query told it: vp_pool_error). On any failure the pool is as before, but for idle memory that
 * may have moved. */
int vp_pool_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out);
/* The driver's own error behind an -EIO, of the pool's calls or of the context (which may be NULL); 0: none was noted.
 * `forget` sets both back. */
CUresult vp_pool_error(const struct vp_pool *pool, const struct vp_context *ctx);
void vp_pool_error_forget(struct vp_pool *pool, struct vp_context *ctx);

/* The live region that begins at `addr`, or NULL; and the one that holds `addr`. It leaves its cache: the fast path
 * sees it no more. */
struct vp_region *vp_pool_find(struct vp_pool *pool, CUdeviceptr addr);
struct vp_region *vp_pool_find_inside(const struct vp_pool *pool, CUdeviceptr addr);
/* Fetches what the free of a live region will look at first: regions lie far apart in memory. */
void vp_pool_expect_free(const struct vp_region *block);
/* Frees a live region that vp_pool_find() gave, under a condition (built by vp_fence_add_free or vp_fence_add_barrier),
 * whose points pass to the pool. Never fails. */
void vp_pool_free(struct vp_pool *pool, struct vp_region *block, struct vp_fence *fence);
/* Frees one on a stream: its cache parks it, or it becomes free memory behind what the stream has queued. 0,
 * or -ENOMEM with nothing changed. */
int vp_pool_free_async(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline);
/* With several streams in use, frees of this size and more record an event, so that others can wait for exactly them.
 * Below, the event would cost more than the bytes are worth. */
enum { VP_EVENT_WORTH = 1 << 20 };

/* A program that never had so many bytes alive is small: what rounding and waiting cost others little is much there. */
enum { VP_SMALL_PROGRAM = 256 << 20 };

static inline bool vp_pool_is_small(const struct vp_pool *pool) {
    return pool->mem.stats.peak_live_bytes < VP_SMALL_PROGRAM;
}

/* The most bytes that were alive at once, were so many more alive now. */
static inline uint64_t vp_pool_peak_with(const struct vp_pool *pool, uint64_t more) {
    return vp_greater(pool->mem.stats.live_bytes + more, pool->mem.stats.peak_live_bytes);
}

/* Is the free of a block worth an event of its own, if several streams are in use? Where streams wait
 * before more memory is made, they wait for events alone. Small blocks have none: together they are little. Not so in a
 * small program, where most of what each stream has freed would then stay its own for good: mixed sizes on 16 streams
 * held 5.5 times what was alive, and hold 1.3 times so. Nor for one between large blocks: what is free around it could
 * serve no other stream in one piece. Nor, in a program that roams, for the last one in its chunk, which as a whole
 * could serve others: eight decoders with temporaries of up to 2 MiB had a twelfth of what was alive in such chunks. */
static inline bool vp_pool_worth_event(const struct vp_pool *pool, const struct vp_region *block) {
    if (block->size >= VP_EVENT_WORTH || !pool->waits_early)
        return block->size >= VP_EVENT_WORTH;
    return vp_pool_is_small(pool) || (!block->bare && (block->space->zone == VP_ZONE_LARGE ||
                                                       (pool->slack.roams && vp_pin_is_last(&pool->mem, block))));
}

/* Another process is about to map a live synchronous block, and can only map whole handles. What is free beside it
 * there is taken out of use; 0. -EBUSY: it sleeps; -EOPNOTSUPP: the device cannot; -EXDEV: some of it lies in the
 * host's memory; -ENOMEM. Once the block is freed, its bytes are nobody's again: their handles go back to the device as
 * soon as all work on them is over. */
int vp_pool_export(struct vp_pool *pool, struct vp_region *block);
/* Would that succeed? */
int vp_pool_export_check(struct vp_pool *pool, const struct vp_region *block);
/* Would nothing else that is live be shown? */
bool vp_pool_lies_alone(const struct vp_pool *pool, const struct vp_region *block);
/* The chunk that holds `addr`, which must be a live byte; `*offset`: where in it. */
const struct vp_chunk *vp_pool_chunk_at(const struct vp_pool *pool, CUdeviceptr addr, size_t *offset);

/* The program waited for a stream on the host (NULL: for the device): what that had freed may be taken by strict
 * requests. */
void vp_pool_synchronized(struct vp_pool *pool, const struct vp_timeline *timeline);
/* Is any chunk wholly free? If it is not idle, it will be once work on it has ended. */
bool vp_pool_shrinkable(const struct vp_pool *pool);
/* Gives idle chunks back to the device until at most `keep` bytes are held or nothing idle is left. Returns the bytes
 * given back. */
size_t vp_pool_trim(struct vp_pool *pool, size_t keep);
/* A context has ended: its synchronous blocks are free. */
void vp_pool_drop_context(struct vp_pool *pool, const struct vp_context *ctx);
/* A timeline ends (its stream can still be named): what is parked for it is free for good, and it parks no more. */
void vp_pool_close_timeline(struct vp_pool *pool, struct vp_timeline *timeline);
/* Its memory is about to be used again. */
static inline void vp_pool_drop_timeline(struct vp_pool *pool, struct vp_timeline *timeline) {
    vp_stream_store_drop(&pool->mem, timeline);
}

/* The host has waited for so many nanoseconds, in vain or not. */
static inline void vp_pool_waited(struct vp_pool *pool, uint64_t ns, bool in_vain) {
    pool->mem.stats.waits_host++;
    pool->mem.stats.waits_fruitless += in_vain;
    pool->mem.stats.host_wait_ns += ns;
}

/* Raises `*peak` to `now` bytes, counted for an owner (NULL: for all), less those that are parked. */
void vp_pool_note_peak(uint64_t now, uint64_t *peak, struct vp_pool *pool, const void *owner);
/* The counts, with what the fast path has done. */
struct vp_memory_stats vp_pool_stats(struct vp_pool *pool);
/* How many blocks have come and gone by now, and one; with none parked. */
static inline uint64_t vp_pool_turn(const struct vp_pool *pool) {
    return pool->mem.stats.allocs + pool->mem.stats.frees + 1;
}
/* Bytes that it has of the device and that are not live: what PyTorch's cache has freed is not. */
uint64_t vp_pool_idle(struct vp_pool *pool);

/* After a synchronise of the program's, events that only we had left out complete at once; a busy device is not waited
 * for. */
enum { VP_SETTLE_NS = 50000 };

/* A new range takes so many addresses more than it has bytes, at most: the last of its chunks may be larger than what
 * is short. */
static inline size_t vp_pool_room(const struct vp_pool *pool) {
    return pool->mem.largest > pool->config.handle ? pool->mem.largest : pool->config.handle;
}

/* As vp_stitch_hole(); where there `must` be one and no addresses are to be had, idle memory is given up for it. */
int vp_pool_hole(struct vp_pool *pool, enum vp_zone_name zone, size_t size, bool must, struct vp_region **hole);
/* Scratch memory: at least `bytes`, contents undefined; NULL when the system has no more. Valid until the next call. */
void *vp_pool_scratch(struct vp_pool *pool, size_t bytes);
/* export.c. Gives exported chunks back of which all blocks were freed and all work is over. */
void vp_exports_settle(struct vp_pool *pool);

/* Proves the invariants; on a breach says which one, on `out` if not NULL, and returns false. */
bool vp_pool_check(const struct vp_pool *pool, FILE *out);
/* With VPOOL_CHECK, after each step. */
static inline void vp_pool_verify(const struct vp_pool *pool) {
    if (pool->config.check && !vp_pool_check(pool, stderr))
        assert(!"vp_pool_check");
}
/* Bytes of our own memory that describe the pool. */
size_t vp_pool_metadata(const struct vp_pool *pool);
