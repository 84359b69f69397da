/* What a run learns for the next one: see learn.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/learnt/learn.h"

#include "base/os_memory.h"
#include "base/sort.h"
#include "pool/learnt/ahead.h"

#include <errno.h>

struct vp_learn *vp_learn_create(void) {
    return vp_os_take(sizeof(struct vp_learn));
}

void vp_learn_destroy(struct vp_learn *learn) {
    if (!learn)
        return;
    vp_table_finish(&learn->open);
    vp_os_give(learn, sizeof *learn);
}

void vp_learn_freed(struct vp_learn *learn, CUdeviceptr addr) {
    struct vp_learn_item *item = vp_table_take(&learn->open, addr);
    if (item)
        item->end = learn->count;
}

void vp_learn_served(struct vp_learn *learn, const struct vp_request *req, CUdeviceptr addr, uint64_t births) {
    /* Another stream may have taken over a parked block as it was. */
    vp_learn_freed(learn, addr);
    learn->total++;
    if (learn->count == VP_LEARNT_REQUESTS || learn->lost)
        return;
    if (vp_table_reserve(&learn->open) < 0) {
        learn->lost = true;
        return;
    }
    struct vp_learn_item *item = &learn->items[learn->count];
    *item = (struct vp_learn_item){.addr = addr,
                                   .size = req->size,
                                   .births = births,
                                   .begin = learn->count++,
                                   .end = UINT32_MAX,
                                   .stream = req->timeline ? req->timeline->number : 0,
                                   .alone = req->alone};
    vp_table_add(&learn->open, item);
}

/* ---- summed up ---- */

/* A granule of the large zone's addresses, and what its blocks want of it. */
struct cell {
    uint32_t need;  /* the first request there */
    uint32_t least; /* granules of the smallest block there */
    uint32_t owner; /* number of the block that stays there for good, plus 1; 0: blocks come and go */
    bool cut;       /* a handle begins here */
};

struct summing {
    struct vp_pool *pool;
    struct vp_learn *learn;
    struct vp_learnt_device *out;
    struct cell *cells;
    size_t cell_count;
    uint32_t *hash; /* by size and offset: index of the slot, plus 1 */
    size_t g;       /* granularity */
    uint64_t small; /* bytes of small-zone chunks counted so far */
    uint64_t block; /* bytes of the largest block that comes and goes */
};

enum { HASH = 2 * VP_LEARNT_SLOTS };

struct summed {
    struct vp_learnt_slot slots[VP_LEARNT_SLOTS];
    struct vp_learnt_run runs[VP_LEARNT_RUNS];
    struct vp_learnt_again agains[VP_LEARNT_AGAINS];
    uint32_t windows[VP_LEARNT_WINDOWS];
    uint32_t requests[VP_LEARNT_REQUESTS], hash[HASH];
    struct cell cells[];
};

/* Where blocks come and go handles are as large as the pool's own, or a small share of all, so that there are not too
 * many: the next run may draw other sizes, and a block that ends within a handle pins the rest. Where all blocks are
 * much larger handles are, too, up to a share of all, so that there are few. No block is to lie in more than some
 * hundreds: a block a tenth larger would then be created anew, not moved (bound.h). */
enum { FINE_SHARE = 4096, FINE_BLOCK = 1000, HANDLE_SHARE = 128, BLOCK_SHARE = 16 };
enum { HANDLE_LEAST = 8 << 20, HANDLE_MOST = 64 << 20 };

static void mark_cells(struct summing *s) {
    for (size_t c = 0; c < s->cell_count; c++)
        s->cells[c].need = s->cells[c].least = UINT32_MAX;
    for (uint32_t i = 0; i < s->learn->count; i++) {
        const struct vp_learn_item *item = &s->learn->items[i];
        const uint64_t first = item->offset / s->g, end = (item->offset + item->size + s->g - 1) / s->g;
        for (uint64_t c = first; c < end; c++) {
            const bool fresh = s->cells[c].need == UINT32_MAX;
            s->cells[c].owner = fresh && vp_learn_stays(item, s->learn->count) ? i + 1 : 0;
            if (fresh)
                s->cells[c].need = item->begin;
            if (end - first < s->cells[c].least)
                s->cells[c].least = (uint32_t)(end - first);
        }
        s->block = vp_greater(s->block, vp_learn_stays(item, s->learn->count) ? 0 : item->size);
        s->cells[first].cut |= item->alone;
        if (end < s->cell_count)
            s->cells[end].cut |= item->alone;
    }
}

