/* Bare segments: addresses without memory, for a cache that tells which bytes of them it uses (PyTorch's).
 *
 * All segments of a device lie in one space (zone VP_ZONE_BARE of its memory). A page is one granule of it. A slot is
 * four pages, aligned to four, and each slot belongs to one segment. A chunk there is a single page or a whole slot
 * (then called a body). Each page under a used block is *backed*: its mapping is the current one of its chunk, and
 * stays so. Pages under no block stay backed, too, until somebody wants memory. Only then does the segment let go of
 * them: they become free memory behind a fence, like any other, and their chunks may be mapped elsewhere.
 *
 * The same chunk at the same address needs no fence: the cache itself decides when an address may be used again. Fences
 * matter when a chunk moves: it must be ready for the segment's stream, and what was mapped at the address before is
 * unmapped only when work on it was seen over.
 *
 * Whole pages that a block takes and leaves time and again form a *run*, taken and left in one step, however many they
 * are. Whoever wants memory of a run breaks it first; from then on its pages are counted one by one.
 *
 * Locks: the cache holds a lock of its own around all that it tells of one device. Blocks are counted by atomic steps
 * under it; if all their pages are backed, nothing else is done. Everything else needs the library's lock. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/process.h"
#include "pool/bare/lifetimes.h"
#include "pool/bare/past.h"
#include "pool/pool.h"

enum { VP_SLOT_PAGES = 4 };

/* Smaller blocks are only counted: there are thousands of them, their memory is not worth an event, and they do not
 * tell what comes next. */
enum { VP_BARE_LARGE = 1 << 20 };

/* Chunks that blocks pin in part are not replaced while live bytes are at most this percentage of their peak, nor where
 * fewer pages than this would be won. */
enum { VP_BARE_TIGHT_PERCENT = 35, VP_BARE_WORTH_PAGES = 2 };

/* Single pages that a block may need, wherever it lies: other blocks may share the slots at its two ends. A slot that
 * it fills may have a body, unless single pages stay there (vp_bare_beside_kept()). */
enum { VP_BARE_ENDS = 2 * VP_SLOT_PAGES };

/* A count of pages has two halves: the lower counts all, the upper those that are, or may be, chunks of one page. */
#define VP_BARE_SINGLE ((size_t)1 << 32 | 1)
static inline size_t vp_bare_all_of(size_t count) {
    return (uint32_t)count;
}
static inline size_t vp_bare_single_of(size_t count) {
    return count >> 32;
}
/* Subtracts in each half; what would be negative is 0. */
static inline size_t vp_bare_less(size_t a, size_t b) {
    const int64_t all = (int32_t)a - (int64_t)(int32_t)b, single = (int64_t)(a >> 32) - (int64_t)(b >> 32);
    return (size_t)(single > 0 ? single : 0) << 32 | (size_t)(all > 0 ? all : 0);
}

/* vp_bare_page.word: the number of blocks in the page, and flags. A block that fills a slot is noted only in the slot's
 * first page. */
#define VP_PAGE_BLOCKS UINT32_C(0x00ffffff)
#define VP_PAGE_FILLED UINT32_C(0x01000000) /* in the first page: one block fills the slot */
#define VP_PAGE_USED (VP_PAGE_BLOCKS | VP_PAGE_FILLED)
#define VP_PAGE_BACKED UINT32_C(0x80000000) /* its mapping may be taken away only by whoever clears this */
#define VP_PAGE_PINNED UINT32_C(0x40000000) /* and this may not be cleared */
#define VP_PAGE_SHARED UINT32_C(0x20000000) /* streams other than the segment's may still use it */
/* What is mapped there is of an earlier segment, which was freed: its fence counts. */
#define VP_PAGE_STALE UINT32_C(0x10000000)
#define VP_PAGE_BODY UINT32_C(0x08000000)     /* it is part of a chunk of several pages */
#define VP_PAGE_GIVEN_UP UINT32_C(0x04000000) /* a block came, and got no memory here */

