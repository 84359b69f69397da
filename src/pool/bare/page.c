/* Bare segments, page by page: blocks come and go, and their memory is kept or let go of. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/bare.h"
#include "pool/slack.h"

/* ---- promises ---- */

/* The thread with the last promise need not wait for its own block: it may make its segment by cudaMalloc. If its block
 * never came, another promise may have been made since. */
bool vp_bare_promised_here(const struct vp_bare *bare) {
    return atomic_load(&bare->promises) & 1 && atomic_load(&bare->promised_to) == vp_thread_id();
}

static __attribute__((noinline, cold)) void promise_first(struct vp_bare *bare) {
    vp_thread_ask();
    vp_bare_promise(bare);
}

void vp_bare_promise(struct vp_bare *bare) {
    const unsigned promises = atomic_load_explicit(&bare->promises, memory_order_relaxed);
    if (__builtin_expect(!vp_thread_own, false))
        return promise_first(bare);
    atomic_store_explicit(&bare->promised_to, vp_thread_own, memory_order_relaxed);
    if (__builtin_expect(promises & 1, false))
        atomic_fetch_add_explicit(&bare->lapsed, 1, memory_order_relaxed);
    atomic_store(&bare->promises, promises + (promises & 1 ? 2 : 1));
}

void vp_bare_promise_end(struct vp_bare *bare) {
    const unsigned promises = atomic_load_explicit(&bare->promises, memory_order_relaxed);
    if (promises & 1)
        atomic_store_explicit(&bare->promises, promises + 1, memory_order_release);
}

void vp_bare_doubt_anew(struct vp_bare *bare) {
    const unsigned promises = atomic_load_explicit(&bare->promises, memory_order_relaxed);
    atomic_store_explicit(&bare->promised_to, vp_thread_id(), memory_order_relaxed);
    atomic_store(&bare->promises, promises + (promises & 1 ? 1 : 2));
}

void vp_bare_proceed(struct vp_bare *bare) {
    unsigned promises = atomic_load(&bare->promises);
    if (vp_bare_doubts(bare, &bare->doubted_at) && !atomic_load(&bare->has_come) &&
        atomic_load(&bare->promised_to) == vp_thread_id())
        atomic_compare_exchange_strong(&bare->promises, &promises, promises + 2);
}

/* ---- blocks ---- */

/* Reports about blocks that do not exist may be wrong, but nothing becomes negative. */
static uint64_t step(_Atomic uint64_t *sum, uint64_t size, bool used) {
    uint64_t bytes = atomic_load_explicit(sum, memory_order_relaxed);
    bytes = used ? bytes + size : bytes - (size < bytes ? size : bytes);
    atomic_store_explicit(sum, bytes, memory_order_relaxed);
    return bytes;
}

static void count_live(struct vp_bare *bare, size_t page, uint64_t size, bool used) {
    struct vp_bare_segment *segment = bare->slots[page / VP_SLOT_PAGES].segment;
    if (!segment)
        return;
    const uint64_t before = atomic_load_explicit(&segment->live, memory_order_relaxed);
    const uint64_t after = step(&segment->live, size, used);
    uint64_t live = step(&bare->live, used ? size : before - after, used);
    _Atomic uint64_t *count = used ? &bare->uses : &bare->ends;
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
    live += atomic_load_explicit(&bare->other, memory_order_relaxed);
    if (used && live > atomic_load_explicit(&bare->peak, memory_order_relaxed))
        atomic_store_explicit(&bare->peak, live, memory_order_relaxed);
}

/* Is so much lost in chunks pinned in part that replacing some may be worthwhile? */
static bool much_lost(const struct vp_bare *bare) {
    size_t used = vp_bare_used_bytes(bare);
    size_t live = atomic_load_explicit(&bare->live, memory_order_relaxed);
    const uint64_t all = live + atomic_load_explicit(&bare->other, memory_order_relaxed);
    if (all <= atomic_load_explicit(&bare->peak, memory_order_relaxed) / 100 * VP_BARE_TIGHT_PERCENT)
        return false;
    return used > live + atomic_load_explicit(&bare->waste_most, memory_order_relaxed);
}

