/* Bare segments: addresses without memory, for a cache that tells which bytes of them it uses (PyTorch's).
 *
 * All segments of a device lie in one space (VP_ZONE_BARE of its memory). A page is a granule of it. Four pages from a
 * multiple of four on are a slot, and a segment has slots to itself; a chunk there is one page, or all of a slot (its
 * body). Under a block that is used each page is *backed*: its mapping is the current one of its chunk, and stays so.
 * Pages under no block stay backed, too, until somebody wants memory: only then are they let go of, behind a fence,
 * and are free memory like any other, whose chunks may be mapped elsewhere.
 *
 * The same chunk under the same address needs no condition: the cache itself decides when an address may be used again.
 * Conditions matter when a chunk moves: the memory must be ready for the segment's stream, and what is mapped at the
 * address until then is unmapped only when work on it was seen over.
 *
 * Whole pages that a block takes and leaves time and again are a *run*: taken as one, and left as one, however many
 * they are. Who wants memory of theirs breaks the run first; from then on its pages are counted one by one.
 *
 * Locks: the cache holds one of its own around everything that it tells of one device. Blocks are counted, by atomic
 * steps; where all pages are backed, that is all. Everything else is under the lock of the library. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/process.h"
#include "pool/bare/past.h"
#include "pool/pool.h"

enum { VP_SLOT_PAGES = 4 };

/* Smaller blocks are told of by counts alone: they come by the thousand, and neither is their memory worth an event,
 * nor do they say what comes next. */
enum { VP_BARE_LARGE = 1 << 20 };

/* Chunks that blocks pin for a part are let be while no more of the most that was alive is, in percent; and where fewer
 * pages would be won than this. */
enum { VP_BARE_TIGHT_PERCENT = 35, VP_BARE_WORTH_PAGES = 2 };

/* Single pages that a block may need, wherever it comes to lie: in the slots at its ends others may have a part. A slot
 * that it fills may have a chunk of its own. */
enum { VP_BARE_ENDS = 2 * VP_SLOT_PAGES };

/* Pages are counted together with those of them that are, or may be, chunks of their own: these in the upper half. */
#define VP_BARE_SINGLE ((size_t)1 << 32 | 1)
static inline size_t vp_bare_all_of(size_t count) {
    return (uint32_t)count;
}
static inline size_t vp_bare_single_of(size_t count) {
    return count >> 32;
}
/* What is left of the one without the other; none of either kind is less than none. */
static inline size_t vp_bare_less(size_t a, size_t b) {
    const int64_t all = (int32_t)a - (int64_t)(int32_t)b, single = (int64_t)(a >> 32) - (int64_t)(b >> 32);
    return (size_t)(single > 0 ? single : 0) << 32 | (size_t)(all > 0 ? all : 0);
}

/* vp_bare_page.word: how many blocks lie in the page, and what else there is to it. A block that fills a slot is noted
 * in the slot's first page alone. */
#define VP_PAGE_BLOCKS UINT32_C(0x00ffffff)
#define VP_PAGE_FILLED UINT32_C(0x01000000) /* first page: one block fills the slot */
#define VP_PAGE_USED (VP_PAGE_BLOCKS | VP_PAGE_FILLED)
#define VP_PAGE_BACKED UINT32_C(0x80000000) /* its mapping may not be taken away but by whoever clears this */
#define VP_PAGE_PINNED UINT32_C(0x40000000) /* nor may this be cleared */
#define VP_PAGE_SHARED UINT32_C(0x20000000) /* other streams than the segment's may still use it */
/* What lies there is another segment's, which was freed: its fence counts. */
#define VP_PAGE_STALE UINT32_C(0x10000000)
#define VP_PAGE_BODY UINT32_C(0x08000000)     /* its chunk has more pages */
#define VP_PAGE_GIVEN_UP UINT32_C(0x04000000) /* a block came, and got no memory here */

