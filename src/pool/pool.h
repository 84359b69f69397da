/* A pool: the memory of one device.
 *
 * The addresses of a pool are partitioned into *regions*:
 *   live    handed out;
 *   free    mapped, and reusable under a condition. Free neighbours are one region; its *pieces* say what each part
 * waits for; zombie  an old mapping, whose chunks are current elsewhere now. Kept, since the range may be wanted again:
 * to take it back costs no driver call once its chunks are wholly free; retired free, but nobody's any more: another
 * process may have it mapped, or the bytes beside it. It goes back to the device (export.c); hole    not mapped. A
 * *chunk* is one physical handle. It may be mapped at many addresses, but in one of them only, its current mapping, may
 * bytes be live or free.
 *
 * Two zones share a pool: one for small blocks, built of the smallest handles, and one for large. A small block that
 * lives long then never pins a large handle.
 *
 * A policy (policy.h) decides who gets which bytes by the mechanisms declared here. Nothing here locks: the caller
 * does. Beside it runs the fast path, on blocks that it keeps for one stream (cache.h).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_POOL_H
#define VP_POOL_H

#include "base/bits.h"
#include "base/list.h"
#include "base/slab.h"
#include "base/table.h"
#include "tree.h"
#include "driver/driver.h"
#include "order/fence.h"

#include <stdio.h>

/* Sizes and addresses of blocks are multiples of this: the alignment that cuMemAlloc promises, and what PyTorch rounds
 * to. */
enum { VP_QUANTUM = 512 };

enum vp_zone_name { VP_ZONE_SMALL, VP_ZONE_LARGE, VP_ZONES };

enum vp_region_state { VP_HOLE, VP_FREE, VP_ZOMBIE, VP_RETIRED, VP_LIVE };

/* A stretch of a free, zombie or retired region under one condition, up to `end`. */
struct vp_piece {
    CUdeviceptr end;
    struct vp_fence fence;
    uint64_t age;    /* number of the free that made it */
    uint64_t stream; /* id of the timeline that freed it; 0: fresh memory */
    struct vp_piece *next;
};

struct vp_index;

struct vp_region {
    CUdeviceptr addr; /* first: the key of vp_pool.live */
    size_t size;
    enum vp_region_state state;
    bool sync;     /* live: made by a synchronous call, and ends with its context */
    bool exported; /* live: another process may have it mapped */
    struct vp_space *space;
    struct vp_list va; /* vp_space.regions, in address order */
    union {
        struct { /* free, zombie and retired */
            struct vp_piece *pieces;
            struct vp_index *index;
            union {
                RB_ENTRY(vp_region) by_size;
                struct {
                    struct vp_region *next, *prev;
                } in_bin;
            };
        };
        struct {             /* live */
            size_t asked;    /* bytes the program asked for */
            uint64_t serial; /* unique for each allocation */
            struct vp_context *context;
            void *owner;                   /* the memory pool it counts for; not touched here */
            struct vp_stream_cache *cache; /* that may hold it, or has; NULL: the library's lock alone guards it */
            uint64_t stream; /* id of the timeline that has it, or that may take it from its cache; 0: cudaMalloc */
        };
        struct vp_list holes; /* hole: vp_space.holes */
    };
};

RB_HEAD(vp_region_tree, vp_region);

/* Small free regions: a bin for each size, the last freed first. */
enum { VP_BINNED = 1 << 20, VP_BINS = VP_BINNED / VP_QUANTUM };

struct vp_bins {
    void *slab_link;             /* while it is spare; all else is zero then */
    uint32_t words;              /* which of `some` are not 0 */
    uint64_t some[VP_BINS / 64]; /* which bins hold regions */
    struct vp_region *first[VP_BINS];
};

/* Free regions of one zone by size: those that all may use, those of one timeline, and the mixed ones. */
struct vp_index {
    struct vp_region_tree tree;   /* by size, then address; all of a zone without bins */
    struct vp_bins *bins;         /* of the small zone: its regions below VP_BINNED; else NULL */
    struct vp_timeline *timeline; /* NULL: of met, and of mixed */
    enum vp_zone_name zone;
    size_t count;        /* of its regions */
    struct vp_list link; /* vp_pool.timeline_indexes (those of timelines, while they hold regions) */
};