void vp_bare_count_used(struct vp_bare *bare, size_t pages) {
    atomic_store_explicit(&bare->used, atomic_load_explicit(&bare->used, memory_order_relaxed) + pages,
                          memory_order_relaxed);
}

void vp_bare_count_held(struct vp_bare *bare, size_t pages) {
    const size_t bounds = atomic_load(&bare->bounds), sum = bounds + pages;
    if (bounds) /* unless a half becomes negative */
        atomic_store(&bare->bounds, sum & ((size_t)1 << 63 | (size_t)1 << 31) ? 0 : sum);
}

static bool is_wider(const struct vp_bare *bare, size_t page) {
    return atomic_load_explicit(&bare->pages[page].word, memory_order_relaxed) & VP_PAGE_BODY;
}

static inline size_t pinned_in(const struct vp_bare *bare, size_t slot) {
    const size_t inside = bare->slots[slot].inside;
    return inside && inside < VP_SLOT_PAGES && is_wider(bare, slot * VP_SLOT_PAGES) ? VP_SLOT_PAGES - inside : 0;
}

size_t vp_bare_pinned_in(const struct vp_bare *bare, size_t page) {
    return pinned_in(bare, page / VP_SLOT_PAGES);
}

void vp_bare_count_anew(struct vp_bare *bare) {
    const struct vp_bare_segment *segment;
    bool lacks = false;
    size_t all = 0;
    if (!bare->counts_anew && !bare->gave_up)
        return;
    bare->counts_anew = false;
    vp_list_each(segment, &bare->segments, link) {
        const size_t end = vp_bare_page(bare, vp_region_end(&segment->whole));
        for (size_t slot = vp_bare_page(bare, segment->whole.addr); slot < end; slot += VP_SLOT_PAGES) {
            size_t used = 0;
            for (size_t p = slot; p < slot + VP_SLOT_PAGES; p++) {
                const uint32_t word = vp_bare_word(bare, p);
                used += word & VP_PAGE_USED ? VP_BARE_SINGLE : 0;
                lacks |= word & VP_PAGE_USED && !(word & VP_PAGE_BACKED);
            }
            all += used && is_wider(bare, slot) ? VP_SLOT_PAGES : used;
        }
    }
    bare->gave_up &= lacks;
    atomic_store_explicit(&bare->used, all, memory_order_relaxed);
}

/* Pages pinned without a block in the slots at the block's ends, which other blocks may share. */
static inline size_t pinned_around(const struct vp_bare *bare, const struct vp_bare_extent *x) {
    return (x->head_shared ? pinned_in(bare, x->head) : 0) + (x->tail_shared ? pinned_in(bare, x->tail) : 0);
}

static inline size_t slot_end(size_t page, size_t end) {
    const size_t stop = (page / VP_SLOT_PAGES + 1) * VP_SLOT_PAGES;
    return stop < end ? stop : end;
}

/* A block fills the slot that begins at page `head`. Returns what the words of all its pages have in common. Whoever
 * lets go of one of them first clears its word and then looks at the first page's; this notes the block there first and
 * then looks at all: one of the two sees the other. */
static inline uint32_t fill_slot(struct vp_bare *bare, size_t head) {
    uint32_t all = atomic_fetch_add(&bare->pages[head].word, VP_PAGE_FILLED);
    for (size_t p = head + 1; p < head + VP_SLOT_PAGES; p++)
        all &= atomic_load(&bare->pages[p].word);
    return all;
}

/* How a used page with that word is counted. */
static inline size_t count_as(uint32_t word) {
    return word & VP_PAGE_BODY ? 1 : VP_BARE_SINGLE;
}

/* A block comes into a page. Returns the page's word before. */
static inline uint32_t enter_page(struct vp_bare *bare, size_t page, size_t *used) {
    const uint32_t word = atomic_fetch_add(&bare->pages[page].word, 1);
    const bool empty = !(word & VP_PAGE_BLOCKS);
    *used += empty ? count_as(word) : 0;
    bare->slots[page / VP_SLOT_PAGES].inside += empty;
    return word;
}

