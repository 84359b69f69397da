/* A policy: who gets which bytes. It works by what pool.h, place.h and memory/ can do, under the caller's lock. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/options.h"
#include "pool/place.h"

struct vp_policy {
    const char *name;
    struct vp_traits traits;
    /* Pages mapped in advance and the like; NULL: nothing to do. 0 or a negative errno. */
    int (*open)(struct vp_pool *pool);
    /* Fills in size, align and zone. 0; -EOPNOTSUPP: not for this policy, CUDA shall serve it; -ENOMEM: larger than
     * anything. */
    int (*layout)(struct vp_pool *pool, struct vp_request *req);
    /* As vp_pool_alloc(). */
    int (*alloc)(struct vp_pool *pool, struct vp_request *req, struct vp_region **out);
    /* As vp_pool_free_async(), for a policy whose blocks are no regions of the memory; NULL: they are. */
    int (*free)(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline);
    /* Should the free of a block record its own event? For VP_EVENTS_CHOSEN. */
    bool (*wants_event)(const struct vp_pool *pool, const struct vp_region *block);
    /* The program enters a range, as the depth-th of that thread, or leaves all of it from that depth on (NULL);
     * NULL: it does not matter. */
    void (*range)(struct vp_pool *pool, const char *name, uint64_t thread, unsigned depth);
    /* Frees its books; NULL: it keeps none. */
    void (*close)(struct vp_pool *pool);
};

extern const struct vp_policy vp_policy_vpool;

/* What VPOOL_WAIT means to a stream's request. `usual`: what is done where the choice is left to the library. */
static inline int vp_waits_of(int choice, int usual) {
    static const int meant[] = {
        [VP_WAIT_NEVER] = VP_WAITS_NEVER, [VP_WAIT_LATE] = VP_WAITS_LATE, [VP_WAIT_EARLY] = VP_WAITS_EARLY};
    return choice == VP_WAIT_AUTO ? usual : meant[choice];
}

/* The policies to choose from, by enum vp_policy_choice; NULL: not here. Each program and library that is linked with
 * the core brings the table along: pool/policies.c is vpool's own policy alone, compare/all.c has the published
 * allocators, too. */
extern const struct vp_policy *const vp_policies[VP_POLICY_CHOICES];
