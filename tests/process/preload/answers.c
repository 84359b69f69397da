/* Guests whose calls fail, or ask what few do: what they are told, and what is written where they asked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>

#include "guest.h"

#define MIB ((size_t)1 << 20)
#define NOWHERE ((CUdeviceptr)0x7777)

static CUcontext context;

static void start(void) {
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_OK(cuCtxSetCurrent(context));
}

/* The driver begins by writing 0, and the pitch is known before there is memory. */
static void what_fails_leaves_no_address(void) {
    const size_t much = (size_t)1 << 44;
    CUmemoryPool pool;
    CUdeviceptr ptr;
    size_t pitch;
    void *at;

    start();
    CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK_OK(cuMemAlloc(&ptr, MIB)); /* there is a pool by now */
#define TRY(call)                                                                                                      \
    ptr = NOWHERE, at = (void *)NOWHERE, pitch = 7;                                                                    \
    SHOW(call);                                                                                                        \
    printf("%llx %p %zu\n", (unsigned long long)ptr, at, pitch)
    TRY(cuMemAlloc(&ptr, much));
    TRY(cuMemAlloc(&ptr, 0));
    TRY(cuMemAllocAsync(&ptr, much, NULL));
    TRY(cuMemAllocFromPoolAsync(&ptr, much, pool, CU_STREAM_PER_THREAD));
    TRY(cuMemAllocPitch(&ptr, &pitch, much - 1, 2, 4));
    TRY(cuMemAllocPitch(&ptr, &pitch, 100, much, 4));
    TRY(cuMemAllocPitch(&ptr, &pitch, 100, 1, 5));
    TRY(cudaMalloc(&at, much));
    TRY(cudaMallocAsync(&at, much, NULL));
    TRY(cudaMallocPitch(&at, &pitch, much - 1, 2));
    TRY(cuMemAlloc(NULL, much));
    TRY(cuMemAllocAsync(NULL, much, NULL));
}

static void ask(CUdeviceptr ptr) {
    const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    unsigned long long access = 77;
    CUipcMemHandle handle;
    unsigned flags = 77;
    CUdeviceptr base;
    size_t size;

    SHOW(cuMemGetAccess(&access, &device, ptr));
    SHOW(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, ptr));
    SHOW(cuMemGetAddressRange(&base, &size, ptr));
    SHOW(cuIpcGetMemHandle(&handle, ptr) == CUDA_ERROR_INVALID_CONTEXT);
    SHOW(cuMemHostUnregister((void *)ptr));
    SHOW(cuMemFreeHost((void *)ptr));
    SHOW(access);
    SHOW(flags);
}

/* What a thread asks that has no context. */
static void questions_without_a_context(void) {
    CUdeviceptr plain, ordered;
    CUcontext unused;

    start();
    CHECK_OK(cuMemAlloc(&plain, 3 * MIB));
    CHECK_OK(cuMemAllocAsync(&ordered, 3 * MIB, NULL));
    ask(plain);
    ask(ordered);
    CHECK_OK(cuCtxPopCurrent(&unused));
    ask(plain);
    ask(ordered);
}

/* Of all that can be asked one may be set; of a mapping the driver says that none can. */
static void what_cannot_be_set_is_told_of(void) {
    CUdeviceptr plain, ordered;
    const unsigned on = 1;

    start();
    CHECK_OK(cuMemAlloc(&plain, 3 * MIB));
    CHECK_OK(cuMemAllocAsync(&ordered, 3 * MIB, NULL));
    for (int i = 0; i < 24; i++) {
        if (i == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) /* refused before CUDA 12.1: docs/limits.md */
            continue;
        SHOW(cuPointerSetAttribute(&on, (CUpointer_attribute)i, plain + 512));
        SHOW(cuPointerSetAttribute(&on, (CUpointer_attribute)i, ordered));
    }
    SHOW(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain));
}

