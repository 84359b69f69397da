/* Doors of the driver: copies. They go on untouched after a look at one flag while one device is in use. With
 * several, the memory that a copy needs is opened to the device that makes it; where that cannot be, the copy is
 * made by another call of the driver's, which names a context for each end, and keeps its place in its stream.
 *
 * Nodes that a program adds to a graph by itself, and batches, have no such form; copies that a stream captures
 * have.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doors_copy.h"

/* A copy, in the widest form; the narrower ones have a height and a depth of 1. */
struct copy {
    CUDA_MEMCPY3D_PEER p;
    CUstream stream;
    bool sync;
};

static bool is_range(const CUDA_MEMCPY3D_PEER *p) {
    return p->Height == 1 && p->Depth == 1;
}

/* Queues it in a stream of the current context. */
static CUresult queue_plain(const CUDA_MEMCPY3D_PEER *p, CUstream stream) {
    CUDA_MEMCPY3D plain = {
        .srcXInBytes = p->srcXInBytes,
        .srcY = p->srcY,
        .srcZ = p->srcZ,
        .srcLOD = p->srcLOD,
        .srcMemoryType = p->srcMemoryType,
        .srcHost = p->srcHost,
        .srcDevice = p->srcDevice,
        .srcArray = p->srcArray,
        .srcPitch = p->srcPitch,
        .srcHeight = p->srcHeight,
        .dstXInBytes = p->dstXInBytes,
        .dstY = p->dstY,
        .dstZ = p->dstZ,
        .dstLOD = p->dstLOD,
        .dstMemoryType = p->dstMemoryType,
        .dstHost = p->dstHost,
        .dstDevice = p->dstDevice,
        .dstArray = p->dstArray,
        .dstPitch = p->dstPitch,
        .dstHeight = p->dstHeight,
        .WidthInBytes = p->WidthInBytes,
        .Height = p->Height,
        .Depth = p->Depth,
    };

    if (is_range(p) && p->srcMemoryType == CU_MEMORYTYPE_UNIFIED && p->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
        return VP_REAL(cuMemcpyAsync)(p->dstDevice, p->srcDevice, p->WidthInBytes, stream);
    return VP_REAL(cuMemcpy3DAsync_v2)(&plain, stream);
}

/* In a new stream of that context, between two events. What is destroyed here lives on in the driver until it is done.
 */
static CUresult queue_there(const struct copy *copy, CUevent before, CUevent *after) {
    CUstream there;
    CUresult res = VP_REAL(cuStreamCreate)(&there, CU_STREAM_NON_BLOCKING);

    if (res != CUDA_SUCCESS)
        return res;
    res = VP_REAL(cuStreamWaitEvent)(there, before, 0);
    if (res == CUDA_SUCCESS)
        res = VP_REAL(cuEventCreate)(after, CU_EVENT_DISABLE_TIMING);
    if (res == CUDA_SUCCESS)
        res = queue_plain(&copy->p, there);
    if (res == CUDA_SUCCESS)
        res = VP_REAL(cuEventRecord)(*after, there);
    VP_REAL(cuStreamDestroy_v2)(there);
    return res;
}

/* At its place in the program's stream. That is of the current context: where an event is made it is recorded. */
static CUresult queue_elsewhere(const struct copy *copy, CUcontext context) {
    CUevent before, after = NULL;
    CUcontext popped;
    CUresult res = VP_REAL(cuEventCreate)(&before, CU_EVENT_DISABLE_TIMING);

    if (res != CUDA_SUCCESS)
        return res;
    res = VP_REAL(cuEventRecord)(before, copy->stream);
    if (res == CUDA_SUCCESS && (res = VP_REAL(cuCtxPushCurrent_v2)(context)) == CUDA_SUCCESS) {
        res = queue_there(copy, before, &after);
        VP_REAL(cuCtxPopCurrent_v2)(&popped);
    }
    if (res == CUDA_SUCCESS)
        res = VP_REAL(cuStreamWaitEvent)(copy->stream, after, 0);
    if (res == CUDA_SUCCESS && copy->sync)
        res = VP_REAL(cuStreamSynchronize)(copy->stream);
    if (after)
        VP_REAL(cuEventDestroy_v2)(after);
    VP_REAL(cuEventDestroy_v2)(before);
    return res;
}

/* In a context that reaches both ends. */
static CUresult copy_elsewhere(const struct copy *copy, CUcontext context) {
    CUcontext own, popped;
    bool pushed = (uintptr_t)copy->stream > (uintptr_t)CU_STREAM_PER_THREAD &&
                  VP_REAL(cuStreamGetCtx)(copy->stream, &own) == CUDA_SUCCESS &&
                  VP_REAL(cuCtxPushCurrent_v2)(own) == CUDA_SUCCESS;
    CUresult res = queue_elsewhere(copy, context);

    if (pushed)
        VP_REAL(cuCtxPopCurrent_v2)(&popped);
    return res;
}

/* An end that may be anywhere keeps its kind, with the other end's context. */
static CUresult copy_between(struct copy *copy, const struct vp_copy_end *dst, const struct vp_copy_end *src) {
    CUDA_MEMCPY3D_PEER *p = &copy->p;
    bool per_thread = copy->stream == CU_STREAM_PER_THREAD;
    __typeof__(&cuMemcpyPeer) range = per_thread ? VP_REAL(cuMemcpyPeer_ptds) : VP_REAL(cuMemcpyPeer);
    __typeof__(&cuMemcpy3DPeer) area = per_thread ? VP_REAL(cuMemcpy3DPeer_ptds) : VP_REAL(cuMemcpy3DPeer);

    vp_api_copied_between();
    if (is_range(p) && dst->ptr && src->ptr && !dst->anywhere && !src->anywhere)
        return copy->sync ? range(dst->ptr, dst->context, src->ptr, src->context, p->WidthInBytes)
                          : VP_REAL(cuMemcpyPeerAsync)(dst->ptr, dst->context, src->ptr, src->context, p->WidthInBytes,
                                                       copy->stream);
    p->dstContext = dst->anywhere ? src->context : dst->context;
    p->srcContext = src->anywhere ? dst->context : src->context;
    if (dst->ptr && !dst->anywhere)
        p->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    if (src->ptr && !src->anywhere)
        p->srcMemoryType = CU_MEMORYTYPE_DEVICE;
    return copy->sync ? area(p) : VP_REAL(cuMemcpy3DPeerAsync)(p, copy->stream);
}

static bool captures(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return VP_REAL(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* What an end is before anyone is asked; `offset`: of its first byte. */
static struct vp_copy_end end_of(CUmemorytype type, CUdeviceptr device, size_t offset) {
    struct vp_copy_end end = {.anywhere = type == CU_MEMORYTYPE_HOST};

    if ((type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) && device)
        end.ptr = device + offset;
    return end;
}

/* Makes the copy in the way that it needs, if that is not its own; true: done, with the outcome in `*res`. */
static bool translated(struct copy *copy, CUresult *res) {
    const CUDA_MEMCPY3D_PEER *p = &copy->p;
    struct vp_copy_end dst = end_of(p->dstMemoryType, p->dstDevice,
                                    p->dstXInBytes + (p->dstY + p->dstZ * p->dstHeight) * p->dstPitch);
    struct vp_copy_end src = end_of(p->srcMemoryType, p->srcDevice,
                                    p->srcXInBytes + (p->srcY + p->srcZ * p->srcHeight) * p->srcPitch);
    enum vp_copy_way way = VP_COPY_AS_IT_IS;

    if (vp_door_enter() && p->WidthInBytes && p->Height && p->Depth)
        way = vp_api_copy_way(copy->stream, &dst, &src);
    /* A stream of ours must not join the capture; a copy that waits is refused there anyway. */
    if (way == VP_COPY_ELSEWHERE && captures(copy->stream))
        way = copy->sync ? VP_COPY_AS_IT_IS : VP_COPY_BETWEEN;
    if (way == VP_COPY_BETWEEN)
        *res = copy_between(copy, &dst, &src);
    else if (way == VP_COPY_ELSEWHERE)
        *res = copy_elsewhere(copy, dst.anywhere ? src.context : dst.context);
    vp_door_leave();
    return way != VP_COPY_AS_IT_IS;
}

/* ---- ranges ---- */

static bool translated_range(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream, bool sync,
                             CUresult *res) {
    struct copy copy = {
        .p = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
              .srcDevice = src,
              .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
              .dstDevice = dst,
              .WidthInBytes = bytes,
              .Height = 1,
              .Depth = 1},
        .stream = stream,
        .sync = sync,
    };

    return translated(&copy, res);
}

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
#define AS_GIVEN(stream) (stream)

#define RANGE(symbol, dst_type, src_type, stream)                                                                      \
    CUresult symbol(dst_type dst, src_type src, size_t bytes) {                                                        \
        CUresult res;                                                                                                  \
                                                                                                                       \
        if (vp_api_copies_matter() && translated_range(ADDRESS(dst), ADDRESS(src), bytes, stream, true, &res))         \
            return res;                                                                                                \
        return VP_REAL(symbol)(dst, src, bytes);                                                                       \
    }
#define RANGE_ASYNC(symbol, dst_type, src_type, meant)                                                                 \
    CUresult symbol(dst_type dst, src_type src, size_t bytes, CUstream stream) {                                       \
        CUresult res;                                                                                                  \
                                                                                                                       \
        if (vp_api_copies_matter() && translated_range(ADDRESS(dst), ADDRESS(src), bytes, meant(stream), false, &res)) \
            return res;                                                                                                \
        return VP_REAL(symbol)(dst, src, bytes, stream);                                                               \
    }
#define RANGES(plain, async, dst_type, src_type)                                                                       \
    RANGE(plain, dst_type, src_type, CU_STREAM_LEGACY)                                                                 \
    RANGE(plain##_ptds, dst_type, src_type, CU_STREAM_PER_THREAD)                                                      \
    RANGE_ASYNC(async, dst_type, src_type, AS_GIVEN)                                                                   \
    RANGE_ASYNC(async##_ptsz, dst_type, src_type, vp_door_per_thread)

RANGES(cuMemcpy, cuMemcpyAsync, CUdeviceptr, CUdeviceptr)
RANGES(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr)
RANGES(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *)
RANGES(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void *, CUdeviceptr)

/* ---- rows and slices ---- */

static bool translated_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool sync, CUresult *res) {
    struct copy copy = {.stream = stream, .sync = sync};

    if (!p)
        return false;
    copy.p = (CUDA_MEMCPY3D_PEER){
        .srcXInBytes = p->srcXInBytes,
        .srcY = p->srcY,
        .srcMemoryType = p->srcMemoryType,
        .srcHost = p->srcHost,
        .srcDevice = p->srcDevice,
        .srcArray = p->srcArray,
        .srcPitch = p->srcPitch,
        .srcHeight = p->srcY + p->Height,
        .dstXInBytes = p->dstXInBytes,
        .dstY = p->dstY,
        .dstMemoryType = p->dstMemoryType,
        .dstHost = p->dstHost,
        .dstDevice = p->dstDevice,
        .dstArray = p->dstArray,
        .dstPitch = p->dstPitch,
        .dstHeight = p->dstY + p->Height,
        .WidthInBytes = p->WidthInBytes,
        .Height = p->Height,
        .Depth = 1,
    };
    return translated(&copy, res);
}

static bool translated_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool sync, CUresult *res) {
    struct copy copy = {.stream = stream, .sync = sync};

    if (!p)
        return false;
    copy.p = (CUDA_MEMCPY3D_PEER){
        .srcXInBytes = p->srcXInBytes,
        .srcY = p->srcY,
        .srcZ = p->srcZ,
        .srcLOD = p->srcLOD,
        .srcMemoryType = p->srcMemoryType,
        .srcHost = p->srcHost,
        .srcDevice = p->srcDevice,
        .srcArray = p->srcArray,
        .srcPitch = p->srcPitch,
        .srcHeight = p->srcHeight,
        .dstXInBytes = p->dstXInBytes,
        .dstY = p->dstY,
        .dstZ = p->dstZ,
        .dstLOD = p->dstLOD,
        .dstMemoryType = p->dstMemoryType,
        .dstHost = p->dstHost,
        .dstDevice = p->dstDevice,
        .dstArray = p->dstArray,
        .dstPitch = p->dstPitch,
        .dstHeight = p->dstHeight,
        .WidthInBytes = p->WidthInBytes,
        .Height = p->Height,
        .Depth = p->Depth,
    };
    return translated(&copy, res);
}

#define AREA(symbol, type, translate, stream)                                                                          \
    CUresult symbol(const type *params) {                                                                              \
        CUresult res;                                                                                                  \
                                                                                                                       \
        if (vp_api_copies_matter() && translate(params, stream, true, &res))                                           \
            return res;                                                                                                \
        return VP_REAL(symbol)(params);                                                                                \
    }
#define AREA_ASYNC(symbol, type, translate, meant)                                                                     \
    CUresult symbol(const type *params, CUstream stream) {                                                             \
        CUresult res;                                                                                                  \
                                                                                                                       \
        if (vp_api_copies_matter() && translate(params, meant(stream), false, &res))                                   \
            return res;                                                                                                \
        return VP_REAL(symbol)(params, stream);                                                                        \
    }

AREA(cuMemcpy2D_v2, CUDA_MEMCPY2D, translated_2d, CU_STREAM_LEGACY)
AREA(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, translated_2d, CU_STREAM_PER_THREAD)
AREA(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, translated_2d, CU_STREAM_LEGACY)
AREA(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, translated_2d, CU_STREAM_PER_THREAD)
AREA_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, translated_2d, AS_GIVEN)
AREA_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, translated_2d, vp_door_per_thread)
AREA(cuMemcpy3D_v2, CUDA_MEMCPY3D, translated_3d, CU_STREAM_LEGACY)
AREA(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, translated_3d, CU_STREAM_PER_THREAD)
AREA_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, translated_3d, AS_GIVEN)
AREA_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, translated_3d, vp_door_per_thread)

