/* Guests of the runtime API, linked to a shared libcudart: every call goes through the dynamic linker. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "guest.h"

cudaError_t cudaMallocAsync_ptsz(void **ptr, size_t size, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void *ptr, cudaStream_t stream);

enum { MIB = 1 << 20 };

static void check_data(void *ptr, size_t size, unsigned char value) {
    unsigned char *host = malloc(size);

    CHECK(host);
    CHECK_OK(cudaMemset(ptr, value, size));
    CHECK_OK(cudaMemcpy(host, ptr, size, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < size; i++)
        CHECK(host[i] == value);
    free(host);
}

static int is_vpools(const void *function) {
    Dl_info info;

    return dladdr(function, &info) && strstr(info.dli_fname, "libvpool.so") != NULL;
}

/* A reference to a symbol's version binds to a definition without one. */
static void interposes_versioned_references(void) {
    CHECK(is_vpools(cudaMalloc));
    CHECK(is_vpools(cudaFree));
    CHECK(is_vpools(cudaMallocAsync));
    CHECK(is_vpools(cudaPointerGetAttributes));
    CHECK(!is_vpools(cudaMemcpy));
}

static void serves_the_linkers_route(void) {
    size_t size = 3 * MIB + 4242, pitch, free_before, free_after, total;
    void *plain, *pitched, *ordered, *per_thread, *from_pool;
    struct cudaPointerAttributes attributes;
    cudaStream_t stream;
    cudaMemPool_t pool;

    CHECK_OK(cudaMalloc(&plain, size)); /* with no context yet: the runtime makes one */
    CHECK_OK(cudaMallocPitch(&pitched, &pitch, 1000, 700));
    CHECK(pitch >= 1000);
    CHECK_OK(cudaStreamCreate(&stream));
    CHECK_OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK_OK(cudaMallocAsync(&ordered, size, stream));
    CHECK_OK(cudaMallocAsync_ptsz(&per_thread, size, 0));
    CHECK_OK(cudaMallocFromPoolAsync(&from_pool, size, pool, stream));
    CHECK_OK(cudaDeviceSynchronize());
    check_data(plain, size, 1);
    check_data(pitched, pitch * 700, 2);
    check_data(ordered, size, 3);
    check_data(per_thread, size, 4);
    check_data(from_pool, size, 5);
    CHECK_OK(cudaPointerGetAttributes(&attributes, (char *)plain + MIB));
    CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    CHECK(attributes.devicePointer == (char *)plain + MIB);
    CHECK_OK(cudaMemGetInfo(&free_before, &total));
    CHECK_OK(cudaFreeAsync(ordered, stream));
    CHECK_OK(cudaFreeAsync_ptsz(per_thread, 0));
    CHECK_OK(cudaFreeAsync(from_pool, stream));
    CHECK_OK(cudaFree(plain));
    CHECK_OK(cudaFree(pitched));
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaMemGetInfo(&free_after, &total));
    CHECK(free_after >= free_before + 4 * size); /* what the pool could hand out again is free */
    CHECK_OK(cudaStreamDestroy(stream));
    check_served();
}

/* Once it has begun, neither the runtime nor the driver is called for what the pool can give at once. */
static void repeats_without_calling_the_driver(void) {
    unsigned long calls;
    void *ptr;

    for (int i = 0; i < 100; i++) {
        CHECK_OK(cudaMalloc(&ptr, 3 * MIB));
        CHECK_OK(cudaFree(ptr));
        CHECK_OK(cudaDeviceSynchronize());
    }
    calls = driver_calls("cuMemCreate") + driver_calls("cuMemMap") + driver_calls("cuMemSetAccess");
    for (int i = 0; i < 100; i++) {
        CHECK_OK(cudaMalloc(&ptr, 3 * MIB));
        CHECK_OK(cudaFree(ptr));
        CHECK_OK(cudaDeviceSynchronize());
    }
    CHECK(driver_calls("cuMemCreate") + driver_calls("cuMemMap") + driver_calls("cuMemSetAccess") == calls);
    check_served();
}

