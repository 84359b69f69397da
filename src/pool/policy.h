/* A policy decides who gets which bytes. It works with pool.h, place.h and memory/, under the caller's lock. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/options.h"
#include "pool/place.h"

struct vp_policy {
    const char *name;
    struct vp_traits traits;
    /* Maps pages in advance and the like; NULL: nothing to do. 0 or a negative errno. */
    int (*open)(struct vp_pool *pool);
    /* Fills in size, align and zone. 0; -EOPNOTSUPP: leave the request to CUDA; -ENOMEM: larger than any memory. */
    int (*layout)(struct vp_pool *pool, struct vp_request *req);
    /* As vp_pool_alloc(). */
    int (*alloc)(struct vp_pool *pool, struct vp_request *req, struct vp_region **out);
    /* As vp_pool_free_async(), for a policy whose blocks are not regions of the memory; NULL: they are. */
    int (*free)(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline);
    /* Should the free of this block record an event of its own? Asked with VP_EVENTS_CHOSEN. */
    bool (*wants_event)(const struct vp_pool *pool, const struct vp_region *block);
    /* The program enters range `name` at nesting `depth` of that thread, or (NULL) leaves all ranges from `depth` on.
     * NULL: the policy does not care. */
    void (*range)(struct vp_pool *pool, const char *name, uint64_t thread, unsigned depth);
    /* Frees `books`; NULL: the policy keeps none. */
    void (*close)(struct vp_pool *pool);
};

extern const struct vp_policy vp_policy_vpool;

/* Translates VPOOL_WAIT for requests of a stream. `usual`: what to do where the choice is left to the library. */
static inline int vp_waits_of(int choice, int usual) {
    static const int meant[] = {
        [VP_WAIT_NEVER] = VP_WAITS_NEVER, [VP_WAIT_LATE] = VP_WAITS_LATE, [VP_WAIT_EARLY] = VP_WAITS_EARLY};
    return choice == VP_WAIT_AUTO ? usual : meant[choice];
}

/* The policies, by enum vp_policy_choice; NULL: not built in. Whatever is linked with the core brings this table:
 * pool/policies.c has vpool's own policy alone, compare/all.c the published allocators as well. */
extern const struct vp_policy *const vp_policies[VP_POLICY_CHOICES];
