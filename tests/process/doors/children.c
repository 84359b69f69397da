/* Graphs in graphs, kernels, host functions and conditional nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <string.h>

/* Writes a byte to as many as are said. */
static const char image[] = ".version 6.4\n"
                            ".target sm_75\n"
                            ".address_size 64\n"
                            ".visible .entry vp_fill(.param .u64 at, .param .u64 bytes, .param .u32 value) {\n"
                            "    .reg .u64 %p, %n;\n"
                            "    .reg .u32 %v;\n"
                            "    .reg .pred %over;\n"
                            "    ld.param.u64 %p, [at];\n"
                            "    ld.param.u64 %n, [bytes];\n"
                            "    ld.param.u32 %v, [value];\n"
                            "    cvta.to.global.u64 %p, %p;\n"
                            "    add.u64 %n, %n, %p;\n"
                            "next:\n"
                            "    setp.ge.u64 %over, %p, %n;\n"
                            "    @%over ret;\n"
                            "    st.global.u8 [%p], %v;\n"
                            "    add.u64 %p, %p, 1;\n"
                            "    bra next;\n"
                            "}\n";

/* The kernel as a context has it; NULL: it has none yet, and this is no time to load it. */
static CUfunction function_in(int context) {
    struct context *c = &world.contexts[context];
    CUmodule module = NULL;
    CUcontext unused;
    if (!c->fill && !world.captures) {
        cuCtxPushCurrent(c->handle);
        if (cuModuleLoadData(&module, image) || cuModuleGetFunction(&c->fill, module, "vp_fill"))
            c->fill = NULL;
        cuCtxPopCurrent(&unused);
    }
    return c->fill;
}

/* What a kernel is given: it is small, as one thread writes it all. */
struct given {
    CUdeviceptr at;
    uint64_t bytes;
    uint32_t value;
    void *params[3];
};

static void give(struct given *given, const struct block *b) {
    given->at = b->at;
    given->bytes = b->size > 4096 ? 4096 : b->size;
    given->value = below(256);
    given->params[0] = &given->at;
    given->params[1] = &given->bytes;
    given->params[2] = &given->value;
}

static bool kernel_may(int context, const struct block *b) {
    return (b->kind == DEVICE || b->kind == ASYNC || b->kind == MANAGED) && may_touch(context, b);
}

/* ---- kernels ---- */

static void launch_kernel(void) {
    int i = pick_block_of(1u << DEVICE | 1u << ASYNC | 1u << MANAGED), stream = pick_stream();
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    int context = context_of(stream);
    struct given given;
    if (i < 0 || context < 0 || !kernel_may(context, b) || !function_in(context) || !begin_use(b, stream))
        return;
    give(&given, b);
    say(" b%d s%d", i, stream);
    int res = CALLS(cuLaunchKernel, world.contexts[context].fill, 1, 1, 1, 1, 1, 1, 0, handle_of(stream), given.params,
                    NULL);
    end_use(b, stream, res);
}

static CUDA_KERNEL_NODE_PARAMS kernel_params(int context, struct given *given) {
    return (CUDA_KERNEL_NODE_PARAMS){.func = world.contexts[context].fill,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 1,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = given->params};
}

static void add_kernel(void) {
    int g = pick_made_graph(), i = pick_block_of(1u << DEVICE | 1u << ASYNC | 1u << MANAGED);
    struct graph *graph = &world.graphs[g < 0 ? 0 : g];
    struct given given;
    CUgraphNode node = NULL;
    int res;
    if (g < 0 || i < 0 || graph->count == NODES || current_context() < 0 || /* without one the driver crashes */
        !kernel_may(graph->context, &world.blocks[i]) || !function_in(graph->context))
        return;
    give(&given, &world.blocks[i]);
    CUDA_KERNEL_NODE_PARAMS p = kernel_params(graph->context, &given);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, &p, sizeof(p));
    const CUgraphNode *last = last_node(graph);
    say(" g%d b%d", g, i);
    res = one_in(3) ? CALL(cuGraphAddNode_v2, &node, graph->graph, last, NULL, last != NULL, &params)
                    : CALL(cuGraphAddKernelNode, &node, graph->graph, last, last != NULL, &p);
    added(g, KERNEL_NODE, i, -1, node, res);
}

