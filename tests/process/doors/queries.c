/* Questions about memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <string.h>
#include <unistd.h>

/* What it says of an attribute's value: not what depends on where memory lies, or what counts something. */
static void say_attribute(CUpointer_attribute which, const void *value) {
    unsigned long long number = 0;
    memcpy(&number, value, 8);
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: say_context((CUcontext)(uintptr_t)number); break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: say_address(number); break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: /* once set, it may be said of later blocks there, too */
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: break; /* by what lies beside it: docs/sharing.md */
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        for (int i = 0; i < POOLS; i++)
            if (number && world.pools[i].handle == (CUmemoryPool)(uintptr_t)number)
                say(" p%d", i);
        say(number ? " pool" : " no pool");
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: say(" %llu", number); break;
    default: say(" %u", (unsigned)number);
    }
}

static CUdeviceptr asked(void) {
    int i = pick_block();
    if (one_in(6)) {
        CUdeviceptr at = world.stale[below(STALE)];
        /* What is freed in a stream's order is there until the stream has come to that. */
        if (!drain_all() || graphs_about()) /* or a graph's memory may be there */
            say_loose();
        for (int j = 0; j < BLOCKS; j++)
            if (world.blocks[j].kind && at >= world.blocks[j].at && at - world.blocks[j].at < world.blocks[j].size)
                say_loose();
        say(" stale");
        return at;
    }
    if (i < 0 || one_in(20)) {
        say(" nothing");
        return one_in(2) ? 0 : 12345;
    }
    CUdeviceptr at = world.blocks[i].at + (one_in(2) ? 0 : below((unsigned)world.blocks[i].size));
    say_address(at);
    say(" kind %d", (int)world.blocks[i].kind);
    return at;
}

static void attribute(void) {
    CUdeviceptr at = asked();
    for (unsigned n = 1 + below(4); n; n--) {
        unsigned char value[16];
        memset(value, 0x77, sizeof(value));
        CUpointer_attribute which = (CUpointer_attribute)(one_in(20) ? below(40) : 1 + below(20));
        say(" %d", (int)which);
        if (CALL(cuPointerGetAttribute, one_in(50) ? NULL : value, which, at) == 0)
            say_attribute(which, value);
        else
            say(value[0] == 0x77 ? " untouched" : " touched");
    }
}

static void attributes(void) {
    CUdeviceptr at = asked();
    CUpointer_attribute which[6];
    unsigned char values[6][16];
    void *data[6];
    unsigned n = below(7);
    memset(values, 0x77, sizeof(values));
    for (unsigned i = 0; i < 6; i++) {
        which[i] = (CUpointer_attribute)(1 + below(19));
        data[i] = values[i];
    }
    for (unsigned i = 0; i < n; i++)
        say("%s%d", i ? "," : " ", (int)which[i]);
    if (CALL(cuPointerGetAttributes, n, which, data, at) == 0)
        for (unsigned i = 0; i < n; i++) {
            say(" %d", (int)which[i]);
            say_attribute(which[i], values[i]);
        }
}

static void range(void) {
    CUdeviceptr at = asked(), base = 0x7777;
    size_t size = 7;
    bool b = !one_in(4), s = !one_in(4);
    if (CALL(cuMemGetAddressRange, b ? &base : NULL, s ? &size : NULL, at) == 0 && b)
        say_address(base);
    say(" %zu", size);
}

static void info(void) {
    size_t unused = 7, total = 7;
    if (CALL(cuMemGetInfo, one_in(4) ? NULL : &unused, one_in(4) ? NULL : &total) == 0)
        say(total == 7 ? "" : unused == 7 || unused <= total ? " fits" : " more free than there is");
}

static void ipc(void) {
    CUipcMemHandle handle;
    int i = pick_block_of(1u << DEVICE | 1u << ASYNC | 1u << MAPPED | 1u << MANAGED | 1u << HOST);
    if (i < 0)
        return;
    struct block *b = &world.blocks[i];
    /* What lies beside other memory cannot be shared alone. */
    if (b->kind == DEVICE)
        say_loose();
    say(" b%d kind %d", i, (int)b->kind);
    CALL(cuIpcGetMemHandle, one_in(20) ? NULL : &handle, b->at + (one_in(4) ? 1 : 0));
}

static void set_attribute(void) {
    unsigned on = below(2);
    int i = pick_block();
    if (i < 0 || (world.captures && !one_in(6)) || current_has_ended())
        return;
    struct block *b = &world.blocks[i];
    CUpointer_attribute which = one_in(4) ? (CUpointer_attribute)below(10) : CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    say(" b%d kind %d, %d to %u", i, (int)b->kind, (int)which, on);
    CALL(cuPointerSetAttribute, &on, which, b->at);
}

static void host_questions(void) {
    int i = pick_block();
    if (i < 0)
        return;
    CUdeviceptr device = 0;
    unsigned flags = 77;
    void *at = (void *)(uintptr_t)(world.blocks[i].at + (one_in(2) ? 0 : below((unsigned)world.blocks[i].size)));
    say(" b%d kind %d", i, (int)world.blocks[i].kind);
    if (CALL(cuMemHostGetDevicePointer, &device, at, one_in(10)) == 0)
        say_address(device);
    CALL(cuMemHostGetFlags, &flags, at);
    say(" %u", flags);
}

/* What of a block may be handed to others. */
static void exported(void) {
    CUmemPoolPtrExportData data;
    int fd = -1, i = pick_block_of(1u << DEVICE | 1u << ASYNC | 1u << MAPPED | 1u << HOST);
    if (i < 0)
        return;
    const struct block *b = &world.blocks[i];
    say(" b%d kind %d", i, (int)b->kind);
    CALL(cuMemPoolExportPointer, &data, b->at);
    /* Whole pages, which a block may have others beside it in; what may be spilled is not exported (docs/spilling.md).
     */
    if (b->at % 4096 == 0 && b->size % 4096 == 0 && b->size < 1 << 20)
        CALL(cuMemGetHandleForAddressRange, &fd, b->at, b->size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    else
        say_loose();
    if (fd >= 0)
        close(fd);
}

static void pool_questions(void) {
    int p = pick_pool();
    if (p < 0 || (world.captures && !one_in(6)))
        return;
    cuuint64_t value = 0;
    CUmemPool_attribute which = (CUmemPool_attribute)(1 + below(9));
    /* What is reserved is the allocator's own affair. */
    bool own = which == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
               which == CU_MEMPOOL_ATTR_USED_MEM_CURRENT || which == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    say(" p%d %d", p, (int)which);
    if (CALL(cuMemPoolGetAttribute, world.pools[p].handle, which, &value) == 0 && !own)
        say(" %llu", (unsigned long long)value);
    CUmemAccess_flags flags = 0;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)below(DEVICES)};
    CALL(cuMemPoolGetAccess, &flags, world.pools[p].handle, &location);
    say(" access %d", (int)flags);
}

const struct step query_steps[] = {
    {"attribute", 10, attribute},
    {"attributes", 5, attributes},
    {"range", 5, range},
    {"info", 2, info},
    {"exported", 1, exported},
    {"ipc", 2, ipc},
    {"set_attribute", 1, set_attribute},
    {"host", 2, host_questions},
    {"pool_questions", 3, pool_questions},
    {0},
};
