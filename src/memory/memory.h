/* The memory of one device: which bytes lie where, and which fence protects them.
 *
 * The addresses are partitioned into *regions*:
 *   live     handed out;
 *   free     mapped, and reusable behind a fence. Free neighbours form one region; its *pieces* say what each part
 *            waits for;
 *   zombie   an old mapping, whose chunks are current elsewhere now. It is kept because the range may be wanted again:
 *            once its chunks are wholly free, switching back costs no driver call;
 *   retired  free, but for nobody any more, as another process may have it mapped, or bytes beside it. It goes back to
 *            the device;
 *   backed   in a bare segment (pool/bare/bare.h), and in use there: one region a mapping;
 *   hole     not mapped;
 *   building one thread is making a range of it, and may release the lock meanwhile: nobody else may use it. What is
 *            mapped so far has pieces, the rest has none.
 * A *chunk* is one physical handle. It may be mapped at many addresses, but only at one of them, its current mapping,
 * can bytes be live or free.
 *
 * There is a zone for small blocks, built of the smallest handles, and one for large blocks, so that a small block that
 * lives long never pins a large handle. Bare segments have a third.
 *
 * Nothing here locks: the caller holds the library's lock. The layers above decide who gets which bytes. */
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

/* Sizes and addresses of blocks are multiples of this: cuMemAlloc's promised alignment, and PyTorch's rounding. */
enum { VP_QUANTUM = 512 };

/* Smaller requests go to the small zone. PyTorch's own line between small and large is the same. */
/* Nothing is allocated in the bare zone, which has the addresses of bare segments; its chunks are like all others. */
enum { VP_SMALL_BELOW = 1 << 20 };
enum vp_zone_name { VP_ZONE_SMALL, VP_ZONE_LARGE, VP_ZONE_BARE, VP_ZONES };

/* One byte, so that a region takes one and a half cache lines, and never touches three. */
enum __attribute__((packed)) vp_region_state {
    VP_HOLE,
    VP_FREE,
    VP_ZOMBIE,
    VP_RETIRED,
    VP_LIVE,
    VP_BACKED,
    VP_BUILDING
};

/* A stretch of a free, zombie, retired or building region under one fence, from the end of the piece before. */
struct vp_piece {
    CUdeviceptr end;
    struct vp_fence fence;
    uint64_t age;    /* number of the free that made it */
    uint64_t stream; /* id of the timeline that freed it; 0: fresh memory */
    struct vp_piece *next;
};

struct vp_index;

struct vp_region {
    CUdeviceptr addr; /* first member: the key of vp_memory.live */
    size_t size;
    enum vp_region_state state;
    bool sync;         /* live: from a synchronous call; ends with its context */
    bool exported;     /* live: another process may have it mapped */
    bool spilled;      /* live: its end, or all of it, lies in host memory (spill.h) */
    bool bare;         /* live: a bare segment, found by its address, and in no space's list */
    bool synced;       /* live: CU_POINTER_ATTRIBUTE_SYNC_MEMOPS was set */
    bool takes_places; /* live: places were set aside because of it (pool/place_taken.c) */
    bool planned;      /* building: for a plan (pool/learnt/ahead.h), and nothing is made there yet */
    struct vp_space *space;
    struct vp_list va; /* in vp_space.regions, by address */
    union {
        struct { /* free, zombie, retired, building; and hole, which has no pieces */
            union {
                struct vp_piece *pieces;
                uint64_t hole_serial; /* hole: its number in the order of filing */
            };
            struct vp_index *index; /* free and hole: the index it is filed in; else NULL */
            union {
                RB_ENTRY(vp_region) by_size;
                struct {
                    struct vp_region *next, *prev;
                } in_bin;
            };
        };
        struct {             /* live */
            size_t asked;    /* bytes that the program asked for */
            uint64_t serial; /* unique for each allocation */
            struct vp_context *context;
            void *owner;                   /* the memory pool it counts for; not read here */
            struct vp_stream_cache *cache; /* the cache that has held it; NULL: the library's lock alone guards it */
            uint64_t stream; /* id of the timeline that has it or may take it from its cache; 0: cudaMalloc */
        };
    };
};
_Static_assert(sizeof(struct vp_region) <= 96, "see enum vp_region_state");

