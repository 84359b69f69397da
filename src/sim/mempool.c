/* Stream-ordered memory and its pools. A freed block keeps its memory in its pool until the pool is settled:
 * at a synchronise, what exceeds the release threshold goes back to the device. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory.h"
#include "pools.h"

#include <stdlib.h>
#include <string.h>

struct sim_pool *sim_pool_new(int device, bool is_default) {
    struct sim_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        abort();
    pool->device = device;
    pool->is_default = is_default;
    pool->located = CU_MEM_LOCATION_TYPE_DEVICE;
    pool->access = 1u << device;
    for (int i = 0; i < 3; i++)
        pool->reuse[i] = 1;
    pool->handle = sim_handle_new(SIM_POOL, pool);
    return pool;
}

struct sim_pool *sim_pool_default(int device) {
    struct sim_device *dev = &sim.devices[device];
    if (!dev->default_pool)
        dev->default_pool = sim_pool_new(device, true);
    return dev->default_pool;
}

struct sim_pool *sim_pool_current(int device) {
    struct sim_device *dev = &sim.devices[device];
    return dev->pool ? dev->pool : sim_pool_default(device);
}

static struct sim_pool *pool_of(CUmemoryPool handle) {
    return handle ? sim_handle_get(SIM_POOL, handle) : NULL;
}

/* Finds a pool that is not imported. For an imported pool, everything but its access is an error (H200). */
static struct sim_pool *own_pool(CUmemoryPool handle) {
    struct sim_pool *pool = pool_of(handle);
    return pool && !pool->imported ? pool : NULL;
}

/* Destroys a cached block. It is in no range tree and has no owner: sim_block_destroy() undoes both, so the block gets
 * them back first. */
static void cache_drop(struct sim_pool *pool, struct sim_block *block) {
    pool->reserved -= block->phys;
    sim_range_insert(&sim.blocks, &block->range);
    sim_block_destroy(block);
}

static void trim(struct sim_pool *pool, uint64_t keep) {
    struct sim_block *block, *next;
    for (block = LIST_FIRST(&pool->cache); block && pool->reserved > keep; block = next) {
        next = LIST_NEXT(block, link);
        cache_drop(pool, block);
    }
}

static void pool_free_if_over(struct sim_pool *pool) {
    if (!pool->destroyed)
        return;
    trim(pool, 0);
    if (!pool->live) {
        sim_shared_pool_close(pool);
        free(pool);
    }
}

void sim_pool_return(struct sim_block *block, const struct sim_stream *by) {
    struct sim_pool *pool = block->pool;
    block->freed_by = by ? by->id : 0;
    sim_range_remove(&sim.blocks, &block->range);
    sim_op_put(block->born);
    block->born = NULL;
    block->freeing = false;
    LIST_INSERT_HEAD(&pool->cache, block, link);
    block->on_list = true;
    pool->live--;
    pool->used -= block->range.end - block->range.start;
    if (pool->imported || pool->located != CU_MEM_LOCATION_TYPE_DEVICE)
        cache_drop(pool, block);
    pool_free_if_over(pool);
}

static void trim_one(void *item, void *device) {
    struct sim_pool *pool = item;
    if (pool->device == *(int *)device && !pool->exportable)
        trim(pool, 0);
}

void sim_pools_trim(int device) {
    sim_handle_each(SIM_POOL, trim_one, &device)
        ;
}

struct synchronise {
    int device;
    uint64_t stream;
};

static void settle_one(void *item, void *arg) {
    struct sim_pool *pool = item;
    const struct synchronise *sync = arg;
    struct sim_block *block;
    if (pool->device != sync->device)
        return;
    if (!pool->exportable)
        trim(pool, pool->threshold);
    LIST_FOREACH(block, &pool->cache, link)
    if (sync->stream == SIM_ALL_STREAMS || sync->stream == block->freed_by)
        block->freed_by = 0;
}

void sim_pools_settle(int device, uint64_t stream) {
    sim_handle_each(SIM_POOL, settle_one, &(struct synchronise){device, stream})
        ;
}

static void pool_forget(void *item, void *arg) {
    struct sim_pool *pool = item;
    (void)arg;
    trim(pool, 0);
    sim_shared_pool_close(pool);
    sim_handle_free(SIM_POOL, pool->handle);
    free(pool);
}

static void collect(void *item, void *list) {
    struct sim_block *block = item;
    struct sim_block **head = list;
    if (block->kind == SIM_BLOCK_POOL) {
        LIST_NEXT(block, link) = *head;
        *head = block;
    }
}

void sim_pools_reset(void) {
    struct sim_block *list = NULL;
    sim_range_each(sim.blocks, collect, &list);
    while (list) {
        struct sim_block *next = LIST_NEXT(list, link);
        struct sim_pool *pool = list->pool;
        pool->live--;
        sim_block_destroy(list);
        pool_free_if_over(pool);
        list = next;
    }
    sim_handle_each(SIM_POOL, pool_forget, NULL)
        ;
    sim_places_reset();
}

/* ---- allocation and free ---- */

/* Takes a cached block. `stream` NULL: whichever stream freed it. Else a block that another stream freed needs a wait,
 * or a check that its work is over: the pool must allow one of these. */
