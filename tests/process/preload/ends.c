/* Guests in which contexts and threads end in the middle, and threads come and go in numbers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdbool.h>

#include "guest.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static CUcontext context;

static void start(void) {
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_OK(cuCtxSetCurrent(context));
}

static CUstream capture(void) {
    CUstream stream;

    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    return stream;
}

static void by_destruction(void) {
    CUcontext made;

    CHECK_OK(cuCtxCreate(&made, NULL, 0, 0));
    capture();
    CHECK_OK(cuCtxDestroy(made));
    CHECK_OK(cuCtxSetCurrent(context));
}

static void by_detachment(void) {
    CUresult (*attach)(CUcontext *, unsigned int) = guest_symbol(RTLD_DEFAULT, "cuCtxAttach");
    CUresult (*detach)(CUcontext) = guest_symbol(RTLD_DEFAULT, "cuCtxDetach");
    CUcontext made, same;
    CUdeviceptr ptr;

    CHECK_OK(cuCtxCreate(&made, NULL, 0, 0));
    CHECK_OK(attach(&same, 0));
    CHECK_OK(cuMemAlloc(&ptr, MIB));
    CHECK_OK(detach(made));
    CHECK_OK(cuMemFree(ptr)); /* one reference is left */
    CHECK_OK(cuMemAlloc(&ptr, MIB));
    capture();
    CHECK_OK(detach(made));
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK(cuMemFree(ptr) != CUDA_SUCCESS);
}

static void by_reset(void) {
    capture();
    CHECK_OK(cuDevicePrimaryCtxReset(0));
    start();
}

static void by_green(void) {
    CUdevResource all;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUstream stream;

    CHECK_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_OK(cuDevResourceGenerateDesc(&desc, &all, 1));
    CHECK_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK_OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_OK(cuGreenCtxDestroy(green));
}

static void *capture_own_stream(void *unused) {
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    return unused;
}

static void by_thread(void) {
    pthread_t thread;

    CHECK(!pthread_create(&thread, NULL, capture_own_stream, NULL) && !pthread_join(thread, NULL));
}

/* The device (VPOOL_SIM=capacity=128M) does not fill up with what was freed. */
static void captures_end_with_what_they_run_in(void) {
    void (*const ends[])(void) = {by_destruction, by_detachment, by_reset, by_green, by_thread};
    CUdeviceptr ptr;

    start();
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        CHECK_OK(cuMemAlloc(&ptr, MIB));
        CHECK_OK(cuMemFree(ptr));
        ends[i]();
        for (int k = 0; k < 10; k++) {
            CHECK_OK(cuMemAlloc(&ptr, 40 * MIB));
            CHECK_OK(cuMemsetD8(ptr, 1, 40 * MIB));
            CHECK_OK(cuMemFree(ptr));
        }
    }
    check_served();
}

/* From 13.1 on the streams of a green context outlive it (VPOOL_SIM=driver=13010), for nothing but to be destroyed. */
static void streams_that_are_detached_are_destroyed(void) {
    CUdevResource all;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUstream stream, other;
    CUdeviceptr ptr, kept, none;

    start();
    CHECK_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
        CHECK_OK(cuDevResourceGenerateDesc(&desc, &all, 1));
        CHECK_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        CHECK_OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
        CHECK_OK(cuMemAllocAsync(&ptr, 4 * KIB, stream));
        CHECK_OK(cuMemAllocAsync(&kept, MIB, stream));
        CHECK_OK(cuMemFreeAsync(ptr, stream));
        CHECK_OK(cuGreenCtxDestroy(green));
        SHOW(cuMemAllocAsync(&none, 4 * KIB, stream));
        SHOW(cuMemAllocAsync(&none, MIB, stream));
        SHOW(cuMemFreeAsync(kept, stream));
        SHOW(cuStreamQuery(stream));
        SHOW(cuStreamDestroy(stream));
        SHOW(cuMemsetD8Async(kept, 1, MIB, other));
        SHOW(cuMemFreeAsync(kept, other));
        SHOW(cuStreamSynchronize(other));
    }
}

/* Resident bytes of this process. */
static size_t resident(void) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    CHECK(file && fscanf(file, "%*u %zu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void *use_own_stream(void *unused) {
    CUdeviceptr ptr;

    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuMemAllocAsync(&ptr, 4 * KIB, CU_STREAM_PER_THREAD));
    CHECK_OK(cuMemFreeAsync(ptr, CU_STREAM_PER_THREAD));
    return unused;
}

/* A hundred thousand threads, each with its own stream, leave no more behind than the first thousands. */
static void threads_come_and_go(void) {
    /* A sanitizer keeps what was freed for a while, and takes its time. */
    bool watched = dlsym(RTLD_DEFAULT, "__asan_init") || dlsym(RTLD_DEFAULT, "__tsan_init");
    int threads = watched ? 5000 : 100000;
    size_t at_first = 0;

    start();
    for (int i = 0; i < threads; i++) {
        pthread_t thread;

        CHECK(!pthread_create(&thread, NULL, use_own_stream, NULL) && !pthread_join(thread, NULL));
        if (i == threads / 10)
            at_first = resident();
    }
    CHECK(watched || resident() < at_first + MIB);
    check_served();
}

GUEST_MAIN(GUEST(captures_end_with_what_they_run_in), GUEST(streams_that_are_detached_are_destroyed),
           GUEST(threads_come_and_go))
