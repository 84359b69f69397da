/* Walking a stack: of Python code (stack_python.c) and of native code (stack_native.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "watch/stack_table.h"

/* The most frames that are recorded, the innermost ones; a further one says that there are more. */
enum { VP_STACK_DEPTH = 192 };

struct vp_walk {
    uint32_t frame[VP_STACK_DEPTH + 4]; /* the innermost first */
    unsigned count;
};

/* Adds a frame that consists of words; `number` identifies the words. */
void vp_walk_add_words(struct vp_walk *walk, uint64_t number, const char *words);
static inline bool vp_walk_add(struct vp_walk *walk, uint32_t frame) {
    if (frame)
        walk->frame[walk->count++] = frame;
    return walk->count < VP_STACK_DEPTH;
}

/* Not under a lock. */
void vp_native_start(void);
/* Adds the callers of the library; with `until_python`, an address in the interpreter, only up to the interpreter. */
void vp_native_walk(struct vp_walk *walk, const void *until_python);
/* How often modules have been loaded and unloaded. */
struct vp_modules_seen {
    uint64_t came, went;
};
struct vp_modules_seen vp_modules_seen(void);

enum vp_python {
    VP_PYTHON_NONE,    /* the process has no interpreter, or none that runs */
    VP_PYTHON_FRAMES,  /* this thread's frames were added */
    VP_PYTHON_OTHER,   /* there is one, and this thread runs no Python code */
    VP_PYTHON_UNKNOWN, /* there is one, and its stacks are not read; said in words that were added */
};
enum vp_python vp_python_walk(struct vp_walk *walk);
/* An address in the interpreter's code; NULL: none. */
const void *vp_python_code(void);

extern struct vp_lock vp_python_guard;
