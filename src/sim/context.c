/* Contexts: primary, made, green; the thread's stack of them; peers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"

#include <stdlib.h>
#include <string.h>

#define SM_COUNT 132u /* streaming multiprocessors of the simulated device, for green contexts */

struct sim_context *sim_current(CUresult *why) {
    struct sim_context *context = sim_entered();
    if (!context)
        *why = CUDA_ERROR_INVALID_CONTEXT;
    else if (context->destroyed)
        *why = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    else
        return context;
    return NULL;
}

struct sim_context *sim_context_of(CUcontext handle, CUresult *why) {
    if (!handle)
        return sim_current(why);
    struct sim_context *context = sim_handle_get(SIM_CONTEXT, handle);
    if (!context)
        *why = CUDA_ERROR_INVALID_CONTEXT;
    else if (context->destroyed)
        *why = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    else
        return context;
    return NULL;
}

static void context_start(struct sim_context *context) {
    context->id = ++sim.next_id;
    context->destroyed = false;
    context->peers = 0;
    memset(context->peer_of, 0, sizeof(context->peer_of));
    context->legacy = sim_stream_new(context, SIM_STREAM_LEGACY, CU_STREAM_DEFAULT, 0);
}

static struct sim_context *context_new(int device, unsigned flags, bool primary, struct sim_context *parent) {
    struct sim_context *context = calloc(1, sizeof(*context));
    if (!context)
        abort();
    context->device = device;
    context->flags = flags;
    context->primary = primary;
    context->parent = parent;
    context->handle = sim_handle_new(SIM_CONTEXT, context);
    LIST_INSERT_HEAD(&sim.contexts, context, link);
    context_start(context);
    return context;
}

/* The context's streams, events and own allocations go; VMM memory and stream-ordered memory stay. The
 * structure stays too, marked, because other threads may have it on their stacks. */
/* What a green context has queued goes on, as an H200 showed; the end of any other waits for that. */
static void context_end(struct sim_context *context) {
    if (!context->green)
        sim_op_wait_put(sim_barrier_context(context));
    struct sim_context *other;
    struct sim_stream *stream, *next;
    for (stream = LIST_FIRST(&context->streams); stream; stream = next) {
        next = LIST_NEXT(stream, link);
        bool gone = stream->destroyed && stream->queued;
        if (!context->green)
            sim_queue_discard(stream);
        if (!gone)
            (context->green ? sim_stream_detach : sim_stream_drop)(stream);
    }
    context->legacy = NULL;
    while (!LIST_EMPTY(&context->events))
        sim_event_drop(LIST_FIRST(&context->events));
    while (!LIST_EMPTY(&context->blocks))
        sim_block_destroy(LIST_FIRST(&context->blocks));
    sim_code_end(context);
    LIST_FOREACH(other, &sim.contexts, link)
    if (other->peer_of[context->device] == context) {
        other->peer_of[context->device] = NULL;
        other->peers &= ~(1u << context->device);
    }
    if (!context->primary)
        sim_handle_free(SIM_CONTEXT, context->handle);
    if (context->green)
        sim_handle_free(SIM_GREEN, context->green);
    sim_op_put(context->awaits);
    context->awaits = NULL;
    context->destroyed = true;
}

void sim_contexts_reset(void) {
    struct sim_context *context;
    LIST_FOREACH(context, &sim.contexts, link)
    if (!context->destroyed)
        context_end(context);
    while ((context = LIST_FIRST(&sim.contexts)) != NULL) {
        LIST_REMOVE(context, link);
        free(context);
    }
}

/* ---- primary contexts ---- */

/* A primary context keeps its handle for good. After a reset it is as if destroyed, until somebody retains it
 * again: then every thread that had it current can go on. A reset leaves the count of references alone. */
static struct sim_context *primary_retain(CUdevice device) {
    struct sim_device *dev = &sim.devices[device];
    if (!dev->primary)
        dev->primary = context_new(device, dev->primary_flags, true, NULL);
    else if (dev->primary->destroyed)
        context_start(dev->primary);
    dev->primary_refs++;
    return dev->primary;
}

