/* Looks up symbols of loaded modules without the dynamic linker's lock: a thread with the library's lock must not wait
 * for that, since its holder may run a constructor that waits for ours. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <link.h>
#include <stddef.h>
#include <stdint.h>

/* The value of an entry of a dynamic section; 0: there is none with this tag. */
ElfW(Addr) vp_symbols_value(const ElfW(Dyn) * dynamic, ElfW(Sxword) tag);
/* The table of an entry; NULL: none. glibc writes final addresses into most entries; others have the file's. */
const void *vp_symbols_table(uintptr_t base, const ElfW(Dyn) * dynamic, ElfW(Sxword) tag);
/* The definition of `name` in a module; NULL: none. Indirect functions count as missing. */
void *vp_symbol_of(const struct dl_phdr_info *module, const char *name);
/* The first loaded module, in the linker's order, that defines names[0]; `out` gets the addresses of all names there,
 * NULL for those that it lacks. Returns whether there is one. */
_Bool vp_symbols_find(const char *const *names, size_t count, void **out);
