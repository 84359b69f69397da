/* Doors of the driver: graphs. What is a host function, a wait or a copy between devices in a stream is so as a node,
 * which no stream has yet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

/* A node whose parameters are exchanged: its copy says of no spilled memory that it is the device's, and is made where
 * both ends are reached. */
struct own {
    CUDA_MEMCPY3D plain;
    CUgraphNodeParams node;
    enum vp_copy_way way;
    struct vp_copy copy;
    struct vp_copy_end dst, src;
    CUcontext context; /* NULL: the current one, or not known */
};

/* The copy as the node is to have it; and the context, if the call has one. */
static const CUDA_MEMCPY3D *open_copy(const CUDA_MEMCPY3D *p, CUcontext *context, struct own *own) {
    if (!p || !p->WidthInBytes || !p->Height || !p->Depth)
        return p;
    own->copy = vp_copy_of_slices(p, NULL);
    own->context = context ? *context : NULL;
    vp_copy_ends(&own->copy.p, &own->dst, &own->src);
    own->way = vp_api_copy_node(own->context, &own->dst, &own->src);
    if (own->way == VP_COPY_BETWEEN && own->dst.context == own->src.context)
        own->way = VP_COPY_ELSEWHERE;
    if (own->way == VP_COPY_ELSEWHERE && context)
        *context = own->dst.anywhere ? own->src.context : own->dst.context;
    own->plain = *p;
    vp_copy_undirect(&own->plain.dstMemoryType, &own->dst);
    vp_copy_undirect(&own->plain.srcMemoryType, &own->src);
    return &own->plain;
}

static CUgraphNodeParams *open_node(CUgraphNodeParams *params, struct own *own) {
    if (!params || params->type != CU_GRAPH_NODE_TYPE_MEMCPY)
        return params;
    own->node = *params;
    own->node.memcpy.copyParams = *open_copy(&params->memcpy.copyParams, &own->node.memcpy.copyCtx, own);
    return &own->node;
}

/* ---- between devices that cannot reach each other ---- */

unsigned vp_door_captures;

/* Captures the copy into the graph, in a stream of ours, and gives the node; NULL: it cannot be had. */
static CUgraphNode capture(struct own *own, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
                           size_t count) {
    const CUstream stream = own->copy.stream;
    CUstreamCaptureStatus status;
    const CUgraphNode *last;
    CUgraphNode made = NULL;
    if (VP_REAL(cuStreamBeginCaptureToGraph)(stream, graph, after, edges, count, CU_STREAM_CAPTURE_MODE_RELAXED) !=
        CUDA_SUCCESS)
        return NULL;
    if (vp_copy_between(&own->copy, &own->dst, &own->src) == CUDA_SUCCESS &&
        VP_REAL(cuStreamGetCaptureInfo_v2)(stream, &status, NULL, NULL, &last, &count) == CUDA_SUCCESS && count == 1)
        made = *last;
    return VP_REAL(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS ? made : NULL;
}

/*
 * No call that adds a node can name a context for each end, but a stream can capture a copy that does, as of CUDA 12.3.
 * VP_NOT_OURS: it is not called for, or cannot be had, and CUDA answers what it does.
 */
static CUresult captured(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
                         size_t count, struct own *own) {
    CUgraphNode node = NULL;
    CUcontext popped;
    if (own->way != VP_COPY_BETWEEN || !made ||
        (own->context && VP_REAL(cuCtxPushCurrent_v2)(own->context) != CUDA_SUCCESS))
        return VP_NOT_OURS;
    if (VP_REAL(cuStreamCreate)(&own->copy.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        if (vp_api_enter_locked()) {
            __atomic_fetch_add(&vp_door_captures, 1, __ATOMIC_SEQ_CST);
            node = capture(own, graph, after, edges, count);
            __atomic_fetch_add(&vp_door_captures, 1, __ATOMIC_SEQ_CST);
            vp_api_leave();
        }
        VP_REAL(cuStreamDestroy_v2)(own->copy.stream);
    }
    if (own->context)
        VP_REAL(cuCtxPopCurrent_v2)(&popped);
    if (!node)
        return VP_NOT_OURS;
    *made = node;
    return CUDA_SUCCESS;
}

static void tie_node(const CUgraphNodeParams *params) {
    if (params && (params->type == CU_GRAPH_NODE_TYPE_HOST || params->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP))
        vp_api_coupled("a host function or wait in a graph");
}

/* Opens the memory of a copy, calls CUDA, unless `captures` adds the node, and after a success does `then`. */
#define VP_MAKE_NODE(symbol, like, opened, captures, then, ...)                                                        \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        struct own own;                                                                                                \
        bool ours = vp_door_enter();                                                                                   \
        CUresult res;                                                                                                  \
        own.way = VP_COPY_AS_IT_IS;                                                                                    \
        if (ours && vp_api_copies_matter())                                                                            \
            opened;                                                                                                    \
        res = captures;                                                                                                \
        if (res == VP_NOT_OURS)                                                                                        \
            res = VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                              \
        if (ours && res == CUDA_SUCCESS) {                                                                             \
            then;                                                                                                      \
        }                                                                                                              \
        vp_door_leave();                                                                                               \
        return res;                                                                                                    \
    }

VP_DOORS_GRAPH(VP_MAKE)
