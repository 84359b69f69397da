/* Records who allocated each block: VPOOL_STACKS=SIZE. The stack is recorded for blocks of SIZE bytes or more and, of
 * smaller ones, for one in every SIZE bytes that a thread allocates, which then stands for all of these.
 *
 * stack_table.h is the table of stacks; stack_native.c and stack_python.c walk a stack. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"
#include "watch/stack_table.h"

/* Parses the option: `*every` 0 for none. False: not valid, outputs untouched. */
bool vp_stacks_read(const char *text, size_t *every, bool *native);
/* Reads VPOOL_STACKS, when the library opens. vp_stacks_wanted(), afterwards: are stacks recorded? */
void vp_stacks_open(void);
bool vp_stacks_wanted(void);
/* Finds the functions that walk stacks. Not under a lock: it may load a library. */
void vp_stacks_start(void);
/* For an event: returns the stack of an allocation, 0 for none. */
uint32_t vp_stacks_event(char op, CUdevice device, uint64_t serial, size_t size);
/* The stack of a live block; 0: none is recorded. */
uint32_t vp_stacks_of(CUdevice device, uint64_t serial);

/* The live memory of one stack, on a device. */
struct vp_stack_holder {
    uint32_t stack;
    uint64_t bytes, blocks; /* with those that sampled ones stand for */
    uint64_t sampled;       /* of them, blocks that others were counted by */
};
/* Lists the `most` largest holders, the largest first. Returns their number; -1: stacks are not recorded. */
int vp_stacks_holders(CUdevice device, struct vp_stack_holder *out, int most);

void vp_stacks_fork_child(void);
