/* Fresh chunks for a new range. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/harvest.h"

/* The most handles to create for a request, and how many it gets if it would take more: each costs the driver some 31
 * us. */
enum { VP_FRESH_MOST = 200, VP_FRESH_FEW = 32 };

/* Only if VPOOL_HANDLE is at least its default: a user who wants smaller handles gets them, whatever they cost. */
static inline bool vp_fresh_may_be_few(const struct vp_pool *pool) {
    return pool->config.handle >= (size_t)256 << 20;
}

/* The largest handle, bytes, to create for a request that needs `fresh` new bytes: a granule times a power of two, or,
 * with `whole`, all of it. */
size_t vp_fresh_handle(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* False if the device lacks memory for `bytes` of fresh chunks, of at most `largest` bytes each. Not checked for few
 * bytes or handles. */
bool vp_fresh_possible(struct vp_pool *pool, size_t bytes, size_t largest);
/* Creates fresh chunks of `bytes` in all: first handles of `largest` bytes, then the rest in falling powers of two. So
 * a block ends in a small handle, which pins little when the block behind it stays, and later ranges find small handles
 * to end in. `*count`: chunks created, also on failure. 0, -ENOMEM or -EIO. */
int vp_fresh_create(struct vp_pool *pool, size_t bytes, size_t largest, struct vp_chunk **out, size_t *count);
/* Maps a new range at `addr` (a hole, or building): the chosen chunks, then fresh ones for the rest of `want` bytes.
 * `*built`: number of chunks. 0; -ENOMEM or -EIO, with nothing mapped there. */
int vp_fresh_assemble(struct vp_pool *pool, struct vp_harvest *h, size_t want, CUdeviceptr addr, size_t *built);
