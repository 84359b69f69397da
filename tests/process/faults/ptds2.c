/* The same, and what it costs those that stay. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext c;

static void *work(void *x) {
    CUdeviceptr p;
    cuCtxSetCurrent(c);
    cuMemAllocAsync(&p, 4096, CU_STREAM_PER_THREAD);
    cuMemFreeAsync(p, CU_STREAM_PER_THREAD);
    return 0;
}

int main(int argc, char **argv) {
    CUdevice d;
    int n = argc > 1 ? atoi(argv[1]) : 4000;
    CUstream s;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuStreamCreate(&s, 1));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < n / 4; i++) {
            pthread_t h;
            pthread_create(&h, 0, work, 0);
            pthread_join(h, 0);
        }
        CUdeviceptr p;
        OK(cuMemAlloc(&p, 1 << 20));
        OK(cuMemFree(p));
        OK(cuCtxSynchronize());
        OK(cuMemAlloc(&p, 1 << 20));
        OK(cuMemFree(p));
        OK(cuCtxSynchronize());
        double w[3] = {0};
        for (int i = 0; i < 40; i++) {
            double a = now();
            OK(cuMemAlloc(&p, (i + 1) << 16));
            double b = now();
            OK(cuMemFree(p));
            double e = now();
            OK(cuCtxSynchronize());
            w[0] += b - a;
            w[1] += e - b;
        }
        for (int i = 0; i < 40; i++) {
            double a = now();
            OK(cuMemAllocAsync(&p, (i + 1) << 16, s));
            OK(cuMemFreeAsync(p, s));
            w[2] += now() - a;
            OK(cuCtxSynchronize());
        }
        CUgraph g;
        double a = now();
        OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(cuStreamEndCapture(s, &g));
        double cap = now() - a;
        printf("after %d threads: cuMemAlloc %.1f us, cuMemFree %.1f us, async pair %.1f us, begin+end "
               "capture %.1f us, rss %ld KiB\n",
               (round + 1) * n / 4, w[0] * 1e6 / 40, w[1] * 1e6 / 40, w[2] * 1e6 / 40, cap * 1e6, rss());
    }
}
