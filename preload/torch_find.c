/* Finds PyTorch's real functions behind ours, and whether its libraries call ours as they must. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "torch.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include "base/log.h"
#include "callers.h"
#include "early.h"
#include "watch/symbols.h"

/* In the order of enum vp_torch_symbol. */
#define TEXT(symbol) #symbol
#define TOLD(symbol) TEXT(symbol),
#define PASSED(name, symbol) TEXT(symbol),
static const char *const names[] = {VP_DOORS_TORCH_PASSED(PASSED) VP_DOORS_TORCH_TOLD(TOLD)};
_Static_assert(sizeof(names) / sizeof(names[0]) == VP_TORCH_SYMBOLS, "each has its name");

_Atomic(void *) vp_torch_real[VP_TORCH_SYMBOLS];
struct vp_torch_code vp_torch_code;

static uintptr_t nothing(void) {
    return 0;
}

void *vp_torch_find(enum vp_torch_symbol symbol, const void *address) {
    void *ours = vp_door_table.torch[symbol];
    void *real = vp_caller_find(address, names[symbol], ours, NULL, "libc10_cuda.so");
    if (!real)
        real = vp_caller_find(address, names[symbol], ours, NULL, "libtorch_cuda.so");
    if (!real)
        real = nothing;
    atomic_store_explicit(&vp_torch_real[symbol], real, memory_order_relaxed);
    return real;
}

/* ---- does libc10_cuda.so go through the dynamic linker? ---- */

/* The ways in which it may bind a call, as the machine numbers them. */
#if defined(__x86_64__)
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOB_DAT = R_X86_64_GLOB_DAT };
#else
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOB_DAT = R_AARCH64_GLOB_DAT };
#endif

/* A loaded library, and its own tables. */
struct found {
    const char *file; /* the beginning of its name */
    char path[4096];
    uintptr_t base, begin, end; /* its code lies from the one to the other */
    const ElfW(Dyn) * dynamic;
};

static int match(struct dl_phdr_info *info, size_t size, void *data) {
    struct found *found = data;
    if (strncmp(basename(info->dlpi_name), found->file, strlen(found->file)) != 0 ||
        strlen(info->dlpi_name) >= sizeof(found->path))
        return 0;
    strcpy(found->path, info->dlpi_name);
    found->base = info->dlpi_addr;
    found->begin = UINTPTR_MAX;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_DYNAMIC)
            found->dynamic = (const void *)begin;
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        found->begin = begin < found->begin ? begin : found->begin;
        found->end = begin + part->p_memsz > found->end ? begin + part->p_memsz : found->end;
    }
    return 1;
}

static const void *table_of(const struct found *found, ElfW(Sxword) tag) {
    return vp_symbols_table(found->base, found->dynamic, tag);
}

static bool binds_in(const struct found *found, const ElfW(Rela) * entries, size_t bytes, const char *name) {
    const ElfW(Sym) *symbols = table_of(found, DT_SYMTAB);
    const char *strings = table_of(found, DT_STRTAB);
    for (size_t i = 0; entries && i < bytes / sizeof(*entries); i++) {
        unsigned how = ELF64_R_TYPE(entries[i].r_info);
        if ((how == JUMP_SLOT || how == GLOB_DAT) &&
            !strcmp(strings + symbols[ELF64_R_SYM(entries[i].r_info)].st_name, name))
            return true;
    }
    return false;
}

/* Does the dynamic linker bind its calls of that function? Not if it calls a function of its own right away. */
static bool binds(const struct found *found, const char *name) {
    return binds_in(found, table_of(found, DT_JMPREL), vp_symbols_value(found->dynamic, DT_PLTRELSZ), name) ||
           binds_in(found, table_of(found, DT_RELA), vp_symbols_value(found->dynamic, DT_RELASZ), name);
}

static bool tells(const struct found *found) {
    return binds(found, names[VP_TORCH_IS_CURRENT]) && binds(found, names[VP_TORCH_IS_STREAM]) &&
           binds(found, names[VP_TORCH_IS_REPORT]) && binds(found, "cudaMalloc") &&
           (binds(found, names[VP_TORCH_IS_ROUND]) || binds(found, names[VP_TORCH_IS_ROUND_CUDA]));
}

int vp_torch_learn(void) {
    static atomic_int outcome = -EAGAIN;
    struct found found = {.file = "libc10_cuda.so"};
    int so_far = atomic_load(&outcome);
    if (so_far != -EAGAIN || !dl_iterate_phdr(match, &found))
        return so_far;
    void *handle = vp_real_dlopen(found.path, RTLD_NOLOAD | RTLD_LAZY);
    if (!handle || !tells(&found) || !vp_torch_can_refuse(handle)) {
        atomic_store(&outcome, -ENOTSUP);
        return -ENOTSUP;
    }
    /* Several threads may come here at once, and find the same. */
    atomic_store(&vp_torch_code.begin, found.begin);
    atomic_store_explicit(&vp_torch_code.size, found.end - found.begin, memory_order_release);
    atomic_store(&outcome, 0);
    return 0;
}

/* Up to PyTorch 2.5 libc10_cuda.so reads its settings by libc. */
static bool is_older(const struct found *found) {
    return !binds(found, names[VP_TORCH_GET_ENV]) && !binds(found, names[VP_TORCH_GET_ENV_CXX11]) && !vp_torch_learn();
}

void vp_torch_listen(void) {
    struct found found = {.file = "libc10_cuda.so"};
    bool heard = vp_torch_real[VP_TORCH_GET_ENV] || vp_torch_real[VP_TORCH_GET_ENV_CXX11];
    if (!heard && dl_iterate_phdr(match, &found) && !is_older(&found))
        vp_log(VP_LOG_WARN,
               "PyTorch's cache keeps its memory to itself: this build, or what loaded it, binds its calls "
               "past libvpool.so (docs/pytorch.md)");
}

static int holds(struct dl_phdr_info *info, size_t size, void *address) {
    struct found found = {.file = ""};
    const char *name = basename(info->dlpi_name);
    return match(info, size, &found) && (uintptr_t)address - found.begin < found.end - found.begin &&
           (strstr(name, "c10_cuda") || strstr(name, "libtorch"));
}

bool vp_torch_holds(const void *address) {
    return dl_iterate_phdr(holds, (void *)address) != 0;
}

static bool has(unsigned symbol) {
    return vp_caller_find((const void *)atomic_load(&vp_torch_code.begin), names[symbol], vp_door_table.torch[symbol],
                          NULL, "libtorch_cuda.so") != NULL;
}

bool vp_torch_knows_pools(void) {
    bool pools = false;
    for (unsigned i = VP_TORCH_CAPTURES + 1; i < VP_TORCH_ERRORS; i++)
        pools |= has(i);
    return pools && has(VP_TORCH_POOLS) && has(VP_TORCH_CAPTURES);
}
