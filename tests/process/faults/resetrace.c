/* A thread is cancelled while its cudaMalloc waits; then its context ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include "fault.h"

static CUcontext c;
static CUstream s;

static void *work(void *x) {
    CUdeviceptr p;
    cuCtxSetCurrent(c);
    int r = cuMemAlloc(&p, 40 << 20);
    printf("alloc %d\n", r);
    return 0;
}

int main(void) {
    CUdevice d;
    CUdeviceptr p;
    void *r;
    pthread_t h;
    void (*hold)(CUstream) = sym("vp_sim_hold"), (*rel)(CUstream) = sym("vp_sim_release");
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(((CUresult(*)(CUcontext *, unsigned, CUdevice))sym("cuCtxCreate_v2"))(&c, 0, d));
    OK(cuStreamCreate(&s, 1));
    OK(cuMemAlloc(&p, 40 << 20));
    hold(s);
    OK(cuMemsetD8Async(p, 1, 1 << 20, s));
    OK(cuMemFree(p));
    pthread_create(&h, 0, work, 0);
    usleep(400000);
    pthread_cancel(h);
    pthread_join(h, &r);
    printf("thread %s\n", r == PTHREAD_CANCELED ? "cancelled while cudaMalloc waited" : "ended");
    fflush(stdout);
    rel(s);
    alarm(60);
    SHOW(cuCtxDestroy(c));
}
