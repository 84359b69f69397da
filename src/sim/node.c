/* Nodes of graphs, one by one: adding them, asking for them and changing them, in a graph, its clones and executables.
 *
 * A node names one context, which has to reach both ends: of mapped memory that its own device alone may touch it is
 * refused (seen on two H200s). Memory of cuMemAlloc's own is copied by nodes between devices that were not given access
 * (seen there, too), and here also between devices that cannot have it, of which nothing is known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory.h"

#include <stdlib.h>
#include <string.h>

CUresult sim_node_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUresult made,
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
    return sim_node_add(out, graph, after, count, copy_of(p, context, &op), &op);
}

SIM_API(0, 10000, cuGraphAddMemsetNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_MEMSET_NODE_PARAMS *p,
         CUcontext context),
        (out, graph, after, count, p, context)) {
    struct sim_op *op = NULL;
    return sim_node_add(out, graph, after, count, fill_of(p, context, &op), &op);
}

SIM_API(0, 10000, cuGraphAddEmptyNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count),
        (out, graph, after, count)) {
    struct sim_op *op = sim_op_new(SIM_OP_NOP);
    return sim_node_add(out, graph, after, count, CUDA_SUCCESS, &op);
}

SIM_API(0, 10000, cuGraphAddChildGraphNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child),
        (out, graph, after, count, child)) {
    struct sim_op *op = NULL;
    return sim_node_add(out, graph, after, count, sim_child_of(child, false, &op), &op);
}

/* Only memory of the device, for this graph alone: as a stream captures it. */
SIM_API(0, 11040, cuGraphAddMemAllocNode,
        (CUgraphNode * out, CUgraph handle, const CUgraphNode *after, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *p),
        (out, handle, after, count, p)) {
    struct sim_graph *graph = handle ? sim_handle_get(SIM_GRAPH, handle) : NULL;
    struct sim_block *block;
    if (!out || !graph || !p || !p->bytesize || p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        p->poolProps.location.id < 0 || p->poolProps.location.id >= sim.device_count)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->embedded || p->accessDescCount > SIM_MAX_DEVICES || (p->accessDescCount && !p->accessDescs))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned access = 0;
    for (size_t i = 0; i < p->accessDescCount; i++) {
        const CUmemAccessDesc *desc = &p->accessDescs[i];
        if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_ok(desc->location.id))
            return CUDA_ERROR_INVALID_VALUE;
        access |= desc->flags ? 1u << desc->location.id : 0;
    }
    CUresult result = sim_block_new(SIM_BLOCK_GRAPH, NULL, p->poolProps.location.id, p->bytesize, &block);
    if (result != CUDA_SUCCESS)
        return result;
    block->dead = block->on_list = true;
    block->access = access;
    block->graph = graph;
    LIST_INSERT_HEAD(&graph->blocks, block, link);
    struct sim_op *op = sim_op_new(SIM_OP_ALLOC);
    op->block = block;
    p->dptr = block->range.start;
    return sim_node_add(out, handle, after, count, CUDA_SUCCESS, &op);
}

SIM_API(0, 11040, cuGraphAddMemFreeNode,
        (CUgraphNode * out, CUgraph handle, const CUgraphNode *after, size_t count, CUdeviceptr at),
        (out, handle, after, count, at)) {
    const struct sim_graph *graph = handle ? sim_handle_get(SIM_GRAPH, handle) : NULL;
    struct sim_block *block = sim_block_find((uintptr_t)at);
    if (!graph || graph->embedded || !block || block->range.start != at || !sim_graph_may_free(graph, block))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = sim_graph_free_op(block, graph);
    return sim_node_add(out, handle, after, count, CUDA_SUCCESS, &op);
}

#if CUDA_VERSION >= 12030
#undef cuGraphAddNode

/* Makes the copy of a batch, which must have only one. */
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

