/* Bare segments: runs of pages, which a block takes and leaves in one step.
 *
 * A run is made of the whole pages of a block that has left them twice in a row, and is broken when memory of one of
 * them is wanted. Both are rare; in between the block comes and goes in one step each, in page.c.
 *
 * Taking and breaking a run both change its word from whole by one atomic step, so that only one of them succeeds. A
 * block that comes too late to take it counts itself page by page, as if there had never been a run. Everything else
 * happens under both locks: then no block comes or goes, and nobody breaks a run. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/bare.h"

/* The later of two event numbers; 0, not noted, counts as later than all. */
static uint32_t later(uint32_t a, uint32_t b) {
    if (!a || !b)
        return 0;
    return (int32_t)(a - b) > 0 ? a : b;
}

/* Ends a run: what was noted of it is noted in its pages again, and in their slots. */
static void dissolve(struct vp_bare *bare, size_t head) {
    struct vp_bare_run *run = &bare->runs[head];
    const size_t end = head + (atomic_load(&run->word) & VP_RUN_PAGES);
    for (size_t p = head; p < end; p++) {
        struct vp_bare_page *page = &bare->pages[p];
        page->rested = run->rested > page->rested ? run->rested : page->rested;
        page->seq = run->unnumbered ? 0 : later(page->seq, run->seq);
        atomic_store_explicit(&page->run, 0, memory_order_relaxed);
        if (p == head || p % VP_SLOT_PAGES == 0)
            vp_bare_past_unite(&bare->past, &bare->slots[p / VP_SLOT_PAGES].last, run->last);
    }
    *run = (struct vp_bare_run){0};
}

static bool can_be_one(const struct vp_bare *bare, size_t first, size_t end) {
    for (size_t p = first; p < end; p++) {
        const uint32_t word = vp_bare_word(bare, p);
        if (!(word & VP_PAGE_BACKED) || word & VP_PAGE_USED)
            return false;
    }
    return true;
}

void vp_bare_run_left(struct vp_bare *bare, size_t first, size_t end, uint32_t seq) {
    struct vp_bare_run *run = &bare->runs[first];
    const uint32_t pages = (uint32_t)(end - first);
    if (run->block_pages != pages) {
        run->block_pages = pages;
        return;
    }
    if (end - first > VP_RUN_PAGES || !can_be_one(bare, first, end))
        return;
    if ((atomic_load(&run->word) & VP_RUN_PAGES) != pages) {
        for (size_t p = first; p < end; p++) {
            const struct vp_bare_run *other = vp_bare_run_of(bare, p);
            if (other)
                dissolve(bare, (size_t)(other - bare->runs));
            atomic_store_explicit(&bare->pages[p].run, (uint32_t)first + 1, memory_order_relaxed);
        }
        run->last = 0;
        run->block_pages = pages;
    }
    run->single = 0;
    for (size_t p = first; p < end; p++)
        run->single += !(atomic_load(&bare->pages[p].word) & VP_PAGE_BODY);
    run->rested = vp_bare_past_now(&bare->past);
    run->seq = seq;
    run->unnumbered = !seq;
    atomic_store(&run->word, pages | VP_RUN_WHOLE);
}

bool vp_bare_run_break(struct vp_bare *bare, size_t page) {
    struct vp_bare_run *run = vp_bare_run_of(bare, page);
    if (!run)
        return true;
    uint32_t word = atomic_load(&run->word);
    while (word & VP_RUN_WHOLE && !(word & VP_RUN_USED))
        if (atomic_compare_exchange_weak(&run->word, &word, word & ~VP_RUN_WHOLE)) {
            run->block_pages = 0;
            return true;
        }
    return !(word & VP_RUN_USED);
}

void vp_bare_run_open(struct vp_bare *bare, CUdeviceptr addr, size_t size) {
    const struct vp_bare_extent x = vp_bare_extent(bare, addr, size);
    if (x.whole + VP_RUN_LEAST > x.stop)
        return;
    const uint32_t pages = (uint32_t)(x.stop - x.whole);
    struct vp_bare_run *run = &bare->runs[x.whole];
    if (atomic_load(&run->word) != (pages | VP_RUN_WHOLE | VP_RUN_USED))
        return;
    for (size_t p = x.whole; p < x.stop; p++) {
        if (!vp_bare_fills(&x, p / VP_SLOT_PAGES))
            atomic_fetch_add(&bare->pages[p].word, 1);
        else if (p % VP_SLOT_PAGES == 0)
            atomic_fetch_add(&bare->pages[p].word, VP_PAGE_FILLED);
    }
    atomic_store(&run->word, pages);
}

void vp_bare_run_forget(struct vp_bare *bare, size_t first, size_t end) {
    for (size_t p = first; p < end; p++) {
        if (atomic_load_explicit(&bare->runs[p].word, memory_order_relaxed))
            dissolve(bare, p);
        bare->runs[p].block_pages = 0;
    }
}

/* Is the page in the run that it names, and the run's state sound there? And has a run that begins here all its
 * pages? */
bool vp_bare_run_check(const struct vp_bare *bare, size_t page) {
    const uint32_t own = atomic_load(&bare->runs[page].word);
    const struct vp_bare_run *run = vp_bare_run_of(bare, page);
    if (own)
        for (size_t p = page; p < page + (own & VP_RUN_PAGES); p++)
            if (vp_bare_run_of(bare, p) != &bare->runs[page])
                return false;
    if (!run)
        return true;
    const size_t head = (size_t)(run - bare->runs);
    const uint32_t word = atomic_load(&run->word);
    const uint32_t filled = atomic_load(&bare->pages[page / VP_SLOT_PAGES * VP_SLOT_PAGES].word) & VP_PAGE_FILLED;
    const uint32_t here = atomic_load(&bare->pages[page].word);
    if (page < head || page >= head + (word & VP_RUN_PAGES) || (word & VP_RUN_USED && !(word & VP_RUN_WHOLE)))
        return false;
    if (word & VP_RUN_WHOLE && !(here & VP_PAGE_BACKED))
        return false;
    return !(word & VP_RUN_USED && (filled || here & VP_PAGE_BLOCKS));
}
