/* Tight placement for small programs, which would lose much memory between their blocks: see tight.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* Where a range is built: the block begins at `begin`; `want` bytes are mapped for it at `map`; the rest, [there,
 * there_end), exists already. */
struct vp_site {
    CUdeviceptr begin, map;
    size_t want;
    CUdeviceptr there, there_end;
    bool exact; /* there may be no room for more than `want` */
};

/* Is the request to be placed tightly? */
bool vp_tight(const struct vp_pool *pool, const struct vp_request *req);
/* Does the pool hold so much that parked blocks should serve requests, too? */
bool vp_tight_short(const struct vp_pool *pool);
/* A request needs `fresh` bytes of new memory: notes it if a small program thereby wastes much. */
void vp_tight_note(struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* The best place among free bytes in chunks that hold other blocks already. */
struct vp_fit vp_tight_fit(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* Chooses where to build, and unmaps old mappings in the way. False: build at addresses of its own. */
bool vp_tight_site(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_site *site);
/* Would the request open fewer than `opened` granules if work on all old mappings were over? */
bool vp_tight_blocked(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, size_t opened);
/* Bytes of addresses to keep free on each side of a range that gets addresses of its own. */
size_t vp_tight_room(const struct vp_pool *pool, const struct vp_request *req);