/* What a pool keeps for a timeline. Made when it first frees here. */
struct vp_stream_store {
    struct vp_index index[VP_ZONES];
    struct vp_stream_cache *cache; /* NULL until it first parks a block */
};

struct vp_mapping {
    CUdeviceptr addr;
    struct vp_chunk *chunk;
    struct vp_mapping *next; /* of its chunk */
    struct vp_list zombie;   /* vp_pool.zombies, while it is neither current nor home; else linked to itself */
};

struct vp_chunk {
    CUmemGenericAllocationHandle handle;
    size_t size;
    struct vp_mapping *current;
    struct vp_mapping
        *home; /* where it was first mapped, and lies again whenever it is wholly free (see vp_mapping_go_home) */
    struct vp_mapping *mappings; /* by vp_mapping.next; owned */
    struct vp_list link;         /* vp_pool.chunks */
    uint64_t mark : 63;          /* scratch of the harvest */
    uint64_t exported : 1;       /* a block in it is or was exported: it will go back to the device */
    uint64_t
        stream; /* id of the timeline whose requests it serves, where the policy keeps them apart; 0: cudaMalloc's */
};

struct vp_granule {
    struct vp_mapping *mapping; /* what is mapped here, current or not */
    struct vp_region *first;    /* the first region that begins in this page */
};

/* A contiguous part of a reservation that belongs to one zone. */
struct vp_space {
    CUdeviceptr base;
    size_t size;
    enum vp_zone_name zone;
    uint64_t stream; /* as that of a chunk: of a space that the policy reserved for one stream */
    bool reserved;   /* base is that of a reservation of `reserved_size` bytes, given back by finish */
    size_t reserved_size;
    struct vp_list regions;      /* of vp_region.va; owned */
    struct vp_list holes;        /* of vp_region.holes */
    struct vp_granule *granules; /* one for each granule; anonymous memory */
    struct vp_bits begins;       /* pages in which a region begins */
    size_t mem_bytes;            /* from `pages` on: all that describes the space, this struct included */
    struct vp_list link;         /* vp_pool.spaces */
};

/* A place that once served a request of exactly `size` bytes; see kept.c. */
struct vp_place {
    CUdeviceptr addr;
    size_t size;
    uint64_t serial; /* in order of making */
    enum vp_zone_name zone;
    RB_ENTRY(vp_place) by_size;
    struct vp_list used; /* vp_pool.place_used, least recent first */
};

RB_HEAD(vp_place_tree, vp_place);

/* X(field, driver function): the calls that a pool counts. */
#define VP_POOL_CALLS(X)                                                                                               \
    X(reserve, cuMemAddressReserve) X(create, cuMemCreate) X(map, cuMemMap) X(set_access, cuMemSetAccess) X(unmap, cuMemUnmap) X(release, cuMemRelease)

struct vp_pool_stats {
    uint64_t allocs, frees, ooms;
    uint64_t live_bytes, peak_live_bytes; /* as asked for */
    uint64_t held_bytes, peak_held_bytes; /* physical */
    uint64_t waits_gpu;                   /* a stream was made to wait for memory */
    uint64_t waits_host, waits_fruitless; /* the host waited for memory; and got none of it in time */
    uint64_t host_wait_ns;                /* for so long in all */
    uint64_t stitches, reactivations, reaps;
    uint64_t driver_ns; /* in the calls below */
    struct {
#define VP_POOL_CALL_FIELD(field, name) uint64_t field;
        VP_POOL_CALLS(VP_POOL_CALL_FIELD)
#undef VP_POOL_CALL_FIELD
    } calls;
};

