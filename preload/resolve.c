/* Finding the driver behind the doors, and leading every look-up of one of its functions to our door.
 *
 * The library links to no CUDA library and loads none: it takes the libcuda that the program has loaded, when
 * a door is first used or looked up. What a resolver (dlsym, cuGetProcAddress, the runtime's) returns is
 * exchanged by address, not by name: only libcuda's own function is replaced by our door for it, whatever
 * variant the resolver chose.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include "callers.h"
#include "doors.h"
#include "doors_nccl.h"
#include "early.h"
#include "load.h"

/* Stands in for each function that the driver lacks; its arguments do not matter. */
static CUresult not_found(void) {
    return CUDA_ERROR_NOT_FOUND;
}

void *vp_real[VP_REAL_COUNT] = {
#define NOT_FOUND(symbol, ...) [VP_DOOR_##symbol] = not_found,
    VP_DOORS_DRIVER(NOT_FOUND) VP_DOORS_ASK(NOT_FOUND)
#undef NOT_FOUND
};

#define NAME(symbol, ...) #symbol "\0"
static const char asked_names[] = VP_DOORS_ASK(NAME);
#undef NAME

static void *const doors[VP_DOOR_COUNT] = {
#define DOOR(symbol, ...) [VP_DOOR_##symbol] = symbol,
    VP_DOORS_DRIVER(DOOR)
#undef DOOR
};

_Thread_local unsigned vp_door_depth __attribute__((tls_model("initial-exec")));
_Thread_local const char *vp_door_outer __attribute__((tls_model("initial-exec")));
_Thread_local unsigned vp_door_current __attribute__((tls_model("initial-exec")));
unsigned vp_door_ends = 1;
_Thread_local struct vp_door_told vp_door_told __attribute__((tls_model("initial-exec")));

/*
 * dlopen's handle of the program's libcuda, never closed: our table points into it. NULL until vp_real is
 * complete.
 */
static _Atomic(void *) libcuda;

bool vp_resolve(void) {
    int saved_errno = errno;
    void *handle;

    if (atomic_load_explicit(&libcuda, memory_order_acquire))
        return true;
    if (!vp_real_dlsym)
        vp_early_find();
    handle = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (handle) {
        const char *name = vp_early_names;

        for (size_t i = 0; i < VP_REAL_COUNT; i++, name += strlen(name) + 1) {
            void *real;

            if (i == VP_DOOR_COUNT)
                name = asked_names;
            real = vp_real_dlsym(handle, name);
            if (real)
                __atomic_store_n(&vp_real[i], real, __ATOMIC_RELAXED);
        }
        atomic_store_explicit(&libcuda, handle, memory_order_release);
    }
    errno = saved_errno;
    return handle != NULL;
}

void *vp_resolve_exchange(void *real) {
    for (size_t i = 0; i < VP_DOOR_COUNT; i++) {
        if (__atomic_load_n(&vp_real[i], __ATOMIC_RELAXED) == real)
            return doors[i];
    }
    return real;
}

/*
 * In a handle of libc: another interposer, say, that means to call the real function and would so pass us by.
 */
static void *exchange_libc(void *real) {
    if (real == (void *)vp_real_dlsym)
        return dlsym;
    if (real == (void *)vp_real_dlvsym)
        return dlvsym;
    return real;
}

static bool is_own(const void *function) {
    Dl_info its, ours;

    return dladdr(function, &its) && dladdr(doors, &ours) && its.dli_fbase == ours.dli_fbase;
}

/*
 * Would it be there without us? Not where the first definition is ours, and no library that has another is loaded. The
 * last look-up leaves its message in dlerror.
 */
static void *ask_default(const char *name) {
    static const char *const libraries[] = {"libcuda.so", "libcudart.so", "libnccl.so"};
    const char *library = libraries[name[0] == 'n' ? 2 : name[2] == 'd' && name[3] == 'a' ? 1 : 0];
    void *first = vp_real_dlsym(RTLD_DEFAULT, name);

    if (!first || !is_own(first) || vp_caller_find(NULL, name, first, NULL, library))
        return NULL;
    vp_real_dlsym(RTLD_NEXT, name);
    return VP_EARLY_NOTHING;
}

/*
 * Finding libcuda leaves a state in dlerror, so it comes first: the program sees that of its own look-up. For
 * NULL the assembly repeats a failed look-up, with its message.
 */
void *vp_lookup_ask(void *handle, const char *name, const char *version) {
    void *real, *ours;

    if (handle == RTLD_DEFAULT)
        return ask_default(name);
    if (name[0] == 'c')
        vp_resolve();
    real = version ? vp_real_dlvsym(handle, name, version) : vp_real_dlsym(handle, name);
    if (!real)
        return NULL;
    if (name[0] == 'c')
        ours = vp_resolve_exchange(real);
    else if (name[0] == 'n')
        ours = vp_nccl_exchange(name, real);
    else
        ours = exchange_libc(real);
    return ours;
}

/* For vp_api_open(): any function of libcuda, real also where there is a door for it. */
static void *lookup(const char *symbol, void *handle) {
    return vp_real_dlsym(handle, symbol);
}

bool vp_door_open(void) {
    static atomic_bool opened;

    if (!vp_resolve())
        return false;
    if (!atomic_load_explicit(&opened, memory_order_relaxed) && !atomic_exchange(&opened, true)) {
        if (vp_api_open(lookup, atomic_load_explicit(&libcuda, memory_order_relaxed)) == 0)
            vp_life_opened();
    }
    return vp_api_ready();
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    CUresult res;

    vp_door_enter();
    res = VP_REAL(cuGetProcAddress)(symbol, function, version, flags);
    vp_door_leave();
    if (res == CUDA_SUCCESS && function)
        *function = vp_resolve_exchange(*function);
    return res;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    CUresult res;

    vp_door_enter();
    res = VP_REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
    vp_door_leave();
    if (res == CUDA_SUCCESS && function)
        *function = vp_resolve_exchange(*function);
    return res;
}

bool vp_door_look_current(void) {
    unsigned ends = __atomic_load_n(&vp_door_ends, __ATOMIC_RELAXED);
    CUcontext context = NULL;

    if (VP_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context)
        return false;
    vp_door_current = ends;
    return true;
}
