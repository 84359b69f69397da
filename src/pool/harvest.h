/* Harvest: which wholly free chunks a new range is made of. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

struct vp_candidate {
    struct vp_chunk *chunk;
    size_t region : 62; /* size of the free region around it */
    size_t ready : 1;   /* no wait needed */
    size_t spared : 1;  /* it lies where a place can be made longer */
};

struct vp_harvest {
    struct vp_candidate *list; /* of vp_harvest_room(); the chosen ones come first */
    size_t count, chosen;
    size_t bytes; /* of the chosen ones */
    bool few;     /* what is short is made in few handles, to be quick */
    const struct vp_request *req;
    enum vp_usable use;
    CUdeviceptr skip, skip_end; /* the part of a region that stays where it is */
    uint64_t spared;            /* chunks with this mark are chosen last; 0: none are */
    bool exact;                 /* not a byte more than is wanted may be chosen */
};

/* Memory for the list, and in its stead for the chunks of a range of `want` bytes; false: there is none. It is the
 * pool's scratch memory. */
bool vp_harvest_room(struct vp_pool *pool, struct vp_harvest *h, size_t want);
/* Chooses among the chunks that are wholly free, and usable as `use` says: `want` bytes, or all there are. Greedy by
 * size; what is then short is made up by the smallest chunk that covers it, whose rest stays free right behind the new
 * range; not if that is to be exact. */
void vp_harvest(struct vp_pool *pool, struct vp_harvest *h, size_t want);
/* The same, for the large zone and what is to be exact, but only chunks that lie at an end of what is mapped, in
 * regions too small for the request, and few: nothing is split where they are taken from. */
void vp_harvest_ends(struct vp_pool *pool, struct vp_harvest *h, size_t want);
/* For what is to be exact all those left over are too large. Nothing is created while enough free memory
 * lies about: the smallest goes back to the device, and what is lacking is created in its stead. */
void vp_harvest_break_one(struct vp_pool *pool, const struct vp_harvest *h);
