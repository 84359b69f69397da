/* Functions and types that the driver has got since the oldest CUDA headers with which this compiles. Of the types only
 * the size matters here. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>

#if CUDA_VERSION < 13010
CUresult CUDAAPI cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset,
                                        CUdeviceptr ptr, size_t size, unsigned long long flags);
#endif

#if CUDA_VERSION < 13020
CUresult CUDAAPI cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data, unsigned int sync);
CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                             CUmemcpyAttributes *attributes, CUstream stream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream stream);
#endif

#if CUDA_VERSION < 13030
typedef void *CUgraphRecaptureCallback;
typedef cuuint32_t CUlogicalEndpointId;
typedef void CUlogicalEndpointProp;
typedef int CUlogicalEndpointIpcHandleType;

CUresult CUDAAPI cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                               CUgraphRecaptureCallback differs, void *data);
CUresult CUDAAPI cuLogicalEndpointCreate(CUlogicalEndpointId id, const CUlogicalEndpointProp *properties);
CUresult CUDAAPI cuLogicalEndpointBindAddr(CUlogicalEndpointId id, CUdevice device, cuuint64_t offset, void *ptr,
                                           cuuint64_t size, unsigned long long flags);
CUresult CUDAAPI cuLogicalEndpointImport(CUlogicalEndpointId id, const void *handle,
                                         CUlogicalEndpointIpcHandleType type);
#endif

#if CUDA_VERSION < 13040
enum { CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN = 6 };
CUresult CUDAAPI cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                   const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params);
CUresult CUDAAPI cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *params);
#endif

#if CUDA_VERSION < 13050
enum { CU_GRAPH_NODE_TYPE_MEMCPY_BATCH = 14 };
typedef struct {
    size_t count;
    CUdeviceptr *dsts, *srcs;
    size_t *sizes;
    CUmemcpyAttributes *attrs;
    size_t *attrsIdxs;
    size_t numAttrs;
    CUcontext ctx;
} CUDA_MEMCPY_BATCH_NODE_PARAMS;
#endif