/* Counts a block page by page. Returns what the pages' words have in common. */
static uint32_t enter_pages(struct vp_bare *bare, const struct vp_bare_extent *x, size_t *used) {
    uint32_t all = VP_PAGE_BACKED;
    for (size_t p = x->first, stop; p < x->end; p = stop) {
        stop = slot_end(p, x->end);
        if (stop - p == VP_SLOT_PAGES && vp_bare_fills(x, p / VP_SLOT_PAGES)) {
            const uint32_t word = fill_slot(bare, p);
            all &= word;
            *used += VP_SLOT_PAGES * count_as(word);
            continue;
        }
        for (; p < stop; p++)
            all &= enter_page(bare, p, used);
    }
    return all;
}

/* The run of all whole pages of a block, if it is in that state; else NULL. */
static inline struct vp_bare_run *run_as(struct vp_bare *bare, const struct vp_bare_extent *x, uint32_t state) {
    if (x->whole + VP_RUN_LEAST > x->stop)
        return NULL;
    struct vp_bare_run *run = &bare->runs[x->whole];
    const uint32_t word = (uint32_t)(x->stop - x->whole) | state;
    return atomic_load_explicit(&run->word, memory_order_relaxed) == word ? run : NULL;
}

/* How many pages of a block's run lie in a slot. */
static inline unsigned char run_in(const struct vp_bare_extent *x, size_t slot) {
    const size_t first = slot * VP_SLOT_PAGES, end = first + VP_SLOT_PAGES;
    const size_t from = x->whole > first ? x->whole : first, to = x->stop < end ? x->stop : end;
    return to > from ? (unsigned char)(to - from) : 0;
}

/* Takes the block's run, if nobody has broken it, and the pages beside it. NULL: there is none. */
static inline struct vp_bare_run *enter_run(struct vp_bare *bare, const struct vp_bare_extent *x, uint32_t *all,
                                            size_t *used) {
    struct vp_bare_run *run = run_as(bare, x, VP_RUN_WHOLE);
    uint32_t word = (uint32_t)(x->stop - x->whole) | VP_RUN_WHOLE;
    if (!run || !atomic_compare_exchange_strong(&run->word, &word, word | VP_RUN_USED))
        return NULL;
    *used += x->stop - x->whole + ((size_t)run->single << 32);
    bare->slots[x->head].inside += x->head_shared ? run_in(x, x->head) : 0;
    bare->slots[x->tail].inside += x->tail_shared ? run_in(x, x->tail) : 0;
    if (x->first < x->whole)
        *all &= enter_page(bare, x->first, used);
    if (x->stop < x->end)
        *all &= enter_page(bare, x->stop, used);
    return run;
}

/* Notes the use in the past: of the run, or of every slot; and of the slots at its ends, which count by themselves. */
static inline void note_use(struct vp_bare *bare, const struct vp_bare_extent *x, struct vp_bare_run *run) {
    if (!run) {
        for (size_t slot = x->head; slot <= x->tail; slot++)
            vp_bare_past_slot(&bare->past, &bare->slots[slot].last);
        return;
    }
    vp_bare_past_slot(&bare->past, &run->last);
    if (x->head_shared)
        vp_bare_past_slot(&bare->past, &bare->slots[x->head].last);
    if (x->tail_shared)
        vp_bare_past_slot(&bare->past, &bare->slots[x->tail].last);
}

/* The size that the program asked for: the cache leaves up to 1 MiB with a block if splitting it off is not worthwhile,
 * and rounds, so that blocks are alike whose sizes are not. */
static inline size_t size_asked(struct vp_bare *bare, size_t size) {
    const size_t asked = bare->asked;
    bare->asked = 0;
    return asked && asked <= size ? asked : size;
}

bool vp_bare_use(struct vp_bare *bare, CUdeviceptr addr, size_t size) {
    const struct vp_bare_extent x = vp_bare_extent(bare, addr, size);
    uint32_t all = VP_PAGE_BACKED;
    size_t used = -pinned_around(bare, &x), around;
    struct vp_bare_run *run = enter_run(bare, &x, &all, &used);
    if (!run)
        all = enter_pages(bare, &x, &used);
    used += around = pinned_around(bare, &x);
    vp_bare_count_used(bare, used);
    count_live(bare, x.first, size, true);
    if (size >= VP_BARE_LARGE) {
        vp_bare_past_block(&bare->past, addr, size);
        if (__builtin_expect(bare->lifetimes != NULL, false))
            vp_lifetimes_begin(bare->lifetimes, addr - bare->base, size);
        const bool due = vp_slack_count_block(bare->pool, size_asked(bare, size));
        note_use(bare, &x, run);
        return all && !due && !(around >= VP_BARE_WORTH_PAGES && much_lost(bare));
    }
    return all;
}