struct vp_bare_page {
    _Atomic uint32_t word;
    uint32_t rested;      /* past.now, when the last block left it */
    uint32_t seq;         /* the number of the stream's next event then, its lower half; 0: not noted */
    _Atomic uint32_t run; /* the first page of the run that it is in, and 1; 0: none. Written under both locks */
};

/* vp_bare_run.word: how many pages it has, and: */
#define VP_RUN_USED UINT32_C(0x80000000)  /* one block takes up all of it, and is counted nowhere else; if whole */
#define VP_RUN_WHOLE UINT32_C(0x40000000) /* all its pages are backed, and stay so but by whoever clears this */
#define VP_RUN_PAGES UINT32_C(0x3fffffff)

/* Fewer pages are counted one by one: that is as fast. */
enum { VP_RUN_LEAST = 2 };

/* By its first page. What was noted of its pages before it was made stays noted there, and counts, too. */
struct vp_bare_run {
    _Atomic uint32_t word; /* 0: none begins there */
    uint32_t left; /* pages of the block that left last from here on, counted one by one; 0: since it broke, none */
    uint32_t last; /* use of it, in the past; 0: not since it was made */
    uint32_t rested, seq; /* as of a page */
    uint32_t single;      /* pages of it that are chunks of their own */
    bool late;            /* its block left it with no event noted */
};

struct vp_bare_segment {
    struct vp_region whole;               /* live and bare */
    struct vp_list link;                  /* vp_bare.segments */
    struct vp_timeline *_Atomic timeline; /* whose work touches it; NULL: not known, or not any more */
    CUstream handle;                      /* that the cache names that one by */
    bool pinned;                          /* all that is backed stays so */
    bool unsplit;                         /* a block may be all of it, whatever is asked for. Under the cache's lock */
    _Atomic unsigned left;                /* as vp_bare.left */
    _Atomic bool pins_pages;              /* some pages of it are pinned, or were */
    _Atomic uint64_t live;                /* bytes of its blocks; as vp_bare.live */
};

struct vp_bare_slot {
    struct vp_bare_segment *segment;
    uint32_t last;        /* use of it, in the past */
    uint32_t rested, seq; /* as of a page: of what filled the slot */
    bool late;            /* that left it with no event noted */
    unsigned char inside; /* pages with blocks that do not fill it. Under the cache's lock */
};

/* A chunk that may be had. */
struct vp_bare_idle {
    struct vp_chunk *chunk;
    uint32_t next;   /* use of it, as far as expected */
    uint32_t rested; /* past.now, when its last block left it */
};

