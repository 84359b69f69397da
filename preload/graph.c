/* Doors of the driver: graphs. What is a host function, a wait or a copy between devices in a stream is so as a node,
 * which no stream has yet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

/* A node whose parameters are exchanged: its copy says of no spilled memory that it is the device's. */
struct own {
    CUDA_MEMCPY3D copy;
    CUgraphNodeParams node;
};

/* The copy as the node is to have it: the program's, or the one in `own`. */
static const CUDA_MEMCPY3D *open_copy(const CUDA_MEMCPY3D *p, CUcontext context, CUDA_MEMCPY3D *own) {
    struct vp_copy_end dst, src;
    if (!p)
        return p;
    dst = vp_copy_end_of(p->dstMemoryType, p->dstDevice, p->dstXInBytes);
    src = vp_copy_end_of(p->srcMemoryType, p->srcDevice, p->srcXInBytes);
    vp_api_copy_node(context, &dst, &src);
    if (!dst.spilled && !src.spilled)
        return p;
    *own = *p;
    vp_copy_undirect(&own->dstMemoryType, &dst);
    vp_copy_undirect(&own->srcMemoryType, &src);
    return own;
}

static CUgraphNodeParams *open_node(CUgraphNodeParams *params, struct own *own) {
    const CUDA_MEMCPY3D *p;
    if (!params || params->type != CU_GRAPH_NODE_TYPE_MEMCPY)
        return params;
    p = open_copy(&params->memcpy.copyParams, params->memcpy.copyCtx, &own->copy);
    if (p != &own->copy)
        return params;
    own->node = *params;
    own->node.memcpy.copyParams = *p;
    return &own->node;
}

static void tie_node(const CUgraphNodeParams *params) {
    if (params && (params->type == CU_GRAPH_NODE_TYPE_HOST || params->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP))
        vp_api_coupled("a host function or wait in a graph");
}

#define VP_MAKE_NODE(symbol, like, opened, then, ...)                                                                  \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        struct own own;                                                                                                \
        bool ours = vp_door_enter();                                                                                   \
        CUresult res;                                                                                                  \
        if (ours && vp_api_copies_matter())                                                                            \
            opened;                                                                                                    \
        res = VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                                  \
        if (ours && res == CUDA_SUCCESS) {                                                                             \
            then;                                                                                                      \
        }                                                                                                              \
        vp_door_leave();                                                                                               \
        return res;                                                                                                    \
    }

VP_DOORS_GRAPH(VP_MAKE)
