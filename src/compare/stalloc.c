/* STAlloc (arXiv 2507.16274), on our mechanisms: its runtime. The planner is src/plan/stalloc.c. As published:
 *   - a run was profiled, and each of its requests was given a place in a range of addresses that is got at once;
 *   - the n-th request gets the n-th place, if it is of that size: sizes alone are compared, and streams are not
 *     looked at;
 *   - a request of another size is left to a caching allocator (PyTorch's, as bfc.c has it), and its place is passed
 * by;
 *   - requests of at most 512 bytes are not counted, and have a pool of their own.
 * Behind the last place the first comes again. Other than published: a place that is still in use is passed by, too,
 * since the plan of another run may have given it to a block that lives on. Not modelled: requests whose number or
 * size differ from step to step (experts), for which the original looks for room between the places.
 *
 * All that is got is held to the end. Blocks in places are kept here, and are no regions of the memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "compare/stalloc.h"
#include "compare/bfc.h"

#include <errno.h>
#include <sys/mman.h>

enum { TINY_SEGMENT = 2 << 20 };

struct block {
    struct vp_region region; /* its first member: what the caller knows. Without a space, unlike those of the cache */
    bool tiny;
    struct block *next;      /* books.spare_tiny */
    RB_ENTRY(block) by_addr; /* books.used, of what lies in a place */
};

RB_HEAD(blocks, block);

struct books {
    struct blocks used;
    struct vp_slab slab;
    CUdeviceptr base; /* of the places; 0: there are none */
    size_t next;      /* place */
    struct block *spare_tiny;
    CUdeviceptr tiny, tiny_end; /* what is left of the last segment for tiny blocks */
    uint64_t placed, missed;
};

static int compare(const struct block *a, const struct block *b) {
    return (a->region.addr > b->region.addr) - (a->region.addr < b->region.addr);
}
RB_GENERATE_STATIC(blocks, block, by_addr, compare)

/* Blocks here count as live, the ranges that they lie in do not. */
static void count(struct vp_pool *pool, size_t bytes, bool live) {
    pool->mem.stats.live_bytes += live ? bytes : -bytes;
    pool->mem.bare_live += live ? bytes : -bytes;
}

/* A range that is ours to the end: a live region of the memory, which is no allocation of anybody's. */
static int get_range(struct vp_pool *pool, size_t size, CUdeviceptr *addr) {
    struct vp_request req = {.asked = size, .size = size, .align = pool->mem.granularity, .zone = VP_ZONE_LARGE};
    struct vp_region *region;
    int err = vp_per_stream_hole(pool, req.zone, size, addr);
    if (!err)
        err = vp_per_stream_map(pool, &req, size, 1, *addr);
    if (err)
        return err;
    const struct vp_run run = {vp_region_at(&pool->mem, *addr), *addr, *addr + size};
    err = vp_per_stream_take(pool, &run, size, &req, &region);
    if (!err) {
        count(pool, size, false);
        pool->mem.stats.allocs--;
    }
    return err;
}

static int open_books(struct vp_pool *pool) {
    const struct vp_stalloc_plan *plan = pool->config.plan;
    struct books *books = mmap(NULL, sizeof *books, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (books == MAP_FAILED)
        return -ENOMEM;
    RB_INIT(&books->used);
    vp_slab_init(&books->slab, sizeof(struct block));
    pool->books = books;
    if (!plan || !plan->peak)
        return 0;
    int err = get_range(pool, vp_round_up(plan->peak, pool->mem.granularity), &books->base);
    if (err)
        books->base = 0;
    /* Where the device has no room for the plan, the cache serves. */
    return err == -ENOMEM ? 0 : err;
}

static void close_books(struct vp_pool *pool) {
    struct books *books = pool->books;
    if (books) {
        vp_slab_finish(&books->slab);
        munmap(books, sizeof *books);
    }
    pool->books = NULL;
}

static int take_tiny(struct vp_pool *pool, struct block **out) {
    struct books *books = pool->books;
    struct block *block = books->spare_tiny;
    const size_t segment = vp_round_up(TINY_SEGMENT, pool->mem.granularity);
    CUdeviceptr from = 0;
    if (block) {
        books->spare_tiny = block->next;
    } else {
        int err = books->tiny < books->tiny_end ? 0 : get_range(pool, segment, &from);
        if (err)
            return err;
        if (from) {
            books->tiny = from;
            books->tiny_end = from + segment;
        }
        block = vp_slab_alloc(&books->slab);
        *block = (struct block){.region = {.addr = books->tiny, .size = VP_STALLOC_TINY}, .tiny = true};
        books->tiny += VP_STALLOC_TINY;
    }
    *out = block;
    return 0;
}

/* The next place, if it is of that size and free; NULL: the cache is to serve. */
static struct block *take_place(struct vp_pool *pool, const struct vp_request *req) {
    struct books *books = pool->books;
    const struct vp_stalloc_plan *plan = pool->config.plan;
    if (!books->base || !plan->count)
        return NULL;
    const struct vp_stalloc_place *place = &plan->places[books->next++ % plan->count];
    const struct block wanted = {.region = {.addr = books->base + place->offset, .size = place->size}};
    if (place->size != req->size)
        return NULL;
    struct block *above = RB_NFIND(blocks, &books->used, (struct block *)&wanted);
    struct block *below = above ? RB_PREV(blocks, &books->used, above) : RB_MAX(blocks, &books->used);
    if ((above && above->region.addr < wanted.region.addr + place->size) ||
        (below && vp_region_end(&below->region) > wanted.region.addr))
        return NULL;
    struct block *block = vp_slab_alloc(&books->slab);
    *block = wanted;
    RB_INSERT(blocks, &books->used, block);
    return block;
}

static int allocate(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct books *books = pool->books;
    const bool tiny = req->asked <= VP_STALLOC_TINY;
    struct block *block = NULL;
    if (vp_slab_reserve(&books->slab, 1) < 0)
        return -ENOMEM;
    int err = tiny ? take_tiny(pool, &block) : 0;
    if (err)
        return err;
    /* Asked again after a wait, or for want of memory, it is the same request. */
    if (!tiny && !req->impatient && !req->pressed) {
        block = take_place(pool, req);
        books->placed += block != NULL;
        books->missed += !block;
    }
    if (!block)
        return vp_bfc_alloc(pool, req, out);
    block->region.asked = req->asked;
    count(pool, req->asked, true);
    pool->mem.stats.allocs++;
    *out = &block->region;
    return 0;
}

static int release(struct vp_pool *pool, struct vp_region *region, struct vp_timeline *timeline) {
    struct books *books = pool->books;
    struct block *block = (struct block *)region;
    if (region->space)
        return vp_pool_free_async(pool, vp_pool_find(pool, region->addr), timeline);
    count(pool, region->asked, false);
    pool->mem.stats.frees++;
    if (block->tiny) {
        block->next = books->spare_tiny;
        books->spare_tiny = block;
    } else {
        RB_REMOVE(blocks, &books->used, block);
        vp_slab_free(&books->slab, block);
    }
    return 0;
}

void vp_stalloc_figures(const struct vp_pool *pool, uint64_t *placed, uint64_t *missed) {
    const struct books *books = pool->books;
    *placed = books->placed;
    *missed = books->missed;
}

const struct vp_policy vp_policy_stalloc = {
    .name = "stalloc",
    .traits = {.events = VP_EVENTS_NEVER, .per_stream = true, .never_stitches = true},
    .open = open_books,
    .layout = vp_bfc_layout,
    .alloc = allocate,
    .free = release,
    .close = close_books,
};