struct vp_pool_config {
    size_t handle;        /* largest handle that is created, bytes */
    size_t va;            /* first reservation, bytes; 0: automatic */
    size_t pages;         /* granules to map in advance (vpmm) */
    size_t split_most;    /* blocks from this size on are not split (bfc); 0: all are */
    size_t stitch_least;  /* smaller requests are not stitched (gmlake) */
    size_t stitched_most; /* bytes of addresses that stitched blocks may take (gmlake); 0: any number */
    uint64_t peers;       /* devices that may access from the beginning, one bit each */
    size_t limit;         /* most bytes to hold, as if the device had no more; 0: no limit */
    bool check;           /* walk the invariants after each operation */
    void (*account)(void *owner, size_t asked,
                    bool taken); /* a block begins or ends to count for its owner; NULL: nobody wants to know */
    /*
     * How the host waits: lets the caller's lock go for a moment, the longer the longer the wait has lasted
     * (nanoseconds), and takes it again. NULL: it never waits. `now`: the time that such waits are measured by, in
     * nanoseconds.
     */
    void (*pause)(uint64_t waited_ns);
    uint64_t (*now)(void);
};

/* What the pool has learnt of waiting on the host for what other streams have freed: throttle.h. Times in nanoseconds.
 */
struct vp_throttle {
    uint64_t opened;     /* when the pool was */
    uint64_t not_before; /* no wait until then */
    uint64_t rested;     /* when that was last decided */
    uint64_t longest_ns; /* the longest wait that succeeded */
    uint64_t rest_ns;    /* the last long rest after waits in vain; 0: none since one succeeded */
    unsigned fruitless;  /* waits in vain, in a row */
    size_t lacking; /* bytes of new memory that the last request to wait would have made; 0: it waits for a place */
    uint64_t no_place_before; /* no wait for a place until then */
    uint64_t lost_ns;         /* of the program's time, as estimated */
    uint64_t ahead_ns; /* the host may be so much less far ahead of the device, for its waits, the last of which ended
                          at `waited_at` */
    uint64_t waited_at;
    size_t granted;        /* so many bytes may be held without a wait, since waits had cost enough */
    bool probes;           /* a request is being served that may start `probe` */
    struct vp_fence probe; /* all that the device had to do when that request's driver calls began, at `probe_at` */
    uint64_t probe_at;
};

struct vp_policy;

struct vp_pool {
    const struct vp_driver *drv;
    struct vp_timelines *timelines;
    const struct vp_policy *policy;
    struct vp_pool_config config;
    CUdevice device;
    size_t granularity; /* a power of two, 1 << granularity_shift */
    unsigned granularity_shift;
    uint64_t recent_peak; /* most bytes live since whoever reads it set it back */
    CUmemAllocationProp prop;
    /* Devices, one bit each, that every mapping is open to besides the own one. */
    uint64_t peers;   /* because the program said so */
    uint64_t copiers; /* since copies were made there, which need no leave in CUDA */
    uint64_t refused; /* not open, and not to be tried for copies again: the driver would not */
    CUresult error;   /* the last answer of the driver that was neither success nor out of memory; 0: none since it was
                         set back */

    struct vp_list spaces;     /* of vp_space.link; owned */
    struct vp_space **by_base; /* the same, `space_count` of them in address order, with room for `space_room` */
    size_t space_count, space_room;
    size_t space_bytes;     /* of all spaces together */
    struct vp_list chunks;  /* of vp_chunk.link; owned */
    struct vp_list zombies; /* of vp_mapping.zombie: all that may be reaped, whoever remembers the place, the one left
                               longest ago first */
    struct vp_table live;   /* live regions by address */
    struct vp_index met[VP_ZONES], mixed[VP_ZONES];
    struct vp_list timeline_indexes;
    struct vp_list caches, spare_caches; /* of vp_stream_cache.link; used again and never given back, since other
                                            threads may still look at one */
    _Atomic(struct vp_stream_cache *) busy_caches; /* those that may hold blocks, linked by next_busy */
    struct vp_place_tree places[VP_ZONES];
    struct vp_list place_used;
    size_t place_count;
    uint64_t place_serial;
    size_t chunk_count;
    size_t away;           /* chunks whose current mapping is not their home */
    size_t mappings;       /* all of them, current or not */
    size_t exported;       /* chunks with `exported` */
    bool retiring;         /* something was freed in an exported chunk, which may now go back to the device */
    uint64_t first_stream; /* id of the first stream that freed a block worth an event; 0: none yet */
    atomic_bool several;   /* others have since: frees record their own event from now on */
    bool stricts;          /* there may be strict requests: who freed what is kept */
    uint64_t age, serial, marks;
    uint64_t switches; /* how often a chunk got another current mapping */
    uint64_t moves;    /* timelines->moves when the free regions were last filed anew */

