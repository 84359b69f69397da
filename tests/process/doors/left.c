/* Memory that graphs leave to the program, and memory that pools show. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <unistd.h>

/* ---- memory of graphs ---- */

/* From a pool, perhaps, which may be gone before the graph is launched. */
static CUgraph captured_alloc(int s, CUmemoryPool pool, CUdeviceptr *at, size_t size) {
    const CUstream handle = world.streams[s].handle;
    CUgraph graph = NULL;
    if (CALL(cuStreamBeginCapture_v2, handle, CU_STREAM_CAPTURE_MODE_RELAXED))
        return NULL;
    int res = pool ? CALLS(cuMemAllocFromPoolAsync, at, size, pool, handle) : CALLS(cuMemAllocAsync, at, size, handle);
    if (res == 0)
        CALL(cuMemsetD8Async, *at, 3, size, handle);
    CALLS(cuStreamEndCapture, handle, &graph);
    return graph;
}

static CUgraph freeing(CUdeviceptr at) {
    CUgraph graph = NULL;
    CUgraphNode node = NULL, second = NULL;
    if (CALL(cuGraphCreate, &graph, 0) == 0 && CALL(cuGraphAddMemFreeNode, &node, graph, NULL, 0, at) == 0 && one_in(3))
        CALL(cuGraphAddMemFreeNode, &second, graph, &node, 1, at);
    return graph;
}

static void free_outside(CUdeviceptr at, CUstream stream) {
    CUgraphExec exec = NULL;
    CUgraph graph;
    switch (below(4)) {
    case 0: CALL(cuMemFree, at); break;
    case 1: CALLS(cuMemFreeAsync, at, stream); break;
    case 2:
        graph = freeing(at);
        if (graph && CALL(cuGraphInstantiateWithFlags, &exec, graph, 0) == 0) {
            CALLS(cuGraphLaunch, exec, stream);
            CALL(cuGraphExecDestroy, exec);
        }
        if (graph)
            CALL(cuGraphDestroy, graph);
        break;
    default: break; /* or not at all */
    }
    if (one_in(3))
        CALLS(cuMemFreeAsync, at, stream);
}

static void look_at(CUdeviceptr at, size_t size) {
    CUmemorytype type = (CUmemorytype)77;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    unsigned char byte = 0;
    CALL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    if (CALL(cuMemGetAddressRange, &base, &bytes, at + size / 2) == 0)
        say(" %d %d", base == at, bytes == size);
    if (CALL(cuMemcpyDtoH, &byte, at + size - 1, 1) == 0)
        say(" %d", byte);
}

/* What a graph has allocated is the program's until it is freed, by whatever means, whether the graph lives or not. */
static void outlive(void) {
    int s = pick_made_stream(), other = pick_made_stream(), device = s < 0 ? 0 : world.contexts[context_of(s)].device;
    const size_t size = 1 + some_size() % (1 << 20);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 - device},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool pool = NULL;
    CUdeviceptr at = 0;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    CUDA_MEM_ALLOC_NODE_PARAMS told = {0};
    size_t one = 1;
    if (s < 0 || world.captures || context_of(s) != current_context() || !drain_all())
        return;
    if (one_in(2) && CALL(cuMemPoolCreate, &pool, &props) == 0 && one_in(2))
        CALL(cuMemPoolSetAccess, pool, &access, 1);
    CUgraph graph = captured_alloc(s, pool, &at, size);
    if (pool && one_in(2)) {
        CALL(cuMemPoolDestroy, pool);
        pool = NULL;
    }
    if (graph && CALL(cuGraphGetNodes, graph, &node, &one) == 0 && CALL(cuGraphMemAllocNodeGetParams, node, &told) == 0)
        say(" %zu %zu %d", told.bytesize, told.accessDescCount, told.dptr == at);
    if (graph && CALL(cuGraphInstantiateWithFlags, &exec, graph,
                      one_in(3) ? CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH : 0) == 0) {
        const CUstream stream = world.streams[s].handle;
        for (int n = 1 + (int)below(3); n; n--) {
            CALLS(cuGraphLaunch, exec, stream);
            CALL(cuStreamSynchronize, stream);
            look_at(at, size);
            free_outside(at, context_of(other) == context_of(s) ? world.streams[other].handle : stream);
            CALL(cuCtxSynchronize); /* the next launch is to come behind */
        }
        if (one_in(2)) {
            CALL(cuGraphDestroy, graph);
            graph = NULL;
        }
        CALL(cuGraphExecDestroy, exec);
        CALLS(cuMemFreeAsync, at, stream);
        CALL(cuCtxSynchronize);
    }
    if (graph)
        CALL(cuGraphDestroy, graph);
    if (pool)
        CALL(cuMemPoolDestroy, pool);
}

