/* The doors: every symbol that the preload library takes over, in one place, by CUDA's own chapters. From these lists
 * come the exports (vpool.map), the names that dlsym looks out for, the exchange of pointers, and the doors that have
 * nothing to say but what is said here; a new door is a line.
 *
 * Nothing is included here: the linker's version script is made from this file by the preprocessor alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* X(symbol, like, kind, ...): a function of libcuda; a function declared with the same signature; and how the door is
 * made (make.h): BY_HAND in the chapter's file, else generated from the rest of the line. The last words are always the
 * types of its parameters, which are named a, b, c and so on. cuda.h declares only the newest variant of each by its
 * own name; older ones and those of the per-thread stream (_ptsz, _ptds) are symbols of their own. */
/* clang-format off */

/* Pairs of functions: the second (_ptsz, _ptds) means the calling thread's own stream where the first means the legacy
 * one. VP_AND_OWN: the second calls the first, with `own` as the stream parameter; `made`, in parentheses, is the first
 * one's kind and its words. VP_QUEUED: both are made alike, by `made` followed by the stream. VP_AT_ONCE: so are copies
 * that wait, which have no stream parameter. VP_ALIKE: the stream does not matter. */
#define VP_MADE(...) __VA_ARGS__
#define VP_DOOR(X, ...) X(__VA_ARGS__)
#define VP_AND_OWN(X, symbol, like, own, made, ...) \
    VP_DOOR(X, symbol, like, VP_MADE made, __VA_ARGS__) X(symbol##_ptsz, symbol, OWN, own, __VA_ARGS__)
#define VP_QUEUED(X, symbol, like, stream, made, ...) \
    VP_DOOR(X, symbol, like, VP_MADE made, stream, __VA_ARGS__) \
    VP_DOOR(X, symbol##_ptsz, like, VP_MADE made, vp_own(stream), __VA_ARGS__)
#define VP_AT_ONCE(X, symbol, kind, ...) \
    X(symbol, symbol, kind, true, CU_STREAM_LEGACY, __VA_ARGS__) \
    X(symbol##_ptds, symbol, kind, true, CU_STREAM_PER_THREAD, __VA_ARGS__)
#define VP_ALIKE(X, symbol, ...) X(symbol, __VA_ARGS__) X(symbol##_ptsz, __VA_ARGS__)

/* Synchronous memory of the device; and other memory, whose calls are repeated if there was too little: memory.c. */
#define VP_DOORS_MEMORY(X) \
    X(cuMemAlloc_v2, cuMemAlloc_v2, ALLOCATED, VP_PASSED_cuMemAlloc, b, vp_torch_alloc(a, b), CUdeviceptr *, size_t) \
    X(cuMemAllocPitch_v2, cuMemAllocPitch_v2, ALLOCATED, VP_PASSED_cuMemAllocPitch, vp_pitched(c, d), \
      vp_api_alloc_pitch(a, b, c, d, e), CUdeviceptr *, size_t *, size_t, size_t, unsigned int) \
    X(cuMemFree_v2, cuMemFree_v2, FREED, VP_PASSED_cuMemFree, vp_api_free(a), (void)0, CUdeviceptr) \
    X(cuMemAllocManaged, cuMemAllocManaged, SIZED, VP_MANAGED_MEMORY, vp_api_managed(*a), CUdeviceptr *, size_t, \
      unsigned int) \
    X(cuMemAllocHost_v2, cuMemAllocHost_v2, SIZED, VP_HOST_MEMORY, (void)0, void **, size_t) \
    X(cuMemHostAlloc, cuMemHostAlloc, SIZED, VP_HOST_MEMORY, (void)0, void **, size_t, unsigned int) \
    X(cuMemHostRegister_v2, cuMemHostRegister_v2, SIZED, VP_HOST_MEMORY, (void)0, void *, size_t, unsigned int) \
    X(cuArrayCreate_v2, cuArrayCreate_v2, TRIED, CUarray *, const CUDA_ARRAY_DESCRIPTOR *) \
    X(cuArray3DCreate_v2, cuArray3DCreate_v2, TRIED, CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *) \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, TRIED, CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, \
      unsigned int)

/* Stream-ordered memory, and its pools: mempool.c. The pools' handles stay CUDA's own; what they would hand out and
 * report is ours if we serve them. An allocation from no pool is an error in CUDA, and our blocks are not from a pool
 * that can be exported: both stay with CUDA. */
#define VP_DOORS_MEMPOOL(X) \
    VP_AND_OWN(X, cuMemAllocAsync, cuMemAllocAsync, c, \
      (ALLOCATED, VP_PASSED_cuMemAllocAsync, b, vp_api_alloc_async(a, b, NULL, c)), CUdeviceptr *, size_t, CUstream) \
    VP_AND_OWN(X, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, d, \
      (ALLOCATED, VP_PASSED_cuMemAllocFromPoolAsync, c ? b : 0, c ? vp_api_alloc_async(a, b, c, d) : VP_NOT_OURS), \
      CUdeviceptr *, size_t, CUmemoryPool, CUstream) \
    VP_AND_OWN(X, cuMemFreeAsync, cuMemFreeAsync, b, (FREED, VP_PASSED_cuMemFreeAsync, vp_api_free_async(a, b), vp_api_worked(b)), \
      CUdeviceptr, CUstream) \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, THEN, (void)0, CUmemoryPool *, CUdevice) \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, THEN, (void)0, CUmemoryPool *, CUdevice) \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, THEN, vp_api_pool_set_current(a, b), CUdevice, CUmemoryPool) \
    X(cuMemSetMemPool, cuMemSetMemPool, THEN, set_current(a, b, c), CUmemLocation *, CUmemAllocationType, \
      CUmemoryPool) \
    X(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, THEN, of_type(c), CUmemoryPool *, CUmemLocation *, \
      CUmemAllocationType) \
    X(cuMemGetMemPool, cuMemGetMemPool, THEN, of_type(c), CUmemoryPool *, CUmemLocation *, CUmemAllocationType) \
    X(cuMemPoolCreate, cuMemPoolCreate, TRIED_THEN, pool_created(*a, b), CUmemoryPool *, const CUmemPoolProps *) \
    X(cuMemPoolDestroy, cuMemPoolDestroy, BRACKETED, vp_api_pool_destroying(a), \
      vp_api_pool_destroyed(a, res == CUDA_SUCCESS), CUmemoryPool) \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, SERVED, vp_api_pool_get_attribute(a, b, c), CUmemoryPool, \
      CUmemPool_attribute, void *) \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, SERVED, \
      vp_api_pool_set_attribute(a, b, vp_adopt_threshold(__builtin_return_address(0), b, c)), CUmemoryPool, \
      CUmemPool_attribute, void *) \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, SERVED, vp_api_pool_trim_to(a, b), CUmemoryPool, size_t) \
    X(cuMemPoolSetAccess, cuMemPoolSetAccess, SERVED, vp_api_pool_set_access(a, b, c), CUmemoryPool, \
      const CUmemAccessDesc *, size_t) \
    X(cuMemPoolExportPointer, cuMemPoolExportPointer, AROUND, b = vp_api_owns(b) ? 0 : b, vp_api_tied(VP_TIE_EXPORT), \
      CUmemPoolPtrExportData *, CUdeviceptr) \
    X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, THEN, imported("memory pool imported"), \
      CUmemoryPool *, void *, CUmemAllocationHandleType, unsigned long long)

