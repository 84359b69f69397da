/* Green contexts, and pools of memory that is not a device's alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

enum { TAKEN = 4 };

static void look_at(CUdeviceptr at, size_t size) {
    CUmemorytype type = (CUmemorytype)77;
    CUdeviceptr base = 0;
    unsigned managed = 77;
    size_t bytes = 0;
    unsigned char byte = 0;
    CALL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    CALL(cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    CALL(cuMemGetAddressRange, &base, &bytes, at + size / 2);
    CALL(cuMemcpyDtoH, &byte, at + size - 1, 1);
    say(" %d %u %d %d %d", type, managed, base == at, bytes == size, byte);
}

/* Perhaps twice: then it is an error. */
static void give_back(CUdeviceptr at, CUstream stream) {
    if (one_in(3))
        CALL(cuMemFree, at);
    else
        CALLS(cuMemFreeAsync, at, stream);
    if (one_in(4))
        CALLS(cuMemFreeAsync, at, stream);
}

/* ---- green contexts ---- */

struct green {
    CUgreenCtx green;
    CUcontext context;
    CUstream streams[2];
    CUdeviceptr at[TAKEN];
    size_t size[TAKEN];
};

static bool make(struct green *g, int device) {
    CUdevResource all, part;
    CUdevResourceDesc desc = NULL;
    unsigned groups = 1;
    if (CALL(cuDeviceGetDevResource, device, &all, CU_DEV_RESOURCE_TYPE_SM) ||
        CALL(cuDevSmResourceSplitByCount, &part, &groups, &all, NULL, 0, 8) ||
        CALL(cuDevResourceGenerateDesc, &desc, &part, 1) ||
        CALL(cuGreenCtxCreate, &g->green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM))
        return false;
    CALL(cuCtxFromGreenCtx, &g->context, g->green);
    for (int i = 0; i < 2; i++)
        CALL(cuGreenCtxStreamCreate, &g->streams[i], g->green, CU_STREAM_NON_BLOCKING, 0);
    return g->streams[0] && g->streams[1];
}

/* On its streams, or in it without any. */
static void take_some(struct green *g) {
    CUcontext unused;
    for (int i = 0; i < TAKEN; i++) {
        g->size[i] = some_size() % (1 << 20) + 1;
        CUstream stream = g->streams[i % 2];
        if (one_in(4)) {
            CALL(cuCtxPushCurrent, g->context);
            if (one_in(2) || CALL(cuMemAlloc, &g->at[i], g->size[i]))
                CALLS(cuMemAllocAsync, &g->at[i], g->size[i], stream);
            CALL(cuCtxPopCurrent, &unused);
        } else {
            CALLS(cuMemAllocAsync, &g->at[i], g->size[i], stream);
        }
        if (g->at[i])
            CALLS(cuMemsetD8Async, g->at[i], (unsigned char)(i + 1), g->size[i], stream);
    }
}

static void give_some_back(struct green *g, CUstream other) {
    for (int i = 0; i < TAKEN; i++) {
        if (!g->at[i] || one_in(2))
            continue;
        give_back(g->at[i], one_in(4) ? other : g->streams[i % 2]);
        g->at[i] = 0;
    }
}

/* Memory of its streams outlives it. */
static void green(void) {
    struct green g = {0};
    const int c = current_context(), device = current_device(), s = pick_made_stream();
    if (c < 0 || current_has_ended() || !drain_all() || world.alive + TAKEN * (1 << 20) > world.most)
        return;
    const CUstream other = s >= 0 && context_of(s) == c ? world.streams[s].handle : CU_STREAM_PER_THREAD;
    if (make(&g, device)) {
        take_some(&g);
        if (one_in(2))
            CALL(cuCtxSynchronize_v2, g.context);
        else
            CALL(cuStreamSynchronize, g.streams[0]), CALL(cuStreamSynchronize, g.streams[1]);
        for (int i = 0; i < TAKEN; i++)
            if (g.at[i] && one_in(2))
                look_at(g.at[i], g.size[i]);
        give_some_back(&g, other);
        if (one_in(2))
            for (int i = 0; i < 2; i++)
                CALL(cuStreamDestroy, g.streams[i]);
    }
    if (g.green)
        CALL(cuGreenCtxDestroy, g.green);
    for (int i = 0; i < TAKEN; i++) {
        CUdeviceptr base = 0;
        size_t size = 0;
        if (!g.at[i])
            continue;
        /* What it has got by cuMemAlloc has gone with it. */
        if (CALL(cuMemGetAddressRange, &base, &size, g.at[i]) == 0 && base == g.at[i])
            look_at(g.at[i], g.size[i]), give_back(g.at[i], other);
    }
    if (c >= 0)
        CALL(cuCtxSynchronize);
    look_at_primary(device);
}

/* ---- pools elsewhere ---- */

static const struct {
    CUmemAllocationType type;
    CUmemLocationType place;
} elsewhere[] = {
    {CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST},
    {CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST_NUMA},
    {CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_NONE},
    {CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE},
    {CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_HOST},
};

static void copy_between(CUdeviceptr at, size_t size, CUstream stream) {
    const int i = pick_block_of(1u << DEVICE | 1u << ASYNC), device = current_device();
    if (i < 0 || world.blocks[i].device != device || !drained(&world.blocks[i]) || world.blocks[i].size < size)
        return;
    say(" b%d", i);
    CALLS(cuMemcpyAsync, at, world.blocks[i].at, size, stream);
    CALLS(cuStreamSynchronize, stream);
    if (world.blocks[i].known)
        look_at(at, size);
}

/* They are CUDA's whole, and so is what they hand out, beside what the device's pools do. */
static void placed_pool(void) {
    const unsigned kind = below(sizeof(elsewhere) / sizeof(elsewhere[0]));
    const int device = current_device();
    CUmemPoolProps props = {.allocType = elsewhere[kind].type, .location = {.type = elsewhere[kind].place}};
    CUmemoryPool pool = NULL, now = NULL;
    CUdeviceptr at[TAKEN] = {0};
    const size_t size = some_size() % (1 << 20) + 1;
    if (device < 0 || world.captures || current_has_ended())
        return;
    if (props.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        props.location.id = device;
    CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (CALL(cuMemPoolCreate, &pool, &props))
        return;
    if (one_in(2))
        CALL(cuDeviceSetMemPool, device, pool);
    if (one_in(2) && CALL(cuMemSetMemPool, &props.location, props.allocType, pool) == 0 &&
        CALL(cuMemGetMemPool, &now, &props.location, props.allocType) == 0)
        say(" %d", now == pool);
    if (CALL(cuMemPoolSetAccess, pool, &access, 1) == 0)
        for (int i = 0; i < TAKEN; i++)
            if (CALLS(cuMemAllocFromPoolAsync, &at[i], size, pool, CU_STREAM_PER_THREAD) == 0) {
                CALLS(cuMemsetD8Async, at[i], (unsigned char)(i + 5), size, CU_STREAM_PER_THREAD);
                CALLS(cuStreamSynchronize, CU_STREAM_PER_THREAD);
                look_at(at[i], size);
                copy_between(at[i], size, CU_STREAM_PER_THREAD);
            }
    const bool ends = one_in(2);
    if (ends)
        CALL(cuMemPoolDestroy, pool);
    for (int i = 0; i < TAKEN; i++)
        if (at[i])
            give_back(at[i], CU_STREAM_PER_THREAD);
    CALLS(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    if (!ends)
        CALL(cuMemPoolDestroy, pool);
}

const struct step apart_steps[] = {
    {"green", 4, green},
    {"placed_pool", 2, placed_pool},
    {0},
};
