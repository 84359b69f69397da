/* Allocations and frees, of every kind and with wrong arguments. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <stdlib.h>
#include <string.h>

static const CUdeviceptr UNTOUCHED = 0x7777;

static bool room(size_t size) {
    int slot = free_block();
    return slot >= 0 && world.alive + size <= world.most;
}

/* While a stream captures, some calls are served that CUDA refuses: docs/limits.md says so. */
static bool differs_now(void) {
    return world.captures > 0;
}

/* Most calls at once would end the capture. */
static bool may_end_captures(void) {
    return !world.captures || one_in(6);
}

/* Most are written to at once, so that their contents are known. */
static void fill_new(struct block *b, int stream) {
    if (one_in(8) || !ordered(b, stream) || !may_touch(context_of(stream), b))
        return;
    int value = (int)below(256);
    if (CALLS(cuMemsetD8Async, b->at, (unsigned char)value, b->size, handle_of(stream)) == 0) {
        b->known = true;
        used(b, stream);
    }
}

static void alloc(void) {
    CUdeviceptr at = UNTOUCHED;
    size_t size = some_size();
    if (!room(size) || !may_end_captures())
        return;
    if (CALL(cuMemAlloc, &at, size) == 0)
        fill_new(new_block(DEVICE, at, size, current_device(), -1), LEGACY);
    else if (!world.captures) /* else nobody has asked a GPU */
        say(at == UNTOUCHED ? " untouched" : " touched");
}

static void alloc_wrong(void) {
    static const size_t sizes[] = {0, (size_t)1 << 44, (size_t)1 << 62, ~(size_t)0};
    CUdeviceptr at = UNTOUCHED;
    size_t pitch = 7, size = sizes[below(4)];
    int stream = pick_stream();
    if (differs_now())
        return;
    switch (below(6)) {
    case 0: CALL(cuMemAlloc, &at, size); break;
    case 1: CALL(cuMemAlloc, NULL, one_in(2) ? 0 : 512); break;
    case 2: CALL(cuMemAllocPitch, &at, &pitch, size, 2, 4); break;
    case 3: CALL(cuMemAllocPitch, one_in(2) ? &at : NULL, one_in(2) ? &pitch : NULL, 100, 0, one_in(2) ? 4 : 3); break;
    case 4: CALLS(cuMemAllocAsync, &at, size, handle_of(stream)); break;
    default: CALLS(cuMemAllocAsync, NULL, one_in(2) ? 0 : 512, handle_of(stream)); break;
    }
    say(" at %llx pitch %zu", (unsigned long long)at, pitch);
}

static void alloc_pitch(void) {
    CUdeviceptr at = UNTOUCHED;
    size_t pitch = 7, width = 1 + below(3000), height = 1 + below(200);
    unsigned element = 4u << below(3);
    if (!room((width + 1024) * height) || !may_end_captures())
        return;
    if (CALL(cuMemAllocPitch, &at, &pitch, width, height, element) == 0) {
        say(" pitch %zu", pitch);
        fill_new(new_block(DEVICE, at, pitch * height, current_device(), -1), LEGACY);
    } else if (!world.captures) {
        say(at == UNTOUCHED && pitch == 7 ? " untouched" : " touched");
    }
}

static int current_pool(int device) {
    for (int i = 0; i < POOLS; i++)
        if (world.pools[i].alive && world.pools[i].current && world.pools[i].device == device)
            return i;
    return -1;
}

static void alloc_async(void) {
    CUdeviceptr at = UNTOUCHED;
    size_t size = some_size();
    int stream = pick_stream(), pool = one_in(3) ? pick_pool() : -1, context = context_of(stream);
    if (!room(size) || capturing(stream) || !may_end_captures())
        return;
    int res = pool >= 0 ? CALLS(cuMemAllocFromPoolAsync, &at, size, world.pools[pool].handle, handle_of(stream))
                        : CALLS(cuMemAllocAsync, &at, size, handle_of(stream));
    if (res) {
        say(at == UNTOUCHED ? " untouched" : " touched");
        return;
    }
    int device = pool >= 0 ? world.pools[pool].device : world.contexts[context].device;
    struct block *b = new_block(ASYNC, at, size, device, stream);
    b->pool = pool >= 0 ? pool : current_pool(device);
    fill_new(b, stream);
}

