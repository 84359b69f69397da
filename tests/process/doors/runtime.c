/* The same through the runtime. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <stdlib.h>
#include <string.h>

static void look_at_primaries(void) {
    for (int i = 0; i < DEVICES; i++)
        look_at_primary(i);
}

/* A runtime call makes a context of its own where there is none. */
static bool enter(void) {
    CUcontext now = NULL;
    return !world.captures && cuCtxGetCurrent(&now) == 0 && (!now || current_context() >= 0);
}

static void alloc(void) {
    void *at = (void *)0x7777;
    size_t size = one_in(10) ? 0 : some_size(), pitch = 0;
    if (!enter() || free_block() < 0 || world.alive + size > world.most)
        return;
    int res, stream = LEGACY, pool = -1;
    enum kind kind = DEVICE;
    switch (below(4)) {
    case 0:
        res = CALL(cudaMallocPitch, &at, &pitch, size % 4096, 3);
        say(" pitch %zu", pitch);
        size = size % 4096 ? pitch * 3 : 0;
        break;
    case 1:
        kind = ASYNC;
        stream = pick_stream();
        pool = one_in(3) ? pick_pool() : -1;
        res = pool < 0 ? CALL(cudaMallocAsync, &at, size, handle_of(stream))
                       : CALL(cudaMallocFromPoolAsync, &at, size, world.pools[pool].handle, handle_of(stream));
        break;
    case 2:
        kind = MANAGED;
        res = CALL(cudaMallocManaged, &at, size, cudaMemAttachGlobal);
        break;
    default: res = CALL(cudaMalloc, &at, size);
    }
    look_at_primaries();
    if (res || !size) {
        say(" at %d", at == (void *)0x7777 ? 7 : at ? 1 : 0);
        return;
    }
    int context = context_of(stream);
    struct block *b = new_block(kind, (CUdeviceptr)(uintptr_t)at, size,
                                pool < 0 ? world.contexts[context].device : world.pools[pool].device,
                                kind == ASYNC ? stream : -1);
    b->pool = pool;
    if (kind == ASYNC && pool < 0)
        for (int i = 0; i < POOLS; i++)
            if (world.pools[i].alive && world.pools[i].current && world.pools[i].device == b->device)
                b->pool = i;
    if (may_touch(context, b) && CALL(cudaMemsetAsync, at, (int)below(256), size, handle_of(stream)) == 0) {
        b->known = true;
        used(b, stream);
    }
}

static void give(void) {
    int i = pick_block_of(1u << DEVICE | 1u << ASYNC | 1u << MANAGED), stream = pick_stream();
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    if (i < 0 || !enter() || b->graphs)
        return;
    say(" b%d", i);
    int res;
    if (one_in(2)) {
        if (!drained(b))
            return;
        res = CALL(cudaFree, (void *)(uintptr_t)b->at);
    } else {
        if (b->kind == MANAGED || !ordered(b, stream) || (b->kind == DEVICE && !drained(b)))
            return;
        res = CALL(cudaFreeAsync, (void *)(uintptr_t)b->at, handle_of(stream));
    }
    if (res == 0)
        forget_block(b);
    look_at_primaries();
}

static void set_device(void) {
    int device = 77;
    if (world.captures)
        return;
    CALL(cudaSetDevice, one_in(20) ? 5 : (int)below(DEVICES));
    CALL(cudaGetDevice, &device);
    say(" %d", device);
    look_at_primaries();
}

static void errors(void) {
    CALL(cudaPeekAtLastError);
    CALL(cudaGetLastError);
    CALL(cudaGetLastError);
}

static void attributes(void) {
    struct cudaPointerAttributes out;
    memset(&out, 0x77, sizeof(out));
    int i = pick_block();
    if (i < 0 || !enter())
        return;
    CUdeviceptr at = world.blocks[i].at + (one_in(2) ? 0 : below((unsigned)world.blocks[i].size));
    say_address(at);
    if (CALL(cudaPointerGetAttributes, &out, (void *)(uintptr_t)at) == 0) {
        say(" type %d device %d", (int)out.type, out.device);
        say_address((CUdeviceptr)(uintptr_t)out.devicePointer);
        say_address((CUdeviceptr)(uintptr_t)out.hostPointer);
    }
    look_at_primaries();
}

static void move(void) {
    unsigned form = below(4);
    int i = pick_block(), stream = form < 2 ? LEGACY : pick_stream();
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    if (i < 0 || !enter() || current_context() < 0 || !may_touch(context_of(stream), b) ||
        !may_copy(context_of(stream), b) || !ordered(b, stream))
        return;
    unsigned char *host = malloc(b->size);
    memset(host, 9, b->size);
    say(" b%d", i);
    void *at = (void *)(uintptr_t)b->at;
    int res;
    switch (form) {
    case 0: res = CALL(cudaMemset, at, 3, b->size); break;
    case 1: res = CALL(cudaMemcpy, at, host, b->size, cudaMemcpyHostToDevice); break;
    case 2: res = CALL(cudaMemcpyAsync, host, at, b->size, cudaMemcpyDefault, handle_of(stream)); break;
    default: res = CALL(cudaMemcpyAsync, at, host, b->size, cudaMemcpyDefault, handle_of(stream));
    }
    if (res == 0)
        used(b, stream);
    CALL(cudaStreamSynchronize, handle_of(stream));
    free(host);
}

static void reset(void) {
    if (world.captures || !one_in(4))
        return;
    for (int i = 0; i < GRAPHS; i++)
        if (world.graphs[i].taken)
            return;
    if (!drain_all())
        return;
    CALL(cudaDeviceReset);
    look_at_primaries();
}

const struct step runtime_steps[] = {
    {"rt_alloc", 6, alloc},           {"rt_free", 6, give}, {"rt_set_device", 2, set_device}, {"rt_errors", 2, errors},
    {"rt_attributes", 2, attributes}, {"rt_move", 2, move}, {"rt_reset", 1, reset},           {0},
};
