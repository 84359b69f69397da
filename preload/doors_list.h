/* The doors: every symbol that the preload library takes over, in one place. From these lists come the
 * exports (vpool.map), the names that dlsym looks out for, and the exchange of pointers; a new door is a line
 * here and a function in doors_*.c.
 *
 * Nothing is included here: the linker's version script is made from this file by the preprocessor alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_DOORS_LIST_H
#define VP_DOORS_LIST_H

/*
 * X(symbol, like): a function of libcuda, and one that cuda.h declares with the same signature. cuda.h knows
 * only the newest variant of each by its own name; older ones, and those of the per-thread stream (_ptsz),
 * are symbols of their own.
 */

/* Served from the pool, or told to it, or tried again when memory was short: doors_code.c, doors_driver.c,
 * doors_ipc.c, doors_others.c, doors_state.c, doors_sync.c. */
#define VP_DOORS_SERVED(X)                                                                                             \
    X(cuMemAlloc_v2, cuMemAlloc_v2)                                                                                                                  \
    X(cuMemAllocPitch_v2, cuMemAllocPitch_v2)                                                                                                                  \
    X(cuMemFree_v2, cuMemFree_v2)                                                                                                                  \
    X(cuMemAllocAsync, cuMemAllocAsync)                                                                                                                  \
    X(cuMemAllocAsync_ptsz, cuMemAllocAsync)                                                                                                                  \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync)                                                                                                                  \
    X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync)                                                                                                                  \
    X(cuMemFreeAsync, cuMemFreeAsync)                                                                                                                  \
    X(cuMemFreeAsync_ptsz, cuMemFreeAsync)                                                                                                                  \
    X(cuMemCreate, cuMemCreate)                                                                                                                  \
    X(cuMemRelease, cuMemRelease)                                                                                                                  \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle)                                                                                                                  \
    X(cuMemAllocManaged, cuMemAllocManaged)                                                                                                                  \
    X(cuMemAllocHost_v2, cuMemAllocHost_v2)                                                                                                                  \
    X(cuMemHostAlloc, cuMemHostAlloc)                                                                                                                  \
    X(cuMemHostRegister_v2, cuMemHostRegister_v2)                                                                                                                  \
    X(cuArrayCreate_v2, cuArrayCreate_v2)                                                                                                                  \
    X(cuArray3DCreate_v2, cuArray3DCreate_v2)                                                                                                                  \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate)                                                                                                                  \
    X(cuModuleLoad, cuModuleLoad)                                                                                                                  \
    X(cuModuleLoadData, cuModuleLoadData)                                                                                                                  \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx)                                                                                                                  \
    X(cuModuleLoadFatBinary, cuModuleLoadFatBinary)                                                                                                                  \
    X(cuModuleGetFunction, cuModuleGetFunction)                                                                                                                  \
    X(cuModuleGetGlobal_v2, cuModuleGetGlobal_v2)                                                                                                                  \
    X(cuLibraryLoadData, cuLibraryLoadData)                                                                                                                  \
    X(cuLibraryLoadFromFile, cuLibraryLoadFromFile)                                                                                                                  \
    X(cuLibraryGetModule, cuLibraryGetModule)                                                                                                                  \
    X(cuLibraryGetGlobal, cuLibraryGetGlobal)                                                                                                                  \
    X(cuLibraryGetManaged, cuLibraryGetManaged)                                                                                                                  \
    X(cuKernelGetFunction, cuKernelGetFunction)                                                                                                                  \
    X(cuFuncLoad, cuFuncLoad)                                                                                                                  \
    X(cuCtxSetLimit, cuCtxSetLimit)                                                                                                                  \
    X(cuGreenCtxCreate, cuGreenCtxCreate)                                                                                                                  \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags)                                                                                                                  \
    X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams)                                                                                                                  \
    X(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams)                                                                                                                  \
    X(cuGraphUpload, cuGraphUpload)                                                                                                                  \
    X(cuGraphUpload_ptsz, cuGraphUpload)                                                                                                                  \
    X(cuGraphLaunch, cuGraphLaunch)                                                                                                                  \
    X(cuGraphLaunch_ptsz, cuGraphLaunch)                                                                                                                  \
    X(cuMemGetInfo_v2, cuMemGetInfo_v2)                                                                                                                  \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange_v2)                                                                                                                  \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle)                                                                                                                  \
    X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2)                                                                                                                  \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle_v2)                                                                                                                  \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle)                                                                                                                  \
    X(cuPointerGetAttribute, cuPointerGetAttribute)                                                                                                                  \
    X(cuPointerGetAttributes, cuPointerGetAttributes)                                                                                                                  \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool)                                                                                                                  \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool)                                                                                                                  \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool)                                                                                                                  \
    X(cuMemSetMemPool, cuMemSetMemPool)                                                                                                                  \
    X(cuMemPoolCreate, cuMemPoolCreate)                                                                                                                  \
    X(cuMemPoolDestroy, cuMemPoolDestroy)                                                                                                                  \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute)                                                                                                                  \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute)                                                                                                                  \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo)                                                                                                                  \
    X(cuMemPoolSetAccess, cuMemPoolSetAccess)                                                                                                                  \
    X(cuMemPoolExportPointer, cuMemPoolExportPointer)                                                                                                                  \
    X(cuStreamSynchronize, cuStreamSynchronize)                                                                                                                  \
    X(cuStreamSynchronize_ptsz, cuStreamSynchronize)                                                                                                                  \
    X(cuCtxSynchronize, cuCtxSynchronize)                                                                                                                  \
    X(cuCtxSynchronize_v2, cuCtxSynchronize_v2)                                                                                                                  \
    X(cuEventSynchronize, cuEventSynchronize)                                                                                                                  \
    X(cuStreamCreate, cuStreamCreate)                                                                                                                  \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority)                                                                                                                  \
    X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate)                                                                                                                  \
    X(cuStreamDestroy, cuStreamDestroy_v2)                                                                                                                  \
    X(cuStreamDestroy_v2, cuStreamDestroy_v2)                                                                                                                  \
    X(cuStreamBeginCapture, vp_stream_begin_capture_v1)                                                                                                                  \
    X(cuStreamBeginCapture_ptsz, vp_stream_begin_capture_v1)                                                                                                                  \
    X(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2)                                                                                                                  \
    X(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2)                                                                                                                  \
    X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph)                                                                                                                  \
    X(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph)                                                                                                                  \
    X(cuStreamEndCapture, cuStreamEndCapture)                                                                                                                  \
    X(cuStreamEndCapture_ptsz, cuStreamEndCapture)                                                                                                                  \
    X(cuCtxCreate_v2, vp_ctx_create_v2)                                                                                                                  \
    X(cuCtxCreate_v3, vp_ctx_create_v3)                                                                                                                  \
    X(cuCtxCreate_v4, cuCtxCreate_v4)                                                                                                                  \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                                                                                                  \
    X(cuCtxDestroy, cuCtxDestroy_v2)                                                                                                                  \
    X(cuCtxDestroy_v2, cuCtxDestroy_v2)                                                                                                                  \
    X(cuCtxDetach, cuCtxDestroy_v2)                                                                                                                  \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy)                                                                                                                  \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)                                                                                                                  \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2)                                                                                                                  \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)                                                                                                                  \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset_v2)                                                                                                                  \
    X(cuMemcpyPeer, cuMemcpyPeer)                                                                                                                  \
    X(cuMemcpyPeer_ptds, cuMemcpyPeer)                                                                                                                  \
    X(cuMemcpyPeerAsync, cuMemcpyPeerAsync)                                                                                                                  \
    X(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync)                                                                                                                  \
    X(cuMemcpy3DPeer, cuMemcpy3DPeer)                                                                                                                  \
    X(cuMemcpy3DPeer_ptds, cuMemcpy3DPeer)                                                                                                                  \
    X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync)                                                                                                                  \
    X(cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeerAsync)                                                                                                                  \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess)                                                                                                                  \
    X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess)