static void alloc_managed(void) {
    CUdeviceptr at = UNTOUCHED;
    size_t size = some_size();
    if (!room(size) || !may_end_captures())
        return;
    unsigned flags = one_in(6) ? below(6) : CU_MEM_ATTACH_GLOBAL;
    if (CALL(cuMemAllocManaged, &at, size, flags) == 0)
        fill_new(new_block(MANAGED, at, size, current_device(), -1), LEGACY);
}

static void alloc_host(void) {
    void *at = NULL;
    size_t size = some_size();
    if (!room(size) || !may_end_captures())
        return;
    int res = one_in(2) ? CALL(cuMemHostAlloc, &at, size, below(9)) : CALL(cuMemAllocHost, &at, size);
    if (res == 0) {
        struct block *b = new_block(HOST, (CUdeviceptr)(uintptr_t)at, size, current_device(), -1);
        memset(at, (int)below(256), size);
        b->known = true;
    }
}

static void register_host(void) {
    size_t size = (1 + below(64)) * (size_t)4096;
    if (!room(size) || !may_end_captures())
        return;
    void *at = aligned_alloc(4096, size);
    memset(at, (int)below(256), size);
    if (CALL(cuMemHostRegister, at, size, below(3)) == 0) {
        new_block(REGISTERED, (CUdeviceptr)(uintptr_t)at, size, current_device(), -1)->known = true;
        say(" again:");
        CALL(cuMemHostRegister, at, size, 0);
    } else {
        free(at);
    }
}

/* Memory that the program maps itself. */
static void map(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    size_t granularity = 0;
    CUdeviceptr at = 0;
    int device = (int)below(DEVICES);
    prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    size_t size = granularity * (1 + below(3));
    CUmemGenericAllocationHandle handle;
    if (!granularity || !room(size))
        return;
    if (CALL(cuMemCreate, &handle, size, &prop, 0))
        return;
    if (CALL(cuMemAddressReserve, &at, size, 0, 0, 0) || CALL(cuMemMap, at, size, 0, handle, 0))
        abort();
    struct block *b = new_block(MAPPED, at, size, device, -1);
    b->handle = handle;
    for (int i = 0; i < DEVICES; i++) {
        CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        if ((i == device ? !one_in(8) : one_in(2)) && CALL(cuMemSetAccess, at, size, &access, 1) == 0)
            b->access |= 1u << i;
    }
    int c = current_context();
    if (c >= 0 && !world.captures && may_touch(c, b))
        fill_new(b, LEGACY);
}

static int unmap(struct block *b) {
    if (!drained(b))
        return 1;
    CALL(cuMemUnmap, b->at, b->size);
    CALL(cuMemRelease, b->handle);
    return CALL(cuMemAddressFree, b->at, b->size);
}

/* Whether another device's work was the last to use it, or another context's, if it is the host's: CUDA waits for the
 * block's own alone. */
static bool used_elsewhere(const struct block *b) {
    int c = b->last.stream > OWN ? world.streams[b->last.stream].context : b->last.context;
    if (b->last.stream == -1 || c < 0)
        return false;
    return b->kind == DEVICE ? world.contexts[c].device != b->device : c != b->context;
}

static int free_host(struct block *b) {
    void *at = (void *)(uintptr_t)b->at;
    if (b->kind == HOST)
        return CALL(cuMemFreeHost, at);
    return drained(b) ? CALL(cuMemHostUnregister, at) : 1;
}