/* Short stretches of blocks that stay count as coming and going: each would need handles of its own, which must be
 * few. */
enum { STAYS_LEAST = 32 << 20 };

static void forget_short(struct summing *s) {
    for (size_t c = 0, end; c < s->cell_count; c = end) {
        for (end = c + 1; end < s->cell_count && !s->cells[end].owner == !s->cells[c].owner && !s->cells[end].cut;
             end++)
            continue;
        for (size_t i = c; i < end && (end - c) * s->g < STAYS_LEAST; i++)
            s->cells[i].owner = 0;
    }
}

static size_t handle_of(size_t share) {
    size_t size = HANDLE_LEAST;
    while (size < HANDLE_MOST && size < share)
        size *= 2;
    return size;
}

static void cut_into_handles(struct summing *s) {
    const size_t largest = s->pool->config.handle, all = s->cell_count * s->g;
    const size_t most = handle_of(all / HANDLE_SHARE),
                 fine = handle_of(vp_greater(all / FINE_SHARE, s->block / FINE_BLOCK));
    for (size_t c = 0, n; c < s->cell_count; c += n) {
        const struct cell *first = &s->cells[c];
        const size_t room = (first->owner || most > largest ? largest : most) / s->g;
        uint32_t need = first->need, least = first->least;
        for (n = 1; c + n < s->cell_count && n < room; n++) {
            const struct cell *next = &s->cells[c + n];
            if (next->cut || next->need == UINT32_MAX || !next->owner != !first->owner)
                break;
            least = next->least < least ? next->least : least;
            if (!first->owner && n * s->g >= fine && n >= least / BLOCK_SHARE)
                break;
            need = next->need < need ? next->need : need;
        }
        n = first->need == UINT32_MAX ? 1 : n;
        /* Sizes are powers of two, as the pool's own. */
        size_t pages = 1;
        while (pages * 2 <= n)
            pages *= 2;
        n = pages;
        if (first->need != UINT32_MAX)
            vp_learnt_add_run(s->out, VP_ZONE_LARGE, c * s->g, n * s->g, need);
    }
}

