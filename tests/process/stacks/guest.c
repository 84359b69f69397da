/* A program whose holders of memory are known: `guest CASE`, on the simulated driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "../../common/check.h"
#include "../../common/forked.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static CUcontext context;
static CUstream stream;
static int (*mark)(const char *), (*range_push)(const char *), (*range_pop)(void);

static void start(void) {
    CUdevice device;
    CHECK(!cuInit(0) && !cuDeviceGet(&device, 0) && !cuDevicePrimaryCtxRetain(&context, device));
    CHECK(!cuCtxSetCurrent(context) && !cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

/* Not inlined, so that each is a frame. */
__attribute__((noinline)) static CUdeviceptr weights(size_t size) {
    CUdeviceptr p;
    CHECK(!cuMemAllocAsync(&p, size, stream));
    return p;
}

__attribute__((noinline)) static CUdeviceptr activations(size_t size) {
    CUdeviceptr p;
    CHECK(!cuMemAlloc(&p, size));
    return p;
}

/* 64 MiB by weights(), 24 MiB by activations(), and small ones from here. */
static void planted(void) {
    CUdeviceptr small[1000];
    range_push("forward");
    for (int i = 0; i < 16; i++)
        weights(4 * MIB);
    range_push("inner");
    for (int i = 0; i < 3; i++)
        activations(8 * MIB);
    CHECK(range_pop() == 1);
    CHECK(!cuMemFree(activations(8 * MIB)));
    CHECK(range_pop() == 0 && range_pop() < 0);
    for (int i = 0; i < 1000; i++)
        CHECK(!cuMemAllocAsync(&small[i], 10000, stream));
    mark("a, b%");
}

__attribute__((noinline)) static int deep(int n) {
    volatile int below = n > 0 ? deep(n - 1) : 0;
    if (!n)
        weights(MIB);
    return below + 1;
}

static void *thread(void *unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "worker");
    CHECK(!cuCtxSetCurrent(context));
    for (int i = 0; i < 50; i++)
        CHECK(!cuMemFreeAsync(weights(2 * MIB), stream));
    return NULL;
}

static void threads(void) {
    for (int round = 0; round < 20; round++) {
        pthread_t all[8];
        for (int i = 0; i < 8; i++)
            CHECK(!pthread_create(&all[i], NULL, thread, NULL));
        for (int i = 0; i < 8; i++)
            pthread_join(all[i], NULL);
    }
}

static void out_of_memory(void) {
    CUdeviceptr p;
    planted();
    CHECK(cuMemAllocAsync(&p, (size_t)1 << 40, stream) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* Blocks of half a MiB by turns, of which every second one stays. */
static void turns(void) {
    for (int i = 0; i < 400; i++) {
        weights(MIB / 2);
        CHECK(!cuMemFree(activations(MIB / 2)));
    }
}

/* Written to after its free, which VPOOL_POISON sees when the bytes are handed out again. */
static void dangling(void) {
    CUdeviceptr p = activations(8 * MIB);
    CHECK(!cuMemFree(p) && !cuMemsetD8(p, 1, 4));
    CHECK(activations(8 * MIB) == p);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    mark = (__typeof__(mark))dlsym(RTLD_DEFAULT, "vpool_mark");
    range_push = (__typeof__(range_push))dlsym(RTLD_DEFAULT, "vpool_range_push");
    range_pop = (__typeof__(range_pop))dlsym(RTLD_DEFAULT, "vpool_range_pop");
    CHECK(mark && range_push && range_pop);
    if (!strcmp(argv[1], "early")) {
        mark("before");
        CHECK(range_push("loading") == 0);
    }
    if (!strcmp(argv[1], "fork") && !fork()) {
        start();
        planted();
        return 0;
    }
    start();
    if (!strcmp(argv[1], "early")) {
        weights(2 * MIB);
        CHECK(range_pop() == 0);
    } else if (!strcmp(argv[1], "deep")) {
        deep(20000);
    } else if (!strcmp(argv[1], "threads")) {
        threads();
    } else if (!strcmp(argv[1], "turns")) {
        turns();
    } else if (!strcmp(argv[1], "dangling")) {
        dangling();
    } else if (!strcmp(argv[1], "oom")) {
        out_of_memory();
    } else {
        planted();
    }
    while (wait(NULL) > 0) {}
    return 0;
}
