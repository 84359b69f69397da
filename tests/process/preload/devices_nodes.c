/* Guests of two devices: nodes that copy, added to a graph by the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdint.h>

#include "devices.h"

CUDA_MEMCPY3D row(CUdeviceptr dst, CUdeviceptr src) {
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = src,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = dst,
                           .WidthInBytes = SIZE,
                           .Height = 1,
                           .Depth = 1};
}

/* From one device to the other and back. With `edges` by the call that takes them. */
static CUgraph there_and_back(CUdeviceptr back, CUdeviceptr there, CUdeviceptr here, bool edges, CUgraphNode *node) {
    CUDA_MEMCPY3D p = row(there, here);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    CUgraphEdgeData edge = {0};
    CUgraph graph;

    params.memcpy.copyCtx = context[1];
    params.memcpy.copyParams = row(back, there);
    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK_OK(cuGraphAddMemcpyNode(&node[0], graph, NULL, 0, &p, context[0]));
    if (edges)
        CHECK_OK(cuGraphAddNode(&node[1], graph, node, &edge, 1, &params));
    else
        CHECK_OK(cuGraphAddMemcpyNode(&node[1], graph, node, 1, &params.memcpy.copyParams, context[1]));
    CHECK(node[0] != node[1]);
    CHECK(params.memcpy.copyParams.dstMemoryType == CU_MEMORYTYPE_UNIFIED && params.memcpy.copyCtx == context[1]);
    return graph;
}

static void launch_with(CUgraphExec exec, CUdeviceptr here, CUdeviceptr back, unsigned char value) {
    enter(0);
    CHECK_OK(cuMemsetD8Async(here, value, SIZE, stream[0]));
    CHECK_OK(cuGraphLaunch(exec, stream[0]));
    CHECK_OK(cuStreamSynchronize(stream[0]));
    check_bytes(back, value);
}

/* What a program may do with a node between devices that reach each other, and with its graph. */
void nodes_are_as_others(void) {
    CUgraphExecUpdateResultInfo info;
    CUgraphNode node[2], other[2];
    CUgraph graph, clone;
    CUgraphExec exec;
    CUDA_MEMCPY3D p;
    size_t count = 0;

    start();
    CUdeviceptr here = take(0, false), there = take(1, true), back = take(0, true), second = take(0, false);
    enter(0);
    for (int edges = 0; edges < 2; edges++) {
        graph = there_and_back(back, there, here, edges, node);
        CHECK_OK(cuGraphMemcpyNodeGetParams(node[0], &p));
        CHECK(p.dstDevice == there && p.srcDevice == here && p.WidthInBytes == SIZE);
        CHECK_OK(cuGraphClone(&clone, graph));
        CHECK_OK(cuGraphInstantiate(&exec, clone, 0));
        launch_with(exec, here, back, (unsigned char)(3 + edges));
        CHECK_OK(cuGraphDestroy(clone));
        clone = there_and_back(second, there, here, edges, other);
        CHECK_OK(cuGraphExecUpdate(exec, clone, &info));
        launch_with(exec, here, second, (unsigned char)(5 + edges));
        CHECK_OK(cuGraphDestroyNode(node[1]));
        CHECK_OK(cuGraphGetNodes(graph, NULL, &count));
        CHECK(count == 1);
        CHECK_OK(cuGraphExecDestroy(exec));
        CHECK_OK(cuGraphDestroy(clone));
        CHECK_OK(cuGraphDestroy(graph));
    }
    check_served();
}

