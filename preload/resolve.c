/* Finds the driver behind the doors. The library neither links to a CUDA library nor loads one: it uses the libcuda
 * that the program has loaded, when a door is first used or looked up. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include "doors.h"
#include "early.h"
#include "load.h"

/* Stands in for every function that the driver lacks; its arguments do not matter. */
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

_Thread_local unsigned vp_door_depth __attribute__((tls_model("initial-exec")));
_Thread_local const char *vp_door_outer __attribute__((tls_model("initial-exec")));
_Thread_local unsigned vp_door_current __attribute__((tls_model("initial-exec")));
unsigned vp_door_ends = 1;
_Thread_local struct vp_door_told vp_door_told __attribute__((tls_model("initial-exec")));

/* dlopen's handle of the program's libcuda, never closed: our table points into it. NULL until vp_real is complete. */
static _Atomic(void *) libcuda;

bool vp_resolve(void) {
    int saved_errno = errno;
    if (atomic_load_explicit(&libcuda, memory_order_acquire))
        return true;
    if (!vp_real_dlsym)
        vp_early_find();
    void *handle = vp_real_dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (handle) {
        const char *name = vp_early_names;
        for (size_t i = 0; i < VP_REAL_COUNT; i++, name += strlen(name) + 1) {
            if (i == VP_DOOR_COUNT)
                name = asked_names;
            if (i < VP_DOOR_COUNT && !vp_door_begins[i])
                memcpy(&vp_door_begins[i], vp_door_table.driver[i], sizeof *vp_door_begins);
            void *real = vp_real_dlsym(handle, name);
            if (real)
                __atomic_store_n(&vp_real[i], real, __ATOMIC_RELAXED);
        }
        atomic_store_explicit(&libcuda, handle, memory_order_release);
    }
    errno = saved_errno;
    return handle != NULL;
}

/* For vp_api_open(): any function of libcuda, real also where there is a door for it. */
static void *lookup(const char *symbol, void *handle) {
    return vp_real_dlsym(handle, symbol);
}

bool vp_door_open(void) {
    static atomic_bool opened;
    int cancel;
    if (!vp_resolve() || vp_load_aside)
        return false;
    if (!atomic_load_explicit(&opened, memory_order_relaxed)) {
        /* What is said on the way is a point of cancellation, and partly said with the library's lock held. Whoever
         * comes meanwhile waits: what goes by unseen, a context or a stream, is not asked before memory is reused. */
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
        int err = vp_api_open(lookup, atomic_load_explicit(&libcuda, memory_order_relaxed));
        if (err != -EALREADY && !atomic_exchange(&opened, true) && !err)
            vp_load_opened();
        pthread_setcancelstate(cancel, NULL);
    }
    return vp_api_ready();
}

bool vp_door_look_current(void) {
    unsigned ends = __atomic_load_n(&vp_door_ends, __ATOMIC_RELAXED);
    CUcontext context = NULL;
    if (VP_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context)
        return false;
    vp_door_current = ends;
    return true;
}
