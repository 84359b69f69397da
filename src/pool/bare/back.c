/* Bare segments: how a block's pages get their memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/learnt/ahead.h"
#include "pool/bare/bare.h"
#include "pool/slack.h"
#include "pool/giving.h"

#include <errno.h>

/* The pages of a block, or those to be pinned. */
struct pages {
    size_t first, end;
    bool patient; /* may wait for what is pending */
};

/* What is to be backed. For pages to be pinned the cache is not involved; other threads may hold its lock. */
struct backing {
    CUdeviceptr addr;
    size_t size;
    uint64_t serial; /* of its segment */
    bool pins;
};

/* Would a chunk mapped there be lost in part for nothing, as it reaches beyond the segment? */
static bool in_vain(const struct vp_bare_segment *segment, const struct vp_mapping *m) {
    return m->addr + m->chunk->size > vp_region_end(&segment->whole);
}

/* As vp_backing_unmap(), but a chunk that may not go back to the device becomes a spare. Sleeping and exported chunks
 * are excepted: a sleeping one has no memory to keep, an exported one must not be kept. */
static int clear(struct vp_pool *pool, struct vp_mapping *m) {
    struct vp_chunk *chunk = m->chunk;
    const size_t pages = vp_bare_pages(pool, chunk);
    const bool goes = chunk->current == m && !chunk->mappings->next && !chunk->asleep && !chunk->exported;
    if (goes && !vp_bare_may_go(pool, pages)) {
        if (!vp_mapping_over(&pool->mem, m) || vp_mapping_unmap(&pool->mem, m) < 0)
            return -EAGAIN;
        vp_chunk_spare(&pool->mem, chunk, true);
        pool->bare->idle_listed = false; /* with that chunk among them */
        return 0;
    }
    int err = vp_backing_unmap(&pool->mem, m);
    if (goes && !err)
        vp_bare_count_held(pool->bare, -vp_bare_count_of(pages));
    return err;
}

/* The pages of a mapping that lie outside the block of [first, end). */
static size_t beyond(size_t begins, size_t ends, size_t first, size_t end) {
    return (begins < first ? first - begins : 0) + (ends > end ? ends - end : 0);
}

/* Is it worth replacing a chunk to win so many pages? */
static bool is_worth(const struct vp_bare *bare, size_t pages) {
    return pages >= (bare->short_of ? 1 : VP_BARE_WORTH_PAGES);
}

/* May memory in place be let go of for something else? Not in a capture: no event would tell when it is free. */
static bool may_let_go(const struct vp_pool *pool) {
    return !atomic_load(&pool->mem.timelines->captures);
}

/* Are fewer pages sure, beyond the used ones, than the block may lose at its two ends? `of`: all, or single ones. */
static bool is_scarce(const struct vp_bare *bare, size_t (*of)(size_t)) {
    const size_t used = atomic_load_explicit(&bare->used, memory_order_relaxed);
    return of(atomic_load(&bare->bounds)) < of(used) + VP_BARE_ENDS;
}

/* Will the block keep its memory for good? In a capture it cannot be let go of again, nor where a graph may use it. */
static bool has_for_good(const struct vp_pool *pool, const struct vp_bare_segment *segment) {
    return !may_let_go(pool) || segment->pinned;
}

/* Is a chunk of which the block leaves `more` pages too large for it? A block that keeps its memory for good gets no
 * such chunk if there is little beyond what it touches. To win pages that are merely lost nothing is waited for. */
static bool is_too_large(const struct vp_pool *pool, const struct vp_bare_segment *segment, const struct vp_mapping *m,
                         size_t more) {
    if (has_for_good(pool, segment))
        return more && is_scarce(pool->bare, vp_bare_all_of) && vp_mapping_over(&pool->mem, m);
    return is_worth(pool->bare, more) &&
           (vp_bare_tight(pool, more) ||
            (in_vain(segment, m) && vp_bare_loses(pool, more) && vp_mapping_over(&pool->mem, m)));
}

