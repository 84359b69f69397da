/* Pointer attributes, and the handles by which memory is shared with other processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pools.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What an address lies in: one of three kinds of object; reservations only beside a mapping. */
struct place {
    const struct sim_block *block;
    const struct sim_mapping *mapping;
};

static struct place place_of(CUdeviceptr at) {
    struct place place = {.block = sim_block_find((uintptr_t)at)};
    if (!place.block)
        place.mapping = sim_range_find(&sim.mappings, (uintptr_t)at, (uintptr_t)at + 1);
    return place;
}

/* The driver counts host memory from cuMemCreate as the host's. The memory type is measured; other questions are
 * answered here as differently from device memory as possible, so that nobody relies on the difference. */
static bool is_host(const struct place *place) {
    const struct sim_block *block = place->block;
    return block ? block->kind >= SIM_BLOCK_HOST || (block->pool && sim_pool_is_hosts(block->pool))
                 : place->mapping && place->mapping->handle->host;
}

static bool is_managed(const struct sim_block *block) {
    return block->kind == SIM_BLOCK_MANAGED || (block->pool && block->pool->managed);
}

/* CUDA maps whole pages, 2 MiB for cuMemAlloc, and a pool 32 MiB at a time (H200). */
static size_t mapped_size(const struct sim_block *block) {
    const size_t size = block->range.end - block->range.start;
    const size_t unit = block->kind == SIM_BLOCK_POOL     ? 32u << 20
                        : block->kind == SIM_BLOCK_DEVICE ? sim.options.granularity
                                                          : 1;
    return (size + unit - 1) / unit * unit;
}

/* Where the memory begins and ends. */
static CUresult extent_attribute(void *data, CUpointer_attribute which, const struct place *place) {
    const struct sim_block *block = place->block;
    const struct sim_mapping *mapping = place->mapping;
    const struct sim_range *mapped = block ? &block->range : &mapping->range;
    const struct sim_range *whole = block ? &block->range : &mapping->reservation->range;
    size_t size = mapped->end - mapped->start;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)data = whole->start; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = whole->end - whole->start; break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: *(CUdeviceptr *)data = mapped->start; break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: *(size_t *)data = block ? mapped_size(block) : size; break;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        memset(data, 0, 8);
        /* Mapped memory has none, according to GDRCopy's tests. */
        return is_host(place) || mapping ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

bool sim_in_sight(CUdeviceptr at, const struct sim_context *now) {
    const struct place place = place_of(at);
    const struct sim_block *block = place.block;
    const unsigned bit = 1u << now->device;
    if (place.mapping)
        return place.mapping->handle->host || place.mapping->readable & bit;
    if (!block || block->device == now->device)
        return true;
    return block->kind == SIM_BLOCK_POOL ? block->pool->access & bit
           : block->kind == SIM_BLOCK_DEVICE
               ? now->peers & 1u << block->device && now->peer_of[block->device] == block->context
               : true;
}

/* Who may use the memory, and how it may be shared. */
static CUresult access_attribute(void *data, CUpointer_attribute which, const struct place *place) {
    const struct sim_block *block = place->block;
    const struct sim_mapping *mapping = place->mapping;
    bool native = block && block->kind == SIM_BLOCK_DEVICE;
    const struct sim_context *now;
    unsigned bit;
    CUresult why;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = block && (block->sync_memops || block->kind == SIM_BLOCK_MANAGED);
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(int *)data = native; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = mapping ? mapping->handle->prop.requestedHandleTypes : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)data = native ||
                       (mapping && !mapping->handle->host && mapping->handle->prop.allocFlags.gpuDirectRDMACapable);
        break;
    /* It holds for all memory, with or without an engine. */
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(int *)data = native || (block && block->kind == SIM_BLOCK_POOL && block->pool->decompresses) ||
                       (mapping && mapping->handle->prop.allocFlags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS);
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        now = sim_current(&why);
        bit = now ? 1u << now->device : 0;
        /* The real driver says that every device may do both with all that CUDA has allocated itself. */
        *(unsigned *)data = block                     ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                            : mapping->writable & bit ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                            : mapping->readable & bit ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                                                      : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
        break;
    default: return extent_attribute(data, which, place);
    }
    return CUDA_SUCCESS;
}