static void answers_errors_as_cuda_does(void) {
    struct cudaPointerAttributes attributes;
    size_t pitch = 0, total;
    void *ptr = NULL;

    SHOW(cudaFree(NULL)); /* makes the context */
    SHOW(cudaGetLastError());
    SHOW(cudaMalloc(&ptr, (size_t)1 << 50));
    SHOW(cudaPeekAtLastError());
    SHOW(cudaMalloc(&ptr, MIB)); /* a success leaves the last error */
    SHOW(cudaGetLastError());
    SHOW(cudaGetLastError());
    SHOW(cudaFree(ptr));
    SHOW(cudaFree(ptr));
    SHOW(cudaGetLastError());
    SHOW(cudaFreeAsync(ptr, NULL));
    SHOW(cudaGetLastError());
    SHOW(cudaMalloc(NULL, MIB));
    SHOW(cudaGetLastError());
    ptr = &total;
    SHOW(cudaMalloc(&ptr, 0));
    SHOW(ptr == NULL);
    SHOW(cudaGetLastError());
    SHOW(cudaMallocAsync(NULL, MIB, NULL));
    SHOW(cudaMallocAsync(&ptr, 0, NULL));
    SHOW(cudaMallocAsync(&ptr, (size_t)1 << 50, NULL));
    SHOW(cudaGetLastError());
    SHOW(cudaMallocFromPoolAsync(&ptr, 1, NULL, NULL));
    SHOW(cudaMallocPitch(&ptr, &pitch, 0, 7));
    SHOW(cudaMallocPitch(&ptr, &pitch, 7, 0));
    SHOW(cudaMallocPitch(&ptr, NULL, 7, 7));
    SHOW(cudaMallocPitch(&ptr, &pitch, (size_t)1 << 40, 1 << 20));
    SHOW(cudaGetLastError());
    SHOW(cudaFree((void *)4096));
    SHOW(cudaGetLastError());
    SHOW(cudaPointerGetAttributes(&attributes, &total));
    SHOW(attributes.type);
    SHOW(cudaMemGetInfo(NULL, NULL));
    SHOW(cudaDeviceReset());
    SHOW(cudaMalloc(&ptr, MIB));
    SHOW(cudaFree(ptr));
}

static void *use_in_thread(void *arg) {
    void *ptr;

    CHECK_OK(cudaFree(arg)); /* the thread has no context of its own yet */
    CHECK_OK(cudaMalloc(&ptr, 3 * MIB));
    check_data(ptr, 3 * MIB, 6);
    return ptr;
}

static cudaStream_t shared_stream;
static void *shared_blocks[3];

static bool has_context(void) {
    CUcontext now = NULL;
    CUresult (*get)(CUcontext *) = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "cuCtxGetCurrent");

    return get(&now) == CUDA_SUCCESS && now;
}

static void *allocate_first(void *unused) {
    CHECK_OK(cudaMallocAsync(&shared_blocks[2], 1 << 20, shared_stream));
    CHECK(has_context());
    return unused;
}

static void *free_first(void *unused) {
    CHECK_OK(cudaFree(shared_blocks[0]));
    CHECK(has_context());
    return unused;
}

static void *free_async_first(void *unused) {
    CHECK_OK(cudaFreeAsync(shared_blocks[1], shared_stream));
    CHECK(has_context());
    return unused;
}

/* The thread has had a context, and has left it. */
static void *free_after_leaving(void *unused) {
    CUresult (*set)(CUcontext) = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "cuCtxSetCurrent");
    CUresult (*pop)(CUcontext *) = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "cuCtxPopCurrent_v2");
    void *ptr;

    for (int how = 0; how < 4; how++) {
        CHECK_OK(cudaMallocAsync(&ptr, 1 << 20, shared_stream));
        CHECK_OK(how & 1 ? (int)set(NULL) : (int)pop(NULL));
        CHECK(!has_context());
        CHECK_OK(how & 2 ? cudaFree(ptr) : cudaFreeAsync(ptr, shared_stream));
        CHECK(has_context());
    }
    return unused;
}

