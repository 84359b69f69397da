/* A primary context is retained by a route that the library does not see (argv[1] bytes behind vp_sim_hold),
 * then by pairs of calls that it sees, while another thread allocates. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext c;
static volatile int stop;
static volatile long errs, n;

static void *work(void *x) {
    CUdeviceptr p;
    cuCtxSetCurrent(c);
    while (!stop) {
        int r = cuMemAlloc(&p, 3000000);
        n++;
        if (r) {
            errs++;
        } else if (cuMemFree(p))
            errs++;
    }
    return 0;
}

int main(int argc, char **argv) {
    CUdevice d;
    CUcontext k;
    CUdeviceptr p;
    char *base;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    base = (char *)sym("vp_sim_hold");
    CUresult (*rawretain)(CUcontext *, CUdevice) = (void *)(base + atol(argv[1]));
    OK(rawretain(&c, d));
    OK(cuCtxSetCurrent(c));
    pthread_t h;
    pthread_create(&h, 0, work, 0);
    double T = now();
    while (now() - T < 1 || !n) {
        OK(cuDevicePrimaryCtxRetain(&k, d));
        OK(cuDevicePrimaryCtxRelease(d));
    }
    stop = 1;
    pthread_join(h, 0);
    printf("%s allocated, %ld errors\n", n ? "some" : "none", errs);
    held("", 0);
    /* and now the context really ends */
    OK(cuDevicePrimaryCtxReset(d));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    for (int i = 0; i < 5; i++) {
        int e = cuMemAlloc(&p, 20 << 20);
        printf("%d ", e);
        if (!e)
            OK(cuMemFree(p));
        OK(cuCtxSynchronize());
        held("", 0);
    }
}
