/* How long one call may take, and how long it may hold up other threads.
 *
 * A remap costs some 24 us a handle. A request that needs hundreds of handles would keep its thread, and every thread
 * that waits for the library's lock, busy for tens of milliseconds. Two things bound that:
 *   - While the device has memory to spare, what would take too long to move is created anew in a few large handles.
 *     The pool then holds more than slack allows. That excess goes back later, a few milliseconds at a time, in calls
 *     that build nothing.
 *   - Where the device has none to spare, the range is built in parts, and the lock is released between them. What is
 *     built so far and the addresses of the rest are in state VP_BUILDING and in no index: nobody else takes them. If
 *     the build fails they become free memory and a hole. One thread at a time builds so; a thread that finds no memory
 *     waits for it.
 *
 * The caller holds the library's lock; vp_pool_config.pause releases it for a while. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/harvest.h"

/* Removes from the harvest the chunks that are better created anew than moved. Returns how many bytes more are then
 * created than were missing anyway (0: nothing changed). vp_bound_moves_spared() must be told how the build ended: 0 or
 * an error. */
size_t vp_bound_spare_moves(struct vp_pool *pool, struct vp_harvest *h, size_t want);
void vp_bound_moves_spared(struct vp_pool *pool, size_t bytes, int err);
/* Gives some of the excess back: after a call that built nothing, or after the program `waited` for the device. Work
 * may use free memory until it has passed the last of the frees that left it, and mostly some has not yet: once all
 * chunks were looked at in vain, only a wait makes another look worthwhile. */
void vp_bound_settle(struct vp_pool *pool, bool waited);

/* Is the range to be built in parts? */
bool vp_bound_parts(struct vp_pool *pool, struct vp_harvest *h, size_t want);
/* As vp_build(), but in parts. -ENODEV: the request's stream or context ended while the lock was released. */
int vp_bound_build(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out);
/* For a request that found no memory: waits for the range that is being built in parts. False: there was none. */
bool vp_bound_wait(struct vp_pool *pool);
/* Has the request's stream or context ended during such a wait? */
bool vp_bound_ended(const struct vp_request *req);