/* Of the legacy stream no capture begins, nor does one end; that of a blocking stream lives on. */
static void captures_live_on_beside_what_is_refused(void) {
    CUstream stream;
    CUdeviceptr ptr;
    CUgraph graph;

    start();
    CHECK_OK(cuMemAlloc(&ptr, MIB));
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    for (int ends = 0; ends < 2; ends++) {
        CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        SHOW(ends ? cuStreamEndCapture(NULL, &graph) : cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
        SHOW(cuStreamEndCapture(stream, &graph));
    }
}

/* What the next function's threads do beside a capture, or the capturing thread itself. */
static struct {
    CUstreamCaptureMode mode; /* of the thread */
    int call;
    CUdeviceptr old;   /* for the frees */
    CUdeviceptr taken; /* by the others */
    CUstream stream;
    CUmemoryPool pool;
} beside;

static void *one_call_beside(void *unused) {
    CUdeviceptr ptr = NOWHERE;
    size_t pitch = 7;
    void *at = NULL;
    cuuint64_t value[2], zero[2] = {0, 0};

    (void)unused;
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuThreadExchangeStreamCaptureMode(&beside.mode));
    switch (beside.call) {
    case 0: SHOW(cuMemAlloc(&ptr, MIB)); break;
    case 1: SHOW(cuMemAllocPitch(&ptr, &pitch, 1000, 1000, 4)); break;
    case 2: SHOW(cuMemAlloc(&ptr, (size_t)1 << 44)); break;
    case 3: SHOW(cuMemFree(beside.old)); break;
    case 4: SHOW(cudaMalloc(&at, MIB)); break;
    case 5: SHOW(cudaMallocPitch(&at, &pitch, 1000, 1000)); break;
    case 6: SHOW(cudaFree((void *)beside.old)); break;
    case 7: SHOW(cuMemFree(beside.old + 512)); break;
    case 8: SHOW(cuMemAllocAsync(&ptr, MIB, beside.stream)); break;
    case 9: SHOW(cuMemAllocFromPoolAsync(&ptr, MIB, beside.pool, beside.stream)); break;
    case 10: SHOW(cuMemAllocAsync(&ptr, (size_t)1 << 44, beside.stream)); break;
    case 11: SHOW(cuMemAllocAsync(&ptr, 0, beside.stream)); break;
    case 12: SHOW(cuMemFreeAsync(beside.old, beside.stream)); break;
    case 13: SHOW(cuMemFreeAsync(0, beside.stream)); break;
    case 14: SHOW(cudaMallocAsync(&at, MIB, beside.stream)); break;
    case 15: SHOW(cudaMallocFromPoolAsync(&at, MIB, beside.pool, beside.stream)); break;
    case 16: SHOW(cudaFreeAsync((void *)beside.old, beside.stream)); break;
    case 17: SHOW(cudaMallocAsync(&at, MIB, cudaStreamPerThread)); break;
    case 18: SHOW(cuMemPoolTrimTo(beside.pool, 0)); break;
    case 19: SHOW(cuPointerSetAttribute(zero, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, beside.old)); break;
    case 20: SHOW(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, beside.old)); break;
    default:
        for (int i = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES; i <= CU_MEMPOOL_ATTR_USED_MEM_HIGH; i++) {
            value[0] = value[1] = 77;
            SHOW(beside.call == 21 ? cuMemPoolGetAttribute(beside.pool, (CUmemPool_attribute)i, value)
                                   : cuMemPoolSetAttribute(beside.pool, (CUmemPool_attribute)i, zero));
            printf("%d\n", value[0] == 77 && value[1] == 77);
        }
    }
    printf("%d %zu\n", ptr == 0, pitch);
    beside.taken = at ? (CUdeviceptr)at : ptr == NOWHERE ? 0 : ptr;
    SHOW(cudaGetLastError());
    CHECK_OK(cuThreadExchangeStreamCaptureMode(&beside.mode));
    return NULL;
}

