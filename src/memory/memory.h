/* Memory of one device: which bytes lie where, and behind what.
 *
 * The addresses are partitioned into *regions*:
 *   live     handed out;
 *   free     mapped, and reusable behind a fence. Free neighbours are one region; its *pieces* say what each part waits
 *            for;
 *   zombie   an old mapping, whose chunks are current elsewhere now. Kept, since the range may be wanted again: to take
 *            it back costs no driver call once its chunks are wholly free;
 *   retired  free, but for nobody any more: another process may have it mapped, or the bytes beside it. It goes back to
 *            the device;
 *   backed   of a bare segment (pool/bare/bare.h), and in use there: one mapping each;
 *   hole     not mapped;
 *   building in the hands of one thread, which makes a range of it and lets the lock go at times: nobody else's.
 *            What is mapped so far has pieces, the rest has none.
 * A *chunk* is one physical handle. It may be mapped at many addresses, but in one of them only, its current mapping,
 * may bytes be live or free.
 *
 * There are two zones: one for small blocks, built of the smallest handles, and one for large. A small block that lives
 * long then never pins a large handle.
 *
 * Nothing here locks: the caller does. Who gets which bytes is decided above. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/bits.h"
#include "base/list.h"
#include "base/slab.h"
#include "base/table.h"
#include "tree.h"
#include "driver/driver.h"
#include "order/fence.h"

#include <assert.h>
#include <stdio.h>

/* Sizes and addresses of blocks are multiples of this: the alignment that cuMemAlloc promises, and what PyTorch rounds
 * to. */
enum { VP_QUANTUM = 512 };

/* The addresses of bare segments are a zone, too: nothing is allocated in it, but its chunks are like all others. */
/* Below this a request goes to the small zone. PyTorch's own line between small and large lies here too. */
enum { VP_SMALL_BELOW = 1 << 20 };
enum vp_zone_name { VP_ZONE_SMALL, VP_ZONE_LARGE, VP_ZONE_BARE, VP_ZONES };

/* A byte, so that a region is one cache line and a half, and none reaches into three. */
enum __attribute__((packed)) vp_region_state {
    VP_HOLE,
    VP_FREE,
    VP_ZOMBIE,
    VP_RETIRED,
    VP_LIVE,
    VP_BACKED,
    VP_BUILDING
};

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
    CUdeviceptr addr; /* first: the key of vp_memory.live */
    size_t size;
    enum vp_region_state state;
    bool sync;     /* live: made by a synchronous call, and ends with its context */
    bool exported; /* live: another process may have it mapped */
    bool spilled;  /* live: some of it, its end, lies in the host's memory (spill.h) */
    bool bare;     /* live: a bare segment, found by its address, and in no space's list */
    bool synced;   /* live: CU_POINTER_ATTRIBUTE_SYNC_MEMOPS was set */
    bool blocks;   /* live: it is noted above that this block lies in the way of something */
    bool planned;  /* building: a plan's (pool/learnt/ahead.h), and nothing is made there yet */
    struct vp_space *space;
    struct vp_list va; /* vp_space.regions, in address order */
    union {
        struct { /* free, zombie, retired, building and hole, which has no pieces */
            union {
                struct vp_piece *pieces;
                uint64_t filed; /* hole: number among all that were filed */
            };
            struct vp_index *index; /* free and hole: that it is filed in; else NULL */
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
    };
};
_Static_assert(sizeof(struct vp_region) <= 96, "see enum vp_region_state");

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
    struct vp_list link; /* vp_memory.indexes */
};

/* What is kept for a timeline. Made when it first frees here. */
struct vp_stream_store {
    struct vp_index index[VP_ZONES];
    uint64_t synchronized;         /* the program has waited for what it freed up to this one (vp_piece.age) */
    struct vp_stream_cache *cache; /* not looked at here; NULL until it first parks a block */
};