static void ask_graph_memory(void) {
    cuuint64_t used = 77;
    int device = (int)below(DEVICES);
    if (world.captures || !drain_all())
        return;
    CALL(cuDeviceGetGraphMemAttribute, device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used);
    say(" %llu", (unsigned long long)used);
    used = below(2);
    CALL(cuDeviceSetGraphMemAttribute, device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used);
    if (one_in(4))
        CALL(cuDeviceGraphMemTrim, device);
}

/* ---- pools that are shown ---- */

/* Shown to the program itself, all at once: what the import says is looked at, and given back first. */
static void show_pool(void) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)below(DEVICES)}};
    CUmemoryPool pool = NULL, import = NULL, now = NULL;
    CUmemPoolPtrExportData data;
    CUdeviceptr at = 0, shown = 0;
    unsigned char byte = 0;
    int fd = -1, i = pick_block_of(1u << DEVICE | 1u << ASYNC);
    if (world.captures || current_context() < 0 || current_device() != props.location.id || current_has_ended())
        return;
    if (CALL(cuMemPoolCreate, &pool, &props))
        return;
    const bool current = one_in(3) && CALL(cuDeviceSetMemPool, props.location.id, pool) == 0;
    if (CALL(cuMemPoolExportToShareableHandle, &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == 0)
        CALL(cuMemPoolImportFromShareableHandle, &import, (void *)(intptr_t)fd,
             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (i >= 0 && one_in(2))
        CALL(cuMemPoolExportPointer, &data, world.blocks[i].at);
    const int res = current ? CALLS(cuMemAllocAsync, &at, 4096, CU_STREAM_PER_THREAD)
                            : CALLS(cuMemAllocFromPoolAsync, &at, 4096, pool, CU_STREAM_PER_THREAD);
    if (res == 0) {
        CALL(cuMemsetD8Async, at, 9, 4096, CU_STREAM_PER_THREAD);
        CALLS(cuStreamSynchronize, CU_STREAM_PER_THREAD);
        if (CALL(cuMemPoolExportPointer, &data, at) == 0 && import &&
            CALL(cuMemPoolImportPointer, &shown, import, &data) == 0) {
            CALL(cuMemcpyDtoH, &byte, shown + 100, 1);
            say(" %d", byte);
            if (one_in(2))
                CALLS(cuMemFreeAsync, shown, CU_STREAM_PER_THREAD);
            else
                CALL(cuMemFree, shown);
        }
        if (one_in(2))
            CALLS(cuMemFreeAsync, at, CU_STREAM_PER_THREAD);
        else
            CALL(cuMemFree, at);
        CALLS(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    }
    if (import)
        CALL(cuMemPoolDestroy, import);
    CALL(cuMemPoolDestroy, pool);
    if (fd >= 0)
        close(fd);
    if (current) {
        CALL(cuDeviceGetMemPool, &now, props.location.id);
        for (int p = 0; p < POOLS; p++)
            if (world.pools[p].device == props.location.id) {
                world.pools[p].current = p == props.location.id;
                if (now == world.pools[p].handle)
                    say(" p%d", p);
            }
    }
}

const struct step left_steps[] = {
    {"outlive", 2, outlive},
    {"graph_memory", 1, ask_graph_memory},
    {"show_pool", 1, show_pool},
    {0},
};
