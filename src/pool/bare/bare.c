/* Bare segments: what the cache reports, and the pages under it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/bare.h"
#include "pool/slack.h"
#include "base/os_memory.h"

#include <errno.h>

/* All segments together may have so many times the device's memory; their space is SPACE_TIMES larger, as each begins
 * at a slot. */
enum { TIMES_MEMORY = 8, SPACE_TIMES = 2 };
/* The share of a limited address space. */
enum { LIMITED_SHARE = 4 };
static const size_t SPACE_MOST = (size_t)1 << 44, SPACE_LEAST = (size_t)1 << 28, MEMORY_UNKNOWN = (size_t)1 << 38;

/* ---- the space ---- */

static size_t memory_of(const struct vp_pool *pool) {
    size_t total = 0;
    return !pool->mem.drv->cuDeviceTotalMem_v2(&total, pool->mem.device) && total ? total : MEMORY_UNKNOWN;
}

static int add_space(struct vp_pool *pool, struct vp_bare *bare) {
    const size_t slot = VP_SLOT_PAGES * pool->mem.granularity;
    bare->most = memory_of(pool) * TIMES_MEMORY;
    bare->size = bare->most < SPACE_MOST / SPACE_TIMES ? bare->most * SPACE_TIMES : SPACE_MOST;
    if (pool->config.addresses)
        bare->size = vp_lesser(bare->size, pool->config.addresses / LIMITED_SHARE);
    for (bare->size = vp_round_up(bare->size, slot);; bare->size = vp_round_up(bare->size / 2, slot)) {
        pool->mem.stats.calls.reserve++;
        if (!pool->mem.drv->cuMemAddressReserve(&bare->base, bare->size, pool->mem.granularity, 0, 0))
            break;
        if (bare->size / 2 < SPACE_LEAST)
            return -ENOMEM;
    }
    int err = vp_space_carve(&pool->mem, VP_ZONE_BARE, bare->base, bare->size, bare->size);
    if (err)
        pool->mem.drv->cuMemAddressFree(bare->base, bare->size);
    return err;
}

static void unmap_tables(struct vp_bare *bare) {
    vp_fence_clear(bare->pool->mem.timelines, &bare->others);
    if (bare->chunks)
        vp_os_give(bare->chunks, bare->chunk_room * sizeof *bare->chunks);
    if (bare->pages)
        vp_os_give(bare->pages, bare->bytes);
    for (int k = 0; k < VP_BARE_IDLE_KINDS; k++)
        if (bare->idle[k].list)
            vp_os_give(bare->idle[k].list, bare->idle[k].room * sizeof *bare->idle[k].list);
    vp_bare_past_finish(&bare->past);
    vp_lifetimes_destroy(bare->lifetimes);
    vp_slab_finish(&bare->segment_slab);
    vp_os_give(bare, sizeof *bare);
}

struct vp_bare *vp_bare_of(struct vp_pool *pool) {
    if (pool->bare)
        return pool->bare;
    struct vp_bare *bare = vp_os_take(sizeof *bare);
    if (!bare)
        return NULL;
    bare->pool = pool;
    bare->singles = VP_BARE_ENDS;
    vp_list_init(&bare->segments);
    vp_slab_init(&bare->segment_slab, sizeof(struct vp_bare_segment));
    if (vp_bare_past_init(&bare->past) < 0 || add_space(pool, bare) < 0) {
        unmap_tables(bare);
        return NULL;
    }
    size_t pages = bare->size >> pool->mem.granularity_shift;
    size_t table = vp_round_up(pages * sizeof *bare->pages, 4096);
    size_t slots = vp_round_up((pages / VP_SLOT_PAGES + 1) * sizeof *bare->slots, 4096);
    bare->bytes = table + slots + pages * sizeof *bare->runs;
    char *all = vp_os_take_sparse(bare->bytes);
    if (!all) { /* the space stays, unused */
        unmap_tables(bare);
        return NULL;
    }
    bare->pages = (struct vp_bare_page *)(void *)all;
    bare->slots = (struct vp_bare_slot *)(void *)(all + table);
    bare->runs = (struct vp_bare_run *)(void *)(all + table + slots);
    bare->lifetimes = pool->learn ? vp_lifetimes_create() : NULL;
    vp_slack_open_blocks(pool);
    return pool->bare = bare;
}