static CUresult op_of(CUgraphNodeParams *p, struct sim_op **op) {
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return copy_of(&p->memcpy.copyParams, p->memcpy.copyCtx, op);
    if ((int)p->type == CU_GRAPH_NODE_TYPE_MEMCPY_BATCH)
        return only_copy_of((const void *)&p->memcpy, op);
    if (p->type == CU_GRAPH_NODE_TYPE_KERNEL)
        return sim_kernel_node_of(&p->kernel, op);
    if (p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return sim_conditional_of(&p->conditional, op);
    if (p->type == CU_GRAPH_NODE_TYPE_EMPTY)
        *op = sim_op_new(SIM_OP_NOP);
    if (p->type == CU_GRAPH_NODE_TYPE_EMPTY)
        return CUDA_SUCCESS;
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

static CUresult add_any(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNodeParams *p) {
    struct sim_op *op = NULL;
#if CUDA_VERSION >= 13000
    if (p && p->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return sim_node_add(
            out, graph, after, count,
            sim_child_of(p->graph.graph, p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE, &op), &op);
#endif
    return sim_node_add(out, graph, after, count, op_of(p, &op), &op);
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

static struct sim_op *node_of(CUgraphNode node, enum sim_op_kind kind) {
    struct sim_op *op = (struct sim_op *)node;
    return op && op->kind == kind ? op : NULL;
}

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
    [SIM_OP_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
    [SIM_OP_GRAPH] = CU_GRAPH_NODE_TYPE_GRAPH,
    [SIM_OP_CONDITIONAL] = CU_GRAPH_NODE_TYPE_CONDITIONAL,
};

SIM_API(SIM_SURE, 10000, cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type), (node, type)) {
    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = types[((struct sim_op *)node)->kind];
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 10000, cuGraphMemsetNodeGetParams, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *p), (node, p)) {
    const struct sim_op *op = node_of(node, SIM_OP_FILL);
    if (!op || !p)
        return CUDA_ERROR_INVALID_VALUE;
    *p = (CUDA_MEMSET_NODE_PARAMS){op->fill.dst,     op->fill.pitch, op->fill.value,
                                   op->fill.element, op->fill.width, op->fill.height};
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11040, cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *p), (node, p)) {
    static CUmemAccessDesc descs[SIM_MAX_DEVICES];
    const struct sim_op *op = node_of(node, SIM_OP_ALLOC);
    if (!op || !p)
        return CUDA_ERROR_INVALID_VALUE;
    *p = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = op->block->device}},
        .accessDescs = op->block->access ? descs : NULL,
        .bytesize = op->block->range.end - op->block->range.start,
        .dptr = op->block->range.start};
    for (int i = 0; i < SIM_MAX_DEVICES; i++)
        if (op->block->access >> i & 1)
            descs[p->accessDescCount++] = (CUmemAccessDesc){{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
                                                            CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11040, cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr *out), (node, out)) {
    const struct sim_op *op = node_of(node, SIM_OP_FREE);
    if (!op || !out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = op->block->range.start;
    return CUDA_SUCCESS;
}

/* Returns the device of an address; -1: the host's, or any device's. */
static int device_at(uintptr_t at) {
    const struct sim_block *block = sim_block_find(at);
    const struct sim_mapping *mapping = block ? NULL : sim_range_find(&sim.mappings, at, at + 1);
    if (block)
        return block->kind >= SIM_BLOCK_MANAGED ? -1 : block->device;
    return mapping && !mapping->handle->host ? mapping->handle->device : -1;
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

/* Gives a node the work of another, which no longer exists. */
void sim_node_take(struct sim_op *node, struct sim_op *other) {
    if (node->kind == SIM_OP_COPY) {
        free(node->copy.staged);
        node->copy = other->copy;
        other->copy.staged = NULL;
    } else if (node->kind == SIM_OP_FILL) {
        node->fill = other->fill;
    } else if (node->kind == SIM_OP_KERNEL) {
        node->kernel = other->kernel;
    } else if (node->kind == SIM_OP_HOST) {
        node->host = other->host;
    }
    sim_op_put(other);
}

SIM_API(0, 10000, cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D *p), (node, p)) {
    struct sim_op *op = node_of(node, SIM_OP_COPY), *other;
    CUresult result = op ? sim_copy_of(p, op->copy.dst_by, &other) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        sim_node_take(op, other);
    return result;
}

SIM_API(0, 10000, cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p), (node, p)) {
    struct sim_op *op = node_of(node, SIM_OP_FILL), *other;
    CUresult result = op ? sim_fill_of(p, op->fill.by, &other) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        sim_node_take(op, other);
    return result;
}

