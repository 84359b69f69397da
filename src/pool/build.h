/* Builds a new range for a request: the last thing that an allocation tries. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/policy.h"

/* As vp_pool_alloc(), in a new range. Chunks that `use` allows count as free. */
int vp_build(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out);
/* The same, but only of newly created memory at addresses of its own. -ENOMEM: the device has no more. */
int vp_build_fresh(struct vp_pool *pool, const struct vp_request *req, struct vp_region **out);
