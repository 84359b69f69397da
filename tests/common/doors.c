/* The doors of all tests: see doors.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include "process/bare.h"
#include "process/process.h"
#include "process/state.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

/* The form that every driver has; today's cuda.h no longer declares it. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev);
CUresult CUDAAPI cuCtxDetach(CUcontext ctx);

bool doors_direct = true, doors_pause = true;
_Thread_local bool door_served;

/* The simulated driver exports everything, whatever its version; a real one lacks what is younger than it. */
void *doors_lookup(const char *name, void *unused) {
    int version = 0;
    cuDriverGetVersion(&version);
    return version < 12050 && !strcmp(name, "cuCtxRecordEvent") ? NULL : dlsym(RTLD_DEFAULT, name);
}

int doors_open(void) {
    return doors_direct ? vp_api_open(doors_lookup, NULL) : 0;
}

/* Other threads may do anything between a call of the driver and the library's being told of it: here they
 * get the chance. */
static void gap(void) {
    static __thread unsigned calls;
    if (doors_direct && doors_pause && ++calls % 5 == 0)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* A native call failed: is it worth another try? */
static bool again(CUresult res, struct vp_relief *relief) {
    return doors_direct && res == CUDA_ERROR_OUT_OF_MEMORY && vp_api_relieve_more(relief, 0);
}

#define TRY(call)                                                                                                      \
    ({                                                                                                                 \
        vp_api_again(&relief);                                                                                         \
        const CUresult res_ = (call);                                                                                  \
        vp_api_again(&relief);                                                                                         \
        res_;                                                                                                          \
    })

static void passed(enum vp_passed call) {
    if (doors_direct)
        vp_api_passed(call);
}

static CUresult alloc_now(CUdeviceptr *ptr, size_t size) {
    struct vp_relief relief = {0};
    CUresult res;
    door_served = doors_direct && (res = vp_api_alloc(ptr, size)) != VP_NOT_OURS;
    if (door_served)
        return res;
    passed(VP_PASSED_cuMemAlloc);
    do
        res = TRY(cuMemAlloc(ptr, size));
    while (again(res, &relief));
    return res;
}

static CUresult free_now(CUdeviceptr ptr) {
    CUresult res;
    door_served = doors_direct && (res = vp_api_free(ptr)) != VP_NOT_OURS;
    return door_served ? res : cuMemFree(ptr);
}

/* Makes a call that CUDA refuses beside a capture unless the thread's capture mode is relaxed. */
#define RELAXED(call)                                                                                                  \
    ({                                                                                                                 \
        CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;                                                    \
        const bool exchanged_ = (!doors_direct || vp_api_captures()) && !cuThreadExchangeStreamCaptureMode(&mode_);    \
        const CUresult made_ = (call);                                                                                 \
        if (exchanged_)                                                                                                \
            cuThreadExchangeStreamCaptureMode(&mode_);                                                                 \
        made_;                                                                                                         \
    })

CUresult door_alloc(CUdeviceptr *ptr, size_t size) {
    return RELAXED(alloc_now(ptr, size));
}

CUresult door_free(CUdeviceptr ptr) {
    return RELAXED(free_now(ptr));
}

CUresult door_segment(CUdeviceptr *ptr, size_t size, struct vp_bare_stream stream) {
    return RELAXED(vp_bare_segment(ptr, size, stream));
}

static CUresult native_alloc_async(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream) {
    return pool ? cuMemAllocFromPoolAsync(ptr, size, pool, stream) : cuMemAllocAsync(ptr, size, stream);
}

static CUresult alloc_async_now(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream) {
    struct vp_relief relief = {0};
    CUresult res;
    door_served = doors_direct && (res = vp_api_alloc_async(ptr, size, pool, stream)) != VP_NOT_OURS;
    if (door_served)
        return res;
    passed(VP_PASSED_cuMemAllocAsync);
    do
        res = TRY(native_alloc_async(ptr, size, pool, stream));
    while (again(res, &relief));
    return res;
}

CUresult door_alloc_async(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream) {
    return RELAXED(alloc_async_now(ptr, size, pool, stream));
}

static CUresult other_take(struct door_other *other, enum door_other_kind kind, CUdevice dev, size_t size) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev}};
    const CUDA_ARRAY_DESCRIPTOR desc = {size / 4, 0, CU_AD_FORMAT_FLOAT, 1};
    switch (kind) {
    case DOOR_HANDLE: return cuMemCreate(&other->handle, size, &prop, 0);
    case DOOR_MANAGED: return cuMemAllocManaged(&other->managed, size, CU_MEM_ATTACH_GLOBAL);
    default: return cuArrayCreate(&other->array, &desc);
    }
}

CUresult door_other_take(struct door_other *other, enum door_other_kind kind, CUdevice dev, size_t size) {
    struct vp_relief relief = {0};
    CUresult res;
    do
        res = TRY(other_take(other, kind, dev, size));
    while (again(res, &relief));
    other->kind = res ? DOOR_NONE : kind;
    return res;
}