/* Handles of physical memory that the program creates itself: vmm.c. They are counted, so that the statistics can say
 * who holds the device's memory. A release is noted before the call: after it, another thread may get the same handle.
 * To these calls, memory of the pool looks like cuMemAlloc's: it is no mapping of the program's. */
#define VP_DOORS_VMM(X) \
    X(cuMemCreate, cuMemCreate, SIZED, memory_of(b, c), vp_api_other_created(device_of(c), *a, b), \
      CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long) \
    X(cuMemRelease, cuMemRelease, FIRST, vp_api_other_released(a), CUmemGenericAllocationHandle) \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, AROUND, \
      b = (void *)vp_api_mapped_address((CUdeviceptr)b, 0, false), vp_api_other_retained(*a), CUmemGenericAllocationHandle *, \
      void *) \
    X(cuMemMap, cuMemMap, FIRST, a = vp_api_mapped_address(a, b, false), CUdeviceptr, size_t, size_t, \
      CUmemGenericAllocationHandle, unsigned long long) \
    X(cuMemUnmap, cuMemUnmap, FIRST, a = vp_api_mapped_address(a, b, false), CUdeviceptr, size_t) \
    X(cuMemSetAccess, cuMemSetAccess, FIRST, a = vp_api_mapped_address(a, b, false), CUdeviceptr, size_t, \
      const CUmemAccessDesc *, size_t) \
    X(cuMemAddressFree, cuMemAddressFree, FIRST, a = vp_api_mapped_address(a, b, false), CUdeviceptr, size_t) \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, THEN, vp_api_tied(VP_TIE_EXPORT), void *, \
      CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long) \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, THEN, \
      imported("physical memory imported"), CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType)

/* Queries about memory: query.c. */
#define VP_DOORS_QUERY(X) \
    X(cuMemGetInfo_v2, cuMemGetInfo_v2, SERVED, vp_api_mem_info(a, b), size_t *, size_t *) \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange_v2, SERVED, asked(vp_api_address_range(a, b, c), &c), CUdeviceptr *, \
      size_t *, CUdeviceptr) \
    X(cuPointerGetAttribute, cuPointerGetAttribute, SERVED, asked(vp_api_pointer_attribute(a, b, c), &c), void *, \
      CUpointer_attribute, CUdeviceptr) \
    X(cuPointerGetAttributes, cuPointerGetAttributes, BY_HAND) \
    X(cuMemGetAccess, cuMemGetAccess, AROUND, c = vp_api_asked_address(c), access_is_ours(a, c), unsigned long long *, \
      const CUmemLocation *, CUdeviceptr) \
    X(cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer_v2, FIRST, b = no_host_memory(b), CUdeviceptr *, void *, unsigned) \
    X(cuMemHostGetFlags, cuMemHostGetFlags, FIRST, b = no_host_memory(b), unsigned *, void *) \
    X(cuPointerSetAttribute, cuPointerSetAttribute, SERVED, \
      (vp_bare_pin(c, 0), asked(vp_api_sync_memops(a, b, c), &c)), const void *, CUpointer_attribute, CUdeviceptr) \
    X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, AROUND, \
      (vp_bare_pin(b, c), b = vp_api_shown_address(b, c)), vp_api_registered(b), void *, CUdeviceptr, size_t, \
      CUmemRangeHandleType, unsigned long long)