/* Each way of allocating and freeing, at once and on a stream that does not capture, beside a capture in each mode, by
 * a thread in each mode and by the one that captures: what is refused, whether the capture has ended with that, and
 * that a refused free has freed nothing. A stream's last frees are ready to be had again without anybody's being asked.
 */
static void captures_forbid_what_they_do_with_cuda(void) {
    CUstream stream;
    CUdeviceptr base;
    CUgraph graph;
    size_t size;
    pthread_t thread;

    start();
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamCreate(&beside.stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuDeviceGetDefaultMemPool(&beside.pool, 0));
    for (int i = 0; i < 3 * 4 * 23; i++) {
        const int who = i / 3 % 4; /* a thread in mode 0, 1 or 2; 3: this one */
        CUdeviceptr ready;

        CHECK_OK(i / 12 < 8 ? cuMemAlloc(&beside.old, MIB) : cuMemAllocAsync(&beside.old, MIB, beside.stream));
        CHECK_OK(cuMemAllocAsync(&ready, MIB, beside.stream));
        CHECK_OK(cuMemFreeAsync(ready, beside.stream));
        beside.mode = (CUstreamCaptureMode)(who % 3);
        beside.call = i / 12;
        CHECK_OK(cuStreamBeginCapture(stream, (CUstreamCaptureMode)(i % 3)));
        printf("mode %d, thread %d: ", i % 3, who);
        if (who == 3)
            one_call_beside(NULL);
        else
            CHECK(!pthread_create(&thread, NULL, one_call_beside, NULL) && !pthread_join(thread, NULL));
        SHOW(cuStreamEndCapture(stream, &graph));
        CHECK_OK(cuCtxSynchronize());
        SHOW(cuMemGetAddressRange(&base, &size, beside.old));
        cuMemFree(beside.old); /* if it still is */
        CHECK_OK(cuMemFree(beside.taken));
    }
}

/* NCCL binds whatever is sent, as one rank of several, and those who succeed wait for those who have failed. */
static void binds_to_multicast_objects_what_cuda_would(void) {
    const CUmulticastObjectProp props[] = {
        {.numDevices = 1, .size = 8 * MIB, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
        {.numDevices = 1, .size = 8 * MIB}};
    const CUmemAllocationProp made = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY);
    __typeof__(&cuMulticastCreate) create = dlsym(cuda, "cuMulticastCreate"); /* 12.0 has none */
    __typeof__(&cuMulticastBindAddr) bind = dlsym(cuda, "cuMulticastBindAddr");
    CUmemGenericAllocationHandle object, chunk;
    CUdeviceptr plain, ordered, freed, own;

    start();
    CHECK_OK(cuMemAlloc(&plain, 8 * MIB));
    CHECK_OK(cuMemAllocAsync(&ordered, 8 * MIB, NULL));
    CHECK_OK(cuMemAlloc(&freed, 8 * MIB));
    CHECK_OK(cuMemFree(freed));
    CHECK_OK(cuMemCreate(&chunk, 2 * MIB, &made, 0));
    CHECK_OK(cuMemAddressReserve(&own, 2 * MIB, 0, 0, 0));
    CHECK_OK(cuMemMap(own, 2 * MIB, 0, chunk, 0));
    for (int i = 0; create && i < 2; i++) {
        CHECK_OK(create(&object, &props[i]));
        SHOW(bind(object, 0, plain, 2 * MIB, 0));
        SHOW(bind(object, 0, plain + 2 * MIB, 2 * MIB, 0));
        SHOW(bind(object, 0, ordered, 2 * MIB, 0));
        SHOW(bind(object, 0, freed, 2 * MIB, 0));
        SHOW(bind(object, 0, own, 2 * MIB, 0));
    }
}

GUEST_MAIN(GUEST(what_fails_leaves_no_address), GUEST(questions_without_a_context),
           GUEST(what_cannot_be_set_is_told_of), GUEST(captures_live_on_beside_what_is_refused),
           GUEST(captures_forbid_what_they_do_with_cuda), GUEST(binds_to_multicast_objects_what_cuda_would))
