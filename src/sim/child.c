/* Graphs within graphs: nodes that contain graphs, clones, and updates of executables.
 *
 * Of the graphs of a conditional node, a launch runs the one that its handle's default value selects, since there is no
 * kernel that could set another value. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory.h"

#include <stdlib.h>

static struct sim_graph *graph_of(CUgraph handle) {
    return handle ? sim_handle_get(SIM_GRAPH, handle) : NULL;
}

/* ---- what a node holds ---- */

struct sim_op *sim_child_op(enum sim_op_kind kind, unsigned count, unsigned chosen, struct sim_graph **graphs) {
    struct sim_op *op = sim_op_new(kind);
    struct sim_child *child = op->child = malloc(sizeof(*child));
    if (!child)
        abort();
    *child = (struct sim_child){count, chosen, calloc(count, sizeof(struct sim_graph *)),
                                calloc(count, sizeof(CUgraph))};
    if (!child->graphs || !child->handles)
        abort();
    for (unsigned i = 0; i < count; i++) {
        struct sim_graph *graph = child->graphs[i] = graphs[i];
        graph->embedded = true;
        if (!graph->handle)
            graph->handle = sim_handle_new(SIM_GRAPH, graph);
        child->handles[i] = graph->handle;
    }
    return op;
}

struct sim_child *sim_child_copy(const struct sim_child *child) {
    struct sim_graph *copies[child->count];
    for (unsigned i = 0; i < child->count; i++)
        copies[i] = sim_graph_copy(child->graphs[i]);
    struct sim_op *op = sim_child_op(SIM_OP_GRAPH, child->count, child->chosen, copies);
    struct sim_child *copy = op->child;
    op->kind = SIM_OP_NOP;
    sim_op_put(op);
    return copy;
}

void sim_child_free(struct sim_child *child) {
    for (unsigned i = 0; i < child->count; i++) {
        sim_handle_free(SIM_GRAPH, child->handles[i]);
        child->graphs[i]->handle = NULL;
        sim_graph_put(child->graphs[i]);
    }
    free(child->graphs);
    free(child->handles);
    free(child);
}

bool sim_graph_has(const struct sim_graph *graph, unsigned kinds) {
    for (size_t i = 0; i < graph->count; i++) {
        const struct sim_op *op = graph->nodes[i];
        const bool holds = op->kind == SIM_OP_GRAPH || op->kind == SIM_OP_CONDITIONAL;
        if (kinds >> op->kind & 1)
            return true;
        for (unsigned c = 0; holds && c < op->child->count; c++)
            if (sim_graph_has(op->child->graphs[c], kinds))
                return true;
    }
    return false;
}

static void flatten(const struct sim_graph *graph, struct sim_op *top, struct sim_flat *flat) {
    for (size_t i = 0; i < graph->count; i++) {
        struct sim_op *op = graph->nodes[i];
        if (op->kind == SIM_OP_GRAPH || op->kind == SIM_OP_CONDITIONAL) {
            if (op->child->chosen < op->child->count)
                flatten(op->child->graphs[op->child->chosen], top ? top : op, flat);
            continue;
        }
        if (flat->count == flat->room) {
            flat->room = flat->room ? 2 * flat->room : 16;
            flat->ops = realloc(flat->ops, flat->room * sizeof(*flat->ops));
            flat->tops = realloc(flat->tops, flat->room * sizeof(*flat->tops));
            if (!flat->ops || !flat->tops)
                abort();
        }
        flat->ops[flat->count] = op;
        flat->tops[flat->count++] = top ? top : op;
    }
}

void sim_graph_flatten(const struct sim_graph *graph, struct sim_flat *flat) {
    flatten(graph, NULL, flat);
}

void sim_flat_free(struct sim_flat *flat) {
    free(flat->ops);
    free(flat->tops);
}