/* A block that no room was asked for, or that was left in doubt, and for others' work to end: unasked.c. */
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
    size_t size; /* of the space */
    size_t most; /* bytes that all segments may have together */
    size_t addressed, peak_addressed;
    struct vp_bare_page *pages; /* anonymous memory, with the slots and the runs behind */
    struct vp_bare_slot *slots;
    struct vp_bare_run *runs;  /* by page */
    size_t bytes;              /* of them all */
    _Atomic size_t waste_most; /* bytes lost in chunks before it may be too much */
    struct vp_list segments;   /* of vp_bare_segment.link, by address; owned */
    struct vp_slab segment_slab;
    struct vp_bare_past past;
    /* Written by who holds the cache's lock, read by all. */
    _Atomic uint64_t uses, ends;   /* blocks used, and freed, so far */
    uint64_t uses_told, ends_told; /* of them, in the pool's statistics */
    size_t asked;                  /* what room was asked for last. Under the cache's lock */
    _Atomic uint64_t live;         /* bytes of blocks */
    _Atomic uint64_t peak;         /* most of that and of what else was live */
    _Atomic uint64_t other;        /* what else was live when last looked at */
    _Atomic size_t used;           /* pages of chunks with blocks in them; a count, as below */
    _Atomic unsigned promises;     /* odd: room was made sure of for a block that has yet to come */
    _Atomic unsigned lapsed;       /* so many were followed by another, and no block has come */
    _Atomic uint64_t promised_to;  /* the thread that was the last to be promised any, or to free a block in doubt */
    _Atomic unsigned left;         /* promises, and 1, when a block was freed that may come back: vp_bare_doubt() */
    _Atomic bool has_come;         /* it has, and its thread waits for the library's lock, or for memory: `owed` */
    _Atomic bool held_up;          /* its thread waits for that lock before it has come */
    _Atomic size_t bounds;         /* so many may be used, for which memory is held; a count; 0: not known */
    size_t counted;         /* and so many more, which the device had when it was asked. Under the cache's lock */
    bool pressed;           /* there was no more than a block touches, when room was made last. So is this */
    uint64_t counted_until; /* when it is asked again: other processes take from it, too */
    /* Chunks that may be had, the best first. Some may be in use again. */
    struct {
        struct vp_bare_idle *list; /* anonymous memory */
        size_t count, next, room;
    } idle[VP_BARE_IDLE_KINDS];
    bool idle_listed;
    bool idle_unready;        /* since then some were passed over, work on which was not over */
    uint32_t idle_at;         /* past.now, when they were listed */
    uint64_t idle_releases;   /* and how many chunks had been released before */
    struct vp_chunk **chunks; /* scratch: room for so many */
    size_t chunk_room;
    bool hoards;            /* the cache keeps many more addresses than it uses */
    bool gave_up;           /* a block has to do without memory: what is used need not be held */
    bool unsplit;           /* some segment is */
    bool gives;             /* it was asked to give some back: what it frees now it has use for at once */
    struct vp_fence others; /* work of other streams on blocks that it has yet to see free, while it hoards */
    bool others_unnoted;    /* there may be more of it, from before */
    unsigned short_of; /* so often a block has lacked memory: then it pins no chunk for a part, whatever that costs */
    CUdeviceptr backs; /* the block that is being backed, and its size */
    size_t backs_size;
    uint64_t not_before;     /* no wait for such until then */
    unsigned fruitless;      /* waits in a row */
    uint64_t let_go;         /* bytes of large blocks since an event was recorded for them */
    _Atomic uint32_t filled; /* past.now, when chunks last moved; what is pinned moves them without the cache's lock */
    struct vp_bare_unasked unasked[VP_BARE_UNASKED]; /* since room was asked for last; of more nothing is known */
    unsigned unasked_count;
    CUdeviceptr unasked_at; /* the segment of the last of them */
    bool pins;        /* memory is being made for what is pinned, perhaps without the cache's lock: it counts nothing */
    bool counts_anew; /* and that has been: `used` is to be counted anew */
    size_t owed;      /* pages that a block in use lacks, whose thread waits for memory without the lock */
    uint64_t unasked_captures; /* captures that had begun, when the last of them came */
};

/* What there is of bare segments on the device; made when first asked for. NULL: no addresses, or no memory for it. */
struct vp_bare *vp_bare_of(struct vp_pool *pool) __attribute__((cold));
void vp_bare_finish(struct vp_bare *bare) __attribute__((cold));
size_t vp_bare_metadata(const struct vp_bare *bare);

/* A new segment of `size` bytes (a multiple of the granularity) for the work of one stream (NULL: of any). 0; -ENOMEM:
 * no addresses are left. */
int vp_bare_add(struct vp_pool *pool, size_t size, struct vp_context *ctx, struct vp_timeline *timeline,
                struct vp_bare_segment **out);
/* Ends a segment, all work on which `fence` tells of. */
void vp_bare_remove(struct vp_pool *pool, struct vp_bare_segment *segment, struct vp_fence *fence);
/* A context has ended: so have its segments. */
void vp_bare_drop_context(struct vp_pool *pool, const struct vp_context *ctx);
/* Its stream is not known any more. */
void vp_bare_forget_stream(struct vp_pool *pool, struct vp_bare_segment *segment);
/* A timeline ends: so does what is known of segments of its. */
void vp_bare_close_timeline(struct vp_pool *pool, const struct vp_timeline *timeline);