/* Only watched, for what they say of a stream's ties to the world outside: doors_observe.c. */
#define VP_DOORS_WATCHED(X)                                                                                            \
    X(cuIpcOpenEventHandle, cuIpcOpenEventHandle)                                                                                                                  \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle)                                                                                                                  \
    X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle)                                                                                                                  \
    X(cuImportExternalMemory, cuImportExternalMemory)                                                                                                                  \
    X(cuImportExternalSemaphore, cuImportExternalSemaphore)                                                                                                                  \
    X(cuStreamWaitValue32, cuStreamWaitValue32_v2)                                                                                                                  \
    X(cuStreamWaitValue32_ptsz, cuStreamWaitValue32_v2)                                                                                                                  \
    X(cuStreamWaitValue32_v2, cuStreamWaitValue32_v2)                                                                                                                  \
    X(cuStreamWaitValue32_v2_ptsz, cuStreamWaitValue32_v2)                                                                                                                  \
    X(cuStreamWaitValue64, cuStreamWaitValue64_v2)                                                                                                                  \
    X(cuStreamWaitValue64_ptsz, cuStreamWaitValue64_v2)                                                                                                                  \
    X(cuStreamWaitValue64_v2, cuStreamWaitValue64_v2)                                                                                                                  \
    X(cuStreamWaitValue64_v2_ptsz, cuStreamWaitValue64_v2)                                                                                                                  \
    X(cuStreamBatchMemOp, cuStreamBatchMemOp_v2)                                                                                                                  \
    X(cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp_v2)                                                                                                                  \
    X(cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2)                                                                                                                  \
    X(cuStreamBatchMemOp_v2_ptsz, cuStreamBatchMemOp_v2)                                                                                                                  \
    X(cuLaunchHostFunc, cuLaunchHostFunc)                                                                                                                  \
    X(cuLaunchHostFunc_ptsz, cuLaunchHostFunc)                                                                                                                  \
    X(cuStreamAddCallback, cuStreamAddCallback)                                                                                                                  \
    X(cuStreamAddCallback_ptsz, cuStreamAddCallback)                                                                                                                  \
    X(cuGraphAddHostNode, cuGraphAddHostNode)                                                                                                                  \
    X(cuGraphAddBatchMemOpNode, cuGraphAddBatchMemOpNode)                                                                                                                  \
    X(cuGraphAddNode, vp_graph_add_node_v1)                                                                                                                  \
    X(cuGraphAddNode_v2, cuGraphAddNode_v2)

