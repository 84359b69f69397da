/* Fresh chunks for a new range. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/harvest.h"

/* Fresh memory is made in so many handles at most; and where there would be more, in so many: each costs the driver
 * some 31 microseconds. */
enum { VP_FRESH_MOST = 200, VP_FRESH_FEW = 32 };

/* From that VPOOL_HANDLE on, its default; who wants smaller ones gets them, whatever they take. */
static inline bool vp_fresh_may_be_few(const struct vp_pool *pool) {
    return pool->config.handle >= (size_t)256 << 20;
}

/* The largest handle that is created for a request, `fresh` bytes of which are new: a power of two of granules. */
size_t vp_fresh_handle(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* False if there is no memory for so many bytes of fresh chunks, the largest of that size, as far as that is asked. */
bool vp_fresh_possible(struct vp_pool *pool, size_t bytes, size_t largest);
/* Fresh chunks of `bytes` together: the largest handles, then what is left in falling powers of two. The end of a block
 * then lies in a small handle, of which little is pinned when the block behind it stays; and later ranges find small
 * handles to end in. `*count` of them are made, also where it fails. 0, -ENOMEM or -EIO. */
int vp_fresh_create(struct vp_pool *pool, size_t bytes, size_t largest, struct vp_chunk **out, size_t *count);
/* A new range at `addr`, a hole or building: of the chosen chunks, and of fresh ones for the rest of `want` bytes.
 * `*built`: of how many. 0; -ENOMEM or -EIO, with nothing mapped there. */
int vp_fresh_assemble(struct vp_pool *pool, struct vp_harvest *h, size_t want, CUdeviceptr addr, size_t *built);
