/* The driver table: all cu* functions that vpool itself calls.
 *
 * The pool calls the driver only through this table. The preload library fills it from the process's real libcuda, the
 * tool and the unit tests from the simulated one. A test may replace single entries to inject faults. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, arguments): exported functions that return a CUresult. Every driver from 12.0 on has the required ones; if
 * one is missing there is no pool. */
#define VP_DRIVER_REQUIRED(X)                                                                                          \
    X(cuDeviceGetCount, (int *))                                                                                                                  \
    X(cuDeviceGet, (CUdevice *, int))                                                                                                                  \
    X(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                                                                                                  \
    X(cuCtxGetCurrent, (CUcontext *))                                                                                                                  \
    X(cuCtxGetDevice, (CUdevice *))                                                                                                                  \
    X(cuCtxGetApiVersion, (CUcontext, unsigned int *))                                                                                                                  \
    X(cuCtxPushCurrent_v2, (CUcontext))                                                                                                                  \
    X(cuCtxPopCurrent_v2, (CUcontext *))                                                                                                                  \
    X(cuCtxSynchronize, (void))                                                                                                                  \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                                                                                  \
    X(cuMemGetAllocationGranularity, (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags))                                                                                                                  \
    X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                                                                                                                  \
    X(cuMemAddressFree, (CUdeviceptr, size_t))                                                                                                                  \
    X(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long))                                                                                                                  \
    X(cuMemRelease, (CUmemGenericAllocationHandle))                                                                                                                  \
    X(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))                                                                                                                  \
    X(cuMemUnmap, (CUdeviceptr, size_t))                                                                                                                  \
    X(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                                                                                                                  \
    X(cuEventCreate, (CUevent *, unsigned int))                                                                                                                  \
    X(cuEventDestroy_v2, (CUevent))                                                                                                                  \
    X(cuEventRecord, (CUevent, CUstream))                                                                                                                  \
    X(cuEventQuery, (CUevent))                                                                                                                  \
    X(cuEventSynchronize, (CUevent))                                                                                                                  \
    X(cuStreamWaitEvent, (CUstream, CUevent, unsigned int))                                                                                                                  \
    X(cuStreamGetId, (CUstream, unsigned long long *))                                                                                                                  \
    X(cuStreamGetCtx, (CUstream, CUcontext *))                                                                                                                  \
    X(cuStreamGetFlags, (CUstream, unsigned int *))                                                                                                                  \
    X(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus *))                                                                                                                  \
    X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *))                                                                                                                  \
    X(cuDriverGetVersion, (int *))                                                                                                                  \
    X(cuDeviceGetName, (char *, int, CUdevice))                                                                                                                  \
    X(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                                                                                  \
    X(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice))                                                                                                                  \
    X(cuCtxGetFlags, (unsigned int *))                                                                                                                  \
    X(cuStreamQuery, (CUstream))                                                                                                                  \
    X(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice))                                                                                                                  \
    X(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice))                                                                                                                  \
    X(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))                                                                                                                  \
    X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                                                                                                  \
    X(cuMemExportToShareableHandle, (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long))                                                                                                                  \
    X(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType))                                                                                                                  \
    X(cuStreamCreate, (CUstream *, unsigned int))                                                                                                                  \
    X(cuStreamDestroy_v2, (CUstream))                                                                                                                  \
    X(cuMemHostAlloc, (void **, size_t, unsigned int))                                                                                                                  \
    X(cuMemFreeHost, (void *))                                                                                                                  \
    X(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                                                                                                  \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                                                                                                  \
    X(cuMemsetD32Async, (CUdeviceptr, unsigned int, size_t, CUstream))                                                                                                                  \
    X(cuMemPoolSetAttribute, (CUmemoryPool, CUmemPool_attribute, void *))                                                                                                                  \
    X(cuMemPoolSetAccess, (CUmemoryPool, const CUmemAccessDesc *, size_t))

#define VP_DRIVER_OPTIONAL(X)                                                                                          \
    X(cuCtxSetFlags, (unsigned int))                                                                                                                  \
    X(cuCtxGetId, (CUcontext, unsigned long long *))                                                                                                                  \
    X(cuCtxRecordEvent, (CUcontext, CUevent))

struct vp_driver {
#define VP_DRIVER_FIELD(name, args) CUresult(CUDAAPI *name) args;
    VP_DRIVER_REQUIRED(VP_DRIVER_FIELD)
    VP_DRIVER_OPTIONAL(VP_DRIVER_FIELD)
#undef VP_DRIVER_FIELD
};

/* Fills `drv` by calling `lookup(name, ctx)` for each function. 0, or -ENOSYS if a required one is missing; `*missing`
 * is then its name (a string constant). `drv` is untouched on failure. */
int vp_driver_fill(struct vp_driver *drv, void *(*lookup)(const char *name, void *ctx), void *ctx,
                   const char **missing);
