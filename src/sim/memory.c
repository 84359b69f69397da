/* Native memory: device, managed and host allocations, and who may access them.
 *
 * Each block has its own address space, a power of two in size. The space of a freed block is kept, without memory, for
 * the next block of that size: so a late access to freed memory is recognised instead of hitting the host's own memory.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory.h"
#include "pools.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (1024.0 * 1024.0)
#define PITCH 512u

struct grave {
    struct sim_range range;
    SLIST_ENTRY(grave) next;
};

static SLIST_HEAD(, grave) graves[64]; /* grave.next, by log2 of the size */

/* ---- address space ---- */

static unsigned class_of(size_t bytes) {
    unsigned class = 12;
    while (((size_t)1 << class) < bytes)
        class ++;
    return class;
}

static uintptr_t space_take(size_t bytes, size_t *space) {
    unsigned class = class_of(bytes);
    struct grave *grave = SLIST_FIRST(&graves[class]);
    *space = (size_t)1 << class;
    if (!grave)
        return sim_space_reserve(*space, 4096, 0);
    uintptr_t at = grave->range.start;
    SLIST_REMOVE_HEAD(&graves[class], next);
    sim_range_remove(&sim.graves, &grave->range);
    free(grave);
    return at;
}

static void space_give(uintptr_t at, size_t space) {
    /* A fresh mapping drops the old contents: the next owner reads zeroes, as on a GPU. */
    mmap((void *)at, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    struct grave *grave = calloc(1, sizeof(*grave));
    if (!grave)
        abort();
    grave->range = (struct sim_range){at, at + space};
    SLIST_INSERT_HEAD(&graves[class_of(space)], grave, next);
    sim_range_insert(&sim.graves, &grave->range);
}

/* ---- blocks ---- */

struct sim_block *sim_block_find(uintptr_t address) {
    return sim_range_find(&sim.blocks, address, address + 1);
}

/* Returns the physical size of a block: small blocks share pages, larger ones have whole pages. */
size_t sim_block_phys(size_t bytes) {
    size_t unit = bytes < sim.options.granularity ? 512 : sim.options.granularity;
    return (bytes + unit - 1) / unit * unit;
}

static bool on_device(enum sim_block_kind kind) {
    return kind <= SIM_BLOCK_MANAGED;
}

static size_t unused_of(int device) {
    const size_t taken = sim.devices[device].used + sim_ledger_others(device);
    return taken < sim_capacity(device) ? sim_capacity(device) - taken : 0;
}

/* The real driver moves managed memory to the host to make room for memory that cannot move, but only if that is enough
 * (by the source of its kernel module). */
bool sim_managed_leave(int device, size_t bytes) {
    size_t there = unused_of(device);
    struct sim_context *context;
    struct sim_block *block;
    for (int leave = 0; leave < 2 && sim.options.managed_moves; leave++) {
        if (leave && there < bytes)
            return false;
        LIST_FOREACH(context, &sim.contexts, link)
        LIST_FOREACH(block, &context->blocks, link)
        if (block->kind == SIM_BLOCK_MANAGED && block->device == device) {
            there += block->phys;
            if (leave)
                sim_phys_give(device, block->phys);
            block->phys = leave ? 0 : block->phys;
        }
    }
    return sim.options.managed_moves;
}

CUresult sim_block_new(enum sim_block_kind kind, struct sim_context *context, int device, size_t bytes,
                       struct sim_block **out) {
    size_t phys = on_device(kind) ? sim_block_phys(bytes) : 0, space;
    if (kind == SIM_BLOCK_MANAGED && sim.options.managed_moves && phys > unused_of(device))
        phys = 0;
    if (bytes > (size_t)1 << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (kind == SIM_BLOCK_GRAPH)
        sim_graph_memory_trim(device, phys);
    if (!sim_phys_take(device, phys)) {
        const bool late = sim_graph_memory_trim(device, SIZE_MAX) && kind == SIM_BLOCK_POOL;
        sim_pools_trim(device);
        if (late || !sim_phys_take(device, phys))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uintptr_t at = space_take(bytes, &space);
    struct sim_block *block = at ? calloc(1, sizeof(*block)) : NULL;
    bool backed = kind >= SIM_BLOCK_MANAGED || !sim.options.ledger;
    if (!block || (backed && mprotect((void *)at, space, PROT_READ | PROT_WRITE) < 0)) {
        free(block);
        if (at)
            space_give(at, space);
        sim_phys_give(device, phys);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->range = (struct sim_range){at, at + bytes};
    block->kind = kind;
    block->device = device;
    block->space = space;
    block->phys = phys;
    block->id = ++sim.next_id;
    block->context = context;
    if (context) {
        LIST_INSERT_HEAD(&context->blocks, block, link);
        block->on_list = true;
    }
    sim_range_insert(&sim.blocks, &block->range);
    *out = block;
    return CUDA_SUCCESS;
}

void sim_block_destroy(struct sim_block *block) {
    sim_check_unused(block->range.start, block->range.end, "free");
    sim_range_remove(&sim.blocks, &block->range);
    if (block->on_list)
        LIST_REMOVE(block, link);
    if (block->space)
        space_give(block->range.start, block->space);
    if (block->phys && block->kind == SIM_BLOCK_GRAPH)
        sim.devices[block->device].of_graphs += block->phys;
    else if (block->phys)
        sim_phys_give(block->device, block->phys);
    sim_op_put(block->born);
    free(block);
}

void sim_blocks_reset(void) {
    struct sim_block *block;
    struct grave *grave;
    while ((block = sim_range_any(&sim.blocks)) != NULL)
        sim_block_destroy(block);
    while ((grave = sim_range_any(&sim.graves)) != NULL) {
        munmap((void *)grave->range.start, grave->range.end - grave->range.start);
        sim_range_remove(&sim.graves, &grave->range);
        free(grave);
    }
    memset(graves, 0, sizeof(graves));
}

/* ---- who may touch what ---- */

static const char *block_fault(const struct sim_block *block, const struct sim_context *context, bool copy,
                               enum sim_when when) {
    if (when == SIM_AT_CALL)
        return NULL;
    if (block->dead)
        return "graph memory outside its life";
    if (block->born && !sim_op_done(block->born))
        return "the stream-ordered allocation has not happened yet";
    unsigned bit = 1u << context->device;
    if (block->kind == SIM_BLOCK_POOL && !copy && !(block->pool->access & bit))
        return "the pool gives this device no access";
    if ((block->kind == SIM_BLOCK_DEVICE || block->kind == SIM_BLOCK_GRAPH) && block->device != context->device &&
        !copy && !(block->access & bit) && !(context->peers & (1u << block->device)))
        return "memory of a peer without peer access";
    return NULL;
}

static const char *mapping_fault(const struct sim_mapping *mapping, const struct sim_context *context, bool write) {
    unsigned allowed = write ? mapping->writable : mapping->readable;
    return allowed & (1u << context->device) ? NULL : "mapped, but this device has no access";
}

const char *sim_access_fault(uintptr_t start, size_t bytes, const struct sim_context *context, bool write, bool copy,
                             enum sim_when when) {
    uintptr_t end = start + bytes;
    while (start < end) {
        const char *fault;
        const struct sim_mapping *mapping;
        const struct sim_block *block = sim_block_find(start);
        if (block) {
            fault = block_fault(block, context, copy, when);
            start = block->range.end;
        } else if ((mapping = sim_range_find(&sim.mappings, start, start + 1)) != NULL) {
            fault = mapping_fault(mapping, context, write);
            start = mapping->range.end;
        } else if (sim_range_find(&sim.reservations, start, start + 1)) {
            return "reserved address space without a mapping";
        } else {
            return sim_range_find(&sim.graves, start, start + 1) ? "freed memory" : "not CUDA's memory";
        }
        if (fault)
            return fault;
    }
    return NULL;
}

bool sim_access_known(uintptr_t address) {
    return sim_block_find(address) || sim_range_find(&sim.mappings, address, address + 1) ||
           sim_range_find(&sim.reservations, address, address + 1) || sim_range_find(&sim.graves, address, address + 1);
}

bool sim_is_pageable(uintptr_t address) {
    return !sim_access_known(address);
}

/* ---- device memory ---- */

static CUresult allocate(CUdeviceptr *out, size_t bytes, enum sim_block_kind kind) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    struct sim_block *block;
    if (out)
        *out = 0; /* stays if the call fails */
    if (!context)
        return why;
    if (!out || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    sim_cost(30000 + (uint64_t)((double)bytes / MIB * 50));
    result = sim_block_new(kind, context, context->device, bytes, &block);
    if (result == CUDA_SUCCESS)
        *out = block->range.start;
    return result;
}

SIM_API(0, 3020, cuMemAlloc_v2, (CUdeviceptr * out, size_t bytes), (out, bytes)) {
    return allocate(out, bytes, SIM_BLOCK_DEVICE);
}

SIM_API(0, 6000, cuMemAllocManaged, (CUdeviceptr * out, size_t bytes, unsigned int flags), (out, bytes, flags)) {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(out, bytes, SIM_BLOCK_MANAGED);
}

SIM_API(0, 3020, cuMemAllocPitch_v2,
        (CUdeviceptr * out, size_t *pitch, size_t width, size_t height, unsigned int element),
        (out, pitch, width, height, element)) {
    CUresult why;
    const size_t row = (width + PITCH - 1) / PITCH * PITCH;
    size_t bytes;
    if (out)
        *out = 0;
    if (pitch)
        *pitch = 0;
    if (!sim_current(&why))
        return why;
    if (!out || !pitch || !width || !height || (element != 4 && element != 8 && element != 16) || row < width)
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = row;
    return __builtin_mul_overflow(row, height, &bytes) ? CUDA_ERROR_OUT_OF_MEMORY
                                                       : allocate(out, bytes, SIM_BLOCK_DEVICE);
}

SIM_API(0, 3020, cuMemFree_v2, (CUdeviceptr at), (at)) {
    struct sim_block *block = sim_block_find((uintptr_t)at);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS || !at)
        return result;
    if (!block || block->range.start != at || !on_device(block->kind) || block->freeing ||
        (block->kind == SIM_BLOCK_GRAPH && !block->given))
        return CUDA_ERROR_INVALID_VALUE;
    sim_cost(27000 + (uint64_t)((double)(block->range.end - block->range.start) / MIB * 260));
    block->freeing = true;
    result = sim_op_wait_put(sim_barrier_device(block->device));
    block->freeing = false;
    if (result != CUDA_SUCCESS)
        return result;
    if (block->kind == SIM_BLOCK_POOL)
        sim_pool_return(block, NULL);
    else if (block->kind == SIM_BLOCK_GRAPH) {
        block->dead = true;
        sim_graph_memory_take(block);
    } else
        sim_block_destroy(block);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 3020, cuMemGetInfo_v2, (size_t *unused, size_t *total), (unused, total)) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    if (!context)
        return why;
    sim_cost(3900);
    if (total)
        *total = sim_capacity(context->device);
    if (unused)
        *unused = unused_of(context->device);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 3020, cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *size, CUdeviceptr at), (base, size, at)) {
    CUresult why;
    if (!base && !size)
        return CUDA_SUCCESS;
    if (size)
        *size = 0;
    const struct sim_context *now = sim_current(&why);
    if (!now)
        return why;
    const struct sim_range *range;
    const struct sim_block *block = sim_block_find((uintptr_t)at);
    range = block ? &block->range : sim_range_find(&sim.mappings, (uintptr_t)at, (uintptr_t)at + 1);
    if (!range || (block && block->dead) || !sim_in_sight(at, now))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = range->start;
    if (size)
        *size = range->end - range->start;
    return CUDA_SUCCESS;
}

/* ---- host memory ---- */

static CUresult host_allocate(void **out, size_t bytes, unsigned flags) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    struct sim_block *block;
    if (!context)
        return why;
    if (!out || (flags & ~7u))
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    CUresult result = bytes >> 40 ? CUDA_ERROR_OUT_OF_MEMORY : sim_capture_unsafe();
    if (result == CUDA_SUCCESS)
        result = sim_block_new(SIM_BLOCK_HOST, context, context->device, bytes ? bytes : 1, &block);
    if (result != CUDA_SUCCESS)
        return result;
    block->flags = flags;
    *out = (void *)block->range.start;
    return CUDA_SUCCESS;
}

