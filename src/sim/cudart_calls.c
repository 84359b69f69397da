/* The runtime's memory, stream, event and graph calls: almost all of them one driver call each. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cudart_private.h"

#include <string.h>

#define DEVICE(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

/* ---- memory ---- */

/* For no bytes, the runtime returns NULL where the driver refuses; both still make the context. */
static CUresult allocate(const struct rt_driver *d, void **out, size_t size) {
    CUdeviceptr at = 0;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = size ? d->cuMemAlloc(&at, size) : CUDA_SUCCESS;
    *out = (void *)at;
    return result;
}

static CUresult allocate_pitch(const struct rt_driver *d, void **out, size_t *pitch, size_t width, size_t height) {
    if (!out || !pitch)
        return CUDA_ERROR_INVALID_VALUE;
    if (width && height)
        return d->cuMemAllocPitch((CUdeviceptr *)out, pitch, width, height, 4);
    *out = NULL;
    *pitch = 0;
    return CUDA_SUCCESS;
}

static CUresult allocate_async(const struct rt_driver *d, void **out, size_t size, CUmemoryPool pool, CUstream stream) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!size) {
        *out = NULL;
        return CUDA_SUCCESS;
    }
    return pool ? d->cuMemAllocFromPoolAsync((CUdeviceptr *)out, size, pool, stream)
                : d->cuMemAllocAsync((CUdeviceptr *)out, size, stream);
}

RT_CALL(cudaMalloc, (void **out, size_t size), allocate(d, out, size))
RT_CALL(cudaMallocPitch, (void **out, size_t *pitch, size_t width, size_t height),
        allocate_pitch(d, out, pitch, width, height))
RT_CALL(cudaFree, (void *at), at ? d->cuMemFree(DEVICE(at)) : CUDA_SUCCESS)
RT_STREAM_CALL(_ptsz, cudaMallocAsync, (void **out, size_t size, cudaStream_t stream),
               allocate_async(d, out, size, NULL, stream))
RT_STREAM_CALL(_ptsz, cudaMallocFromPoolAsync, (void **out, size_t size, cudaMemPool_t pool, cudaStream_t stream),
               pool ? allocate_async(d, out, size, pool, stream) : CUDA_ERROR_INVALID_VALUE)
RT_STREAM_CALL(_ptsz, cudaFreeAsync, (void *at, cudaStream_t stream),
               at ? d->cuMemFreeAsync(DEVICE(at), stream) : CUDA_SUCCESS)
RT_CALL(cudaMemGetInfo, (size_t *unused, size_t *total), d->cuMemGetInfo(unused, total))
RT_CALL(cudaMallocManaged, (void **out, size_t size, unsigned int flags),
        !out   ? CUDA_ERROR_INVALID_VALUE
        : size ? d->cuMemAllocManaged((CUdeviceptr *)out, size, flags)
               : (*out = NULL, CUDA_SUCCESS))

RT_CALL(cudaMallocHost, (void **out, size_t size), d->cuMemHostAlloc(out, size, 0))
RT_CALL(cudaHostAlloc, (void **out, size_t size, unsigned int flags), d->cuMemHostAlloc(out, size, flags))
RT_CALL(cudaFreeHost, (void *at), at ? d->cuMemFreeHost(at) : CUDA_SUCCESS)
RT_CALL(cudaHostRegister, (void *at, size_t size, unsigned int flags), d->cuMemHostRegister(at, size, flags))
RT_CALL(cudaHostUnregister, (void *at), d->cuMemHostUnregister(at))
RT_CALL(cudaHostGetDevicePointer, (void **out, void *at, unsigned int flags),
        d->cuMemHostGetDevicePointer((CUdeviceptr *)out, at, flags))
RT_CALL(cudaHostGetFlags, (unsigned int *flags, void *at), d->cuMemHostGetFlags(flags, at))

RT_CALL(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * out, void *at),
        d->cuIpcGetMemHandle((CUipcMemHandle *)out, DEVICE(at)))