/* A block leaves a page. Returns the page as a count if it is empty then. `seq`: number of the stream's next event. */
static inline size_t leave_page(struct vp_bare *bare, size_t at, uint32_t seq) {
    struct vp_bare_page *page = &bare->pages[at];
    if (!(atomic_load_explicit(&page->word, memory_order_relaxed) & VP_PAGE_BLOCKS))
        return 0;
    page->seq = seq;
    const uint32_t word = atomic_fetch_sub_explicit(&page->word, 1, memory_order_acq_rel);
    if ((word & VP_PAGE_BLOCKS) != 1)
        return 0;
    bare->slots[at / VP_SLOT_PAGES].inside--;
    page->rested = vp_bare_past_now(&bare->past);
    return count_as(word);
}

/* The block that fills a slot leaves it. */
static inline size_t leave_slot(struct vp_bare *bare, size_t head, uint32_t seq) {
    struct vp_bare_slot *slot = &bare->slots[head / VP_SLOT_PAGES];
    if (!(atomic_load_explicit(&bare->pages[head].word, memory_order_relaxed) & VP_PAGE_FILLED))
        return 0;
    slot->seq = seq;
    slot->unnumbered = !seq;
    slot->rested = vp_bare_past_now(&bare->past);
    return VP_SLOT_PAGES * count_as(atomic_fetch_sub(&bare->pages[head].word, VP_PAGE_FILLED));
}

static size_t leave_one_by_one(struct vp_bare *bare, const struct vp_bare_extent *x, uint32_t seq) {
    size_t empty = 0;
    for (size_t p = x->first, stop; p < x->end; p = stop) {
        stop = slot_end(p, x->end);
        if (stop - p == VP_SLOT_PAGES && vp_bare_fills(x, p / VP_SLOT_PAGES)) {
            empty += leave_slot(bare, p, seq);
            continue;
        }
        for (; p < stop; p++)
            empty += leave_page(bare, p, seq);
    }
    return empty;
}

/* A block leaves its run, in one step, and the pages beside it. */
static inline size_t leave_run(struct vp_bare *bare, struct vp_bare_run *run, const struct vp_bare_extent *x,
                               uint32_t seq) {
    size_t empty = x->stop - x->whole + ((size_t)run->single << 32);
    run->seq = seq;
    run->unnumbered = !seq;
    run->rested = vp_bare_past_now(&bare->past);
    atomic_store_explicit(&run->word, (uint32_t)(x->stop - x->whole) | VP_RUN_WHOLE, memory_order_release);
    bare->slots[x->head].inside -= x->head_shared ? run_in(x, x->head) : 0;
    bare->slots[x->tail].inside -= x->tail_shared ? run_in(x, x->tail) : 0;
    if (x->first < x->whole)
        empty += leave_page(bare, x->first, seq);
    if (x->stop < x->end)
        empty += leave_page(bare, x->stop, seq);
    return empty;
}

/* A block has left its pages. */
static inline void count_end(struct vp_bare *bare, const struct vp_bare_extent *x, CUdeviceptr addr, size_t size) {
    count_live(bare, x->first, size, false);
    if (__builtin_expect(bare->lifetimes != NULL, false) && size >= VP_BARE_LARGE)
        vp_lifetimes_end(bare->lifetimes, addr - bare->base);
}

/* True: the block was not a run. */
static inline bool leave_pages(struct vp_bare *bare, const struct vp_bare_extent *x, uint32_t seq) {
    struct vp_bare_run *run = run_as(bare, x, VP_RUN_WHOLE | VP_RUN_USED);
    size_t empty = pinned_around(bare, x);
    empty += run ? leave_run(bare, run, x, seq) : leave_one_by_one(bare, x, seq);
    vp_bare_count_used(bare, pinned_around(bare, x) - empty);
    return !run;
}