RB_HEAD(vp_region_tree, vp_region);

/* Small free regions are kept in bins, one for each size, the last freed first. */
enum { VP_BINNED = 1 << 20, VP_BINS = VP_BINNED / VP_QUANTUM };

struct vp_bins {
    void *slab_link;             /* the slab's, while unused; all else is zero then */
    uint32_t words;              /* which of `some` are not 0 */
    uint64_t some[VP_BINS / 64]; /* which bins hold regions */
    struct vp_region *first[VP_BINS];
};

/* An index of a zone's free regions by size: of those that all may use, those of one timeline, or the mixed ones. */
struct vp_index {
    struct vp_region_tree tree;   /* by size, then address; all regions of a zone without bins */
    struct vp_bins *bins;         /* small zone: its regions below VP_BINNED; else NULL */
    struct vp_timeline *timeline; /* NULL: one of vp_memory's own */
    enum vp_zone_name zone;
    size_t count;        /* of its regions */
    struct vp_list link; /* in vp_memory.indexes */
};

/* What the pool keeps for a timeline. Made when the timeline first frees here. */
struct vp_stream_store {
    struct vp_index index[VP_ZONES];
    uint64_t synchronized;         /* the program has waited for its frees up to this one (vp_piece.age) */
    struct vp_stream_cache *cache; /* not read here; NULL until it first parks a block */
};

struct vp_mapping {
    CUdeviceptr addr;
    struct vp_chunk *chunk;
    struct vp_mapping *next; /* of the same chunk */
    struct vp_list zombie;   /* in vp_memory.zombies, if neither current nor home; else linked to itself */
};

struct vp_chunk {
    CUmemGenericAllocationHandle handle;
    size_t size;
    struct vp_mapping *current;
    /* Where it was first mapped, and where it lies again when it is wholly free (vp_mapping_go_home). */
    struct vp_mapping *home;
    struct vp_mapping *mappings; /* by vp_mapping.next; owned */
    struct vp_list link;         /* in vp_memory.chunks or spares */
    uint64_t mark : 56;          /* scratch mark, compared with vp_memory.marks */
    uint64_t cached : 1;         /* bare segments have had it since this was last cleared (process/poison.c) */
    uint64_t host : 1;           /* host memory: of one block, and released with it */
    uint64_t planned : 1;        /* created ahead of the program (pool/learnt/ahead.h) */
    uint64_t touched : 1;        /* planned: a large block has lain in it */
    uint64_t exported : 1;       /* a block in it is or was exported: it will go back to the device */
    uint64_t asleep : 1;         /* its contents are elsewhere, and its free bytes are retired: sleep.c */
    uint64_t unmapped : 1;       /* asleep: not mapped at its current mapping's address */
    uint64_t released : 1;       /* unmapped: it has no handle */
    uint64_t birth;              /* number of its physical memory in order of creation */
    uint64_t stream;             /* where chunks serve one stream each: the id of its timeline; 0: cudaMalloc's */
};

struct vp_granule {
    struct vp_mapping *mapping; /* what is mapped here, current or not */
    struct vp_region *first;    /* the first region that begins in this granule */
};

/* A contiguous part of a reservation that belongs to one zone. */
struct vp_space {
    CUdeviceptr base;
    size_t size;
    enum vp_zone_name zone;
    uint64_t stream; /* as vp_chunk.stream, if it was reserved for one stream */
    bool reserved;   /* a reservation of `reserved_size` bytes begins at `base`; finish frees it */
    size_t reserved_size;
    struct vp_list regions;      /* of vp_region.va; owned */
    struct vp_granule *granules; /* one for each granule; in memory of its own */
    struct vp_bits begins;       /* the granules in which a region begins */
    size_t mem_bytes;            /* of the memory that starts at `granules`: all that describes the space */
    struct vp_list link;         /* in vp_memory.spaces */
};

/* X(field, driver function): the driver calls that are counted. */
#define VP_MEMORY_CALLS(X)                                                                                             \
    X(reserve, cuMemAddressReserve) X(create, cuMemCreate) X(map, cuMemMap) X(set_access, cuMemSetAccess) X(unmap, cuMemUnmap) X(release, cuMemRelease)