/* Will a block of that size find memory? True at once while there is plenty. False: ask vp_bare_make_room(), with the
 * lock: 0; -EAGAIN: pending work may free some, ask again; -ENOMEM.
 *
 * What counts is pages, not bytes of blocks: a few bytes pin a page. */
enum { VP_BARE_ROOM_PAGES = 2 + 2 * VP_SLOT_PAGES };

static inline size_t vp_bare_used_bytes(const struct vp_bare *bare) {
    return vp_bare_all_of(atomic_load_explicit(&bare->used, memory_order_relaxed)) << bare->pool->mem.granularity_shift;
}

/* The pages that it touches must be held; for the rest the device may be counted on. What would be left of a large one,
 * up to a MiB, stays with it: a page more, where pages are of the usual size. */
static inline size_t vp_bare_touched(const struct vp_bare *bare, size_t size) {
    const struct vp_memory *mem = &bare->pool->mem;
    return ((size + mem->granularity - 1) >> mem->granularity_shift) + 1 + (size > VP_BARE_LARGE);
}
bool vp_bare_counts_on(const struct vp_bare *bare, size_t pages);

static inline bool vp_bare_roomy(const struct vp_bare *bare, size_t size) {
    const size_t used = atomic_load_explicit(&bare->used, memory_order_relaxed), touched = vp_bare_touched(bare, size),
                 bounds = atomic_load(&bare->bounds), all = vp_bare_all_of(used) + touched;
    const size_t ends = touched < VP_BARE_ENDS ? touched : VP_BARE_ENDS, most = vp_bare_all_of(bounds);
    const size_t single = vp_bare_single_of(used) + ends, singles = vp_bare_single_of(bounds);
    const size_t room = bare->pressed ? 0 : VP_BARE_ROOM_PAGES;
    const size_t lacks = (single > singles ? single - singles : 0) + (all + room > most ? all + room - most : 0);
    return !lacks || (all <= most && vp_bare_counts_on(bare, lacks));
}
/* Room is made sure of for a block, or that has come. By who holds the cache's lock: first this is said, and then
 * looked whether there is room; others first make that unsure, and then look whether something was promised. One of the
 * two sees the other. */
void vp_bare_promise(struct vp_bare *bare);
void vp_bare_promise_kept(struct vp_bare *bare);
/* Is the one that is open this thread's? */
bool vp_bare_promised_here(const struct vp_bare *bare);

/* A cache that sets a pool back to a checkpoint tells of all its blocks that they are used no more, and of those that
 * stay that they are, with the bytes that they have: in one go, on one thread, with its lock held. So what blocks have
 * left is *in doubt*, segment by segment, and stays under its addresses until another thread tells, or asks for room,
 * which takes the cache's lock, too (vp_bare_doubt_anew()), or until that does something else (vp_bare_proceed()). */
void vp_bare_doubt_anew(struct vp_bare *bare) __attribute__((cold));
void vp_bare_proceed(struct vp_bare *bare);

/* Before a block is said to be used no more that may come back. By who holds the cache's lock. */
static inline void vp_bare_doubt(struct vp_bare *bare, struct vp_bare_segment *segment) {
    const unsigned odd = atomic_load_explicit(&bare->promises, memory_order_relaxed) & 1;
    if (odd || atomic_load_explicit(&bare->promised_to, memory_order_relaxed) != vp_thread_id())
        vp_bare_doubt_anew(bare); /* nor does a block come any more that room was made for */
    const unsigned now = atomic_load_explicit(&bare->promises, memory_order_relaxed) + 1;
    atomic_store_explicit(&bare->left, now, memory_order_relaxed);
    atomic_store_explicit(&segment->left, now, memory_order_relaxed);
}

static inline bool vp_bare_doubts(const struct vp_bare *bare, const _Atomic unsigned *left) {
    return __builtin_expect(*left == atomic_load(&bare->promises) + 1, false);
}

