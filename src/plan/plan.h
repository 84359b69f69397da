/* Finds places for blocks whose lifetimes are known in advance, so that they need as few addresses as possible (dynamic
 * storage allocation). Offline: for the tools only, never in a program.
 *
 * Threads may plan at the same time, but one plan belongs to one thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A block lives from `begin` up to, but not at `end`, in any unit; begin < end, 0 < size. */
struct vp_plan_block {
    uint64_t size, offset;
    uint64_t begin, end;
};

struct vp_plan_limits {
    uint64_t capacity; /* good enough; 0: the lower bound alone */
    double seconds;    /* at most, beyond what the first placement takes */
};

struct vp_plan_figures {
    uint64_t peak;        /* the least number of addresses that was found */
    uint64_t lower_bound; /* the most bytes alive at once: no plan can do with less */
    double seconds;
    unsigned rounds; /* placements tried */
    bool searched;   /* the exhaustive search has found it */
};

/* Sets the offset of each block. Returns 0; -EINVAL: a block has no size or no lifetime, or a sum exceeds 64 bits;
 * -ENOMEM. The offsets are valid only after 0. */
int vp_plan_place(struct vp_plan_block *blocks, size_t count, const struct vp_plan_limits *limits,
                  struct vp_plan_figures *figures);

/* The same with STAlloc's published planner (described in stalloc.c), for comparison. A phase begins at each of
 * `phases`, in order of time; none: the program does not mark phases. */
int vp_plan_stalloc(struct vp_plan_block *blocks, size_t count, const uint64_t *phases, size_t phase_count,
                    struct vp_plan_figures *figures);

/* Addresses [low, high). */
struct vp_plan_spare {
    uint64_t low, high;
};

struct vp_plan_spares {
    struct vp_plan_spare *items; /* the caller's to free */
    size_t count, room;
};

/* A stretch of time, begin < end. vp_plan_spare() sets `first` and `count`: the spares of this stretch. */
struct vp_plan_stretch {
    uint64_t begin, end;
    size_t first, count;
};

/* For each stretch, adds the addresses below `peak` that no block uses at any time in it, the lowest first. Returns 0,
 * -EINVAL or -ENOMEM; in each case the caller owns what was added. */
int vp_plan_spare(const struct vp_plan_block *blocks, size_t count, uint64_t peak, struct vp_plan_stretch *stretches,
                  size_t stretch_count, struct vp_plan_spares *spares);

/* Finds the most bytes that are alive at once. Returns 0, or -ENOMEM or -EINVAL as above. */
int vp_plan_lower_bound(const struct vp_plan_block *blocks, size_t count, uint64_t *bytes);

/* Checks that no two blocks alive at the same time share a byte, and all lie below `peak`, independently of how the
 * offsets were found. If not, `*a` and `*b` are the first two that share one (a == b: a block that lies beyond). */
bool vp_plan_check(const struct vp_plan_block *blocks, size_t count, uint64_t peak, size_t *a, size_t *b);
