/* Making a new range for a request: the last thing that an allocation tries. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VP_BUILD_H
#define VP_BUILD_H

#include "pool/policy.h"

/* As vp_pool_alloc(), with bytes of a new range. What `use` allows counts as free there. */
int vp_build(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out);
/* The largest handle that is created for a request, `fresh` bytes of which are new: a power of two of granules. */
size_t vp_build_handle(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/*
 * Fresh chunks of `bytes` together: the largest handles, then what is left in falling powers of two. The end of a block
 * then lies in a small handle, of which little is pinned when the block behind it stays; and later ranges find small
 * handles to end in. `*count` of them are made, also where it fails. 0, -ENOMEM or -EIO.
 */
int vp_build_create(struct vp_pool *pool, size_t bytes, size_t largest, struct vp_chunk **out, size_t *count);

#endif