/* Before others take memory of the pool, or give it back: waits, without the lock, until the block has come that
 * another thread was promised room for. That is a moment; one does not come whose thread has slept for
 * VP_BARE_PATIENCE_NS without a break, has run for as long meanwhile, or takes more than VP_BARE_BUSY_NS in all, with
 * others that it is promised instead; unless it waits for the lock. Where it has come and waits for memory, that may be
 * for what this thread has yet to do: after VP_BARE_BUSY_NS what it needs is still kept for it (vp_bare_is_owed()), but
 * nobody waits. True: it has waited. */
enum { VP_BARE_PATIENCE_NS = 50000000, VP_BARE_BUSY_NS = 2000000000 };
bool vp_bare_await_block(struct vp_pool *pool);
static inline bool vp_bare_await(struct vp_pool *pool) {
    return __builtin_expect(pool->bare != NULL, false) && vp_bare_await_block(pool);
}
/* Where memory is short: waits, as long as its thread may be about to tell more, until nothing is in doubt. */
bool vp_bare_await_told(struct vp_pool *pool);
static inline bool vp_bare_await_all(struct vp_pool *pool) {
    const bool waited = vp_bare_await(pool);
    return vp_bare_await_told(pool) || waited;
}

/* Others have taken memory, or given it back: it is asked for anew. */
static inline void vp_bare_unsure(struct vp_pool *pool) {
    if (pool->bare)
        atomic_store(&pool->bare->bounds, 0);
}
int vp_bare_make_room(struct vp_pool *pool, size_t size, struct vp_timeline *timeline, bool pressed);

/* Is memory kept for another thread's block, which has yet to come, or has none yet? Then nothing goes back. */
bool vp_bare_is_owed(struct vp_pool *pool);
/* Does a block in use wait for memory, without which it must not be? And may others have so many bytes of whole chunks
 * that are idle, and of the device, with enough left for it? */
static inline bool vp_bare_lacks(const struct vp_pool *pool) {
    return __builtin_expect(pool->bare && pool->bare->owed, false);
}
bool vp_bare_leaves(const struct vp_pool *pool, size_t bytes);
/* Pages that a block may need for its own to be backed. */
size_t vp_bare_need(const struct vp_bare *bare, CUdeviceptr addr, size_t size);
/* It got none, and is used all the same. */
void vp_bare_give_up(struct vp_bare *bare, CUdeviceptr addr, size_t size);

/* A block is used. True: it lies in pages that are backed, and nothing is to be said against them. Else, with the lock,
 * vp_bare_back() must see to it. */
bool vp_bare_use(struct vp_bare *bare, CUdeviceptr addr, size_t size);
/* Backs the pages of a block in use. 0; -EAGAIN: pending work is in the way, ask again, after a moment and the look at
 * what has completed that this has made already; -ENOMEM, -EIO. `patient` as long as it may ask for waits that spare
 * memory, too. */
int vp_bare_back(struct vp_pool *pool, CUdeviceptr addr, size_t size, bool patient);
/* The same, with the waits: pauses as the pool does. -ENODEV: the segment has ended meanwhile. */
int vp_bare_back_waiting(struct vp_pool *pool, CUdeviceptr addr, size_t size) __attribute__((cold));
/* A block is used no more. The lock need be held for a large one, unless vp_bare_unuse_large() says true, which it does
 * where there is nothing to be noted but that; and for a `barrier`: others than the segment's stream may still use it,
 * and it is to be let go of soon, if true. */
void vp_bare_unuse(struct vp_bare *bare, CUdeviceptr addr, size_t size);
bool vp_bare_unuse_large(struct vp_bare *bare, const struct vp_bare_segment *segment, CUdeviceptr addr, size_t size);
bool vp_bare_unuse_locked(struct vp_pool *pool, CUdeviceptr addr, size_t size, bool barrier);
/* Backs [addr, addr + size) of one segment, used or not; it stays so until the segment ends. As
 * vp_bare_back_waiting(), but for seconds at most (-ENOMEM then), and the cache's lock need not be held: blocks may
 * come and go there meanwhile. */