bool door_relieve(void) {
    size_t given = 0;
    if (!vp_enter())
        return false;
    vp_pools_each(pool) {
        vp_bare_await_all(pool);
        vp_ahead_hold_back(pool);
        given += vp_pool_trim(pool, 0);
        vp_ahead_go_on(pool);
    }
    vp_leave();
    return given > 0;
}

CUresult door_other_give(struct door_other *other) {
    enum door_other_kind kind = other->kind;
    other->kind = DOOR_NONE;
    switch (kind) {
    case DOOR_HANDLE: return cuMemRelease(other->handle);
    case DOOR_MANAGED: return door_free(other->managed);
    case DOOR_ARRAY: return cuArrayDestroy(other->array);
    default: return CUDA_SUCCESS;
    }
}

static CUresult free_async_now(CUdeviceptr ptr, CUstream stream) {
    CUresult res;
    door_served = doors_direct && (res = vp_api_free_async(ptr, stream)) != VP_NOT_OURS;
    return door_served ? res : cuMemFreeAsync(ptr, stream);
}

CUresult door_free_async(CUdeviceptr ptr, CUstream stream) {
    return RELAXED(free_async_now(ptr, stream));
}

CUresult door_mem_info(size_t *free_bytes, size_t *total) {
    CUresult res = doors_direct ? vp_api_mem_info(free_bytes, total) : VP_NOT_OURS;
    return res == VP_NOT_OURS ? cuMemGetInfo(free_bytes, total) : res;
}

CUresult door_address_range(CUdeviceptr *base, size_t *size, CUdeviceptr ptr) {
    CUresult res = doors_direct ? vp_api_address_range(base, size, ptr) : VP_NOT_OURS;
    return res == VP_NOT_OURS ? cuMemGetAddressRange(base, size, ptr) : res;
}

CUresult door_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    CUresult res = doors_direct ? vp_api_pointer_attribute(data, attribute, ptr) : VP_NOT_OURS;
    return res == VP_NOT_OURS ? cuPointerGetAttribute(data, attribute, ptr) : res;
}

CUresult door_pool_create(CUmemoryPool *pool, CUdevice dev) {
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev}};
    CUresult res = cuMemPoolCreate(pool, &props);
    gap();
    if (doors_direct && !res && !vp_api_pool_created(*pool, &props))
        vp_api_passed(VP_PASSED_cuMemPoolCreate);
    return res;
}

CUresult door_pool_destroy(CUmemoryPool pool) {
    if (doors_direct)
        vp_api_pool_destroying(pool);
    gap();
    CUresult res = cuMemPoolDestroy(pool);
    gap();
    if (doors_direct)
        vp_api_pool_destroyed(pool, res == CUDA_SUCCESS);
    return res;
}

CUresult door_pool_get(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    CUresult res = doors_direct ? vp_api_pool_get_attribute(pool, attribute, value) : VP_NOT_OURS;
    return res == VP_NOT_OURS ? cuMemPoolGetAttribute(pool, attribute, value) : res;
}

CUresult door_pool_set(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    CUresult res = doors_direct ? vp_api_pool_set_attribute(pool, attribute, value) : VP_NOT_OURS;
    return res == VP_NOT_OURS ? cuMemPoolSetAttribute(pool, attribute, value) : res;
}

CUresult door_pool_trim(CUmemoryPool pool, size_t keep) {
    CUresult res = doors_direct ? vp_api_pool_trim_to(pool, keep) : VP_NOT_OURS;
    return res == VP_NOT_OURS ? cuMemPoolTrimTo(pool, keep) : res;
}

CUresult door_stream_create(CUstream *stream, unsigned flags) {
    CUresult res = cuStreamCreate(stream, flags);
    gap();
    if (doors_direct && !res)
        vp_api_stream_created(*stream);
    return res;
}

CUresult door_stream_destroy(CUstream stream) {
    if (doors_direct)
        vp_api_stream_destroying(stream);
    gap();
    return cuStreamDestroy(stream);
}

CUresult door_begin_capture(CUstream stream, CUstreamCaptureMode mode) {
    if (doors_direct)
        vp_api_capture_beginning(stream, false);
    gap();
    CUresult res = cuStreamBeginCapture(stream, mode);
    gap();
    if (doors_direct)
        vp_api_capture_began(stream, res == CUDA_SUCCESS);
    return res;
}

CUresult door_end_capture(CUstream stream, CUgraph *graph) {
    CUgraph own = NULL;
    CUresult res = cuStreamEndCapture(stream, graph ? graph : &own);
    gap();
    if (doors_direct)
        vp_api_capture_ended(stream);
    if (own)
        cuGraphDestroy(own);
    return res;
}

