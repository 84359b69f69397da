/* How long one call may take, and hold up others.
 *
 * A remap costs by the handle. A request that needs hundreds of them would keep its thread, and all that wait for the
 * library's lock, for tens of milliseconds. Two things are done about it:
 *   - while the device has memory to spare, what would take too long is made anew, in few large handles: more is held
 *     than slack allows. The excess goes back later, in calls that had nothing to build, a few milliseconds at a time;
 *   - where it has none, the range is built in parts, and the lock is let go between them. What is built so far, and
 *     the addresses of the rest, are in the state VP_BUILDING, in no index: nobody else takes them, and if the build
 *     fails they become free memory and a hole. One thread builds so at a time; who has no memory left waits for it.
 *
 * The caller holds the library's lock; vp_pool_config.pause lets it go. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/harvest.h"

/* Drops chosen chunks that the request is rather made anew instead of; returns the bytes that makes, beside those that
 * are short anyway. To be told of the outcome, 0 or an error. */
size_t vp_bound_spare(struct vp_pool *pool, struct vp_harvest *h, size_t want);
void vp_bound_spared(struct vp_pool *pool, size_t bytes, int err);
/* A call has built nothing, or the program has `waited` for the device: gives some of the excess back. What frees have
 * left in one piece is in use for as long as the last of these may be, and mostly there is one: where all was looked at
 * in vain, only waits are worth another look. */
void vp_bound_settle(struct vp_pool *pool, bool waited);

/* Is the range to be built in parts? */
bool vp_bound_parts(struct vp_pool *pool, struct vp_harvest *h, size_t want);
/* As vp_build(), so. -ENODEV: the request's stream or context has ended meanwhile. */
int vp_bound_build(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out);
/* A request has found no memory: waits while a range is built in parts. False: none was. */
bool vp_bound_wait(struct vp_pool *pool);
/* Has the request's stream or context ended, in such a wait? */
bool vp_bound_ended(const struct vp_request *req);
