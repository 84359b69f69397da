/* A cudaFree that waits, of a block of a device that is not the current one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUstream s;
static void (*rel)(CUstream);

static void *later(void *x) {
    usleep(300000);
    rel(s);
    return 0;
}

int main(void) {
    CUdevice d0, d1;
    CUcontext c0, c1;
    CUdeviceptr a;
    void (*hold)(CUstream) = sym("vp_sim_hold");
    rel = sym("vp_sim_release");
    pthread_t th;
    OK(cuInit(0));
    OK(cuDeviceGet(&d0, 0));
    OK(cuDeviceGet(&d1, 1));
    OK(cuDevicePrimaryCtxRetain(&c0, d0));
    OK(cuDevicePrimaryCtxRetain(&c1, d1));
    OK(cuCtxSetCurrent(c1));
    OK(cuStreamCreate(&s, 1));
    OK(cuMemAlloc(&a, 8 << 20));
    hold(s);
    OK(cuMemsetD8Async(a, 1, 8 << 20, s));
    OK(cuCtxSetCurrent(getenv("CUR0") ? c0 : getenv("NONE") ? 0 : c1));
    pthread_create(&th, 0, later, 0);
    double t = now();
    int r = cuMemFree(a);
    double e = now() - t;
    OK(cuCtxSetCurrent(c1));
    printf("cuMemFree -> %d after %.2f s; stream query then: %d\n", r, e, cuStreamQuery(s));
    pthread_join(th, 0);
}