    struct vp_slab region_slab, piece_slab, chunk_slab, mapping_slab, store_slab, place_slab, cache_slab, bins_slab;
    struct scratch {
        void *mem;
        size_t bytes;
    } scratch;
    struct vp_throttle throttle;
    uint64_t barrier_rest; /* cudaMalloc waits for no earlier cudaFree until then, in nanoseconds; 0: it may */
    struct vp_pool_stats stats;
};

/* ---- the pool as a whole ---- */

/* Opens the pool of a device, whose context must be current. Reserves addresses. 0, or -EOPNOTSUPP (the device cannot),
 * -ENOMEM, -EIO. */
int vp_pool_init(struct vp_pool *pool, const struct vp_driver *drv, struct vp_timelines *timelines, CUdevice dev,
                 const struct vp_policy *policy, const struct vp_pool_config *config) __attribute__((cold));
/* Frees our memory; with `driver`, also unmaps, releases and gives back everything at the driver (all work must be
 * over). */
void vp_pool_finish(struct vp_pool *pool, bool driver) __attribute__((cold));

/* Fields that are not marked are the caller's to fill. */
struct vp_request {
    size_t asked;                 /* bytes, at least 1 */
    size_t size, align;           /* set by the policy: bytes taken, and where the first may lie */
    enum vp_zone_name zone;       /* set by the policy */
    struct vp_timeline *timeline; /* the stream; NULL: for anyone at once (cudaMalloc) */
    struct vp_context *context;
    void *owner;
    enum {
        VP_WAITS_NEVER, /* nobody waits */
        VP_WAITS_HOST,  /* the host does, before growing, for a bounded time */
        VP_WAITS_LATE,  /* the stream does on the GPU, when growing has failed */
        VP_WAITS_EARLY, /* the stream does on the GPU, before growing */
    } waits;            /* for what other streams have freed */
    bool alone;         /* nothing else may ever lie in its handles */
    bool impatient;     /* no host wait: the last one ran out of time */
    bool pressed;       /* growing failed: late waits are due (set by the pool, too) */
    bool strict; /* what another stream freed is not taken merely because it was seen over: a wait may be queued for it,
                    or the program synchronises (vp_pool_synchronized); while there is more memory. Only with a timeline
                  */
    /* set by the pool for a retry */
    struct vp_event *await; /* -EAGAIN: wait for this on the host without the lock, vp_event_put() it, and ask again;
                               NULL: vp_throttle_wait() */
};

/*
 * Allocates. 0 and a live region; -ENOMEM: nothing fits and the device has no more; -EAGAIN: see `await`; -EOPNOTSUPP:
 * the policy leaves such requests to CUDA; -EIO: the driver failed otherwise (its error is the pool's, or that of the
 * request's context if a query told it: vp_pool_error). On any failure the pool is as before, but for idle memory that
 * may have moved.
 */
int vp_pool_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out);
/* The driver's own error behind an -EIO, of the pool's calls or of the context (which may be NULL); 0: none was noted.
 * `forget` sets both back. */
CUresult vp_pool_error(const struct vp_pool *pool, const struct vp_context *ctx);
void vp_pool_error_forget(struct vp_pool *pool, struct vp_context *ctx);

/* The live region that begins at `addr`, or NULL; and the one that holds `addr`. It leaves its cache: the fast path
 * sees it no more. */
struct vp_region *vp_pool_find(const struct vp_pool *pool, CUdeviceptr addr);
struct vp_region *vp_pool_find_inside(const struct vp_pool *pool, CUdeviceptr addr);
/* Is it an address that the pool has reserved, whatever is there? */
bool vp_pool_reserves(const struct vp_pool *pool, CUdeviceptr addr);

/* Fetches what the free of a live region will look at first: regions lie far apart in memory. */
void vp_pool_expect_free(const struct vp_region *block);
/* Frees a live region under a condition (built by vp_fence_add_free or vp_fence_add_barrier), whose points pass to the
 * pool. Never fails. */
