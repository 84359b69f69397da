/* The doors of all tests: the calls of CUDA as a program under libvpool.so meets them, without the preload library:
 * each asks the library's api layer first and then the driver, as preload/ does. With `doors_direct` false they are
 * plain CUDA calls, for a program that runs under LD_PRELOAD.
 *
 * All take and return what the CUDA calls of the same name do. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

extern bool doors_direct;
/* Whether it was the library that answered this thread's last allocation or free, and not the driver. */
extern _Thread_local bool door_served;
/* Whether other threads get the chance, now and then, to run between a call of the driver and what tells the
 * library of it. */
extern bool doors_pause;

/* Opens the api layer on the linked driver; any number of times, by any thread. 0 or a negative errno. */
int doors_open(void);
/* The linked driver's functions by name, as vp_api_open() wants them: without what its version lacks. */
void *doors_lookup(const char *name, void *unused);

CUresult door_alloc(CUdeviceptr *ptr, size_t size);
CUresult door_free(CUdeviceptr ptr);
/* A segment of PyTorch's cache. */
struct vp_bare_stream;
CUresult door_segment(CUdeviceptr *ptr, size_t size, struct vp_bare_stream stream);
/* `pool` NULL: the device's current pool. */
CUresult door_alloc_async(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream);
CUresult door_free_async(CUdeviceptr ptr, CUstream stream);

/* Memory of the current device, or for a handle of `dev`, that CUDA gives out itself. */
enum door_other_kind { DOOR_NONE, DOOR_HANDLE, DOOR_MANAGED, DOOR_ARRAY };
struct door_other {
    enum door_other_kind kind;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr managed;
    CUarray array;
};
CUresult door_other_take(struct door_other *other, enum door_other_kind kind, CUdevice dev, size_t size);
/* Nothing happens if it holds none. */
CUresult door_other_give(struct door_other *other);

CUresult door_mem_info(size_t *free_bytes, size_t *total);
CUresult door_address_range(CUdeviceptr *base, size_t *size, CUdeviceptr ptr);
CUresult door_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr);

CUresult door_pool_create(CUmemoryPool *pool, CUdevice dev);
CUresult door_pool_destroy(CUmemoryPool pool);
CUresult door_pool_get(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult door_pool_set(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult door_pool_trim(CUmemoryPool pool, size_t keep);
/* Idle memory of every pool goes back. True if there was any. */
bool door_relieve(void);

CUresult door_stream_create(CUstream *stream, unsigned flags);
CUresult door_stream_destroy(CUstream stream);
CUresult door_stream_synchronize(CUstream stream);
CUresult door_synchronize(void);
CUresult door_begin_capture(CUstream stream, CUstreamCaptureMode mode);
/* `graph` NULL: it is destroyed at once. */
CUresult door_end_capture(CUstream stream, CUgraph *graph);
CUresult door_host_function(CUstream stream, CUhostFn function, void *arg);

CUresult door_primary(CUcontext *ctx, CUdevice dev);
CUresult door_context_create(CUcontext *ctx, CUdevice dev);
CUresult door_context_destroy(CUcontext ctx);
/* Of the current context, which nobody has attached to; of a device's primary one. */
CUresult door_context_detach(CUcontext ctx);
CUresult door_primary_reset(CUdevice dev);
#if CUDA_VERSION >= 12050
/* A green context over some of the device, and its context in the older sense. */
CUresult door_green_create(CUgreenCtx *green, CUcontext *ctx, CUdevice dev);
CUresult door_green_destroy(CUgreenCtx green, CUcontext ctx);
CUresult door_green_stream(CUstream *stream, CUgreenCtx green);
#endif
CUresult door_enable_peer(CUcontext peer);
/* Between any two devices; in the stream. */
CUresult door_copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);

/* What queues work tells of it. */
CUresult door_queued(CUresult res, CUstream stream);
#define DOOR_QUEUES(call, stream, ...)                                                                                 \
    ({                                                                                                                 \
        CUstream on_ = (stream);                                                                                       \
        door_queued(call(__VA_ARGS__, on_), on_);                                                                      \
    })
#define cuMemsetD8Async(at, byte, n, stream) DOOR_QUEUES(cuMemsetD8Async, stream, at, byte, n)
#define cuMemsetD32Async(at, word, n, stream) DOOR_QUEUES(cuMemsetD32Async, stream, at, word, n)
#define cuMemcpyAsync(dst, src, n, stream) DOOR_QUEUES(cuMemcpyAsync, stream, dst, src, n)
#define cuGraphLaunch(exec, stream) DOOR_QUEUES(cuGraphLaunch, stream, exec)
#define cuEventRecord(event, stream) DOOR_QUEUES(cuEventRecord, stream, event)
#define cuStreamWaitEvent(stream, event, flags) door_queued(cuStreamWaitEvent(stream, event, flags), stream)
