/* Nodes of graphs, one by one: adding them, asking for them and changing them, in a graph, its clones and executables.
 *
 * A node names one context, which has to reach both ends: of mapped memory that its own device alone may touch it is
 * refused (seen on two H200s). Memory of cuMemAlloc's own is copied by nodes between devices that were not given access
 * (seen there, too), and here also between devices that cannot have it, of which nothing is known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory.h"

#include <stdlib.h>
#include <string.h>

static CUresult add(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUresult made,
                    struct sim_op *const *op) {
    if (made != CUDA_SUCCESS)
        return made;
    if (!out || (count && !after) || !sim_graph_append(graph, *op, after, count)) {
        sim_op_put(*op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = (CUgraphNode)*op;
    return CUDA_SUCCESS;
}

static CUresult copy_of(const CUDA_MEMCPY3D *p, CUcontext handle, struct sim_op **op) {
    CUresult why;
    struct sim_context *context = sim_context_of(handle, &why);
    return context ? sim_copy_of(p, context, op) : why;
}

static CUresult fill_of(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext handle, struct sim_op **op) {
    CUresult why;
    struct sim_context *context = sim_context_of(handle, &why);
    return context ? sim_fill_of(p, context, op) : why;
}

SIM_API(0, 10000, cuGraphAddMemcpyNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_MEMCPY3D *p,
         CUcontext context),
        (out, graph, after, count, p, context)) {
    struct sim_op *op = NULL;
    return add(out, graph, after, count, copy_of(p, context, &op), &op);
}

SIM_API(0, 10000, cuGraphAddMemsetNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_MEMSET_NODE_PARAMS *p,
         CUcontext context),
        (out, graph, after, count, p, context)) {
    struct sim_op *op = NULL;
    return add(out, graph, after, count, fill_of(p, context, &op), &op);
}

SIM_API(0, 10000, cuGraphAddEmptyNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count),
        (out, graph, after, count)) {
    struct sim_op *op = sim_op_new(SIM_OP_NOP);
    return add(out, graph, after, count, CUDA_SUCCESS, &op);
}

/* Of the device, for the graph alone: as a stream captures it. */
SIM_API(0, 11040, cuGraphAddMemAllocNode,
        (CUgraphNode * out, CUgraph handle, const CUgraphNode *after, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *p),
        (out, handle, after, count, p)) {
    struct sim_graph *graph = handle ? sim_handle_get(SIM_GRAPH, handle) : NULL;
    struct sim_block *block;
    if (!out || !graph || !p || !p->bytesize || p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        p->poolProps.location.id < 0 || p->poolProps.location.id >= sim.options.devices)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->accessDescCount)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = sim_block_new(SIM_BLOCK_GRAPH, NULL, p->poolProps.location.id, p->bytesize, &block);
    if (result != CUDA_SUCCESS)
        return result;
    block->dead = block->on_list = true;
    block->graph = graph;
    LIST_INSERT_HEAD(&graph->blocks, block, link);
    struct sim_op *op = sim_op_new(SIM_OP_ALLOC);
    op->block = block;
    p->dptr = block->range.start;
    return add(out, handle, after, count, CUDA_SUCCESS, &op);
}

SIM_API(0, 11040, cuGraphAddMemFreeNode,
        (CUgraphNode * out, CUgraph handle, const CUgraphNode *after, size_t count, CUdeviceptr at),
        (out, handle, after, count, at)) {
    const struct sim_graph *graph = handle ? sim_handle_get(SIM_GRAPH, handle) : NULL;
    struct sim_block *block = sim_block_find((uintptr_t)at);
    if (!graph || !block || block->range.start != at || !sim_graph_may_free(graph, block))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = sim_graph_free_op(block, graph);
    return add(out, handle, after, count, CUDA_SUCCESS, &op);
}

#if CUDA_VERSION >= 12030
#undef cuGraphAddNode

/* Of a batch of one. */
static CUresult only_copy_of(const CUDA_MEMCPY_BATCH_NODE_PARAMS *p, struct sim_op **op) {
    if (p->count != 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    const CUDA_MEMCPY3D only = {.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = p->dsts[0],
                                .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = p->srcs[0],
                                .WidthInBytes = p->sizes[0],
                                .Height = 1,
                                .Depth = 1};
    return copy_of(&only, p->ctx, op);
}

static CUresult op_of(const CUgraphNodeParams *p, struct sim_op **op) {
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return copy_of(&p->memcpy.copyParams, p->memcpy.copyCtx, op);
    if ((int)p->type == CU_GRAPH_NODE_TYPE_MEMCPY_BATCH)
        return only_copy_of((const void *)&p->memcpy, op);
    if (p->type != CU_GRAPH_NODE_TYPE_MEMSET)
        return CUDA_ERROR_NOT_SUPPORTED;
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = p->memset.dst,
                                          .pitch = p->memset.pitch,
                                          .value = p->memset.value,
                                          .elementSize = p->memset.elementSize,
                                          .width = p->memset.width,
                                          .height = p->memset.height};
    return fill_of(&fill, p->memset.ctx, op);
}

