/* VPOOL_PLAN in a process: what the last run has learnt is read when a pool opens, used by a thread that makes handles
 * ahead of the program, and what this one has learnt is written at its end. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/json.h"
#include "base/lock.h"
#include "pool/pool.h"

/* What a plan has come to, of one pool. */
struct vp_plan_figures {
    bool wanted, used;                      /* VPOOL_PLAN is set; there was a plan for the device */
    uint64_t requests, known, placed, late; /* large ones that no cache served; that the plan knew; that had their
                                               places; whose handles had still to be made */
    uint64_t made_bytes, used_bytes, returned_bytes; /* handles made ahead; of them used so far, and given back */
    uint64_t background_ns, background_calls;
};

void vp_plans_open(struct vp_pool *pool) VP_LOCKED __attribute__((cold));
struct vp_plan_figures vp_plans_figures(const struct vp_pool *pool);
/* The object `plan`; nothing where VPOOL_PLAN is not set. */
void vp_plans_json(struct vp_json *j, const struct vp_plan_figures *f);
/* A line of the summary. */
void vp_plans_print(const struct vp_pool *pool);
/* Without the lock: at the end of the process. */
void vp_plans_stop(void);
void vp_plans_write(void);
