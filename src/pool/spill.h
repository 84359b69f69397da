/* Spilling, the last resort: a block that lies in the host's memory, its end or all of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* How much memory may go into the block, in bytes. */
struct vp_spill_room {
    size_t device; /* of the device, idle and new */
    size_t fresh;  /* of these, new at most */
    size_t host;   /* of the host */
};

/* Serves a request from idle memory that is ready, from what the device still has, and from host memory for the rest: a
 * new range, alone in its chunks. 0; -EDQUOT: that needs more than `room->host`; -EOPNOTSUPP: the device or the pool's
 * policy cannot; -ENOMEM: the driver gives no more host memory; -EIO. On failure nothing has changed, except that idle
 * memory may have moved. */
int vp_spill_alloc(struct vp_pool *pool, struct vp_request *req, const struct vp_spill_room *room,
                   struct vp_region **out) __attribute__((cold));
/* Releases the host memory of freed blocks as far as work on them is over. True: some is left. */
bool vp_spill_settle(struct vp_pool *pool);