#undef cuGraphNodeSetParams
static CUresult set_params(CUgraphNode node, CUgraphNodeParams *p) {
    struct sim_op *op, *other = NULL;
    CUresult result = p && p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? CUDA_ERROR_INVALID_VALUE : op_of(p, &other);
    if (result == CUDA_SUCCESS && !(op = node_of(node, other->kind))) {
        sim_op_put(other);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS)
        sim_node_take(op, other);
    return result;
}

SIM_API(0, 12020, cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *p), (node, p)) {
    return set_params(node, p);
}

SIM_API(0, 13040, cuGraphNodeSetParams_v2, (CUgraphNode node, CUgraphNodeParams *p), (node, p)) {
    return set_params(node, p);
}

struct sim_op *sim_node_executable(CUgraphExec handle, CUgraphNode node, enum sim_op_kind kind) {
    const struct sim_exec *exec = handle ? sim_handle_get(SIM_EXEC, handle) : NULL;
    for (size_t i = 0; exec && i < exec->count; i++)
        if (exec->of[i] == (struct sim_op *)node && exec->of[i]->kind == kind)
            return exec->nodes[i];
    return NULL;
}

/* May a node of an executable get this work? Copies and fills must be single rows in memory of the same devices. */
bool sim_node_alike(const struct sim_op *old, const struct sim_op *new) {
    if (old->kind == SIM_OP_COPY)
        return old->copy.height == 1 && new->copy.height == 1 && device_at(old->copy.dst) == device_at(new->copy.dst) &&
               device_at(old->copy.src) == device_at(new->copy.src) && !old->copy.staged == !new->copy.staged &&
               old->copy.to_host == new->copy.to_host;
    if (old->kind == SIM_OP_KERNEL)
        return old->kernel.by == new->kernel.by;
    return old->kind != SIM_OP_FILL ||
           (old->fill.height == 1 && new->fill.height == 1 && device_at(old->fill.dst) == device_at(new->fill.dst));
}

static CUresult exchange(struct sim_op *op, CUresult result, struct sim_op *const *other) {
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_node_alike(op, *other)) {
        sim_op_put(*other);
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_node_take(op, *other);
    return CUDA_SUCCESS;
}

SIM_API(0, 10010, cuGraphExecMemcpyNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p, CUcontext context), (exec, node, p, context)) {
    struct sim_op *op = sim_node_executable(exec, node, SIM_OP_COPY), *other = NULL;
    return op ? exchange(op, copy_of(p, context, &other), &other) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(0, 10010, cuGraphExecMemsetNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context),
        (exec, node, p, context)) {
    struct sim_op *op = sim_node_executable(exec, node, SIM_OP_FILL), *other = NULL;
    return op ? exchange(op, fill_of(p, context, &other), &other) : CUDA_ERROR_INVALID_VALUE;
}

#if CUDA_VERSION >= 12030
SIM_API(0, 12020, cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p),
        (exec, node, p)) {
    struct sim_op *other = NULL, *op;
    CUresult result = p && p->type != CU_GRAPH_NODE_TYPE_CONDITIONAL ? op_of(p, &other) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS || (op = sim_node_executable(exec, node, other->kind)))
        return result == CUDA_SUCCESS ? exchange(op, result, &other) : result;
    sim_op_put(other);
    return CUDA_ERROR_INVALID_VALUE;
}
#endif
