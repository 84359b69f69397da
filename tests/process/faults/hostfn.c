/* A host function holds up a stream, or one that waits for it, until the program has seen the other stream end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <semaphore.h>

#include "fault.h"

static sem_t sem;

static void fn(void *x) {
    sem_wait(&sem);
}

static CUcontext c;
static CUdeviceptr fp;

static void *freer(void *x) {
    cuCtxSetCurrent(c);
    double t = now();
    int r = cuMemFree(fp);
    printf("[thread A: cuMemFree -> %d after %.2f s] ", r, now() - t);
    return 0;
}

int main(int argc, char **argv) {
    CUdevice d;
    CUdeviceptr p, q, w;
    CUstream F, S, H;
    CUevent e;
    size_t n = 16 << 20;
    int mode = argc > 1 ? atoi(argv[1]) : 0;
    sem_init(&sem, 0, 0);
    pthread_t th;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuStreamCreate(&F, 1));
    OK(cuStreamCreate(&S, 1));
    OK(cuStreamCreate(&H, 1));
    OK(cuEventCreate(&e, 2));
    OK(cuMemAllocAsync(&w, n, S));
    OK(cuMemsetD8Async(w, 1, n, S));
    OK(cuMemFreeAsync(w, S));
    OK(cuCtxSynchronize());
    if (mode == 2)
        OK(cuMemAlloc(&fp, n));
    else {
        OK(cuMemAllocAsync(&p, n, F));
        OK(cuMemsetD8Async(p, 1, n, F));
    }
    OK(cuLaunchHostFunc(mode == 1 ? F : H, fn, 0)); /* a host function that waits for the CPU */
    OK(cuEventRecord(e, H));
    if (mode != 2)
        OK(cuStreamWaitEvent(F, e, 0)); /* F comes behind it */
    if (mode == 2) {
        pthread_create(&th, 0, freer, 0);
        usleep(200000);
    } else {
        OK(cuMemsetD8Async(p, 2, n, F));
        OK(cuMemFreeAsync(p, F));
    }
    OK(cuMemAllocAsync(&w, n, S));
    if (mode != 2)
        OK(cuMemAllocAsync(&q, n, S));
    OK(cuMemsetD8Async(w, 3, n, S));
    double t = now();
    int r = cuStreamSynchronize(S);
    printf("mode %d: stream S: %d after %.2f s%s\n", mode, r, now() - t, r ? "  (HANG)" : "");
    sem_post(&sem);
    if (mode == 2)
        pthread_join(th, 0);
    OK(cuCtxSynchronize());
    return 0;
}
