/* Threads with the smallest stack that there is: the first call of the process, allocations that are refused, one that
 * is spilled, calls of every kind, a pause, and the end of the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <limits.h>

static CUcontext c;

static void *begin(void *unused) {
    CUdeviceptr p;

    (void)unused;
    c = start();
    OK(cuMemAlloc(&p, 1000));
    OK(cuMemFree(p));
    return NULL;
}

static void *refused(void *unused) {
    CUdeviceptr p;

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    SHOW(cuMemAlloc(&p, (size_t)1 << 40));
    SHOW(cuMemAllocAsync(&p, (size_t)1 << 40, NULL));
    return NULL;
}

static void *large(void *unused) {
    CUdeviceptr p;

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    OK(cuMemAlloc(&p, 40 << 20));
    OK(cuMemsetD8(p, 1, 40 << 20));
    OK(cuMemFree(p));
    return NULL;
}

static void *others(void *unused) {
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUstream stream;
    CUgraph graph;
    CUdeviceptr p, q;
    size_t there, all;

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&p, 1 << 20, pool, stream));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD8Async(p, 1, 1 << 20, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeAsync(p, stream));
    OK(cuMemPoolDestroy(pool));
    OK(cuStreamDestroy(stream));
    OK(cuMemGetInfo(&there, &all));
    OK(cuMemAlloc(&p, 3 << 20));
    OK(cuMemGetAddressRange(&q, &all, p));
    OK(cuMemFree(p));
    return NULL;
}

static void *sleeps(void *unused) {
    int (*go)(int) = (__typeof__(go))dlsym(RTLD_DEFAULT, "vpool_pause");
    int (*wake)(int) = (__typeof__(wake))dlsym(RTLD_DEFAULT, "vpool_resume");
    CUdeviceptr p;

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    OK(cuMemAlloc(&p, 3 << 20));
    if (go && wake) {
        OK(go(0));
        OK(wake(0));
    }
    OK(cuMemFree(p));
    return NULL;
}

static void *shows(void *unused) {
    CUipcMemHandle handle;
    CUdeviceptr p;

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    OK(cuMemAlloc(&p, 1 << 19));
    OK(cuIpcGetMemHandle(&handle, p));
    OK(cuMemFree(p));
    return NULL;
}

static void *end(void *unused) {
    CUdeviceptr p[4];

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    for (int i = 0; i < 4; i++)
        OK(cuMemAlloc(&p[i], (size_t)(i + 1) << 22));
    OK(cuMemFree(p[1]));
    OK(cuMemAlloc(&p[1], 2 << 22));
    printf("done\n");
    exit(0);
}

int main(void) {
    void *(*const steps[])(void *) = {begin, refused, large, others, sleeps, shows, end};
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    NEED(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN));
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        NEED(pthread_create(&thread, &attributes, steps[i], NULL));
        pthread_join(thread, NULL);
    }
}
