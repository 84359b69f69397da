/* Doors of the driver: graphs. What is a host function, a wait or a copy between devices in a stream is so as a node,
 * which no stream has yet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

static void open_copy(const CUDA_MEMCPY3D *p, CUcontext context) {
    struct vp_copy_end dst, src;

    if (!p)
        return;
    dst = vp_copy_end_of(p->dstMemoryType, p->dstDevice, p->dstXInBytes);
    src = vp_copy_end_of(p->srcMemoryType, p->srcDevice, p->srcXInBytes);
    vp_api_copy_node(context, &dst, &src);
}

static void open_node(const CUgraphNodeParams *params) {
    if (vp_api_copies_matter() && params && params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        open_copy(&params->memcpy.copyParams, params->memcpy.copyCtx);
}

static void tie_node(const CUgraphNodeParams *params) {
    if (params && (params->type == CU_GRAPH_NODE_TYPE_HOST || params->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP))
        vp_api_coupled("a host function or wait in a graph");
}

VP_DOORS_GRAPH(VP_MAKE)