void vp_bare_finish(struct vp_bare *bare) {
    if (bare)
        unmap_tables(bare);
}

size_t vp_bare_metadata(const struct vp_bare *bare) {
    size_t pages = bare ? bare->peak_addressed >> bare->pool->mem.granularity_shift : 0;
    return bare ? sizeof *bare + bare->segment_slab.bytes + vp_bare_past_bytes(&bare->past) +
                      pages * (sizeof *bare->pages + sizeof *bare->slots + sizeof *bare->runs)
                : 0;
}

/* ---- segments ---- */

static size_t slots_end(const struct vp_bare *bare, const struct vp_bare_segment *segment) {
    return vp_round_up(vp_bare_page(bare, vp_region_end(&segment->whole)), VP_SLOT_PAGES);
}

/* Are there `pages` pages before `end`, from *first on or later? While a stream captures nothing freed since is seen
 * over: memory of an earlier segment there would be waited for in vain. Nor, if the cache was asked to free segments,
 * shall the new one wait there for other streams. */
static bool has_pages(const struct vp_bare *bare, struct vp_timeline *own, size_t pages, size_t *first, size_t end) {
    const struct vp_memory *mem = &bare->pool->mem;
    const bool captures = atomic_load(&mem->timelines->captures);
    const struct vp_request req = {.timeline = captures ? NULL : own};
    for (size_t p = *first; (captures || bare->gives) && p < *first + pages && p < end; p++) {
        const struct vp_mapping *m = vp_mapping_at(mem, vp_bare_addr(bare, p));
        if (m && !vp_range_usable(vp_region_at(mem, m->addr), m->addr, m->addr + m->chunk->size, &req, VP_USE_READY))
            *first = vp_round_up(p + 1, VP_SLOT_PAGES);
    }
    return end >= *first && end - *first >= pages;
}

/* Finds the lowest slots without a segment. Returns the list node behind which the segment goes, or NULL. */
static struct vp_list *find_gap(struct vp_bare *bare, struct vp_timeline *timeline, size_t pages, size_t *first) {
    struct vp_list *after = &bare->segments;
    const struct vp_bare_segment *segment;
    *first = 0;
    vp_list_each(segment, &bare->segments, link) {
        if (has_pages(bare, timeline, pages, first, vp_bare_page(bare, segment->whole.addr)))
            return after;
        *first = slots_end(bare, segment);
        after = segment->link.prev->next;
    }
    return has_pages(bare, timeline, pages, first, bare->size >> bare->pool->mem.granularity_shift) ? after : NULL;
}

