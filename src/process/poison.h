/* VPOOL_ZERO and VPOOL_POISON: memory is filled when it is handed out, and freed memory is checked.
 *
 * Freed memory is filled with a pattern, in the order of the stream that frees it; cudaFree waits for the device first,
 * as with VPOOL_SYNC_FREE. When the bytes are handed out again, any that differ from the pattern were written after the
 * free: by a use after free, or on a stream that the free did not know of. Memory is handed out with the pattern, too
 * (or with zeros), so that reading it before writing it shows: the pattern is not a number in any floating-point
 * format.
 *
 * All functions need the library's lock; it is released while the host waits. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"

/* A block was handed out on `timeline`, or (NULL) to all streams of `ctx`. False: it was freed while the host waited.
 */
bool vp_poison_handed_out(struct vp_pool *pool, const struct vp_region *r, const struct vp_timeline *timeline,
                          struct vp_context *ctx) VP_LOCKED __attribute__((cold));
/* A block is about to be freed on a stream; `timeline` NULL: all work on it is complete. */
void vp_poison_freed(struct vp_pool *pool, const struct vp_region *r, const struct vp_timeline *timeline) VP_LOCKED
    __attribute__((cold));

/* A context has ended, and host memory that belonged to it is gone. */
void vp_poison_context_over(const struct vp_context *ctx) VP_LOCKED __attribute__((cold));

/* Counts so far, for the statistics. */
struct vp_poison_counts {
    uint64_t checked_bytes, unchecked_bytes; /* freed memory that was checked when handed out again, or could not be */
    uint64_t written_blocks;                 /* blocks written to after they were freed */
};
extern struct vp_poison_counts vp_poison_counts;
