/* Asks a CUDA driver a list of questions whose answers do not depend on the machine, one timeline each. Run on a
 * GPU, it makes driver_answers.txt; run on the simulated driver it must print the same. So the simulator
 * refuses what the real one refuses, and a doubt about either becomes a timeline here. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "driver_answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

CUcontext context;
size_t granularity;

void need(CUresult result, const char *what, int timeline) {
    if (result != CUDA_SUCCESS) {
        printf("timeline %d: %s failed with %d\n", timeline, what, result);
        exit(1);
    }
}

CUmemAllocationProp prop_of(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    return prop;
}

static void native(void) {
    CUdeviceptr p, q, base;
    CUstream s;
    size_t size, pitch, total;
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    puts("# native memory");
    SAY(cuMemAlloc(&p, 0));
    SAY(cuMemAlloc(NULL, 1));
    SAY(cuMemAlloc(&p, (size_t)1 << 44));
    SAY(cuMemAlloc(&p, (size_t)1 << 62));
    SAY(cuMemAlloc(&p, ~(size_t)0));
    SAY(cuMemAllocPitch(&p, &pitch, 100, 10, 3));
    SAY(cuMemAllocPitch(&p, &pitch, 0, 10, 4));
    SAY(cuMemAllocPitch(&p, &pitch, 100, 10, 4));
    printf("pitch: %zu\n", pitch);
    SAY(cuMemFree(p));
    SAY(cuMemFree(0));
    SAY(cuMemFree(12345));
    NEED(cuMemAlloc(&p, 4096));
    SAY(cuMemFree(p + 512));
    SAY(cuMemGetAddressRange(&base, &size, p + 100));
    printf("range: %d %zu\n", base == p, size);
    SAY(cuMemFree(p));
    SAY(cuMemFree(p));
    SAY(cuMemGetAddressRange(&base, &size, 12345));
    SAY(cuMemGetInfo(NULL, NULL));
    SAY(cuMemGetInfo(&size, NULL));
    SAY(cuMemGetInfo(NULL, &total));
    q = 77;
    SAY(cuMemAllocAsync(&q, 0, s));
    printf("for nothing: %d\n", (int)q);
    SAY(cuMemFreeAsync(q, s));
    SAY(cuMemAllocAsync(NULL, 1, s));
    SAY(cuMemAllocAsync(&q, (size_t)1 << 44, s));
    NEED(cuMemAllocAsync(&q, 100, s));
    SAY(cuMemFreeAsync(q + 1, s));
    SAY(cuMemFreeAsync(q, s));
    SAY(cuMemFreeAsync(q, s));
    SAY(cuMemFreeAsync(0, s));
    NEED(cuMemAlloc(&p, 4096));
    SAY(cuMemFreeAsync(p, s));
    NEED(cuMemAllocAsync(&q, 100, s));
    SAY(cuMemFree(q));
    SAY(cuMemsetD8(12345, 0, 1));
    NEED(cuMemAlloc(&p, 4096));
    SAY(cuMemsetD8(p, 0, 0));
    SAY(cuMemsetD32(p + 1, 0, 1));
    SAY(cuMemsetD16(p + 1, 0, 1));
    SAY(cuMemsetD2D8(p, 10, 0, 20, 2));
    SAY(cuMemcpyDtoH(&size, p, 0));
    SAY(cuMemcpyDtoH(NULL, p, 4));
    SAY(cuMemcpyDtoD(p, 0, 4));
    SAY(cuMemcpyHtoD(p, NULL, 4));
    SAY(cuMemFree(p));
    NEED(cuStreamSynchronize(s));
    NEED(cuStreamDestroy(s));
}

static void attributes_of(const char *name, CUdeviceptr p, size_t expected, CUdeviceptr range_start,
                          size_t range_size) {
    CUcontext c = (CUcontext)1;
    CUmemoryPool pool = (CUmemoryPool)1;
    CUdeviceptr d = 0;
    unsigned type = 77, sync = 77;
    int ordinal = 77, managed = 77, mapped = 77, ipc = 77, rdma = 77;
    size_t size = 77;
    void *host = NULL;
    unsigned long long id = 0, types = 77, access = 77, decompress = ~0ull;
    (void)expected;
    printf("# attributes of %s\n", name);
    SAY(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    printf("context: %s\n", c == context ? "the context" : c ? "other" : "NULL");
    SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    printf("type: %u\n", type);
    SAY(cuPointerGetAttribute(&d, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + 5));
    printf("device pointer: %d\n", d == p + 5);
    SAY(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
    SAY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    printf("ordinal: %d\n", ordinal);
    SAY(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    printf("managed: %d\n", managed);
    SAY(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, p));
    printf("mapped: %d\n", mapped);
    SAY(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
    printf("ipc capable: %d\n", ipc);
    SAY(cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p));
    SAY(cuPointerGetAttribute(&decompress, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, p));
    printf("for decompression: %d, in four bytes: %d\n", (int)decompress, decompress >> 32 == ~0u);
    SAY(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p));
    printf("handle types: %llu\n", types);
    SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    printf("buffer id: %d\n", id != 0);
    SAY(cuPointerGetAttribute(&d, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 5));
    printf("range start: %d\n", d == range_start);
    SAY(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
    printf("range size: %d\n", size == range_size);
    SAY(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    printf("pool: %d\n", pool != NULL);
    SAY(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, p));
    SAY(cuPointerGetAttribute(&d, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, p));
    SAY(cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p));
    SAY(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    printf("sync memops: %u\n", sync);
    sync = 1;
    SAY(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    CUmemGenericAllocationHandle h;
    CUresult result = cuMemRetainAllocationHandle(&h, (void *)p);
    printf("retain: %d\n", result);
    if (result == CUDA_SUCCESS)
        cuMemRelease(h);
}

static void attributes(void) {
    CUdeviceptr p, va;
    void *host;
    CUmemAllocationProp prop = prop_of();
    CUmemGenericAllocationHandle h;
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t size = 2 * granularity;
    size_t mapped = 0;
    NEED(cuMemAlloc(&p, size));
    attributes_of("cuMemAlloc", p, size, p, size);
    NEED(cuMemFree(p));
    NEED(cuMemAlloc(&p, 3 << 20));
    SAY(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, p));
    printf("mapped for 3 MiB: %zu\n", mapped);
    NEED(cuMemFree(p));
    NEED(cuMemAllocAsync(&p, size, NULL));
    NEED(cuCtxSynchronize());
    attributes_of("cuMemAllocAsync", p, size, p, size);
    SAY(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, p));
    printf("mapped: %zu\n", mapped);
    NEED(cuMemFreeAsync(p, NULL));
    NEED(cuCtxSynchronize());
    NEED(cuMemAllocManaged(&p, size, CU_MEM_ATTACH_GLOBAL));
    attributes_of("cuMemAllocManaged", p, size, p, size);
    NEED(cuMemFree(p));
    NEED(cuMemHostAlloc(&host, size, 0));
    attributes_of("cuMemHostAlloc", (CUdeviceptr)host, size, (CUdeviceptr)host, size);
    SAY(cuMemFreeHost(host));
    NEED(cuMemAddressReserve(&va, 2 * size, 0, 0, 0));
    NEED(cuMemCreate(&h, size, &prop, 0));
    NEED(cuMemMap(va, size, 0, h, 0));
    attributes_of("a mapping without access", va, size, va, 2 * size);
    NEED(cuMemSetAccess(va, size, &access, 1));
    attributes_of("a mapping", va, size, va, 2 * size);
    attributes_of("a reservation without a mapping", va + size, size, va, 2 * size);
    NEED(cuMemUnmap(va, size));
    NEED(cuMemRelease(h));
    NEED(cuMemAddressFree(va, 2 * size));
    int local = 0;
    attributes_of("ordinary host memory", (CUdeviceptr)&local, 0, 0, 0);

    unsigned type = 77;
    int ordinal = 77;
    size_t range = 77;
    CUcontext c = (CUcontext)1;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_CONTEXT};
    void *data[] = {&type, &ordinal, &range, &c};
    SAY(cuPointerGetAttributes(4, which, data, (CUdeviceptr)&local));
    printf("%u %d %zu %d\n", type, ordinal, range, c == NULL);
    SAY(cuPointerGetAttributes(0, which, data, (CUdeviceptr)&local));
}

/* With no context current. */
static void without_context(CUdeviceptr kept) {
    CUcontext got;
    CUdevice device;
    CUevent event;
    CUstream stream;
    CUdeviceptr p;
    unsigned long long a;
    size_t x, y;
    SAY(cuCtxSetCurrent(NULL));
    SAY(cuCtxGetCurrent(&got));
    printf("none: %d\n", got == NULL);
    SAY(cuCtxGetDevice(&device));
    SAY(cuCtxPopCurrent(&got));
    SAY(cuCtxPushCurrent(NULL));
    SAY(cuMemAlloc(&p, 512));
    SAY(cuMemFree(0));
    SAY(cuMemFree(12345));
    SAY(cuMemFree(kept));
    SAY(cuMemGetInfo(&x, &y));
    SAY(cuMemGetAddressRange(&p, &x, 12345));
    SAY(cuStreamCreate(&stream, 0));
    SAY(cuEventCreate(&event, 0));
    SAY(cuStreamQuery(NULL));
    SAY(cuStreamGetId(NULL, &a));
    SAY(cuMemAllocAsync(&p, 512, NULL));
    SAY(cuMemFreeAsync(0, NULL));
    SAY(cuMemsetD8(0, 0, 1));
    SAY(cuCtxSynchronize());
    CUmemAllocationProp prop = prop_of();
    CUmemGenericAllocationHandle h;
    SAY(cuMemCreate(&h, granularity, &prop, 0));
    SAY(cuMemAddressReserve(&p, granularity, 0, 0, 0));
    SAY(cuMemMap(p, granularity, 0, h, 0));
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    SAY(cuMemSetAccess(p, granularity, &access, 1));
    SAY(cuMemUnmap(p, granularity));
    SAY(cuMemRelease(h));
    SAY(cuMemAddressFree(p, granularity));
    SAY(cuCtxSetCurrent(context));
}

