/* Contexts, peers and memory pools. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <string.h>

/* Most often a thread has a context. */
static void set_current(void) {
    int c = pick_context();
    if (c < 0) {
        CUcontext handle;
        CALL(cuDevicePrimaryCtxRetain, &handle, 0);
        look_at_primary(0);
        c = 0;
    }
    say(" c%d", c);
    CALL(cuCtxSetCurrent, world.contexts[c].handle);
}

static void push_or_pop(void) {
    CUcontext was = NULL;
    int c = pick_context();
    if (one_in(2)) {
        say(" c%d", c);
        CALL(cuCtxPushCurrent, c < 0 || one_in(20) ? NULL : world.contexts[c].handle);
    } else if (CALL(cuCtxPopCurrent, one_in(4) ? NULL : &was) == 0) {
        say_context(was);
    }
    CUcontext now = NULL;
    CALL(cuCtxGetCurrent, &now);
    say_context(now);
    int device = 77;
    CALL(cuCtxGetDevice, &device);
    say(" %d", device);
}

static void create_context(void) {
    int at = -1, device = (int)below(DEVICES);
    for (int i = DEVICES; i < CONTEXTS && at < 0; i++)
        if (!world.contexts[i].alive)
            at = i;
    CUcontext handle = NULL;
    /* The next one may have the handle of one that was destroyed, and is current in a thread still. */
    if (at < 0 || world.captures || world.context_destroyed)
        return;
    if (CALL(cuCtxCreate_v4, &handle, NULL, 0, device) == 0) {
        world.contexts[at] = (struct context){.handle = handle, .device = device, .alive = true};
        say(" c%d", at);
    }
    CUcontext unused;
    if (one_in(2))
        CALL(cuCtxPopCurrent, &unused);
}

static void destroy_context(void) {
    int c = pick_context();
    if (c < DEVICES || graphs_about() || !drain_all())
        return;
    say(" c%d", c);
    if (CALL(cuCtxDestroy, world.contexts[c].handle) == 0) {
        forget_context(c);
        world.context_destroyed = true;
    }
}

static void primary(void) {
    int device = (int)below(DEVICES), active = 7;
    unsigned flags = 7;
    CUcontext handle = NULL;
    if (graphs_about() || !drain_all())
        return;
    say(" d%d", device);
    switch (below(12)) {
    case 0: CALL(cuDevicePrimaryCtxReset, device); break;
    case 1:
    case 2:
    case 3: CALL(cuDevicePrimaryCtxRelease, device); break;
    default:
        if (CALL(cuDevicePrimaryCtxRetain, &handle, device) == 0)
            say_context(handle);
    }
    CALL(cuDevicePrimaryCtxGetState, device, &flags, &active);
    say(" %d", active);
    look_at_primary(device);
}

static void set_peer(struct context *context, int device, int peer) {
    const unsigned bit = 1u << device;
    context->peers = peer < 0 ? context->peers & ~bit : context->peers | bit;
    context->peer_of[device] = peer;
}

static void peers(void) {
    int c = current_context(), other = pick_context(), can = 7;
    if (c < 0 || other < 0 || graphs_about() || !drain_all())
        return;
    struct context *context = &world.contexts[c];
    CALL(cuDeviceCanAccessPeer, &can, context->device, world.contexts[other].device);
    say(" %d c%d c%d", can, c, other);
    if (!one_in(3)) {
        if (CALL(cuCtxEnablePeerAccess, world.contexts[other].handle, one_in(20)) == 0)
            set_peer(context, world.contexts[other].device, other);
    } else if (CALL(cuCtxDisablePeerAccess, world.contexts[other].handle) == 0) {
        set_peer(context, world.contexts[other].device, -1);
    }
}

/* ---- memory pools ---- */