void vp_pool_free(struct vp_pool *pool, struct vp_region *block, struct vp_fence *fence);
/* Frees a live region on a stream: its cache parks it, or it becomes free memory behind what the stream has queued. 0,
 * or -ENOMEM with nothing changed. */
int vp_pool_free_async(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline);
/* Is a block of so many bytes worth an event at its free, if others may want it? */
bool vp_pool_large(size_t size);
/* Should a free of so many bytes record its own event now: may others want them, and are they worth it? Callable
 * without the lock. */
bool vp_pool_worth_event(const struct vp_pool *pool, size_t size);
/* Notes that `timeline` frees here; then the same, for this policy. */
bool vp_pool_wants_event(struct vp_pool *pool, const struct vp_timeline *timeline, size_t size);

/*
 * Another process is about to map a live synchronous block, and can only map whole handles. What is free beside it
 * there is taken out of use; 0. -EBUSY: other live bytes lie there, and not `share` (with it they are shown, too);
 * -EOPNOTSUPP: the device cannot; -ENOMEM. Once the block is freed, its bytes are nobody's again: their handles go back
 * to the device as soon as all work on them is over.
 */
int vp_pool_export(struct vp_pool *pool, struct vp_region *block, bool share);
/* Would that succeed? */
int vp_pool_export_check(struct vp_pool *pool, const struct vp_region *block, bool share);
/* The chunk that holds `addr`, which must be a live byte; `*offset`: where in it. */
const struct vp_chunk *vp_pool_chunk_at(const struct vp_pool *pool, CUdeviceptr addr, size_t *offset);

/* The program waited for a stream on the host (NULL: for the device): what that had freed and is over by now may be
 * taken by strict requests. */
void vp_pool_synchronized(struct vp_pool *pool, const struct vp_timeline *timeline);
/* Is any chunk wholly free? If it is not idle, it will be once work on it has ended. */
bool vp_pool_shrinkable(const struct vp_pool *pool);
/* Gives idle chunks back to the device until at most `keep` bytes are held or nothing idle is left. Returns the bytes
 * given back. */
size_t vp_pool_trim(struct vp_pool *pool, size_t keep);
/* Peer access for every mapping, present and future: `peers` and copiers, and no others. 0, -ENOMEM or -EIO with
 * nothing changed. */
int vp_pool_set_peers(struct vp_pool *pool, uint64_t peers);
/* Opens every mapping, present and future, to copies that a device makes, if the driver lets it. Is all open to it
 * then? */
bool vp_pool_add_copier(struct vp_pool *pool, CUdevice dev);
/* Is the address in a mapping of the pool? Says nothing of whose the bytes are, and disturbs no cache. */
bool vp_pool_maps(const struct vp_pool *pool, CUdeviceptr addr);
/* A context has ended: its synchronous blocks are free. */
void vp_pool_drop_context(struct vp_pool *pool, const struct vp_context *ctx);
/* Some points were met by other means than a request's own poll (another pool asked, a context ended): files the free
 * regions anew. */
void vp_pool_refile(struct vp_pool *pool);
/* A timeline ends, or its memory is about to be used again: what struct vp_timelines has callbacks for. */
void vp_pool_close_timeline(struct vp_pool *pool, struct vp_timeline *timeline);
void vp_pool_drop_timeline(struct vp_pool *pool, struct vp_timeline *timeline);

/* The host has waited for so many nanoseconds, in vain or not. */
static inline void vp_pool_waited(struct vp_pool *pool, uint64_t ns, bool in_vain) {
    pool->stats.waits_host++;
    pool->stats.waits_fruitless += in_vain;
    pool->stats.host_wait_ns += ns;
}

/* Raises `*peak` to `now` bytes, counted for an owner (NULL: for all), less those that are parked. */
void vp_pool_note_peak(uint64_t now, uint64_t *peak, struct vp_pool *pool, const void *owner);
/* The counts, with what the fast path has done. */
struct vp_pool_stats vp_pool_stats(struct vp_pool *pool);

/* Proves the invariants; on a breach says which one, on `out` if not NULL, and returns false. */
bool vp_pool_check(const struct vp_pool *pool, FILE *out);
/* Bytes of our own memory that describe the pool. */
size_t vp_pool_metadata(const struct vp_pool *pool);

#endif