struct vp_mapping {
    CUdeviceptr addr;
    struct vp_chunk *chunk;
    struct vp_mapping *next; /* of its chunk */
    struct vp_list zombie;   /* vp_memory.zombies, while it is neither current nor home; else linked to itself */
};

struct vp_chunk {
    CUmemGenericAllocationHandle handle;
    size_t size;
    struct vp_mapping *current;
    /* Where it was first mapped, and lies again whenever it is wholly free (vp_mapping_go_home). */
    struct vp_mapping *home;
    struct vp_mapping *mappings; /* by vp_mapping.next; owned */
    struct vp_list link;         /* vp_memory.chunks */
    uint64_t mark : 56;          /* scratch of the harvest */
    uint64_t cached : 1;         /* bare segments have had it since this was cleared (process/poison.c) */
    uint64_t host : 1;           /* its memory is the host's: of one block, and released with it */
    uint64_t planned : 1;        /* made ahead of the program (pool/learnt/ahead.h) */
    uint64_t touched : 1;        /* and a large block has lain in it */
    uint64_t exported : 1;       /* a block in it is or was exported: it will go back to the device */
    uint64_t asleep : 1;         /* its contents are elsewhere, and what is free in it is retired: sleep.c */
    uint64_t unmapped : 1;       /* asleep: nothing is mapped at its current mapping */
    uint64_t released : 1;       /* unmapped: and it has no handle */
    uint64_t birth;              /* number of its physical memory, among all that was ever made */
    uint64_t stream;             /* id of the timeline whose requests it serves, where these are kept apart; 0:
                                    cudaMalloc's */
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
    uint64_t stream; /* as that of a chunk: of a space that was reserved for one stream */
    bool reserved;   /* base is that of a reservation of `reserved_size` bytes, given back by finish */
    size_t reserved_size;
    struct vp_list regions;      /* of vp_region.va; owned */
    struct vp_granule *granules; /* one for each granule; anonymous memory */
    struct vp_bits begins;       /* pages in which a region begins */
    size_t mem_bytes;            /* from `pages` on: all that describes the space, this struct included */
    struct vp_list link;         /* vp_memory.spaces */
};

/* X(field, driver function): the calls that are counted. */
#define VP_MEMORY_CALLS(X)                                                                                             \
    X(reserve, cuMemAddressReserve) X(create, cuMemCreate) X(map, cuMemMap) X(set_access, cuMemSetAccess) X(unmap, cuMemUnmap) X(release, cuMemRelease)

struct vp_memory_stats {
    uint64_t allocs, frees, ooms;
    uint64_t live_bytes, peak_live_bytes;       /* as asked for */
    uint64_t held_bytes, peak_held_bytes;       /* physical, of the device */
    uint64_t spilled_bytes, peak_spilled_bytes; /* of the host: spill.h */
    uint64_t spills, spills_refused;            /* blocks that some of this was for; and those that were to have some */
    uint64_t waits_gpu;                         /* a stream was made to wait for memory */
    uint64_t waits_host, waits_fruitless;       /* the host waited for memory; and got none of it in time */
    uint64_t host_wait_ns;                      /* for so long in all */
    uint64_t stitches, reactivations, reaps;
    uint64_t spared_bytes;        /* made anew, so that a call need not move as much */
    uint64_t returned_bytes;      /* given back for that later */
    uint64_t given_back, regrets; /* bytes that went back to the device by themselves or because somebody asked; and how
                                     often most of them was made again at once */
    uint64_t lent_bytes, loans_asked, loans_refused; /* given back because another process asked; how often this one has
                                                        asked others; and refused to give */
    uint64_t planned_bytes, planned_returned;        /* made ahead of the program; and of that given back since */
    uint64_t driver_ns;                              /* in the calls below */
    struct {
#define VP_MEMORY_CALL_FIELD(field, name) uint64_t field;
        VP_MEMORY_CALLS(VP_MEMORY_CALL_FIELD)
#undef VP_MEMORY_CALL_FIELD
    } calls;
};