/* Makes a node of a clone of the program's graph, or of the graph itself, which the node then owns. */
CUresult sim_child_of(CUgraph handle, bool move, struct sim_op **op) {
    struct sim_graph *graph = graph_of(handle);
    if (!graph || (move && graph->embedded))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_graph_has(graph, 1u << SIM_OP_CONDITIONAL | (move ? 0 : SIM_MEMORY_NODES)))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (move)
        graph->moved = true;
    else
        graph = sim_graph_copy(graph);
    *op = sim_child_op(SIM_OP_GRAPH, 1, 0, &graph);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 10000, cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *out), (node, out)) {
    const struct sim_op *op = (struct sim_op *)node;
    if (!op || !out || op->kind != SIM_OP_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    *out = op->child->handles[0];
    return CUDA_SUCCESS;
}

/* ---- conditional nodes ---- */

#if CUDA_VERSION >= 12030
SIM_API(0, 12030, cuGraphConditionalHandleCreate,
        (CUgraphConditionalHandle * out, CUgraph graph, CUcontext context, unsigned int value, unsigned int flags),
        (out, graph, context, value, flags)) {
    CUresult why;
    if (!out || !graph_of(graph) || flags > CU_GRAPH_COND_ASSIGN_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_context_of(context, &why))
        return why;
    *out = (uint64_t)++sim.next_id << 32 | (flags ? value : 0);
    return CUDA_SUCCESS;
}

CUresult sim_conditional_of(void *params, struct sim_op **op) {
    CUDA_CONDITIONAL_NODE_PARAMS *p = params;
    const unsigned value = (unsigned)p->handle;
    unsigned chosen = value;
    if (!p->handle || !p->size || p->type > CU_GRAPH_COND_TYPE_SWITCH ||
        (p->type == CU_GRAPH_COND_TYPE_IF && p->size > 2) || (p->type == CU_GRAPH_COND_TYPE_WHILE && p->size > 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (p->type == CU_GRAPH_COND_TYPE_WHILE && value)
        return CUDA_ERROR_NOT_SUPPORTED; /* the graph would contain itself */
    if (p->type != CU_GRAPH_COND_TYPE_SWITCH)
        chosen = !value;
    struct sim_graph *graphs[p->size];
    for (unsigned i = 0; i < p->size; i++) {
        if (!(graphs[i] = calloc(1, sizeof(*graphs[i]))))
            abort();
        graphs[i]->refs = 1;
    }
    *op = sim_child_op(SIM_OP_CONDITIONAL, p->size, chosen, graphs);
    p->phGraph_out = (*op)->child->handles;
    return CUDA_SUCCESS;
}
#endif

/* ---- clones ---- */

static size_t index_of(const struct sim_graph *graph, const struct sim_op *node) {
    size_t i = 0;
    while (i < graph->count && graph->nodes[i] != node)
        i++;
    return i;
}

struct sim_graph *sim_graph_copy(const struct sim_graph *from) {
    struct sim_graph *graph = calloc(1, sizeof(*graph));
    if (!graph)
        abort();
    graph->refs = 1;
    for (size_t i = 0; i < from->count; i++) {
        const struct sim_op *node = from->nodes[i];
        struct sim_op *op = sim_op_again(node);
        for (unsigned d = 0; d < node->dep_count; d++) {
            size_t at = index_of(from, node->deps[d]);
            if (at < i)
                sim_op_follow(op, graph->nodes[at]);
        }
        sim_graph_add(graph, op);
    }
    return graph;
}

SIM_API(0, 10000, cuGraphClone, (CUgraph * out, CUgraph handle), (out, handle)) {
    const struct sim_graph *from = graph_of(handle);
    if (!out || !from)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_graph_has(from, SIM_MEMORY_NODES | 1u << SIM_OP_CONDITIONAL))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_graph *graph = sim_graph_copy(from);
    *out = graph->handle = sim_handle_new(SIM_GRAPH, graph);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 10000, cuGraphNodeFindInClone, (CUgraphNode * out, CUgraphNode node, CUgraph handle),
        (out, node, handle)) {
    const struct sim_graph *graph = graph_of(handle);
    for (size_t i = 0; out && node && graph && i < graph->count; i++)
        if (graph->nodes[i]->original == ((struct sim_op *)node)->node) {
            *out = (CUgraphNode)graph->nodes[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Nodes of graph memory have one owner and cannot be removed. */
SIM_API(0, 10000, cuGraphDestroyNode, (CUgraphNode node), (node)) {
    struct sim_op *op = (struct sim_op *)node;
    struct sim_graph *graph = op && op->graph ? graph_of(op->graph->handle) : NULL;
    if (!graph || sim_graph_has(graph, SIM_MEMORY_NODES))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = index_of(graph, op) + 1; i < graph->count; i++) {
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

/* ---- updates ---- */

#if CUDA_VERSION >= 12000
/* Updates an executable's nodes from `first` on to these, if they have the same kinds in the same order, each with as
 * many dependencies. Otherwise nothing is changed. */
static CUgraphExecUpdateResult update(struct sim_exec *exec, size_t first, size_t count,
                                      const struct sim_graph *graph) {
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    struct sim_flat flat = {0};
    sim_graph_flatten(graph, &flat);
    if (flat.count != count)
        result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < flat.count && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
        const struct sim_op *old = exec->nodes[first + i], *new = flat.ops[i];
        if (exec->of[first + i]->dep_count != new->dep_count)
            result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        else if (old->kind != new->kind)
            result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        else if (!sim_node_alike(old, new))
            result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    for (size_t i = 0; i < flat.count && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++)
        sim_node_take(exec->nodes[first + i], sim_op_again(flat.ops[i]));
    sim_flat_free(&flat);
    return result;
}

SIM_API(0, 12000, cuGraphExecUpdate_v2, (CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *info),
        (handle, graph_handle, info)) {
    struct sim_exec *exec = handle ? sim_handle_get(SIM_EXEC, handle) : NULL;
    const struct sim_graph *graph = graph_of(graph_handle);
    if (!exec || !graph || !info || graph->moved || sim_graph_has(graph, SIM_MEMORY_NODES))
        return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){.result = update(exec, 0, exec->count, graph)};
    return info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

SIM_API(0, 11010, cuGraphExecChildGraphNodeSetParams, (CUgraphExec handle, CUgraphNode node, CUgraph graph_handle),
        (handle, node, graph_handle)) {
    struct sim_exec *exec = handle ? sim_handle_get(SIM_EXEC, handle) : NULL;
    const struct sim_graph *graph = graph_of(graph_handle);
    const struct sim_op *op = (struct sim_op *)node;
    size_t first = 0, count = 0;
    if (!exec || !graph || !op || op->kind != SIM_OP_GRAPH ||
        sim_graph_has(graph, SIM_MEMORY_NODES | 1u << SIM_OP_CONDITIONAL))
        return CUDA_ERROR_INVALID_VALUE;
    while (first < exec->count && exec->top[first] != op)
        first++;
    while (first + count < exec->count && exec->top[first + count] == op)
        count++;
    return update(exec, first, count, graph) == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
#endif