void vp_bare_unuse(struct vp_bare *bare, CUdeviceptr addr, size_t size) {
    const struct vp_bare_extent x = vp_bare_extent(bare, addr, size);
    leave_pages(bare, &x, 0);
    count_end(bare, &x, addr, size);
}

/* Events for what large blocks leave, while chunks move: so that it is soon known whether work on each is over. */
enum { EVENT_BYTES = 64 << 20, EVENT_SHARE = 64, MOVES_WITHIN = 4096 };

static inline bool event_is_due(const struct vp_bare *bare, size_t size) {
    const uint64_t worth = atomic_load_explicit(&bare->peak, memory_order_relaxed) / EVENT_SHARE;
    const uint32_t filled = atomic_load_explicit(&bare->filled, memory_order_relaxed);
    return filled && vp_bare_past_now(&bare->past) - filled <= MOVES_WITHIN &&
           bare->let_go + size >= (worth > EVENT_BYTES ? worth : EVENT_BYTES);
}

static void note_event(struct vp_pool *pool, struct vp_timeline *timeline, size_t size) {
    struct vp_bare *bare = pool->bare;
    const bool due = event_is_due(bare, size);
    bare->let_go += size;
    if (!due)
        return;
    bare->let_go = 0;
    vp_timeline_record_outside(pool->mem.timelines, timeline);
}

/* The number of an event that comes after all that this thread has queued, read without the lock. An event that is
 * being recorded may come before that work, so the next one is meant. Otherwise the next event is recorded later:
 * whoever records it first sets `recording`, and the driver orders its calls on one stream. */
static inline uint32_t coming(const struct vp_timeline *timeline) {
    const bool recording = atomic_load(&timeline->recording);
    return (uint32_t)(atomic_load(&timeline->next) + recording);
}

bool vp_bare_unuse_large(struct vp_bare *bare, const struct vp_bare_segment *segment, CUdeviceptr addr, size_t size) {
    const struct vp_bare_extent x = vp_bare_extent(bare, addr, size);
    const struct vp_timeline *timeline = atomic_load_explicit(&segment->timeline, memory_order_acquire);
    const bool one_step = x.whole + VP_RUN_LEAST > x.stop || run_as(bare, &x, VP_RUN_WHOLE | VP_RUN_USED);
    if (!timeline || !one_step || event_is_due(bare, size))
        return false;
    bare->let_go += size;
    leave_pages(bare, &x, coming(timeline));
    count_end(bare, &x, addr, size);
    return true;
}

/* Is a page pinned in the slots that the block touches? */
static bool is_pinned_around(const struct vp_bare *bare, const struct vp_bare_extent *x) {
    return vp_bare_words(bare, x->head * VP_SLOT_PAGES, (x->tail + 1) * VP_SLOT_PAGES) & VP_PAGE_PINNED;
}

bool vp_bare_unuse_locked(struct vp_pool *pool, CUdeviceptr addr, size_t size, bool barrier) {
    struct vp_bare *bare = pool->bare;
    struct vp_bare_segment *segment = vp_bare_at(bare, addr);
    if (!segment) /* it ended while this thread waited for the lock */
        return false;
    const struct vp_bare_extent x = vp_bare_extent(bare, addr, size);
    struct vp_timeline *timeline = segment->timeline;
    const uint32_t seq = timeline ? (uint32_t)timeline->next : 0;
    uint32_t flags = atomic_load(&pool->mem.timelines->captures) ? VP_PAGE_PINNED : 0;
    /* A block leaves nothing idle in pinned pages. */
    const bool stays = flags || segment->pinned || (segment->pins_pages && is_pinned_around(bare, &x));
    segment->pins_pages |= flags != 0;
    const size_t used = atomic_load_explicit(&bare->used, memory_order_relaxed);
    if (barrier || !timeline)
        flags |= VP_PAGE_SHARED;
    for (size_t p = x.first; p < x.end && flags; p++)
        atomic_fetch_or(&bare->pages[p].word, flags);
    if (leave_pages(bare, &x, seq) && size >= VP_BARE_LARGE && x.whole + VP_RUN_LEAST <= x.stop && !flags)
        vp_bare_run_left(bare, x.whole, x.stop, seq);
    if (stays) {
        vp_bare_count_held(bare, -(used - atomic_load_explicit(&bare->used, memory_order_relaxed)));
        bare->singles += vp_bare_beside_kept(bare, segment, x.head * VP_SLOT_PAGES, x.end);
    }
    count_end(bare, &x, addr, size);
    if (timeline && size >= VP_BARE_LARGE)
        note_event(pool, timeline, size);
    if (!(flags & VP_PAGE_SHARED) || size < VP_BARE_LARGE)
        return false;
    vp_bare_let_go_all(pool, x.first, x.end);
    return vp_bare_doubts(bare, &segment->doubted_at);
}

