/* The last resort: a block whose end, or all of it, lies in the host's memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* What may be made for it. */
struct vp_spill_room {
    size_t device; /* bytes of the device's: idle ones, and new ones */
    size_t fresh;  /* of these, new ones at most */
    size_t host;   /* bytes of the host's memory */
};

/* Serves a request with what is idle and ready, with what the device still has, and with the host's memory for the
 * rest: a new range, alone in its chunks. 0; -EDQUOT: that takes more of the host than there is room for; -EOPNOTSUPP:
 * the device cannot, or the pool's policy does not; -ENOMEM: the driver gives no more of the host's; -EIO. On failure
 * nothing has changed, but for idle memory that may have moved. */
int vp_spill_alloc(struct vp_pool *pool, struct vp_request *req, const struct vp_spill_room *room,
                   struct vp_region **out) __attribute__((cold));
/* Releases the host's memory of blocks that were freed, as far as work on them is over. Is some of it left? */
bool vp_spill_settle(struct vp_pool *pool);
