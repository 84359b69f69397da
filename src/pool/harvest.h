/* Harvest: chooses the wholly free chunks of which a new range is made. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

struct vp_candidate {
    struct vp_chunk *chunk;
    size_t region : 62; /* bytes of the free region around it */
    size_t ready : 1;   /* usable without a wait */
    size_t avoided : 1; /* it lies in a place that can be made longer */
};

struct vp_harvest {
    struct vp_candidate *list; /* of vp_harvest_room(), not owned; the chosen ones come first */
    size_t count, chosen;
    size_t bytes; /* of the chosen ones */
    bool few;     /* the missing bytes are created in few handles, to be quick */
    const struct vp_request *req;
    enum vp_usable use;
    CUdeviceptr skip, skip_end; /* these addresses of the new range exist already and stay */
    uint64_t avoided;           /* chunks with this mark are chosen last; 0: no mark */
    bool exact;                 /* choose no more than `want` bytes */
};

/* Room for the candidates and, later, in the same memory, for the chunks of a range of `want` bytes. It is the pool's
 * scratch memory. False: out of memory. */
bool vp_harvest_room(struct vp_pool *pool, struct vp_harvest *h, size_t want);
/* Chooses `want` bytes, or all there are, of the chunks that are wholly free and usable as `use` says. Greedy by size:
 * what is then missing comes from the smallest chunk that covers it, whose rest stays free right behind the new range
 * (unless `exact`). */
void vp_harvest(struct vp_pool *pool, struct vp_harvest *h, size_t want);
/* The same for the large zone and with `exact`, but only a few chunks, at the ends of what is mapped and in regions too
 * small for the request: taking those splits nothing. */
void vp_harvest_ends(struct vp_pool *pool, struct vp_harvest *h, size_t want);
/* For an exact harvest the chunks left over are all too large. Gives the smallest back to the device, so that the
 * missing bytes can be created in its stead: no memory is added while enough lies free. */
void vp_harvest_break_one(struct vp_pool *pool, const struct vp_harvest *h);