SIM_API(0, 2020, cuMemHostAlloc, (void **out, size_t bytes, unsigned int flags), (out, bytes, flags)) {
    return host_allocate(out, bytes, flags);
}

SIM_API(0, 3020, cuMemAllocHost_v2, (void **out, size_t bytes), (out, bytes)) {
    return host_allocate(out, bytes, 0);
}

SIM_API(SIM_SURE, 2000, cuMemFreeHost, (void *at), (at)) {
    struct sim_block *block = sim_block_find((uintptr_t)at);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS || !at)
        return result;
    if (!block || block->kind != SIM_BLOCK_HOST || block->range.start != (uintptr_t)at)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_op_wait_put(sim_barrier_device(block->device));
    if (result == CUDA_SUCCESS)
        sim_block_destroy(block);
    return result;
}

SIM_API(0, 6050, cuMemHostRegister_v2, (void *at, size_t bytes, unsigned int flags), (at, bytes, flags)) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    uintptr_t start = (uintptr_t)at;
    if (!context)
        return why;
    if (!at || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_range_find(&sim.blocks, start, start + bytes))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct sim_block *block = calloc(1, sizeof(*block));
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->range = (struct sim_range){start, start + bytes};
    block->kind = SIM_BLOCK_REGISTERED;
    block->device = context->device;
    block->context = context;
    block->flags = flags;
    block->id = ++sim.next_id;
    block->on_list = true;
    LIST_INSERT_HEAD(&context->blocks, block, link);
    sim_range_insert(&sim.blocks, &block->range);
    return CUDA_SUCCESS;
}