struct vp_memory {
    /* Set by whoever opens it. */
    const struct vp_driver *drv;
    struct vp_timelines *timelines;
    CUdevice device;
    size_t va;           /* first reservation, bytes; 0: automatic */
    size_t limit;        /* most bytes to hold, as if the device had no more; 0: no limit */
    bool rdma;           /* is made for other devices to reach by themselves, where the device can */
    size_t coming_bytes; /* that another thread makes without the lock: the limit is for them, too */
    bool by_stream;      /* free memory of different streams is kept apart even when all may use it */
    bool per_stream;     /* a chunk serves only the stream that it was created for: regions hold chunks of one stream */
    bool homes;          /* chunks that become wholly free go back to where they were first mapped */
    void (*account)(void *owner, size_t asked,
                    bool taken);       /* a block begins or ends to count for its owner; NULL: nobody wants to know */
    bool (*may_grow)(CUdevice device); /* may more be taken of the device? NULL: always */
    unsigned held_back;                /* so often it said no */
    /* At `addr` a mapping came or went, or became or ceased to be current or at home. NULL: nobody wants to know. */
    void (*remapped)(void *watcher, CUdeviceptr addr);
    void *watcher;
    /* Devices, one bit each, that every mapping is open to besides the own one. */
    uint64_t peers;   /* because the program said so */
    uint64_t copiers; /* since copies were made there, which need no leave in CUDA */
    uint64_t refused; /* not open, and not to be tried for copies again: the driver would not */
    uint64_t left;    /* peers that were shut out: let in again they stay, as each turn takes a call a chunk */

    size_t granularity; /* a power of two, 1 << granularity_shift */
    unsigned granularity_shift;
    CUmemAllocationProp prop;
    bool engine;    /* the device decompresses */
    bool no_rdma;   /* others could reach its memory, were there any: it is not made for them */
    CUresult error; /* the last answer of the driver that was neither success nor out of memory; 0: none since it was
                       set back */

    struct vp_list spaces;     /* of vp_space.link; owned */
    struct vp_space **by_base; /* the same, `space_count` of them in address order, with room for `space_room` */
    size_t space_count, space_room;
    size_t space_bytes;     /* of all spaces together */
    struct vp_list chunks;  /* of vp_chunk.link; owned */
    struct vp_list spares;  /* the same: held for a request to come, and mapped nowhere */
    struct vp_list zombies; /* of vp_mapping.zombie: all that may be reaped, the one left longest ago first */
    struct vp_table live;   /* live regions by address */
    struct vp_index met[VP_ZONES], mixed[VP_ZONES], holes[VP_ZONES];
    struct vp_list indexes;        /* of vp_index.link: of met, of mixed, then those of timelines that hold regions */
    size_t chunk_count;            /* spares included */
    size_t bare_segments;          /* live regions that are bare segments */
    uint64_t bare_live;            /* of live_bytes: used in bare segments */
    size_t away;                   /* chunks whose current mapping is not their home */
    size_t mappings;               /* all of them, current or not */
    size_t largest;                /* the largest chunk that was ever made */
    size_t exported;               /* chunks with `exported` */
    size_t asleep;                 /* chunks with `asleep` */
    size_t asleep_bytes;           /* of chunks with `released`: not held, and to be had again */
    uint64_t woken;                /* allocations up to this one have slept before, or came while others did */
    uint64_t births;               /* chunks created so far */
    size_t spilled_live, rounded;  /* of live blocks: of stats.spilled_bytes; and beyond what was asked for */
    CUmemAllocationProp host_prop; /* of chunks in the host's memory; type 0: not looked for yet, or not to be had */
    bool exports_changed; /* something was freed in a chunk that is exported or the host's, which may now go back */
    uint64_t age, serial, filed; /* of frees, of allocations, and of holes */
    uint64_t synchronized;       /* the program has waited for all that was freed up to this one */
    uint64_t marks;              /* the last that chunks were marked with */
    uint64_t switches;           /* how often a chunk got another current mapping */
    uint64_t moves;              /* timelines->moves when the free regions were last filed anew */
    struct vp_slab region_slab, piece_slab, chunk_slab, mapping_slab, store_slab, bins_slab;
    struct vp_memory_stats stats;
    /* Where the process may have so many addresses alone: what is reserved at a time, bytes; 0: it is not so. */
    size_t va_step;
};

