/* What each stack held when most was alive, over all devices, and which line held most then.
 *
 * A new peak copies nothing: a stack whose bytes change for the first time after a peak saves what they were. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/lock.h"

#include <stdint.h>

/* A block was allocated (bytes > 0) or freed. */
void vp_stack_peak_add(uint32_t stack, int64_t bytes);

/* The line that held most at the peak: the stacks of one line count together, as in pages. */
struct vp_line_peak {
    uint32_t frame; /* whose line held most */
    uint64_t bytes;
    uint64_t of; /* what was alive then, as far as stacks were recorded */
    uint64_t ns; /* since the first block */
};
/* False: not known. Not under a lock. */
bool vp_line_peak(struct vp_line_peak *out);

extern struct vp_lock vp_stack_peak_guard;
