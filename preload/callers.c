/* Finds the copy of the CUDA runtime that a call comes from, so that its error is recorded in the right one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "callers.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <driver_types.h>
#include "base/os_memory.h"
#include "early.h"
#include "watch/symbols.h"

unsigned vp_door_begins[VP_DOOR_COUNT];

const struct link_map *vp_object_at(const void *address) {
    struct link_map *map;
    Dl_info info;
    return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

/* Was it loaded before the other? */
static bool is_before(const struct link_map *object, const struct link_map *other) {
    while (other && other != object)
        other = other->l_prev;
    return other != NULL;
}

/* The version of an object's functions, as calls of them ask for it; "": they have none. */
static const char *version_of(const struct link_map *object) {
    const char *names = vp_symbols_table(object->l_addr, object->l_ld, DT_STRTAB);
    const ElfW(Verdef) *def = vp_symbols_table(object->l_addr, object->l_ld, DT_VERDEF);
    if (!def || !def->vd_next) /* the first is the object's own name */
        return "";
    def = (const void *)((const char *)def + def->vd_next);
    return names + ((const ElfW(Verdaux) *)((const char *)def + def->vd_aux))->vda_name;
}

/* A symbol in a loaded object or in what it depends on. Loads nothing. */
static void *find_in(const char *object, const char *symbol) {
    void *handle = vp_real_dlopen(object, RTLD_NOLOAD | RTLD_LAZY);
    void *found = handle ? vp_real_dlsym(handle, symbol) : NULL;
    if (handle)
        vp_real_dlclose(handle);
    return found;
}

/* What other objects define a symbol. */
struct definitions {
    const char *symbol, *library;
    const void *ours;
    void *alone; /* NULL: none does, several do, or one in front of us */
    void *named; /* the first in a file whose name begins with `library` */
    bool passed, several;
};

static int match_definition(struct dl_phdr_info *info, size_t size, void *data) {
    struct definitions *defs = data;
    void *function = vp_symbol_of(info, defs->symbol);
    defs->passed |= function == defs->ours;
    if (!function || function == defs->ours)
        return 0;
    if (!defs->named && defs->library && !strncmp(basename(info->dlpi_name), defs->library, strlen(defs->library)))
        defs->named = function;
    defs->several |= defs->alone || !defs->passed;
    defs->alone = defs->several ? NULL : function;
    return 0;
}

void *vp_caller_find(const void *address, const char *symbol, const void *ours, void *handed_out, const char *library) {
    struct definitions defs = {.symbol = symbol, .library = library, .ours = ours};
    dl_iterate_phdr(match_definition, &defs);
    /* All calls are bound to it. To ask the dynamic linker would be to wait for whoever loads a library, whose
     * constructor may wait for this thread. */
    if (address && defs.alone)
        return defs.alone;
    if (!vp_real_dlsym)
        vp_early_find();
    const struct link_map *caller = vp_object_at(address);
    void *next = vp_real_dlsym(RTLD_NEXT, symbol);
    /* What an object in front of us depends on is in the global order. */
    const bool in_front = is_before(caller, vp_object_at(&vp_door_table));
    void *found = !caller ? NULL : in_front ? next : find_in(caller->l_name, symbol);
    const char *version = found ? version_of(vp_object_at(found)) : "";
    void *first = *version ? vp_real_dlvsym(RTLD_NEXT, symbol, version) : next;
    /* Another interposer is behind us: all calls are bound to it, before what the caller depends on. So are they to
     * what was in the global order as the caller was loaded, if it has the version that the caller asks for. */
    if (found && next && strncmp(basename(vp_object_at(next)->l_name), library, strlen(library)) != 0)
        found = next;
    else if (found && first && is_before(vp_object_at(first), caller))
        found = first;
    if (!found || found == ours)
        found = handed_out ? handed_out : next;
    if (!found)
        found = defs.named;
    return found == ours ? NULL : found;
}

static cudaError_t not_found(void) {
    return cudaErrorSymbolNotFound;
}

static const struct vp_runtime no_runtime = {
#define NOT_FOUND(symbol, ...) .real[VP_RUNTIME_##symbol] = not_found,
    VP_DOORS_RUNTIME(NOT_FOUND)
#undef NOT_FOUND
};