/* ---- letting go ---- */

/* A context of another device that fails for good has no work left that could touch the bytes. */
int vp_bare_barrier(struct vp_pool *pool, struct vp_fence *fence) {
    struct vp_context *ctx;
    int err = 0;
    vp_list_each(ctx, &pool->mem.timelines->contexts, link)
        if (!err && !ctx->gone && (ctx->device == pool->mem.device || !ctx->sick))
            err = vp_fence_add_barrier(pool->mem.timelines, fence, ctx, !vp_timelines_all_named(pool->mem.timelines));
    return err;
}

/* How many events of the stream ago the event `seq` was to come next. `seq` may be one too high, if an event was just
 * being recorded and that failed. */
static inline uint32_t since(uint32_t next, uint32_t seq) {
    return seq && (int32_t)(next - seq) > 0 ? next - seq : 0;
}

/* How many events of the stream ago a block last left a page. */
static uint32_t left_ago(const struct vp_bare *bare, size_t page, uint32_t next) {
    const struct vp_bare_slot *slot = &bare->slots[page / VP_SLOT_PAGES];
    const uint32_t ago = since(next, bare->pages[page].seq);
    const uint32_t slot_ago = slot->seq ? since(next, slot->seq) : slot->unnumbered ? 0 : ago;
    const struct vp_bare_run *run = vp_bare_run_of(bare, page);
    const uint32_t run_ago = !run ? ago : run->unnumbered ? 0 : since(next, run->seq);
    const uint32_t least = slot_ago < ago ? slot_ago : ago;
    return run_ago < least ? run_ago : least;
}

/* Backs the pages again as they were. A block that came meanwhile has counted them differently. */
static void restore(struct vp_bare *bare, size_t first, size_t end, uint32_t flags) {
    for (size_t p = first; p < end; p++)
        atomic_fetch_or(&bare->pages[p].word, VP_PAGE_BACKED | (flags & VP_PAGE_BODY));
    bare->counts_anew |= end > first;
}

/* Takes the pages [first, end) from all who may use blocks there. `*flags`: flags that some of them had; `*ago`: how
 * many events of the stream ago the last block left them. False: one is used or pinned. */
static bool claim(struct vp_bare *bare, const struct vp_bare_segment *segment, size_t first, size_t end, uint32_t next,
                  uint32_t *flags, uint32_t *ago) {
    bool ours = !vp_bare_doubts(bare, &segment->doubted_at);
    size_t p = first;
    *flags = 0;
    *ago = UINT32_MAX;
    /* First check, so as not to break a run for nothing. */
    for (size_t q = first; q < end && ours; q++)
        ours = !(vp_bare_word(bare, q) & (VP_PAGE_USED | VP_PAGE_PINNED));
    while (ours && p < end) {
        uint32_t word = atomic_load(&bare->pages[p].word);
        ours = word & VP_PAGE_BACKED && !(word & (VP_PAGE_USED | VP_PAGE_PINNED)) && vp_bare_run_break(bare, p) &&
               atomic_compare_exchange_strong(&bare->pages[p].word, &word, word & ~(VP_PAGE_BACKED | VP_PAGE_BODY));
        if (!ours)
            break;
        ours = !(vp_bare_word(bare, p) & VP_PAGE_FILLED);
        const uint32_t since = left_ago(bare, p++, next);
        *flags |= word;
        *ago = since < *ago ? since : *ago;
    }
    /* A block in doubt may have left one since. */
    ours = ours && !vp_bare_doubts(bare, &segment->doubted_at);
    if (!ours)
        restore(bare, first, p, *flags);
    return ours;
}