struct vp_bare_page {
    _Atomic uint32_t word;
    uint32_t rested;      /* past.now when the last block left it */
    uint32_t seq;         /* number of the stream's next event then, lower half; 0: not noted */
    _Atomic uint32_t run; /* first page of its run, plus 1; 0: none. Written under both locks */
};

/* vp_bare_run.word: the number of its pages, and: */
#define VP_RUN_USED UINT32_C(0x80000000)  /* with WHOLE: one block takes up all of it, and is counted nowhere else */
#define VP_RUN_WHOLE UINT32_C(0x40000000) /* all its pages are backed, and stay so except by whoever clears this */
#define VP_RUN_PAGES UINT32_C(0x3fffffff)

/* Fewer pages are counted one by one, which is as fast. */
enum { VP_RUN_LEAST = 2 };

/* A run, indexed by its first page. What was noted of its pages before it was made stays noted there, and counts
 * too. */
struct vp_bare_run {
    _Atomic uint32_t word; /* 0: no run begins there */
    uint32_t block_pages;  /* of the last block that left here and was counted one by one; 0: none since a run broke */
    uint32_t last;         /* its last use, in the past; 0: none since it was made */
    uint32_t rested, seq;  /* as for a page */
    uint32_t single;       /* those of its pages that are chunks of one page */
    bool unnumbered;       /* its last block left without an event number */
};

struct vp_bare_segment {
    struct vp_region whole;               /* the segment as a live block; `bare` is set */
    struct vp_list link;                  /* in vp_bare.segments */
    struct vp_timeline *_Atomic timeline; /* whose work touches it; NULL: unknown, or no longer known */
    CUstream handle;                      /* the cache's name for that stream */
    bool pinned;                          /* all that is backed stays so */
    bool unsplit;                /* a block may take all of it, whatever was asked for. Under the cache's lock */
    _Atomic unsigned doubted_at; /* as vp_bare.doubted_at */
    _Atomic bool pins_pages;     /* some of its pages are pinned, or were */
    _Atomic uint64_t live;       /* bytes of its blocks; guarded as vp_bare.live */
};

struct vp_bare_slot {
    struct vp_bare_segment *segment;
    uint32_t last;        /* its last use, in the past */
    uint32_t expects;     /* when a block comes first, by a plan: past.now by then; 0: it names none */
    uint32_t rested, seq; /* as for a page: of the block that filled the slot */
    bool unnumbered;      /* that block left without an event number */
    unsigned char inside; /* pages with blocks that do not fill the slot. Under the cache's lock */
};

/* A chunk that is idle, and may be taken. */
struct vp_bare_idle {
    struct vp_chunk *chunk;
    uint32_t next;   /* its next use, as far as expected */
    uint32_t rested; /* past.now when its last block left it */
};

/* A block that came without a request for room, or that was left in doubt and waits for others' work: unasked.c. */
struct vp_bare_unasked {
    CUdeviceptr addr;
    size_t size;
    bool is_new; /* none of its whole pages had memory before */
    bool lacks;  /* it has no memory yet */
};
enum { VP_BARE_UNASKED = 4096, VP_BARE_UNASKED_BACKED = 64 };

enum vp_bare_kind { VP_BARE_BODIES, VP_BARE_PAGES, VP_BARE_OTHERS, VP_BARE_IDLE_KINDS };