/* Sharing with other processes, by legacy IPC and otherwise: ipc.c. We open handles that a pool made, CUDA others. */
#define VP_DOORS_IPC(X) \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, SERVED, shared(a, b), CUipcMemHandle *, CUdeviceptr) \
    X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, BY_HAND) \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle_v2, BY_HAND) \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, SERVED, vp_api_ipc_close(a), CUdeviceptr) \
    X(cuMulticastCreate, cuMulticastCreate, THEN, multicast_created(b), CUmemGenericAllocationHandle *, \
      const CUmulticastObjectProp *) \
    X(cuMulticastBindAddr, cuMulticastBindAddr, AROUND, c = vp_api_mapped_address(c, d, unshared), vp_api_multicast(c), \
      CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t, unsigned long long) \
    X(cuMulticastBindAddr_v2, cuMulticastBindAddr_v2, AROUND, d = vp_api_mapped_address(d, e, unshared), vp_api_multicast(d), \
      CUmemGenericAllocationHandle, CUdevice, size_t, CUdeviceptr, size_t, unsigned long long) \
    X(cuLogicalEndpointCreate, cuLogicalEndpointCreate, THEN, vp_api_tied(VP_TIE_MULTICAST), CUlogicalEndpointId, \
      const CUlogicalEndpointProp *) \
    X(cuLogicalEndpointBindAddr, cuLogicalEndpointBindAddr, AROUND, \
      d = (void *)vp_api_mapped_address((CUdeviceptr)d, e, true), \
      vp_api_multicast((CUdeviceptr)d), CUlogicalEndpointId, CUdevice, cuuint64_t, void *, cuuint64_t, \
      unsigned long long) \
    X(cuLogicalEndpointImport, cuLogicalEndpointImport, THEN, imported("logical endpoint imported"), \
      CUlogicalEndpointId, const void *, CUlogicalEndpointIpcHandleType) \
    X(cuIpcGetEventHandle, cuIpcGetEventHandle, THEN, \
      (vp_api_coupled("event shown to another process"), vp_api_tied(VP_TIE_EXPORT)), CUipcEventHandle *, CUevent) \
    X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, THEN, imported("event of another process opened"), CUevent *, \
      CUipcEventHandle) \
    X(cuImportExternalMemory, cuImportExternalMemory, TRIED_THEN, imported("external memory imported"), \
      CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *) \
    X(cuImportExternalSemaphore, cuImportExternalSemaphore, THEN, imported("external semaphore imported"), \
      CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *)

/* Streams, their captures, and what they are made to wait for: stream.c. */
#define VP_DOORS_STREAM(X) \
    X(cuStreamCreate, cuStreamCreate, TRIED_THEN, vp_api_stream_created(*a), CUstream *, unsigned int) \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, TRIED_THEN, vp_api_stream_created(*a), CUstream *, \
      unsigned int, int) \
    X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, TRIED_THEN, vp_api_stream_created(*a), CUstream *, CUgreenCtx, \
      unsigned int, int) \
    X(cuStreamDestroy_v2, cuStreamDestroy_v2, FIRST, vp_api_stream_destroying(a), CUstream) \
    X(cuStreamDestroy, cuStreamDestroy_v2, SAME, CUstream) \
    VP_AND_OWN(X, cuStreamSynchronize, cuStreamSynchronize, a, (WAITED, VP_WAITED_STREAM, a), \
      CUstream) \
    VP_AND_OWN(X, cuStreamBeginCapture, vp_stream_begin_capture_v1, a, (CAPTURE), CUstream) \
    VP_AND_OWN(X, cuStreamBeginCapture_v2, cuStreamBeginCapture_v2, a, (CAPTURE), CUstream, CUstreamCaptureMode) \
    VP_AND_OWN(X, cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, a, (CAPTURE), CUstream, CUgraph, \
      const CUgraphNode *, const CUgraphEdgeData *, size_t, CUstreamCaptureMode) \
    VP_AND_OWN(X, cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph, a, (CAPTURE), CUstream, \
      CUstreamCaptureMode, CUgraph, CUgraphRecaptureCallback, void *) \
    VP_AND_OWN(X, cuStreamEndCapture, cuStreamEndCapture, a, (BRACKETED, (void)0, vp_api_capture_ended(a)), CUstream, \
      CUgraph *) \
    VP_AND_OWN(X, cuStreamWaitValue32, cuStreamWaitValue32_v2, a, (AROUND, waits(), vp_api_worked(a)), CUstream, CUdeviceptr, cuuint32_t, \
      unsigned int) \
    VP_AND_OWN(X, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2, a, (AROUND, waits(), vp_api_worked(a)), CUstream, CUdeviceptr, \
      cuuint32_t, unsigned int) \
    VP_AND_OWN(X, cuStreamWaitValue64, cuStreamWaitValue64_v2, a, (AROUND, waits(), vp_api_worked(a)), CUstream, CUdeviceptr, cuuint64_t, \
      unsigned int) \
    VP_AND_OWN(X, cuStreamWaitValue64_v2, cuStreamWaitValue64_v2, a, (AROUND, waits(), vp_api_worked(a)), CUstream, CUdeviceptr, \
      cuuint64_t, unsigned int) \
    VP_AND_OWN(X, cuStreamBatchMemOp, cuStreamBatchMemOp_v2, a, (AROUND, batch(b, c, d), vp_api_worked(a)), CUstream, unsigned int, \
      CUstreamBatchMemOpParams *, unsigned int) \
    VP_AND_OWN(X, cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2, a, (AROUND, batch(b, c, d), vp_api_worked(a)), CUstream, unsigned int, \
      CUstreamBatchMemOpParams *, unsigned int) \
    VP_AND_OWN(X, cuLaunchHostFunc, cuLaunchHostFunc, a, (AROUND, host_function(a), vp_api_worked(a)), CUstream, CUhostFn, void *) \
    VP_AND_OWN(X, cuLaunchHostFunc_v2, cuLaunchHostFunc_v2, a, (AROUND, host_function(a), vp_api_worked(a)), CUstream, CUhostFn, void *, \
      unsigned int) \
    VP_AND_OWN(X, cuStreamAddCallback, cuStreamAddCallback, a, (AROUND, host_function(a), vp_api_worked(a)), CUstream, CUstreamCallback, \
      void *, unsigned int) \
    X(cuEventSynchronize, cuEventSynchronize, WAITED, VP_WAITED_EVENT, NULL, CUevent)

