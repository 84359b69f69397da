/* A policy: who gets which bytes. It works by the mechanisms of pool_private.h, under the caller's lock. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VP_POLICY_H
#define VP_POLICY_H

#include "base/options.h"
#include "pool/pool_private.h"

struct vp_policy {
    const char *name;
    /* Every free records an event of its own, even while one stream alone uses the pool. */
    bool always_event;
    /* No free records one: no stream ever waits for another's, and what must be known is asked of later events. */
    bool never_event;
    /* Free memory of different streams is kept apart even when all may use it. */
    bool by_stream;
    /* In time, the host waits for what other streams have freed, instead of the stream: throttle.h. */
    bool host_waits;
    /* Chunks that become wholly free go back to where they were first mapped. */
    bool homes;
    /* Blocks are parked: see cache.h. */
    bool parks;
    /* There is no small zone. */
    bool one_zone;
    /* A chunk serves only the stream that it was created for: see owned.h. Regions hold chunks of one stream. */
    bool owned;
    /* It reserves its addresses itself. */
    bool own_spaces;
    /* It never builds one range of chunks that lie apart. */
    bool never_stitches;
    /* Pages mapped in advance and the like; NULL: nothing to do. 0 or a negative errno. */
    int (*open)(struct vp_pool *pool);
    /* Fills in size, align and zone. 0; -EOPNOTSUPP: not for this policy, CUDA shall serve it; -ENOMEM: larger than
     * anything. */
    int (*layout)(struct vp_pool *pool, struct vp_request *req);
    /* As vp_pool_alloc(). */
    int (*alloc)(struct vp_pool *pool, struct vp_request *req, struct vp_region **out);
};

/* Is free memory of different streams kept apart, even when all may use it? */
static inline bool vp_pool_by_stream(const struct vp_pool *pool) {
    return pool->stricts || pool->policy->by_stream;
}

extern const struct vp_policy vp_policy_vpool;

/*
 * The policies to choose from, by enum vp_policy_choice; NULL: not here. Each program and library that is linked with
 * the core brings the table along: pool/policies.c is vpool's own policy alone, compare/all.c has the published
 * allocators, too.
 */
extern const struct vp_policy *const vp_policies[VP_POLICY_CHOICES];

#endif
