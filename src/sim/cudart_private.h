/* A small CUDA runtime. It reaches the driver as the real, statically linked one does:
 * dlopen("libcuda.so.1"), dlsym("cuGetProcAddress_v2"), and everything else through that function, once for
 * each kind of default stream. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#define RT_EXPORT __attribute__((visibility("default")))

/* Every driver function that the runtime uses, by base name. The header's macros turn these into the
 * versioned names, here and where they are used. */
#define RT_DRIVER_FUNCTIONS(X)                                                                                         \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGet) X(cuDeviceGetCount)                             \
        X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetAttribute) X(cuDeviceGetUuid) X(cuDeviceGetPCIBusId) X(cuDeviceCanAccessPeer) X(cuDeviceGetP2PAttribute) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)                            \
            X(cuDevicePrimaryCtxReset) X(cuDevicePrimaryCtxGetState) X(cuCtxGetCurrent) X(cuCtxSetCurrent)                              \
                X(cuCtxGetDevice) X(cuCtxSynchronize) X(cuCtxGetStreamPriorityRange) X(cuCtxEnablePeerAccess) X(cuCtxDisablePeerAccess) X(cuMemAlloc) X(cuMemAllocPitch) X(cuMemFree) X(cuMemGetInfo)                            \
                    X(cuMemAllocManaged) X(cuPointerGetAttributes) X(cuMemAllocAsync) X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) X(cuMemHostAlloc) X(cuMemAllocHost) X(cuMemFreeHost) X(cuMemHostRegister)                         \
                        X(cuMemHostUnregister) X(cuMemHostGetDevicePointer) X(cuMemHostGetFlags) X(cuIpcGetMemHandle)                     \
                            X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle) X(cuDeviceGetDefaultMemPool)                                             \
                                X(cuDeviceGetMemPool) X(cuDeviceSetMemPool) X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolTrimTo) X(cuMemPoolGetAttribute) X(cuMemPoolSetAttribute)                                        \
                                    X(cuMemPoolGetAccess) X(cuMemPoolSetAccess) X(cuMemPoolExportToShareableHandle) X(cuMemPoolImportFromShareableHandle) X(cuMemPoolExportPointer)                                          \
                                        X(cuMemPoolImportPointer) X(cuMemcpy) X(cuMemcpyAsync) X(cuMemcpy2D) X(cuMemcpy2DAsync) X(cuMemcpyPeer) X(cuMemcpyPeerAsync) X(cuMemsetD8)                    \
                                            X(cuMemsetD8Async) X(cuMemsetD2D8) X(cuMemsetD2D8Async) X(cuStreamCreate)                  \
                                                X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamQuery) X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamGetId)                        \
                                                    X(cuStreamGetFlags) X(cuStreamGetPriority) X(cuStreamBeginCapture)                       \
                                                        X(cuStreamEndCapture) X(cuStreamIsCapturing)                                        \
                                                            X(cuStreamAddCallback) X(cuLaunchHostFunc)                                   \
                                                                X(cuThreadExchangeStreamCaptureMode) X(cuEventCreate)                 \
                                                                    X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery)               \
                                                                        X(cuEventSynchronize) X(cuEventElapsedTime)                        \
                                                                            X(cuGraphInstantiate) X(cuGraphLaunch)                    \
                                                                                X(cuGraphUpload) X(cuGraphExecDestroy)                     \
                                                                                    X(cuGraphDestroy)                                  \
                                                                                        X(cuGetProcAddress)

struct rt_driver {
#define X(fn) __typeof__(&fn) fn;
    RT_DRIVER_FUNCTIONS(X)
#undef X
};

enum { RT_LEGACY, RT_PER_THREAD };

/* Returns the driver's functions, with a context current, which is created if need be. NULL: that failed, and
 * rt_leave() returns the reason. `rt_enter_bare` needs no context. */
const struct rt_driver *rt_enter(int kind);
const struct rt_driver *rt_enter_bare(void);
/* Keeps an error as the thread's last one. */
cudaError_t rt_leave(const struct rt_driver *driver, CUresult result);
/* Makes the primary context of a device the thread's current one. */
CUresult rt_use_device(const struct rt_driver *driver, int device);
CUresult rt_primary(const struct rt_driver *driver, int device, CUcontext *context);

/* A runtime function that is one driver call. `d` names the table inside the call. */
#define RT_CALL(fn, params, call)                                                                                      \
    RT_EXPORT cudaError_t CUDARTAPI fn params {                                                                        \
        const struct rt_driver *d = rt_enter(RT_LEGACY);                                                               \
        return rt_leave(d, d ? (call) : CUDA_SUCCESS);                                                                 \
    }

/* The same, and its form for the per-thread default stream. */
#define RT_STREAM_CALL(suffix, fn, params, call)                                                                       \
    RT_CALL(fn, params, call)                                                                                          \
    RT_EXPORT cudaError_t CUDARTAPI fn##suffix params;                                                                 \
    RT_EXPORT cudaError_t CUDARTAPI fn##suffix params {                                                                \
        const struct rt_driver *d = rt_enter(RT_PER_THREAD);                                                           \
        return rt_leave(d, d ? (call) : CUDA_SUCCESS);                                                                 \
    }