/* Live bytes that sleep, without what is free beside them or was freed since. Looks at all that sleeps. */
uint64_t vp_sleep_live(const struct vp_memory *mem);
/* Live bytes that the device has: not those that sleep, nor those in the host's memory. */
static inline uint64_t vp_memory_awake(const struct vp_memory *mem) {
    const uint64_t elsewhere = (mem->asleep_bytes ? vp_sleep_live(mem) : 0) + mem->spilled_live;
    return mem->stats.live_bytes > elsewhere ? mem->stats.live_bytes - elsewhere : 0;
}

/* Bytes that it has of the device and that are not live. */
static inline uint64_t vp_memory_idle(const struct vp_memory *mem) {
    const uint64_t live = vp_memory_awake(mem);
    return mem->stats.held_bytes > live ? mem->stats.held_bytes - live : 0;
}

static inline uint64_t vp_lesser(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static inline uint64_t vp_greater(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static inline size_t vp_round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* The same, and whether there is nothing to round, for what is a power of two: alignments and granules. A division
 * takes longer than the rest of a look at a place. */
static inline size_t vp_align_up(size_t n, size_t to) {
    return (n + to - 1) & ~(to - 1);
}
static inline bool vp_is_aligned(size_t n, size_t to) {
    return !(n & (to - 1));
}

/* What the driver says of the device; 0: it does not. */
int vp_memory_attribute(const struct vp_memory *mem, CUdevice_attribute which);
/* Begins with nothing: no addresses and no chunks. 0, -EOPNOTSUPP (the device cannot) or -ENOMEM. */
int vp_memory_init(struct vp_memory *mem) __attribute__((cold));
/* Unmaps, releases and gives back everything at the driver, and frees our memory. */
void vp_memory_finish(struct vp_memory *mem) __attribute__((cold));
/* Proves the invariants; on a breach says which one, on `out` if not NULL, and returns false. */
bool vp_memory_check(const struct vp_memory *mem, FILE *out);
/* Says so on `out`, if not NULL, for whoever has found one. */
void vp_memory_breach(FILE *out, const char *what, const struct vp_region *r);
/* What cuMemGetInfo says of the device, whichever is current; and is free of that as far as the limit lets us have it.
 */
bool vp_memory_ask_device(const struct vp_memory *mem, size_t *free_bytes, size_t *total);
size_t vp_memory_device_free(const struct vp_memory *mem);
/* Has the device memory for chunks of so many bytes together, whole granules? Where less is called free, one of all of
 * them is tried, and given back. */
bool vp_memory_possible(struct vp_memory *mem, size_t bytes);
/* Bytes of our own memory that describe it. */
size_t vp_memory_metadata(const struct vp_memory *mem);
/* Some points were met by other means than vp_fit_refresh() (somebody else asked, a context ended): files the free
 * regions anew. */
void vp_memory_refile(struct vp_memory *mem);
/* Peer access for every mapping, present and future: `peers` and copiers, and no others; who comes a second time counts
 * as a copier. 0, -ENOMEM or -EIO with nothing changed. */
int vp_memory_set_peers(struct vp_memory *mem, uint64_t peers);
/* Opens every mapping, present and future, to copies that a device makes, if the driver lets it. Is all open to it
 * then? */
bool vp_memory_add_copier(struct vp_memory *mem, CUdevice dev);
