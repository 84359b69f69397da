/* Bare segments: what the cache tells, and the pages under it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare.h"

#include "base/clock.h"

#include <errno.h>
#include <sys/mman.h>

/* All segments together may have so many times the device's memory; and so much larger is the space that they lie in,
 * since each begins a slot. */
enum { TIMES_MEMORY = 8, SPACE_TIMES = 2 };
static const size_t SPACE_MOST = (size_t)1 << 44, SPACE_LEAST = (size_t)1 << 28, MEMORY_UNKNOWN = (size_t)1 << 38;

/* ---- the space ---- */

static size_t memory_of(const struct vp_pool *pool) {
    size_t total = 0;
    const struct vp_driver *drv = pool->mem.drv;
    return drv->cuDeviceTotalMem_v2 && !drv->cuDeviceTotalMem_v2(&total, pool->mem.device) && total ? total
                                                                                                    : MEMORY_UNKNOWN;
}

static int add_space(struct vp_pool *pool, struct vp_bare *bare) {
    const size_t slot = VP_SLOT_PAGES * pool->mem.granularity;
    bare->most = memory_of(pool) * TIMES_MEMORY;
    bare->size = bare->most < SPACE_MOST / SPACE_TIMES ? bare->most * SPACE_TIMES : SPACE_MOST;
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
    if (bare->pages)
        munmap(bare->pages, bare->bytes);
    for (int k = 0; k < VP_BARE_IDLE_KINDS; k++)
        if (bare->idle[k].list)
            munmap(bare->idle[k].list, bare->idle[k].room * sizeof *bare->idle[k].list);
    vp_bare_past_finish(&bare->past);
    vp_slab_finish(&bare->segment_slab);
    munmap(bare, sizeof *bare);
}

struct vp_bare *vp_bare_of(struct vp_pool *pool) {
    if (pool->bare)
        return pool->bare;
    struct vp_bare *bare = mmap(NULL, sizeof *bare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bare == MAP_FAILED)
        return NULL;
    bare->pool = pool;
    vp_list_init(&bare->segments);
    vp_slab_init(&bare->segment_slab, sizeof(struct vp_bare_segment));
    if (vp_bare_past_init(&bare->past) < 0 || add_space(pool, bare) < 0) {
        unmap_tables(bare);
        return NULL;
    }
    size_t pages = bare->size >> pool->mem.granularity_shift;
    size_t table = vp_round_up(pages * sizeof *bare->pages, 4096);
    bare->bytes = table + (pages / VP_SLOT_PAGES + 1) * sizeof *bare->slots;
    char *all = mmap(NULL, bare->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) { /* the space stays, empty */
        unmap_tables(bare);
        return NULL;
    }
    bare->pages = (struct vp_bare_page *)(void *)all;
    bare->slots = (struct vp_bare_slot *)(void *)(all + table);
    return pool->bare = bare;
}

void vp_bare_finish(struct vp_bare *bare) {
    if (bare)
        unmap_tables(bare);
}

size_t vp_bare_metadata(const struct vp_bare *bare) {
    size_t pages = bare ? bare->peak_addressed >> bare->pool->mem.granularity_shift : 0;
    return bare ? sizeof *bare + bare->segment_slab.bytes + vp_bare_past_bytes(&bare->past) +
                      pages * (sizeof *bare->pages + sizeof *bare->slots)
                : 0;
}

/* ---- segments ---- */

static size_t slots_end(const struct vp_bare *bare, const struct vp_bare_segment *segment) {
    return vp_round_up(vp_bare_page(bare, vp_region_end(&segment->whole)), VP_SLOT_PAGES);
}

/* The lowest slots that no segment has. The list node after which the segment goes, or NULL. */
static struct vp_list *find_gap(struct vp_bare *bare, size_t pages, size_t *first) {
    struct vp_list *after = &bare->segments;
    const struct vp_bare_segment *segment;
    *first = 0;
    vp_list_each(segment, &bare->segments, link) {
        if (vp_bare_page(bare, segment->whole.addr) - *first >= pages)
            return after;
        *first = slots_end(bare, segment);
        after = segment->link.prev->next;
    }
    return (bare->size >> bare->pool->mem.granularity_shift) - *first >= pages ? after : NULL;
}

