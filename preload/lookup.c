/* Makes every look-up of a CUDA function return our door. The result of a resolver (dlsym, cuGetProcAddress, the
 * runtime's) is replaced by its address, not by its name: only libcuda's own function is replaced by its door,
 * whichever variant the resolver chose. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "lookup.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include "callers.h"
#include "early.h"
#include "make.h"

void *vp_lookup_exchange(void *real) {
    for (size_t i = 0; i < VP_DOOR_COUNT; i++) {
        if (__atomic_load_n(&vp_real[i], __ATOMIC_RELAXED) == real)
            return vp_door_table.driver[i];
    }
    return real;
}

#define NAME(symbol, ...) #symbol,
static const char nccl_names[][32] = {VP_DOORS_NCCL(NAME)};
#undef NAME

/* What a program has looked up in a handle. It calls through a pointer then, often from code that depends on
 * no libnccl (Python's ctypes), so the handle was the only sign of which one it means. */
static _Atomic(void *) handed_out[VP_NCCL_COUNT];

void *vp_lookup_handed_out(enum vp_nccl_door door) {
    return atomic_load_explicit(&handed_out[door], memory_order_relaxed);
}

/* In a handle of NCCL's, or of another library that has its functions. */
static void *exchange_nccl(const char *name, void *real) {
    for (size_t i = 0; i < VP_NCCL_COUNT; i++) {
        void *first = NULL;
        if (!vp_early_equal(name, nccl_names[i]) || real == vp_door_table.nccl[i])
            continue;
        if (atomic_compare_exchange_strong(&handed_out[i], &first, real) || first == real)
            return vp_door_table.nccl[i];
        /* A second libnccl, which a door could not tell from the first, is let through, and the worst assumed. */
        vp_api_shares("a second NCCL library");
    }
    return real;
}

/* In a handle of libc: another interposer, say, that means to call the real function and would so pass us by. */
static void *exchange_libc(void *real) {
    void *const ours = real == (void *)vp_real_dlsym ? vp_door_table.dlsym : vp_door_table.dlvsym;
    return real == (void *)vp_real_dlsym || real == (void *)vp_real_dlvsym ? ours : real;
}

/* Would it be there without us? Not where the first definition is ours, and no library that has another is loaded. The
 * last look-up leaves its message in dlerror. */
static void *ask_anywhere(const void *handle, const char *name) {
    const char *library = name[0] == 'n' ? "libnccl.so" : name[2] == 'd' && name[3] == 'a' ? "libcudart" : "libcuda.so";
    void *first = vp_real_dlsym(RTLD_DEFAULT, name);
    if (!first || vp_object_at(first) != vp_object_at(&vp_door_table) ||
        vp_caller_find(NULL, name, first, NULL, handle ? NULL : library))
        return NULL;
    vp_real_dlsym(RTLD_NEXT, name);
    return VP_EARLY_NOTHING;
}

/* Finding libcuda leaves a state in dlerror, so it comes first: the program sees that of its own look-up. For
 * NULL libc repeats a failed look-up, with its message. */
void *vp_lookup_ask(void *handle, const char *name, const char *version) {
    if (vp_early_is_anywhere(handle))
        return ask_anywhere(handle, name);
    if (name[0] == 'c')
        vp_resolve();
    void *real = version ? vp_real_dlvsym(handle, name, version) : vp_real_dlsym(handle, name);
    if (!real)
        return NULL;
    return name[0] == 'c' ? vp_lookup_exchange(real) : name[0] == 'n' ? exchange_nccl(name, real) : exchange_libc(real);
}

VP_EARLY static void *given(void *answer) {
    return answer;
}

VP_EARLY void *vp_lookup_pass(unsigned index, uintptr_t *registers, const void *address) {
    const char *version = index ? (const char *)registers[2] : NULL;
    void *answer = vp_early_ask((void *)registers[0], (const char *)registers[1], version, vp_lookup_ask);
    if (!answer)
        return index ? (void *)vp_real_dlvsym : (void *)vp_real_dlsym;
    registers[0] = answer == VP_EARLY_NOTHING ? 0 : (uintptr_t)answer;
    return (void *)given;
}

#define VP_MAKE_RESOLVES(symbol, like, ...)                                                                            \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        vp_door_enter();                                                                                               \
        CUresult res = VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                         \
        vp_door_leave();                                                                                               \
        if (res == CUDA_SUCCESS && b)                                                                                  \
            *b = vp_lookup_exchange(*b);                                                                               \
        return res;                                                                                                    \
    }
VP_DOORS_RESOLVER(VP_MAKE)
