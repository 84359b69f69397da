/* Doors of the driver: contexts, modules loaded into them, and their peers. The pool must know when contexts begin and
 * end: a context may run work, which cudaFree must then wait for, before it ever allocates. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"

/* Ends the context `which` (NULL: one that we do not know), if CUDA confirms it and `ended` is true. */
#define VP_MAKE_ENDS(symbol, like, which, ended, ...)                                                                  \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        CUcontext context = vp_door_enter() ? which : NULL;                                                            \
        vp_api_context_destroying(context);                                                                            \
        CUresult res = VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                         \
        if (context)                                                                                                   \
            vp_api_context_destroyed(context, res == CUDA_SUCCESS && ended);                                           \
        vp_door_context_ends();                                                                                        \
        vp_door_leave();                                                                                               \
        return res;                                                                                                    \
    }

/* If `leaves`, the thread may have no context afterwards. */
#define VP_MAKE_LEAVES(symbol, like, leaves, ...)                                                                      \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        vp_door_enter();                                                                                               \
        CUresult res = VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                         \
        if (leaves)                                                                                                    \
            vp_door_leaves_context();                                                                                  \
        vp_door_leave();                                                                                               \
        return res;                                                                                                    \
    }

/* The program may make it current, and run work in it, with no stream of its own. */
static CUcontext of_green(CUgreenCtx green) {
    CUcontext context;
    return VP_REAL(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS ? context : NULL;
}

/* A release ends the primary context only if it was the last reference. Only the driver knows that, and only
 * afterwards. The query makes no context. */
static bool primary_ended(CUdevice device) {
    unsigned int flags;
    int active;
    return VP_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && !active;
}

static bool is_current(CUcontext context) {
    CUcontext current;
    return VP_REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current == context;
}

/* Ends the context if this was its last reference. Only the driver knows that: it then removes the context from the
 * thread. Only if that shows nothing is the context itself queried, which may no longer exist. Newer headers omit this
 * function, which newer drivers may lack. */
CUresult cuCtxDetach(CUcontext context) {
    unsigned int version;
    bool ours = vp_door_enter(), was_current = ours && is_current(context);
    if (ours)
        vp_api_context_destroying(context);
    CUresult res = VP_REAL(cuCtxDetach)(context);
    if (ours)
        vp_api_context_destroyed(context, res == CUDA_SUCCESS &&
                                              ((was_current && !is_current(context)) ||
                                               VP_REAL(cuCtxGetApiVersion)(context, &version) != CUDA_SUCCESS));
    vp_door_context_ends();
    vp_door_leave();
    return res;
}

/* CUDA leaves work in this context running, and nothing tells when it is over, while memory that it uses must not be
 * reused. So this end waits, as CUDA's does for other contexts, but not without limit, since the host may have to do
 * something first. A context that still works then is kept until the process ends, unnoticed by the program. */
CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    CUcontext context = vp_door_enter() ? of_green(green) : NULL;
    CUresult res = CUDA_SUCCESS;
    if (vp_api_green_is_over(context)) {
        vp_api_context_destroying(context);
        res = VP_REAL(cuGreenCtxDestroy)(green);
        vp_api_context_destroyed(context, res == CUDA_SUCCESS);
        vp_door_context_ends();
    }
    vp_door_leave();
    return res;
}

CUresult cuCtxSynchronize(void) {
    bool ours = vp_door_enter();
    CUresult res = VP_REAL(cuCtxSynchronize)();
    if (ours)
        res == CUDA_SUCCESS ? vp_api_synchronized(VP_WAITED_CONTEXT, NULL)
                            : vp_api_failed(VP_WAITED_CONTEXT, NULL, res);
    vp_door_leave();
    return res;
}

/* If the existing memory cannot be opened to the peer, revokes the access. */
static CUresult peer_enabled(CUcontext peer) {
    CUresult res = vp_api_peer_enabled(peer);
    if (res != CUDA_SUCCESS)
        VP_REAL(cuCtxDisablePeerAccess)(peer);
    return res;
}

VP_DOORS_CONTEXT(VP_MAKE)
VP_DOORS_MODULE(VP_MAKE)
