/* Bare segments: blocks that come without a request for room.
 *
 * This happens when a pool of memory is set back to a checkpoint. All its blocks are freed. Then the cache reports,
 * segment by segment, every block of it as used, also those that were free, and frees these before the next segment.
 * Which they are is not known beforehand, so each block is backed as it comes, but not with memory in doubt: a block
 * that stays may still come for that. What one block lacks another may hold only for a moment, so blocks that lack
 * memory are looked after again whenever another has gone. And memory that was not there before the block goes again
 * with it, even if pinned or in doubt.
 *
 * A request for room ends this: the cache is through. All functions run under the library's lock and the cache's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/bare.h"

#include <errno.h>

bool vp_bare_unasked_is_new(const struct vp_bare *bare, CUdeviceptr addr, size_t size) {
    const struct vp_bare_extent x = vp_bare_extent(bare, addr, size);
    if (atomic_load(&bare->pool->mem.timelines->captures) || x.whole >= x.stop)
        return false;
    for (size_t p = x.whole; p < x.stop; p++)
        if (atomic_load(&bare->pages[p].word) & VP_PAGE_BACKED)
            return false;
    return true;
}

bool vp_bare_unasked_add(struct vp_bare *bare, CUdeviceptr addr, size_t size, bool is_new, bool lacks) {
    if (bare->unasked_count >= (lacks ? VP_BARE_UNASKED : VP_BARE_UNASKED_BACKED))
        return false;
    bare->unasked[bare->unasked_count++] = (struct vp_bare_unasked){addr, size, is_new, lacks};
    bare->unasked_at = vp_bare_at(bare, addr)->whole.addr;
    if (is_new)
        bare->unasked_captures = bare->pool->mem.timelines->captures_begun;
    return true;
}

/* Lets go of memory that came with the block, though the segment is pinned or in doubt, unless a graph may use it. */
static void let_go(struct vp_pool *pool, const struct vp_bare_unasked *block) {
    struct vp_bare *bare = pool->bare;
    struct vp_bare_segment *segment = vp_bare_at(bare, block->addr);
    const struct vp_bare_extent x = vp_bare_extent(bare, block->addr, block->size);
    if (!segment || pool->mem.timelines->captures_begun != bare->unasked_captures)
        return;
    const bool pinned = segment->pinned;
    const unsigned doubted_at = segment->doubted_at;
    segment->pinned = false;
    segment->doubted_at = 0;
    vp_bare_let_go_all(pool, x.whole, x.stop);
    segment->pinned = pinned;
    segment->doubted_at = doubted_at;
}

void vp_bare_unasked_left(struct vp_pool *pool, CUdeviceptr addr, size_t size) {
    struct vp_bare *bare = pool->bare;
    const struct vp_bare_segment *segment = vp_bare_at(bare, addr);
    /* All blocks of a segment are reported, and only then those freed that were free: this one is none of these. */
    for (unsigned i = 0; segment && segment->whole.addr != bare->unasked_at && i < bare->unasked_count; i++)
        bare->unasked[i].is_new = false;
    for (unsigned i = bare->unasked_count; i-- > 0;) { /* it may have been left in doubt before, too */
        const struct vp_bare_unasked block = bare->unasked[i];
        if (block.addr != addr || block.size != size)
            continue;
        bare->unasked[i] = bare->unasked[--bare->unasked_count];
        if (block.is_new)
            let_go(pool, &block);
    }
    vp_bare_unasked_retry(pool);
}

void vp_bare_unasked_retry(struct vp_pool *pool) {
    struct vp_bare *bare = pool->bare;
    size_t least = SIZE_MAX; /* pages that could not be had */
    for (unsigned i = bare->unasked_count; i-- > 0;) {
        struct vp_bare_unasked *block = &bare->unasked[i];
        const struct vp_bare_extent x = vp_bare_extent(bare, block->addr, block->size);
        const size_t lacking = vp_bare_lacking(bare, block->addr, block->size);
        if (vp_bare_at(bare, block->addr) && !block->lacks)
            vp_bare_let_go_all(pool, x.first, x.end);
        if (!vp_bare_at(bare, block->addr) || !block->lacks || lacking >= least)
            continue;
        block->lacks = lacking && vp_bare_back_waiting(pool, block->addr, block->size) == -ENOMEM;
        least = block->lacks ? lacking : least;
        if (!block->lacks && !block->is_new)
            *block = bare->unasked[--bare->unasked_count];
    }
}
