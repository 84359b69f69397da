/* Threads that come and go, each with its per-thread default stream: what is kept of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext c;
static size_t sz = 4096;

static void *work(void *x) {
    CUdeviceptr p;
    cuCtxSetCurrent(c);
    int r = cuMemAllocAsync(&p, sz, CU_STREAM_PER_THREAD);
    if (r)
        printf("alloc %d\n", r);
    else {
        r = cuMemFreeAsync(p, CU_STREAM_PER_THREAD);
        if (r)
            printf("free %d\n", r);
    }
    return 0;
}

int main(int argc, char **argv) {
    CUdevice d;
    int n = argc > 1 ? atoi(argv[1]) : 4000;
    if (argc > 2)
        sz = atol(argv[2]);
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    double t = now();
    for (int i = 0; i < n; i++) {
        pthread_t h;
        pthread_create(&h, 0, work, 0);
        pthread_join(h, 0);
        if (i % (n / 8) == n / 8 - 1) {
            CUdeviceptr p;
            double a = now();
            OK(cuMemAlloc(&p, 1 << 20));
            OK(cuMemFree(p));
            double b = now();
            OK(cuCtxSynchronize());
            printf("%d threads: rss %ld KiB, %.1f us/thread, one cudaMalloc+Free %.1f us ", i + 1, rss(),
                   (now() - t) * 1e6 / (n / 8), (b - a) * 1e6);
            held("", 0);
            t = now();
        }
    }
}