int vp_bare_add(struct vp_pool *pool, size_t size, struct vp_context *ctx, struct vp_timeline *timeline,
                struct vp_bare_segment **out) {
    struct vp_bare *bare = vp_bare_of(pool);
    size_t first, pages = vp_round_up(size >> pool->mem.granularity_shift, VP_SLOT_PAGES);
    struct vp_list *after;
    if (!bare || size > bare->most - bare->addressed || !(after = find_gap(bare, timeline, pages, &first)) ||
        vp_table_reserve(&pool->mem.live) < 0)
        return -ENOMEM;
    struct vp_bare_segment *segment = vp_slab_alloc(&bare->segment_slab);
    if (!segment)
        return -ENOMEM;
    segment->whole = (struct vp_region){.addr = vp_bare_addr(bare, first),
                                        .size = size,
                                        .state = VP_LIVE,
                                        .sync = true,
                                        .bare = true,
                                        .asked = size,
                                        .serial = ++pool->mem.serial,
                                        .context = ctx};
    vp_list_init(&segment->whole.va);
    vp_list_insert(after, &segment->link);
    segment->timeline = timeline;
    if (timeline) {
        timeline->asked_unlocked = true;
        timeline->refs++;
    }
    for (size_t slot = first / VP_SLOT_PAGES; slot < (first + pages) / VP_SLOT_PAGES; slot++)
        bare->slots[slot] = (struct vp_bare_slot){
            .segment = segment, .last = bare->slots[slot].last, .expects = bare->slots[slot].expects};
    /* A block reported too late, after the last segment here had ended, does not belong to this one. */
    for (size_t p = first; p < first + pages; p++)
        atomic_fetch_and(&bare->pages[p].word, VP_PAGE_STALE);
    bare->addressed += size;
    bare->peak_addressed = vp_greater(bare->peak_addressed, bare->addressed);
    bare->gives = false;
    vp_table_add(&pool->mem.live, &segment->whole);
    pool->mem.bare_segments++;
    *out = segment;
    return 0;
}

void vp_bare_forget_stream(struct vp_pool *pool, struct vp_bare_segment *segment) {
    struct vp_bare *bare = pool->bare;
    struct vp_mapping *m;
    if (!segment->timeline)
        return;
    vp_bare_mappings_each(m, bare, vp_bare_page(bare, segment->whole.addr), slots_end(bare, segment))
        vp_bare_let_go(pool, m);
    segment->timeline->refs--;
    segment->timeline = NULL;
}

void vp_bare_close_timeline(struct vp_pool *pool, const struct vp_timeline *timeline) {
    struct vp_bare_segment *segment;
    if (pool->bare)
        vp_list_each(segment, &pool->bare->segments, link)
            if (segment->timeline == timeline)
                vp_bare_forget_stream(pool, segment);
}

/* Makes free memory of what is backed, also behind `fence`. If another segment finds it there its fence counts. */
static void leave(struct vp_pool *pool, const struct vp_bare_segment *segment, struct vp_mapping *m,
                  const struct vp_fence *fence) {
    struct vp_bare *bare = pool->bare;
    size_t first = vp_bare_page(bare, m->addr), end = first + (m->chunk->size >> pool->mem.granularity_shift);
    /* If we asked the cache to free the segment, that is no free of the program's: memory of one stream, under no
     * block, may serve others behind that stream alone, as if the segment had stayed. */
    const bool let_go = bare->gives && segment->timeline && !segment->pinned && !m->chunk->exported &&
                        vp_bare_let_go(pool, m);
    bool backed = atomic_load(&bare->pages[first].word) & VP_PAGE_BACKED;
    for (size_t p = first; p < end; p++)
        atomic_store(&bare->pages[p].word, VP_PAGE_STALE);
    if (let_go)
        return;
    struct vp_fence own = {0};
    if (!backed) {
        /* It was let go of before, behind what it waited for then; the fence tells of PyTorch's work since. */
        if (m != m->chunk->current || vp_region_at(&pool->mem, m->addr)->state != VP_FREE ||
            vp_backing_take(&pool->mem, m) < 0)
            return;
    }
    vp_fence_unite(pool->mem.timelines, &own, fence);
    if (m->chunk->exported)
        vp_backing_retire(&pool->mem, m, &own);
    else
        vp_backing_drop(&pool->mem, m, &own);
}