static void primary_end(struct sim_device *dev) {
    struct sim_context *context, *primary = dev->primary;
    if (!primary || primary->destroyed)
        return;
    LIST_FOREACH(context, &sim.contexts, link)
    if (context->parent == primary && !context->destroyed)
        context_end(context);
    context_end(primary);
}

SIM_API(0, 7000, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device)) {
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *context = primary_retain(device)->handle;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11000, cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device)) {
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_device *dev = &sim.devices[device];
    if (!dev->primary_refs)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--dev->primary_refs == 0)
        primary_end(dev);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11000, cuDevicePrimaryCtxReset_v2, (CUdevice device), (device)) {
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    primary_end(&sim.devices[device]);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 7000, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active),
        (device, flags, active)) {
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = sim.devices[device].primary_flags;
    const struct sim_context *primary = sim.devices[device].primary;
    *active = primary && !primary->destroyed;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11000, cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned int flags), (device, flags)) {
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim.devices[device].primary_flags = flags;
    if (sim.devices[device].primary)
        sim.devices[device].primary->flags = flags;
    return CUDA_SUCCESS;
}

/* ---- the thread's stack ---- */

/* Finds a context that has ended; NULL: there never was one with that handle. */
static struct sim_context *ended(CUcontext handle) {
    struct sim_context *context;
    LIST_FOREACH(context, &sim.contexts, link)
    if (context->handle == handle && context->destroyed)
        return context;
    return NULL;
}

/* A context that has ended can be entered, too, and the next call crashes in it. */
SIM_API(SIM_SURE, 4000, cuCtxPushCurrent_v2, (CUcontext handle), (handle)) {
    struct sim_context *context = handle ? sim_handle_get(SIM_CONTEXT, handle) : NULL;
    sim_cost(15);
    if (handle && !context)
        context = ended(handle);
    return context ? sim_enter_context(context) : handle ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pop(CUcontext *handle) {
    struct sim_context *context = sim_entered();
    sim_cost(14);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_leave_context();
    if (handle)
        *handle = context->handle;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 4000, cuCtxPopCurrent_v2, (CUcontext * handle), (handle)) {
    return pop(handle);
}

#undef cuCtxPopCurrent
SIM_API(SIM_SURE, 2000, cuCtxPopCurrent, (CUcontext * handle), (handle)) {
    return pop(handle);
}

SIM_API(SIM_SURE, 4000, cuCtxSetCurrent, (CUcontext handle), (handle)) {
    sim_cost(15);
    struct sim_context *context = handle ? sim_handle_get(SIM_CONTEXT, handle) : NULL;
    if (handle && !context)
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_leave_context();
    return context ? sim_enter_context(context) : CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 4000, cuCtxGetCurrent, (CUcontext * handle), (handle)) {
    sim_cost(8);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_context *context = sim_entered();
    *handle = context ? context->handle : NULL;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *handle, unsigned flags, CUdevice device) {
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_context *context = context_new(device, flags, false, NULL);
    *handle = context->handle;
    return sim_enter_context(context);
}

SIM_API(0, 3020, cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device), (context, flags, device)) {
    return create(context, flags, device);
}

/* Functions for old programs: the name without a version, and the one for OpenGL. */
#undef cuCtxCreate
SIM_API(0, 2000, cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device), (context, flags, device)) {
    return create(context, flags, device);
}

SIM_API(0, 3020, cuGLCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
        (context, flags, device)) {
    return create(context, flags, device);
}

SIM_API(0, 11040, cuCtxCreate_v3,
        (CUcontext * context, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device),
        (context, params, count, flags, device)) {
    (void)params;
    (void)count;
    return create(context, flags, device);
}

#if CUDA_VERSION >= 12050
SIM_API(0, 12050, cuCtxCreate_v4, (CUcontext * context, CUctxCreateParams *params, unsigned int flags, CUdevice device),
        (context, params, flags, device)) {
    (void)params;
    return create(context, flags, device);
}
#endif

SIM_API(SIM_SURE, 4000, cuCtxDestroy_v2, (CUcontext handle), (handle)) {
    struct sim_context *context = handle ? sim_handle_get(SIM_CONTEXT, handle) : NULL;
    if (!context || context->primary || context->parent)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_end(context);
    if (sim_entered() == context)
        sim_leave_context();
    return CUDA_SUCCESS;
}

