/* Nodes of graphs, and the graphs within them. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim_private.h"

/* The graphs of a node. */
struct sim_child {
    unsigned count, chosen; /* `chosen` is the one that is run; from `count` on: none */
    struct sim_graph **graphs;
    CUgraph *handles;
};

struct sim_exec {
    CUgraphExec handle;
    struct sim_graph *graph;
    unsigned long long flags;
    struct sim_op **nodes, **of; /* what is run, and the nodes that it was made from; one reference each */
    struct sim_op **top;         /* the graph's own node that this is, or lies in */
    size_t count;
    struct sim_op *last; /* of the launch before: launches follow each other, on whatever streams */
};

/* Copies a graph with all nodes. The copy has no handle. */
struct sim_graph *sim_graph_copy(const struct sim_graph *from);
/* Is any node of these kinds (one bit each) in the graph, or in the graphs of its nodes? */
bool sim_graph_has(const struct sim_graph *graph, unsigned kinds);
enum { SIM_MEMORY_NODES = 1u << SIM_OP_ALLOC | 1u << SIM_OP_FREE };

/* What a launch runs: all nodes that are work, also those of nodes' graphs. */
struct sim_flat {
    struct sim_op **ops, **tops;
    size_t count, room;
};
void sim_graph_flatten(const struct sim_graph *graph, struct sim_flat *flat);
void sim_flat_free(struct sim_flat *flat);

/* Makes a node that holds graphs (child.c): takes over the graphs. */
struct sim_op *sim_child_op(enum sim_op_kind kind, unsigned count, unsigned chosen, struct sim_graph **graphs);
struct sim_child *sim_child_copy(const struct sim_child *child);
CUresult sim_child_of(CUgraph handle, bool move, struct sim_op **op);
CUresult sim_conditional_of(void *params, struct sim_op **op);

/* Nodes (node.c): adding one that was made, or was not; what one does is from now on what the other did, which is no
 * more; may it, in an executable? And what is run for a node there. */
CUresult sim_node_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count, CUresult made,
                      struct sim_op *const *op);
void sim_node_take(struct sim_op *node, struct sim_op *other);
bool sim_node_alike(const struct sim_op *old, const struct sim_op *new);
struct sim_op *sim_node_executable(CUgraphExec handle, CUgraphNode node, enum sim_op_kind kind);

/* Make the work of a kernel (code.c, kernel.c), or say why there is none. */
CUresult sim_kernel_of(CUfunction function, const unsigned *shape, void **params, struct sim_op **op);
CUresult sim_kernel_node_of(const void *v2, struct sim_op **op);
/* Make the work of a node in a context, or say why there is none. */
CUresult sim_copy_of(const CUDA_MEMCPY3D *p, const struct sim_context *context, struct sim_op **op);
CUresult sim_fill_of(const CUDA_MEMSET_NODE_PARAMS *p, const struct sim_context *context, struct sim_op **op);

/* Adds a node to a graph, after some that it has. Takes over the reference. False: there is no such graph. */
void sim_graph_add(struct sim_graph *graph, struct sim_op *op);
bool sim_graph_append(CUgraph handle, struct sim_op *op, const CUgraphNode *after, size_t count);
