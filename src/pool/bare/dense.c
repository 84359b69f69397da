/* Bare segments: addresses that the cache keeps to itself, and when it is asked to give them back.
 *
 * Addresses cost nothing. But if the cache has many more than are in use, each block of a new size lies elsewhere than
 * the idle memory, and chunks must move. A program that repeats itself comes to rest whatever the addresses; another
 * makes segments for ever. So once there are more than HOARD_PERCENT of the peak, a new segment is allowed only while
 * all of them are not much more than what is in use. Otherwise the cache is told that there is no memory. It then gives
 * back all segments without a block, as it does when memory is really short, and asks again. The next segment lies
 * where they were, with the memory that is still mapped there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/bare.h"

/* The cache hoards beyond this percentage of the peak; it then gets segments up to that percentage of what is alive. So
 * many pages are allowed in any case. */
enum { HOARD_PERCENT = 155, DENSE_PERCENT = 140, LET_BE_PAGES = 128 };

/* Fewer unused pages are not worth asking for. */
enum { WORTH_PAGES = 6 };

static bool exceeds(const struct vp_pool *pool, size_t size, uint64_t bytes, unsigned percent) {
    return size > bytes / 100 * percent + ((size_t)LET_BE_PAGES << pool->mem.granularity_shift);
}

/* Bytes of segments without a block. */
static size_t unused(const struct vp_bare *bare) {
    const struct vp_bare_segment *segment;
    size_t bytes = 0;
    vp_list_each(segment, &bare->segments, link)
        if (!segment->pinned && !atomic_load_explicit(&segment->live, memory_order_relaxed))
            bytes += segment->whole.size;
    return bytes;
}

/* Does the cache still have to wait for work of other streams on its blocks? It does so before it gives anything back.
 * In a program that has come to rest nobody else asks what has completed. */
static bool others_work(struct vp_bare *bare) {
    struct vp_timelines *timelines = bare->pool->mem.timelines;
    if (vp_fence_settle(timelines, &bare->others))
        return false;
    vp_fit_refresh(&bare->pool->mem);
    return !vp_fence_settle(timelines, &bare->others);
}

void vp_bare_others_use(struct vp_bare *bare) {
    struct vp_timelines *timelines = bare->pool->mem.timelines;
    bare->others_unnoted = true;
    if (!bare->hoards)
        return;
    vp_fence_clear(timelines, &bare->others);
    if (vp_bare_barrier(bare->pool, &bare->others) < 0)
        bare->hoards = false; /* until that is noticed again */
    else
        bare->others_unnoted = false;
}

/* The cache hoards from now on. Work of other streams before that is noted now, behind all work so far. */
static void begin_to_hoard(struct vp_bare *bare) {
    bare->hoards = true;
    if (bare->others_unnoted)
        vp_bare_others_use(bare);
}

bool vp_bare_crowded(struct vp_pool *pool, size_t size) {
    struct vp_bare *bare = pool->bare;
    const struct vp_memory_stats *stats = &pool->mem.stats;
    vp_bare_count(pool);
    const size_t all = bare->addressed + size;
    if (!bare->hoards && exceeds(pool, all, stats->peak_live_bytes, HOARD_PERCENT))
        begin_to_hoard(bare);
    bool crowded = bare->hoards && exceeds(pool, all, stats->live_bytes, DENSE_PERCENT) &&
                   unused(bare) >> pool->mem.granularity_shift >= WORTH_PAGES && !others_work(bare);
    bare->gives = crowded;
    return crowded;
}

/* The pages with blocks at both ends may be partly free, too. */
bool vp_bare_has_place(const struct vp_bare *bare, size_t size) {
    const size_t enough = size >> bare->pool->mem.granularity_shift;
    const struct vp_bare_segment *segment;
    vp_list_each(segment, &bare->segments, link) {
        const size_t end = vp_bare_page(bare, vp_region_end(&segment->whole));
        for (size_t p = vp_bare_page(bare, segment->whole.addr), row = 2; p < end; p++) {
            row = vp_bare_word(bare, p) & VP_PAGE_USED ? 2 : row + 1;
            if (row > enough)
                return true;
        }
    }
    return false;
}