/* Does a single page keep a body away from a slot that the block fills, while single pages are lacking? */
static bool is_too_small(const struct vp_pool *pool, const struct vp_bare_segment *segment,
                         const struct vp_mapping *m) {
    const struct vp_bare *bare = pool->bare;
    if (vp_bare_pages(pool, m->chunk) > 1 || !(vp_bare_word(bare, vp_bare_page(bare, m->addr)) & VP_PAGE_FILLED))
        return false;
    return (bare->short_of && may_let_go(pool)) ||
           (has_for_good(pool, segment) && is_scarce(bare, vp_bare_single_of) && vp_mapping_over(&pool->mem, m));
}

/* What is mapped in a page that is not backed is backed without a driver call (0), or goes (1): because others still
 * use it elsewhere and nobody waits, or because it is too large for the block while memory is short. */
static int take_back(struct vp_pool *pool, const struct vp_bare_segment *segment, struct vp_mapping *m,
                     const struct pages *block) {
    const struct vp_request req = {.timeline = segment->timeline};
    struct vp_chunk *chunk = m->chunk;
    struct vp_bare *bare = pool->bare;
    const size_t begins = vp_bare_page(bare, m->addr), ends = begins + vp_bare_pages(pool, chunk);
    const size_t more = beyond(begins, ends, block->first, block->end);
    const bool here = chunk->current == m;
    if (!here && chunk->current->addr - bare->base < bare->size)
        vp_bare_let_go(pool, chunk->current);
    const CUdeviceptr addr = chunk->current->addr, end = addr + chunk->size;
    const struct vp_region *r = vp_region_at(&pool->mem, addr);
    bool free = r->state == VP_FREE && vp_region_end(r) >= end;
    if (free && !is_too_large(pool, segment, m, more) && !is_too_small(pool, segment, m)) {
        bool ready = vp_range_usable(r, addr, end, &req, VP_USE_READY);
        if (!ready && here && vp_bare_stale(bare, m))
            return -EAGAIN;
        if (!ready && !here && block->patient)
            return -EAGAIN;
        int err = !here && ready ? vp_mapping_prepare(&pool->mem, &chunk, 1) : 0;
        if (err)
            return err;
        if (!here && ready) {
            vp_mapping_switch(&pool->mem, m);
            pool->mem.stats.reactivations++;
        }
        if (here || ready)
            return vp_bare_keep(pool, segment, m);
    }
    int err = clear(pool, m);
    return err ? err : 1;
}

/* Backs the pages where something is mapped. */
static int back_mapped(struct vp_pool *pool, const struct vp_bare_segment *segment, const struct pages *block) {
    struct vp_bare *bare = pool->bare;
    int err = 0;
    for (size_t p = block->first; p < block->end && err >= 0;) {
        struct vp_mapping *m = vp_mapping_at(&pool->mem, vp_bare_addr(bare, p));
        if (!m || atomic_load(&bare->pages[p].word) & VP_PAGE_BACKED) {
            p++;
            continue;
        }
        size_t ends = vp_bare_page(bare, m->addr) + vp_bare_pages(pool, m->chunk);
        err = take_back(pool, segment, m, block);
        if (!err)
            p = ends;
    }
    return err < 0 ? err : 0;
}

/* Is the block of [first, end) alone in the mapping, with other pages of it worth winning? */
static bool only_partly(const struct vp_bare *bare, const struct vp_mapping *m, size_t first, size_t end) {
    const size_t begins = vp_bare_page(bare, m->addr), pages = m->chunk->size >> bare->pool->mem.granularity_shift;
    for (size_t p = begins; p < begins + pages; p++) {
        uint32_t word = vp_bare_word(bare, p);
        if (!(word & VP_PAGE_BACKED) || (word & VP_PAGE_USED) != (p >= first && p < end))
            return false;
    }
    return is_worth(bare, beyond(begins, begins + pages, first, end));
}

/* Records an event first: what was let go of may be behind one that nobody has recorded yet. */
static void see_over(struct vp_pool *pool, const struct vp_bare_segment *segment) {
    if (segment->timeline)
        vp_timeline_record_outside(pool->mem.timelines, segment->timeline);
    vp_fit_refresh(&pool->mem);
}