static CUresult attribute(void *data, CUpointer_attribute which, CUdeviceptr at) {
    const struct place place = place_of(at);
    const struct sim_block *block = place.block;
    const struct sim_mapping *mapping = place.mapping;
    const struct sim_context *now;
    CUresult why;
    if (!block && !mapping)
        return CUDA_ERROR_INVALID_VALUE;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = block && block->context ? block->context->handle : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = is_host(&place) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(int *)data = block && is_managed(block); break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(int *)data = 1; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        now = sim_current(&why);
        if (!now)
            return why;
        *(CUdeviceptr *)data = 0;
        if (!sim_in_sight(at, now))
            return CUDA_ERROR_INVALID_VALUE;
        *(CUdeviceptr *)data = at;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)data = NULL;
        if (!is_host(&place) && !(block && is_managed(block)))
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)at;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: *(unsigned long long *)data = block ? block->id : mapping->id; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = block ? block->device : mapping->handle->host ? CU_DEVICE_INVALID : mapping->handle->device;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = block && block->pool ? block->pool->handle : NULL;
        break;
    default: return access_attribute(data, which, &place);
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 4000, cuPointerGetAttribute, (void *data, CUpointer_attribute which, CUdeviceptr at),
        (data, which, at)) {
    return data ? attribute(data, which, at) : CUDA_ERROR_INVALID_VALUE;
}

static size_t attribute_size(CUpointer_attribute which) {
    switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return 4;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return 16;
    default: return 8;
    }
}

/* Unlike the single form, unknown pointers and unanswerable attributes give zeroes and success; a range that
 * does not exist stays as the caller had it. */
