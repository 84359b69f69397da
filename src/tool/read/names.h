/* Names of native code, from the symbol tables of its modules: read by elfutils' libdw, demangled by libiberty if the
 * build has it, else by the C++ runtime. Both libraries are loaded when needed: without them frames stay module and
 * offset, and a message says why. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/read/stacks.h"

/* Names the native frames. Sets `complaint` where some could not be. 0 or -ENOMEM. */
int vp_names_look_up(struct vp_stacks *s);

/* What a compiler's name stands for in the source, to be freed; a copy where it stands for nothing. NULL: no memory. */
char *vp_names_demangle(const char *name);