static void set_kernel(void) {
    int g, i = pick_block_of(1u << DEVICE | 1u << ASYNC | 1u << MANAGED);
    struct node *node = pick_node(&g);
    struct graph *graph = &world.graphs[g < 0 ? 0 : g];
    CUDA_KERNEL_NODE_PARAMS told = {0};
    struct given given;
    if (!node || node->what != KERNEL_NODE || i < 0 || current_context() < 0 ||
        !kernel_may(graph->context, &world.blocks[i]))
        return;
    give(&given, &world.blocks[i]);
    CUDA_KERNEL_NODE_PARAMS p = kernel_params(graph->context, &given);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, &p, sizeof(p));
    say(" g%d b%d", g, i);
    int res = graph->exec && one_in(2) ? one_in(2) ? CALL(cuGraphExecKernelNodeSetParams, graph->exec, node->node, &p)
                                                   : CALL(cuGraphExecNodeSetParams, graph->exec, node->node, &params)
                                       : CALL(cuGraphKernelNodeSetParams, node->node, &p);
    if (res == 0) {
        node->to = i;
        world.blocks[i].graphs |= 1u << g;
    }
    if (CALL(cuGraphKernelNodeGetParams, node->node, &told) == 0 && told.kernelParams) {
        say_address(*(CUdeviceptr *)told.kernelParams[0]);
        say(" %llu", *(unsigned long long *)told.kernelParams[1]);
    }
}

/* ---- host functions ---- */

static void add_host(void) {
    int g = pick_made_graph();
    struct graph *graph = &world.graphs[g < 0 ? 0 : g];
    CUDA_HOST_NODE_PARAMS p = {.fn = host_counts};
    CUgraphNode node = NULL;
    if (g < 0 || graph->count == NODES || !one_in(3))
        return;
    const CUgraphNode *last = last_node(graph);
    say(" g%d", g);
    added(g, HOST_NODE, -1, -1, node, CALL(cuGraphAddHostNode, &node, graph->graph, last, last != NULL, &p));
    if (node)
        graph->nodes[graph->count - 1].node = node;
}

/* ---- graphs in graphs ---- */

static void add_child(void) {
    int g = pick_made_graph(), h = pick_graph();
    struct graph *graph = &world.graphs[g < 0 ? 0 : g], *child = &world.graphs[h < 0 ? 0 : h];
    CUgraphNode node = NULL;
    if (g < 0 || h < 0 || graph->count == NODES || g == h)
        return;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    const bool move = one_in(3) && !child->exec && !child->conditional && (!child->made || !graph->memory);
    params.graph.graph = child->graph;
    params.graph.ownership = move ? CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE : CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
    const CUgraphNode *last = last_node(graph);
    say(" g%d g%d%s", g, h, move ? " moved" : "");
    int res = move || one_in(2) ? CALL(cuGraphAddNode_v2, &node, graph->graph, last, NULL, last != NULL, &params)
                                : CALL(cuGraphAddChildGraphNode, &node, graph->graph, last, last != NULL, child->graph);
    added(g, CHILD_NODE, -1, -1, node, res);
    if (res)
        return;
    share_blocks(g, h);
    graph->abroad |= child->abroad || child->context != graph->context;
    if (move) {
        graph->memory |= child->memory || !child->made; /* a capture's may have some */
        release_blocks(h);
        memset(child, 0, sizeof(*child));
    }
}