/* Memory is short, and single pages most of all: slots that the block of [first, end) fills let go of single pages, so
 * that bodies can come. */
static void vacate(struct vp_pool *pool, const struct vp_bare_segment *segment, size_t first, size_t end) {
    struct vp_bare *bare = pool->bare;
    for (size_t p = vp_round_up(first, VP_SLOT_PAGES); p + VP_SLOT_PAGES <= end; p += VP_SLOT_PAGES) {
        if ((atomic_load(&bare->pages[p].word) & (VP_PAGE_FILLED | VP_PAGE_BODY)) != VP_PAGE_FILLED)
            continue;
        atomic_fetch_sub(&bare->pages[p].word, VP_PAGE_FILLED);
        vp_bare_let_go_all(pool, p, p + VP_SLOT_PAGES);
        atomic_fetch_add(&bare->pages[p].word, VP_PAGE_FILLED);
    }
    see_over(pool, segment);
}

/* A block lies in a part of a chunk with nothing else in it: replaces the chunk, where that is worth it. Until that is
 * free memory the block is not counted there. True: it stays, as work on it is not over. */
static bool shed(struct vp_pool *pool, const struct vp_bare_segment *segment, size_t page, size_t first, size_t end) {
    struct vp_bare *bare = pool->bare;
    struct vp_mapping *m = vp_mapping_at(&pool->mem, vp_bare_addr(bare, page));
    bool stays = false;
    if (!m || m->chunk->asleep || !(vp_bare_tight(pool, 0) || (in_vain(segment, m) && vp_bare_loses(pool, 0))))
        return false;
    if (!only_partly(bare, m, first, end))
        return false;
    size_t from = vp_bare_page(bare, m->addr), to = from + (m->chunk->size >> pool->mem.granularity_shift);
    from = from > first ? from : first;
    to = to < end ? to : end;
    vp_bare_count_used(bare, -vp_bare_pinned_in(bare, page));
    bare->slots[page / VP_SLOT_PAGES].inside -= (unsigned char)(to - from);
    for (size_t p = from; p < to; p++)
        atomic_fetch_sub(&bare->pages[p].word, 1);
    if (vp_bare_let_go(pool, m)) {
        if (bare->short_of)
            see_over(pool, segment);
        const CUdeviceptr addr = m->addr;
        stays = clear(pool, m) != 0;
        /* The driver may have failed half-way: a mapping that is no longer current is no block's. If memory is short it
         * is let go of only once: behind a new barrier each time it would wait for ever for others' later work. */
        m = stays && !bare->short_of ? vp_mapping_at(&pool->mem, addr) : NULL;
        if (m && m == m->chunk->current)
            vp_bare_keep(pool, segment, m);
    }
    size_t single = 0;
    for (size_t p = from; p < to; p++)
        single += atomic_fetch_add(&bare->pages[p].word, 1) & VP_PAGE_BODY ? 0 : VP_BARE_SINGLE - 1;
    bare->slots[page / VP_SLOT_PAGES].inside += (unsigned char)(to - from);
    vp_bare_count_used(bare, vp_bare_pinned_in(bare, page) + single);
    return stays;
}

