/* What CUDA makes itself while the memory that it needs will be free soon: argv[1] says which call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUstream s;
static void (*rel)(CUstream);

static void *later(void *x) {
    usleep(400000);
    rel(s);
    return 0;
}

static int make(int k) {
    CUdeviceptr p;
    CUmemGenericAllocationHandle h;
    CUmemAllocationProp pr = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    switch (k) {
    case 0: return cuMemCreate(&h, 40 << 20, &pr, 0);
    case 1: return cuMemAllocManaged(&p, 40 << 20, 1);
    case 2: return -2;
    case 3: return cuMemAlloc(&p, 40 << 20);
    }
    return -1;
}

int main(int argc, char **argv) {
    int k = argc > 1 ? atoi(argv[1]) : 0;
    CUdevice d;
    CUcontext c;
    CUdeviceptr p;
    void (*hold)(CUstream) = sym("vp_sim_hold");
    rel = sym("vp_sim_release");
    pthread_t th;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuStreamCreate(&s, 1));
    OK(cuMemAlloc(&p, 48 << 20));
    hold(s);
    OK(cuMemsetD8Async(p, 1, 1 << 20, s));
    pthread_create(&th, 0, later, 0);
    double t = now();
    OK(cuMemFree(p));
    double f = now() - t;
    t = now();
    int r = make(k);
    printf("kind %d: cuMemFree %.2f s, then 40 MiB -> %d after %.2f s\n", k, f, r, now() - t);
    pthread_join(th, 0);
}
