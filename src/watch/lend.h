/* Idle memory that one process gives to another of the same user: see lend.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/lock.h"
#include "process/watch.h"
#include "watch/shared_stats.h"

#include <cuda.h>

/* This process gives, if VPOOL_LEND lets it, once its page is published, until it ends. */
void vp_lend_start(void);
void vp_lend_end(void);
extern struct vp_lock vp_lend_guard;
/* Asks others for so many bytes of the device with that UUID; without the library's lock. Returns the bytes that they
 * gave back to the device. With `bytes` 0 nobody is asked. `*some`: have they at least `least` idle? */
uint64_t vp_lend_borrow(const CUuuid *uuid, uint64_t bytes, uint64_t least, enum vp_lend_some *some);
/* What others of the user that lie still would give of that device. They tell, for some milliseconds at most, and give
 * nothing. Without the library's lock. */
uint64_t vp_lend_spare(CUdevice device, const CUuuid *uuid);
/* Asks the process of that page for all that it has idle, on every device, and waits for so long at most; the bytes
 * that it gave back. */
uint64_t vp_lend_all(struct vp_shared_stats *page, int pid, uint64_t most_ns);
