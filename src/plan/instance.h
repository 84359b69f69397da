/* A planner's view of the blocks: times as ranks, and which blocks may not overlap. For src/plan only. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plan/plan.h"

struct vp_plan_item {
    uint64_t size;
    uint32_t begin, end; /* ranks of times: [begin, end) */
};

struct vp_plan_instance {
    struct vp_plan_item *items; /* in order of begin */
    uint32_t *number;           /* by item, the number of its block */
    size_t count;
    uint32_t times;
    uint64_t *alive; /* by rank, the bytes that are alive */
    uint64_t lower_bound;
};

int vp_plan_instance(struct vp_plan_instance *in, const struct vp_plan_block *blocks, size_t count);
void vp_plan_instance_finish(struct vp_plan_instance *in);

/* ---- taken.c: which addresses are taken while an item lives ---- */

struct vp_plan_link {
    uint32_t item, next; /* next: the index of the next link, plus one; 0: none */
};

struct vp_plan_taken {
    const struct vp_plan_instance *in;
    uint64_t *offset;
    bool *placed;
    uint32_t *first; /* by rank, the first item that begins there or later */
    /* A segment tree over the ranks: each placed item hangs at the nodes that its lifetime covers. */
    uint32_t leaves;
    uint32_t *head;
    struct vp_plan_link *links;
    size_t link_count, link_room;
    struct vp_plan_span {
        uint64_t low, high;
        uint32_t item;
    } *spans;
    size_t span_count;
};

/* Begins with nothing placed. 0 or -ENOMEM; to be finished in either case. */
int vp_plan_taken_start(struct vp_plan_taken *t, const struct vp_plan_instance *in);
void vp_plan_taken_finish(struct vp_plan_taken *t);
/* Removes all placed items. */
void vp_plan_taken_clear(struct vp_plan_taken *t);
/* Sets `spans` to the placed items that are alive at some time when the item is, the lowest first. */
void vp_plan_taken_by(struct vp_plan_taken *t, uint32_t item);
/* Places the item at the offset. 0 or -ENOMEM. */
int vp_plan_taken_add(struct vp_plan_taken *t, uint32_t item, uint64_t offset);

/* ---- the planners ---- */

/* Places items greedily in better and better orders, until `until` (seconds of the monotonic clock) or until the
 * capacity is met. Returns the best offsets and their peak. -ENOMEM, or 0. */
int vp_plan_greedy(const struct vp_plan_instance *in, uint64_t capacity, double until, uint64_t *offsets,
                   uint64_t *peak, unsigned *rounds);

/* Searches for offsets below the capacity. 1: found; 0: there are none, or the time was up; -ENOMEM. */
int vp_plan_search(const struct vp_plan_instance *in, uint64_t capacity, double until, uint64_t *offsets);

double vp_plan_now(void);
