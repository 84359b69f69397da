/* Where the blocks of a small program lie, of which much would be lost between them otherwise: see tight.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* Where a range is built: the block begins at `begin`; `want` bytes are mapped at `map` for it; the rest is there, in
 * [there, there_end). */
struct vp_site {
    CUdeviceptr begin, map;
    size_t want;
    CUdeviceptr there, there_end;
    bool exact; /* there may be no room for more than that */
};

/* Is the request to be placed so? */
bool vp_tight(const struct vp_pool *pool, const struct vp_request *req);
/* Does the pool hold so much that what caches keep should serve, too? */
bool vp_tight_short(const struct vp_pool *pool);
/* A request needs `fresh` bytes of new memory: notes that a small program wastes much, if it does. */
void vp_tight_note(struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* The best place among free bytes in chunks that are in use anyway. */
struct vp_fit vp_tight_fit(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* Where to build; old mappings in the way are unmapped. False: nowhere but at addresses of its own. */
bool vp_tight_site(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_site *site);
/* Would it open fewer granules if work on all old mappings were over? */
bool vp_tight_blocked(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, size_t opened);
/* Addresses that are to stay free on both sides of such. */
size_t vp_tight_room(const struct vp_pool *pool, const struct vp_request *req);
