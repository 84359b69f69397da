/* What native code is called, by the symbol tables of its modules: read by elfutils' libdw, demangled by libiberty
 * where the build has it, else by the C++ runtime. Both runtime libraries are looked for when they are needed: without
 * them frames stay module and offset, and it is said why. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/read/stacks.h"

/* Names the native frames. Sets `complaint` where some could not be. 0 or -ENOMEM. */
int vp_names_look_up(struct vp_stacks *s);

/* What a compiler's name stands for in the source, to be freed; a copy where it stands for nothing. NULL: no memory. */
char *vp_names_demangle(const char *name);
