/* What a run learns for the next one: its large requests, how long each block was alive, and so where all of them might
 * have lain in as little memory as possible (learnt.h has the result).
 *
 * The first large-zone requests of a run that no stream cache serves are recorded in their order. At its end each gets
 * a place, as if all had been known from the beginning: the largest first, each at the lowest address that is unused
 * while it is alive. The addresses are then cut into handles: large ones where one block stays for good, smaller ones
 * where blocks come and go. Of the small zone and of bare segments only the positions of handles are recorded.
 *
 * The caller holds the library's lock; vp_learn_sum_up() may take tenths of a second. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/table.h"
#include "pool/learnt/learnt.h"
#include "pool/pool.h"

/* A recorded request. */
struct vp_learn_item {
    CUdeviceptr addr; /* first: the key of vp_learn.open while the block is alive */
    uint64_t size;
    uint64_t births;     /* chunks created before it */
    uint64_t offset;     /* of its place, once found */
    uint32_t begin, end; /* alive from request `begin` on and before request `end` */
    uint32_t stream;     /* vp_timeline.number; 0: cudaMalloc's */
    bool alone;
};

struct vp_learn {
    uint32_t count;
    uint64_t total; /* including requests that are not recorded */
    struct vp_table open;
    bool lost; /* out of memory: nothing is to be written */
    bool gaps; /* a plan was left, and stream caches have since served requests that are not seen here */
    struct vp_learn_item items[VP_LEARNT_REQUESTS];
};

/* Begins to learn; NULL: out of memory. */
struct vp_learn *vp_learn_create(void) __attribute__((cold));
void vp_learn_destroy(struct vp_learn *learn);

/* served: a large-zone request got its block. freed: a block becomes free memory. */
void vp_learn_served(struct vp_learn *learn, const struct vp_request *req, CUdeviceptr addr, uint64_t births);
void vp_learn_freed(struct vp_learn *learn, CUdeviceptr addr);

/* How long, in ns, better places may be looked for at the program's end, for all devices together. */
static const uint64_t VP_LEARN_NS = 2000000000;

/* Sums up for one device, except for its name. The arrays of `out` lie in `*mem`, `*bytes` long, which the caller
 * unmaps. After the time `until` (vp_clock_ns) no better places are looked for. If the run has gaps, the result is the
 * plan that it left, marked so; its arrays stay the pool's, and `*mem` is NULL. 0; -ENODATA: nothing was learnt;
 * -ENOMEM. */
int vp_learn_sum_up(struct vp_pool *pool, uint64_t until, struct vp_learnt_device *out, void **mem, size_t *bytes)
    __attribute__((cold));

/* Is it alive from the first half of `count` requests to the end, like weights or the state of an optimiser? */
static inline bool vp_learn_stays(const struct vp_learn_item *item, uint32_t count) {
    return item->end == count && item->begin < count / 2;
}

/* learn_bare.c: appends the runs of bare segments, in no order, and tells what is mapped again, and the windows.
 * `until` as above. */
void vp_learn_bare(struct vp_pool *pool, uint64_t until, struct vp_learnt_device *out);

/* learn_place.c: sets the offset of each item. `*end`: the end of the highest; keeping streams apart makes it no higher
 * than `most`. `until` as above. 0 or -ENOMEM. */
int vp_learn_place(struct vp_learn_item *items, uint32_t count, size_t granularity, uint64_t until, uint64_t most,
                   uint64_t *end);
