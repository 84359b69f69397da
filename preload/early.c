/* Look-ups before the library is set up: the real dlsym and dlvsym, and the doors by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "early.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include "doors_list.h"

/* The list of loaded objects: _r_debug in glibc, *_dl_debug_addr in musl. Both are weak references, so that neither is
 * required, and the library does not depend on the dynamic linker. */
extern struct r_debug _r_debug __attribute__((weak));
extern struct r_debug *_dl_debug_addr __attribute__((weak));

/* A loaded object's own tables, as its dynamic section names them. */
struct object {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Half) * versions; /* NULL: the object has none */
    const uint32_t *gnu_hash;
    const char *name;
};

VP_EARLY static void *no_symbol(void *handle, const char *name) {
    return NULL;
}

VP_EARLY static void *no_versioned_symbol(void *handle, const char *name, const char *version) {
    return NULL;
}

vp_dlsym_fn *vp_real_dlsym;
vp_dlvsym_fn *vp_real_dlvsym;
vp_dlopen_fn *vp_real_dlopen;
vp_dlclose_fn *vp_real_dlclose;

VP_EARLY bool vp_early_equal(const char *a, const char *b) {
    for (; *a == *b; a++, b++) {
        if (!*a)
            return true;
    }
    return false;
}

VP_EARLY static bool begins_with(const char *text, const char *prefix) {
    while (*prefix) {
        if (*text++ != *prefix++)
            return false;
    }
    return true;
}

/* glibc writes the final addresses into most dynamic sections, musl leaves the file's offsets there. */
VP_EARLY static const void *table_at(uintptr_t base, ElfW(Addr) value) {
    return (const void *)(value < base ? base + value : value);
}

VP_EARLY static void object_read(struct object *object, const struct link_map *map) {
    ElfW(Xword) name = 0;
    /* One by one: a whole struct would be cleared by calling memset. */
    object->base = map->l_addr;
    object->symbols = NULL;
    object->strings = NULL;
    object->versions = NULL;
    object->gnu_hash = NULL;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        const void *table = table_at(map->l_addr, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB)
            object->symbols = table;
        else if (entry->d_tag == DT_STRTAB)
            object->strings = table;
        else if (entry->d_tag == DT_VERSYM)
            object->versions = table;
        else if (entry->d_tag == DT_GNU_HASH)
            object->gnu_hash = table;
        else if (entry->d_tag == DT_SONAME)
            name = entry->d_un.d_val;
    }
    object->name = object->strings ? object->strings + name : "";
}

/* The address of a function, if the symbol at `index` is its definition. */
VP_EARLY static void *function_at(const struct object *object, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &object->symbols[index];
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
        return NULL;
    return vp_early_equal(object->strings + symbol->st_name, name) ? (void *)(object->base + symbol->st_value) : NULL;
}

VP_EARLY static bool is_default_version(const struct object *object, uint32_t index) {
    return !object->versions || !(object->versions[index] & 0x8000);
}

/* Any version will do, since the right one differs between architectures and libcs; the default one for
 * choice. The GNU table, which every libc of the last fifteen years has, begins with the number of buckets, the first
 * symbol in it and the size of a Bloom filter, which one search does not need; its chains are one array beside the
 * symbols, the lowest bit marks the end of each. */
VP_EARLY static void *object_function(const struct object *object, const char *name) {
    const uint32_t *table = object->gnu_hash;
    void *found = NULL, *function;
    if (!object->symbols || !object->strings || !table)
        return NULL;
    uint32_t buckets = table[0], first = table[1];
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)&table[4] + table[2]);
    const uint32_t *chain = bucket + buckets;
    uint32_t hash = 5381, index;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    index = bucket[hash % buckets];
    if (index < first)
        return NULL;
    do {
        function = function_at(object, index, name);
        if (function && (!found || is_default_version(object, index)))
            found = function;
    } while (!(chain[index++ - first] & 1));
    return found;
}

/* The first object named with `prefix` that has the function. libc stands among the first few of the list,
 * before anything that a program could unload in another thread. */
VP_EARLY static void *find_function(const char *prefix, const char *name) {
    const struct r_debug *debug = &_r_debug ? &_r_debug : &_dl_debug_addr ? _dl_debug_addr : NULL;
    struct object object;
    for (const struct link_map *map = debug ? debug->r_map : NULL; map; map = map->l_next) {
        void *function = NULL;
        object_read(&object, map);
        if (begins_with(object.name, prefix))
            function = object_function(&object, name);
        if (function)
            return function;
    }
    return NULL;
}

VP_EARLY void *vp_early_own(const char *name) {
    void *function = find_function("libc.", name);
    return function ? function : find_function("libdl.", name);
}

VP_EARLY void vp_early_find(void) {
    void *symbol = vp_early_own("dlsym"), *versioned = vp_early_own("dlvsym");
    void *open = vp_early_own("dlopen"), *close = vp_early_own("dlclose");
    vp_real_dlopen = (vp_dlopen_fn *)(open && close ? open : (void *)no_symbol);
    vp_real_dlclose = (vp_dlclose_fn *)close;
    vp_real_dlvsym = versioned ? (vp_dlvsym_fn *)versioned : no_versioned_symbol;
    __atomic_store_n(&vp_real_dlsym, symbol ? (vp_dlsym_fn *)symbol : no_symbol, __ATOMIC_RELEASE);
}

/* Names as one text: an array of pointers is four times as large, with what the dynamic linker has to know of each. */
#define NAME(symbol, ...) #symbol "\0"
const char vp_early_names[] = VP_DOORS_DRIVER(NAME) VP_DOORS_NCCL(NAME) VP_DOORS_LIBC(NAME);
const char vp_early_runtime_names[] = VP_DOORS_RUNTIME(NAME);
#undef NAME

VP_EARLY static bool is_among(const char *name, const char *names) {
    while (*names) {
        if (vp_early_equal(name, names))
            return true;
        while (*names++)
            continue;
    }
    return false;
}

VP_EARLY bool vp_early_is_anywhere(const void *handle) {
    return handle == RTLD_DEFAULT || (&_r_debug && handle == _r_debug.r_map);
}

/* Whole names only: "cudnnCreate" begins as ours do, and "cuMemAlloc" is another function than "cuMemAlloc_v2". The
 * runtime's functions are not among those of a handle: whoever looks one up there means the library of that handle. */
VP_EARLY static bool is_door(const void *handle, const char *name) {
    const bool anywhere = vp_early_is_anywhere(handle);
    if (!begins_with(name, "cu") && !begins_with(name, "nccl") && (anywhere || !begins_with(name, "dl")))
        return false;
    return is_among(name, vp_early_names) || (anywhere && is_among(name, vp_early_runtime_names));
}

/* RTLD_NEXT and RTLD_DEFAULT mean "as seen from the caller", whom libc knows by the return address: those always go on,
 * and find our exports by themselves where these are meant. But for one case: RTLD_DEFAULT, and the program's own
 * handle, would find them in a program without CUDA, too, which asks whether it has any. */
VP_EARLY void *vp_early_ask(void *handle, const char *name, const char *version, vp_dlvsym_fn *lookup) {
    if (!__atomic_load_n(&vp_real_dlsym, __ATOMIC_ACQUIRE))
        vp_early_find();
    if (handle == RTLD_NEXT || !name || !is_door(handle, name))
        return NULL;
    return lookup(handle, name, version);
}