/* Copies, which may have to go another way between devices that cannot reach each other: doors_copy.c. */
#define VP_DOORS_COPIES(X)                                                                                             \
    X(cuMemcpy, cuMemcpy)                                                                                                                  \
    X(cuMemcpy_ptds, cuMemcpy)                                                                                                                  \
    X(cuMemcpyAsync, cuMemcpyAsync)                                                                                                                  \
    X(cuMemcpyAsync_ptsz, cuMemcpyAsync)                                                                                                                  \
    X(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2)                                                                                                                  \
    X(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2)                                                                                                                  \
    X(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2)                                                                                                                  \
    X(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2)                                                                                                                  \
    X(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2)                                                                                                                  \
    X(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2)                                                                                                                  \
    X(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2)                                                                                                                  \
    X(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2)                                                                                                                  \
    X(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2)                                                                                                                  \
    X(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2)                                                                                                                  \
    X(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2)                                                                                                                  \
    X(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2)                                                                                                                  \
    X(cuMemcpy2D_v2, cuMemcpy2D_v2)                                                                                                                  \
    X(cuMemcpy2D_v2_ptds, cuMemcpy2D_v2)                                                                                                                  \
    X(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2)                                                                                                                  \
    X(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync_v2)                                                                                                                  \
    X(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2)                                                                                                                  \
    X(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DUnaligned_v2)                                                                                                                  \
    X(cuMemcpy3D_v2, cuMemcpy3D_v2)                                                                                                                  \
    X(cuMemcpy3D_v2_ptds, cuMemcpy3D_v2)                                                                                                                  \
    X(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2)                                                                                                                  \
    X(cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync_v2)                                                                                                                  \
    X(cuMemcpyBatchAsync, vp_memcpy_batch_v1)                                                                                                                  \
    X(cuMemcpyBatchAsync_ptsz, vp_memcpy_batch_v1)                                                                                                                  \
    X(cuMemcpyBatchAsync_v2, vp_memcpy_batch_v2)                                                                                                                  \
    X(cuMemcpyBatchAsync_v2_ptsz, vp_memcpy_batch_v2)                                                                                                                  \
    X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode)                                                                                                                  \
    X(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams)                                                                                                                  \
    X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams)                                                                                                                  \
    X(cuGraphNodeSetParams, cuGraphNodeSetParams)                                                                                                                  \
    X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams)

