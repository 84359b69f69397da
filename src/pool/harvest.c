/* Which wholly free chunks a new range is made of: see harvest.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/harvest.h"

#include "base/sort.h"

static void harvest_region(struct vp_pool *pool, struct vp_harvest *h, const struct vp_region *r) {
    size_t largest = h->req->zone == VP_ZONE_SMALL && !h->req->pressed && !h->exact ? pool->mem.granularity : SIZE_MAX;
    CUdeviceptr at = r->space->base + vp_round_up(r->addr - r->space->base, pool->mem.granularity);
    while (at < vp_region_end(r)) {
        struct vp_chunk *chunk = vp_mapping_at(&pool->mem, at)->chunk;
        CUdeviceptr begin = chunk->current->addr, end = begin + chunk->size;
        bool skipped = begin < h->skip_end && end > h->skip;
        if (begin == at && end <= vp_region_end(r) && chunk->size <= largest && !skipped && !chunk->host &&
            vp_range_usable(r, at, end, h->req, h->use))
            h->list[h->count++] = (struct vp_candidate){chunk, r->size,
                                                        vp_range_usable(r, at, end, h->req, VP_USE_READY),
                                                        .avoided = h->avoided && chunk->mark == h->avoided};
        at = end;
    }
}

/* The order of choice. First chunks that need no wait; then large ones, as a handle costs the same at any size; then
 * those whose region is of least use otherwise; then the lowest, so that a program that repeats itself repeats its
 * addresses. */
static bool before(const struct vp_candidate *a, const struct vp_candidate *b) {
    if (a->ready != b->ready)
        return a->ready;
    if (a->avoided != b->avoided)
        return b->avoided;
    if (a->chunk->size != b->chunk->size)
        return a->chunk->size > b->chunk->size;
    if (a->region != b->region)
        return a->region < b->region;
    return a->chunk->current->addr < b->chunk->current->addr;
}

static bool over(const void *a, const void *b, const void *ctx) {
    return before(a, b);
}

/* Moves item `i` of the heap down to its place; the first in the order is on top. */
static void sink(struct vp_candidate *c, size_t n, size_t i) {
    vp_heap_sink(c, sizeof *c, n, i, over, NULL);
}

/* Moves the candidates of at most `most` bytes to the front; returns their number. */
static size_t part(struct vp_candidate *c, size_t n, size_t most) {
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i].chunk->size <= most)
            vp_sort_swap(&c[i], &c[m++], sizeof *c);
    return m;
}

/* The smallest candidate from `taken` on, of equal ones the first in the order; with `ready` only such. `n`: none. */
static size_t smallest(const struct vp_candidate *c, size_t n, size_t taken, bool ready) {
    size_t least = n;
    for (size_t i = taken; i < n; i++)
        if ((c[i].ready || !ready) && (least == n || c[i].chunk->size < c[least].chunk->size ||
                                       (c[i].chunk->size == c[least].chunk->size && before(&c[i], &c[least]))))
            least = i;
    return least;
}

/* Moves the chosen candidates to the front. Of many few are wanted, so a heap sorts no more than these. */
static size_t choose(struct vp_candidate *c, size_t n, size_t want, bool exact, size_t *bytes) {
    size_t end = part(c, n, want), heap = end, taken = 0, sum = 0;
    for (size_t i = heap / 2; i-- > 0;)
        sink(c, heap, i);
    /* What leaves the heap lies behind it; what is taken of that is moved to the very end, in reverse order. */
    while (heap && sum < want) {
        vp_sort_swap(&c[0], &c[--heap], sizeof *c);
        sink(c, heap, 0);
        if (c[heap].chunk->size <= want - sum) {
            sum += c[heap].chunk->size;
            vp_sort_swap(&c[heap], &c[end - ++taken], sizeof *c);
        }
    }
    for (size_t i = 0; i < taken && i < end / 2; i++)
        vp_sort_swap(&c[i], &c[end - 1 - i], sizeof *c);
    if (sum < want && taken < n && !exact) {
        vp_sort_swap(&c[taken], &c[smallest(c, n, taken, false)], sizeof *c);
        sum += c[taken++].chunk->size;
    }
    *bytes = sum;
    return taken;
}

void vp_harvest_break_one(struct vp_pool *pool, const struct vp_harvest *h) {
    const size_t least = smallest(h->list, h->count, h->chosen, true);
    if (least < h->count)
        vp_chunk_give_back(&pool->mem, h->list[least].chunk);
}

void vp_harvest(struct vp_pool *pool, struct vp_harvest *h, size_t want) {
    const struct vp_index *index;
    h->count = 0;
    vp_list_each(index, &pool->mem.indexes, link)
        for (struct vp_region *r = vp_index_first(index, pool->mem.granularity); r; r = vp_index_next(index, r))
            harvest_region(pool, h, r);
    h->chosen = choose(h->list, h->count, want, h->exact, &h->bytes);
}

/* ---- from the ends ---- */

/* Chunks to take at most; some 0.4 ms. */
enum { ENDS_MOST = 16 };

static bool is_end(struct vp_region *r) {
    const struct vp_region *before = vp_region_prev(r), *behind = vp_region_next(r);
    return !before || !behind || before->state == VP_HOLE || before->state == VP_ZOMBIE || behind->state == VP_HOLE ||
           behind->state == VP_ZOMBIE;
}

static void harvest_ends(struct vp_pool *pool, struct vp_harvest *h, const struct vp_index *index) {
    struct vp_region *r = vp_index_first(index, pool->mem.granularity);
    for (; r && r->size < h->req->size; r = vp_index_next(index, r))
        if (is_end(r))
            harvest_region(pool, h, r);
}

void vp_harvest_ends(struct vp_pool *pool, struct vp_harvest *h, size_t want) {
    struct vp_index *index;
    h->count = 0;
    h->exact = true;
    vp_list_each(index, &pool->mem.indexes, link)
        if (index->zone == VP_ZONE_LARGE && index != &pool->mem.mixed[VP_ZONE_LARGE])
            harvest_ends(pool, h, index);
    h->chosen = choose(h->list, h->count, want, true, &h->bytes);
    while (h->chosen > ENDS_MOST)
        h->bytes -= h->list[--h->chosen].chunk->size;
}

bool vp_harvest_room(struct vp_pool *pool, struct vp_harvest *h, size_t want) {
    size_t list = pool->mem.chunk_count * sizeof *h->list,
           chunks = (pool->mem.chunk_count + want / pool->mem.granularity + 1) * sizeof(struct vp_chunk *);
    return (h->list = vp_pool_scratch(pool, list > chunks ? list : chunks));
}