CUresult door_stream_synchronize(CUstream stream) {
    CUresult res = cuStreamSynchronize(stream);
    if (doors_direct)
        res ? vp_api_failed(VP_WAITED_STREAM, stream, res) : vp_api_synchronized(VP_WAITED_STREAM, stream);
    return res;
}

CUresult door_synchronize(void) {
    CUresult res = cuCtxSynchronize();
    if (doors_direct)
        res ? vp_api_failed(VP_WAITED_CONTEXT, NULL, res) : vp_api_synchronized(VP_WAITED_CONTEXT, NULL);
    return res;
}

CUresult door_queued(CUresult res, CUstream stream) {
    if (doors_direct)
        vp_api_worked(stream);
    return res;
}

CUresult door_host_function(CUstream stream, CUhostFn function, void *arg) {
    CUresult res = door_queued(cuLaunchHostFunc(stream, function, arg), stream);
    if (doors_direct && !res)
        vp_api_host_function(stream);
    return res;
}

CUresult door_primary(CUcontext *ctx, CUdevice dev) {
    CUresult res = cuDevicePrimaryCtxRetain(ctx, dev);
    if (doors_direct && !res)
        vp_api_context_created(*ctx, true);
    return res;
}

CUresult door_context_create(CUcontext *ctx, CUdevice dev) {
    CUresult res = cuCtxCreate_v2(ctx, 0, dev);
    gap();
    if (doors_direct && !res)
        vp_api_context_created(*ctx, false);
    return res;
}

CUresult door_context_destroy(CUcontext ctx) {
    if (doors_direct)
        vp_api_context_destroying(ctx);
    gap();
    CUresult res = cuCtxDestroy(ctx);
    gap();
    if (doors_direct)
        vp_api_context_destroyed(ctx, res == CUDA_SUCCESS);
    return res;
}

CUresult door_context_detach(CUcontext ctx) {
    if (doors_direct)
        vp_api_context_destroying(ctx);
    gap();
    CUresult res = cuCtxDetach(ctx);
    gap();
    if (doors_direct)
        vp_api_context_destroyed(ctx, res == CUDA_SUCCESS);
    return res;
}

CUresult door_primary_reset(CUdevice dev) {
    CUcontext ctx = doors_direct ? vp_api_primary(dev, false) : NULL;
    if (ctx)
        vp_api_context_destroying(ctx);
    gap();
    CUresult res = cuDevicePrimaryCtxReset(dev);
    gap();
    if (ctx)
        vp_api_context_destroyed(ctx, res == CUDA_SUCCESS);
    return res;
}

#if CUDA_VERSION >= 12050
CUresult door_green_create(CUgreenCtx *green, CUcontext *ctx, CUdevice dev) {
    CUdevResource all, some;
    CUdevResourceDesc desc;
    unsigned groups = 1;
    CUresult res = cuDeviceGetDevResource(dev, &all, CU_DEV_RESOURCE_TYPE_SM);
    res = res ? res : cuDevSmResourceSplitByCount(&some, &groups, &all, NULL, 0, 8);
    res = res ? res : cuDevResourceGenerateDesc(&desc, &some, 1);
    res = res ? res : cuGreenCtxCreate(green, desc, dev, CU_GREEN_CTX_DEFAULT_STREAM);
    res = res ? res : cuCtxFromGreenCtx(ctx, *green);
    gap();
    if (doors_direct && !res)
        vp_api_context_created(*ctx, false);
    return res;
}

CUresult door_green_destroy(CUgreenCtx green, CUcontext ctx) {
    if (doors_direct && !vp_api_green_is_over(ctx))
        return CUDA_SUCCESS;
    if (doors_direct)
        vp_api_context_destroying(ctx);
    gap();
    CUresult res = cuGreenCtxDestroy(green);
    gap();
    if (doors_direct)
        vp_api_context_destroyed(ctx, res == CUDA_SUCCESS);
    return res;
}

CUresult door_green_stream(CUstream *stream, CUgreenCtx green) {
    CUresult res = cuGreenCtxStreamCreate(stream, green, CU_STREAM_NON_BLOCKING, 0);
    gap();
    if (doors_direct && !res)
        vp_api_stream_created(*stream);
    return res;
}
#endif

CUresult door_enable_peer(CUcontext peer) {
    CUresult res = cuCtxEnablePeerAccess(peer, 0);
    if (doors_direct && !res)
        vp_api_peer_enabled(peer);
    return res;
}

CUresult door_copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    struct vp_copy_end to = {.ptr = dst}, from = {.ptr = src};
    if (doors_direct && vp_api_copies_matter() && vp_api_copy_way(stream, &to, &from) == VP_COPY_BETWEEN)
        return door_queued(cuMemcpyPeerAsync(dst, to.context, src, from.context, bytes, stream), stream);
    return cuMemcpyAsync(dst, src, bytes, stream); /* what is spilled is no device memory to the driver */
}
