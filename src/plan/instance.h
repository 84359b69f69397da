/* A planner's view of its blocks: times as ranks, and which blocks may share no byte. For src/plan alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_PLAN_INSTANCE_H
#define VP_PLAN_INSTANCE_H

#include "plan/plan.h"

struct vp_plan_item {
    uint64_t size;
    uint32_t begin, end; /* ranks of times: [begin, end) */
};

struct vp_plan_instance {
    struct vp_plan_item *items; /* in order of begin */
    uint32_t *number;           /* of the block that an item is */
    size_t count;
    uint32_t times;
    uint64_t *alive; /* bytes alive in each rank */
    uint64_t lower_bound;
};

int vp_plan_instance(struct vp_plan_instance *in, const struct vp_plan_block *blocks, size_t count);
void vp_plan_instance_finish(struct vp_plan_instance *in);

/* Greedy placements in better and better orders until `until` (seconds of the monotonic clock) or the capacity: the
 * best offsets and their peak. -ENOMEM, or 0. */
int vp_plan_greedy(const struct vp_plan_instance *in, uint64_t capacity, double until, uint64_t *offsets,
                   uint64_t *peak, unsigned *rounds);

/* Searches for offsets below the capacity. 1: found; 0: there are none, or the time was up; -ENOMEM. */
int vp_plan_search(const struct vp_plan_instance *in, uint64_t capacity, double until, uint64_t *offsets);

double vp_plan_now(void);

#endif
