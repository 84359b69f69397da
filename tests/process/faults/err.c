/* A device's work fails: is the other device fine? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    CUdevice d0, d1;
    CUcontext c0, c1;
    CUstream s, t;
    CUdeviceptr a, b, p;
    void (*hold)(CUstream) = sym("vp_sim_hold"), (*rel)(CUstream) = sym("vp_sim_release");
    void (*fail)(const char *, long, CUresult) = sym("vp_sim_fail");
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
    OK(cuMemFree(a)); /* pending on device 1 */
    OK(cuCtxSetCurrent(c0));
    OK(cuMemAlloc(&b, 4 << 20));
    /* the next query, of whatever event is pending, answers "illegal address": only device 1's is pending */
    fail("cuEventQuery", -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int i = 0; i < 4; i++) {
        int r = cuMemAlloc(&p, (16 + 8 * i) << 20);
        printf("cuMemAlloc on healthy device 0 -> %d\n", r);
    }
    OK(cuStreamCreate(&t, 1));
    SHOW(cuMemAllocAsync(&p, 9 << 20, t));
    fail("cuEventQuery", 0, 0);
    rel(s);
}
