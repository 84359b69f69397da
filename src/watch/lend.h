/* Lending: a process gives idle memory to another of the same user. See lend.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/lock.h"
#include "process/watch.h"
#include "watch/shared_stats.h"

#include <cuda.h>

/* Start lending (if VPOOL_LEND allows it) once the page of this process is published, and stop at its end. */
void vp_lend_start(void);
void vp_lend_end(void);
extern struct vp_lock vp_lend_guard;
/* Asks other processes for `bytes` of the device with that UUID, without the library's lock. Returns the bytes that
 * they gave back to the device. With `bytes` 0 nobody is asked. `*some`: do they have at least `least` idle? */
uint64_t vp_lend_borrow(const CUuuid *uuid, uint64_t bytes, uint64_t least, enum vp_lend_some *some);
/* Returns what idle processes of the user would give of that device. They answer within some milliseconds, and give
 * nothing. Without the library's lock. */
uint64_t vp_lend_spare(CUdevice device, const CUuuid *uuid);
/* Asks the process of that page for all its idle memory, on every device; waits up to `most_ns`. The bytes given. */
uint64_t vp_lend_all(struct vp_shared_stats *page, int pid, uint64_t most_ns);