struct vp_memory_stats {
    uint64_t allocs, frees, ooms;
    uint64_t live_bytes, peak_live_bytes;       /* as asked for */
    uint64_t held_bytes, peak_held_bytes;       /* physical, of the device */
    uint64_t spilled_bytes, peak_spilled_bytes; /* physical, of the host: spill.h */
    uint64_t spills, spills_refused;            /* blocks that got host memory; and those refused it */
    uint64_t waits_gpu;                         /* times a stream was made to wait for memory */
    uint64_t waits_host, waits_fruitless;       /* times the host waited for memory; and in vain */
    uint64_t host_wait_ns;                      /* total time of these waits */
    uint64_t stitches, reactivations, reaps;
    uint64_t spared_bytes;        /* created anew, so that a call need not move as much */
    uint64_t returned_bytes;      /* of that, given back later */
    uint64_t given_back, regrets; /* bytes given back by ourselves or on request; times that most was soon made again */
    /* Bytes given back for others; times we asked others; times we refused. */
    uint64_t lent_bytes, loans_asked, loans_refused;
    uint64_t planned_bytes, planned_returned; /* created ahead of the program; and of that given back */
    uint64_t driver_ns;                       /* time in the calls below */
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
    size_t va;           /* size of the first reservation, bytes; 0: automatic */
    size_t limit;        /* most bytes to hold, as if the device had no more; 0: no limit */
    bool rdma;           /* created so that other devices can reach it by themselves (RDMA), where the device can */
    size_t coming_bytes; /* being created by another thread without the lock; they count against the limit */
    /* Births of the chunks that another thread maps without the lock: their handles must not be released. */
    const uint64_t *kept;
    size_t kept_count;
    bool by_stream;  /* free memory of different streams stays apart even if all may use it */
    bool per_stream; /* a chunk serves only the stream it was created for: a region has chunks of one stream */
    bool homes;      /* chunks that become wholly free go back to where they were first mapped */
    void (*account)(void *owner, size_t asked,
                    bool taken);       /* a block begins or ceases to count for its owner; NULL: not reported */
    bool (*may_grow)(CUdevice device); /* may more be taken of the device? NULL: always */
    unsigned held_back;                /* times that it said no */
    /* A mapping at `addr` came or went, or its being current or home changed. NULL: not reported. */
    void (*remapped)(void *watcher, CUdeviceptr addr);
    void *watcher;
    /* Devices, one bit each, besides our own, to which every mapping is open: */
    uint64_t peers;        /* by the program's request */
    uint64_t copiers;      /* as they copied from or to here, which needs no peer access in CUDA */
    uint64_t refused;      /* not open, and not tried again for copies: the driver refused */
    uint64_t former_peers; /* once let in again they stay open, as each change costs a driver call a chunk */

    size_t granularity; /* bytes; a power of two, 1 << granularity_shift */
    unsigned granularity_shift;
    CUmemAllocationProp prop;
    bool engine;    /* the device has a decompression engine */
    bool no_rdma;   /* other devices could reach its memory, but it is not created for that */
    CUresult error; /* the driver's last answer except success and out of memory; 0: none since the last reset */