struct vp_bare {
    struct vp_pool *pool;
    CUdeviceptr base;
    size_t size; /* bytes of the space */
    size_t most; /* most bytes of all segments together */
    size_t addressed, peak_addressed;
    struct vp_bare_page *pages; /* in anonymous memory, with the slots and runs behind */
    struct vp_bare_slot *slots;
    struct vp_bare_run *runs;  /* by page */
    size_t bytes;              /* of pages, slots and runs together */
    _Atomic size_t waste_most; /* bytes lost in chunks up to which nothing is replaced */
    struct vp_list segments;   /* of vp_bare_segment.link, by address; owned */
    struct vp_slab segment_slab;
    struct vp_bare_past past;
    struct vp_lifetimes *lifetimes; /* NULL: nothing is to be learnt */
    /* Written by whoever holds the cache's lock, read by all. */
    _Atomic uint64_t uses, ends;   /* blocks used and freed so far */
    uint64_t uses_told, ends_told; /* how many of these are in the pool's statistics */
    size_t asked;                  /* size that room was asked for last. Under the cache's lock */
    _Atomic uint64_t live;         /* bytes of blocks */
    _Atomic uint64_t peak;         /* the peak of `live` and `other` together */
    _Atomic uint64_t other;        /* other live bytes, when last looked at */
    _Atomic size_t used;           /* pages of chunks with blocks in them; a count */
    _Atomic unsigned promises;     /* odd: room is promised to a block that has yet to come */
    _Atomic unsigned lapsed;       /* promises followed by another before a block came */
    _Atomic uint64_t promised_to;  /* the thread that got the last promise, or freed a block in doubt */
    _Atomic unsigned doubted_at;   /* promises + 1 when a block was freed that may come back: vp_bare_doubt() */
    _Atomic bool has_come; /* the block has come, and its thread waits for the library's lock, or for memory (`owed`) */
    _Atomic bool held_up;  /* its thread waits for that lock before the block has come */
    _Atomic size_t bounds; /* pages that may be used, as memory for them is held; a count; 0: not known */
    size_t singles;        /* single pages that a block of so many pages or more may need. Under the cache's lock */
    size_t counted;        /* further pages that the device had when it was asked. Under the cache's lock */
    bool pressed;          /* when room was last made there was only what a block touches. Under the cache's lock */
    uint64_t counted_until; /* time (ns) to ask the device again, as other processes take from it, too */
    /* Idle chunks, the best first. Some may be in use again. */
    struct {
        struct vp_bare_idle *list; /* anonymous memory; owned */
        size_t count, next, room;
    } idle[VP_BARE_IDLE_KINDS];
    bool idle_listed;
    bool idle_unready;        /* since they were listed some were passed over, as work on them was not over */
    uint32_t idle_at;         /* past.now when they were listed */
    uint64_t idle_releases;   /* number of chunks released by then */
    struct vp_chunk **chunks; /* scratch for `chunk_room` chunks; owned */
    size_t chunk_room;
    bool hoards;            /* the cache keeps many more addresses than it uses */
    bool gave_up;           /* some block must do without memory: what is used need not be held */
    bool unsplit;           /* some segment is unsplit */
    bool gives;             /* the cache was asked to give some back: it needs what it frees now at once */
    struct vp_fence others; /* while it hoards: work of other streams on blocks, which it has yet to see free */
    bool others_unnoted;    /* there may be more such work, from before */
    unsigned short_of; /* times the block has lacked memory: if any, it pins no chunk in part, whatever that costs */
    CUdeviceptr backs; /* address of the block that is being backed */
    size_t backs_size;
    uint64_t not_before;     /* no wait for pending memory before this time (ns) */
    unsigned fruitless;      /* waits in vain in a row */
    uint64_t let_go;         /* bytes of large blocks freed since the last event for them */
    _Atomic uint32_t filled; /* past.now when chunks last moved; pinning moves some without the cache's lock */
    struct vp_bare_unasked unasked[VP_BARE_UNASKED]; /* since room was last asked for; further ones are forgotten */
    unsigned unasked_count;
    CUdeviceptr unasked_at; /* segment of the last of them */
    bool pins;              /* memory is being made to be pinned, maybe without the cache's lock: nothing is counted */
    bool counts_anew;       /* that has been done: `used` must be counted anew */
    size_t owed;            /* pages that used blocks lack, whose threads wait for memory without the lock */
    uint64_t unasked_captures; /* captures begun when the last of `unasked` came */
};

/* The bare segments of the device, made at the first call. NULL: no addresses, or out of memory. */
struct vp_bare *vp_bare_of(struct vp_pool *pool) __attribute__((cold));
void vp_bare_finish(struct vp_bare *bare) __attribute__((cold));
size_t vp_bare_metadata(const struct vp_bare *bare);

/* Makes a segment of `size` bytes (a multiple of the granularity) for work of one stream (NULL: of any). 0; -ENOMEM: no
 * addresses are left. */
int vp_bare_add(struct vp_pool *pool, size_t size, struct vp_context *ctx, struct vp_timeline *timeline,
                struct vp_bare_segment **out);