/* The program's references to a context that it made, beside the first. */
SIM_API(0, 2000, cuCtxAttach, (CUcontext * handle, unsigned int flags), (handle, flags)) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    if (!context)
        return why;
    if (!handle || flags)
        return CUDA_ERROR_INVALID_VALUE;
    context->attached++;
    *handle = context->handle;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 2000, cuCtxDetach, (CUcontext handle), (handle)) {
    struct sim_context *context = handle ? sim_handle_get(SIM_CONTEXT, handle) : NULL;
    if (!context || context->parent || sim_entered() != context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->attached) {
        context->attached--;
        return CUDA_SUCCESS;
    }
    if (context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_end(context);
    sim_leave_context();
    return CUDA_SUCCESS;
}

/* The only function that also answers in a context that has ended. */
SIM_API(SIM_SURE, 2000, cuCtxGetDevice, (CUdevice * device), (device)) {
    struct sim_context *context = sim_entered();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 13000, cuCtxGetDevice_v2, (CUdevice * device, CUcontext handle), (device, handle)) {
    CUresult why;
    struct sim_context *context = sim_context_of(handle, &why);
    if (!context)
        return why;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 12000, cuCtxGetId, (CUcontext handle, unsigned long long *id), (handle, id)) {
    CUresult why;
    const struct sim_context *now = sim_entered();
    sim_cost(14);
    if (now && now->destroyed && now->handle == handle)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    const struct sim_context *context = sim_context_of(handle, &why);
    if (!context)
        return why;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = context->id;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 7000, cuCtxGetFlags, (unsigned int *flags), (flags)) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    if (!context)
        return why;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 12010, cuCtxSetFlags, (unsigned int flags), (flags)) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    if (!context)
        return why;
    context->flags = flags;
    return CUDA_SUCCESS;
}

/* This may be asked of any handle, also one that is invalid by now. */
SIM_API(SIM_SURE, 3020, cuCtxGetApiVersion, (CUcontext handle, unsigned int *version), (handle, version)) {
    CUresult why;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle && !sim_handle_is(SIM_CONTEXT, handle))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!sim_context_of(handle, &why))
        return why;
    *version = 3020;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 5050, cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest)) {
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 3010, cuCtxGetLimit, (size_t *value, CUlimit limit), (value, limit)) {
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    *value = limit == CU_LIMIT_STACK_SIZE ? 1024 : 8 << 20;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 3010, cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value)) {
    (void)limit;
    (void)value;
    return sim_capture_unsafe();
}

static CUresult synchronize(struct sim_context *context) {
    /* By the documentation, a synchronize that meets a capture invalidates it, in every mode. */
    if (sim_capture_in_context(context)) {
        sim_capture_invalidate_context(context);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    CUresult result = sim_op_wait_put(sim_barrier_context(context));
    sim_pools_settle(context->device, SIM_ALL_STREAMS);
    return result;
}

SIM_API(0, 2000, cuCtxSynchronize, (void), ()) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    return context ? synchronize(context) : why;
}

SIM_API(0, 13000, cuCtxSynchronize_v2, (CUcontext handle), (handle)) {
    CUresult why;
    struct sim_context *context = sim_context_of(handle, &why);
    return context ? synchronize(context) : why;
}

/* ---- peers ---- */

