/* The simulated driver: graphs in graphs, kernels, and conditional nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_test.h"

#include <criterion/criterion.h>

static CUfunction fill_function(void) {
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, "an image"));
    OK(cuModuleGetFunction(&function, module, "vp_fill"));
    return function;
}

/* One that writes so often this byte. */
static CUgraphNode add_kernel(CUgraph graph, CUfunction function, CUdeviceptr at, uint64_t bytes, uint32_t value) {
    void *params[] = {&at, &bytes, &value};
    CUDA_KERNEL_NODE_PARAMS p = {.func = function,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = params};
    CUgraphNode node;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
    return node;
}

static void run(CUgraphExec exec) {
    OK(cuGraphLaunch(exec, free_stream));
    OK(cuStreamSynchronize(free_stream));
}

/* What onnxruntime and MXNet are linked with, and TensorFlow calls. */
Test(sim, code_can_be_loaded_with_options_and_tensors_described, .init = late) {
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *value = (void *)32;
    CUmodule module;
    CUfunction function;
    int threads;
    CUtensorMap map;
    CUdeviceptr at;
    const cuuint64_t sizes[] = {64, 64}, strides[] = {256};
    const cuuint32_t box[] = {8, 8}, steps[] = {1, 1};
#define DESCRIBE(where, rank)                                                                                          \
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, (void *)(where), sizes, strides, box, steps,   \
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, \
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    cr_assert_eq(cuModuleLoadDataEx(&module, "an image", 1, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleLoadDataEx(&module, "an image", 1, &option, &value));
    OK(cuModuleUnload(module));
    OK(cuModuleLoadFatBinary(&module, "an image"));
    OK(cuModuleGetFunction(&function, module, "a kernel"));
    OK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    cr_assert_eq(threads, 1024);
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 16));
    OK(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_L1));
    OK(cuModuleUnload(module));
    cr_assert_eq(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_L1), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemAlloc(&at, 64 * 256));
    OK(DESCRIBE(at, 2));
    cr_assert_eq(DESCRIBE(at + 4, 2), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(DESCRIBE(at, 6), CUDA_ERROR_INVALID_VALUE);
#undef DESCRIBE
    OK(cuMemFree(at));
}

Test(sim, kernels_can_be_nodes, .init = late) {
    CUfunction function = fill_function();
    CUDA_KERNEL_NODE_PARAMS told;
    CUgraph graph;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode node = add_kernel(graph, function, memory, 2, 7);
    OK(cuGraphKernelNodeGetParams(node, &told));
    cr_expect_eq(*(CUdeviceptr *)told.kernelParams[0], memory);
    cr_expect(told.func == function && told.blockDimZ == 1);
    OK(cuGraphInstantiate(&exec, graph, 0));
    run(exec);
    cr_expect(byte(1) == 7 && byte(2) == 0);
    uint32_t value = 8;
    uint64_t bytes = 3;
    CUdeviceptr at = memory;
    told.kernelParams = (void *[]){&at, &bytes, &value};
    OK(cuGraphExecKernelNodeSetParams(exec, node, &told));
    run(exec);
    cr_expect_eq(byte(2), 8);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));

    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, blocking, (void *[]){&at, &bytes, &(uint32_t){9}}, NULL));
    OK(cuStreamEndCapture(blocking, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    cr_expect_eq(byte(2), 8);
    run(exec);
    cr_expect_eq(byte(2), 9);
}

Test(sim, a_graph_in_a_graph_is_a_clone, .init = late) {
    CUfunction function = fill_function();
    CUgraph graph, child, other_child, embedded, clone;
    CUgraphExec exec;
    CUgraphNode node, inner, found;
    CUgraphNodeType type;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    inner = add_kernel(child, function, memory, 1, 1);
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    OK(cuGraphNodeGetType(node, &type));
    cr_expect_eq(type, CU_GRAPH_NODE_TYPE_GRAPH);
    OK(cuGraphDestroyNode(inner)); /* of the original, not of the clone */
    OK(cuGraphInstantiate(&exec, graph, 0));
    run(exec);
    cr_expect_eq(byte(0), 1);

    /* What is added to it is the node's. */
    OK(cuGraphChildGraphNodeGetGraph(node, &embedded));
    cr_expect(embedded != child);
    add_kernel(embedded, function, memory + 1, 1, 2);
    IS(cuGraphDestroy(embedded), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&found, node, clone));
    IS(cuGraphNodeFindInClone(&found, node, graph), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(graph));
    run(exec);
    cr_expect_eq(byte(1), 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&exec, clone, 0));
    run(exec);
    cr_expect_eq(byte(1), 2);

    /* An executable's is exchanged for one alike. */
    OK(cuGraphCreate(&other_child, 0));
    add_kernel(other_child, function, memory + 2, 1, 3);
    IS(cuGraphExecChildGraphNodeSetParams(exec, found, other_child), CUDA_ERROR_INVALID_VALUE);
    add_kernel(other_child, function, memory + 3, 1, 4);
    OK(cuGraphExecChildGraphNodeSetParams(exec, found, other_child));
    run(exec);
    cr_expect(byte(2) == 3 && byte(3) == 4);
    cr_expect_eq(vp_sim_violations(), 0u);
}