/* Ends a segment; `fence` covers all work on it. */
void vp_bare_remove(struct vp_pool *pool, struct vp_bare_segment *segment, struct vp_fence *fence);
/* A context has ended: ends its segments. */
void vp_bare_drop_context(struct vp_pool *pool, const struct vp_context *ctx);
/* From now on the stream of the segment is unknown. */
void vp_bare_forget_stream(struct vp_pool *pool, struct vp_bare_segment *segment);
/* A timeline ends: so do its segments' ties to it. */
void vp_bare_close_timeline(struct vp_pool *pool, const struct vp_timeline *timeline);

/* Is there memory for a block of that size? True at once while there is plenty. If false, call vp_bare_make_room()
 * under the lock: 0; -EAGAIN: pending work may free some, ask again; -ENOMEM.
 *
 * Pages count, not bytes of blocks: a few bytes pin a page. */
enum { VP_BARE_ROOM_PAGES = 2 + 2 * VP_SLOT_PAGES };

static inline size_t vp_bare_used_bytes(const struct vp_bare *bare) {
    return vp_bare_all_of(atomic_load_explicit(&bare->used, memory_order_relaxed)) << bare->pool->mem.granularity_shift;
}

/* Pages that a block touches, for which memory must be held; for others the device may be relied on. A large block may
 * keep a rest of up to a MiB that the cache does not split off: one page more, with pages of the usual size. */
static inline size_t vp_bare_touched(const struct vp_bare *bare, size_t size) {
    const struct vp_memory *mem = &bare->pool->mem;
    return ((size + mem->granularity - 1) >> mem->granularity_shift) + 1 + (size > VP_BARE_LARGE);
}
bool vp_bare_counts_on(const struct vp_bare *bare, size_t pages);

static inline bool vp_bare_roomy(const struct vp_bare *bare, size_t size) {
    const size_t used = atomic_load_explicit(&bare->used, memory_order_relaxed), touched = vp_bare_touched(bare, size),
                 bounds = atomic_load(&bare->bounds), all = vp_bare_all_of(used) + touched;
    const size_t needs = touched < bare->singles ? touched : bare->singles, most = vp_bare_all_of(bounds);
    const size_t single = vp_bare_single_of(used) + needs, singles = vp_bare_single_of(bounds);
    const size_t room = bare->pressed ? 0 : VP_BARE_ROOM_PAGES;
    const size_t lacks = (single > singles ? single - singles : 0) + (all + room > most ? all + room - most : 0);
    return !lacks || (all <= most && vp_bare_counts_on(bare, lacks));
}
/* Makes and ends a promise of room for a block. Under the cache's lock: promise first, and then check whether there is
 * room. Other threads first make the room unsure (vp_bare_forget_bounds) and then check for a promise. So one of the
 * two sees the other. */
void vp_bare_promise(struct vp_bare *bare);
void vp_bare_promise_end(struct vp_bare *bare);
/* Was the open promise made to this thread? */
bool vp_bare_promised_here(const struct vp_bare *bare);

/* When a cache sets a pool back to a checkpoint, it reports all its blocks as unused, and then those that stay as used,
 * with their old contents; all on one thread, with its lock held. So what blocks have left is *in doubt*, segment by
 * segment, and keeps its memory. That ends when another thread reports something or asks for room, which needs the
 * cache's lock, too (vp_bare_doubt_anew()), or when this thread does something else (vp_bare_proceed()). */
void vp_bare_doubt_anew(struct vp_bare *bare) __attribute__((cold));
void vp_bare_proceed(struct vp_bare *bare);

/* To be called under the cache's lock, before a block that may come back is reported as unused. */
static inline void vp_bare_doubt(struct vp_bare *bare, struct vp_bare_segment *segment) {
    const unsigned odd = atomic_load_explicit(&bare->promises, memory_order_relaxed) & 1;
    if (odd || atomic_load_explicit(&bare->promised_to, memory_order_relaxed) != vp_thread_id())
        vp_bare_doubt_anew(bare); /* and no promised block comes any more */
    const unsigned now = atomic_load_explicit(&bare->promises, memory_order_relaxed) + 1;
    atomic_store_explicit(&bare->doubted_at, now, memory_order_relaxed);
    atomic_store_explicit(&segment->doubted_at, now, memory_order_relaxed);
}

