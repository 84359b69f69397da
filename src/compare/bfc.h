/* The parts of PyTorch's caching allocator that other policies use. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "compare/per_stream.h"

/* The largest small request. */
enum { VP_BFC_SMALL = 1 << 20 };

/* Bytes of the segment that is got for a request of `size` bytes. */
size_t vp_bfc_segment(const struct vp_pool *pool, size_t size);
/* As struct vp_policy says it. */
int vp_bfc_layout(struct vp_pool *pool, struct vp_request *req);
/* As vp_pool_alloc(), for a request that is laid out. */
int vp_bfc_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out);
