/* Graphs that are made node by node, changed, cloned and updated. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <string.h>

#undef cuGraphAddNode

/* What may be in a node: memory that is there, and open, for as long as the graph is. */
enum { KINDS = 1u << DEVICE | 1u << ASYNC | 1u << HOST | 1u << REGISTERED | 1u << MANAGED };

static void make_graph(void) {
    int g = free_graph(), context = current_context();
    CUgraph graph = NULL;
    if (g < 0 || context < 0 || CALL(cuGraphCreate, &graph, one_in(20)))
        return;
    say(" g%d", g);
    world.graphs[g] = (struct graph){.taken = true, .graph = graph, .context = context, .made = true};
}

int pick_made_graph(void) {
    int g = pick_graph();
    return g >= 0 && world.graphs[g].made && world.contexts[world.graphs[g].context].alive ? g : -1;
}

static int device_of(const struct block *b) {
    return b->kind == DEVICE || b->kind == ASYNC ? b->device : -1;
}

static CUcontext context_of_graph(int g) {
    return world.contexts[world.graphs[g].context].handle;
}

const CUgraphNode *last_node(const struct graph *graph) {
    return graph->count ? &graph->nodes[graph->count - 1].node : NULL;
}

void added(int g, enum what what, int to, int from, CUgraphNode node, int res) {
    struct graph *graph = &world.graphs[g];
    if (res)
        return;
    graph->nodes[graph->count++] = (struct node){.what = what, .node = node, .to = to, .from = from};
    if (to >= 0)
        world.blocks[to].graphs |= 1u << g;
    if (from >= 0)
        world.blocks[from].graphs |= 1u << g;
}

static CUDA_MEMSET_NODE_PARAMS fill_of(const struct block *b) {
    const unsigned element = 1u << below(3);
    return (CUDA_MEMSET_NODE_PARAMS){.dst = b->at,
                                     .value = (unsigned)any() & (element < 4 ? (1u << 8 * element) - 1 : ~0u),
                                     .elementSize = element,
                                     .width = b->size / element,
                                     .height = 1};
}

static void add_fill(void) {
    int g = pick_made_graph(), i = pick_block_of(KINDS);
    CUgraphNode node = NULL;
    if (g < 0 || i < 0 || world.graphs[g].count == NODES)
        return;
    struct graph *graph = &world.graphs[g];
    const struct block *b = &world.blocks[i];
    if (device_of(b) >= 0 && b->device != world.contexts[graph->context].device)
        return;
    CUDA_MEMSET_NODE_PARAMS p = fill_of(b);
    const CUgraphNode *last = last_node(graph);
    say(" g%d b%d", g, i);
    int res = CALL(cuGraphAddMemsetNode, &node, graph->graph, last, last != NULL, &p, context_of_graph(g));
    added(g, FILL_NODE, i, -1, node, res);
}

static CUDA_MEMCPY3D copy_of(const struct block *to, const struct block *from) {
    size_t n = to->size < from->size ? to->size : from->size, width = n, height = 1;
    const bool named = one_in(2) && device_of(to) >= 0 && device_of(from) >= 0;
    if (one_in(3)) {
        width = 1 + below(n > 65536 ? 65536 : (unsigned)n);
        height = n / width;
    }
    return (CUDA_MEMCPY3D){.srcMemoryType = named ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = from->at,
                           .srcPitch = width,
                           .srcHeight = height,
                           .dstMemoryType = named ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = to->at,
                           .dstPitch = width,
                           .dstHeight = height,
                           .WidthInBytes = one_in(20) ? 0 : width,
                           .Height = height,
                           .Depth = 1};
}

/* Two blocks for a copy of this graph's. */
static bool pick_pair(int g, int *to, int *from) {
    *to = pick_block_of(KINDS);
    *from = pick_block_of(KINDS);
    return g >= 0 && *to >= 0 && *to != *from && may_copy(world.graphs[g].context, &world.blocks[*to]) &&
           may_copy(world.graphs[g].context, &world.blocks[*from]);
}

/* If all of it is one device's the node runs there. */
static bool may_be_added(int context, const struct block *to, const struct block *from) {
    const bool both = device_of(to) >= 0 && device_of(from) >= 0;
    return !both || device_of(to) == device_of(from) || may_copy_in_graph(context, to, from);
}