static inline bool vp_bare_doubts(const struct vp_bare *bare, const _Atomic unsigned *doubted_at) {
    return __builtin_expect(*doubted_at == atomic_load(&bare->promises) + 1, false);
}

/* To be called before others take memory of the pool, or give it back: waits, without the lock, until the block has
 * come that room was promised to on another thread. That takes a moment. The wait ends if that thread has slept for
 * VP_BARE_PATIENCE_NS without a break, or has run for as long, or after VP_BARE_BUSY_NS in all, including blocks
 * promised room in its place; unless the thread waits for the lock. A block that has come but waits for memory may wait
 * for something that this thread has yet to do: after VP_BARE_BUSY_NS nobody waits for it, but the memory it needs is
 * still kept for it (vp_bare_is_owed()). True: it has waited. */
enum { VP_BARE_PATIENCE_NS = 50000000, VP_BARE_BUSY_NS = 2000000000 };
bool vp_bare_await_block(struct vp_pool *pool);
static inline bool vp_bare_await(struct vp_pool *pool) {
    return __builtin_expect(pool->bare != NULL, false) && vp_bare_await_block(pool);
}
/* When memory is short: waits until nothing is in doubt, as long as that thread may be about to report more. */
bool vp_bare_await_told(struct vp_pool *pool);
static inline bool vp_bare_await_all(struct vp_pool *pool) {
    const bool waited = vp_bare_await(pool);
    return vp_bare_await_told(pool) || waited;
}

/* To be called when others have taken memory or given it back: what room there is must be found out anew. */
static inline void vp_bare_forget_bounds(struct vp_pool *pool) {
    if (pool->bare)
        atomic_store(&pool->bare->bounds, 0);
}
int vp_bare_make_room(struct vp_pool *pool, size_t size, struct vp_timeline *timeline, bool pressed);

/* Is memory kept for a block of another thread that has yet to come, or to get its memory? Then nothing may go back. */
bool vp_bare_is_owed(struct vp_pool *pool);
/* lacks: does a used block wait for memory, which it must get? leaves: may others have `bytes` of whole idle chunks and
 * of the device, with enough left for that block? */
static inline bool vp_bare_lacks(const struct vp_pool *pool) {
    return __builtin_expect(pool->bare && pool->bare->owed, false);
}
bool vp_bare_leaves(const struct vp_pool *pool, size_t bytes);
/* Pages that may be needed to back a block. */
size_t vp_bare_need(const struct vp_bare *bare, CUdeviceptr addr, size_t size);
/* The block got no memory, and is used all the same. */
void vp_bare_give_up(struct vp_bare *bare, CUdeviceptr addr, size_t size);

/* A block is used. True: its pages are backed, and nothing is left to do. False: call vp_bare_back() under the
 * library's lock. */
bool vp_bare_use(struct vp_bare *bare, CUdeviceptr addr, size_t size);
/* Backs the pages of a used block. 0; -EAGAIN: pending work is in the way, retry after a moment (completed work was
 * just polled for); -ENOMEM; -EIO. `patient`: it may also return -EAGAIN to save memory. */
int vp_bare_back(struct vp_pool *pool, CUdeviceptr addr, size_t size, bool patient);
/* The same with the waits: pauses as the pool does. -ENODEV: the segment has ended meanwhile. */
int vp_bare_back_waiting(struct vp_pool *pool, CUdeviceptr addr, size_t size) __attribute__((cold));
/* A block is not used any more. unuse: a small one, without the library's lock. unuse_large: a large one, likewise;
 * false if more must be noted: call unuse_locked, under the lock. That is also for a block with a `barrier`, which
 * streams other than the segment's may still use; it returns true if the block is to be let go of soon. */
