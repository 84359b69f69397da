/* Places for blocks whose lifetimes are known beforehand, so that as few addresses as possible serve them all (dynamic
 * storage allocation). Offline: for the tools alone, never in a program.
 *
 * Not thread-safe in what is shared: one plan at a time belongs to one thread. */
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

/* Sets each block's offset. 0; -EINVAL of a block without size or lifetime, or of sums beyond 64 bits; -ENOMEM. The
 * offsets are valid after 0 alone. */
int vp_plan_place(struct vp_plan_block *blocks, size_t count, const struct vp_plan_limits *limits,
                  struct vp_plan_figures *figures);

/* The same by STAlloc's published planner (stalloc.c has what is published), for comparison. A phase begins at each of
 * `phases`, in order of time; none: the program does not say. */
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

/* A stretch of time, begin < end; and, once it is asked for, where among the spares its own lie. */
struct vp_plan_stretch {
    uint64_t begin, end;
    size_t first, count;
};

/* For each stretch, adds the addresses below `peak` that no block has in any of it, the lowest first. 0, or -EINVAL or
 * -ENOMEM; what was added is the caller's either way. */
int vp_plan_spare(const struct vp_plan_block *blocks, size_t count, uint64_t peak, struct vp_plan_stretch *stretches,
                  size_t stretch_count, struct vp_plan_spares *spares);

/* The most bytes alive at once; 0 and -ENOMEM or -EINVAL as above otherwise. */
int vp_plan_lower_bound(const struct vp_plan_block *blocks, size_t count, uint64_t *bytes);

/* Whether no two blocks that live at once share a byte, and all lie below `peak`. It knows nothing of how the offsets
 * were found. `a` and `b`: the first two that do share (a == b: one that lies beyond). */
bool vp_plan_check(const struct vp_plan_block *blocks, size_t count, uint64_t peak, size_t *a, size_t *b);
