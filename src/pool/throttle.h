/* The bounded wait of the host: a program that runs far ahead of the GPU, and frees on one stream what another asks
 * for, is slowed down a little instead of being given ever more memory.
 *
 * What holds a stream up cannot always be seen: a host function, a kernel that spins on a flag, a peer that has yet to
 * send. A wait that is queued on a stream cannot be withdrawn, and if the program is to act before it ends, the program
 * hangs. So no stream waits: the thread that asks does, with no lock held, for no longer than a bound, and then takes
 * new memory as CUDA would have done at once. Whatever the program has yet to do, it is held up for that long at most;
 * and where waiting has proved to be in vain, it is not tried again for a while.
 *
 * When: a stream's request of 1 MiB and more would need new memory beyond what the program has had alive at once (and a
 * little), and memory that other streams have freed is pending. Never during captures. What such waits cost is watched:
 * the time for which the device stands still in and after them. None is longer than what it spares is worth, and beyond
 * a hundredth of the program's time more memory is held instead, and from then on that much is.
 *
 * The caller holds the library's lock; vp_pool_config.pause lets it go. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* Is a request to wait for pending frees, which would else make `fresh` bytes of new memory? To be asked before any
 * mapping, `fresh` or 0. */
enum vp_throttled {
    VP_THROTTLED,         /* that is all about it */
    VP_THROTTLED_LAGS,    /* room for it is left (vp_throttle_room()): only while that costs nothing */
    VP_THROTTLED_BLOCKED, /* old mappings are in the way, and so many bytes will be opened for it */
};
bool vp_throttle_due(struct vp_pool *pool, const struct vp_request *req, size_t fresh, enum vp_throttled how);
/* Is it rather to wait for the place that served its size before, if that is pending, than to take another? While there
 * is no room for a further one. What it would take instead is the place of something else, which then needs another: a
 * program that repeats itself would never come to rest. */
bool vp_throttle_place_due(struct vp_pool *pool, const struct vp_request *req);

/* What fits is pending: is so much new memory rather to be made than idle memory to be moved there? Moved, it is
 * missing where it was, and a program that repeats itself moves it to and fro for as long as the GPU lags. So an eighth
 * of what the program has alive is held for that before, and remaps are taken up only then. */
bool vp_throttle_room(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* As vp_pool_alloc(), which returns -EAGAIN where one of these said so: waits then until some pending work is over, and
 * tries again. The lock is let go meanwhile. -EAGAIN is left for requests without a stream; -ENODEV: the stream or its
 * context ended. */
int vp_throttle_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out);
