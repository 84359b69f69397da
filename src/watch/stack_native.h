/* Stacks of native code, and the modules it lies in. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "watch/stack_table.h"

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