/* `barrier`: shared by all that are let go of together; made here if it is empty and needed. */
static bool let_go(struct vp_pool *pool, const struct vp_mapping *m, struct vp_fence *barrier) {
    struct vp_bare *bare = pool->bare;
    struct vp_timelines *timelines = pool->mem.timelines;
    const struct vp_bare_segment *segment = vp_bare_at(bare, m->addr);
    const size_t first = vp_bare_page(bare, m->addr), end = first + vp_bare_pages(pool, m->chunk);
    struct vp_timeline *timeline = segment ? segment->timeline : NULL;
    uint32_t flags, ago;
    if (!(atomic_load(&bare->pages[first].word) & VP_PAGE_BACKED))
        return true;
    if (!segment || segment->pinned ||
        !claim(bare, segment, first, end, timeline ? (uint32_t)timeline->next : 0, &flags, &ago))
        return false;
    struct vp_fence fence = {0};
    int err = 0;
    if (timeline && !(flags & VP_PAGE_SHARED))
        vp_fence_add_past_free(timelines, &fence, timeline, timeline->next - ago);
    else if (!vp_fence_empty(barrier) || !(err = vp_bare_barrier(pool, barrier)))
        vp_fence_unite(timelines, &fence, barrier);
    if (!err)
        err = vp_backing_drop(&pool->mem, m, &fence);
    if (err) {
        vp_fence_clear(timelines, &fence);
        restore(bare, first, end, flags);
        return false;
    }
    for (size_t p = first; p < end; p++)
        atomic_fetch_and(&bare->pages[p].word, ~VP_PAGE_SHARED);
    return true;
}

bool vp_bare_let_go_all(struct vp_pool *pool, size_t first, size_t end) {
    struct vp_fence barrier = {0};
    struct vp_mapping *m;
    bool gone = true;
    vp_bare_mappings_each(m, pool->bare, first, end) gone &= let_go(pool, m, &barrier);
    vp_fence_clear(pool->mem.timelines, &barrier);
    return gone;
}

bool vp_bare_let_go(struct vp_pool *pool, const struct vp_mapping *m) {
    const size_t page = vp_bare_page(pool->bare, m->addr);
    return vp_bare_let_go_all(pool, page, page + 1);
}

/* Backs a mapping that is current and free. */
int vp_bare_keep(struct vp_pool *pool, const struct vp_bare_segment *segment, const struct vp_mapping *m) {
    struct vp_bare *bare = pool->bare;
    const struct vp_request req = {.timeline = segment->timeline};
    const CUdeviceptr end = m->addr + m->chunk->size;
    bool ready = vp_range_usable(vp_region_at(&pool->mem, m->addr), m->addr, end, &req, VP_USE_READY);
    int err = vp_backing_take(&pool->mem, m);
    if (err)
        return err;
    m->chunk->cached = true;
    const size_t pages = m->chunk->size >> pool->mem.granularity_shift, first = vp_bare_page(bare, m->addr);
    uint32_t flags = VP_PAGE_BACKED | (ready ? 0 : VP_PAGE_SHARED) | (pages > 1 ? VP_PAGE_BODY : 0);
    size_t used = 0;
    for (size_t p = first; p < first + pages; p++) {
        used += vp_bare_word(bare, p) & VP_PAGE_USED ? VP_BARE_SINGLE - 1 : 0;
        /* All that its own stream did here before came before its next event. */
        bare->pages[p].seq = segment->timeline ? (uint32_t)segment->timeline->next : 0;
        atomic_fetch_and(&bare->pages[p].word, ~(VP_PAGE_STALE | VP_PAGE_SHARED | VP_PAGE_GIVEN_UP));
        atomic_fetch_or(&bare->pages[p].word, flags);
    }
    if (!bare->pins)
        vp_bare_count_used(bare, vp_bare_pinned_in(bare, first) - (pages > 1 ? used : 0));
    return 0;
}
