/* Symbols of loaded modules: their own hash tables, read as they lie in memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/symbols.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct wanted {
    const char *const *names;
    size_t count;
    void **out;
};

/* DT_GNU_HASH, which all modules of the last fifteen years have, begins with the number of buckets, the first symbol in
 * it, and the size and shift of a Bloom filter; its chains are one array beside the symbols, the lowest bit of an entry
 * marks the end of each. */
static void *find(uintptr_t base, const ElfW(Sym) * symbols, const char *strings, const uint32_t *table,
                  const char *name) {
    const uint32_t buckets = table[0], first = table[1], words = table[2], shift = table[3];
    const ElfW(Addr) *bloom = (const void *)&table[4];
    const uint32_t *bucket = (const void *)(bloom + words), *chain = bucket + buckets;
    enum { BITS = sizeof *bloom * 8 };
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const ElfW(Addr) word = words ? bloom[hash / BITS % words] : 0;
    if (!buckets || !(word >> hash % BITS & word >> (hash >> shift) % BITS & 1))
        return NULL;
    for (uint32_t i = bucket[hash % buckets]; i >= first; i++) {
        const ElfW(Sym) *s = &symbols[i];
        const int type = s->st_info & 15;
        if ((chain[i - first] | 1) == (hash | 1) && s->st_shndx != SHN_UNDEF &&
            (type == STT_FUNC || type == STT_OBJECT) && !strcmp(strings + s->st_name, name))
            return (void *)(base + s->st_value);
        if (chain[i - first] & 1)
            return NULL;
    }
    return NULL;
}

void *vp_symbol_of(const struct dl_phdr_info *module, const char *name) {
    const ElfW(Dyn) *entry = NULL;
    const void *tables[DT_SYMTAB + 1] = {NULL}, *hash = NULL;
    for (int i = 0; i < module->dlpi_phnum; i++)
        if (module->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const void *)(module->dlpi_addr + module->dlpi_phdr[i].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB || entry->d_tag == DT_STRTAB)
            tables[entry->d_tag] = vp_symbols_table(module->dlpi_addr, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_GNU_HASH)
            hash = vp_symbols_table(module->dlpi_addr, entry->d_un.d_ptr);
    }
    const bool has = tables[DT_SYMTAB] && tables[DT_STRTAB] && hash;
    return has ? find(module->dlpi_addr, tables[DT_SYMTAB], tables[DT_STRTAB], hash, name) : NULL;
}

static int look(struct dl_phdr_info *info, size_t size, void *context) {
    const struct wanted *w = context;
    for (size_t i = 0; i < w->count; i++)
        if (!(w->out[i] = vp_symbol_of(info, w->names[i])) && !i)
            return 0;
    return 1;
}

bool vp_symbols_find(const char *const *names, size_t count, void **out) {
    struct wanted w = {names, count, out};
    return dl_iterate_phdr(look, &w) == 1;
}
