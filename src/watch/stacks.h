/* Who asked for each block: VPOOL_STACKS=SIZE. Blocks of SIZE bytes or more have their stack recorded, and of smaller
 * ones one for each SIZE bytes that a thread allocates, which then stands for all of these.
 *
 * The table of stacks is stack_table.h; how a stack is walked is in stack_native.c and stack_python.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_WATCH_STACKS_H
#define VP_WATCH_STACKS_H

#include "process/state.h"
#include "watch/stack_table.h"

/* ---- stacks.c ---- */

/* Reads VPOOL_STACKS, once: are stacks recorded? */
bool vp_stacks_wanted(void);
/* Finds what walks stacks. Not under a lock: it may load a library. */
void vp_stacks_start(void);
/* Of an event: the stack of an allocation, 0 for none. */
uint32_t vp_stacks_event(char op, CUdevice device, uint64_t serial, size_t size);

/* What is alive by stack, on a device. */
struct vp_holder {
    uint32_t stack;
    uint64_t bytes, blocks; /* with those that sampled ones stand for */
    uint64_t sampled;       /* of them, blocks that others were counted by */
};
/* The `most` that hold most, the largest first. Returns how many there are; -1: stacks are not recorded. */
int vp_stacks_holders(CUdevice device, struct vp_holder *out, int most);

void vp_stacks_fork_prepare(void);
void vp_stacks_fork_parent(void);
void vp_stacks_fork_child(void);

/* ---- stack_native.c ---- */

/* Not under a lock. */
void vp_native_start(void);
/* The callers of the library; with `until_python` no farther than to the interpreter, of which `python` is some
 * function. */
void vp_native_walk(struct vp_walk *walk, const void *until_python);
/* Of the modules that are loaded: how often some have come, and gone. */
struct vp_modules_seen {
    uint64_t came, went;
};
struct vp_modules_seen vp_modules_seen(void);

/* ---- stack_python.c ---- */

enum vp_python {
    VP_PYTHON_NONE,    /* the process has no interpreter, or none that runs */
    VP_PYTHON_FRAMES,  /* this thread's frames were added */
    VP_PYTHON_OTHER,   /* there is one, and this thread runs no Python code */
    VP_PYTHON_UNKNOWN, /* there is one, and its stacks are not read; said in words that were added */
};
enum vp_python vp_python_walk(struct vp_walk *walk);
/* Some function of the interpreter; NULL: none. */
const void *vp_python_code(void);

/* ---- stack_tell.c ---- */

/* Before an event with this stack: puts what the trace does not have of it yet. Takes the trace's lock. */
void vp_stacks_tell(uint32_t stack);
/* The next trace is another one. */
void vp_stacks_tell_anew(void);

#endif