void vp_bare_remove(struct vp_pool *pool, struct vp_bare_segment *segment, struct vp_fence *fence) {
    struct vp_bare *bare = pool->bare;
    const size_t first = vp_bare_page(bare, segment->whole.addr), end = slots_end(bare, segment);
    struct vp_mapping *m;
    vp_bare_proceed(bare);
    if (atomic_load(&segment->live)) { /* its blocks end with it, perhaps one that has yet to get its memory */
        bare->counts_anew = true;
        vp_bare_forget_bounds(pool);
    }
    if (atomic_load(&pool->mem.timelines->captures)) /* its memory is nobody's until the capture is seen over */
        vp_bare_forget_bounds(pool);
    vp_bare_mappings_each(m, bare, first, end) leave(pool, segment, m, fence);
    for (size_t p = first; p < end; p++)
        if (!vp_mapping_at(&pool->mem, vp_bare_addr(bare, p)))
            atomic_store(&bare->pages[p].word, 0);
    vp_bare_run_forget(bare, first, end);
    vp_fence_clear(pool->mem.timelines, fence);
    for (size_t slot = first / VP_SLOT_PAGES; slot < end / VP_SLOT_PAGES; slot++)
        bare->slots[slot].segment = NULL;
    if (segment->timeline)
        segment->timeline->refs--;
    bare->addressed -= segment->whole.size;
    atomic_fetch_sub(&bare->live, atomic_load(&segment->live));
    vp_table_take(&pool->mem.live, segment->whole.addr);
    pool->mem.bare_segments--;
    vp_list_remove(&segment->link);
    vp_slab_free(&bare->segment_slab, segment);
}

void vp_bare_drop_context(struct vp_pool *pool, const struct vp_context *ctx) {
    struct vp_bare_segment *segment, *next;
    if (pool->bare)
        vp_list_each_safe(segment, next, &pool->bare->segments, link)
            if (segment->whole.context == ctx)
                vp_bare_remove(pool, segment, &(struct vp_fence){0});
}

/* ---- pins ---- */

void vp_bare_pin_segment(struct vp_pool *pool, struct vp_bare_segment *segment) {
    struct vp_bare *bare = pool->bare;
    struct vp_mapping *m;
    if (segment->pinned)
        return;
    vp_bare_forget_bounds(pool);
    /* What is free memory by now but still mapped here is kept, too. */
    vp_bare_mappings_each(m, bare, vp_bare_page(bare, segment->whole.addr), slots_end(bare, segment)) {
        if (m == m->chunk->current && !vp_bare_stale(bare, m) && vp_region_at(&pool->mem, m->addr)->state == VP_FREE)
            vp_bare_keep(pool, segment, m);
    }
    segment->pinned = true;
}

/* ---- looked at ---- */

void vp_bare_flush(struct vp_pool *pool) {
    struct vp_bare *bare = pool->bare;
    struct vp_bare_segment *segment;
    struct vp_mapping *m;
    if (!bare)
        return;
    vp_bare_proceed(bare);
    vp_list_each(segment, &bare->segments, link)
        if (!segment->pinned)
            vp_bare_mappings_each(m, bare, vp_bare_page(bare, segment->whole.addr), slots_end(bare, segment))
                vp_bare_let_go(pool, m);
}

void vp_bare_count(struct vp_pool *pool) {
    struct vp_bare *bare = pool->bare;
    struct vp_memory_stats *stats = &pool->mem.stats;
    if (!bare)
        return;
    uint64_t live = atomic_load_explicit(&bare->live, memory_order_relaxed);
    const uint64_t uses = atomic_load_explicit(&bare->uses, memory_order_relaxed);
    const uint64_t ends = atomic_load_explicit(&bare->ends, memory_order_relaxed);
    stats->allocs += uses - bare->uses_told;
    stats->frees += ends - bare->ends_told;
    bare->uses_told = uses;
    bare->ends_told = ends;
    stats->live_bytes += live - pool->mem.bare_live;
    pool->mem.bare_live = live;
    atomic_store_explicit(&bare->other, stats->live_bytes - live, memory_order_relaxed);
    const uint64_t peak = vp_greater(atomic_load_explicit(&bare->peak, memory_order_relaxed), stats->live_bytes);
    stats->peak_live_bytes = vp_greater(stats->peak_live_bytes, peak);
    pool->recent_peak = vp_greater(pool->recent_peak, stats->live_bytes);
}