int vp_bare_add(struct vp_pool *pool, size_t size, struct vp_context *ctx, struct vp_timeline *timeline,
                struct vp_bare_segment **out) {
    struct vp_bare *bare = vp_bare_of(pool);
    size_t first, pages = vp_round_up(size >> pool->mem.granularity_shift, VP_SLOT_PAGES);
    struct vp_list *after;
    if (!bare || size > bare->most - bare->addressed || !(after = find_gap(bare, pages, &first)) ||
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
    if (timeline)
        timeline->refs++;
    for (size_t slot = first / VP_SLOT_PAGES; slot < (first + pages) / VP_SLOT_PAGES; slot++)
        bare->slots[slot].segment = segment;
    bare->addressed += size;
    if (bare->addressed > bare->peak_addressed)
        bare->peak_addressed = bare->addressed;
    vp_table_add(&pool->mem.live, &segment->whole);
    pool->mem.bare_segments++;
    *out = segment;
    return 0;
}

struct vp_bare_segment *vp_bare_at(const struct vp_bare *bare, CUdeviceptr addr) {
    if (!bare || addr - bare->base >= bare->size)
        return NULL;
    struct vp_bare_segment *segment = bare->slots[vp_bare_page(bare, addr) / VP_SLOT_PAGES].segment;
    return segment && addr < vp_region_end(&segment->whole) ? segment : NULL;
}

/* Each mapping of a segment's slots, current or not. `at` and `end` are pages; ends at once where there are none. */
static struct vp_mapping *mapping_from(const struct vp_bare *bare, size_t *at, size_t end) {
    while (*at < end) {
        struct vp_mapping *m = vp_mapping_at(&bare->pool->mem, vp_bare_addr(bare, *at));
        *at += m ? m->chunk->size >> bare->pool->mem.granularity_shift : 1;
        if (m)
            return m;
    }
    return NULL;
}

#define mappings_each(m, bare, first, end)                                                                             \
    for (size_t at_ = (first), end_ = (end); (m = mapping_from(bare, &at_, end_));)

void vp_bare_forget_stream(struct vp_pool *pool, struct vp_bare_segment *segment) {
    struct vp_bare *bare = pool->bare;
    struct vp_mapping *m;
    if (!segment->timeline)
        return;
    mappings_each(m, bare, vp_bare_page(bare, segment->whole.addr), slots_end(bare, segment)) vp_bare_let_go(pool, m);
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

/* What is backed becomes free memory behind the fence, too. It may be mapped at the same place for another segment:
 * then the fence counts. */
static void leave(struct vp_pool *pool, struct vp_mapping *m, const struct vp_fence *fence) {
    struct vp_bare *bare = pool->bare;
    size_t first = vp_bare_page(bare, m->addr), end = first + (m->chunk->size >> pool->mem.granularity_shift);
    bool backed = atomic_load(&bare->pages[first].word) & VP_PAGE_BACKED;
    for (size_t p = first; p < end; p++)
        atomic_store(&bare->pages[p].word, VP_PAGE_STALE);
    struct vp_fence own = {0};
    if (!backed) {
        /* Let go of before, behind what it waited for; what PyTorch did since shows in the fence. */
        struct vp_region *r = vp_region_at(&pool->mem, m->addr);
        if (m != m->chunk->current || r->state != VP_FREE || vp_backing_take(&pool->mem, m) < 0)
            return;
    }
    vp_fence_copy(pool->mem.timelines, &own, fence);
    if (m->chunk->exported)
        vp_backing_retire(&pool->mem, m, &own);
    else
        vp_backing_drop(&pool->mem, m, &own);
}

void vp_bare_remove(struct vp_pool *pool, struct vp_bare_segment *segment, struct vp_fence *fence) {
    struct vp_bare *bare = pool->bare;
    const size_t first = vp_bare_page(bare, segment->whole.addr), end = slots_end(bare, segment);
    struct vp_mapping *m;
    mappings_each(m, bare, first, end) leave(pool, m, fence);
    for (size_t p = first; p < end; p++)
        if (!vp_mapping_at(&pool->mem, vp_bare_addr(bare, p)))
            atomic_store(&bare->pages[p].word, 0);
    vp_fence_clear(pool->mem.timelines, fence);
    for (size_t slot = first / VP_SLOT_PAGES; slot < end / VP_SLOT_PAGES; slot++)
        bare->slots[slot].segment = NULL;
    if (segment->timeline)
        segment->timeline->refs--;
    bare->addressed -= segment->whole.size;
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

/* ---- blocks ---- */

static void count_live(struct vp_bare *bare, uint64_t size, bool used) {
    uint64_t live = atomic_load_explicit(&bare->live, memory_order_relaxed) + (used ? size : -size);
    atomic_store_explicit(&bare->live, live, memory_order_relaxed);
    live += atomic_load_explicit(&bare->other, memory_order_relaxed);
    if (used && live > atomic_load_explicit(&bare->peak, memory_order_relaxed))
        atomic_store_explicit(&bare->peak, live, memory_order_relaxed);
}

/* Is so much in use that chunks may be too large for what pins them? The percentage is bare_fill.c's. */
static bool much_used(const struct vp_bare *bare) {
    uint64_t live = atomic_load_explicit(&bare->live, memory_order_relaxed) +
                    atomic_load_explicit(&bare->other, memory_order_relaxed);
    return live > atomic_load_explicit(&bare->peak, memory_order_relaxed) / 100 * VP_BARE_TIGHT_PERCENT;
}

static void count_used(struct vp_bare *bare, size_t pages) {
    atomic_store_explicit(&bare->used, atomic_load_explicit(&bare->used, memory_order_relaxed) + pages,
                          memory_order_relaxed);
}

static bool is_wider(const struct vp_bare *bare, size_t page) {
    return atomic_load_explicit(&bare->pages[page].word, memory_order_relaxed) & VP_PAGE_BODY;
}

/* Pages without a block, in the slot of a page, whose chunk is of one slot and has blocks. */
static size_t pinned_in(const struct vp_bare *bare, size_t page) {
    const size_t begin = page / VP_SLOT_PAGES * VP_SLOT_PAGES;
    size_t idle = 0;
    if (!is_wider(bare, page))
        return 0;
    for (size_t p = begin; p < begin + VP_SLOT_PAGES; p++)
        idle += !(atomic_load_explicit(&bare->pages[p].word, memory_order_relaxed) & VP_PAGE_BLOCKS);
    return idle < VP_SLOT_PAGES ? idle : 0;
}

/* The same for the slots at the ends of [first, end): those in which others may lie, too. */
static size_t used_around(const struct vp_bare *bare, size_t first, size_t end) {
    size_t pages = pinned_in(bare, first);
    return pages + ((end - 1) / VP_SLOT_PAGES != first / VP_SLOT_PAGES ? pinned_in(bare, end - 1) : 0);
}

bool vp_bare_use(struct vp_bare *bare, CUdeviceptr addr, size_t size) {
    const size_t first = vp_bare_page(bare, addr), end = vp_bare_page(bare, addr + size - 1) + 1;
    uint32_t all = VP_PAGE_BACKED;
    size_t used = 0;
    const bool wider = is_wider(bare, first) || is_wider(bare, end - 1);
    if (wider)
        used -= used_around(bare, first, end);
    for (size_t p = first; p < end; p++) {
        uint32_t word = atomic_fetch_add_explicit(&bare->pages[p].word, 1, memory_order_acq_rel);
        all &= word;
        used += !(word & VP_PAGE_BLOCKS);
    }
    if (wider)
        used += used_around(bare, first, end);
    count_used(bare, used);
    count_live(bare, size, true);
    if (size >= VP_BARE_LARGE) {
        vp_bare_past_block(&bare->past, addr, size);
        for (size_t slot = first / VP_SLOT_PAGES; slot <= (end - 1) / VP_SLOT_PAGES; slot++)
            vp_bare_past_slot(&bare->past, &bare->slots[slot].last);
        const bool partial = first % VP_SLOT_PAGES || end % VP_SLOT_PAGES;
        return all && !(partial && much_used(bare));
    }
    return all;
}

/* A block leaves a page, which is then empty, if true; `seq`: the stream's next event. */
static inline bool leave_page(struct vp_bare *bare, struct vp_bare_page *page, uint32_t seq) {
    if (!(atomic_load_explicit(&page->word, memory_order_relaxed) & VP_PAGE_BLOCKS))
        return false;
    page->seq = seq;
    if ((atomic_fetch_sub_explicit(&page->word, 1, memory_order_acq_rel) & VP_PAGE_BLOCKS) != 1)
        return false;
    page->rested = bare->past.now;
    return true;
}

static inline void leave_pages(struct vp_bare *bare, size_t first, size_t end, uint32_t seq) {
    const bool wider = is_wider(bare, first) || is_wider(bare, end - 1);
    size_t empty = wider ? used_around(bare, first, end) : 0;
    for (size_t p = first; p < end; p++)
        empty += leave_page(bare, &bare->pages[p], seq);
    count_used(bare, (wider ? used_around(bare, first, end) : 0) - empty);
}

void vp_bare_unuse(struct vp_bare *bare, CUdeviceptr addr, size_t size) {
    leave_pages(bare, vp_bare_page(bare, addr), vp_bare_page(bare, addr + size - 1) + 1, 0);
    count_live(bare, size, false);
}

/* Events for what large blocks leave, while chunks move: so that it is known of each within a while whether work on it
 * is over. */
enum { EVENT_BYTES = 64 << 20, EVENT_SHARE = 64, MOVES_WITHIN = 4096 };

static void note_event(struct vp_pool *pool, struct vp_timeline *timeline, size_t size) {
    struct vp_bare *bare = pool->bare;
    uint64_t worth = pool->mem.stats.peak_live_bytes / EVENT_SHARE;
    bare->let_go += size;
    if (!bare->filled || bare->past.now - bare->filled > MOVES_WITHIN ||
        bare->let_go < (worth > EVENT_BYTES ? worth : EVENT_BYTES))
        return;
    struct vp_fence fence = {0};
    bare->let_go = 0;
    vp_fence_add_free(pool->mem.timelines, &fence, timeline, true);
    vp_fence_clear(pool->mem.timelines, &fence);
}

void vp_bare_unuse_locked(struct vp_pool *pool, CUdeviceptr addr, size_t size, bool barrier) {
    struct vp_bare *bare = pool->bare;
    struct vp_bare_segment *segment = vp_bare_at(bare, addr);
    const size_t first = vp_bare_page(bare, addr), end = vp_bare_page(bare, addr + size - 1) + 1;
    struct vp_timeline *timeline = segment->timeline;
    const uint32_t seq = timeline ? (uint32_t)timeline->next : 0;
    uint32_t flags = atomic_load(&pool->mem.timelines->captures) ? VP_PAGE_PINNED : 0;
    if (barrier || !timeline)
        flags |= VP_PAGE_SHARED;
    for (size_t p = first; p < end && flags; p++)
        atomic_fetch_or(&bare->pages[p].word, flags);
    leave_pages(bare, first, end, seq);
    count_live(bare, size, false);
    struct vp_mapping *m;
    if (timeline && size >= VP_BARE_LARGE)
        note_event(pool, timeline, size);
    if (flags & VP_PAGE_SHARED && size >= VP_BARE_LARGE)
        mappings_each(m, bare, first, end) vp_bare_let_go(pool, m);
}

/* ---- backing ---- */

static bool stale(const struct vp_bare *bare, const struct vp_mapping *m) {
    size_t p = vp_bare_page(bare, m->addr);
    return atomic_load(&bare->pages[p].word) & VP_PAGE_STALE;
}

/* A mapping that is current and free is backed from now on. */
static int back(struct vp_pool *pool, const struct vp_bare_segment *segment, const struct vp_mapping *m) {
    struct vp_bare *bare = pool->bare;
    const struct vp_request req = {.timeline = segment->timeline};
    const CUdeviceptr end = m->addr + m->chunk->size;
    bool ready = vp_range_usable(vp_region_at(&pool->mem, m->addr), m->addr, end, &req, VP_USE_READY);
    int err = vp_backing_take(&pool->mem, m);
    if (err)
        return err;
    const size_t pages = m->chunk->size >> pool->mem.granularity_shift, first = vp_bare_page(bare, m->addr);
    uint32_t flags = VP_PAGE_BACKED | (ready ? 0 : VP_PAGE_SHARED) | (pages > 1 ? VP_PAGE_BODY : 0);
    for (size_t p = first; p < first + pages; p++) {
        atomic_fetch_and(&bare->pages[p].word, ~(VP_PAGE_STALE | VP_PAGE_SHARED));
        atomic_fetch_or(&bare->pages[p].word, flags);
    }
    count_used(bare, pinned_in(bare, first));
    return 0;
}

/* What is mapped at a page that is not backed becomes so without a driver call (0), or goes (1). `beyond`: so many of
 * its pages the block does not need; `ahead`: pages of the block from there on. */
static int take_back(struct vp_pool *pool, const struct vp_bare_segment *segment, struct vp_mapping *m, size_t beyond,
                     size_t ahead) {
    const struct vp_request req = {.timeline = segment->timeline};
    struct vp_chunk *chunk = m->chunk;
    struct vp_bare *bare = pool->bare;
    const bool here = chunk->current == m;
    if (!here && vp_space_of(&pool->mem, chunk->current->addr) == vp_space_of(&pool->mem, bare->base))
        vp_bare_let_go(pool, chunk->current);
    const CUdeviceptr addr = chunk->current->addr, end = addr + chunk->size;
    const struct vp_region *r = vp_region_at(&pool->mem, addr);
    bool free = r->state == VP_FREE && vp_region_end(r) >= end;
    if (free && (!beyond || !vp_bare_tight(pool, beyond, ahead))) {
        bool ready = vp_range_usable(r, addr, end, &req, VP_USE_READY);
        if (!ready && (!here || stale(bare, m)))
            return -EAGAIN;
        if (!here) {
            int err = vp_mapping_prepare(&pool->mem, &chunk, 1);
            if (err)
                return err;
            vp_mapping_switch(&pool->mem, m);
            pool->mem.stats.reactivations++;
        }
        return back(pool, segment, m);
    }
    int err = vp_backing_clear(&pool->mem, m);
    return err ? err : 1;
}

/* Backs the pages that have something mapped. */
static int back_mapped(struct vp_pool *pool, const struct vp_bare_segment *segment, size_t first, size_t end) {
    struct vp_bare *bare = pool->bare;
    int err = 0;
    for (size_t p = first; p < end && err >= 0;) {
        struct vp_mapping *m = vp_mapping_at(&pool->mem, vp_bare_addr(bare, p));
        if (!m || atomic_load(&bare->pages[p].word) & VP_PAGE_BACKED) {
            p++;
            continue;
        }
        size_t begins = vp_bare_page(bare, m->addr), ends = begins + (m->chunk->size >> pool->mem.granularity_shift);
        err = take_back(pool, segment, m, (begins < first ? first - begins : 0) + (ends > end ? ends - end : 0),
                        end - p);
        if (!err)
            p = ends;
    }
    return err < 0 ? err : 0;
}

/* Is the block of the pages [first, end) the only one in the mapping, and does not fill it? */
static bool only_partly(const struct vp_bare *bare, const struct vp_mapping *m, size_t first, size_t end) {
    const size_t begins = vp_bare_page(bare, m->addr), pages = m->chunk->size >> bare->pool->mem.granularity_shift;
    for (size_t p = begins; p < begins + pages; p++) {
        uint32_t word = atomic_load(&bare->pages[p].word);
        if (!(word & VP_PAGE_BACKED) || (word & VP_PAGE_BLOCKS) != (p >= first && p < end))
            return false;
    }
    return begins < first || begins + pages > end;
}

/* A block has come to lie in a part of a chunk that nothing else is in: that is replaced, where it is worth it. Until
 * it is free memory the block counts for nothing there. */
static void shed(struct vp_pool *pool, const struct vp_bare_segment *segment, size_t page, size_t first, size_t end) {
    struct vp_bare *bare = pool->bare;
    struct vp_mapping *m = vp_mapping_at(&pool->mem, vp_bare_addr(bare, page));
    if (!m || !only_partly(bare, m, first, end) || !vp_bare_tight(pool, 0, end - page))
        return;
    size_t from = vp_bare_page(bare, m->addr), to = from + (m->chunk->size >> pool->mem.granularity_shift);
    from = from > first ? from : first;
    to = to < end ? to : end;
    count_used(bare, -pinned_in(bare, page));
    for (size_t p = from; p < to; p++)
        atomic_fetch_sub(&bare->pages[p].word, 1);
    if (vp_bare_let_go(pool, m) && vp_backing_clear(&pool->mem, m))
        back(pool, segment, m);
    for (size_t p = from; p < to; p++)
        atomic_fetch_add(&bare->pages[p].word, 1);
    count_used(bare, pinned_in(bare, page));
}

int vp_bare_back(struct vp_pool *pool, CUdeviceptr addr, size_t size, bool patient) {
    struct vp_bare *bare = pool->bare;
    struct vp_bare_segment *segment = vp_bare_at(bare, addr);
    const size_t first = vp_bare_page(bare, addr), end = vp_bare_page(bare, addr + size - 1) + 1;
    vp_bare_count(pool);
    if (size >= VP_BARE_LARGE) {
        shed(pool, segment, first, first, end);
        shed(pool, segment, end - 1, first, end);
    }
    int err = back_mapped(pool, segment, first, end);
    for (size_t p = first, gap; p < end && !err; p = gap) {
        gap = p;
        while (gap < end && !vp_mapping_at(&pool->mem, vp_bare_addr(bare, gap)))
            gap++;
        if (gap == p)
            gap++;
        else
            err = vp_bare_fill(pool, segment, p, gap, size, patient);
    }
    return err;
}

int vp_bare_backed(struct vp_pool *pool, size_t first, size_t end) {
    struct vp_bare *bare = pool->bare;
    struct vp_mapping *m;
    int err = 0;
    mappings_each(m, bare, first, end) if (!err) err = back(pool, vp_bare_at(bare, vp_bare_addr(bare, first)), m);
    return err;
}

/* How long memory that is pending is waited for before more is made; for how long not again where that was in vain, and
 * where it was twice in a row. How long for what cannot be done without. */
static const uint64_t PATIENCE_NS = 50000000, REST_NS = 250000000, LONG_REST_NS = 60000000000, WAIT_NS = 60000000000;

/* So often is tried again what the driver refused. */
enum { FAILURES = 8 };

/* The host pauses for what is pending. False: it has waited for too long. */
static bool pause_for(struct vp_pool *pool, uint64_t begin, bool *patient) {
    struct vp_bare *bare = pool->bare;
    const uint64_t now = pool->config.now(), passed = now - begin;
    if (*patient && passed > PATIENCE_NS) {
        *patient = false;
        bare->not_before = now + (bare->fruitless++ ? LONG_REST_NS : REST_NS);
        return true;
    }
    if (passed > WAIT_NS)
        return false;
    pool->config.pause(passed);
    return true;
}

int vp_bare_back_waiting(struct vp_pool *pool, CUdeviceptr addr, size_t size) {
    struct vp_bare *bare = pool->bare;
    const uint64_t begin = pool->config.now ? pool->config.now() : 0;
    bool patient = pool->config.pause && begin >= bare->not_before, asked = false, waited = false;
    int err;
    for (int failed = 0; (err = vp_bare_back(pool, addr, size, patient || !asked));) {
        bare->idle_listed = false;
        /* Nobody is there to be told of a failure: a block in use must have memory. */
        if (err != -EAGAIN && ++failed > FAILURES)
            break;
        /* What has completed is asked for before anything is waited for, or created. */
        if (vp_fit_refresh(&pool->mem) || err != -EAGAIN)
            continue;
        if (!asked && !patient) {
            asked = true;
            continue;
        }
        asked = waited = true;
        if (!pool->config.pause || !pause_for(pool, begin, &patient))
            break;
    }
    if (patient && waited)
        bare->fruitless = 0;
    if (waited)
        vp_pool_waited(pool, pool->config.now ? pool->config.now() - begin : 0, !patient || err);
    return err;
}

/* ---- pins ---- */

int vp_bare_pin_range(struct vp_pool *pool, CUdeviceptr addr, size_t size) {
    struct vp_bare *bare = pool->bare;
    const size_t first = vp_bare_page(bare, addr), end = vp_bare_page(bare, addr + size - 1) + 1;
    const size_t used = atomic_load(&bare->used);
    /* As long as it is not pinned a block that is none holds it. */
    for (size_t p = first; p < end; p++)
        atomic_fetch_add(&bare->pages[p].word, 1);
    int err = vp_bare_back_waiting(pool, addr, size);
    for (size_t p = first; p < end; p++) {
        if (!err)
            atomic_fetch_or(&bare->pages[p].word, VP_PAGE_PINNED);
        atomic_fetch_sub(&bare->pages[p].word, 1);
    }
    atomic_store(&bare->used, used);
    return err;
}

void vp_bare_pin_segment(struct vp_pool *pool, struct vp_bare_segment *segment) {
    struct vp_bare *bare = pool->bare;
    struct vp_mapping *m;
    if (segment->pinned)
        return;
    /* What is free memory by now, and still lies here, is kept, too. */
    mappings_each(m, bare, vp_bare_page(bare, segment->whole.addr), slots_end(bare, segment)) {
        bool backed = atomic_load(&bare->pages[vp_bare_page(bare, m->addr)].word) & VP_PAGE_BACKED;
        if (m == m->chunk->current && !backed && !stale(bare, m) && vp_region_at(&pool->mem, m->addr)->state == VP_FREE)
            back(pool, segment, m);
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
    vp_list_each(segment, &bare->segments, link)
        if (!segment->pinned)
            mappings_each(m, bare, vp_bare_page(bare, segment->whole.addr), slots_end(bare, segment))
                vp_bare_let_go(pool, m);
}

void vp_bare_count(struct vp_pool *pool) {
    struct vp_bare *bare = pool->bare;
    struct vp_memory_stats *stats = &pool->mem.stats;
    if (!bare)
        return;
    uint64_t live = atomic_load_explicit(&bare->live, memory_order_relaxed);
    stats->live_bytes += live - pool->mem.bare_live;
    pool->mem.bare_live = live;
    atomic_store_explicit(&bare->other, stats->live_bytes - live, memory_order_relaxed);
    uint64_t peak = atomic_load_explicit(&bare->peak, memory_order_relaxed);
    if (stats->live_bytes > peak)
        peak = stats->live_bytes;
    if (peak > stats->peak_live_bytes)
        stats->peak_live_bytes = peak;
    if (stats->live_bytes > pool->recent_peak)
        pool->recent_peak = stats->live_bytes;
}

static bool breach(FILE *out, const char *what, const struct vp_region *r) {
    vp_memory_breach(out, what, r);
    return false;
}

/* One segment's pages. Only while nobody uses or frees blocks. */
static bool check_segment(const struct vp_bare *bare, const struct vp_bare_segment *segment, FILE *out) {
    const struct vp_memory *mem = &bare->pool->mem;
    bool sound = true;
    for (size_t p = vp_bare_page(bare, segment->whole.addr); p < slots_end(bare, segment); p++) {
        const struct vp_mapping *m = vp_mapping_at(mem, vp_bare_addr(bare, p));
        const struct vp_region *r = vp_region_at(mem, vp_bare_addr(bare, p));
        uint32_t word = atomic_load(&bare->pages[p].word);
        if (!(word & VP_PAGE_BACKED) != (r->state != VP_BACKED))
            sound = breach(out, "a page is backed where its region is", r);
        if (word & VP_PAGE_BLOCKS && !(word & VP_PAGE_BACKED))
            sound = breach(out, "a block's pages are backed", r);
        if (word & VP_PAGE_BACKED && (word & VP_PAGE_STALE || !m || m != m->chunk->current))
            sound = breach(out, "what is backed is the segment's own and current", r);
        if (bare->slots[p / VP_SLOT_PAGES].segment != segment)
            sound = breach(out, "slots belong to their segment", &segment->whole);
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
        bytes += segment->whole.size;
        count++;
    }
    if (bytes != bare->addressed || count != pool->mem.bare_segments)
        sound = breach(out, "segments and their bytes are counted", NULL);
    return sound;
}