/* Work queued on streams, except copies: stream.c. Each call is noted, since the legacy stream orders other streams by
 * it. It may also need device memory, as the first launch of a kernel does, which loads the kernel. */
#define VP_ON(X, symbol, stream, ...) VP_QUEUED(X, symbol, symbol, stream, (LAUNCHED, false), __VA_ARGS__)
#define VP_FILLS(X, bits, type) \
    VP_AT_ONCE(X, cuMemsetD##bits##_v2, LAUNCHED, CUdeviceptr, type, size_t) \
    VP_AT_ONCE(X, cuMemsetD2D##bits##_v2, LAUNCHED, CUdeviceptr, size_t, type, size_t, size_t) \
    VP_ON(X, cuMemsetD##bits##Async, d, CUdeviceptr, type, size_t, CUstream) \
    VP_ON(X, cuMemsetD2D##bits##Async, f, CUdeviceptr, size_t, type, size_t, size_t, CUstream)
#define VP_WRITES(X, bits) \
    VP_QUEUED(X, cuStreamWriteValue##bits, cuStreamWriteValue##bits##_v2, a, (LAUNCHED, false), CUstream, CUdeviceptr, \
      cuuint##bits##_t, unsigned int) \
    VP_ON(X, cuStreamWriteValue##bits##_v2, a, CUstream, CUdeviceptr, cuuint##bits##_t, unsigned int)
#define VP_SHAPE unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int
#define VP_DOORS_QUEUE(X) \
    VP_ON(X, cuLaunchKernel, i, CUfunction, VP_SHAPE, CUstream, void **, void **) \
    VP_ON(X, cuLaunchCooperativeKernel, i, CUfunction, VP_SHAPE, CUstream, void **) \
    VP_ON(X, cuLaunchKernelEx, (a ? a->hStream : NULL), const CUlaunchConfig *, CUfunction, void **, void **) \
    X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, LAUNCHED, false, \
      (a ? a->hStream : NULL), CUDA_LAUNCH_PARAMS *, unsigned int, unsigned int) \
    X(cuLaunch, cuLaunch, LAUNCHED, false, CU_STREAM_LEGACY, CUfunction) \
    X(cuLaunchGrid, cuLaunchGrid, LAUNCHED, false, CU_STREAM_LEGACY, CUfunction, int, int) \
    X(cuLaunchGridAsync, cuLaunchGridAsync, LAUNCHED, false, d, CUfunction, int, int, CUstream) \
    VP_FILLS(X, 8, unsigned char) VP_FILLS(X, 16, unsigned short) VP_FILLS(X, 32, unsigned int) \
    VP_AT_ONCE(X, cuMemcpyAtoH_v2, LAUNCHED, void *, CUarray, size_t, size_t) \
    VP_AT_ONCE(X, cuMemcpyHtoA_v2, LAUNCHED, CUarray, size_t, const void *, size_t) \
    VP_AT_ONCE(X, cuMemcpyAtoA_v2, LAUNCHED, CUarray, size_t, CUarray, size_t, size_t) \
    VP_ON(X, cuMemcpyAtoHAsync_v2, e, void *, CUarray, size_t, size_t, CUstream) \
    VP_ON(X, cuMemcpyHtoAAsync_v2, e, CUarray, size_t, const void *, size_t, CUstream) \
    VP_ON(X, cuEventRecord, b, CUevent, CUstream) \
    VP_ON(X, cuEventRecordWithFlags, b, CUevent, CUstream, unsigned int) \
    VP_ON(X, cuStreamWaitEvent, a, CUstream, CUevent, unsigned int) \
    VP_WRITES(X, 32) VP_WRITES(X, 64) \
    VP_ON(X, cuSignalExternalSemaphoresAsync, d, const CUexternalSemaphore *, \
      const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *, unsigned int, CUstream) \
    VP_ON(X, cuWaitExternalSemaphoresAsync, d, const CUexternalSemaphore *, \
      const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *, unsigned int, CUstream) \
    VP_ON(X, cuGraphicsMapResources, c, unsigned int, CUgraphicsResource *, CUstream) \
    VP_ON(X, cuGraphicsUnmapResources, c, unsigned int, CUgraphicsResource *, CUstream) \
    VP_QUEUED(X, cuMemPrefetchAsync, vp_mem_prefetch_v1, d, (LAUNCHED, false), CUdeviceptr, size_t, CUdevice, CUstream) \
    VP_ON(X, cuMemPrefetchAsync_v2, e, CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream) \
    VP_ON(X, cuMemPrefetchBatchAsync, h, CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t, \
      unsigned long long, CUstream) \
    VP_ON(X, cuMemDiscardAndPrefetchBatchAsync, h, CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t, \
      unsigned long long, CUstream) \
    VP_ON(X, cuMemDiscardBatchAsync, e, CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream) \
    VP_ON(X, cuMemBatchDecompressAsync, e, CUmemDecompressParams *, size_t, unsigned int, size_t *, CUstream) \
    VP_ON(X, cuMemMapArrayAsync, c, CUarrayMapInfo *, unsigned int, CUstream) \
    VP_ON(X, cuStreamAttachMemAsync, a, CUstream, CUdeviceptr, size_t, unsigned int)

/* Contexts, the memory that they reserve, and their peers: context.c. */
#define VP_DOORS_CONTEXT(X) \
    X(cuCtxCreate, vp_ctx_create_v2, TRIED_THEN, vp_api_context_created(*a, false), CUcontext *, unsigned int, CUdevice) \
    X(cuGLCtxCreate_v2, vp_ctx_create_v2, TRIED_THEN, vp_api_context_created(*a, false), CUcontext *, unsigned int, CUdevice) \
    X(cuCtxCreate_v2, vp_ctx_create_v2, TRIED_THEN, vp_api_context_created(*a, false), CUcontext *, unsigned int, \
      CUdevice) \
    X(cuCtxCreate_v3, vp_ctx_create_v3, TRIED_THEN, vp_api_context_created(*a, false), CUcontext *, \
      CUexecAffinityParam *, int, unsigned int, CUdevice) \
    X(cuCtxCreate_v4, cuCtxCreate_v4, TRIED_THEN, vp_api_context_created(*a, false), CUcontext *, CUctxCreateParams *, \
      unsigned int, CUdevice) \
    X(cuGreenCtxCreate, cuGreenCtxCreate, TRIED_THEN, vp_api_context_created(of_green(*a), false), CUgreenCtx *, \
      CUdevResourceDesc, CUdevice, unsigned int) \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, TRIED_THEN, vp_api_context_created(*a, true), CUcontext *, \
      CUdevice) \
    X(cuCtxDestroy_v2, cuCtxDestroy_v2, ENDS, a, true, CUcontext) \
    X(cuCtxDestroy, cuCtxDestroy_v2, SAME, CUcontext) \
    X(cuCtxDetach, cuCtxDestroy_v2, BY_HAND) \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy, BY_HAND) \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2, ENDS, vp_api_primary(a, true), primary_ended(a), \
      CUdevice) \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, SAME, CUdevice) \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset_v2, ENDS, vp_api_primary(a, false), true, CUdevice) \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, SAME, CUdevice) \
    X(cuCtxPopCurrent_v2, cuCtxPopCurrent_v2, LEAVES, true, CUcontext *) \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2, SAME, CUcontext *) \
    X(cuCtxSetCurrent, cuCtxSetCurrent, LEAVES, !a, CUcontext) \
    X(cuCtxSynchronize, cuCtxSynchronize, BY_HAND) \
    X(cuCtxSynchronize_v2, cuCtxSynchronize_v2, WAITED, VP_WAITED_CONTEXT, a, CUcontext) \
    X(cuCtxWaitEvent, cuCtxWaitEvent, THEN, vp_awaited++, CUcontext, CUevent) \
    X(cuGreenCtxWaitEvent, cuGreenCtxWaitEvent, THEN, vp_awaited++, CUgreenCtx, CUevent) \
    X(cuCtxSetLimit, cuCtxSetLimit, TRIED, CUlimit, size_t) \
    X(cuCtxSetFlags, cuCtxSetFlags, FIRST, a |= vp_sync_flag, unsigned int) \
    X(cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags_v2, FIRST, b |= vp_sync_flag, CUdevice, unsigned int) \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, TRIED_THEN, res = peer_enabled(a), CUcontext, unsigned int) \
    X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, THEN, vp_api_peer_disabled(a), CUcontext)