static void change_child(void) {
    int g, h = pick_graph(), i = pick_block_of(1u << DEVICE | 1u << ASYNC | 1u << MANAGED);
    const struct node *node = pick_node(&g);
    struct graph *graph = &world.graphs[g < 0 ? 0 : g];
    CUgraph child = NULL;
    CUgraphNode inner = NULL;
    struct given given;
    size_t count = 0;
    if (!node || node->what != CHILD_NODE)
        return;
    say(" g%d", g);
    if (graph->exec && h >= 0 && !may_be_spilled(g) && !may_be_spilled(h) && one_in(2)) {
        say(" g%d", h);
        if (CALL(cuGraphExecChildGraphNodeSetParams, graph->exec, node->node, world.graphs[h].graph) == 0) {
            share_blocks(g, h);
            graph->abroad |= world.graphs[h].abroad || world.graphs[h].context != graph->context;
        }
        return;
    }
    if (CALL(cuGraphChildGraphNodeGetGraph, node->node, &child) || CALL(cuGraphGetNodes, child, NULL, &count))
        return;
    say(" %zu", count);
    if (i < 0 || !kernel_may(graph->context, &world.blocks[i]) || !function_in(graph->context) || !one_in(2))
        return;
    give(&given, &world.blocks[i]);
    CUDA_KERNEL_NODE_PARAMS p = kernel_params(graph->context, &given);
    if (CALL(cuGraphAddKernelNode, &inner, child, NULL, 0, &p) == 0)
        world.blocks[i].graphs |= 1u << g;
}

static void find_in_clone(void) {
    int g, h = pick_graph();
    const struct node *node = pick_node(&g);
    CUgraphNode found = NULL;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_HOST;
    if (!node || h < 0)
        return;
    say(" g%d g%d", g, h);
    if (CALL(cuGraphNodeFindInClone, &found, node->node, world.graphs[h].graph) == 0 &&
        CALL(cuGraphNodeGetType, found, &type) == 0)
        say(" %d", (int)type);
}

/* ---- conditional nodes ---- */

static void add_conditional(void) {
    int g = pick_made_graph(), i = pick_block_of(1u << DEVICE | 1u << ASYNC);
    struct graph *graph = &world.graphs[g < 0 ? 0 : g];
    CUgraphConditionalHandle handle = 0;
    CUgraphNode node = NULL, inner = NULL;
    struct given given;
    if (g < 0 || i < 0 || graph->count == NODES || current_context() < 0 ||
        !kernel_may(graph->context, &world.blocks[i]) || !function_in(graph->context))
        return;
    const CUcontext context = world.contexts[graph->context].handle;
    say(" g%d b%d", g, i);
    if (CALL(cuGraphConditionalHandleCreate, &handle, graph->graph, context, below(3), CU_GRAPH_COND_ASSIGN_DEFAULT))
        return;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = handle;
    params.conditional.type = one_in(2) ? CU_GRAPH_COND_TYPE_IF : CU_GRAPH_COND_TYPE_SWITCH;
    params.conditional.size = 1 + below(2);
    params.conditional.ctx = context;
    const CUgraphNode *last = last_node(graph);
    int res = CALL(cuGraphAddNode_v2, &node, graph->graph, last, NULL, last != NULL, &params);
    added(g, CONDITIONAL_NODE, -1, -1, node, res);
    if (res)
        return;
    graph->conditional = true;
    for (unsigned n = 0; n < params.conditional.size; n++) {
        give(&given, &world.blocks[i]);
        CUDA_KERNEL_NODE_PARAMS p = kernel_params(graph->context, &given);
        if (CALL(cuGraphAddKernelNode, &inner, params.conditional.phGraph_out[n], NULL, 0, &p) == 0)
            world.blocks[i].graphs |= 1u << g;
    }
}

const struct step child_steps[] = {
    {"launch_kernel", 4, launch_kernel},
    {"add_kernel", 5, add_kernel},
    {"set_kernel", 2, set_kernel},
    {"add_host", 1, add_host},
    {"add_child", 5, add_child},
    {"change_child", 4, change_child},
    {"find_in_clone", 1, find_in_clone},
    {"add_conditional", 2, add_conditional},
    {0},
};