uint64_t vp_bare_stays(const struct vp_pool *pool) {
    const struct vp_bare *bare = pool->bare;
    const struct vp_bare_segment *segment;
    uint64_t pages = 0;
    if (!bare)
        return 0;
    vp_list_each(segment, &bare->segments, link)
        for (size_t p = vp_bare_page(bare, segment->whole.addr);
             (segment->pinned || segment->pins_pages) && p < slots_end(bare, segment); p++) {
            const uint32_t word = vp_bare_word(bare, p), stays = segment->pinned ? VP_PAGE_BACKED : VP_PAGE_PINNED;
            pages += word & VP_PAGE_BACKED && word & stays && !(word & VP_PAGE_USED);
        }
    return pages << pool->mem.granularity_shift;
}

static bool breach(FILE *out, const char *what, const struct vp_region *r) {
    vp_memory_breach(out, what, r);
    return false;
}

/* Checks one segment's pages. Only while nobody uses or frees blocks. */
static bool check_segment(const struct vp_bare *bare, const struct vp_bare_segment *segment, FILE *out) {
    const struct vp_memory *mem = &bare->pool->mem;
    const bool all_backed = !bare->unasked_count && !bare->owed;
    bool sound = true;
    for (size_t p = vp_bare_page(bare, segment->whole.addr); p < slots_end(bare, segment); p++) {
        const struct vp_mapping *m = vp_mapping_at(mem, vp_bare_addr(bare, p));
        const struct vp_region *r = vp_region_at(mem, vp_bare_addr(bare, p));
        uint32_t word = vp_bare_word(bare, p);
        if (!(word & VP_PAGE_BACKED) != (r->state != VP_BACKED))
            sound = breach(out, "a page is backed where its region is", r);
        if (all_backed && word & VP_PAGE_USED && !(word & (VP_PAGE_BACKED | VP_PAGE_GIVEN_UP)))
            sound = breach(out, "a block's pages are backed", r);
        if (word & VP_PAGE_BACKED && (word & VP_PAGE_STALE || !m || m != m->chunk->current))
            sound = breach(out, "what is backed is the segment's own and current", r);
        if (bare->slots[p / VP_SLOT_PAGES].segment != segment)
            sound = breach(out, "slots belong to their segment", &segment->whole);
        if (!vp_bare_run_check(bare, p))
            sound = breach(out, "a run is of pages that are backed, and counted nowhere else", r);
    }
    return sound;
}

/* Checks that pages with blocks are counted in each slot that no block fills. */
static bool check_slots(const struct vp_bare *bare, const struct vp_bare_segment *segment, FILE *out) {
    const size_t first = vp_bare_page(bare, segment->whole.addr) / VP_SLOT_PAGES;
    bool sound = true;
    for (size_t slot = first; slot < slots_end(bare, segment) / VP_SLOT_PAGES; slot++) {
        unsigned used = 0;
        for (size_t p = slot * VP_SLOT_PAGES; p < (slot + 1) * VP_SLOT_PAGES; p++)
            used += (vp_bare_word(bare, p) & VP_PAGE_USED) != 0;
        if (used != bare->slots[slot].inside && (used < VP_SLOT_PAGES || bare->slots[slot].inside))
            sound = breach(out, "a slot's pages with blocks are counted", &segment->whole);
    }
    return sound;
}

bool vp_bare_check(const struct vp_pool *pool, FILE *out) {
    const struct vp_bare *bare = pool->bare;
    const struct vp_bare_segment *segment;
    size_t bytes = 0, count = 0;
    bool sound = true;
    if (!bare)
        return true;
    vp_list_each(segment, &bare->segments, link) {
        sound &= check_segment(bare, segment, out);
        sound &= check_slots(bare, segment, out);
        bytes += segment->whole.size;
        count++;
    }
    if (bytes != bare->addressed || count != pool->mem.bare_segments)
        sound = breach(out, "segments and their bytes are counted", NULL);
    return sound;
}
