/* What each stack held when most was alive, of all devices together, and which line held most then.
 *
 * Nothing is copied at a new peak: these are counted, and a stack whose bytes change for the first time since the last
 * one keeps what they were. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/lock.h"

#include <stdint.h>

/* A block came (bytes above 0) or went. */
void vp_stack_peak_add(uint32_t stack, int64_t bytes);

/* Stacks of one line count together, as in pages. */
struct vp_line_peak {
    uint32_t frame; /* that held most: of all stacks whose line it is, together */
    uint64_t bytes;
    uint64_t of; /* what was alive then, as far as stacks tell of it */
    uint64_t ns; /* since the first block */
};
/* False: not known. Not under a lock. */
bool vp_line_peak(struct vp_line_peak *out);

extern struct vp_lock vp_stack_peak_guard;
