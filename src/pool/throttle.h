/* The bounded wait of the host: a program that runs far ahead of the GPU, and frees on one stream what another asks
 * for, is slowed down a little instead of being given ever more memory.
 *
 * What holds a stream up cannot always be seen: a host function, a kernel that spins on a flag, a peer that has yet to
 * send. A wait that is queued on a stream cannot be withdrawn: if the program must act before it ends, the program
 * hangs. So streams do not wait. The requesting thread does, with no lock held and up to a bound, and then takes new
 * memory as CUDA would have done at once. Whatever the program has yet to do is held up no longer than that. Where
 * waiting has proved to be in vain, it is not tried again for a while.
 *
 * It waits when a stream's request of 1 MiB or more would need new memory beyond the peak of live bytes (and a little),
 * and memory that other streams have freed is pending; never during captures. What waits cost is watched: the time for
 * which the device is idle during and after them. No wait is longer than what it saves is worth. If waits cost more
 * than 1 % of the program's time, more memory is held instead, from then on.
 *
 * The caller holds the library's lock; vp_pool_config.pause releases it for a while. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* Is a request to wait for pending frees, which would otherwise make `fresh` bytes of new memory? To be asked before
 * anything is mapped; `fresh` may be 0. */
enum vp_throttled {
    VP_THROTTLED, /* for no other reason */
    /* Instead of using the room that is left (vp_throttle_room()): only while a wait costs nothing. */
    VP_THROTTLED_LAGS,
    VP_THROTTLED_BLOCKED, /* because old mappings are in the way: otherwise `fresh` bytes are opened for it */
};
bool vp_throttle_due(struct vp_pool *pool, const struct vp_request *req, size_t fresh, enum vp_throttled how);
/* Is it to wait for the pending place that served its size before, rather than take another? Only while the pool may
 * not grow. It would otherwise take another size's place, which would then need a new one: a program that repeats
 * itself would never come to rest. */
bool vp_throttle_place_due(struct vp_pool *pool, const struct vp_request *req);

/* What fits is pending: are `fresh` bytes to be created rather than idle memory moved there? Memory that is moved is
 * missing where it was, and a program that repeats itself moves it to and fro while the GPU lags. So up to an eighth of
 * what is alive is held first, and memory is moved only beyond that. */
bool vp_throttle_room(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* As vp_pool_alloc(). Where that returns -EAGAIN by one of the above, releases the lock, waits until some pending work
 * is over, and tries again. -EAGAIN: only for requests without a stream. -ENODEV: the stream or its context ended. */
int vp_throttle_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out);
