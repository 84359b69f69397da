/* Memory of device 1 will be free soon; the current context is that of device 0, which is full. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static void *release_later(void *s) {
    void (*rel)(CUstream) = sym("vp_sim_release");
    usleep(300000);
    rel(s);
    return 0;
}

int main(void) {
    CUdevice d0, d1;
    CUcontext c0, c1;
    CUstream s, t;
    CUdeviceptr a, b, p;
    size_t f, tot;
    void (*hold)(CUstream) = sym("vp_sim_hold");
    OK(cuInit(0));
    OK(cuDeviceGet(&d0, 0));
    OK(cuDeviceGet(&d1, 1));
    OK(cuDevicePrimaryCtxRetain(&c0, d0));
    OK(cuDevicePrimaryCtxRetain(&c1, d1));
    OK(cuCtxSetCurrent(c0));
    OK(cuMemAllocManaged(&b, 1 << 20, 1));
    CUmemAllocationProp pr = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle h;
    OK(cuMemGetInfo(&f, &tot));
    OK(cuMemCreate(&h, f / (2 << 20) * (2 << 20), &pr, 0));
    OK(cuCtxSetCurrent(c1));
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamCreate(&t, 1));
    OK(cuMemAllocAsync(&a, 32 << 20, s));
    OK(cuMemsetD8Async(a, 1, 32 << 20, s));
    hold(s);
    OK(cuMemsetD8Async(a, 1, 32 << 20, s));
    OK(cuMemFreeAsync(a, s));
    OK(cuMemGetInfo(&f, &tot));
    printf("device 1 free (with idle) %zu MiB of %zu\n", f >> 20, tot >> 20);
    if (getenv("CUR0"))
        OK(cuCtxSetCurrent(c0));
    pthread_t th;
    pthread_create(&th, 0, release_later, s);
    double x = now();
    int r = cuMemAllocAsync(&p, 56 << 20, t);
    printf("56 MiB on device 1's stream -> %d after %.2f s\n", r, now() - x);
    pthread_join(th, 0);
}