static void add_copy(void) {
    int g = pick_made_graph(), to, from, res;
    CUgraphNode node = NULL;
    if (!pick_pair(g, &to, &from) || world.graphs[g].count == NODES)
        return;
    struct graph *graph = &world.graphs[g];
    if (!may_be_added(graph->context, &world.blocks[to], &world.blocks[from]))
        return;
    CUDA_MEMCPY3D p = copy_of(&world.blocks[to], &world.blocks[from]);
    const CUgraphNode *last = last_node(graph);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    params.memcpy.copyParams = p;
    params.memcpy.copyCtx = context_of_graph(g);
    say(" g%d b%d < b%d", g, to, from);
    if (one_in(3))
        res = CALL(cuGraphAddNode_v2, &node, graph->graph, last, NULL, last != NULL, &params);
    else
        res = CALL(cuGraphAddMemcpyNode, &node, graph->graph, last, last != NULL, &p, context_of_graph(g));
    added(g, COPY_NODE, to, from, node, res);
}

/* Memory of the graph, which is filled, copied out of, and freed, all in the graph. */
static void add_memory(void) {
    int g = pick_made_graph(), i = pick_block_of(KINDS);
    struct graph *graph = &world.graphs[g < 0 ? 0 : g];
    if (g < 0 || i < 0 || graph->count + 4 > NODES || !may_copy(graph->context, &world.blocks[i]) ||
        !may_copy_in_graph(graph->context, &world.blocks[i], &world.blocks[i]))
        return;
    struct block own = {.kind = GRAPH, .size = 1 + some_size() % (1 << 20)};
    CUDA_MEM_ALLOC_NODE_PARAMS p = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = world.contexts[graph->context].device}},
        .bytesize = own.size};
    CUgraphNode node[4] = {NULL};
    const CUgraphNode *last = last_node(graph);
    say(" g%d b%d %zu", g, i, own.size);
    if (CALL(cuGraphAddMemAllocNode, &node[0], graph->graph, last, last != NULL, &p))
        return;
    graph->memory = true;
    own.at = p.dptr;
    added(g, MEMORY_NODE, -1, -1, node[0], 0);
    CUDA_MEMSET_NODE_PARAMS fill = fill_of(&own);
    fill.elementSize = 1, fill.width = own.size, fill.value &= 255;
    if (CALL(cuGraphAddMemsetNode, &node[1], graph->graph, &node[0], 1, &fill, context_of_graph(g)))
        return;
    added(g, MEMORY_NODE, -1, -1, node[1], 0);
    CUDA_MEMCPY3D copy = copy_of(&world.blocks[i], &own);
    int res = CALL(cuGraphAddMemcpyNode, &node[2], graph->graph, &node[1], 1, &copy, context_of_graph(g));
    added(g, MEMORY_NODE, i, -1, node[2], res);
    if (res)
        node[2] = node[1];
    CUdeviceptr freed = one_in(8) ? world.blocks[i].at : own.at;
    res = CALL(cuGraphAddMemFreeNode, &node[3], graph->graph, &node[2], 1, freed);
    added(g, MEMORY_NODE, -1, -1, node[3], res);
}

/* A node of its graph, or NULL. */
struct node *pick_node(int *g) {
    *g = pick_made_graph();
    struct graph *graph = &world.graphs[*g < 0 ? 0 : *g];
    return *g < 0 || !graph->count ? NULL : &graph->nodes[below((unsigned)graph->count)];
}

/* Of what kind it is, it must be asked by its own call alone. */
static void ask_others(CUgraphNode node) {
    CUDA_MEMSET_NODE_PARAMS fill = {0};
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {0};
    CUdeviceptr freed = 0;
    if (CALL(cuGraphMemsetNodeGetParams, node, &fill) == 0) {
        say_address(fill.dst);
        say(" %u %u %zux%zu", fill.value, fill.elementSize, fill.width, fill.height);
    }
    if (CALL(cuGraphMemAllocNodeGetParams, node, &alloc) == 0)
        say(" %zu of %d, %zu", alloc.bytesize, alloc.poolProps.location.id, alloc.accessDescCount);
    if (CALL(cuGraphMemFreeNodeGetParams, node, &freed) == 0)
        say_address(freed);
}

static void ask_node(void) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_HOST;
    CUDA_MEMCPY3D p;
    size_t count = 0;
    int g;
    const struct node *node = pick_node(&g);
    if (!node)
        return;
    say(" g%d", g);
    CALL(cuGraphGetNodes, world.graphs[g].graph, NULL, &count);
    CALL(cuGraphNodeGetType, node->node, &type);
    say(" %zu %d", count, (int)type);
    ask_others(node->node);
    if (CALL(cuGraphMemcpyNodeGetParams, node->node, &p))
        return;
    say_address(p.dstHost ? (CUdeviceptr)(uintptr_t)p.dstHost : p.dstDevice);
    say_address(p.srcHost ? (CUdeviceptr)(uintptr_t)p.srcHost : p.srcDevice);
    say(" %zux%zu", p.WidthInBytes, p.Height);
}

/* A node that runs elsewhere than its call said, since its memory is there, is not changed here. */
static bool may_change(int context, const struct node *node, int to, int from) {
    return may_copy_in_graph(context, &world.blocks[node->to], &world.blocks[node->from]) &&
           may_copy_in_graph(context, &world.blocks[to], &world.blocks[from]);
}

