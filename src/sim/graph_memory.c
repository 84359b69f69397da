/* Memory of graphs: who may free it, and when. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory.h"

void sim_graph_memory_give(struct sim_block *block) {
    block->given = true;
    block->graph->refs++;
}

void sim_graph_memory_take(struct sim_block *block) {
    if (!block->given)
        return;
    block->given = false;
    sim_graph_put(block->graph);
}

/* A graph frees a block only once, and a block is not freed both by its own graph and by others. */
bool sim_graph_may_free(const struct sim_graph *graph, const struct sim_block *block) {
    if (block->kind != SIM_BLOCK_GRAPH || (graph == block->graph ? block->freed_abroad : block->freed_at_home))
        return false;
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->kind == SIM_OP_FREE && graph->nodes[i]->block == block)
            return false;
    return true;
}

struct sim_op *sim_graph_free_op(struct sim_block *block, const struct sim_graph *in) {
    struct sim_op *op = sim_op_new(SIM_OP_FREE);
    op->block = block;
    block->freed_at_home |= in == block->graph;
    block->freed_abroad |= in && in != block->graph;
    if (in == block->graph)
        return op;
    /* The block's graph lives until this op is done. */
    op->launched = block->graph;
    op->launched->refs++;
    if (!in)
        sim_graph_memory_take(block);
    return op;
}

static bool frees_itself(const struct sim_exec *exec) {
    return exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
}

static bool allocates(const struct sim_exec *exec, const struct sim_block *block) {
    for (size_t i = 0; i < exec->count; i++)
        if (exec->nodes[i]->kind == SIM_OP_ALLOC && exec->nodes[i]->block == block)
            return true;
    return false;
}

bool sim_graph_may_launch(const struct sim_exec *exec) {
    for (size_t i = 0; i < exec->count; i++) {
        const struct sim_op *op = exec->nodes[i];
        if (op->kind == SIM_OP_ALLOC && op->block->given && !frees_itself(exec))
            return false;
        if (op->kind == SIM_OP_FREE && !op->block->given && !allocates(exec, op->block))
            return false;
    }
    return true;
}

void sim_graph_memory_take_unfreed(struct sim_exec *exec, struct sim_stream *stream) {
    for (size_t i = 0; i < exec->count; i++) {
        struct sim_op *op = exec->nodes[i];
        if (op->kind != SIM_OP_ALLOC || !op->block->given)
            continue;
        struct sim_op *free_op = sim_graph_free_op(op->block, NULL);
        sim_op_depend(free_op, exec->last);
        sim_op_enqueue(stream, free_op);
    }
}

static void find_given(void *item, void *found) {
    struct sim_block *block = item;
    if (block->kind == SIM_BLOCK_GRAPH && block->given)
        *(struct sim_block **)found = block;
}

void sim_graph_memory_reset(void) {
    for (struct sim_block *given = NULL;; given = NULL) {
        sim_range_each(sim.blocks, find_given, &given);
        if (!given)
            break;
        sim_graph_memory_take(given);
    }
}

bool sim_graph_memory_trim(int device, size_t most) {
    size_t *left = &sim.devices[device].of_graphs, given = *left < most ? *left : most;
    *left -= given;
    sim_phys_give(device, given);
    return given > 0;
}

SIM_API(SIM_SURE, 11040, cuDeviceGraphMemTrim, (CUdevice device), (device)) {
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_graph_memory_trim(device, SIZE_MAX);
    return CUDA_SUCCESS;
}

/* Adds up what launches have allocated and nobody has freed. The driver reserves more than that, which is not modelled.
 */
static void add_used(void *item, void *sum) {
    const struct sim_block *block = item;
    size_t *of = sum;
    if (block->kind == SIM_BLOCK_GRAPH && block->given)
        of[block->device] += block->phys;
}

SIM_API(SIM_SURE, 11040, cuDeviceGetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute which, void *value),
        (device, which, value)) {
    size_t used[SIM_MAX_DEVICES] = {0};
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || which > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    if (which != CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_range_each(sim.blocks, add_used, used);
    *(cuuint64_t *)value = used[device];
    return CUDA_SUCCESS;
}

/* High-water marks can only be reset. */
SIM_API(SIM_SURE, 11040, cuDeviceSetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute which, void *value),
        (device, which, value)) {
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return value && !*(cuuint64_t *)value &&
                   (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}