int vp_bare_pin_range(struct vp_pool *pool, CUdeviceptr addr, size_t size) __attribute__((cold));
/* All that is backed in the segment, or will be, stays so. */
void vp_bare_pin_segment(struct vp_pool *pool, struct vp_bare_segment *segment);

/* Adds the work of every context so far: which of it touches the bytes is not known. 0 or -ENOMEM. */
int vp_bare_barrier(struct vp_pool *pool, struct vp_fence *fence);

/* Lets go of all pages under no block: they are free memory then. */
void vp_bare_flush(struct vp_pool *pool);
/* Brings the pool's statistics up to date. */
void vp_bare_count(struct vp_pool *pool);
bool vp_bare_check(const struct vp_pool *pool, FILE *out);

/* ---- dense.c ---- */

/* Should the cache give back the segments that it makes no use of before it gets one of `size` bytes? Then it is told
 * that there is no memory, gives back, and asks again: then it must get one. */
bool vp_bare_crowded(struct vp_pool *pool, size_t size);
/* May there be so many bytes in a row under no block? By who holds both locks. */
bool vp_bare_has_place(const struct vp_bare *bare, size_t size);
/* A block was freed that others than its segment's stream may still use. */
void vp_bare_others_use(struct vp_bare *bare);

/* ---- fill.c ---- */

/* Maps chunks into the pages [first, end), where nothing is mapped, for a block of `size` bytes in `segment`. As
 * vp_bare_back(). */
int vp_bare_fill(struct vp_pool *pool, struct vp_bare_segment *segment, size_t first, size_t end, size_t size,
                 bool patient);
/* Gives back some of what is idle beyond what may be held. True: there is more. */
bool vp_bare_shrink(struct vp_pool *pool);

/* ---- idle.c ---- */

/* A list of anonymous memory with room for so many entries of that size; what was in it is lost. NULL: none. */
void *vp_bare_grow(void *list, size_t *room, size_t least, size_t size);
/* Lists what is idle, unless that is known. What is listed may be in use again, but is there. False: there is no memory
 * for the lists. */
bool vp_bare_know_idle(struct vp_pool *pool);
/* Is it needed later? */
bool vp_bare_better(const struct vp_bare_idle *a, const struct vp_bare_idle *b);
/* Is no block in it, and is it pinned by nothing else? */
bool vp_bare_is_idle(const struct vp_pool *pool, const struct vp_chunk *chunk);
/* Pages that are held, and that a block may have as they are, counted by a look at all; or those alone, work on which
 * is over by now. And is so much held as is said that may be used? */
size_t vp_bare_idle_pages(const struct vp_pool *pool, bool ready);
bool vp_bare_check_room(const struct vp_pool *pool, FILE *out);
/* Pages of a block without memory. And may a chunk of so many pages go back to the device, from which another process
 * may have it first? The block that is being backed has what it lacks without it. */
size_t vp_bare_lacking(const struct vp_bare *bare, CUdeviceptr addr, size_t size);
bool vp_bare_may_go(const struct vp_pool *pool, size_t pages);
/* So many bytes are held before chunks move, rather than more are created. */
size_t vp_bare_cap(const struct vp_pool *pool);
/* Is memory so short that a chunk, `n` pages of which a block does not need, is to be replaced by smaller ones? */
bool vp_bare_tight(const struct vp_pool *pool, size_t n);
/* Is so much lost, with `n` pages more, that it is to be replaced where it is known to be lost in vain? */
bool vp_bare_loses(const struct vp_pool *pool, size_t n);

/* ---- page.c, for the others ---- */

/* Lets go of the pages of one mapping, if no block lies in them. True: they are free memory now. The same of all that
 * lie in the pages [first, end), with the cache's lock: no block is freed meanwhile, and one barrier does for all. */
