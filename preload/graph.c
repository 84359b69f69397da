/* Doors of the driver: graphs. Host functions, waits and copies between devices matter as nodes, too, without a stream.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

/* A node whose parameters are exchanged: its copy says of no spilled memory that it is the device's. */
struct own {
    CUDA_MEMCPY3D copy;
    CUgraphNodeParams node;
};

/* The copy as the node is to have it. If the one context that the call names does not reach all of it, and that of the
 * one device whose memory it is does, it runs there. No node can name two, and CUDA captures no copy that does (seen on
 * H200s: 900, and the graph that it was captured into tells of no nodes any more): between devices that cannot reach
 * each other the answer is CUDA's own. */
static const CUDA_MEMCPY3D *open_copy(const CUDA_MEMCPY3D *p, CUcontext *context, struct own *own) {
    struct vp_copy_end dst, src;
    if (!p || !p->WidthInBytes || !p->Height || !p->Depth)
        return p;
    struct vp_copy copy = vp_copy_of_slices(p, NULL);
    vp_copy_ends(&copy.p, &dst, &src);
    const enum vp_copy_way way = vp_api_copy_node(context ? *context : NULL, &dst, &src);
    if (context && (way == VP_COPY_ELSEWHERE || (way == VP_COPY_BETWEEN && dst.context == src.context)))
        *context = dst.anywhere ? src.context : dst.context;
    own->copy = *p;
    vp_copy_undirect(&own->copy.dstMemoryType, &dst);
    vp_copy_undirect(&own->copy.srcMemoryType, &src);
    return &own->copy;
}

/* Many copies run in one context, whichever they need: that is the program's to choose. */
static void open_copies(const CUDA_MEMCPY_BATCH_NODE_PARAMS *p) {
    for (size_t i = 0; p->dsts && p->srcs && i < p->count; i++) {
        struct vp_copy_end dst = {.ptr = p->dsts[i]}, src = {.ptr = p->srcs[i]};
        vp_api_copy_node(p->ctx, &dst, &src);
    }
}

static CUgraphNodeParams *open_node(CUgraphNodeParams *params, struct own *own) {
    if (params && (int)params->type == CU_GRAPH_NODE_TYPE_MEMCPY_BATCH)
        open_copies((const void *)&params->memcpy);
    if (!params || params->type != CU_GRAPH_NODE_TYPE_MEMCPY)
        return params;
    own->node = *params;
    own->node.memcpy.copyParams = *open_copy(&params->memcpy.copyParams, &own->node.memcpy.copyCtx, own);
    return &own->node;
}

static void tie_node(const CUgraphNodeParams *params) {
    if (params && (params->type == CU_GRAPH_NODE_TYPE_HOST || params->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP))
        vp_api_coupled("a host function or wait in a graph");
}

/* All of it stands in the order of this stream, and what its nodes are of may be any device: nobody tells. */
static void launched(CUstream stream) {
    vp_api_worked(stream);
    if (vp_api_copies_matter())
        vp_api_copied_between();
}

#define VP_MAKE_NODE(symbol, like, opened, then, ...)                                                                  \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        struct own own;                                                                                                \
        bool ours = vp_door_enter();                                                                                   \
        if (ours && vp_api_copies_matter())                                                                            \
            opened;                                                                                                    \
        CUresult res = VP_TRIED(ours, 0, VP_REAL(symbol)(VP_NAMES(__VA_ARGS__)));                                      \
        if (ours && res == CUDA_SUCCESS)                                                                               \
            then;                                                                                                      \
        vp_door_leave();                                                                                               \
        return res;                                                                                                    \
    }

VP_DOORS_GRAPH(VP_MAKE)
