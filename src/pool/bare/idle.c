/* Bare segments: which chunks are idle, and when each will be needed; and how much is lost in the others.
 *
 * As far as the past tells, the best idle chunk is the one that is needed last; if the present repeats nothing, the one
 * that will rest longest, judging by its pauses so far. A chunk is needed where it is mapped now and wherever it was
 * mapped before: taking it back there costs nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/bare.h"

#include "base/os_memory.h"
#include "base/sort.h"
#include "pool/slack.h"

/* Held above the peak of live bytes, in 10,000ths of it, before chunks move; and at least so many pages. */
enum { SPARE_SHARE = 51, SPARE_PAGES = 8 };

/* Lost in chunks that are pinned in part, in 10,000ths of that peak, before they are replaced. */
enum { WASTE_SHARE = 104 };

/* Lost, in the same unit, before a chunk is replaced a part of which is lost for nothing, beyond the segment. */
enum { LOSS_SHARE = 30 };

/* Large blocks after which idle chunks are listed again. */
enum { LISTED_FOR = 64 };

static size_t share(const struct vp_pool *pool, unsigned share_of) {
    size_t bytes = pool->mem.stats.peak_live_bytes / 10000 * share_of, least = SPARE_PAGES * pool->mem.granularity;
    return bytes > least ? bytes : least;
}

size_t vp_bare_cap(const struct vp_pool *pool) {
    const size_t spare = share(pool, SPARE_SHARE), slack = vp_slack_of_blocks(pool);
    return pool->mem.stats.peak_live_bytes + (slack > spare ? slack : spare);
}

bool vp_bare_is_idle(const struct vp_pool *pool, const struct vp_chunk *chunk) {
    const struct vp_bare *bare = pool->bare;
    const CUdeviceptr addr = chunk->current->addr;
    if (chunk->asleep) /* what it had comes back for its blocks alone */
        return false;
    if (addr - bare->base >= bare->size) {
        const struct vp_region *r = vp_region_at(&pool->mem, addr);
        return r->state == VP_FREE && vp_region_end(r) >= addr + chunk->size;
    }
    const size_t first = vp_bare_page(bare, addr);
    const uint32_t all = vp_bare_words(bare, first, first + vp_bare_pages(pool, chunk));
    const struct vp_bare_segment *segment = vp_bare_at(bare, addr);
    return !(all & (VP_PAGE_USED | VP_PAGE_PINNED)) && !(all & VP_PAGE_BACKED && segment && segment->pinned);
}

static enum vp_bare_kind kind_of(const struct vp_pool *pool, const struct vp_chunk *chunk) {
    size_t pages = vp_bare_pages(pool, chunk);
    return pages == VP_SLOT_PAGES ? VP_BARE_BODIES : pages == 1 ? VP_BARE_PAGES : VP_BARE_OTHERS;
}

size_t vp_bare_idle_pages(const struct vp_pool *pool, bool ready) {
    const struct vp_chunk *chunk;
    size_t pages = 0;
    vp_list_each(chunk, &pool->mem.chunks, link)
        if (!chunk->exported && kind_of(pool, chunk) != VP_BARE_OTHERS && vp_bare_is_idle(pool, chunk) &&
            (!ready || vp_chunk_ready(&pool->mem, chunk, NULL)))
            pages += vp_bare_count_of(vp_bare_pages(pool, chunk));
    vp_list_each(chunk, &pool->mem.spares, link)
        pages += vp_bare_count_of(vp_bare_pages(pool, chunk));
    return pages;
}

size_t vp_bare_beside_kept(const struct vp_bare *bare, const struct vp_bare_segment *segment, size_t first,
                           size_t end) {
    const size_t stop = vp_bare_page(bare, vp_region_end(&segment->whole));
    size_t pages = 0;
    for (size_t p = first; p < end && p + VP_SLOT_PAGES <= stop; p += VP_SLOT_PAGES) {
        uint32_t all = 0;
        size_t kept = 0;
        for (size_t q = p; q < p + VP_SLOT_PAGES; q++) {
            const uint32_t word = vp_bare_word(bare, q);
            all |= word;
            kept += word & VP_PAGE_BACKED && (segment->pinned || word & VP_PAGE_PINNED);
        }
        pages += kept && !(all & (VP_PAGE_USED | VP_PAGE_BODY)) ? VP_SLOT_PAGES - kept : 0;
    }
    return pages;
}

size_t vp_bare_most_beside_kept(const struct vp_bare *bare) {
    const struct vp_bare_segment *segment;
    size_t most = 0;
    vp_list_each(segment, &bare->segments, link)
        if (segment->pinned || segment->pins_pages)
            most = vp_greater(most,
                              vp_bare_beside_kept(bare, segment, vp_bare_page(bare, segment->whole.addr), SIZE_MAX));
    return most;
}