/* A thread's first call of the runtime makes its device's context current, whichever call it is; so does the first
 * after a reset, and the first after it has left its context. */
static void short_ways_make_a_context_current(void) {
    void *(*const firsts[])(void *) = {allocate_first, free_first, free_async_first, free_after_leaving};

    for (int round = 0; round < 2; round++) {
        CHECK_OK(cudaMalloc(&shared_blocks[0], 1 << 20));
        CHECK(has_context());
        CHECK_OK(cudaStreamCreate(&shared_stream));
        CHECK_OK(cudaMallocAsync(&shared_blocks[1], 1 << 20, shared_stream));
        for (int i = 0; i < 4; i++) {
            pthread_t thread;

            CHECK(!pthread_create(&thread, NULL, firsts[i], NULL) && !pthread_join(thread, NULL));
        }
        CHECK_OK(cudaFreeAsync(shared_blocks[2], shared_stream));
        CHECK_OK(cudaDeviceReset());
    }
    check_served();
}

static void serves_threads_without_a_context(void) {
    void *ptr;

    CHECK_OK(cudaMalloc(&ptr, 3 * MIB));
    for (int i = 0; i < 8; i++) {
        pthread_t thread;

        CHECK(pthread_create(&thread, NULL, use_in_thread, ptr) == 0);
        CHECK(pthread_join(thread, &ptr) == 0);
    }
    CHECK_OK(cudaFree(ptr));
    check_served();
}

/* The device chosen by cudaSetDevice is the one that gives the memory. */
static void serves_the_device_that_is_set(void) {
    struct cudaPointerAttributes attributes;
    void *ptr;

    for (int i = 0; i < 8; i++) {
        CHECK_OK(cudaSetDevice(i % 2));
        CHECK_OK(cudaMalloc(&ptr, 3 * MIB));
        CHECK_OK(cudaPointerGetAttributes(&attributes, ptr));
        CHECK(attributes.device == i % 2);
        CHECK_OK(cudaFree(ptr));
    }
    check_served();
}

static void *kept_to_the_end;

static void free_at_exit(void) {
    void *ptr;

    CHECK_OK(cudaFree(kept_to_the_end));
    CHECK_OK(cudaMalloc(&ptr, MIB));
    CHECK_OK(cudaFree(ptr));
}

static void cuda_calls_at_exit(void) {
    CHECK_OK(cudaMalloc(&kept_to_the_end, 3 * MIB));
    atexit(free_at_exit);
}

static void uses_cuda(void) {
    void *ptr;

    CHECK_OK(cudaMalloc(&ptr, 3 * MIB));
    CHECK_OK(cudaFree(ptr));
}

static void does_nothing(void) {
}

/* What was allocated goes with the device's context, and the next call begins anew. */
static void survives_a_device_reset(void) {
    for (int round = 0; round < 4; round++) {
        cudaStream_t stream;
        void *sync, *async;

        CHECK_OK(cudaStreamCreate(&stream));
        CHECK_OK(cudaMalloc(&sync, 3 * MIB));
        CHECK_OK(cudaMallocAsync(&async, 2 * MIB, stream));
        CHECK_OK(cudaStreamSynchronize(stream));
        check_data(sync, 3 * MIB, (unsigned char)round);
        check_data(async, 2 * MIB, (unsigned char)(round + 50));
        CHECK_OK(cudaFreeAsync(async, stream));
        CHECK_OK(cudaDeviceReset());
        CHECK(cudaFree(sync) != cudaSuccess);
        cudaGetLastError();
    }
    check_served();
}