/* Modules and libraries: context.c. They take device memory when they are loaded, or lazily when one of their functions
 * or variables is first asked for or launched; then also for local memory, the heap and printf(). */
#define VP_DOORS_MODULE(X) \
    X(cuModuleLoad, cuModuleLoad, TRIED, CUmodule *, const char *) \
    X(cuModuleLoadData, cuModuleLoadData, TRIED, CUmodule *, const void *) \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx, TRIED, CUmodule *, const void *, unsigned int, CUjit_option *, void **) \
    X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, TRIED, CUmodule *, const void *) \
    X(cuModuleGetFunction, cuModuleGetFunction, TRIED, CUfunction *, CUmodule, const char *) \
    X(cuModuleGetGlobal_v2, cuModuleGetGlobal_v2, TRIED, CUdeviceptr *, size_t *, CUmodule, const char *) \
    X(cuLibraryLoadData, cuLibraryLoadData, TRIED, CUlibrary *, const void *, CUjit_option *, void **, unsigned int, \
      CUlibraryOption *, void **, unsigned int) \
    X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, TRIED, CUlibrary *, const char *, CUjit_option *, void **, \
      unsigned int, CUlibraryOption *, void **, unsigned int) \
    X(cuLibraryGetModule, cuLibraryGetModule, TRIED, CUmodule *, CUlibrary) \
    X(cuLibraryGetGlobal, cuLibraryGetGlobal, TRIED, CUdeviceptr *, size_t *, CUlibrary, const char *) \
    X(cuLibraryGetManaged, cuLibraryGetManaged, TRIED_THEN, vp_api_tied(VP_TIE_MANAGED), CUdeviceptr *, size_t *, \
      CUlibrary, const char *) \
    X(cuKernelGetFunction, cuKernelGetFunction, TRIED, CUfunction *, CUkernel) \
    X(cuFuncLoad, cuFuncLoad, TRIED, CUfunction) \
    X(cuFuncGetAttribute, cuFuncGetAttribute, TRIED, int *, CUfunction_attribute, CUfunction) \
    X(cuFuncSetAttribute, cuFuncSetAttribute, TRIED, CUfunction, CUfunction_attribute, int) \
    X(cuKernelGetAttribute, cuKernelGetAttribute, TRIED, int *, CUfunction_attribute, CUkernel, CUdevice) \
    X(cuKernelSetAttribute, cuKernelSetAttribute, TRIED, CUfunction_attribute, int, CUkernel, CUdevice)

/* Graphs: graph.c. A graph that allocates gets its memory when it is instantiated, uploaded or launched, in one piece,
 * before work is queued. The upload stream is a parameter of instantiation, and means another stream by each name. */