size_t vp_bare_lacking(const struct vp_bare *bare, CUdeviceptr addr, size_t size) {
    const size_t end = vp_bare_page(bare, addr + size - 1) + 1;
    size_t pages = 0;
    for (size_t p = vp_bare_page(bare, addr); p < end; p++)
        pages += !(atomic_load(&bare->pages[p].word) & VP_PAGE_BACKED);
    return pages;
}

bool vp_bare_may_go(const struct vp_pool *pool, size_t pages) {
    const struct vp_bare *bare = pool->bare;
    const size_t bounds = atomic_load(&bare->bounds), used = atomic_load_explicit(&bare->used, memory_order_relaxed);
    if (bare->pins || bare->short_of > 1 || vp_bare_doubts(bare, &bare->doubted_at))
        return true;
    /* What the block lacks counts as used, and as single pages, until it has it. */
    const size_t lacks = vp_bare_lacking(bare, bare->backs, bare->backs_size);
    const size_t idle = bounds ? vp_bare_less(bounds + lacks * VP_BARE_SINGLE, used) : vp_bare_idle_pages(pool, false);
    return vp_bare_all_of(idle) >= lacks + pages &&
           (pages > 1 || vp_bare_single_of(idle) > (lacks < bare->singles ? lacks : bare->singles));
}

static bool is_to_be_listed(const struct vp_pool *pool) {
    const struct vp_bare *bare = pool->bare;
    return !bare->idle_listed || bare->idle_releases != pool->mem.stats.calls.release;
}

bool vp_bare_check_room(const struct vp_pool *pool, FILE *out) {
    const struct vp_bare *bare = pool->bare;
    const size_t bounds = bare ? atomic_load(&bare->bounds) : 0;
    bool right = true;
    for (int k = 0; bare && !is_to_be_listed(pool) && k < VP_BARE_IDLE_KINDS; k++)
        for (size_t i = bare->idle[k].next; i < bare->idle[k].count; i++)
            right &= bare->idle[k].list[i].chunk->current != NULL;
    if (!right)
        vp_memory_breach(out, "what is listed as idle is mapped", NULL);
    if (!bounds || bare->owed || !vp_bare_less(bounds, atomic_load(&bare->used) + vp_bare_idle_pages(pool, false)))
        return right;
    vp_memory_breach(out, "pages that may be used are held, and single ones among them", NULL);
    return false;
}

static uint32_t rested(const struct vp_bare *bare, size_t first, size_t pages) {
    uint32_t last = bare->slots[first / VP_SLOT_PAGES].rested;
    for (size_t p = first; p < first + pages; p++) {
        const struct vp_bare_run *run = vp_bare_run_of(bare, p);
        last = bare->pages[p].rested > last ? bare->pages[p].rested : last;
        last = run && run->rested > last ? run->rested : last;
    }
    return last;
}

/* When the pages [p, end) will be used next: pages of one slot, or of a chunk that may belong to runs. Expected from
 * the past, or, if the present repeats nothing, guessed from the pauses so far. `unknown`: the result without large
 * blocks. */
static uint32_t next_use(const struct vp_bare *bare, size_t p, size_t end, uint32_t unknown) {
    const struct vp_bare_past *past = &bare->past;
    const struct vp_bare_run *before = NULL;
    const uint32_t last = bare->slots[p / VP_SLOT_PAGES].last;
    uint32_t soonest = !past->match ? vp_bare_past_guess(past, last)
                       : last       ? vp_bare_past_next(past, last, 0)
                                    : unknown;
    for (; p < end; p++) {
        const struct vp_bare_run *run = vp_bare_run_of(bare, p);
        if (run && run != before && run->last) {
            const uint32_t next = past->match ? vp_bare_past_next(past, last, run->last)
                                              : vp_bare_past_guess(past, run->last);
            soonest = next < soonest ? next : soonest;
        }
        before = run;
    }
    return soonest == VP_BARE_NEVER && !past->match ? unknown : soonest;
}

/* When a block comes first at one of the chunk's addresses, as a plan has it. */
static uint32_t expected(const struct vp_bare *bare, const struct vp_chunk *chunk, uint32_t now) {
    uint32_t soonest = VP_BARE_NEVER;
    for (const struct vp_mapping *m = chunk->mappings; m; m = m->next) {
        if (m->addr - bare->base >= bare->size)
            continue;
        const uint32_t next = bare->slots[vp_bare_page(bare, m->addr) / VP_SLOT_PAGES].expects;
        soonest = next > now && next < soonest ? next : soonest;
    }
    return soonest;
}

/* Describes an idle chunk: when it will be used next, wherever it is mapped. Of a slot without large blocks nothing is
 * known: twice as long as it has been idle is assumed. Without the cache's lock the past is not read, as it may be
 * being written. */
