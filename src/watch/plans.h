/* VPOOL_PLAN in a process: reads what the last run has learnt when a pool opens, lets a thread make handles ahead of
 * the program by it, and writes what this run has learnt at the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/json.h"
#include "base/lock.h"
#include "pool/pool.h"

/* How well a plan served a pool. */
struct vp_plan_figures {
    bool wanted, used;                      /* VPOOL_PLAN is set; there was a plan for the device */
    uint64_t requests, known, placed, late; /* large ones that no cache served; that the plan knew; that had their
                                               places; whose handles had still to be made */
    uint64_t made_bytes, used_bytes, returned_bytes; /* handles made ahead; of them used so far, and given back */
    uint64_t background_ns, background_calls;
};

void vp_plans_open(struct vp_pool *pool) VP_LOCKED __attribute__((cold));
struct vp_plan_figures vp_plans_figures(const struct vp_pool *pool);
/* Writes the object `plan`; nothing if VPOOL_PLAN is not set. */
void vp_plans_json(struct vp_json *j, const struct vp_plan_figures *f);
/* Prints the line of the summary. */
void vp_plans_print(const struct vp_pool *pool);
/* At the end of the process, without the lock. */
void vp_plans_stop(void);
void vp_plans_write(void);