Test(sim, a_graph_with_memory_can_be_moved_into_another, .init = late) {
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
                                    .bytesize = 1000};
    CUgraph graph, child;
    CUgraphExec exec;
    CUgraphNode alloc, fill, node;
    CUdeviceptr told = 0;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    OK(cuGraphAddMemAllocNode(&alloc, child, NULL, 0, &p));
    const CUDA_MEMSET_NODE_PARAMS set = {.dst = p.dptr, .value = 5, .elementSize = 1, .width = 1000, .height = 1};
    OK(cuGraphAddMemsetNode(&fill, child, &alloc, 1, &set, context));
    OK(cuGraphAddMemFreeNode(&node, child, &fill, 1, p.dptr));
    OK(cuGraphMemFreeNodeGetParams(node, &told));
    cr_expect_eq(told, p.dptr);
    IS(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child), CUDA_ERROR_NOT_SUPPORTED);
    IS(cuGraphClone(&child, child), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphNodeParams moved = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    moved.graph.graph = child;
    moved.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    OK(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &moved));
    IS(cuGraphInstantiate(&exec, child, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);
    IS(cuGraphAddMemAllocNode(&alloc, child, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    run(exec);
    run(exec);
    OK(cuGraphExecDestroy(exec));
    cr_expect_eq(vp_sim_violations(), 0u);
}

/* By the handle's default value. */
Test(sim, a_conditional_node_runs_one_of_its_graphs, .init = late) {
    CUfunction function = fill_function();
    for (unsigned value = 0; value < 2; value++) {
        CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
        CUgraph graph;
        CUgraphExec exec;
        CUgraphNode node;
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphConditionalHandleCreate(&p.conditional.handle, graph, context, value, CU_GRAPH_COND_ASSIGN_DEFAULT));
        p.conditional.type = CU_GRAPH_COND_TYPE_IF;
        p.conditional.size = 2;
        p.conditional.ctx = context;
        OK(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &p));
        add_kernel(p.conditional.phGraph_out[0], function, memory, 1, 10);
        add_kernel(p.conditional.phGraph_out[1], function, memory, 1, 11);
        OK(cuGraphInstantiate(&exec, graph, 0));
        run(exec);
        cr_expect_eq(byte(0), value ? 10 : 11);
        OK(cuGraphDestroy(graph));
        OK(cuGraphExecDestroy(exec));
    }
}

Test(sim, a_graph_with_memory_has_one_executable_at_a_time, .init = late) {
    CUDA_MEM_ALLOC_NODE_PARAMS p = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = 1000};
    CUgraph graph;
    CUgraphExec exec, more;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphInstantiate(&more, graph, 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(more));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &p));
    OK(cuGraphInstantiate(&exec, graph, 0));
    IS(cuGraphInstantiate(&more, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&more, graph, 0));
}