static CUresult ipc_open(const struct rt_driver *d, void **out, cudaIpcMemHandle_t handle, unsigned flags) {
    CUipcMemHandle copy;
    memcpy(&copy, &handle, sizeof(copy));
    return d->cuIpcOpenMemHandle((CUdeviceptr *)out, copy, flags);
}

RT_CALL(cudaIpcOpenMemHandle, (void **out, cudaIpcMemHandle_t handle, unsigned int flags),
        ipc_open(d, out, handle, flags))
RT_CALL(cudaIpcCloseMemHandle, (void *at), d->cuIpcCloseMemHandle(DEVICE(at)))

static CUresult pointer_attributes(const struct rt_driver *d, struct cudaPointerAttributes *out, const void *at) {
    unsigned type = 0, managed = 0;
    int ordinal = cudaInvalidDeviceId;
    void *device = NULL, *host = NULL;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *data[] = {&type, &managed, &ordinal, &device, &host};
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = d->cuPointerGetAttributes(5, which, data, DEVICE(at));
    if (result != CUDA_SUCCESS)
        return result;
    memset(out, 0, sizeof(*out));
    out->type = managed                        ? cudaMemoryTypeManaged
                : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                                               : cudaMemoryTypeUnregistered;
    out->device = ordinal;
    out->devicePointer = device;
    out->hostPointer = out->type == cudaMemoryTypeUnregistered ? (void *)at : host;
    return CUDA_SUCCESS;
}

RT_CALL(cudaPointerGetAttributes, (struct cudaPointerAttributes * out, const void *at), pointer_attributes(d, out, at))

/* ---- pools: the structures of runtime and driver have one layout ---- */

RT_CALL(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device), d->cuDeviceGetDefaultMemPool(pool, device))
RT_CALL(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int device), d->cuDeviceGetMemPool(pool, device))
RT_CALL(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), d->cuDeviceSetMemPool(device, pool))
RT_CALL(cudaMemPoolCreate, (cudaMemPool_t * pool, const struct cudaMemPoolProps *props),
        d->cuMemPoolCreate(pool, (const CUmemPoolProps *)props))
RT_CALL(cudaMemPoolDestroy, (cudaMemPool_t pool), d->cuMemPoolDestroy(pool))
RT_CALL(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), d->cuMemPoolTrimTo(pool, keep))
RT_CALL(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value),
        d->cuMemPoolGetAttribute(pool, (CUmemPool_attribute)which, value))
RT_CALL(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value),
        d->cuMemPoolSetAttribute(pool, (CUmemPool_attribute)which, value))
RT_CALL(cudaMemPoolSetAccess, (cudaMemPool_t pool, const struct cudaMemAccessDesc *map, size_t count),
        d->cuMemPoolSetAccess(pool, (const CUmemAccessDesc *)map, count))
RT_CALL(cudaMemPoolGetAccess, (enum cudaMemAccessFlags * flags, cudaMemPool_t pool, struct cudaMemLocation *location),
        d->cuMemPoolGetAccess((CUmemAccess_flags *)flags, pool, (CUmemLocation *)location))

RT_CALL(cudaMemPoolExportToShareableHandle,
        (void *out, cudaMemPool_t pool, enum cudaMemAllocationHandleType type, unsigned int flags),
        d->cuMemPoolExportToShareableHandle(out, pool, (CUmemAllocationHandleType)type, flags))
RT_CALL(cudaMemPoolImportFromShareableHandle,
        (cudaMemPool_t * pool, void *handle, enum cudaMemAllocationHandleType type, unsigned int flags),
        d->cuMemPoolImportFromShareableHandle(pool, handle, (CUmemAllocationHandleType)type, flags))
RT_CALL(cudaMemPoolExportPointer, (struct cudaMemPoolPtrExportData * out, void *at),
        d->cuMemPoolExportPointer((CUmemPoolPtrExportData *)out, DEVICE(at)))