static void create_pool(void) {
    int at = -1;
    for (int i = DEVICES; i < POOLS; i++) {
        bool used = world.pools[i].alive;
        for (int b = 0; b < BLOCKS; b++)
            used = used || (world.blocks[b].kind == ASYNC && world.blocks[b].pool == i);
        if (!used)
            at = i;
    }
    CUmemPoolProps props = {.allocType = one_in(20) ? CU_MEM_ALLOCATION_TYPE_INVALID : CU_MEM_ALLOCATION_TYPE_PINNED};
    props.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)below(DEVICES + one_in(20))};
    if (one_in(6))
        props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (one_in(6))
        props.maxSize = (size_t)1 << (22 + below(4));
    if (one_in(6))
        props.usage = CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS;
    CUmemoryPool handle = NULL;
    if (at < 0)
        return;
    if (CALL(cuMemPoolCreate, &handle, &props) == 0) {
        world.pools[at] = (struct pool){handle, props.location.id, 1u << props.location.id, true, false};
        say(" p%d", at);
    }
}

static void destroy_pool(void) {
    int p = pick_pool();
    if (p < 0 || (p < DEVICES && !one_in(10)))
        return;
    say(" p%d", p);
    if (CALL(cuMemPoolDestroy, world.pools[p].handle) == 0) {
        if (world.pools[p].current)
            world.pools[world.pools[p].device].current = true;
        world.pools[p].alive = world.pools[p].current = false;
    }
}

static void current_pool(void) {
    int p = pick_pool(), device = (int)below(DEVICES);
    CUmemoryPool now = NULL, def = NULL;
    say(" p%d d%d", p, device);
    CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    int res = one_in(2) ? CALL(cuDeviceSetMemPool, device, world.pools[p].handle)
                        : CALL(cuMemSetMemPool, &place, CU_MEM_ALLOCATION_TYPE_PINNED, world.pools[p].handle);
    if (res == 0)
        for (int i = 0; i < POOLS; i++)
            if (world.pools[i].device == device)
                world.pools[i].current = i == p;
    CALL(cuDeviceGetMemPool, &now, device);
    CALL(cuDeviceGetDefaultMemPool, &def, device);
    for (int i = 0; i < POOLS; i++)
        if (world.pools[i].alive && (world.pools[i].handle == now || world.pools[i].handle == def))
            say(" p%d", i);
}

static void set_pool(void) {
    int p = pick_pool();
    cuuint64_t value = one_in(3) ? 0 : one_in(2) ? 1 : ~(cuuint64_t)0;
    CUmemPool_attribute which = (CUmemPool_attribute)(1 + below(9));
    say(" p%d %d %llu", p, (int)which, (unsigned long long)value);
    if (world.captures)
        return; /* CUDA refuses most of it, and ends the capture */
    if (one_in(4))
        CALL(cuMemPoolTrimTo, world.pools[p].handle, one_in(2) ? 0 : (size_t)below(1u << 24));
    else
        CALL(cuMemPoolSetAttribute, world.pools[p].handle, which, &value);
}

static void pool_access(void) {
    int p = pick_pool();
    int device = (int)below(DEVICES + one_in(20));
    bool on = !one_in(3);
    if (graphs_about() || !drain_all())
        return;
    CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              on ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
    say(" p%d d%d %d", p, device, on);
    if (CALL(cuMemPoolSetAccess, world.pools[p].handle, one_in(30) ? NULL : &access, 1) == 0) {
        unsigned bit = 1u << device;
        world.pools[p].access = on ? world.pools[p].access | bit : world.pools[p].access & ~bit;
    }
}

const struct step context_steps[] = {
    {"set_current", 10, set_current},
    {"push_or_pop", 3, push_or_pop},
    {"create_context", 1, create_context},
    {"destroy_context", 1, destroy_context},
    {"primary", 1, primary},
    {"peers", 2, peers},
    {"create_pool", 2, create_pool},
    {"destroy_pool", 1, destroy_pool},
    {"current_pool", 2, current_pool},
    {"set_pool", 3, set_pool},
    {"pool_access", 2, pool_access},
    {0},
};