SIM_API(SIM_SURE, 7000, cuPointerGetAttributes,
        (unsigned int count, CUpointer_attribute *which, void **data, CUdeviceptr at), (count, which, data, at)) {
    if (!count || !which || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (which[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
            return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (attribute(data[i], which[i], at) == CUDA_SUCCESS)
            continue;
        if (which[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || which[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
            continue;
        memset(data[i], 0, attribute_size(which[i]));
        if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)data[i] = CU_DEVICE_INVALID;
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 6000, cuPointerSetAttribute, (const void *value, CUpointer_attribute which, CUdeviceptr at),
        (value, which, at)) {
    struct sim_block *block = sim_block_find((uintptr_t)at);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!block && value && place_of(at).mapping)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!value || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !block)
        return CUDA_ERROR_INVALID_VALUE;
    block->sync_memops = *(const char *)value != 0;
    return CUDA_SUCCESS;
}

/* ---- sharing ---- */

struct ipc {
    char magic[8];
    CUdeviceptr at;
    uint64_t id;
};

static const char ipc_magic[8] = "vpoolipc";

SIM_API(SIM_SURE, 4010, cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr at), (out, at)) {
    const struct sim_block *block = sim_block_find((uintptr_t)at);
    CUresult why;
    if (!sim_current(&why))
        return why;
    if (!out || !block || block->kind != SIM_BLOCK_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    struct ipc ipc = {.at = block->range.start, .id = block->id};
    memcpy(ipc.magic, ipc_magic, sizeof(ipc_magic));
    memset(out, 0, sizeof(*out));
    memcpy(out, &ipc, sizeof(ipc));
    return CUDA_SUCCESS;
}

/* Handles are valid in this process only. The real driver refuses to open one's own; the simulated one returns the
 * address itself, so that the calls around it can be tested. */
SIM_API(0, 11000, cuIpcOpenMemHandle_v2, (CUdeviceptr * out, CUipcMemHandle handle, unsigned int flags),
        (out, handle, flags)) {
    struct ipc ipc;
    memcpy(&ipc, &handle, sizeof(ipc));
    const struct sim_block *block = sim_block_find((uintptr_t)ipc.at);
    if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || memcmp(ipc.magic, ipc_magic, sizeof(ipc_magic)) != 0 ||
        !block || block->id != ipc.id)
        return CUDA_ERROR_INVALID_VALUE;
    *out = ipc.at;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 4010, cuIpcCloseMemHandle, (CUdeviceptr at), (at)) {
    return sim_block_find((uintptr_t)at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(SIM_SURE, 11070, cuMemGetHandleForAddressRange,
        (void *out, CUdeviceptr at, size_t size, CUmemRangeHandleType type, unsigned long long flags),
        (out, at, size, type, flags)) {
    (void)flags;
    if (!out || !at || !size || at % 4096 || size % 4096 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
        return CUDA_ERROR_INVALID_VALUE;
    for (uintptr_t start = (uintptr_t)at, end = start + size; start < end;) {
        const struct place place = place_of(start);
        if (is_host(&place) || (!place.mapping && !place.block))
            return CUDA_ERROR_INVALID_VALUE;
        start = place.mapping ? place.mapping->range.end : place.block->range.start + mapped_size(place.block);
    }
    int fd = memfd_create("vpool-sim-dmabuf", MFD_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

/* ---- objects of other processes and other interfaces: there is nothing behind them, only the call ---- */

/* The handle belongs to no memory, and says whether other processes can be shown it. */
static const CUmemGenericAllocationHandle MULTICAST = 0x6d63000000;

SIM_API(0, 12010, cuMulticastCreate, (CUmemGenericAllocationHandle * out, const CUmulticastObjectProp *prop),
        (out, prop)) {
    if (!out || !prop)
        return CUDA_ERROR_INVALID_VALUE;
    *out = MULTICAST | (prop->handleTypes != 0);
    return CUDA_SUCCESS;
}

/* By its documentation, CUDA binds memory of cuMemCreate and cudaMallocAsync, no more than is in one piece; to an
 * object that can be exported, only memory that can be exported. Memory of cudaMalloc is refused (1, by reports of
 * NCCL's users). */
SIM_API(0, 12010, cuMulticastBindAddr,
        (CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr at, size_t size, unsigned long long flags),
        (object, offset, at, size, flags)) {
    const struct place place = place_of(at);
    const struct sim_range *range = place.block ? &place.block->range : place.mapping ? &place.mapping->range : NULL;
    const bool shown = place.mapping && place.mapping->handle->prop.requestedHandleTypes;
    (void)offset;
    if ((object | 1) != (MULTICAST | 1) || flags || !range || !size || size > range->end - at ||
        (place.block && place.block->kind != SIM_BLOCK_POOL) || (object & 1 && !shown))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 4010, cuIpcGetEventHandle, (CUipcEventHandle * out, CUevent event), (out, event)) {
    if (!out || !event || !sim_handle_get(SIM_EVENT, event))
        return CUDA_ERROR_INVALID_HANDLE;
    memset(out, 0, sizeof(*out));
    memcpy(out, &event, sizeof(event));
    return CUDA_SUCCESS;
}

SIM_API(0, 4010, cuIpcOpenEventHandle, (CUevent * out, CUipcEventHandle handle), (out, handle)) {
    CUevent event;
    memcpy(&event, &handle, sizeof(event));
    if (!out || !event || !sim_handle_get(SIM_EVENT, event))
        return CUDA_ERROR_INVALID_VALUE;
    *out = event;
    return CUDA_SUCCESS;
}

SIM_API(0, 10000, cuImportExternalMemory, (CUexternalMemory * out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc),
        (out, desc)) {
    if (!out || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUexternalMemory)1;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 10000, cuDestroyExternalMemory, (CUexternalMemory memory), (memory)) {
    return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API(0, 10000, cuImportExternalSemaphore,
        (CUexternalSemaphore * out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc), (out, desc)) {
    if (!out || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUexternalSemaphore)1;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 10000, cuDestroyExternalSemaphore, (CUexternalSemaphore semaphore), (semaphore)) {
    return semaphore ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
