/* The parts of PyTorch's caching allocator that other policies use. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "compare/per_stream.h"

/* The largest small request. */
enum { VP_BFC_SMALL = 1 << 20 };

/* Returns the size of the segment that is created for a request of `size` bytes. */
size_t vp_bfc_segment(const struct vp_pool *pool, size_t size);
/* The policy's layout(): see struct vp_policy. */
int vp_bfc_layout(struct vp_pool *pool, struct vp_request *req);
/* Like vp_pool_alloc(), for a request that was laid out. */
int vp_bfc_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out);