    struct vp_list spaces;     /* of vp_space.link; owned */
    struct vp_space **by_base; /* the same by address: `space_count` of them, in an array for `space_room`; owned */
    size_t space_count, space_room;
    size_t space_bytes;     /* bytes of all spaces together */
    struct vp_list chunks;  /* of vp_chunk.link; owned */
    struct vp_list spares;  /* of vp_chunk.link; owned: held for a request to come, and not mapped */
    struct vp_list zombies; /* of vp_mapping.zombie: all that may be reaped, the longest unused first */
    struct vp_table live;   /* live regions by address */
    struct vp_index met[VP_ZONES], mixed[VP_ZONES], holes[VP_ZONES];
    struct vp_list indexes;        /* of vp_index.link: met, mixed, then those of timelines that hold regions */
    size_t chunk_count;            /* spares included */
    size_t bare_segments;          /* live regions that are bare segments */
    uint64_t bare_live;            /* bytes of live_bytes that are used in bare segments */
    size_t away;                   /* chunks whose current mapping is not their home */
    size_t mappings;               /* their number, current or not */
    size_t largest;                /* size of the largest chunk ever made */
    size_t exported;               /* chunks with `exported` */
    size_t asleep;                 /* chunks with `asleep` */
    size_t asleep_bytes;           /* bytes of chunks with `released`: not held, but to be had again */
    uint64_t woken;                /* allocations up to this serial slept before, or came while others slept */
    uint64_t births;               /* chunks created so far */
    size_t spilled_live, rounded;  /* of live blocks: host memory in them; and bytes beyond what was asked for */
    CUmemAllocationProp host_prop; /* of chunks of host memory; type 0: not looked for yet, or not available */
    bool exports_changed; /* something was freed in an exported chunk or one of host memory, which may now go back */
    uint64_t age, serial, hole_serial; /* numbers of the last free, allocation, and filed hole */
    uint64_t synchronized;             /* the program has waited for all frees up to this one */
    uint64_t marks;                    /* the last mark given to chunks */
    uint64_t switches;                 /* times that a chunk got another current mapping */
    uint64_t moves;                    /* timelines->moves when the free regions were last refiled */
    struct vp_slab region_slab, piece_slab, chunk_slab, mapping_slab, store_slab, bins_slab;
    struct vp_memory_stats stats;
    /* With a limited address space (ulimit -v): bytes to reserve at a time; 0: not limited. */
    size_t va_step;
};

/* Live bytes that sleep, without free bytes beside them or bytes freed since. Looks at all sleeping chunks. */
uint64_t vp_sleep_live(const struct vp_memory *mem);
/* Live bytes in the device's memory: not those that sleep, nor those in host memory. */
static inline uint64_t vp_memory_awake(const struct vp_memory *mem) {
    const uint64_t elsewhere = (mem->asleep_bytes ? vp_sleep_live(mem) : 0) + mem->spilled_live;
    return mem->stats.live_bytes > elsewhere ? mem->stats.live_bytes - elsewhere : 0;
}

/* Bytes held of the device that are not live. */
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

/* The same, and whether there is nothing to round, for powers of two (alignments, granules). A division would take
 * longer than the rest of a look at a place. */
static inline size_t vp_align_up(size_t n, size_t to) {
    return (n + to - 1) & ~(to - 1);
}
static inline bool vp_is_aligned(size_t n, size_t to) {
    return !(n & (to - 1));
}

/* An attribute of the device; 0 if the driver does not tell. */
int vp_memory_attribute(const struct vp_memory *mem, CUdevice_attribute which);
/* Starts with no addresses and no chunks. 0, -EOPNOTSUPP (the device cannot) or -ENOMEM. */
int vp_memory_init(struct vp_memory *mem) __attribute__((cold));
/* Unmaps, releases and frees everything, at the driver too. */
void vp_memory_finish(struct vp_memory *mem) __attribute__((cold));
/* Checks the invariants. False: one is broken; which, is written to `out` if not NULL. */
bool vp_memory_check(const struct vp_memory *mem, FILE *out);
/* Reports a broken invariant on `out`, if not NULL. */
void vp_memory_breach(FILE *out, const char *what, const struct vp_region *r);
/* cuMemGetInfo of this device, whichever is current; false: unknown. And its free bytes, as far as the limit allows. */
bool vp_memory_ask_device(const struct vp_memory *mem, size_t *free_bytes, size_t *total);
size_t vp_memory_device_free(const struct vp_memory *mem);
/* Has the device memory for `bytes` in chunks (whole granules)? If less is reported free, tries to create it as one
 * chunk, and releases that at once. */
bool vp_memory_possible(struct vp_memory *mem, size_t bytes);
/* Bytes of host memory that describe the memory. */
size_t vp_memory_metadata(const struct vp_memory *mem);
/* Refiles the free regions: to be called if points were met without vp_fit_refresh() (others asked, a context
 * ended). */
void vp_memory_refile(struct vp_memory *mem);
/* Opens every mapping, present and future, to `peers` and the copiers, and to no other device. A device let in a second
 * time counts as a copier. 0; -ENOMEM or -EIO with nothing changed. */
int vp_memory_set_peers(struct vp_memory *mem, uint64_t peers);
/* Opens every mapping, present and future, for copies by `dev`, if the driver allows it. True: all is open to it
 * now. */
bool vp_memory_add_copier(struct vp_memory *mem, CUdevice dev);