void vp_bare_unuse(struct vp_bare *bare, CUdeviceptr addr, size_t size);
bool vp_bare_unuse_large(struct vp_bare *bare, const struct vp_bare_segment *segment, CUdeviceptr addr, size_t size);
bool vp_bare_unuse_locked(struct vp_pool *pool, CUdeviceptr addr, size_t size, bool barrier);
/* Backs [addr, addr + size) of one segment, used or not, and pins it until the segment ends. As vp_bare_back_waiting(),
 * but only waits for seconds (then -ENOMEM). The cache's lock need not be held: blocks may come and go there
 * meanwhile. */
int vp_bare_pin_range(struct vp_pool *pool, CUdeviceptr addr, size_t size) __attribute__((cold));
/* Pins the segment: all that is backed in it, or will be, stays so. */
void vp_bare_pin_segment(struct vp_pool *pool, struct vp_bare_segment *segment);

/* Adds all work of every context so far: it is not known which of it touches the bytes. 0 or -ENOMEM. */
int vp_bare_barrier(struct vp_pool *pool, struct vp_fence *fence);

/* Lets go of all pages under no block: they become free memory. */
void vp_bare_flush(struct vp_pool *pool);
/* Brings the pool's statistics up to date. */
void vp_bare_count(struct vp_pool *pool);
/* Bytes under no block that nobody else gets: a graph writes there, or others were shown them. Looks at all pages of
 * segments that have such. */
uint64_t vp_bare_stays(const struct vp_pool *pool);
bool vp_bare_check(const struct vp_pool *pool, FILE *out);

/* ---- dense.c ---- */

/* Should the cache give back its unused segments before it gets one of `size` bytes? Then it is told that there is no
 * memory; it gives back, and asks again. That second request must not be refused. */
bool vp_bare_crowded(struct vp_pool *pool, size_t size);
/* May `size` bytes in a row be under no block? Under both locks. */
bool vp_bare_has_place(const struct vp_bare *bare, size_t size);
/* A block was freed that streams other than its segment's may still use. */
void vp_bare_others_use(struct vp_bare *bare);

/* ---- fill.c ---- */

/* Maps chunks into the pages [first, end), where nothing is mapped, for a block of `size` bytes in `segment`. Returns
 * as vp_bare_back(). */
int vp_bare_fill(struct vp_pool *pool, struct vp_bare_segment *segment, size_t first, size_t end, size_t size,
                 bool patient);
/* Gives back some idle memory beyond what may be held. True: there is more. */
bool vp_bare_shrink(struct vp_pool *pool);

/* ---- idle.c ---- */

/* A list in anonymous memory, with room for `least` entries of `size` bytes; old contents are lost. NULL: no memory. */
void *vp_bare_grow(void *list, size_t *room, size_t least, size_t size);
/* Lists the idle chunks, unless the list is still good. A listed chunk exists, but may be in use again. False: out of
 * memory for the lists. */
bool vp_bare_know_idle(struct vp_pool *pool);
/* Is `a` needed later than `b`? */
bool vp_bare_better(const struct vp_bare_idle *a, const struct vp_bare_idle *b);
/* Is the chunk under no block, and not pinned by anything else? */
bool vp_bare_is_idle(const struct vp_pool *pool, const struct vp_chunk *chunk);
/* Counts all held pages that a block may have as they are; with `ready`, only those on which work is over. check_room:
 * is as much memory held as may be used according to `bounds`? */
size_t vp_bare_idle_pages(const struct vp_pool *pool, bool ready);
/* Single pages that a block may need in slots that it fills, of those from page `first` up to `end`: other single pages
 * stay there, as a graph uses them or others were shown them, and no body fits beside them. most: in any segment. */
size_t vp_bare_beside_kept(const struct vp_bare *bare, const struct vp_bare_segment *segment, size_t first, size_t end);
size_t vp_bare_most_beside_kept(const struct vp_bare *bare);
bool vp_bare_check_room(const struct vp_pool *pool, FILE *out);
/* lacking: pages of a block without memory. may_go: may a chunk of `pages` pages go back to the device, where another
 * process may take it? Only if the block that is being backed has what it lacks without it. */