static struct sim_block *take_cached(struct sim_pool *pool, size_t bytes, const struct sim_stream *stream) {
    size_t phys = sim_block_phys(bytes);
    struct sim_block *block;
    bool any = !stream || pool->reuse[1] || pool->reuse[2];
    LIST_FOREACH(block, &pool->cache, link)
    if (block->phys == phys && bytes <= block->space && (any || !block->freed_by || block->freed_by == stream->id)) {
        LIST_REMOVE(block, link);
        block->on_list = false;
        block->range.end = block->range.start + bytes;
        block->id = ++sim.next_id;
        block->sync_memops = false;
        sim_range_insert(&sim.blocks, &block->range);
        return block;
    }
    return NULL;
}

static CUresult pool_block(struct sim_pool *pool, size_t bytes, const struct sim_stream *stream,
                           struct sim_block **out) {
    *out = take_cached(pool, bytes, stream);
    if (*out)
        return CUDA_SUCCESS;
    if (pool->most && pool->reserved + sim_block_phys(bytes) > pool->most)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const enum sim_block_kind kind = pool->located == CU_MEM_LOCATION_TYPE_DEVICE ? SIM_BLOCK_POOL : SIM_BLOCK_HOST;
    CUresult result = sim_block_new(kind, NULL, pool->device, bytes, out);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sim_block_phys(bytes) <= sim_capacity(pool->device)) {
        /* The real pool waits for pending frees before it gives up. */
        if (sim_op_wait_put(sim_barrier_device(pool->device)) == CUDA_SUCCESS) {
            *out = take_cached(pool, bytes, NULL);
            result = *out ? CUDA_SUCCESS : sim_block_new(SIM_BLOCK_POOL, NULL, pool->device, bytes, out);
        }
    }
    if (result == CUDA_SUCCESS && !(*out)->pool) {
        (*out)->kind = SIM_BLOCK_POOL;
        (*out)->pool = pool;
        sim_shared_pool_back(*out);
        pool->reserved += (*out)->phys;
        if (pool->reserved > pool->reserved_high)
            pool->reserved_high = pool->reserved;
    }
    return result;
}

static CUresult allocate(CUdeviceptr *out, size_t bytes, struct sim_pool *pool, CUstream handle) {
    struct sim_stream *stream;
    struct sim_block *block;
    if (out)
        *out = 0;
    CUresult result = sim_stream_for_work(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream->capture && (result = sim_capture_unsafe()) != CUDA_SUCCESS)
        return result;
    if (!bytes)
        return CUDA_SUCCESS;
    struct sim_op *op = sim_op_new(SIM_OP_ALLOC);
    if (stream->capture) {
        result = sim_block_new(SIM_BLOCK_GRAPH, NULL, pool ? pool->device : stream->context->device, bytes, &block);
        if (result == CUDA_SUCCESS) {
            block->dead = true;
            block->access = pool ? pool->access & ~(1u << pool->device) : 0;
            block->graph = stream->capture->graph;
            LIST_INSERT_HEAD(&block->graph->blocks, block, link);
            block->on_list = true;
        }
    } else {
        if (!pool)
            pool = sim_pool_current(stream->context->device);
        sim_cost(290);
        result = pool_block(pool, bytes, stream, &block);
        if (result == CUDA_SUCCESS) {
            pool->live++;
            pool->used += block->range.end - block->range.start;
            if (pool->used > pool->used_high)
                pool->used_high = pool->used;
            block->born = sim_op_get(op);
        }
    }
    if (result != CUDA_SUCCESS) {
        sim_op_put(op);
        return result;
    }
    op->block = block;
    sim_op_enqueue(stream, op);
    *out = block->range.start;
    return CUDA_SUCCESS;
}

SIM_STREAM_API(_ptsz, 0, 11020, cuMemAllocAsync, (CUdeviceptr * out, size_t bytes, CUstream stream),
               (out, bytes, stream)) {
    return allocate(out, bytes, NULL, stream);
}

