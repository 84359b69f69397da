/* PyTorch's caching allocator on bare segments, for replays: its placement (bfc.c) on addresses without memory, with
 * the reports about its blocks. It shows what vpool does under PyTorch's own cache in a program.
 *
 * This file keeps the blocks, as the cache does; they are no regions of the memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/bfc.h"
#include "base/os_memory.h"
#include "pool/bare/bare.h"

#include <errno.h>
#include <sys/mman.h>

struct block {
    struct vp_region region; /* first, as this is what the caller knows */
    bool small, free;
    uint64_t stream;
    struct block *prev, *next; /* neighbours in the segment */
    RB_ENTRY(block) by_size;   /* books.free, while it is */
};

RB_HEAD(blocks, block);

struct books {
    struct blocks free;
    struct vp_slab slab;
};

#define ORDER(a, b)                                                                                                    \
    if ((a) != (b))                                                                                                    \
    return (a) < (b) ? -1 : 1

/* Orders blocks of one stream and kind by size, then by address. */
static int compare(const struct block *a, const struct block *b) {
    ORDER(a->stream, b->stream);
    ORDER(a->small, b->small);
    ORDER(a->region.size, b->region.size);
    ORDER(a->region.addr, b->region.addr);
    return 0;
}
RB_GENERATE_STATIC(blocks, block, by_size, compare)

static int open_books(struct vp_pool *pool) {
    struct books *books = mmap(NULL, sizeof *books, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (books == MAP_FAILED)
        return -ENOMEM;
    RB_INIT(&books->free);
    vp_slab_init(&books->slab, sizeof(struct block));
    pool->books = books;
    return 0;
}

static void close_books(struct vp_pool *pool) {
    struct books *books = pool->books;
    if (books) {
        vp_slab_finish(&books->slab);
        vp_os_give(books, sizeof *books);
    }
    pool->books = NULL;
}

/* Gives back every segment that is a single free block. */
static void trim(struct vp_pool *pool) {
    struct books *books = pool->books;
    struct block *block, *next;
    RB_FOREACH_SAFE(block, blocks, &books->free, next) {
        struct vp_fence none = {0};
        if (block->prev || block->next)
            continue;
        RB_REMOVE(blocks, &books->free, block);
        vp_bare_remove(pool, vp_bare_at(pool->bare, block->region.addr), &none);
        vp_slab_free(&books->slab, block);
    }
}

/* Finds the smallest free block that fits, or makes a new segment. */
static int find(struct vp_pool *pool, const struct vp_request *req, struct block **out) {
    struct books *books = pool->books;
    const struct block wanted = {
        .region = {.size = req->size}, .small = req->zone == VP_ZONE_SMALL, .stream = vp_owner_of(req)};
    struct block *block = RB_NFIND(blocks, &books->free, (struct block *)&wanted);
    struct vp_bare_segment *segment;
    if (block && block->stream == wanted.stream && block->small == wanted.small) {
        RB_REMOVE(blocks, &books->free, block);
        *out = block;
        return 0;
    }
    const size_t size = vp_bfc_segment(pool, req->size);
    if (vp_bare_crowded(pool, size))
        trim(pool);
    int err = vp_bare_add(pool, size, req->context, req->timeline, &segment);
    if (err)
        return err;
    block = vp_slab_alloc(&books->slab);
    *block = wanted;
    block->region.addr = segment->whole.addr;
    block->region.size = segment->whole.size;
    *out = block;
    return 0;
}

/* Splits off the rest of a block, if it is large enough. */
static void split(struct books *books, struct block *block, size_t size) {
    const size_t over = block->region.size - size;
    if (block->small ? over < VP_QUANTUM : over <= VP_BFC_SMALL)
        return;
    struct block *rest = vp_slab_alloc(&books->slab);
    *rest = (struct block){.region = {.addr = block->region.addr + size, .size = over},
                           .small = block->small,
                           .free = true,
                           .stream = block->stream,
                           .prev = block,
                           .next = block->next};
    if (rest->next)
        rest->next->prev = rest;
    block->next = rest;
    block->region.size = size;
    RB_INSERT(blocks, &books->free, rest);
}

/* Merges a block with the next one. Both must be out of the tree. */
static void unite(struct books *books, struct block *block) {
    struct block *next = block->next;
    block->region.size += next->region.size;
    block->next = next->next;
    if (block->next)
        block->next->prev = block;
    vp_slab_free(&books->slab, next);
}

static void put_back(struct books *books, struct block *block) {
    block->free = true;
    if (block->next && block->next->free) {
        RB_REMOVE(blocks, &books->free, block->next);
        unite(books, block);
    }
    if (block->prev && block->prev->free) {
        block = block->prev;
        RB_REMOVE(blocks, &books->free, block);
        unite(books, block);
    }
    RB_INSERT(blocks, &books->free, block);
}

static int allocate(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct books *books = pool->books;
    struct block *block;
    if (vp_slab_reserve(&books->slab, 2) < 0)
        return -ENOMEM;
    int err = pool->bare && vp_bare_roomy(pool->bare, req->size)
                  ? 0
                  : vp_bare_make_room(pool, req->size, req->timeline, req->pressed);
    if (!err)
        err = find(pool, req, &block);
    if (err)
        return err;
    split(books, block, req->size);
    block->free = false;
    block->region.asked = req->asked;
    if (!vp_bare_use(pool->bare, block->region.addr, req->size))
        err = vp_bare_back_waiting(pool, block->region.addr, req->size);
    if (err) {
        vp_bare_unuse(pool->bare, block->region.addr, req->size);
        put_back(books, block);
        return err;
    }
    vp_bare_count(pool);
    *out = &block->region;
    return 0;
}

static int release(struct vp_pool *pool, struct vp_region *region, struct vp_timeline *timeline) {
    struct block *block = (struct block *)region;
    const size_t size = vp_round_up(region->asked, VP_QUANTUM);
    (void)timeline; /* as with bfc, a block that other streams used comes back when that is over */
    vp_bare_unuse_locked(pool, region->addr, size, false);
    put_back(pool->books, block);
    return 0;
}

const struct vp_policy vp_policy_bare = {
    .name = "bare",
    .traits = {.events = VP_EVENTS_NEVER, .never_stitches = true},
    .open = open_books,
    .layout = vp_bfc_layout,
    .alloc = allocate,
    .free = release,
    .close = close_books,
};
