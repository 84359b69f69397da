/* What a run learns for the next one: which large requests there were, how long each was alive, and so where they might
 * all have lain in as little memory as can be (learnt.h has what is written).
 *
 * Requests of the large zone that no stream's cache serves are noted in their order, the first ones of a run. At its
 * end each gets a place, as if all had been known from the beginning: largest first, each at the lowest address that
 * nothing else takes while it is alive. The addresses are then cut into handles: large ones where one block lies for
 * good, smaller ones where blocks come and go. Of the small zone and of bare segments it is noted where handles are.
 *
 * The caller holds the library's lock; but vp_learn_sum_up() may take tenths of a second. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/table.h"
#include "pool/learnt/learnt.h"
#include "pool/pool.h"

/* A large request. */
struct vp_learn_item {
    CUdeviceptr addr; /* first: the key of vp_learn.open, while it is alive */
    uint64_t size;
    uint64_t births;     /* chunks created before */
    uint64_t offset;     /* its place, once that is found */
    uint32_t begin, end; /* alive from request `begin` on, before request `end` */
    uint32_t stream;     /* vp_timeline.number; 0: cudaMalloc's */
    bool alone;
};

struct vp_learn {
    uint32_t count;
    uint64_t total; /* with those that are not remembered */
    struct vp_table open;
    bool lost; /* memory for it ran out: nothing is to be written */
    bool gaps; /* a plan was left, and since then streams' caches have served what is not known here */
    struct vp_learn_item items[VP_LEARNT_REQUESTS];
};

/* Begins to learn; NULL: no memory. */
struct vp_learn *vp_learn_create(void) __attribute__((cold));
void vp_learn_destroy(struct vp_learn *learn);

/* A request of the large zone got its block; a block becomes free memory. */
void vp_learn_served(struct vp_learn *learn, const struct vp_request *req, CUdeviceptr addr, uint64_t births);
void vp_learn_freed(struct vp_learn *learn, CUdeviceptr addr);

/* So long better places may be looked for at a program's end, for all devices together. */
static const uint64_t VP_LEARN_NS = 2000000000;

/* Sums up for one device, but for its name: `out`'s arrays lie in `*mem`, of `*bytes`, which is the caller's to unmap.
 * `until`: no better places are looked for after that (vp_clock_ns). Where the run has gaps: the plan that it left,
 * told of as that, whose arrays stay the pool's; `*mem` is NULL. 0; -ENODATA: nothing was learnt; -ENOMEM. */
int vp_learn_sum_up(struct vp_pool *pool, uint64_t until, struct vp_learnt_device *out, void **mem, size_t *bytes)
    __attribute__((cold));

/* Is it alive from the first half of `count` requests to the end: a weight, or the state of an optimiser? */
static inline bool vp_learn_stays(const struct vp_learn_item *item, uint32_t count) {
    return item->end == count && item->begin < count / 2;
}

/* learn_place.c: gives each item its offset; the end of the highest, which keeping streams apart makes no higher than
 * `most`. 0 or -ENOMEM. */
int vp_learn_place(struct vp_learn_item *items, uint32_t count, size_t granularity, uint64_t until, uint64_t most,
                   uint64_t *end);