SIM_STREAM_API(_ptsz, 0, 11020, cuMemAllocFromPoolAsync,
               (CUdeviceptr * out, size_t bytes, CUmemoryPool handle, CUstream stream), (out, bytes, handle, stream)) {
    struct sim_pool *pool = own_pool(handle);
    return pool ? allocate(out, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

SIM_STREAM_API(_ptsz, 0, 11020, cuMemFreeAsync, (CUdeviceptr at, CUstream handle), (at, handle)) {
    struct sim_stream *stream;
    CUresult result = sim_stream_for_work(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!stream->capture && (result = sim_capture_unsafe()) != CUDA_SUCCESS)
        return result;
    if (!at)
        return CUDA_SUCCESS;
    struct sim_block *block = sim_block_find((uintptr_t)at);
    if (!block || block->range.start != at || block->freeing || block->kind > SIM_BLOCK_GRAPH ||
        (block->kind == SIM_BLOCK_GRAPH && !block->given && !stream->capture))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture && !sim_graph_may_free(stream->capture->graph, block))
        return CUDA_ERROR_INVALID_VALUE;
    sim_cost(360);
    if (block->kind == SIM_BLOCK_DEVICE) {
        /* Plain memory belongs to no pool: this free is as synchronous as cuMemFree, and waits for the stream if that
         * is another device's. */
        block->freeing = true;
        result = sim_op_wait_put(sim_barrier_device(block->device));
        if (result == CUDA_SUCCESS && stream->context->device != block->device)
            result = sim_op_wait_put(sim_barrier_device(stream->context->device));
        block->freeing = false;
        if (result == CUDA_SUCCESS)
            sim_block_destroy(block);
        return result;
    }
    block->freeing = block->kind == SIM_BLOCK_POOL;
    struct sim_op *op;
    if (block->kind == SIM_BLOCK_GRAPH) {
        op = sim_graph_free_op(block, stream->capture ? stream->capture->graph : NULL);
    } else {
        op = sim_op_new(SIM_OP_FREE);
        op->block = block;
    }
    sim_op_enqueue(stream, op);
    return CUDA_SUCCESS;
}

/* ---- pools ---- */

SIM_API(SIM_SURE, 11020, cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice device), (pool, device)) {
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = sim_pool_default(device)->handle;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11020, cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device), (pool, device)) {
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_VALUE;
    *pool = sim_pool_current(device)->handle;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11020, cuDeviceSetMemPool, (CUdevice device, CUmemoryPool handle), (device, handle)) {
    struct sim_pool *pool = own_pool(handle);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_device_ok(device) || !pool || pool->device != device || pool->managed || sim_pool_is_hosts(pool))
        return CUDA_ERROR_INVALID_VALUE;
    sim.devices[device].pool = pool;
    return CUDA_SUCCESS;
}

SIM_API(0, 11020, cuMemPoolCreate, (CUmemoryPool * out, const CUmemPoolProps *props), (out, props)) {
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_pool *pool;
    if (!out || !props)
        return CUDA_ERROR_INVALID_VALUE;
    if ((result = sim_pool_of(props, &pool)) != CUDA_SUCCESS)
        return result;
    pool->exportable = props->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
    pool->most = props->maxSize;
    pool->decompresses = props->usage & CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS;
    *out = pool->handle;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11020, cuMemPoolDestroy, (CUmemoryPool handle), (handle)) {
    struct sim_pool *pool = pool_of(handle);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || pool->is_default || (pool->imported && pool->live)) /* the last condition was seen on an H200 */
        return CUDA_ERROR_INVALID_VALUE;
    if (sim.devices[pool->device].pool == pool)
        sim.devices[pool->device].pool = NULL;
    sim_places_forget(pool);
    sim_handle_free(SIM_POOL, handle);
    pool->destroyed = true;
    pool_free_if_over(pool);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11020, cuMemPoolTrimTo, (CUmemoryPool handle, size_t keep), (handle, keep)) {
    struct sim_pool *pool = own_pool(handle);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!pool->exportable)
        trim(pool, keep);
    return CUDA_SUCCESS;
}

/* Finds where an attribute is stored. The three reuse switches are ints, the rest have 64 bits. */
static void *attribute_at(struct sim_pool *pool, CUmemPool_attribute attribute, size_t *size) {
    *size = sizeof(uint64_t);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *size = sizeof(int);
        return &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &pool->used_high;
    default: return NULL;
    }
}

SIM_API(SIM_SURE, 11020, cuMemPoolGetAttribute, (CUmemoryPool handle, CUmemPool_attribute which, void *value),
        (handle, which, value)) {
    size_t size = 0;
    struct sim_pool *pool = own_pool(handle);
    void *field = pool ? attribute_at(pool, which, &size) : NULL;
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!field || !value)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(value, field, size);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11020, cuMemPoolSetAttribute, (CUmemoryPool handle, CUmemPool_attribute which, void *value),
        (handle, which, value)) {
    size_t size = 0;
    struct sim_pool *pool = own_pool(handle);
    void *field = pool ? attribute_at(pool, which, &size) : NULL;
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!field || !value || which == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || which == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    if (which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || which == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        /* High-water marks can only be reset. */
        if (*(uint64_t *)value != 0)
            return CUDA_ERROR_INVALID_VALUE;
        *(uint64_t *)field = which == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used : pool->reserved;
        return CUDA_SUCCESS;
    }
    memcpy(field, value, size);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11020, cuMemPoolSetAccess, (CUmemoryPool handle, const CUmemAccessDesc *map, size_t count),
        (handle, map, count)) {
    struct sim_pool *pool = pool_of(handle);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || (count && !map))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        int device = map[i].location.id;
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_ok(device))
            return CUDA_ERROR_INVALID_DEVICE;
        if (device == pool->device && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            return CUDA_ERROR_INVALID_DEVICE;
        if (!sim_device_reaches(device, pool->device))
            return CUDA_ERROR_INVALID_DEVICE;
        pool->access &= ~(1u << device);
        if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            pool->access |= 1u << device;
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11020, cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool handle, CUmemLocation *location),
        (flags, handle, location)) {
    struct sim_pool *pool = pool_of(handle);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!flags || !pool || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_ok(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = pool->access & (1u << location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
