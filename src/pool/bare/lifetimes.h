/* When each large block of a cache came and went: what a run learns of bare segments (pool/learnt/learn.h).
 *
 * Blocks are numbered from 0 in the order in which they came. What was told is compared with an earlier run's by
 * windows of some blocks each: two runs that do the same have the same windows, even if blocks within one change
 * places.
 *
 * Written under the cache's lock, and read under the library's. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/table.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Blocks that are remembered, from the first on; those of a window. */
enum { VP_LIFETIMES = 1 << 16, VP_LIFETIMES_WINDOW = 16, VP_LIFETIMES_WINDOWS = VP_LIFETIMES / VP_LIFETIMES_WINDOW };

struct vp_lifetime {
    uint64_t offset; /* first: the key while it is alive; bytes from the beginning of the segments' addresses */
    uint64_t size;
    _Atomic uint32_t end; /* it was freed before the block of this number came; UINT32_MAX: it is alive */
};

struct vp_lifetimes {
    _Atomic uint32_t count;
    _Atomic bool lost; /* out of memory: nothing is to be learnt from them */
    uint32_t hash;     /* of the window that is under way */
    struct vp_table open;
    _Atomic uint32_t windows[VP_LIFETIMES_WINDOWS]; /* a hash of each full one */
    struct vp_lifetime each[VP_LIFETIMES];
};

/* NULL: out of memory. */
struct vp_lifetimes *vp_lifetimes_create(void) __attribute__((cold));
void vp_lifetimes_destroy(struct vp_lifetimes *lifetimes);

void vp_lifetimes_begin(struct vp_lifetimes *lifetimes, uint64_t offset, uint64_t size) __attribute__((cold));
void vp_lifetimes_end(struct vp_lifetimes *lifetimes, uint64_t offset) __attribute__((cold));

/* Windows that are full. */
static inline uint32_t vp_lifetimes_windows(const struct vp_lifetimes *lifetimes) {
    return atomic_load_explicit(&lifetimes->count, memory_order_acquire) / VP_LIFETIMES_WINDOW;
}
