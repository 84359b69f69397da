/* Doors of the driver: contexts, what is loaded into them, and their peers, of which the pool must know when they begin
 * and end. A context may run work, and so must be waited for by a cudaFree, before it ever allocates. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"

/* Ends `which` (NULL: none that we know), if then CUDA says so and `ended` is true. */
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

/* Afterwards the thread may have no context, if `leaves`. */
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

/* A release ends the primary context only if it was the last one, which the driver alone can tell, and afterwards. To
 * ask makes no context. */
static bool primary_ended(CUdevice device) {
    unsigned int flags;
    int active;
    return VP_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && !active;
}

static bool is_current(CUcontext context) {
    CUcontext current;
    return VP_REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current == context;
}

/* Ends the context if it was the last reference, which the driver alone can tell: it takes one that ends away from the
 * thread. Only where that tells nothing is the context itself asked, which may be no more. The name of this function,
 * which newer drivers may lack, is left out of newer headers. */
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

/* CUDA leaves what is queued there running, and afterwards nothing tells when that is over: what it still uses must not
 * be given to others. So the end waits, as CUDA lets that of other contexts; but not for good, since the host may have
 * to do something first. A context that still works then stays as long as the process; the program need not know. */
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
        res == CUDA_SUCCESS ? vp_api_synchronized(VP_WAITED_CONTEXT, NULL) : vp_api_failed(res);
    vp_door_leave();
    return res;
}

/* If what there is cannot be opened to the peer, its access is taken back. */
static CUresult peer_enabled(CUcontext peer) {
    CUresult res = vp_api_peer_enabled(peer);
    if (res != CUDA_SUCCESS)
        VP_REAL(cuCtxDisablePeerAccess)(peer);
    return res;
}

VP_DOORS_CONTEXT(VP_MAKE)
VP_DOORS_MODULE(VP_MAKE)
