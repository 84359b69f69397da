/* A context is destroyed, or with an argument a thread ends, while a stream of it captures. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext c;

static void *work(void *x) {
    cuCtxSetCurrent(c);
    CUstream ps = CU_STREAM_PER_THREAD;
    printf("begin on per-thread stream -> %d\n", cuStreamBeginCapture(ps, CU_STREAM_CAPTURE_MODE_RELAXED));
    return 0;
}

int main(int argc, char **argv) {
    CUdevice d;
    CUcontext k;
    CUdeviceptr p;
    CUstream s;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuMemAlloc(&p, 1 << 20));
    OK(cuMemFree(p));
    if (argc > 1) {
        pthread_t h;
        pthread_create(&h, 0, work, 0);
        pthread_join(h, 0);
    } else {
        OK(((CUresult(*)(CUcontext *, unsigned, CUdevice))sym("cuCtxCreate_v2"))(&k, 0, d));
        OK(cuStreamCreate(&s, 1));
        OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        SHOW(cuCtxDestroy(k));
        OK(cuCtxSetCurrent(c));
    }
    for (int i = 0; i < 5; i++) {
        int e = cuMemAlloc(&p, 20 << 20);
        printf("%d ", e);
        if (!e)
            OK(cuMemFree(p));
        int z = cuCtxSynchronize();
        printf("sync %d ", z);
        held("", 0);
    }
}
