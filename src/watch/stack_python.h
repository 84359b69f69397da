/* Stacks of Python. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "watch/stack_table.h"

enum vp_python {
    VP_PYTHON_NONE,    /* the process has no interpreter, or none that runs */
    VP_PYTHON_FRAMES,  /* this thread's frames were added */
    VP_PYTHON_OTHER,   /* there is one, and this thread runs no Python code */
    VP_PYTHON_UNKNOWN, /* there is one, and its stacks are not read; said in words that were added */
};
enum vp_python vp_python_walk(struct vp_walk *walk);
/* Some function of the interpreter; NULL: none. */
const void *vp_python_code(void);

extern struct vp_lock vp_python_guard;
