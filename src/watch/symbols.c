/* Finds symbols of loaded modules by reading their hash tables in memory. */
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

ElfW(Addr) vp_symbols_value(const ElfW(Dyn) * dynamic, ElfW(Sxword) tag) {
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++)
        if (dynamic->d_tag == tag)
            return dynamic->d_un.d_val;
    return 0;
}

const void *vp_symbols_table(uintptr_t base, const ElfW(Dyn) * dynamic, ElfW(Sxword) tag) {
    const ElfW(Addr) at = vp_symbols_value(dynamic, tag);
    return at ? (const void *)(at < base ? base + at : at) : NULL;
}

/* Looks a name up in DT_GNU_HASH, which all modules of the last fifteen years have. It begins with the number of
 * buckets, the first symbol in it, and the size and shift of a Bloom filter. Its chains are one array parallel to the
 * symbols; the lowest bit of an entry marks the end of a chain. */
static void *find(uintptr_t base, const ElfW(Dyn) * dynamic, const uint32_t *table, const char *name) {
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
    const ElfW(Sym) *symbols = vp_symbols_table(base, dynamic, DT_SYMTAB);
    const char *strings = vp_symbols_table(base, dynamic, DT_STRTAB);
    for (uint32_t i = bucket[hash % buckets]; symbols && strings && i >= first; i++) {
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
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < module->dlpi_phnum; i++)
        if (module->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(module->dlpi_addr + module->dlpi_phdr[i].p_vaddr);
    const uint32_t *hash = vp_symbols_table(module->dlpi_addr, dynamic, DT_GNU_HASH);
    return hash ? find(module->dlpi_addr, dynamic, hash, name) : NULL;
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
