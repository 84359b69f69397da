/* Doors of the driver: memory, what is asked about it, and memory pools. Nothing but forwarders.
 *
 * A door of the per-thread kind (_ptsz) calls its plain twin with the per-thread stream by its explicit name,
 * which means the same.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doors.h"

/* Counts a call that is passed on to CUDA. True: it is one of the program's. */
static bool passed_on(bool ours, enum vp_passed call) {
    if (ours)
        vp_api_passed(call);
    return ours;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size) {
    bool ours = vp_door_enter();
    CUresult res = ours ? vp_door_take_told(size) : VP_NOT_OURS;

    if (ours && res == VP_NOT_OURS)
        res = vp_api_alloc(ptr, size);
    if (res == VP_NOT_OURS)
        res = VP_TRIED(passed_on(ours, VP_PASSED_cuMemAlloc), VP_REAL(cuMemAlloc_v2)(ptr, size));
    vp_door_leave();
    return res;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned int element) {
    bool ours = vp_door_enter();
    CUresult res = ours ? vp_door_take_told(width * height) : VP_NOT_OURS;

    if (ours && res == VP_NOT_OURS)
        res = vp_api_alloc_pitch(ptr, pitch, width, height, element);
    if (res == VP_NOT_OURS)
        res = VP_TRIED(passed_on(ours, VP_PASSED_cuMemAllocPitch),
                       VP_REAL(cuMemAllocPitch_v2)(ptr, pitch, width, height, element));
    vp_door_leave();
    return res;
}

CUresult cuMemFree_v2(CUdeviceptr ptr) {
    bool ours = vp_door_enter();
    CUresult res = ours ? vp_api_free(ptr) : VP_NOT_OURS;

    if (res == VP_NOT_OURS) {
        res = VP_REAL(cuMemFree_v2)(ptr);
        passed_on(ours, VP_PASSED_cuMemFree);
    }
    vp_door_leave();
    return res;
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t size, CUstream stream) {
    bool ours = vp_door_enter();
    CUresult res = ours ? vp_door_take_told(size) : VP_NOT_OURS;

    if (ours && res == VP_NOT_OURS)
        res = vp_api_alloc_async(ptr, size, NULL, stream);
    if (res == VP_NOT_OURS)
        res = VP_TRIED(passed_on(ours, VP_PASSED_cuMemAllocAsync), VP_REAL(cuMemAllocAsync)(ptr, size, stream));
    vp_door_leave();
    return res;
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t size, CUstream stream) {
    return cuMemAllocAsync(ptr, size, vp_door_per_thread(stream));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream) {
    bool ours = vp_door_enter();
    CUresult res = ours && pool ? vp_door_take_told(size) : VP_NOT_OURS;

    /* Without a pool this is an error in CUDA, while NULL means the current pool to vp_api_alloc_async(). */
    if (ours && pool && res == VP_NOT_OURS)
        res = vp_api_alloc_async(ptr, size, pool, stream);
    if (res == VP_NOT_OURS)
        res = VP_TRIED(passed_on(ours, VP_PASSED_cuMemAllocFromPoolAsync),
                       VP_REAL(cuMemAllocFromPoolAsync)(ptr, size, pool, stream));
    vp_door_leave();
    return res;
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream) {
    return cuMemAllocFromPoolAsync(ptr, size, pool, vp_door_per_thread(stream));
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream) {
    bool ours = vp_door_enter();
    CUresult res = ours ? vp_api_free_async(ptr, stream) : VP_NOT_OURS;

    if (res == VP_NOT_OURS) {
        res = VP_REAL(cuMemFreeAsync)(ptr, stream);
        passed_on(ours, VP_PASSED_cuMemFreeAsync);
    }
    vp_door_leave();
    return res;
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream) {
    return cuMemFreeAsync(ptr, vp_door_per_thread(stream));
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CUresult res = vp_door_enter() ? vp_api_mem_info(free_bytes, total) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_REAL(cuMemGetInfo_v2)(free_bytes, total);
    vp_door_leave();
    return res;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr) {
    bool ours = vp_door_enter();
    CUresult res = ours ? vp_api_address_range(base, size, ptr) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_REAL(cuMemGetAddressRange_v2)(base, size, ours ? vp_api_asked_address(ptr) : ptr);
    vp_door_leave();
    return res;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    bool ours = vp_door_enter();
    CUresult res = ours ? vp_api_pointer_attribute(data, attribute, ptr) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_REAL(cuPointerGetAttribute)(data, attribute, ours ? vp_api_asked_address(ptr) : ptr);
    vp_door_leave();
    return res;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr) {
    bool ours = vp_door_enter();
    CUdeviceptr asked = ours ? vp_api_asked_address(ptr) : ptr;
    CUresult res = VP_REAL(cuPointerGetAttributes)(count, attributes, data, asked);

    for (unsigned int i = 0; ours && res == CUDA_SUCCESS && i < count; i++)
        vp_api_pointer_attribute(data[i], attributes[i], ptr);
    vp_door_leave();
    return res;
}

/*
 * Memory pools. The handles stay CUDA's own; what they would hand out and report is ours where we serve them.
 */

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    CUresult res;

    vp_door_enter();
    res = VP_REAL(cuDeviceGetDefaultMemPool)(pool, device);
    vp_door_leave();
    return res;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    CUresult res;

    vp_door_enter();
    res = VP_REAL(cuDeviceGetMemPool)(pool, device);
    vp_door_leave();
    return res;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    bool ours = vp_door_enter();
    CUresult res = VP_REAL(cuDeviceSetMemPool)(device, pool);

    if (ours && res == CUDA_SUCCESS)
        vp_api_pool_set_current(device, pool);
    vp_door_leave();
    return res;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    bool ours = vp_door_enter();
    CUresult res = VP_REAL(cuMemSetMemPool)(location, type, pool);

    if (ours && res == CUDA_SUCCESS && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
        type == CU_MEM_ALLOCATION_TYPE_PINNED)
        vp_api_pool_set_current(location->id, pool);
    vp_door_leave();
    return res;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuMemPoolCreate)(pool, props));

    if (ours && res == CUDA_SUCCESS && !vp_api_pool_created(*pool, props))
        vp_api_passed(VP_PASSED_cuMemPoolCreate);
    vp_door_leave();
    return res;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    CUresult res;
    bool ours = vp_door_enter();

    if (ours)
        vp_api_pool_destroying(pool);
    res = VP_REAL(cuMemPoolDestroy)(pool);
    if (ours)
        vp_api_pool_destroyed(pool, res == CUDA_SUCCESS);
    vp_door_leave();
    return res;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    CUresult res = vp_door_enter() ? vp_api_pool_get_attribute(pool, attribute, value) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_REAL(cuMemPoolGetAttribute)(pool, attribute, value);
    vp_door_leave();
    return res;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    CUresult res = vp_door_enter() ? vp_api_pool_set_attribute(pool, attribute, value) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_REAL(cuMemPoolSetAttribute)(pool, attribute, value);
    vp_door_leave();
    return res;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    CUresult res = vp_door_enter() ? vp_api_pool_trim_to(pool, keep) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_REAL(cuMemPoolTrimTo)(pool, keep);
    vp_door_leave();
    return res;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    CUresult res = vp_door_enter() ? vp_api_pool_set_access(pool, map, count) : VP_NOT_OURS;

    if (res == VP_NOT_OURS)
        res = VP_REAL(cuMemPoolSetAccess)(pool, map, count);
    vp_door_leave();
    return res;
}