/* Fills in the table of the libcudart that contains `malloc_function`, and keeps it loaded: the table must last. */
static void runtime_fill(struct vp_runtime *runtime, void *malloc_function) {
    const struct link_map *object = vp_object_at(malloc_function);
    void *handle = object ? vp_real_dlopen(*object->l_name ? object->l_name : NULL, RTLD_NOLOAD | RTLD_LAZY) : NULL;
    const char *name = vp_early_runtime_names;
    int version = 0;
    *runtime = no_runtime;
    for (size_t i = 0; handle && i < VP_RUNTIME_COUNT; i++, name += strlen(name) + 1) {
        void *real = vp_caller_find(malloc_function, name, vp_door_table.runtime[i], NULL, "libcudart");
        if (!real)
            continue;
        runtime->real[i] = real;
        object = vp_object_at(real);
        if (vp_object_at(find_in(object->l_name, "cudaRuntimeGetVersion")) != object)
            memset(vp_door_begins, 0xff, sizeof vp_door_begins); /* another interposer: no short way may pass it by */
    }
    cudaError_t (*get_version)(int *) = handle ? vp_real_dlsym(handle, "cudaRuntimeGetVersion") : NULL;
    if (get_version && get_version(&version) == cudaSuccess)
        runtime->context_is_current = version >= 12000;
}

/* The copies of libcudart found so far, the newest first. There is no lock, because a forked child might find it taken:
 * if two threads read the same copy, the second to add it gets the entry of the first. */
static struct runtime_entry {
    void *malloc_function;
    struct vp_runtime runtime;
    struct runtime_entry *next;
} *_Atomic runtimes;

static const struct vp_runtime *runtime_of(void *malloc_function) {
    struct runtime_entry *first = atomic_load_explicit(&runtimes, memory_order_acquire), *own = NULL, *entry;
    do {
        for (entry = first; entry && entry->malloc_function != malloc_function; entry = entry->next)
            continue;
        if (entry || (!own && !(own = vp_os_take(sizeof *own))))
            break;
        if (!own->malloc_function) {
            runtime_fill(&own->runtime, malloc_function);
            own->malloc_function = malloc_function;
        }
        own->next = first;
    } while (!atomic_compare_exchange_weak(&runtimes, &first, own));
    if (entry && own)
        vp_os_give(own, sizeof *own);
    return entry ? &entry->runtime : own ? &own->runtime : &no_runtime;
}

/* Call sites of the program, and the libcudart of each. A site is added once and never removed; if its slots are full,
 * it is looked up each time, which is slower but correct. (If code is unloaded and code that uses another libcudart
 * calls from the same address, the wrong copy is used; both copies are still loaded.) */
enum { SITES = 1024, PROBES = 8 };
static struct site {
    _Atomic(const void *) address;
    _Atomic(const struct vp_runtime *) runtime;
} sites[SITES];

static struct site *site_at(const void *address, unsigned probe) {
    uint64_t hash = (uint64_t)(uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15);
    return &sites[((hash >> 32) + probe) % SITES];
}

/* The entry of a call site in one of its slots; NULL: none. */
static inline const struct vp_runtime *known_at(const void *address, unsigned probe) {
    struct site *site = site_at(address, probe);
    return atomic_load_explicit(&site->address, memory_order_relaxed) == address
               ? atomic_load_explicit(&site->runtime, memory_order_acquire)
               : NULL;
}

/* A separate function: mostly the first slot matches, and then no registers need to be saved. */
__attribute__((noinline)) static const struct vp_runtime *look_for(const void *address) {
    const struct vp_runtime *runtime;
    for (unsigned probe = 1; probe < PROBES; probe++)
        if ((runtime = known_at(address, probe)))
            return runtime;
    void *ours = vp_door_table.runtime[VP_RUNTIME_cudaMalloc];
    void *malloc_function = vp_caller_find(address, "cudaMalloc", ours, NULL, "libcudart");
    if (!malloc_function)
        return &no_runtime;
    runtime = runtime_of(malloc_function);
    for (unsigned probe = 0; probe < PROBES; probe++) {
        struct site *site = site_at(address, probe);
        const void *free_slot = NULL;
        if (atomic_compare_exchange_strong(&site->address, &free_slot, address) || free_slot == address) {
            atomic_store_explicit(&site->runtime, runtime, memory_order_release);
            break;
        }
    }
    return runtime;
}

const struct vp_runtime *vp_caller_runtime(const void *address) {
    const struct vp_runtime *runtime = known_at(address, 0);
    return __builtin_expect(runtime != NULL, true) ? runtime : look_for(address);
}
