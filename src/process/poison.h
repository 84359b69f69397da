/* VPOOL_ZERO and VPOOL_POISON: memory is filled when it is handed out, and what was freed is looked at.
 *
 * What is freed is filled with a pattern, in the order of the stream that frees it; cudaFree waits for the device
 * first, as with VPOOL_SYNC_FREE. When the bytes are handed out again, what is not the pattern any more was written
 * after the free: by a use after it, or on a stream that the free knew nothing of. Memory handed out holds the pattern,
 * too (or zeros), so that what is read before it is written is seen: as a floating-point number of any width it is
 * none.
 *
 * All with the library's lock held; it is let go while the host waits. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"

/* A block was handed out: to a stream, or NULL with the context for all. False: it was freed while the host waited. */
bool vp_poison_handed_out(struct vp_pool *pool, const struct vp_region *r, const struct vp_timeline *timeline,
                          struct vp_context *ctx) VP_LOCKED __attribute__((cold));
/* A block is about to be freed on a stream; NULL: all work on it is over. */
void vp_poison_freed(struct vp_pool *pool, const struct vp_region *r, const struct vp_timeline *timeline) VP_LOCKED
    __attribute__((cold));

/* A context has ended: what of the host's memory was its is no more. */
void vp_poison_context_over(const struct vp_context *ctx) VP_LOCKED __attribute__((cold));

/* What was seen so far, for the statistics. */
struct vp_poison_counts {
    uint64_t checked_bytes, unchecked_bytes; /* freed, and looked at when they were handed out again, or not in time */
    uint64_t written_blocks;                 /* freed, and written to afterwards */
};
extern struct vp_poison_counts vp_poison_counts;
