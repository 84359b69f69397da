/* A program that repeats itself: some large blocks that stay, and steps of others. usage: guest [SHIFT [fork]] */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult res_ = (call);                                                                                        \
        if (res_) {                                                                                                    \
            fprintf(stderr, "guest: %s: %d\n", #call, (int)res_);                                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { LAYERS = 12, STEPS = 6 };

int main(int argc, char **argv) {
    const size_t shift = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    CUdeviceptr weight[LAYERS], layer[LAYERS];
    CUcontext context;
    CUdevice device;
    CUstream stream;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < LAYERS; i++)
        CHECK(cuMemAllocAsync(&weight[i], (8 << 20) + (size_t)i * 4096 + shift, stream));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LAYERS; i++) {
            CHECK(cuMemAllocAsync(&layer[i], (3 << 20) + (size_t)i * 65536 + shift, stream));
            CHECK(cuMemsetD8Async(layer[i], (unsigned char)i, 1 << 20, stream));
            usleep(300); /* of work, in which a builder is ahead */
        }
        for (int i = 0; i < LAYERS; i++)
            CHECK(cuMemFreeAsync(layer[i], stream));
        CHECK(cuStreamSynchronize(stream));
    }
    if (argc > 2 && !strcmp(argv[2], "fork")) {
        pid_t child = fork();
        if (!child)
            exit(0); /* as a program would, and with its handlers */
        waitpid(child, NULL, 0);
    }
    if (argc > 2 && !strcmp(argv[2], "kill"))
        abort();
    for (int i = 0; i < LAYERS; i++)
        CHECK(cuMemFreeAsync(weight[i], stream));
    CHECK(cuStreamSynchronize(stream));
    return 0;
}
