/* What loaded modules export, looked up without the dynamic linker's lock: who holds the library's must not wait for
 * that, since a thread that holds it may run a constructor that wants ours. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <link.h>
#include <stddef.h>
#include <stdint.h>

/* What an entry of a dynamic section says; 0: there is none of that tag. */
ElfW(Addr) vp_symbols_value(const ElfW(Dyn) * dynamic, ElfW(Sxword) tag);
/* The table that one tells of; NULL: there is none. glibc writes the final addresses into most of them; the rest has
 * the file's. */
const void *vp_symbols_table(uintptr_t base, const ElfW(Dyn) * dynamic, ElfW(Sxword) tag);
/* What a module defines by this name; NULL: nothing. Indirect functions count as missing. */
void *vp_symbol_of(const struct dl_phdr_info *module, const char *name);
/* The first loaded module, in the linker's order, that defines names[0]; `out` gets the addresses of all names there,
 * NULL for those that it lacks. Returns whether there is one. */
_Bool vp_symbols_find(const char *const *names, size_t count, void **out);