static void free_any(void) {
    int i = pick_block(), stream = pick_stream();
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    if (i < 0 || b->graphs || current_has_ended())
        return;
    say(" b%d kind %d", i, (int)b->kind);
    int res;
    if (b->kind == HOST || b->kind == REGISTERED) {
        if (differs_now() || (used_elsewhere(b) && !drained(b)))
            return;
        res = free_host(b);
    } else if (b->kind == MAPPED) {
        if (differs_now())
            return;
        res = unmap(b);
    } else if (b->kind == MANAGED || (b->kind == DEVICE ? !one_in(3) : one_in(3))) {
        /* For stream-ordered memory CUDA waits for nothing here. */
        if (!may_end_captures() || ((b->kind == ASYNC || used_elsewhere(b)) && (world.captures || !drained(b))))
            return;
        res = CALL(cuMemFree, b->at);
    } else {
        if (!may_end_captures() || (b->kind == DEVICE && used_elsewhere(b) && (world.captures || !drained(b))) ||
            !ordered(b, stream))
            return;
        res = CALLS(cuMemFreeAsync, b->at, handle_of(stream));
    }
    if (res == 0)
        forget_block(b);
}

/* What is no block any more, or none at its beginning, is nobody's to free. */
static void free_wrong(void) {
    CUdeviceptr at = 0;
    int i = pick_block(), stream = pick_stream();
    if (differs_now())
        return;
    cudaGetLastError();
    if (one_in(2)) {
        at = world.stale[below(STALE)];
        if (graphs_about())
            return; /* their memory may be there */
        for (int j = 0; j < BLOCKS; j++)
            if (world.blocks[j].kind && at >= world.blocks[j].at && at - world.blocks[j].at < world.blocks[j].size) {
                say_loose();
                return;
            }
        say(" stale");
    } else if (i >= 0 && world.blocks[i].size > 1) {
        at = world.blocks[i].at + 1 + (one_in(2) ? 0 : below((unsigned)world.blocks[i].size - 1));
        say(" inside b%d", i);
    } else {
        at = one_in(2) ? 12345 : 0;
        say(" nothing");
    }
    switch (below(4)) {
    case 0: CALL(cuMemFree, at); break;
    case 1: CALLS(cuMemFreeAsync, at, handle_of(stream)); break;
    case 2: CALL(cuMemFreeHost, (void *)(uintptr_t)at); break;
    default:
        if (current_context() >= 0)
            CALL(cudaFree, (void *)(uintptr_t)at);
    }
    cudaGetLastError();
}

/* The calls of virtual memory management, on what was not made by them. */
static void map_wrong(void) {
    int i = pick_block_of(1u << DEVICE | 1u << ASYNC | 1u << MANAGED);
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = b->device},
                              one_in(2) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
    unsigned long long flags = 77;
    CUmemGenericAllocationHandle handle = 0;
    if (i < 0)
        return;
    say(" b%d kind %d", i, (int)b->kind);
    size_t size = one_in(2) ? b->size : (b->size + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1);
    switch (below(5)) {
    case 0: CALL(cuMemUnmap, b->at, size); break;
    case 1: CALL(cuMemSetAccess, b->at, size, &access, 1); break;
    case 2: CALL(cuMemGetAccess, &flags, &access.location, b->at); break;
    case 3: CALL(cuMemAddressFree, b->at, size); break;
    default: CALL(cuMemRetainAllocationHandle, &handle, (void *)(uintptr_t)b->at); break;
    }
    say(" flags %llu", flags);
}

const struct step memory_steps[] = {
    {"alloc", 12, alloc},
    {"alloc_wrong", 4, alloc_wrong},
    {"alloc_pitch", 3, alloc_pitch},
    {"alloc_async", 16, alloc_async},
    {"alloc_managed", 2, alloc_managed},
    {"alloc_host", 3, alloc_host},
    {"register", 2, register_host},
    {"map", 3, map},
    {"free", 26, free_any},
    {"free_wrong", 6, free_wrong},
    {"map_wrong", 2, map_wrong},
    {0},
};