#define VP_DOORS_GRAPH(X) \
    X(cuGraphInstantiate, vp_graph_instantiate_v2, TRIED, CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t) \
    X(cuGraphInstantiate_v2, vp_graph_instantiate_v2, TRIED, CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t) \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, TRIED, CUgraphExec *, CUgraph, unsigned long long) \
    VP_ALIKE(X, cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, TRIED, CUgraphExec *, CUgraph, \
      CUDA_GRAPH_INSTANTIATE_PARAMS *) \
    VP_AND_OWN(X, cuGraphUpload, cuGraphUpload, b, (TRIED), CUgraphExec, CUstream) \
    VP_AND_OWN(X, cuGraphLaunch, cuGraphLaunch, b, (TRIED_THEN, launched(b)), CUgraphExec, CUstream) \
    X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, TRIED, CUgraphNode *, CUgraph, const CUgraphNode *, size_t, \
      CUDA_MEM_ALLOC_NODE_PARAMS *) \
    X(cuGraphAddHostNode, cuGraphAddHostNode, THEN, vp_api_coupled("a host function in a graph"), CUgraphNode *, \
      CUgraph, const CUgraphNode *, size_t, const CUDA_HOST_NODE_PARAMS *) \
    X(cuGraphAddBatchMemOpNode, cuGraphAddBatchMemOpNode, THEN, vp_api_coupled("a wait for a value in a graph"), \
      CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_BATCH_MEM_OP_NODE_PARAMS *) \
    X(cuGraphAddNode, vp_graph_add_node_v1, NODE, e = open_node(e, &own), tie_node(e), CUgraphNode *, CUgraph, \
      const CUgraphNode *, size_t, CUgraphNodeParams *) \
    X(cuGraphAddNode_v2, cuGraphAddNode_v2, NODE, f = open_node(f, &own), tie_node(f), CUgraphNode *, CUgraph, \
      const CUgraphNode *, const CUgraphEdgeData *, size_t, CUgraphNodeParams *) \
    X(cuGraphAddNode_v3, cuGraphAddNode_v2, NODE, f = open_node(f, &own), tie_node(f), CUgraphNode *, CUgraph, \
      const CUgraphNode *, const CUgraphEdgeData *, size_t, CUgraphNodeParams *) \
    X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, NODE, e = open_copy(e, &f, &own), (void)0, CUgraphNode *, CUgraph, \
      const CUgraphNode *, size_t, const CUDA_MEMCPY3D *, CUcontext) \
    X(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, NODE, b = open_copy(b, NULL, &own), (void)0, \
      CUgraphNode, const CUDA_MEMCPY3D *) \
    X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, NODE, c = open_copy(c, &d, &own), (void)0, \
      CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D *, CUcontext) \
    X(cuGraphNodeSetParams, cuGraphNodeSetParams, NODE, b = open_node(b, &own), (void)0, CUgraphNode, \
      CUgraphNodeParams *) \
    X(cuGraphNodeSetParams_v2, cuGraphNodeSetParams, NODE, b = open_node(b, &own), (void)0, CUgraphNode, \
      CUgraphNodeParams *) \
    X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, NODE, c = open_node(c, &own), (void)0, CUgraphExec, \
      CUgraphNode, CUgraphNodeParams *)

/* Copies, which may need another way between devices that cannot reach each other: copy.c. */
#define VP_DOORS_COPY(X) \
    VP_AT_ONCE(X, cuMemcpy, RANGE, CUdeviceptr, CUdeviceptr, size_t) \
    VP_QUEUED(X, cuMemcpyAsync, cuMemcpyAsync, d, (RANGE, false), CUdeviceptr, CUdeviceptr, size_t, CUstream) \
    VP_AT_ONCE(X, cuMemcpyDtoD_v2, RANGE, CUdeviceptr, CUdeviceptr, size_t) \
    VP_QUEUED(X, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2, d, (RANGE, false), CUdeviceptr, CUdeviceptr, size_t, \
      CUstream) \
    VP_AT_ONCE(X, cuMemcpyHtoD_v2, RANGE, CUdeviceptr, const void *, size_t) \
    VP_QUEUED(X, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2, d, (RANGE, false), CUdeviceptr, const void *, size_t, \
      CUstream) \
    VP_AT_ONCE(X, cuMemcpyDtoH_v2, RANGE, void *, CUdeviceptr, size_t) \
    VP_QUEUED(X, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2, d, (RANGE, false), void *, CUdeviceptr, size_t, CUstream) \
    VP_AT_ONCE(X, cuMemcpy2D_v2, AREA_2D, const CUDA_MEMCPY2D *) \
    VP_AT_ONCE(X, cuMemcpy2DUnaligned_v2, AREA_2D, const CUDA_MEMCPY2D *) \
    VP_QUEUED(X, cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2, b, (AREA_2D, false), const CUDA_MEMCPY2D *, CUstream) \
    VP_AT_ONCE(X, cuMemcpy3D_v2, AREA_3D, const CUDA_MEMCPY3D *) \
    VP_QUEUED(X, cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2, b, (AREA_3D, false), const CUDA_MEMCPY3D *, CUstream) \
    VP_AT_ONCE(X, cuMemcpyAtoD_v2, FROM_ARRAY, CUdeviceptr, CUarray, size_t, size_t) \
    VP_AT_ONCE(X, cuMemcpyDtoA_v2, TO_ARRAY, CUarray, size_t, CUdeviceptr, size_t) \
    VP_AT_ONCE(X, cuMemcpyPeer, PEER_RANGE, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t) \
    VP_QUEUED(X, cuMemcpyPeerAsync, cuMemcpyPeerAsync, f, (PEER_RANGE, false), CUdeviceptr, CUcontext, CUdeviceptr, \
      CUcontext, size_t, CUstream) \
    VP_AT_ONCE(X, cuMemcpy3DPeer, PEER_AREA, const CUDA_MEMCPY3D_PEER *) \
    VP_QUEUED(X, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, b, (PEER_AREA, false), const CUDA_MEMCPY3D_PEER *, CUstream)