/* ---- batches ---- */

static void open_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, size_t count, CUstream stream) {
    if (vp_door_enter() && dsts && srcs)
        for (size_t i = 0; i < count; i++) {
            struct vp_copy_end dst = {.ptr = dsts[i]}, src = {.ptr = srcs[i]};

            vp_api_copy_way(stream, &dst, &src);
        }
    vp_door_leave();
}

#define BATCH(version, meant)                                                                                          \
    CUresult cuMemcpyBatchAsync##version(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,            \
                                         struct CUmemcpyAttributes_st *attributes, size_t *indexes, size_t kinds,      \
                                         CUstream stream) {                                                            \
        if (vp_api_copies_matter())                                                                                    \
            open_batch(dsts, srcs, count, meant(stream));                                                              \
        return VP_REAL(cuMemcpyBatchAsync##version)(dsts, srcs, sizes, count, attributes, indexes, kinds, stream);     \
    }
#define BATCH_FAILING(version, meant)                                                                                  \
    CUresult cuMemcpyBatchAsync##version(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,            \
                                         struct CUmemcpyAttributes_st *attributes, size_t *indexes, size_t kinds,      \
                                         size_t *failed, CUstream stream) {                                            \
        if (vp_api_copies_matter())                                                                                    \
            open_batch(dsts, srcs, count, meant(stream));                                                              \
        return VP_REAL(cuMemcpyBatchAsync##version)(dsts, srcs, sizes, count, attributes, indexes, kinds, failed,      \
                                                    stream);                                                           \
    }