size_t vp_bare_lacking(const struct vp_bare *bare, CUdeviceptr addr, size_t size);
bool vp_bare_may_go(const struct vp_pool *pool, size_t pages);
/* Bytes that may be held before chunks are moved rather than created. */
size_t vp_bare_cap(const struct vp_pool *pool);
/* Is memory so short that a chunk with `n` pages that a block does not need is to be replaced by smaller ones? */
bool vp_bare_tight(const struct vp_pool *pool, size_t n);
/* Is so much lost, with `n` pages more, that a chunk whose loss is known to be in vain is to be replaced? */
bool vp_bare_loses(const struct vp_pool *pool, size_t n);

/* ---- page.c, for the others ---- */

/* Lets go of the pages of one mapping if no block lies in them. True: they are free memory now. _all: all mappings in
 * the pages [first, end), under the cache's lock: no block is freed meanwhile, and one barrier is enough. */
bool vp_bare_let_go(struct vp_pool *pool, const struct vp_mapping *m);
bool vp_bare_let_go_all(struct vp_pool *pool, size_t first, size_t end);
/* Backs a mapping that is current and free, for a segment. 0 or -ENOMEM. */
int vp_bare_keep(struct vp_pool *pool, const struct vp_bare_segment *segment, const struct vp_mapping *m);
/* Adds `pages`, a count that may be negative, to the pages of chunks with blocks. */
void vp_bare_count_used(struct vp_bare *bare, size_t pages);
/* Counts these anew if that is due. Under both locks. */
void vp_bare_count_anew(struct vp_bare *bare);
/* Adds `pages`, a count that may be negative, to `bounds` if that is known. Under the lock. */
void vp_bare_count_held(struct vp_bare *bare, size_t pages);
static inline size_t vp_bare_count_of(size_t pages) {
    return pages == 1 ? VP_BARE_SINGLE : pages;
}
/* Pages without a block in the slot of `page`, if the slot's chunk is a body and has blocks. */
size_t vp_bare_pinned_in(const struct vp_bare *bare, size_t page);

/* ---- unasked.c ---- */

/* Had none of the block's whole pages memory before? To be asked before it is backed. */
bool vp_bare_unasked_is_new(const struct vp_bare *bare, CUdeviceptr addr, size_t size);
/* Remembers the block: true; false: there are too many. */
bool vp_bare_unasked_add(struct vp_bare *bare, CUdeviceptr addr, size_t size, bool is_new, bool lacks);
/* A block is not used any more: other blocks may get its memory. */
void vp_bare_unasked_left(struct vp_pool *pool, CUdeviceptr addr, size_t size);
/* Tries to back the blocks that lack memory; of those that are gone, lets go of what other streams use. */
void vp_bare_unasked_retry(struct vp_pool *pool);

/* Is room promised to a block? */
static inline bool vp_bare_promised(const struct vp_bare *bare) {
    return atomic_load_explicit(&bare->promises, memory_order_relaxed) & 1;
}

/* ---- run.c ---- */

/* A block counted page by page has left the whole pages [first, end); under both locks. If it did so the last time,
 * too, they become a run. */
void vp_bare_run_left(struct vp_bare *bare, size_t first, size_t end, uint32_t seq);
/* Breaks the run of a page, for whoever wants its memory. False: the run is in use. */
bool vp_bare_run_break(struct vp_bare *bare, size_t page);
/* Counts a used block page by page from now on, and not as a run. Under both locks. */
void vp_bare_run_open(struct vp_bare *bare, CUdeviceptr addr, size_t size);
/* Ends all runs in the pages [first, end) of a segment. */
void vp_bare_run_forget(struct vp_bare *bare, size_t first, size_t end);
/* The run that a page is in; NULL: none. */
static inline struct vp_bare_run *vp_bare_run_of(const struct vp_bare *bare, size_t page) {
    const uint32_t run = atomic_load_explicit(&bare->pages[page].run, memory_order_relaxed);
    return run ? &bare->runs[run - 1] : NULL;
}
bool vp_bare_run_check(const struct vp_bare *bare, size_t page);

/* ---- where ---- */

/* Where a block lies: pages [first, end) that it touches; pages [whole, stop) that it fills alone; the slots of its
 * first and its last page, and whether other blocks may share them. */
