/* Symbols of loaded modules: their own hash tables, read as they lie in memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/symbols.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct tables {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash; /* DT_GNU_HASH, which all modules of the last fifteen years have */
};

struct wanted {
    const char *const *names;
    size_t count;
    void **out;
};

/* glibc writes the final addresses into most dynamic sections; the rest has the file's. */
static const void *table_at(uintptr_t base, ElfW(Addr) value) {
    return (const void *)(value < base ? base + value : value);
}

static bool read_tables(const struct dl_phdr_info *info, struct tables *out) {
    const ElfW(Dyn) *entry = NULL;
    *out = (struct tables){.base = info->dlpi_addr};
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            out->symbols = table_at(out->base, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_STRTAB)
            out->strings = table_at(out->base, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_GNU_HASH)
            out->hash = table_at(out->base, entry->d_un.d_ptr);
    }
    return out->symbols && out->strings && out->hash;
}

/* The table begins with the number of buckets, the first symbol in it, and the size and shift of a Bloom filter; its
 * chains are one array beside the symbols, the lowest bit of an entry marks the end of each. */
static void *find(const struct tables *t, const char *name) {
    const uint32_t buckets = t->hash[0], first = t->hash[1], words = t->hash[2], shift = t->hash[3];
    const ElfW(Addr) *bloom = (const void *)&t->hash[4];
    const uint32_t *bucket = (const void *)(bloom + words), *chain = bucket + buckets;
    enum { BITS = sizeof *bloom * 8 };
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const ElfW(Addr) word = words ? bloom[hash / BITS % words] : 0;
    if (!buckets || !(word >> hash % BITS & word >> (hash >> shift) % BITS & 1))
        return NULL;
    for (uint32_t i = bucket[hash % buckets]; i >= first; i++) {
        const ElfW(Sym) *s = &t->symbols[i];
        const int type = s->st_info & 15;
        if ((chain[i - first] | 1) == (hash | 1) && s->st_shndx != SHN_UNDEF &&
            (type == STT_FUNC || type == STT_OBJECT) && !strcmp(t->strings + s->st_name, name))
            return (void *)(t->base + s->st_value);
        if (chain[i - first] & 1)
            return NULL;
    }
    return NULL;
}

static int look(struct dl_phdr_info *info, size_t size, void *context) {
    const struct wanted *w = context;
    struct tables t;
    if (!read_tables(info, &t) || !(w->out[0] = find(&t, w->names[0])))
        return 0;
    for (size_t i = 1; i < w->count; i++)
        w->out[i] = find(&t, w->names[i]);
    return 1;
}

bool vp_symbols_find(const char *const *names, size_t count, void **out) {
    struct wanted w = {names, count, out};
    return dl_iterate_phdr(look, &w) == 1;
}