bool vp_bare_let_go(struct vp_pool *pool, const struct vp_mapping *m);
bool vp_bare_let_go_all(struct vp_pool *pool, size_t first, size_t end);
/* A mapping that is current and free is backed from now on, for a segment. 0 or -ENOMEM. */
int vp_bare_keep(struct vp_pool *pool, const struct vp_bare_segment *segment, const struct vp_mapping *m);
/* So many pages more, or fewer, lie in chunks with blocks. These are counts. */
void vp_bare_count_used(struct vp_bare *bare, size_t pages);
/* All of them, with both locks, where that is due. */
void vp_bare_count_anew(struct vp_bare *bare);
/* So many pages more, or fewer, may be used; if it is known how many those are. With the lock. */
void vp_bare_count_held(struct vp_bare *bare, size_t pages);
static inline size_t vp_bare_count_of(size_t pages) {
    return pages == 1 ? VP_BARE_SINGLE : pages;
}
/* Pages without a block in the slot of a page, if its chunk is of one slot and has blocks. */
size_t vp_bare_pinned_in(const struct vp_bare *bare, size_t page);

/* ---- unasked.c ---- */

/* Had none of a block's whole pages memory before it? Asked before it is backed. */
bool vp_bare_unasked_is_new(const struct vp_bare *bare, CUdeviceptr addr, size_t size);
/* It is remembered, true, unless there are too many. */
bool vp_bare_unasked_add(struct vp_bare *bare, CUdeviceptr addr, size_t size, bool is_new, bool lacks);
/* A block is used no more: others may have its memory. */
void vp_bare_unasked_left(struct vp_pool *pool, CUdeviceptr addr, size_t size);
/* Those that lack memory get some, if there is some by now; of those that are gone what others use is let go of. */
void vp_bare_unasked_retry(struct vp_pool *pool);

/* Was room made for the block that is used now? */
static inline bool vp_bare_promised(const struct vp_bare *bare) {
    return atomic_load_explicit(&bare->promises, memory_order_relaxed) & 1;
}

/* ---- run.c ---- */

/* A block that was counted page by page has left the whole pages [first, end), with both locks held. Where it did so
 * the last time, too, they are a run from now on. */
void vp_bare_run_left(struct vp_bare *bare, size_t first, size_t end, uint32_t seq);
/* Takes a page out of its run, for whoever wants its memory. False: the run is in use. */
bool vp_bare_run_break(struct vp_bare *bare, size_t page);
/* A block in use, with both locks held: it is counted page by page from now on. */
void vp_bare_run_open(struct vp_bare *bare, CUdeviceptr addr, size_t size);
/* There are no runs any more in the pages [first, end) of a segment. */
void vp_bare_run_forget(struct vp_bare *bare, size_t first, size_t end);
/* The run that a page is in; NULL: none. */
static inline struct vp_bare_run *vp_bare_run_of(const struct vp_bare *bare, size_t page) {
    const uint32_t run = atomic_load_explicit(&bare->pages[page].run, memory_order_relaxed);
    return run ? &bare->runs[run - 1] : NULL;
}
bool vp_bare_run_check(const struct vp_bare *bare, size_t page);

/* ---- where ---- */

/* Where a block lies: the pages that it touches, those that it fills, which nobody else has; the slots of its first and
 * its last page, and which of them others may have a part of. */
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

/* Does it fill a slot? */
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

/* A page's word, with what is noted of its slot and its run. */
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

/* Does another segment's memory still lie there, whose fence counts? */
static inline bool vp_bare_stale(const struct vp_bare *bare, const struct vp_mapping *m) {
    return atomic_load(&bare->pages[vp_bare_page(bare, m->addr)].word) & VP_PAGE_STALE;
}

/* Each mapping of a segment's slots, current or not. `at` and `end` are pages; ends at once where there are none. */
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