static CUresult add_any(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                        const CUgraphNodeParams *p) {
    struct sim_op *op = NULL;
    return add(out, graph, after, count, op_of(p, &op), &op);
}

SIM_API(0, 12020, cuGraphAddNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNodeParams *p),
        (out, graph, after, count, p)) {
    return add_any(out, graph, after, count, p);
}

#define ADD_NODE_BEHIND(since, fn)                                                                                     \
    SIM_API(0, since, fn,                                                                                              \
            (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,   \
             CUgraphNodeParams *p),                                                                                    \
            (out, graph, after, edges, count, p)) {                                                                    \
        (void)edges;                                                                                                   \
        return add_any(out, graph, after, count, p);                                                                   \
    }
ADD_NODE_BEHIND(12030, cuGraphAddNode_v2)
ADD_NODE_BEHIND(13040, cuGraphAddNode_v3)
#endif

/* ---- what they are ---- */

static const CUgraphNodeType types[] = {
    [SIM_OP_NOP] = CU_GRAPH_NODE_TYPE_EMPTY,
    [SIM_OP_EVENT] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
    [SIM_OP_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
    [SIM_OP_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
    [SIM_OP_HOST] = CU_GRAPH_NODE_TYPE_HOST,
    [SIM_OP_WAIT_VALUE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
    [SIM_OP_WRITE_VALUE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
    [SIM_OP_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
    [SIM_OP_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
};

SIM_API(SIM_SURE, 10000, cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type), (node, type)) {
    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = types[((struct sim_op *)node)->kind];
    return CUDA_SUCCESS;
}

/* -1: the host's, or anyone's. */
static int device_at(uintptr_t at) {
    const struct sim_block *block = sim_block_find(at);
    const struct sim_mapping *mapping = block ? NULL : sim_range_find(&sim.mappings, at, at + 1);
    if (block)
        return block->kind >= SIM_BLOCK_MANAGED ? -1 : block->device;
    return mapping && !mapping->handle->host ? mapping->handle->device : -1;
}

static struct sim_op *node_of(CUgraphNode node, enum sim_op_kind kind) {
    struct sim_op *op = (struct sim_op *)node;
    return op && op->kind == kind ? op : NULL;
}

SIM_API(SIM_SURE, 10000, cuGraphMemcpyNodeGetParams, (CUgraphNode node, CUDA_MEMCPY3D *p), (node, p)) {
    const struct sim_op *op = node_of(node, SIM_OP_COPY);
    if (!op || !p)
        return CUDA_ERROR_INVALID_VALUE;
    const bool from_host = device_at(op->copy.src) < 0, to_host = device_at(op->copy.dst) < 0;
    *p = (CUDA_MEMCPY3D){.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                         .srcHost = from_host ? (void *)op->copy.src : NULL,
                         .srcDevice = from_host ? 0 : op->copy.src,
                         .srcPitch = op->copy.src_pitch,
                         .dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                         .dstHost = to_host ? (void *)op->copy.dst : NULL,
                         .dstDevice = to_host ? 0 : op->copy.dst,
                         .dstPitch = op->copy.dst_pitch,
                         .WidthInBytes = op->copy.width,
                         .Height = op->copy.height,
                         .Depth = 1};
    return CUDA_SUCCESS;
}

/* ---- changing them ---- */

/* What one does is from now on what the other did, which is no more. */
static void take(struct sim_op *node, struct sim_op *other) {
    if (node->kind == SIM_OP_COPY) {
        free(node->copy.staged);
        node->copy = other->copy;
        other->copy.staged = NULL;
    } else if (node->kind == SIM_OP_FILL) {
        node->fill = other->fill;
    }
    sim_op_put(other);
}

SIM_API(0, 10000, cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D *p), (node, p)) {
    struct sim_op *op = node_of(node, SIM_OP_COPY), *other;
    CUresult result = op ? sim_copy_of(p, op->copy.dst_by, &other) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        take(op, other);
    return result;
}

SIM_API(0, 10000, cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p), (node, p)) {
    struct sim_op *op = node_of(node, SIM_OP_FILL), *other;
    CUresult result = op ? sim_fill_of(p, op->fill.by, &other) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        take(op, other);
    return result;
}

#undef cuGraphNodeSetParams
static CUresult set_params(CUgraphNode node, const CUgraphNodeParams *p) {
    struct sim_op *op, *other = NULL;
    CUresult result = op_of(p, &other);
    if (result == CUDA_SUCCESS && !(op = node_of(node, other->kind))) {
        sim_op_put(other);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS)
        take(op, other);
    return result;
}

SIM_API(0, 12020, cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *p), (node, p)) {
    return set_params(node, p);
}

SIM_API(0, 13040, cuGraphNodeSetParams_v2, (CUgraphNode node, CUgraphNodeParams *p), (node, p)) {
    return set_params(node, p);
}

static struct sim_op *executable(CUgraphExec handle, CUgraphNode node, enum sim_op_kind kind) {
    const struct sim_exec *exec = handle ? sim_handle_get(SIM_EXEC, handle) : NULL;
    for (size_t i = 0; exec && i < exec->count; i++)
        if (exec->of[i] == (struct sim_op *)node && exec->of[i]->kind == kind)
            return exec->nodes[i];
    return NULL;
}

/* In an executable: rows alone, and memory of the same devices as before. */
static bool alike(const struct sim_op *old, const struct sim_op *new) {
    if (old->kind == SIM_OP_COPY)
        return old->copy.height == 1 && new->copy.height == 1 && device_at(old->copy.dst) == device_at(new->copy.dst) &&
               device_at(old->copy.src) == device_at(new->copy.src) && !old->copy.staged == !new->copy.staged &&
               old->copy.to_host == new->copy.to_host;
    return old->kind != SIM_OP_FILL ||
           (old->fill.height == 1 && new->fill.height == 1 && device_at(old->fill.dst) == device_at(new->fill.dst));
}

static CUresult exchange(struct sim_op *op, CUresult result, struct sim_op *const *other) {
    if (result != CUDA_SUCCESS)
        return result;
    if (!alike(op, *other)) {
        sim_op_put(*other);
        return CUDA_ERROR_INVALID_VALUE;
    }
    take(op, *other);
    return CUDA_SUCCESS;
}

SIM_API(0, 10010, cuGraphExecMemcpyNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p, CUcontext context), (exec, node, p, context)) {
    struct sim_op *op = executable(exec, node, SIM_OP_COPY), *other = NULL;
    return op ? exchange(op, copy_of(p, context, &other), &other) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(0, 10010, cuGraphExecMemsetNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context),
        (exec, node, p, context)) {
    struct sim_op *op = executable(exec, node, SIM_OP_FILL), *other = NULL;
    return op ? exchange(op, fill_of(p, context, &other), &other) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- all of a graph's ---- */

static size_t index_of(const struct sim_graph *graph, const struct sim_op *node) {
    size_t i = 0;
    while (i < graph->count && graph->nodes[i] != node)
        i++;
    return i;
}

/* Memory of a graph has one owner: such a graph has no clone, and its nodes stay. */
static struct sim_graph *free_of_memory(CUgraph handle) {
    struct sim_graph *graph = handle ? sim_handle_get(SIM_GRAPH, handle) : NULL;
    for (size_t i = 0; graph && i < graph->count; i++)
        if (graph->nodes[i]->kind == SIM_OP_ALLOC || graph->nodes[i]->kind == SIM_OP_FREE)
            return NULL;
    return graph;
}

SIM_API(0, 10000, cuGraphClone, (CUgraph * out, CUgraph handle), (out, handle)) {
    const struct sim_graph *from = out ? free_of_memory(handle) : NULL;
    struct sim_graph *graph = from ? calloc(1, sizeof(*graph)) : NULL;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    graph->refs = 1;
    *out = graph->handle = sim_handle_new(SIM_GRAPH, graph);
    for (size_t i = 0; i < from->count; i++) {
        const struct sim_op *node = from->nodes[i];
        struct sim_op *op = sim_op_again(node);
        for (unsigned d = 0; d < node->dep_count; d++) {
            size_t at = index_of(from, node->deps[d]);
            if (at < i)
                sim_op_follow(op, graph->nodes[at]);
        }
        sim_graph_append(*out, op, NULL, 0);
    }
    return CUDA_SUCCESS;
}

SIM_API(0, 10000, cuGraphDestroyNode, (CUgraphNode node), (node)) {
    struct sim_op *op = (struct sim_op *)node;
    struct sim_graph *graph = op && op->graph ? free_of_memory(op->graph->handle) : NULL;
    size_t at = graph ? index_of(graph, op) : 0;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = at + 1; i < graph->count; i++) {
        struct sim_op *after = graph->nodes[i];
        unsigned kept = 0;
        for (unsigned d = 0; d < after->dep_count; d++)
            if (after->deps[d] != op)
                after->deps[kept++] = after->deps[d];
            else
                sim_op_put(op);
        after->dep_count = kept;
        graph->nodes[i - 1] = after;
    }
    graph->count--;
    op->graph = NULL;
    sim_op_put(op);
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12000
/* The same kinds in the same order, each behind as many; else nothing is changed. */
SIM_API(0, 12000, cuGraphExecUpdate_v2, (CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *info),
        (handle, graph_handle, info)) {
    struct sim_exec *exec = handle ? sim_handle_get(SIM_EXEC, handle) : NULL;
    struct sim_graph *graph = free_of_memory(graph_handle);
    if (!exec || !graph || !info)
        return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    if (exec->count != graph->count)
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < graph->count && info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
        const struct sim_op *old = exec->nodes[i], *new = graph->nodes[i];
        if (exec->of[i]->dep_count != new->dep_count)
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        else if (old->kind != new->kind)
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        else if (!alike(old, new))
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    for (size_t i = 0; i < graph->count; i++)
        take(exec->nodes[i], sim_op_again(graph->nodes[i]));
    return CUDA_SUCCESS;
}
#endif