/* docs/spilling.md: what an executable does is not changed between spilled memory and the device's. */
bool may_be_spilled(int g) {
    for (int i = 0; i < BLOCKS; i++)
        if (world.blocks[i].graphs >> g & 1 && world.blocks[i].size >= SPILLED)
            return true;
    return false;
}

/* An executable graph's may be: not with another kind of memory, which is all the same here. */
static bool may_change_exec(const struct graph *graph, const struct node *node, int to, int from) {
    return graph->exec && one_in(2) && world.blocks[node->to].kind == world.blocks[to].kind &&
           !may_be_spilled((int)(graph - world.graphs)) && world.blocks[to].size < SPILLED &&
           (from < 0 || world.blocks[from].size < SPILLED) &&
           (from < 0 || world.blocks[node->from].kind == world.blocks[from].kind);
}

static void set_node(void) {
    int g, to, from, res;
    struct node *node = pick_node(&g);
    if (!node || node->what > COPY_NODE || world.graphs[g].memory || !pick_pair(g, &to, &from))
        return;
    struct graph *graph = &world.graphs[g];
    CUDA_MEMCPY3D p = copy_of(&world.blocks[to], &world.blocks[from]);
    if (node->from < 0) {
        if (device_of(&world.blocks[to]) != world.contexts[graph->context].device)
            return;
        CUDA_MEMSET_NODE_PARAMS fill = fill_of(&world.blocks[to]);
        from = -1;
        say(" g%d b%d", g, to);
        res = may_change_exec(graph, node, to, -1)
                  ? CALL(cuGraphExecMemsetNodeSetParams, graph->exec, node->node, &fill, context_of_graph(g))
                  : CALL(cuGraphMemsetNodeSetParams, node->node, &fill);
    } else {
        if (!may_change(graph->context, node, to, from))
            return;
        say(" g%d b%d < b%d", g, to, from);
        res = may_change_exec(graph, node, to, from)
                  ? CALL(cuGraphExecMemcpyNodeSetParams, graph->exec, node->node, &p, context_of_graph(g))
                  : CALL(cuGraphMemcpyNodeSetParams, node->node, &p);
    }
    if (res)
        return;
    node->to = to;
    node->from = from;
    world.blocks[to].graphs |= 1u << g;
    if (from >= 0)
        world.blocks[from].graphs |= 1u << g;
}

static void destroy_node(void) {
    int g = pick_made_graph();
    struct graph *graph = &world.graphs[g < 0 ? 0 : g];
    if (g < 0 || !graph->count || graph->memory)
        return;
    say(" g%d", g);
    if (CALL(cuGraphDestroyNode, graph->nodes[graph->count - 1].node) == 0)
        graph->count--;
}

/* Whatever one graph uses, the other does. */
void share_blocks(int with, int of) {
    for (int i = 0; i < BLOCKS; i++)
        if (world.blocks[i].graphs & 1u << of)
            world.blocks[i].graphs |= 1u << with;
}

static void clone_graph(void) {
    int g = pick_made_graph(), h = free_graph();
    CUgraph graph = NULL;
    if (g < 0 || h < 0)
        return;
    say(" g%d g%d", g, h);
    if (CALL(cuGraphClone, &graph, world.graphs[g].graph))
        return;
    world.graphs[h] = (struct graph){.taken = true, .graph = graph, .context = world.graphs[g].context};
    world.graphs[h].abroad = world.graphs[g].abroad;
    share_blocks(h, g);
}

static void update_graph(void) {
    int g = pick_graph(), h = pick_made_graph();
    CUgraphExecUpdateResultInfo info;
    if (g < 0 || h < 0 || !world.graphs[g].exec || world.graphs[g].memory || world.graphs[h].memory ||
        may_be_spilled(g) || may_be_spilled(h) || world.graphs[g].conditional || world.graphs[h].conditional ||
        world.graphs[g].context != world.graphs[h].context)
        return;
    say(" g%d g%d", g, h);
    memset(&info, 0, sizeof(info));
    if (CALL(cuGraphExecUpdate, world.graphs[g].exec, world.graphs[h].graph, &info) == 0)
        share_blocks(g, h);
    say(" %d", (int)info.result);
}

const struct step node_steps[] = {
    {"make_graph", 3, make_graph},     {"add_fill", 4, add_fill},
    {"add_copy", 7, add_copy},         {"add_memory", 2, add_memory},
    {"ask_node", 2, ask_node},         {"set_node", 3, set_node},
    {"destroy_node", 1, destroy_node}, {"clone_graph", 2, clone_graph},
    {"update_graph", 2, update_graph}, {0},
};
