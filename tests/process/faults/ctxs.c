/* Contexts that come and go by the thousand: what is kept of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(int argc, char **argv) {
    CUdevice d;
    CUcontext c;
    CUdeviceptr p;
    int n = argc > 1 ? atoi(argv[1]) : 4000;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    CUcontext pr;
    OK(cuDevicePrimaryCtxRetain(&pr, d));
    double t = now();
    for (int i = 0; i < n; i++) {
        OK(((CUresult(*)(CUcontext *, unsigned, CUdevice))sym("cuCtxCreate_v2"))(&c, 0, d));
        OK(cuMemAlloc(&p, 1 << 20));
        OK(cuMemFree(p));
        OK(cuCtxDestroy(c));
        if (i % (n / 8) == n / 8 - 1) {
            OK(cuCtxSetCurrent(pr));
            double a = now();
            OK(cuMemAlloc(&p, 1 << 20));
            OK(cuMemFree(p));
            double b = now();
            printf("%d contexts: rss %ld KiB, %.1f us/round, one cudaMalloc+Free %.1f us ", i + 1, rss(),
                   (now() - t) * 1e6 / (n / 8), (b - a) * 1e6);
            held("", 0);
            t = now();
        }
    }
}
