/* Kernel nodes and host-function nodes, in graphs and executables. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nodes.h"

#include <string.h>

/* Both forms begin with the same members, and so does that of cuGraphAddNode. */
CUresult sim_kernel_node_of(const void *v2, struct sim_op **op) {
    const CUDA_KERNEL_NODE_PARAMS *p = v2;
    CUresult result = sim_kernel_of(p->func, &p->gridDimX, p->kernelParams, op);
    if (result == CUDA_SUCCESS)
        (*op)->kernel.shared = p->sharedMemBytes;
    return result;
}

static struct sim_op *kernel_of(CUgraphNode node) {
    struct sim_op *op = (struct sim_op *)node;
    return op && op->kind == SIM_OP_KERNEL ? op : NULL;
}

static CUresult tell(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p) {
    struct sim_op *op = kernel_of(node);
    if (!op || !p)
        return CUDA_ERROR_INVALID_VALUE;
    op->kernel.params[0] = &op->kernel.at;
    op->kernel.params[1] = &op->kernel.bytes;
    op->kernel.params[2] = &op->kernel.value;
    p->func = op->kernel.function;
    memcpy(&p->gridDimX, op->kernel.grid, sizeof(op->kernel.grid));
    memcpy(&p->blockDimX, op->kernel.threads, sizeof(op->kernel.threads));
    p->sharedMemBytes = op->kernel.shared;
    p->kernelParams = op->kernel.at ? op->kernel.params : NULL;
    p->extra = NULL;
    return CUDA_SUCCESS;
}

static CUresult set(struct sim_op *node, const void *p) {
    struct sim_op *op;
    CUresult result = node && p ? sim_kernel_node_of(p, &op) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    /* The context of the function must stay the same. */
    if (op->kernel.by != node->kernel.by) {
        sim_op_put(op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_node_take(node, op);
    return CUDA_SUCCESS;
}

#undef cuGraphAddKernelNode
#undef cuGraphKernelNodeGetParams
#undef cuGraphKernelNodeSetParams
#undef cuGraphExecKernelNodeSetParams

#define KERNEL_NODES(since, suffix, params)                                                                            \
    SIM_API(0, since, cuGraphAddKernelNode##suffix,                                                                    \
            (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count, const params *p),               \
            (out, graph, after, count, p)) {                                                                           \
        struct sim_op *op = NULL;                                                                                      \
        CUresult result = p ? sim_kernel_node_of(p, &op) : CUDA_ERROR_INVALID_VALUE;                                   \
        return sim_node_add(out, graph, after, count, result, &op);                                                    \
    }                                                                                                                  \
    SIM_API(SIM_SURE, since, cuGraphKernelNodeGetParams##suffix, (CUgraphNode node, params * p), (node, p)) {          \
        if (p)                                                                                                         \
            memset(p, 0, sizeof(*p));                                                                                  \
        return tell(node, (CUDA_KERNEL_NODE_PARAMS *)(void *)p);                                                       \
    }                                                                                                                  \
    SIM_API(0, since, cuGraphKernelNodeSetParams##suffix, (CUgraphNode node, const params *p), (node, p)) {            \
        return set(kernel_of(node), p);                                                                                \
    }                                                                                                                  \
    SIM_API(0, since, cuGraphExecKernelNodeSetParams##suffix, (CUgraphExec exec, CUgraphNode node, const params *p),   \
            (exec, node, p)) {                                                                                         \
        return set(sim_node_executable(exec, node, SIM_OP_KERNEL), p);                                                 \
    }
#if CUDA_VERSION >= 12000
KERNEL_NODES(10000, , CUDA_KERNEL_NODE_PARAMS_v1)
KERNEL_NODES(12000, _v2, CUDA_KERNEL_NODE_PARAMS)
#endif

/* ---- host functions ---- */

static CUresult host_of(const CUDA_HOST_NODE_PARAMS *p, struct sim_op **op) {
    if (!p || !p->fn)
        return CUDA_ERROR_INVALID_VALUE;
    *op = sim_op_new(SIM_OP_HOST);
    (*op)->host.fn = p->fn;
    (*op)->host.arg = p->userData;
    return CUDA_SUCCESS;
}

SIM_API(0, 10000, cuGraphAddHostNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_HOST_NODE_PARAMS *p),
        (out, graph, after, count, p)) {
    struct sim_op *op = NULL;
    return sim_node_add(out, graph, after, count, host_of(p, &op), &op);
}

SIM_API(SIM_SURE, 10000, cuGraphHostNodeGetParams, (CUgraphNode node, CUDA_HOST_NODE_PARAMS *p), (node, p)) {
    const struct sim_op *op = (struct sim_op *)node;
    if (!op || !p || op->kind != SIM_OP_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *p = (CUDA_HOST_NODE_PARAMS){.fn = op->host.fn, .userData = op->host.arg};
    return CUDA_SUCCESS;
}

static CUresult set_host(struct sim_op *node, const CUDA_HOST_NODE_PARAMS *p) {
    struct sim_op *op;
    CUresult result = node && node->kind == SIM_OP_HOST ? host_of(p, &op) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        sim_node_take(node, op);
    return result;
}

SIM_API(0, 10000, cuGraphHostNodeSetParams, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p), (node, p)) {
    return set_host((struct sim_op *)node, p);
}

SIM_API(0, 11010, cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p),
        (exec, node, p)) {
    return set_host(sim_node_executable(exec, node, SIM_OP_HOST), p);
}
