/* Doors of the driver that change nothing: they notice what ties the process to the world outside.
 *
 * While there is no such tie, a stream may be made to wait for another's work before the pool grows. With
 * one, the work awaited may itself be waiting for something that this process has yet to do, and CUDA's order
 * holds (see vp_api_coupled). What a stream will wait for is told before it is queued; what is imported
 * after, since nobody can have used it yet.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doors_copy.h"

/* Tells of a tie if the call has made one, and leaves the door. */
static CUresult tied(bool ours, CUresult res, const char *what) {
    if (ours && res == CUDA_SUCCESS)
        vp_api_coupled(what);
    vp_door_leave();
    return res;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
    bool ours = vp_door_enter();

    return tied(ours, VP_REAL(cuIpcOpenEventHandle)(event, handle), "event of another process opened");
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType type) {
    bool ours = vp_door_enter();

    return tied(ours, VP_REAL(cuMemImportFromShareableHandle)(handle, os_handle, type), "physical memory imported");
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
    bool ours = vp_door_enter();

    return tied(ours, VP_REAL(cuMemPoolImportFromShareableHandle)(pool, handle, type, flags), "memory pool imported");
}

CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc) {
    bool ours = vp_door_enter();

    return tied(ours, VP_TRIED(ours, VP_REAL(cuImportExternalMemory)(memory, desc)), "external memory imported");
}

CUresult cuImportExternalSemaphore(CUexternalSemaphore *semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc) {
    bool ours = vp_door_enter();

    return tied(ours, VP_REAL(cuImportExternalSemaphore)(semaphore, desc), "external semaphore imported");
}

/* Waits for a value in memory, which anyone may write. */

static void waits_for_value(bool ours) {
    if (ours)
        vp_api_coupled("a stream waits for a value in memory");
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    CUresult res;

    waits_for_value(vp_door_enter());
    res = VP_REAL(cuStreamWaitValue32)(stream, address, value, flags);
    vp_door_leave();
    return res;
}

CUresult cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return cuStreamWaitValue32(vp_door_per_thread(stream), address, value, flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    CUresult res;

    waits_for_value(vp_door_enter());
    res = VP_REAL(cuStreamWaitValue32_v2)(stream, address, value, flags);
    vp_door_leave();
    return res;
}

CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return cuStreamWaitValue32_v2(vp_door_per_thread(stream), address, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    CUresult res;

    waits_for_value(vp_door_enter());
    res = VP_REAL(cuStreamWaitValue64)(stream, address, value, flags);
    vp_door_leave();
    return res;
}

CUresult cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return cuStreamWaitValue64(vp_door_per_thread(stream), address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    CUresult res;

    waits_for_value(vp_door_enter());
    res = VP_REAL(cuStreamWaitValue64_v2)(stream, address, value, flags);
    vp_door_leave();
    return res;
}

CUresult cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return cuStreamWaitValue64_v2(vp_door_per_thread(stream), address, value, flags);
}

/* Whether a batch holds a wait, and not writes and barriers alone. */
static bool batch_waits(unsigned int count, const CUstreamBatchMemOpParams *ops) {
    for (unsigned int i = 0; ops && i < count; i++) {
        CUstreamBatchMemOpType type = ops[i].operation;

        if (type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            return true;
    }
    return false;
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags) {
    CUresult res;

    waits_for_value(vp_door_enter() && batch_waits(count, ops));
    res = VP_REAL(cuStreamBatchMemOp)(stream, count, ops, flags);
    vp_door_leave();
    return res;
}

CUresult cuStreamBatchMemOp_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,
                                 unsigned int flags) {
    return cuStreamBatchMemOp(vp_door_per_thread(stream), count, ops, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags) {
    CUresult res;

    waits_for_value(vp_door_enter() && batch_waits(count, ops));
    res = VP_REAL(cuStreamBatchMemOp_v2)(stream, count, ops, flags);
    vp_door_leave();
    return res;
}

CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,
                                    unsigned int flags) {
    return cuStreamBatchMemOp_v2(vp_door_per_thread(stream), count, ops, flags);
}

/*
 * Host functions hold up one stream for as long as they like. One that is captured will run on whatever
 * stream its graph is launched on: then it counts as a tie of the process.
 */
static void host_function(bool ours, CUstream stream) {
    CUstreamCaptureStatus status;

    if (!ours)
        return;
    if (VP_REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
        vp_api_coupled("a host function in a graph");
    else
        vp_api_host_function(stream);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    CUresult res;

    host_function(vp_door_enter(), stream);
    res = VP_REAL(cuLaunchHostFunc)(stream, function, data);
    vp_door_leave();
    return res;
}

CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data) {
    return cuLaunchHostFunc(vp_door_per_thread(stream), function, data);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags) {
    CUresult res;

    host_function(vp_door_enter(), stream);
    res = VP_REAL(cuStreamAddCallback)(stream, callback, data, flags);
    vp_door_leave();
    return res;
}

CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags) {
    return cuStreamAddCallback(vp_door_per_thread(stream), callback, data, flags);
}

/* The same things as nodes of a graph, which no stream has yet. */

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS *params) {
    bool ours = vp_door_enter();

    return tied(ours, VP_REAL(cuGraphAddHostNode)(node, graph, dependencies, count, params),
                "a host function in a graph");
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
    bool ours = vp_door_enter();

    return tied(ours, VP_REAL(cuGraphAddBatchMemOpNode)(node, graph, dependencies, count, params),
                "a wait for a value in a graph");
}

static bool node_ties(const CUgraphNodeParams *params) {
    return params && (params->type == CU_GRAPH_NODE_TYPE_HOST || params->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *params) {
    bool ours;

    vp_copy_node(params);
    ours = vp_door_enter() && node_ties(params);
    return tied(ours, VP_REAL(cuGraphAddNode)(node, graph, dependencies, count, params),
                "a host function or wait in a graph");
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params) {
    bool ours;

    vp_copy_node(params);
    ours = vp_door_enter() && node_ties(params);
    return tied(ours, VP_REAL(cuGraphAddNode_v2)(node, graph, dependencies, edges, count, params),
                "a host function or wait in a graph");
}