/* Copies with attributes, single and in batches, which are split if some copies need another way: copy_batch.c. */
#define VP_DOORS_BATCH(X) \
    VP_QUEUED(X, cuMemcpyBatchAsync, vp_memcpy_batch_v1, i, (BATCH, e, g, h), CUdeviceptr *, CUdeviceptr *, size_t *, \
      size_t, struct CUmemcpyAttributes_st *, size_t *, size_t, size_t *, CUstream) \
    VP_QUEUED(X, cuMemcpyBatchAsync_v2, vp_memcpy_batch_v2, h, (BATCH, e, g, NULL), CUdeviceptr *, CUdeviceptr *, \
      size_t *, size_t, struct CUmemcpyAttributes_st *, size_t *, size_t, CUstream) \
    VP_QUEUED(X, cuMemcpy3DBatchAsync, vp_memcpy_slices_v1, e, (SLICES, c), size_t, \
      struct CUDA_MEMCPY3D_BATCH_OP_st *, size_t *, unsigned long long, CUstream) \
    VP_QUEUED(X, cuMemcpy3DBatchAsync_v2, vp_memcpy_slices_v2, d, (SLICES, NULL), size_t, \
      struct CUDA_MEMCPY3D_BATCH_OP_st *, unsigned long long, CUstream) \
    VP_QUEUED(X, cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync, e, (ONE_RANGE), CUdeviceptr, CUdeviceptr, \
      size_t, struct CUmemcpyAttributes_st *, CUstream) \
    VP_QUEUED(X, cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync, c, (ONE_SLICE), \
      struct CUDA_MEMCPY3D_BATCH_OP_st *, unsigned long long, CUstream)

/* The driver's own resolver, in both versions: lookup.c. */
#define VP_DOORS_RESOLVER(X) \
    X(cuGetProcAddress, vp_get_proc_address_v1, RESOLVES, const char *, void **, int, cuuint64_t) \
    X(cuGetProcAddress_v2, cuGetProcAddress_v2, RESOLVES, const char *, void **, int, cuuint64_t, \
      CUdriverProcAddressQueryResult *)

#define VP_DOORS_DRIVER(X) \
    VP_DOORS_MEMORY(X) VP_DOORS_MEMPOOL(X) VP_DOORS_VMM(X) VP_DOORS_QUERY(X) VP_DOORS_IPC(X) VP_DOORS_STREAM(X) \
    VP_DOORS_QUEUE(X) \
    VP_DOORS_CONTEXT(X) VP_DOORS_MODULE(X) VP_DOORS_GRAPH(X) VP_DOORS_COPY(X) VP_DOORS_BATCH(X) VP_DOORS_RESOLVER(X)

/* Doors that begin in head.S, and continue in C under the name vp_body_... */
#define VP_DOORS_WITH_HEAD(X) \
    X(cuMemAlloc_v2) X(cuMemAllocPitch_v2) X(cuMemAllocManaged) X(cuMemFree_v2) X(cuMemAllocAsync) \
    X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) X(cuMemMap) X(cuMemUnmap) X(cuModuleGetGlobal_v2) X(cuLibraryGetGlobal)

/* Not doors, but functions of the driver that doors themselves call. */
#define VP_DOORS_ASK(X) \
    X(cuCtxGetApiVersion, cuCtxGetApiVersion) \
    X(cuCtxGetCurrent, cuCtxGetCurrent) \
    X(cuCtxGetDevice, cuCtxGetDevice) \
    X(cuCtxFromGreenCtx, cuCtxFromGreenCtx) \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState) \
    X(cuArray3DGetDescriptor_v2, cuArray3DGetDescriptor_v2) \
    X(cuStreamIsCapturing, cuStreamIsCapturing) \
    X(cuStreamGetCtx, cuStreamGetCtx) \
    X(cuCtxPushCurrent_v2, cuCtxPushCurrent_v2) \
    X(cuEventCreate, cuEventCreate) \
    X(cuEventDestroy_v2, cuEventDestroy_v2) \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode)

/* X(symbol, like, kind, ...): functions of libcudart: runtime.c. A program finds these only through the dynamic linker.
 * If it looks them up in a handle, it gets the library's own, which reach us through the driver. */
#define VP_DOORS_RUNTIME(X) \
    X(cudaMalloc, cudaMalloc, BY_HAND) \
    X(cudaMallocPitch, cudaMallocPitch, ALLOCATES, alloc_pitch(a, b, c, d), a && b && c && d, void **, size_t *, \
      size_t, size_t) \
    X(cudaFree, cudaFree, FREES, a && free_now(a), void *) \
    X(cudaMallocAsync, cudaMallocAsync, ALLOCATES, alloc_async(a, b, NULL, c), a && b, void **, size_t, cudaStream_t) \
    X(cudaMallocAsync_ptsz, cudaMallocAsync, ALLOCATES, alloc_async(a, b, NULL, vp_own(c)), a && b, void **, size_t, \
      cudaStream_t) \
    X(cudaMallocFromPoolAsync, cudaMallocFromPoolAsync, ALLOCATES, alloc_async(a, b, c, d), a && b && c, void **, \
      size_t, cudaMemPool_t, cudaStream_t) \
    X(cudaMallocFromPoolAsync_ptsz, cudaMallocFromPoolAsync, ALLOCATES, alloc_async(a, b, c, vp_own(d)), a && b && c, \
      void **, size_t, cudaMemPool_t, cudaStream_t) \
    X(cudaFreeAsync, cudaFreeAsync, FREES, a && free_async(a, b), void *, cudaStream_t) \
    X(cudaFreeAsync_ptsz, cudaFreeAsync, FREES, a && free_async(a, vp_own(b)), void *, cudaStream_t) \
    X(cudaMemGetInfo, cudaMemGetInfo, ALLOCATES, false, false, size_t *, size_t *) \
    X(cudaPointerGetAttributes, cudaPointerGetAttributes, ALLOCATES, false, false, struct cudaPointerAttributes *, const void *) \
    VP_ALIKE(X, cudaGetDriverEntryPoint, cudaGetDriverEntryPoint, RESOLVES, const char *, void **, unsigned long long, \
      enum cudaDriverEntryPointQueryResult *) \
    VP_ALIKE(X, cudaGetDriverEntryPointByVersion, cudaGetDriverEntryPointByVersion, RESOLVES, const char *, void **, \
      unsigned int, unsigned long long, enum cudaDriverEntryPointQueryResult *)

