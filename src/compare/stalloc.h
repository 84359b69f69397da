/* The plan that the policy stalloc places requests by: stalloc.c has what is published of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VP_STALLOC_H
#define VP_STALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Requests of so many bytes and less are in no plan: they have a pool of their own. */
enum { VP_STALLOC_TINY = 512 };

struct vp_stalloc_place {
    uint64_t size; /* as it is taken: whole quanta */
    uint64_t offset;
    uint32_t stream; /* the number of the stream that asked, which nobody looks at */
};

/* The n-th request is to lie at the n-th place. */
struct vp_stalloc_plan {
    struct vp_stalloc_place *places;
    size_t count;
    uint64_t peak; /* bytes that all places lie in */
};

struct vp_pool;

/* How many requests got their places so far, and how many were left to the cache. Of a pool of this policy alone. */
void vp_stalloc_figures(const struct vp_pool *pool, uint64_t *placed, uint64_t *missed);

#endif
