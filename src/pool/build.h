/* Making a new range for a request: the last thing that an allocation tries. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/policy.h"

/* As vp_pool_alloc(), with bytes of a new range. What `use` allows counts as free there. */
int vp_build(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out);
/* The same of memory that is made for it, at addresses of its own, whatever is idle. -ENOMEM: not to be had. */
int vp_build_fresh(struct vp_pool *pool, const struct vp_request *req, struct vp_region **out);