BATCH_FAILING(, AS_GIVEN)
BATCH_FAILING(_ptsz, vp_door_per_thread)
BATCH(_v2, AS_GIVEN)
BATCH(_v2_ptsz, vp_door_per_thread)

/* ---- nodes of a graph ---- */

static void open_node(const CUDA_MEMCPY3D *p, CUcontext context) {
    struct vp_copy_end dst, src;

    if (vp_door_enter() && p) {
        dst = end_of(p->dstMemoryType, p->dstDevice, p->dstXInBytes);
        src = end_of(p->srcMemoryType, p->srcDevice, p->srcXInBytes);
        vp_api_copy_node(context, &dst, &src);
    }
    vp_door_leave();
}

void vp_copy_node(const CUgraphNodeParams *params) {
    if (vp_api_copies_matter() && params && params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        open_node(&params->memcpy.copyParams, params->memcpy.copyCtx);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMCPY3D *params, CUcontext context) {
    if (vp_api_copies_matter())
        open_node(params, context);
    return VP_REAL(cuGraphAddMemcpyNode)(node, graph, dependencies, count, params, context);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params) {
    if (vp_api_copies_matter())
        open_node(params, NULL);
    return VP_REAL(cuGraphMemcpyNodeSetParams)(node, params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params,
                                        CUcontext context) {
    if (vp_api_copies_matter())
        open_node(params, context);
    return VP_REAL(cuGraphExecMemcpyNodeSetParams)(exec, node, params, context);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) {
    vp_copy_node(params);
    return VP_REAL(cuGraphNodeSetParams)(node, params);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params) {
    vp_copy_node(params);
    return VP_REAL(cuGraphExecNodeSetParams)(exec, node, params);
}

/* ---- copies that need nothing, and are to be known ---- */

#define BETWEEN(symbol)                                                                                                \
    CUresult symbol(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size) {                     \
        vp_api_copied_between();                                                                                       \
        return VP_REAL(symbol)(dst, to, src, from, size);                                                              \
    }
#define BETWEEN_ASYNC(symbol)                                                                                          \
    CUresult symbol(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size, CUstream stream) {    \
        vp_api_copied_between();                                                                                       \
        return VP_REAL(symbol)(dst, to, src, from, size, stream);                                                      \
    }
#define AREA_BETWEEN(symbol)                                                                                           \
    CUresult symbol(const CUDA_MEMCPY3D_PEER *copy) {                                                                  \
        vp_api_copied_between();                                                                                       \
        return VP_REAL(symbol)(copy);                                                                                  \
    }
#define AREA_BETWEEN_ASYNC(symbol)                                                                                     \
    CUresult symbol(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {                                                 \
        vp_api_copied_between();                                                                                       \
        return VP_REAL(symbol)(copy, stream);                                                                          \
    }

BETWEEN(cuMemcpyPeer)
BETWEEN(cuMemcpyPeer_ptds)
BETWEEN_ASYNC(cuMemcpyPeerAsync)
BETWEEN_ASYNC(cuMemcpyPeerAsync_ptsz)
AREA_BETWEEN(cuMemcpy3DPeer)
AREA_BETWEEN(cuMemcpy3DPeer_ptds)
AREA_BETWEEN_ASYNC(cuMemcpy3DPeerAsync)
AREA_BETWEEN_ASYNC(cuMemcpy3DPeerAsync_ptsz)
