/* A program that repeats itself: some large blocks that stay, and steps of others. usage: guest [SHIFT [fork | kill |
 * term]]. GUEST_THEN, which no plan is found by: what it does instead, while a plan is made ahead of its first request.
 *
 * GUEST_BESIDE, too: on so many other devices a block, and GUEST_BLOCKS more, of any size.
 *
 *   chdir     goes on in another folder
 *   MIB       asks for so much, and may use no more than GUEST_MOST MiB of the device
 *   pause     sleeps, and nothing may be left on the device
 *   empty     the same, having freed all that it had
 *   trim      frees all, and gives back what is idle: nothing may be left
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "../../common/check.h"
#include "../../common/forked.h"

#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAYERS = 12, STEPS = 6 };

static size_t used(void) {
    size_t (*ask)(int) = (size_t (*)(int))dlsym(RTLD_DEFAULT, "vp_sim_used");
    return ask ? ask(0) : SIZE_MAX;
}

static void must(int right, const char *what) {
    if (!right) {
        fprintf(stderr, "guest: %s: %zu bytes of the device are used\n", what, used());
        exit(1);
    }
}

static void do_instead(const char *what, CUdeviceptr first) {
    const char *most = getenv("GUEST_MOST");
    CUdeviceptr block;
    if (!strcmp(what, "chdir")) {
        must(!chdir("/"), what);
        return;
    }
    usleep(100000); /* something is being made */
    if (!strcmp(what, "empty") || !strcmp(what, "trim"))
        CHECK_OK(cuMemFree(first));
    if (!strcmp(what, "trim")) {
        CUmemoryPool pool;
        CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
        CHECK_OK(cuMemPoolTrimTo(pool, 0));
        usleep(600000);
        must(!used(), what);
        exit(0);
    }
    if (!strcmp(what, "pause") || !strcmp(what, "empty")) {
        int (*pause_now)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "vpool_pause");
        must(pause_now && !pause_now(0), what);
        usleep(600000);
        must(!used(), what);
        exit(0);
    }
    CHECK_OK(cuMemAlloc(&block, strtoul(what, NULL, 10) << 20));
    usleep(600000);
    must(used() <= strtoul(most ? most : "8192", NULL, 10) << 20, what);
    exit(0);
}

static void use_another_device(CUdevice device) {
    enum { ALIVE = 200 };
    const char *blocks = getenv("GUEST_BLOCKS");
    CUdeviceptr block, some[ALIVE] = {0};
    CUcontext context;
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_OK(cuCtxPushCurrent(context));
    CHECK_OK(cuMemAlloc(&block, 8 << 20));
    for (long i = blocks ? atol(blocks) : 0; i; i--) {
        CUdeviceptr *one = &some[rand() % ALIVE];
        CHECK_OK(cuMemFreeAsync(*one, CU_STREAM_PER_THREAD));
        CHECK_OK(cuMemAllocAsync(one, (1 << 20) + (size_t)(rand() % 20000) * 512, CU_STREAM_PER_THREAD));
    }
    CHECK_OK(cuCtxPopCurrent(&context));
}

int main(int argc, char **argv) {
    const size_t shift = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    CUdeviceptr weight[LAYERS], layer[LAYERS];
    CUcontext context;
    CUdevice device;
    CUstream stream;
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDeviceGet(&device, 0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = getenv("GUEST_BESIDE") ? atoi(getenv("GUEST_BESIDE")) : 0; i; i--)
        use_another_device(i);
    for (int i = 0; i < LAYERS; i++) {
        CHECK_OK(cuMemAllocAsync(&weight[i], (8 << 20) + (size_t)i * 4096 + shift, stream));
        if (!i && getenv("GUEST_THEN"))
            do_instead(getenv("GUEST_THEN"), weight[0]);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LAYERS; i++) {
            CHECK_OK(cuMemAllocAsync(&layer[i], (3 << 20) + (size_t)i * 65536 + shift, stream));
            CHECK_OK(cuMemsetD8Async(layer[i], (unsigned char)i, 1 << 20, stream));
            usleep(300); /* of work, in which a builder is ahead */
        }
        for (int i = 0; i < LAYERS; i++)
            CHECK_OK(cuMemFreeAsync(layer[i], stream));
        CHECK_OK(cuStreamSynchronize(stream));
    }
    if (argc > 2 && !strcmp(argv[2], "fork")) {
        pid_t child = fork();
        if (!child)
            exit(0); /* as a program would, and with its handlers */
        waitpid(child, NULL, 0);
    }
    if (argc > 2 && !strcmp(argv[2], "kill"))
        abort();
    if (argc > 2 && !strcmp(argv[2], "term"))
        raise(SIGTERM);
    for (int i = 0; i < LAYERS; i++)
        CHECK_OK(cuMemFreeAsync(weight[i], stream));
    CHECK_OK(cuStreamSynchronize(stream));
    return 0;
}