/* The driver's own resolver, in both versions: resolve.c. */
#define VP_DOORS_RESOLVER(X)                                                                                           \
    X(cuGetProcAddress, vp_get_proc_address_v1)                                                                                                                  \
    X(cuGetProcAddress_v2, cuGetProcAddress_v2)

/* No doors: what the doors themselves ask the driver. */
#define VP_DOORS_ASK(X)                                                                                                \
    X(cuCtxGetApiVersion, cuCtxGetApiVersion)                                                                                                                  \
    X(cuCtxGetCurrent, cuCtxGetCurrent)                                                                                                                  \
    X(cuCtxFromGreenCtx, cuCtxFromGreenCtx)                                                                                                                  \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState)                                                                                                                  \
    X(cuStreamIsCapturing, cuStreamIsCapturing)                                                                                                                  \
    X(cuStreamGetCtx, cuStreamGetCtx)                                                                                                                  \
    X(cuCtxPushCurrent_v2, cuCtxPushCurrent_v2)                                                                                                                  \
    X(cuCtxPopCurrent_v2, cuCtxPopCurrent_v2)                                                                                                                  \
    X(cuEventCreate, cuEventCreate)                                                                                                                  \
    X(cuEventRecord, cuEventRecord)                                                                                                                  \
    X(cuEventDestroy_v2, cuEventDestroy_v2)                                                                                                                  \
    X(cuStreamWaitEvent, cuStreamWaitEvent)

#define VP_DOORS_DRIVER(X) VP_DOORS_SERVED(X) VP_DOORS_WATCHED(X) VP_DOORS_COPIES(X) VP_DOORS_RESOLVER(X)

/*
 * X(symbol, like): functions of libcudart: doors_runtime.c. A program finds these through the dynamic linker
 * alone. Looked up in a handle they stay the library's own, which comes back to us through the driver.
 */
#define VP_DOORS_RUNTIME(X)                                                                                            \
    X(cudaMalloc, cudaMalloc)                                                                                                                  \
    X(cudaMallocPitch, cudaMallocPitch)                                                                                                                  \
    X(cudaFree, cudaFree)                                                                                                                  \
    X(cudaMallocAsync, cudaMallocAsync)                                                                                                                  \
    X(cudaMallocAsync_ptsz, cudaMallocAsync)                                                                                                                  \
    X(cudaMallocFromPoolAsync, cudaMallocFromPoolAsync)                                                                                                                  \
    X(cudaMallocFromPoolAsync_ptsz, cudaMallocFromPoolAsync)                                                                                                                  \
    X(cudaFreeAsync, cudaFreeAsync)                                                                                                                  \
    X(cudaFreeAsync_ptsz, cudaFreeAsync)                                                                                                                  \
    X(cudaMemGetInfo, cudaMemGetInfo)                                                                                                                  \
    X(cudaPointerGetAttributes, cudaPointerGetAttributes)                                                                                                                  \
    X(cudaGetDriverEntryPoint, cudaGetDriverEntryPoint)                                                                                                                  \
    X(cudaGetDriverEntryPoint_ptsz, cudaGetDriverEntryPoint)                                                                                                                  \
    X(cudaGetDriverEntryPointByVersion, cudaGetDriverEntryPointByVersion)                                                                                                                  \
    X(cudaGetDriverEntryPointByVersion_ptsz, cudaGetDriverEntryPointByVersion)

/* X(symbol): functions of libnccl that make a communicator: doors_nccl.c. */
#define VP_DOORS_NCCL(X)                                                                                               \
    X(ncclCommInitRank)                                                                                                                  \
    X(ncclCommInitRankConfig)                                                                                                                  \
    X(ncclCommInitRankScalable)                                                                                                                  \
    X(ncclCommInitAll)

/* X(symbol): libc's own: dlsym.S. */
#define VP_DOORS_LIBC(X)                                                                                               \
    X(dlsym)                                                                                                                  \
    X(dlvsym)

#endif