struct vp_bare_extent {
    size_t first, end, whole, stop;
    size_t head, tail;
    bool head_shared, tail_shared;
};

static inline size_t vp_bare_page(const struct vp_bare *bare, CUdeviceptr addr) {
    return (addr - bare->base) >> bare->pool->mem.granularity_shift;
}

/* The segment of an address; NULL: none. */
static inline struct vp_bare_segment *vp_bare_at(const struct vp_bare *bare, CUdeviceptr addr) {
    if (!bare || addr - bare->base >= bare->size)
        return NULL;
    struct vp_bare_segment *segment = bare->slots[vp_bare_page(bare, addr) / VP_SLOT_PAGES].segment;
    return segment && addr < vp_region_end(&segment->whole) ? segment : NULL;
}

static inline CUdeviceptr vp_bare_addr(const struct vp_bare *bare, size_t page) {
    return bare->base + ((CUdeviceptr)page << bare->pool->mem.granularity_shift);
}

static inline size_t vp_bare_pages(const struct vp_pool *pool, const struct vp_chunk *chunk) {
    return chunk->size >> pool->mem.granularity_shift;
}

/* Does the block fill the slot? */
static inline bool vp_bare_fills(const struct vp_bare_extent *x, size_t slot) {
    return slot * VP_SLOT_PAGES >= x->whole && (slot + 1) * VP_SLOT_PAGES <= x->stop;
}

static inline struct vp_bare_extent vp_bare_extent(const struct vp_bare *bare, CUdeviceptr addr, size_t size) {
    const unsigned shift = bare->pool->mem.granularity_shift;
    const size_t at = addr - bare->base, mask = ((size_t)1 << shift) - 1;
    struct vp_bare_extent x = {.first = at >> shift,
                               .end = ((at + size - 1) >> shift) + 1,
                               .whole = (at + mask) >> shift,
                               .stop = (at + size) >> shift};
    x.head = x.first / VP_SLOT_PAGES;
    x.tail = (x.end - 1) / VP_SLOT_PAGES;
    x.head_shared = !vp_bare_fills(&x, x.head);
    x.tail_shared = x.tail != x.head && !vp_bare_fills(&x, x.tail);
    return x;
}

/* A page's word, with what is noted in its slot and its run. */
static inline uint32_t vp_bare_word(const struct vp_bare *bare, size_t page) {
    const size_t head = page / VP_SLOT_PAGES * VP_SLOT_PAGES;
    const struct vp_bare_run *run = vp_bare_run_of(bare, page);
    return atomic_load(&bare->pages[page].word) | (atomic_load(&bare->pages[head].word) & VP_PAGE_FILLED) |
           (run && atomic_load(&run->word) & VP_RUN_USED ? VP_PAGE_FILLED : 0);
}

static inline uint32_t vp_bare_words(const struct vp_bare *bare, size_t first, size_t end) {
    uint32_t all = 0;
    for (size_t p = first; p < end; p++)
        all |= vp_bare_word(bare, p);
    return all;
}

/* Is what is mapped there of an earlier segment, whose fence counts? */
static inline bool vp_bare_stale(const struct vp_bare *bare, const struct vp_mapping *m) {
    return atomic_load(&bare->pages[vp_bare_page(bare, m->addr)].word) & VP_PAGE_STALE;
}

/* Each mapping in a range of pages, current or not. `at` and `end` are pages; does nothing where none are mapped. */
static inline struct vp_mapping *vp_bare_mapping_from(const struct vp_bare *bare, size_t *at, size_t end) {
    while (*at < end) {
        struct vp_mapping *m = vp_mapping_at(&bare->pool->mem, vp_bare_addr(bare, *at));
        if (m) {
            *at = vp_bare_page(bare, m->addr) + vp_bare_pages(bare->pool, m->chunk);
            return m;
        }
        ++*at;
    }
    return NULL;
}

#define vp_bare_mappings_each(m, bare, first, end)                                                                     \
    for (size_t at_ = (first), end_ = (end); (m = vp_bare_mapping_from(bare, &at_, end_));)
