/* What loaded modules export, looked up without the dynamic linker's lock: who holds the library's must not wait for
 * that, since a thread that holds it may run a constructor that wants ours. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* The first loaded module, in the linker's order, that defines names[0]; `out` gets the addresses of all names there,
 * NULL for those that it lacks. Returns whether there is one. Indirect functions count as missing. */
_Bool vp_symbols_find(const char *const *names, size_t count, void **out);