/* X(symbol, ranks, ...): functions of libnccl that create a communicator of `ranks` ranks, or (0) register memory with
 * one: nccl.c. */
#define VP_DOORS_NCCL(X) \
    X(ncclCommInitRank, b, void **, int, vp_nccl_unique_id, int) \
    X(ncclCommInitRankConfig, b, void **, int, vp_nccl_unique_id, int, void *) \
    X(ncclCommInitRankScalable, b, void **, int, int, int, vp_nccl_unique_id *, void *) \
    X(ncclCommInitAll, b, void **, int, const int *) \
    X(ncclCommGrow, b, void *, int, const vp_nccl_unique_id *, int, void **, void *) \
    X(ncclCommRegister, registered(b, c), void *, void *, size_t, void **) \
    X(ncclCommWindowRegister, registered(b, c), void *, void *, size_t, void **, int)

/* X(symbol): functions of PyTorch's libraries, by their C++ names, which are the same in every version that has them.
 * Those that report streams, sizes and blocks are in torch.c: CURRENT is c10::cuda::getCurrentCUDAStream(signed char),
 * STREAM c10::cuda::CUDAStream::stream() const, ROUND the two of roundup_power2_divisions(unsigned long), REPORT
 * c10::reportMemoryUsageToProfiler(). Those whose calls are only noted are in pass.S. */
#define VP_TORCH_CURRENT _ZN3c104cuda20getCurrentCUDAStreamEa
#define VP_TORCH_STREAM _ZNK3c104cuda10CUDAStream6streamEv
#define VP_TORCH_ROUND_CUDA _ZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig24roundup_power2_divisionsEm
#define VP_TORCH_ROUND _ZN3c1016CachingAllocator26AcceleratorAllocatorConfig24roundup_power2_divisionsEm
#define VP_TORCH_REPORT _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define VP_DOORS_TORCH_TOLD(X) \
    X(VP_TORCH_CURRENT) X(VP_TORCH_STREAM) X(VP_TORCH_ROUND_CUDA) X(VP_TORCH_ROUND) X(VP_TORCH_REPORT)

/* X(name, symbol), called when: an allocation was refused; the environment is read; the program changes the cache's
 * settings; a check or an assertion fails, with a C++11 string, an old string, or none; the allocator is replaced by the program's; memory pools are used, by
 * functions or objects; an exception is created. */
#define VP_DOORS_TORCH_PASSED(X) \
    X(REFUSED, _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE) \
    X(GET_ENV, _ZN3c105utils7get_envEPKc) \
    X(GET_ENV_CXX11, _ZN3c105utils7get_envB5cxx11EPKc) \
    X(SETS, _ZN3c104cuda20CUDACachingAllocator20setAllocatorSettingsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE) \
    X(SETS_OLD_STRING, _ZN3c104cuda20CUDACachingAllocator20setAllocatorSettingsERKSs) \
    X(PARSES, _ZN3c1016CachingAllocator26AcceleratorAllocatorConfig9parseArgsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE) \
    X(FAILS, _ZN3c106detail14torchCheckFailEPKcS2_jS2_) \
    X(FAILS_STRING, _ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE) \
    X(FAILS_OLD_STRING, _ZN3c106detail14torchCheckFailEPKcS2_jRKSs) \
    X(ASSERTS, _ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_S2_) \
    X(ASSERTS_STRING, _ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE) \
    X(ASSERTS_OLD_STRING, _ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RKSs) \
    X(CHANGES, _ZN5torch4cuda22CUDAPluggableAllocator22changeCurrentAllocatorERKSt10shared_ptrIN3c104cuda20CUDACachingAllocator13CUDAAllocatorEE) \
    X(POOLS, _ZN2at4cuda17graph_pool_handleEv) \
    X(CAPTURES, _ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode) \
    X(MEMPOOL_BOOL, _ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEb) \
    X(MEMPOOL_2_BOOLS, _ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEbb) \
    X(MEMPOOL_3_BOOLS, _ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEbbb) \
    X(MEMPOOL_OF_AT, _ZN2at4cuda7MemPoolC1EPN3c104cuda20CUDACachingAllocator13CUDAAllocatorEbbb) \
    X(MEMPOOL_SHARED, _ZN2at4cuda7MemPoolC1ESt10shared_ptrIN3c104cuda20CUDACachingAllocator13CUDAAllocatorEEbbb) \
    X(ERRORS, _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE) \
    X(ERRORS_OLD_STRING, _ZN3c105ErrorC2ENS_14SourceLocationESs) \
    X(ERRORS_OF_MEMORY, _ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)

/* X(symbol): functions of libc: pass.S. */
#define VP_DOORS_LIBC(X) \
    X(dlsym) \
    X(dlvsym)