RT_CALL(cudaMemPoolImportPointer, (void **out, cudaMemPool_t pool, struct cudaMemPoolPtrExportData *data),
        d->cuMemPoolImportPointer((CUdeviceptr *)out, pool, (CUmemPoolPtrExportData *)data))

/* ---- copies and memsets: unified addressing makes the kind redundant ---- */

static CUresult copy_2d(const struct rt_driver *d, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                        size_t width, size_t height, cudaStream_t stream, int async) {
    CUDA_MEMCPY2D params = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                            .srcDevice = DEVICE(src),
                            .srcPitch = src_pitch,
                            .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                            .dstDevice = DEVICE(dst),
                            .dstPitch = dst_pitch,
                            .WidthInBytes = width,
                            .Height = height};
    return async ? d->cuMemcpy2DAsync(&params, stream) : d->cuMemcpy2D(&params);
}

#define KIND(kind, call) ((unsigned)(kind) <= cudaMemcpyDefault ? (call) : CUDA_ERROR_INVALID_VALUE)

RT_STREAM_CALL(_ptds, cudaMemcpy, (void *dst, const void *src, size_t size, enum cudaMemcpyKind kind),
               KIND(kind, size ? d->cuMemcpy(DEVICE(dst), DEVICE(src), size) : CUDA_SUCCESS))
RT_STREAM_CALL(_ptsz, cudaMemcpyAsync,
               (void *dst, const void *src, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream),
               KIND(kind, size ? d->cuMemcpyAsync(DEVICE(dst), DEVICE(src), size, stream) : CUDA_SUCCESS))
RT_STREAM_CALL(_ptds, cudaMemcpy2D,
               (void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
                enum cudaMemcpyKind kind),
               KIND(kind, copy_2d(d, dst, dst_pitch, src, src_pitch, width, height, NULL, 0)))
RT_STREAM_CALL(_ptsz, cudaMemcpy2DAsync,
               (void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
                enum cudaMemcpyKind kind, cudaStream_t stream),
               KIND(kind, copy_2d(d, dst, dst_pitch, src, src_pitch, width, height, stream, 1)))

static CUresult copy_peer(const struct rt_driver *d, void *dst, int dst_device, const void *src, int src_device,
                          size_t size, cudaStream_t stream, int async) {
    CUcontext to, from;
    CUresult result = rt_primary(d, dst_device, &to);
    if (result == CUDA_SUCCESS)
        result = rt_primary(d, src_device, &from);
    if (result != CUDA_SUCCESS)
        return result;
    return async ? d->cuMemcpyPeerAsync(DEVICE(dst), to, DEVICE(src), from, size, stream)
                 : d->cuMemcpyPeer(DEVICE(dst), to, DEVICE(src), from, size);
}

RT_CALL(cudaMemcpyPeer, (void *dst, int dst_device, const void *src, int src_device, size_t size),
        copy_peer(d, dst, dst_device, src, src_device, size, NULL, 0))
RT_CALL(cudaMemcpyPeerAsync,
        (void *dst, int dst_device, const void *src, int src_device, size_t size, cudaStream_t stream),
        copy_peer(d, dst, dst_device, src, src_device, size, stream, 1))

RT_STREAM_CALL(_ptds, cudaMemset, (void *at, int value, size_t size),
               size ? d->cuMemsetD8(DEVICE(at), (unsigned char)value, size) : CUDA_SUCCESS)
RT_STREAM_CALL(_ptsz, cudaMemsetAsync, (void *at, int value, size_t size, cudaStream_t stream),
               size ? d->cuMemsetD8Async(DEVICE(at), (unsigned char)value, size, stream) : CUDA_SUCCESS)
RT_STREAM_CALL(_ptds, cudaMemset2D, (void *at, size_t pitch, int value, size_t width, size_t height),
               d->cuMemsetD2D8(DEVICE(at), pitch, (unsigned char)value, width, height))
