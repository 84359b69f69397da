/* Names of native code, from the symbol tables of its modules: read by elfutils' libdw, demangled by libiberty if the
 * build has it, else by the C++ runtime. Both libraries are loaded when needed: without them frames stay module and
 * offset, and a message says why. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/read/stacks.h"

/* Names the native frames. Sets `complaint` if some could not be named. 0 or -ENOMEM. */
int vp_names_look_up(struct vp_stacks *s);

/* Returns the name in the source for a compiler's name, or a copy of that if there is none; the caller frees it. NULL:
 * no memory. */
char *vp_names_demangle(const char *name);