static struct vp_bare_idle describe(const struct vp_pool *pool, struct vp_chunk *chunk) {
    const struct vp_bare *bare = pool->bare;
    const struct vp_bare_past *past = &bare->past;
    const size_t pages = vp_bare_pages(pool, chunk);
    const uint32_t now = vp_bare_past_now(past);
    struct vp_bare_idle one = {.chunk = chunk, .next = VP_BARE_NEVER};
    const bool is_bare = chunk->current->addr - bare->base < bare->size;
    if (bare->pins)
        return one;
    if (is_bare)
        one.rested = rested(bare, vp_bare_page(bare, chunk->current->addr), pages);
    if (!past->match) {
        const size_t first = vp_bare_page(bare, chunk->current->addr);
        one.next = now + 2 * (now - one.rested);
        one.next = is_bare ? next_use(bare, first, first + pages, one.next) : one.next;
        one.next = (uint32_t)vp_lesser(one.next, expected(bare, chunk, now));
    }
    for (const struct vp_mapping *m = chunk->mappings; m && past->match; m = m->next) {
        if (m->addr - bare->base >= bare->size)
            continue;
        const size_t first = vp_bare_page(bare, m->addr);
        for (size_t p = first, stop; p < first + pages; p = stop) {
            stop = (p / VP_SLOT_PAGES + 1) * VP_SLOT_PAGES;
            stop = stop < first + pages ? stop : first + pages;
            const uint32_t next = next_use(bare, p, stop, past->match + 2 * (now - one.rested));
            one.next = next < one.next ? next : one.next;
        }
    }
    return one;
}

bool vp_bare_better(const struct vp_bare_idle *a, const struct vp_bare_idle *b) {
    if (a->next != b->next)
        return a->next > b->next;
    if (a->rested != b->rested)
        return a->rested < b->rested;
    return a->chunk->current->addr < b->chunk->current->addr;
}

static bool is_worse(const void *a, const void *b, const void *ctx) {
    return vp_bare_better(b, a);
}

void *vp_bare_grow(void *list, size_t *room, size_t least, size_t size) {
    if (list && *room >= least)
        return list;
    if (list)
        vp_os_give(list, *room * size);
    *room = least + least / 2 + 512;
    if (!(list = vp_os_take(*room * size)))
        *room = 0;
    return list;
}

static bool list_idle(struct vp_pool *pool) {
    struct vp_bare *bare = pool->bare;
    struct vp_chunk *chunk;
    for (int k = 0; k < VP_BARE_IDLE_KINDS; k++) {
        bare->idle[k].count = bare->idle[k].next = 0;
        bare->idle[k].list = vp_bare_grow(bare->idle[k].list, &bare->idle[k].room, pool->mem.chunk_count,
                                          sizeof *bare->idle[k].list);
        if (!bare->idle[k].list)
            return false;
    }
    vp_list_each(chunk, &pool->mem.chunks, link)
        if (vp_bare_is_idle(pool, chunk) && !chunk->exported) {
            enum vp_bare_kind kind = kind_of(pool, chunk);
            bare->idle[kind].list[bare->idle[kind].count++] = describe(pool, chunk);
        }
    for (int k = 0; k < VP_BARE_IDLE_KINDS; k++)
        vp_sort(bare->idle[k].list, sizeof(struct vp_bare_idle), bare->idle[k].count, is_worse, NULL);
    const size_t most = share(pool, LOSS_SHARE), edge = VP_SLOT_PAGES << pool->mem.granularity_shift;
    atomic_store(&bare->waste_most, most > edge ? most - edge : 0);
    bare->idle_at = vp_bare_past_now(&bare->past);
    bare->idle_releases = pool->mem.stats.calls.release;
    bare->idle_unready = false;
    return bare->idle_listed = true;
}

bool vp_bare_know_idle(struct vp_pool *pool) {
    struct vp_bare *bare = pool->bare;
    return (!is_to_be_listed(pool) && vp_bare_past_now(&bare->past) - bare->idle_at < LISTED_FOR) || list_idle(pool);
}

/* Bytes under no block that are held in chunks with blocks. */
static size_t lost(const struct vp_pool *pool) {
    const size_t used = vp_bare_used_bytes(pool->bare);
    return used > pool->mem.bare_live ? used - pool->mem.bare_live : 0;
}

bool vp_bare_tight(const struct vp_pool *pool, size_t n) {
    const struct vp_memory_stats *stats = &pool->mem.stats;
    if (pool->bare->short_of)
        return true;
    if (stats->live_bytes <= stats->peak_live_bytes / 100 * VP_BARE_TIGHT_PERCENT)
        return false;
    return lost(pool) + (n << pool->mem.granularity_shift) > share(pool, WASTE_SHARE);
}

bool vp_bare_loses(const struct vp_pool *pool, size_t n) {
    return lost(pool) + (n << pool->mem.granularity_shift) > share(pool, LOSS_SHARE);
}