/* VPOOL_SIM=devices=2 */
static void opens_memory_to_peers(void) {
    void *before, *after, *there;

    CHECK_OK(cudaMalloc(&before, 3 * MIB));
    CHECK_OK(cudaSetDevice(1));
    CHECK(cudaMemset(before, 1, MIB) != cudaSuccess);
    cudaGetLastError();
    CHECK_OK(cudaDeviceEnablePeerAccess(0, 0));
    CHECK_OK(cudaSetDevice(0));
    CHECK_OK(cudaMalloc(&after, 3 * MIB));
    CHECK_OK(cudaSetDevice(1));
    check_data(before, 3 * MIB, 3);
    check_data(after, 3 * MIB, 4);
    CHECK_OK(cudaMalloc(&there, 3 * MIB));
    CHECK_OK(cudaMemcpyPeer(there, 1, after, 0, 3 * MIB));
    CHECK_OK(cudaDeviceDisablePeerAccess(0));
    CHECK_OK(cudaFree(before));
    CHECK_OK(cudaFree(after));
    CHECK_OK(cudaFree(there));
    check_served();
}

/* A release threshold that the program has set is obeyed where it waits. */
static void obeys_a_release_threshold(void) {
    unsigned long long threshold = 0, reserved = 1;
    cudaStream_t stream;
    cudaEvent_t event;
    cudaMemPool_t pool;
    void *ptr;

    CHECK_OK(cudaStreamCreate(&stream));
    CHECK_OK(cudaEventCreate(&event));
    CHECK_OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK_OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    for (int how = 0; how < 3; how++) {
        CHECK_OK(cudaMallocAsync(&ptr, 9 * MIB, stream));
        CHECK_OK(cudaFreeAsync(ptr, stream));
        CHECK_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
        CHECK(reserved >= 9 * MIB);
        CHECK_OK(cudaEventRecord(event, stream));
        CHECK_OK(how == 0   ? cudaStreamSynchronize(stream)
                 : how == 1 ? cudaEventSynchronize(event)
                            : cudaDeviceSynchronize());
        CHECK_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
        CHECK(reserved == 0);
    }
    CHECK(driver_calls("cuMemRelease") == driver_calls("cuMemCreate"));
    check_served();
}

static void passes_everything_on(void) {
    void *ptr;

    CHECK_OK(cudaMalloc(&ptr, 3 * MIB));
    check_data(ptr, 3 * MIB, 8);
    CHECK_OK(cudaFree(ptr));
    CHECK(driver_calls("cuMemAlloc_v2") == 1);
    CHECK(driver_calls("cuMemFree_v2") == 1);
    CHECK(driver_calls("cuMemCreate") == 0);
}

/* The question of what captures forbid ends them, and its answer may be another afterwards: each call asks once, though
 * it comes to the library by the runtime's door and then by the driver's. */
static void asks_once_what_captures_forbid(void) {
    void *kept, *taken;
    cudaStream_t stream, other;
    cudaGraph_t graph;
    size_t pitch;

    CHECK_OK(cudaStreamCreate(&stream));
    CHECK_OK(cudaStreamCreate(&other));
    CHECK_OK(cudaMallocAsync(&kept, MIB, other));
    for (int i = 0; i < 5; i++) {
        CHECK_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        const unsigned long asked = driver_calls("cuEventQuery");
        cudaError_t err = i == 0   ? cudaMalloc(&taken, MIB)
                          : i == 1 ? cudaMallocPitch(&taken, &pitch, 1000, 1000)
                          : i == 2 ? cudaFree(kept)
                          : i == 3 ? cudaMallocAsync(&taken, MIB, other)
                                   : cudaFreeAsync(kept, other);
        CHECK(err == cudaErrorStreamCaptureUnsupported && cudaGetLastError() == err);
        CHECK(driver_calls("cuEventQuery") == asked + 1);
        CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
        CHECK(cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
    }
    CHECK_OK(cudaFree(kept));
}

GUEST_MAIN(GUEST(interposes_versioned_references), GUEST(serves_the_linkers_route),
           GUEST(repeats_without_calling_the_driver), GUEST(answers_errors_as_cuda_does),
           GUEST(serves_threads_without_a_context), GUEST(short_ways_make_a_context_current),
           GUEST(serves_the_device_that_is_set), GUEST(cuda_calls_at_exit), GUEST(uses_cuda), GUEST(does_nothing),
           GUEST(survives_a_device_reset), GUEST(opens_memory_to_peers), GUEST(obeys_a_release_threshold),
           GUEST(passes_everything_on), GUEST(asks_once_what_captures_forbid))