RT_STREAM_CALL(_ptsz, cudaMemset2DAsync,
               (void *at, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
               d->cuMemsetD2D8Async(DEVICE(at), pitch, (unsigned char)value, width, height, stream))

/* ---- streams ---- */

RT_CALL(cudaStreamCreate, (cudaStream_t * stream), d->cuStreamCreate(stream, CU_STREAM_DEFAULT))
RT_CALL(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned int flags), d->cuStreamCreate(stream, flags))
RT_CALL(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned int flags, int priority),
        d->cuStreamCreateWithPriority(stream, flags, priority))
RT_CALL(cudaStreamDestroy, (cudaStream_t stream), d->cuStreamDestroy(stream))
RT_STREAM_CALL(_ptsz, cudaStreamSynchronize, (cudaStream_t stream), d->cuStreamSynchronize(stream))
RT_STREAM_CALL(_ptsz, cudaStreamQuery, (cudaStream_t stream), d->cuStreamQuery(stream))
RT_STREAM_CALL(_ptsz, cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
               d->cuStreamWaitEvent(stream, event, flags))
RT_STREAM_CALL(_ptsz, cudaStreamGetId, (cudaStream_t stream, unsigned long long *id), d->cuStreamGetId(stream, id))
RT_STREAM_CALL(_ptsz, cudaStreamGetFlags, (cudaStream_t stream, unsigned int *flags),
               d->cuStreamGetFlags(stream, flags))
RT_STREAM_CALL(_ptsz, cudaStreamGetPriority, (cudaStream_t stream, int *priority),
               d->cuStreamGetPriority(stream, priority))
RT_STREAM_CALL(_ptsz, cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
               d->cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode))
RT_STREAM_CALL(_ptsz, cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph),
               d->cuStreamEndCapture(stream, graph))
RT_STREAM_CALL(_ptsz, cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
               d->cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status))
RT_STREAM_CALL(_ptsz, cudaStreamAddCallback,
               (cudaStream_t stream, cudaStreamCallback_t callback, void *arg, unsigned int flags),
               d->cuStreamAddCallback(stream, (CUstreamCallback)callback, arg, flags))
RT_STREAM_CALL(_ptsz, cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t fn, void *arg),
               d->cuLaunchHostFunc(stream, fn, arg))
RT_CALL(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode),
        d->cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode))

/* ---- events ---- */

RT_CALL(cudaEventCreate, (cudaEvent_t * event), d->cuEventCreate(event, CU_EVENT_DEFAULT))
RT_CALL(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags), d->cuEventCreate(event, flags))
RT_CALL(cudaEventDestroy, (cudaEvent_t event), d->cuEventDestroy(event))
RT_STREAM_CALL(_ptsz, cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), d->cuEventRecord(event, stream))
RT_CALL(cudaEventQuery, (cudaEvent_t event), d->cuEventQuery(event))
RT_CALL(cudaEventSynchronize, (cudaEvent_t event), d->cuEventSynchronize(event))
RT_CALL(cudaEventElapsedTime, (float *milliseconds, cudaEvent_t from, cudaEvent_t to),
        d->cuEventElapsedTime(milliseconds, from, to))

/* ---- graphs ---- */

RT_CALL(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
        d->cuGraphInstantiate(exec, graph, flags))
RT_CALL(cudaGraphInstantiateWithFlags, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
        d->cuGraphInstantiate(exec, graph, flags))
RT_STREAM_CALL(_ptsz, cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), d->cuGraphLaunch(exec, stream))
RT_STREAM_CALL(_ptsz, cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), d->cuGraphUpload(exec, stream))
RT_CALL(cudaGraphExecDestroy, (cudaGraphExec_t exec), d->cuGraphExecDestroy(exec))
RT_CALL(cudaGraphDestroy, (cudaGraph_t graph), d->cuGraphDestroy(graph))
