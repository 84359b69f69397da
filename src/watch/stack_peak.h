/* What each stack held when most was alive, of all devices together.
 *
 * Nothing is copied at a new peak: these are counted, and a stack whose bytes change for the first time since the last
 * one keeps what they were. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/lock.h"

#include <stdbool.h>
#include <stdint.h>

/* A block came (bytes above 0) or went. */
void vp_stack_peak_add(uint32_t stack, int64_t bytes);

struct vp_stack_peak {
    uint64_t bytes; /* that were alive then, as far as stacks tell of it */
    uint64_t ns;    /* since the first block */
};
/* What it was, and what each stack held of it, which `held` is told under a lock. False: nothing was recorded. */
bool vp_stack_peak(struct vp_stack_peak *out, void (*held)(void *to, uint32_t stack, uint64_t bytes), void *to);

extern struct vp_lock vp_stack_peak_guard;