/* A node that is to run in the other device's context than that of all its memory; and one that copies nothing. */
void nodes_run_where_their_memory_is(void) {
    CUgraphNode node, far;
    CUgraph graph, second;
    CUgraphExec exec;
    unsigned char *pinned;

    start();
    CHECK_OK(cuMemHostAlloc((void **)&pinned, (size_t)2 * SIZE, 0));
    CUdeviceptr here = take(0, false), back = take(0, true);
    CUDA_MEMCPY3D out = row(here, (CUdeviceptr)(uintptr_t)pinned), p = row(back, here), other = row(here, back);
    CUDA_MEMCPY3D nothing = out;
    nothing.WidthInBytes = 0;
    /* Its context is the other device's, and nothing of that is near when it is told of this one's memory. */
    if (can_reach()) {
        CUDA_MEMCPY3D host = row((CUdeviceptr)(uintptr_t)pinned, (CUdeviceptr)(uintptr_t)(pinned + SIZE));
        CHECK_OK(cuGraphCreate(&second, 0));
        CHECK_OK(cuGraphAddMemcpyNode(&far, second, NULL, 0, &host, context[1]));
        enter(0);
        CHECK_OK(cuGraphMemcpyNodeSetParams(far, &p));
        CHECK_OK(cuGraphDestroy(second));
    }
    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &nothing, context[1]) == CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &out, context[1]));
    CHECK_OK(cuGraphAddMemcpyNode(&node, graph, &node, 1, &p, context[1]));
    CHECK_OK(cuGraphMemcpyNodeSetParams(node, &other));
    CHECK_OK(cuGraphMemcpyNodeSetParams(node, &p));
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    CHECK_OK(cuGraphExecMemcpyNodeSetParams(exec, node, &p, context[1]));
    for (int current = 0; current < 2; current++) {
        memset(pinned, 7 + current, SIZE);
        enter(current);
        CHECK_OK(cuGraphLaunch(exec, stream[current]));
        CHECK_OK(cuStreamSynchronize(stream[current]));
        check_bytes(back, (unsigned char)(7 + current));
    }
    check_served();
}

/* No node can name two contexts, and no such copy is captured: it is refused, and all is as it was. */
void graphs_have_no_copies_between_devices_apart(void) {
    CUgraphNode node = NULL;
    CUgraph graph;
    size_t count = 1;

    start();
    CUdeviceptr there = take(1, false), here = take(0, false), async = take(1, true);
    CUDA_MEMCPY3D p = row(there, here);
    CUDA_MEMCPY2D area = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = here,
                          .srcPitch = 1024,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = async,
                          .dstPitch = 1024,
                          .WidthInBytes = 1024,
                          .Height = SIZE / 1024};
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    params.memcpy.copyParams = p;

    enter(0);
    CHECK_OK(cuMemsetD8(here, 7, SIZE));
    enter(1);
    CHECK_OK(cuMemsetD8(there, 1, SIZE));
    CHECK_OK(cuMemsetD8(async, 1, SIZE));
    enter(0);
    CHECK_OK(cuGraphCreate(&graph, 0));
    for (int device = 0; device < 2; device++) {
        params.memcpy.copyCtx = context[device];
        CHECK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &p, context[device]) == CUDA_ERROR_INVALID_VALUE);
        CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params) == CUDA_ERROR_INVALID_VALUE);
    }
    CHECK(!node);
    CHECK_OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK(count == 0);
    CHECK_OK(cuGraphDestroy(graph));
    for (int device = 0; device < 2; device++) {
        enter(device);
        CHECK_OK(cuStreamBeginCapture(stream[device], CU_STREAM_CAPTURE_MODE_GLOBAL));
        CHECK(cuMemcpyAsync(there, here, SIZE, stream[device]) == CUDA_ERROR_INVALID_VALUE);
        CHECK(cuMemcpyDtoDAsync(async, here, SIZE, stream[device]) == CUDA_ERROR_INVALID_VALUE);
        CHECK(cuMemcpy2DAsync(&area, stream[device]) == CUDA_ERROR_INVALID_VALUE);
        CHECK(cuMemcpy3DAsync(&p, stream[device]) == CUDA_ERROR_INVALID_VALUE);
        CHECK_OK(cuStreamEndCapture(stream[device], &graph));
        CHECK_OK(cuGraphDestroy(graph));
    }
    check_bytes(there, 1);
    check_bytes(async, 1);
    enter(0);
    CHECK_OK(cuMemcpyAsync(there, here, SIZE, stream[0]));
    CHECK_OK(cuStreamSynchronize(stream[0]));
    check_bytes(there, 7);
    check_served();
}