/* Is it an address where a handle is mapped? The last two functions treat that as host memory, wherever it lies, as an
 * H200 answers. */
static bool is_mapped(const void *at) {
    const struct sim_mapping *mapping = sim_range_find(&sim.mappings, (uintptr_t)at, (uintptr_t)at + 1);
    return mapping && mapping->readable;
}

SIM_API(SIM_SURE, 4000, cuMemHostUnregister, (void *at), (at)) {
    struct sim_block *block = sim_block_find((uintptr_t)at);
    if (!block && !is_mapped(at))
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (!block || block->kind != SIM_BLOCK_REGISTERED || block->range.start != (uintptr_t)at)
        return block && block->kind >= SIM_BLOCK_HOST ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
                                                      : CUDA_ERROR_INVALID_VALUE;
    sim_block_destroy(block);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 3020, cuMemHostGetDevicePointer_v2, (CUdeviceptr * out, void *at, unsigned int flags),
        (out, at, flags)) {
    CUresult why;
    const struct sim_block *block = sim_block_find((uintptr_t)at);
    if (!sim_current(&why))
        return why;
    if (!out || flags || (!is_mapped(at) && (!block || on_device(block->kind))))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)(uintptr_t)at;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 2030, cuMemHostGetFlags, (unsigned int *flags, void *at), (flags, at)) {
    CUresult why;
    const struct sim_block *block = sim_block_find((uintptr_t)at);
    const bool mapped = is_mapped(at);
    if (!sim_current(&why))
        return why;
    if (!flags || (!mapped && (!block || (on_device(block->kind) && block->kind != SIM_BLOCK_MANAGED))))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = mapped                          ? CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
             : block->kind == SIM_BLOCK_HOST ? block->flags | CU_MEMHOSTALLOC_DEVICEMAP
                                             : CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}