static void odd_arguments(void) {
    CUevent event;
    CUstream stream;
    SAY(cuCtxEnablePeerAccess(context, 0));
    SAY(cuCtxDisablePeerAccess(context));
    SAY(cuStreamDestroy(NULL));
    SAY(cuStreamDestroy(CU_STREAM_LEGACY));
    SAY(cuStreamDestroy(CU_STREAM_PER_THREAD));
    SAY(cuEventQuery(NULL));
    SAY(cuEventRecord(NULL, NULL));
    SAY(cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    SAY(cuEventCreate(&event, 64));
    SAY(cuStreamCreate(&stream, 64));
    NEED(cuEventCreate(&event, 0));
    SAY(cuEventQuery(event));
    SAY(cuEventSynchronize(event));
    SAY(cuStreamWaitEvent(NULL, event, 0));
    float ms;
    SAY(cuEventElapsedTime(&ms, event, event));
    NEED(cuEventDestroy(event));
}

static void contexts(void) {
    CUcontext made, got;
    CUevent event;
    CUstream stream;
    CUdeviceptr p, kept;
    unsigned long long a, b;
    puts("# contexts");
    NEED(cuMemAlloc(&kept, 4096));
    NEED(cuCtxCreate(&made, NULL, 0, 0));
    SAY(cuCtxGetCurrent(&got));
    printf("current after create: %d\n", got == made);
    NEED(cuEventCreate(&event, 0));
    NEED(cuStreamCreate(&stream, 0));
    NEED(cuMemAlloc(&p, 4096));
    NEED(cuStreamGetId(NULL, &a));
    SAY(cuCtxPopCurrent(&got));
    printf("popped: %d\n", got == made);
    NEED(cuStreamGetId(NULL, &b));
    printf("the legacy stream has one id: %d\n", a == b);
    NEED(cuStreamGetId(CU_STREAM_LEGACY, &a));
    printf("0 and legacy have one id: %d\n", a == b);
    NEED(cuStreamGetId(CU_STREAM_PER_THREAD, &a));
    printf("per-thread has the same id: %d\n", a == b);
    SAY(cuEventRecord(event, NULL));
    SAY(cuEventRecord(event, stream));
    SAY(cuCtxRecordEvent(context, event));
    SAY(cuStreamWaitEvent(NULL, event, 0));
    SAY(cuMemFree(p));
    SAY(cuCtxDestroy(made));
    SAY(cuCtxDestroy(context));
    without_context(kept);
    odd_arguments();
}

static void pools(void) {
    CUmemoryPool pool, made, got;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    cuuint64_t value = 1, zero = 0;
    int on = 1;
    CUmemAccess_flags flags;
    CUmemLocation location = props.location;
    CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUdeviceptr p;
    puts("# pools");
    SAY(cuDeviceGetDefaultMemPool(&pool, 0));
    SAY(cuDeviceGetDefaultMemPool(&got, 99));
    SAY(cuDeviceGetMemPool(&got, 0));
    printf("the default: %d\n", got == pool);
    SAY(cuMemPoolDestroy(pool));
    NEED(cuMemPoolCreate(&made, &props));
    for (int i = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES; i <= CU_MEMPOOL_ATTR_USED_MEM_HIGH; i++) {
        value = 0;
        printf("attribute %d: get %d", i, cuMemPoolGetAttribute(made, (CUmemPool_attribute)i, &value));
        printf(" value %llu\n", (unsigned long long)value);
    }
    SAY(cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    SAY(cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
    SAY(cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero));
    SAY(cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    value = 5;
    SAY(cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
    SAY(cuMemPoolGetAttribute(made, (CUmemPool_attribute)99, &value));
    SAY(cuMemPoolGetAccess(&flags, made, &location));
    printf("access: %d\n", flags);
    SAY(cuMemPoolSetAccess(made, &access, 1));
    SAY(cuDeviceSetMemPool(0, made));
    SAY(cuDeviceGetMemPool(&got, 0));
    printf("the made one: %d\n", got == made);
    SAY(cuMemAllocFromPoolAsync(&p, 512, NULL, NULL));
    SAY(cuMemAllocFromPoolAsync(&p, 512, made, NULL));
    SAY(cuMemPoolTrimTo(made, 0));
    for (size_t size = 1; size <= 3 << 20; size = size * 29 + 7) {
        CUdeviceptr more;
        cuuint64_t used[2];
        NEED(cuMemAllocFromPoolAsync(&more, size, made, NULL));
        NEED(cuMemPoolGetAttribute(made, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used[0]));
        NEED(cuMemPoolGetAttribute(made, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used[1]));
        NEED(cuMemFreeAsync(more, NULL));
        NEED(cuCtxSynchronize());
        printf("used beside 512 bytes, with %zu: %llu, at most %llu\n", size, (unsigned long long)used[0],
               (unsigned long long)used[1]);
    }
    SAY(cuMemPoolDestroy(made));
    SAY(cuDeviceGetMemPool(&got, 0));
    printf("the default again: %d\n", got == pool);
    SAY(cuMemFreeAsync(p, NULL));
    SAY(cuCtxSynchronize());
    props.location.id = 99;
    SAY(cuMemPoolCreate(&made, &props));
}

static void entry(const char *name, int version, cuuint64_t flags) {
    void *fn = (void *)1;
    CUdriverProcAddressQueryResult status = 77;
    int result = cuGetProcAddress(name, &fn, version, flags, &status);
    printf("%s version %d flags %d: %d status %d %s\n", name, version, (int)flags, result, (int)status,
           fn ? fn == (void *)1 ? "untouched" : "found" : "NULL");
}

/* Forms that the header declares under other names, or not at all. */
#undef cuEventElapsedTime
extern CUresult cuEventElapsedTime(float *, CUevent, CUevent);
extern CUresult cuMemAllocAsync_ptsz(CUdeviceptr *, size_t, CUstream);
extern CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr, const void *, size_t);
extern CUresult cuEventRecord_ptsz(CUevent, CUstream);
extern CUresult cuStreamGetCtx_v2_ptsz(CUstream, CUcontext *, CUgreenCtx *);
extern CUresult cuCtxCreate_v2(CUcontext *, unsigned int, CUdevice);

static void which(const char *name, int version, cuuint64_t flags, const char *expected, void *fn) {
    void *got = NULL;
    CUdriverProcAddressQueryResult status;
    cuGetProcAddress(name, &got, version, flags, &status);
    printf("%s version %d flags %d is %s: %d\n", name, version, (int)flags, expected, got == fn);
}
#define WHICH(name, version, flags, fn) which(name, version, flags, #fn, (void *)fn)

static void entries(void) {
    puts("# cuGetProcAddress");
    entry("cuMemAlloc", 13000, 0);
    entry("cuMemAlloc", 1000, 0);
    entry("cuMemAlloc", 0, 0);
    entry("cuMemAlloc_v2", 13000, 0);
    entry("cuMemAlloc", 99000, 0);
    entry("cuMemAlloc", 13000, 3);
    entry("cuMemAlloc", 13000, 7);
    entry("cuNoSuchThing", 13000, 0);
    entry("", 13000, 0);
    entry("cuMemAllocAsync", 11010, 0);
    entry("cuMemAllocAsync_ptsz", 13000, 0);
    entry("cuCtxRecordEvent", 12040, 0);
    entry("cuCtxRecordEvent", 12050, 0);
    void *fn;
    SAY(cuGetProcAddress("cuNoSuchThing", &fn, 13000, 0, NULL));
    NEED(cuGetProcAddress("cuMemAlloc", &fn, 13000, 0, NULL));
    printf("equals the exported one: %d\n", fn == (void *)cuMemAlloc_v2);
    WHICH("cuMemAlloc", 12000, 2, cuMemAlloc_v2);
    WHICH("cuMemAllocAsync", 12000, 2, cuMemAllocAsync_ptsz);
    WHICH("cuMemAllocAsync", 12000, 1, cuMemAllocAsync);
    WHICH("cuMemcpyHtoD", 12000, 2, cuMemcpyHtoD_v2_ptds);
    WHICH("cuEventRecord", 12000, 2, cuEventRecord_ptsz);
    WHICH("cuEventRecord", 6000, 2, cuEventRecord);
    WHICH("cuEventRecord", 7000, 2, cuEventRecord_ptsz);
    WHICH("cuCtxSynchronize", 12000, 0, cuCtxSynchronize);
    WHICH("cuCtxSynchronize", 13000, 0, cuCtxSynchronize_v2);
    WHICH("cuCtxGetDevice", 13000, 0, cuCtxGetDevice_v2);
    WHICH("cuCtxCreate", 3020, 0, cuCtxCreate_v2);
    WHICH("cuCtxCreate", 12050, 0, cuCtxCreate_v4);
    WHICH("cuStreamGetCtx", 12040, 0, cuStreamGetCtx);
    WHICH("cuStreamGetCtx", 12050, 0, cuStreamGetCtx_v2);
    WHICH("cuStreamGetCtx", 12050, 2, cuStreamGetCtx_v2_ptsz);
    WHICH("cuStreamGetCaptureInfo", 13000, 0, cuStreamGetCaptureInfo_v3);
    WHICH("cuEventElapsedTime", 12070, 0, cuEventElapsedTime);
    WHICH("cuEventElapsedTime", 12080, 0, cuEventElapsedTime_v2);
    WHICH("cuGetProcAddress", 13000, 0, cuGetProcAddress_v2);
    const char *text = NULL;
    SAY(cuGetErrorName(2, &text));
    puts(text);
    SAY(cuGetErrorString(2, &text));
    puts(text);
    SAY(cuGetErrorName(9999, &text));
}

static void primary(void) {
    unsigned flags;
    int active;
    CUcontext again;
    CUdeviceptr p;
    CUstream s;
    size_t a, b;
    puts("# the primary context ends");
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active: %d\n", active);
    SAY(cuDevicePrimaryCtxReset(0));
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active: %d\n", active);
    SAY(cuMemAlloc(&p, 512));
    SAY(cuMemGetInfo(&a, &b));
    SAY(cuStreamCreate(&s, 0));
    SAY(cuDevicePrimaryCtxRetain(&again, 0));
    printf("the same handle: %d\n", again == context);
    SAY(cuMemAlloc(&p, 512));
    SAY(cuCtxSetCurrent(again));
    SAY(cuMemAlloc(&p, 512));
    SAY(cuDevicePrimaryCtxRelease(0));
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active: %d\n", active);
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuDevicePrimaryCtxRetain(&again, 99));
}

/* What a driver says at once about work on memory that is not there. Each in a process of its own: what it
 * does not notice at once ruins the context. */
static CUdeviceptr piece(int access) {
    CUmemAllocationProp prop = prop_of();
    CUmemAccessDesc desc = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h;
    CUdeviceptr at;
    NEED(cuMemAddressReserve(&at, 4 * granularity, 0, 0, 0));
    NEED(cuMemCreate(&h, granularity, &prop, 0));
    NEED(cuMemMap(at, granularity, 0, h, 0));
    if (access)
        NEED(cuMemSetAccess(at, granularity, &desc, 1));
    return at;
}

static void missing_reserved(void) {
    CUdeviceptr at = piece(1) + granularity, p;
    char host[16];
    NEED(cuMemAlloc(&p, 4096));
    puts("# work on reserved address space");
    SAY(cuMemsetD8(at, 1, 16));
    SAY(cuMemsetD8Async(at, 1, 16, NULL));
    SAY(cuMemcpyDtoD(at, p, 16));
    SAY(cuMemcpyDtoD(p, at, 16));
    SAY(cuMemcpyHtoD(at, host, 16));
    SAY(cuMemcpyDtoH(host, at, 16));
}

static void missing_end(void) {
    CUdeviceptr at = piece(1);
    puts("# work across the end of a mapping");
    SAY(cuMemsetD8(at + granularity - 8, 1, 16));
    SAY(cuCtxSynchronize());
}

static void missing_access(void) {
    CUdeviceptr at = piece(0);
    puts("# work on a mapping without access");
    SAY(cuMemsetD8(at, 1, 16));
    SAY(cuCtxSynchronize());
}

static void missing_freed(void) {
    CUdeviceptr p, q;
    NEED(cuMemAlloc(&p, 64 << 20));
    NEED(cuMemAlloc(&q, 4096));
    NEED(cuMemFree(p));
    puts("# work on freed memory");
    SAY(cuMemsetD8(p, 1, 16));
    SAY(cuMemcpyDtoD(q, p, 16));
    SAY(cuCtxSynchronize());
}

static void missing_freed_end(void) {
    CUdeviceptr p;
    NEED(cuMemAlloc(&p, 64 << 20));
    puts("# work beyond an allocation");
    SAY(cuMemsetD8(p + (64 << 20) - 8, 1, 16));
    SAY(cuCtxSynchronize());
}

static void before(void) {
}

static const struct section {
    const char *name;
    void (*run)(void);
} sections[] = {
    {"before", before},
    {"entries", entries},
    {"vmm", vmm},
    {"native", native},
    {"attributes", attributes},
    {"pools", pools},
    {"shared", shared},
    {"contexts", contexts},
    {"captures", captures},
    {"primary", primary},
    {"many_entered", many_entered},
    {"ended_here", ended_here},
    {"ended_elsewhere", ended_elsewhere},
    {"ended_entered", ended_entered},
    {"missing_reserved", missing_reserved},
    {"missing_end", missing_end},
    {"missing_access", missing_access},
    {"missing_freed", missing_freed},
    {"missing_freed_end", missing_freed_end},
};

/* Each section has a process of its own, so that one cannot spoil the next. */
static void run(const struct section *section) {
    CUmemAllocationProp prop = prop_of();
    int count;
    if (section->run == before) {
        puts("# before cuInit");
        SAY(cuDeviceGetCount(&count));
        SAY(cuCtxGetCurrent(&context));
        SAY(cuInit(1));
    }
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    NEED(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    section->run();
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        if (argc > 1 && strcmp(argv[1], sections[i].name) != 0)
            continue;
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            run(&sections[i]);
        if (waitpid(child, &status, 0) < 0 || status != 0)
            printf("section %s ended with status %d\n", sections[i].name, status);
    }
    return 0;
}