SIM_API(SIM_SURE, 4000, cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), (can, device, peer)) {
    if (!sim_device_ok(device) || !sim_device_ok(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    *can = device != peer && sim_device_reaches(device, peer);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 8000, cuDeviceGetP2PAttribute,
        (int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer),
        (value, attribute, device, peer)) {
    if (!sim_device_ok(device) || !sim_device_ok(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || device == peer)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK && sim_device_reaches(device, peer);
    return CUDA_SUCCESS;
}

static CUresult set_peer(CUcontext peer_handle, bool enable) {
    CUresult why;
    struct sim_context *context = sim_current(&why), *peer;
    if (!context)
        return why;
    peer = peer_handle ? sim_handle_get(SIM_CONTEXT, peer_handle) : NULL;
    if (!peer)
        return CUDA_ERROR_INVALID_CONTEXT;
    unsigned bit = 1u << peer->device;
    if (enable && (peer->device == context->device || !sim_device_reaches(context->device, peer->device)))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (enable == ((context->peers & bit) != 0))
        return enable ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers ^= bit;
    context->peer_of[peer->device] = enable ? peer : NULL;
    return CUDA_SUCCESS;
}

SIM_API(0, 4000, cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags), (peer, flags)) {
    return flags ? CUDA_ERROR_INVALID_VALUE : set_peer(peer, true);
}

SIM_API(SIM_SURE, 4000, cuCtxDisablePeerAccess, (CUcontext peer), (peer)) {
    return set_peer(peer, false);
}

/* ---- green contexts ---- */

#if CUDA_VERSION >= 12040
static struct sim_context *green_of(CUgreenCtx handle) {
    return handle ? sim_handle_get(SIM_GREEN, handle) : NULL;
}

SIM_API(SIM_SURE, 12040, cuDeviceGetDevResource, (CUdevice device, CUdevResource *resource, CUdevResourceType type),
        (device, resource, type)) {
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!resource || type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memset(resource, 0, sizeof(*resource));
    resource->type = type;
    resource->sm.smCount = SM_COUNT;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 12040, cuDevSmResourceSplitByCount,
        (CUdevResource * result, unsigned int *groups, const CUdevResource *input, CUdevResource *remaining,
         unsigned int flags, unsigned int minimum),
        (result, groups, input, remaining, flags, minimum)) {
    (void)flags;
    if (!groups || !input || !minimum)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned each = (minimum + 7) / 8 * 8, most = input->sm.smCount / each;
    if (!result) {
        *groups = most;
        return CUDA_SUCCESS;
    }
    if (*groups > most)
        *groups = most;
    for (unsigned i = 0; i < *groups; i++) {
        result[i] = *input;
        result[i].sm.smCount = each;
    }
    if (remaining) {
        *remaining = *input;
        remaining->sm.smCount = input->sm.smCount - *groups * each;
    }
    return CUDA_SUCCESS;
}

SIM_API(0, 12040, cuDevResourceGenerateDesc, (CUdevResourceDesc * desc, CUdevResource *resources, unsigned int count),
        (desc, resources, count)) {
    static char something;
    if (!desc || !resources || !count)
        return CUDA_ERROR_INVALID_VALUE;
    *desc = sim_handle_new(SIM_DESC, &something);
    return CUDA_SUCCESS;
}

SIM_API(0, 12040, cuGreenCtxCreate, (CUgreenCtx * green, CUdevResourceDesc desc, CUdevice device, unsigned int flags),
        (green, desc, device, flags)) {
    if (!green || !desc || !sim_handle_get(SIM_DESC, desc) || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_context *context = context_new(device, 0, false, primary_retain(device));
    *green = context->green = sim_handle_new(SIM_GREEN, context);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 12040, cuGreenCtxDestroy, (CUgreenCtx green), (green)) {
    struct sim_context *context = green_of(green);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_device *dev = &sim.devices[context->device];
    context_end(context);
    if (dev->primary == context->parent && --dev->primary_refs == 0)
        primary_end(dev);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 12040, cuCtxFromGreenCtx, (CUcontext * handle, CUgreenCtx green), (handle, green)) {
    struct sim_context *context = green_of(green);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = context->handle;
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12050
SIM_API(0, 12050, cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx green, unsigned int flags, int priority),
        (stream, green, flags, priority)) {
    struct sim_context *context = green_of(green);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!stream || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *stream = sim_stream_new(context, SIM_STREAM_PLAIN, flags, priority)->handle;
    return CUDA_SUCCESS;
}
#endif

SIM_API(0, 12040, cuGreenCtxRecordEvent, (CUgreenCtx green, CUevent event), (green, event)) {
    struct sim_context *context = green_of(green);
    return context ? sim_event_record_barrier(context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

SIM_API(SIM_SURE, 12040, cuStreamGetGreenCtx, (CUstream handle, CUgreenCtx *green), (handle, green)) {
    struct sim_stream *stream;
    CUresult result = sim_stream_of(handle, &stream);
    if (result == CUDA_SUCCESS)
        *green = stream->context->green;
    return result;
}
#endif