/* Backs whatever has no memory yet. */
static int back_gaps(struct vp_pool *pool, CUdeviceptr addr, size_t size, bool patient) {
    struct vp_bare *bare = pool->bare;
    struct vp_bare_segment *segment = vp_bare_at(bare, addr);
    const size_t first = vp_bare_page(bare, addr), end = vp_bare_page(bare, addr + size - 1) + 1;
    int err = back_mapped(pool, segment, &(struct pages){first, end, patient});
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

int vp_bare_back(struct vp_pool *pool, CUdeviceptr addr, size_t size, bool patient) {
    struct vp_bare *bare = pool->bare;
    struct vp_bare_segment *segment = vp_bare_at(bare, addr);
    const size_t first = vp_bare_page(bare, addr), end = vp_bare_page(bare, addr + size - 1) + 1;
    bool stays = false;
    bare->backs = addr;
    bare->backs_size = size;
    vp_bare_count(pool);
    vp_slack_look_at_blocks(pool);
    vp_bare_run_open(bare, addr, size);
    if ((size >= VP_BARE_LARGE || bare->short_of) && may_let_go(pool)) {
        stays |= shed(pool, segment, first, first, end);
        stays |= shed(pool, segment, end - 1, first, end);
    }
    if (bare->short_of && may_let_go(pool))
        vacate(pool, segment, first, end);
    int err = back_gaps(pool, addr, size, patient);
    /* Where nobody asks for room idle memory may be lacking soon: it goes back only if this thread did ask. */
    if (!err && pool->bare_slack.over && vp_bare_promised_here(bare))
        pool->bare_slack.over = vp_bare_shrink(pool);
    if (err != -ENOMEM || !stays)
        return err;
    bare->short_of += !bare->short_of; /* not to be given to this block again and then let go of behind yet more work */
    return -EAGAIN;
}

/* How long to wait for pending memory before more is created; how long not to wait again after that was in vain, and
 * after twice in a row; how long to wait for what a block must have, and for what may be refused. */
static const uint64_t PATIENCE_NS = 50000000, REST_NS = 250000000, LONG_REST_NS = 60000000000, WAIT_NS = 60000000000,
                      PIN_WAIT_NS = 5000000000;

/* How often a refusal of the driver is retried; and how often completed work, perhaps of no use here, leads to one
 * without a pause. */
enum { FAILURES = 8, TRIES = 8 };

/* Pauses for what is pending. False: it has waited too long. */
static bool pause_for(struct vp_pool *pool, uint64_t begin, bool pins, bool *patient) {
    struct vp_bare *bare = pool->bare;
    const uint64_t now = pool->config.now(), passed = now - begin;
    if (*patient && passed > PATIENCE_NS) {
        *patient = false;
        bare->not_before = now + (bare->fruitless++ ? LONG_REST_NS : REST_NS);
        return true;
    }
    if (passed > (pins ? PIN_WAIT_NS : WAIT_NS))
        return false;
    pool->config.pause(passed);
    return true;
}

/* Does the segment still exist? While waiting, others may have freed it, or ended its context. */
static bool is_there(const struct vp_bare *bare, CUdeviceptr addr, uint64_t serial) {
    const struct vp_bare_segment *segment = vp_bare_at(bare, addr);
    return segment && segment->whole.serial == serial;
}

/* At the block's ends backed chunks may be exchanged. */
size_t vp_bare_need(const struct vp_bare *bare, CUdeviceptr addr, size_t size) {
    return vp_bare_lacking(bare, addr, size) + 2 * VP_SLOT_PAGES;
}

void vp_bare_give_up(struct vp_bare *bare, CUdeviceptr addr, size_t size) {
    for (size_t p = vp_bare_page(bare, addr); vp_bare_at(bare, addr) && p < vp_bare_page(bare, addr + size - 1) + 1;
         p++)
        if (!(atomic_load(&bare->pages[p].word) & VP_PAGE_BACKED)) {
            atomic_fetch_or(&bare->pages[p].word, VP_PAGE_GIVEN_UP);
            bare->gave_up = true;
        }
    vp_bare_forget_bounds(bare->pool);
}

/* First waits for what is being made ahead in the block's pages. False: the segment has ended meanwhile. */
static bool await_ahead(struct vp_pool *pool, const struct backing *what) {
    const size_t page = pool->mem.granularity;
    const CUdeviceptr first = what->addr / page * page, end = vp_round_up(what->addr + what->size, page);
    while (pool->ahead && pool->config.await_ahead && vp_ahead_busy(pool->ahead, first, end) &&
           pool->config.await_ahead(pool) && is_there(pool->bare, what->addr, what->serial))
        continue;
    return is_there(pool->bare, what->addr, what->serial);
}

/* Pinning takes memory that may be promised to a block; the block comes first. Pinning counts nothing: whoever holds
 * the cache's lock counts what is used. */
static int back(struct vp_pool *pool, const struct backing *what, bool patient) {
    struct vp_bare *bare = pool->bare;
    if (what->pins)
        vp_bare_await(pool);
    /* At each try: the builder may have begun while this thread waited. */
    if (!await_ahead(pool, what))
        return -ENODEV;
    if (!what->pins)
        return vp_bare_back(pool, what->addr, what->size, patient);
    const size_t more = vp_bare_lacking(bare, what->addr, what->size) * pool->mem.granularity;
    if (more && !vp_bare_leaves(pool, more))
        return -ENOMEM;
    vp_bare_count(pool);
    bare->pins = bare->counts_anew = true;
    int err = back_gaps(pool, what->addr, what->size, patient);
    bare->pins = bare->idle_listed = false; /* in no order */
    vp_bare_forget_bounds(pool);
    return err;
}

static int back_waiting(struct vp_pool *pool, const struct backing *what) {
    struct vp_bare *bare = pool->bare;
    const uint64_t begin = pool->config.now ? pool->config.now() : 0;
    bool patient = pool->config.pause && begin >= bare->not_before, asked = false, waited = false;
    int err;
    for (int failed = 0, tries = 0; (err = back(pool, what, patient || !asked)) && err != -ENODEV;) {
        bare->idle_listed = false;
        /* What is behind others' work may stay so for as long as a stream captures. */
        bare->short_of += err == -ENOMEM || (asked && !patient && !may_let_go(pool));
        /* What was known of the device is no longer true. */
        if (bare->short_of)
            atomic_store(&bare->bounds, 0);
        /* A failure can be reported to nobody: a used block must have memory. */
        if (err != -EAGAIN && ++failed > (vp_bare_doubts(bare, &bare->doubted_at) ? 1 : FAILURES))
            break; /* what this block lacks another may hold for a moment only */
        /* First ask what has completed; only then wait, or create memory. */
        if ((vp_fit_refresh(&pool->mem) && ++tries % TRIES) || err != -EAGAIN)
            continue;
        if (!asked && !patient) {
            asked = true;
            continue;
        }
        asked = waited = true;
        if (!pool->config.pause || !pause_for(pool, begin, what->pins, &patient))
            break;
    }
    bare->short_of = 0;
    if (patient && waited)
        bare->fruitless = 0;
    if (waited)
        vp_pool_waited(pool, pool->config.now ? pool->config.now() - begin : 0, !patient || err);
    if (!err)
        vp_giving_note(pool, what->size);
    return err;
}

int vp_bare_back_waiting(struct vp_pool *pool, CUdeviceptr addr, size_t size) {
    return back_waiting(pool, &(struct backing){addr, size, vp_bare_at(pool->bare, addr)->whole.serial, false});
}

/* A wait for the block of one promise, or of those that took its place: when it began; since when the promised thread
 * sleeps; that thread; its CPU time at the beginning, and at the last look. */
struct patience {
    unsigned promises, lapsed;
    uint64_t begin, asleep, thread, had_run, ran;
};

static struct patience patience_with(const struct vp_bare *bare, uint64_t begin, uint64_t now) {
    const uint64_t thread = atomic_load_explicit(&bare->promised_to, memory_order_relaxed);
    const uint64_t ran = vp_thread_cpu_ns(thread);
    return (struct patience){atomic_load(&bare->promises), atomic_load(&bare->lapsed), begin, now, thread, ran, ran};
}

/* May the block still come? The promised thread may have been refused, or be held up by this one; or all CPUs are
 * busy. */
static bool may_come(struct patience *patience, uint64_t now) {
    if (now - patience->begin <= VP_BARE_PATIENCE_NS / 10)
        return true;
    const uint64_t ran = vp_thread_cpu_ns(patience->thread);
    /* This thread may have had no CPU itself: one that sleeps at two looks need not have slept in between. */
    if (vp_thread_is_ready(patience->thread) || ran != patience->ran)
        patience->asleep = now;
    patience->ran = ran;
    return now - patience->begin <= VP_BARE_BUSY_NS && now - patience->asleep <= VP_BARE_PATIENCE_NS &&
           ran - patience->had_run <= VP_BARE_PATIENCE_NS;
}

bool vp_bare_is_owed(struct vp_pool *pool) {
    const struct vp_bare *bare = pool->bare;
    vp_bare_forget_bounds(pool);
    return bare && (bare->owed || (vp_bare_promised(bare) && !vp_bare_promised_here(bare)));
}

bool vp_bare_await_block(struct vp_pool *pool) {
    struct vp_bare *bare = pool->bare;
    struct patience patience = {0};
    uint64_t first = 0;
    bool waited = false;
    if (bare)
        vp_bare_proceed(bare);
    while (bare) {
        vp_bare_forget_bounds(pool);
        unsigned promises = atomic_load(&bare->promises);
        if (!(promises & 1) || vp_bare_promised_here(bare) || !pool->config.pause || !pool->config.now)
            break;
        const uint64_t now = pool->config.now();
        first = waited ? first : now;
        if (!waited || patience.promises != promises) {
            /* If another promise took the place of a block that has not come, the rest of the time is left for it. */
            const uint64_t begin = waited && atomic_load(&bare->lapsed) != patience.lapsed ? patience.begin : now;
            patience = patience_with(bare, begin, now);
        }
        if (bare->owed ? now - first > VP_BARE_BUSY_NS
                       : !may_come(&patience, now) && !atomic_load(&bare->has_come) && !atomic_load(&bare->held_up)) {
            /* The next caller need not wait for it. */
            atomic_compare_exchange_strong(&bare->promises, &promises, promises + 1);
            break;
        }
        pool->config.pause(now - patience.begin);
        waited = true;
    }
    return waited;
}

bool vp_bare_await_told(struct vp_pool *pool) {
    enum { MOST = 5 }; /* times as long, while the thread reports more */
    struct vp_bare *bare = pool->bare;
    struct patience patience = {0};
    uint64_t first = 0, told = 0;
    bool waited = false;
    for (; bare && vp_bare_doubts(bare, &bare->doubted_at) && pool->config.pause && pool->config.now; waited = true) {
        unsigned promises = atomic_load(&bare->promises);
        const uint64_t now = pool->config.now(), all = atomic_load(&bare->uses) + atomic_load(&bare->ends);
        first = waited ? first : now;
        if (!waited || all != told) {
            patience = patience_with(bare, now, now);
            told = all;
        }
        if (now - first > MOST * (uint64_t)VP_BARE_BUSY_NS ||
            (!may_come(&patience, now) && !atomic_load(&bare->has_come))) {
            if (!atomic_load(&bare->has_come))
                atomic_compare_exchange_strong(&bare->promises, &promises, promises + 2);
            break;
        }
        pool->config.pause(now - first);
    }
    if (waited) /* the doubt ends when room is made for the next block */
        vp_bare_await(pool);
    return waited;
}

int vp_bare_pin_range(struct vp_pool *pool, CUdeviceptr addr, size_t size) {
    struct vp_bare *bare = pool->bare;
    struct vp_bare_segment *segment = vp_bare_at(bare, addr);
    const struct backing what = {addr, size, segment->whole.serial, true};
    const size_t first = vp_bare_page(bare, addr), end = vp_bare_page(bare, addr + size - 1) + 1;
    /* What is idle there may be what a block was promised. */
    vp_bare_await_all(pool);
    if (!is_there(bare, addr, what.serial))
        return -ENODEV;
    segment->pins_pages = true;
    /* Pages with memory keep it from now on, and so do those that get some. */
    for (size_t p = first; p < end; p++)
        atomic_fetch_or(&bare->pages[p].word, VP_PAGE_PINNED);
    int err = back_waiting(pool, &what);
    if (err == -ENODEV) /* its pages no longer matter */
        return err;
    for (size_t p = first; p < end && err; p++)
        if (!(atomic_load(&bare->pages[p].word) & VP_PAGE_BACKED))
            atomic_fetch_and(&bare->pages[p].word, ~VP_PAGE_PINNED);
    return err == -EAGAIN ? -ENOMEM : err;
}