/* The number of the first request that came after the chunk was created. */
static uint32_t need_of(const struct vp_learn *learn, uint64_t birth) {
    uint32_t from = 0, to = learn->count;
    while (from < to) {
        const uint32_t middle = (from + to) / 2;
        if (learn->items[middle].births < birth)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* In the small zone, too, a handle is a share of all, from the beginning of its addresses on. The pool's own have one
 * granule each, so that a block that lives long pins no more; but what was once of use for small blocks will be
 * again. */
enum { SMALL_SHARE = 64, SMALL_MOST = 16 << 20 };

static void add_small(struct summing *s, const struct vp_chunk *chunk, uint64_t *end, uint64_t total) {
    uint64_t size = s->g;
    while (size < SMALL_MOST && size < total / SMALL_SHARE)
        size *= 2;
    /* Handles larger than a granule have covered this chunk already. */
    s->small += chunk->size;
    if (s->small <= *end)
        return;
    while (size > s->g && *end + size > total)
        size /= 2;
    vp_learnt_add_run(s->out, VP_ZONE_SMALL, *end, size, need_of(s->learn, chunk->birth));
    *end += size;
}

static const struct vp_space *home_of(const struct summing *s, const struct vp_chunk *chunk) {
    return chunk->home && !chunk->exported ? vp_space_of(&s->pool->mem, chunk->home->addr) : NULL;
}

static void add_all_small(struct summing *s) {
    const struct vp_chunk *chunk;
    uint64_t end = 0, total = 0;
    vp_list_each(chunk, &s->pool->mem.chunks, link) {
        const struct vp_space *space = home_of(s, chunk);
        total += space && space->zone == VP_ZONE_SMALL ? chunk->size : 0;
    }
    vp_list_each(chunk, &s->pool->mem.chunks, link) {
        const struct vp_space *space = home_of(s, chunk);
        if (space && space->zone == VP_ZONE_SMALL)
            add_small(s, chunk, &end, total);
    }
}

static bool later(const void *x, const void *y, const void *ctx) {
    const struct vp_learnt_run *a = x, *b = y;
    if (a->need != b->need)
        return a->need > b->need;
    return a->zone != b->zone ? a->zone > b->zone : a->offset > b->offset;
}

/* The index of the request's slot, made if need be. */
static uint32_t slot_of(struct summing *s, const struct vp_learn_item *item) {
    struct vp_learnt_device *out = s->out;
    uint64_t at = (item->offset / VP_QUANTUM * 31 + item->size / VP_QUANTUM) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    for (;; at++) {
        uint32_t *entry = &s->hash[at % HASH];
        if (!*entry) {
            out->slots[out->slot_count] = (struct vp_learnt_slot){item->size, item->offset, item->alone};
            *entry = (uint32_t)++out->slot_count;
            return *entry - 1;
        }
        const struct vp_learnt_slot *slot = &out->slots[*entry - 1];
        if (slot->size == item->size && slot->offset == item->offset && slot->alone == item->alone)
            return *entry - 1;
    }
}

static void sum(struct summing *s, uint64_t until) {
    const struct vp_memory_stats *stats = &s->pool->mem.stats;
    struct vp_learnt_device *out = s->out;
    mark_cells(s);
    forget_short(s);
    cut_into_handles(s);
    add_all_small(s);
    vp_learn_bare(s->pool, until, s->out);
    vp_sort(out->runs, sizeof *out->runs, out->run_count, later, NULL);
    for (uint32_t i = 0; i < s->learn->count; i++)
        out->requests[out->request_count++] = slot_of(s, &s->learn->items[i]);
    out->device = (unsigned)s->pool->mem.device;
    out->granularity = s->g;
    out->peak_live = stats->peak_live_bytes;
    out->peak_held = stats->peak_held_bytes;
    out->total_requests = s->learn->total;
}

int vp_learn_sum_up(struct vp_pool *pool, uint64_t until, struct vp_learnt_device *out, void **mem, size_t *bytes) {
    struct vp_learn *learn = pool->learn;
    struct summing s = {.pool = pool, .learn = learn, .out = out, .g = pool->mem.granularity};
    uint64_t end = 0;
    *mem = NULL;
    if (!learn || learn->lost || (!learn->count && vp_list_empty(&pool->mem.chunks)))
        return -ENODATA;
    if (learn->gaps) {
        *out = pool->ahead->plan;
        out->left = true;
        return 0;
    }
    for (uint32_t i = 0; i < learn->count; i++)
        if (learn->items[i].end > learn->count)
            learn->items[i].end = learn->count;
    if (learn->count &&
        vp_learn_place(learn->items, learn->count, s.g, until, pool->mem.stats.peak_held_bytes, &end) < 0)
        return -ENOMEM;
    /* If that is no better than what the pool found by itself, the next run is left to the pool. */
    if (end > pool->mem.stats.peak_held_bytes)
        learn->count = 0, end = 0;
    s.cell_count = (end + s.g - 1) / s.g;
    *bytes = sizeof(struct summed) + s.cell_count * sizeof *s.cells;
    struct summed *all = vp_os_take_sparse(*bytes);
    if (!all)
        return -ENOMEM;
    *mem = all;
    *out = (struct vp_learnt_device){.slots = all->slots,
                                     .runs = all->runs,
                                     .requests = all->requests,
                                     .agains = all->agains,
                                     .windows = all->windows};
    s.hash = all->hash;
    s.cells = all->cells;
    sum(&s, until);
    return 0;
}
