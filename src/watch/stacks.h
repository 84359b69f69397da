/* Who asked for each block: VPOOL_STACKS=SIZE. Blocks of SIZE bytes or more have their stack recorded, and of smaller
 * ones one for each SIZE bytes that a thread allocates, which then stands for all of these.
 *
 * The table of stacks is stack_table.h; how a stack is walked is in stack_native.c and stack_python.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"
#include "watch/stack_table.h"

/* What such a text asks for; 0 for none. False, with nothing read: it is not valid. */
bool vp_stacks_read(const char *text, size_t *every, bool *native);
/* Reads VPOOL_STACKS, when the library opens. From then on: are stacks recorded? */
void vp_stacks_open(void);
bool vp_stacks_wanted(void);
/* Finds what walks stacks. Not under a lock: it may load a library. */
void vp_stacks_start(void);
/* Of an event: the stack of an allocation, 0 for none. */
uint32_t vp_stacks_event(char op, CUdevice device, uint64_t serial, size_t size);
/* Of a block that is alive; 0: none is recorded. */
uint32_t vp_stacks_of(CUdevice device, uint64_t serial);

/* What is alive by stack, on a device. */
struct vp_stack_holder {
    uint32_t stack;
    uint64_t bytes, blocks; /* with those that sampled ones stand for */
    uint64_t sampled;       /* of them, blocks that others were counted by */
};
/* The `most` that hold most, the largest first. Returns how many there are; -1: stacks are not recorded. */
int vp_stacks_holders(CUdevice device, struct vp_stack_holder *out, int most);

void vp_stacks_fork_child(void);
