/* A stream of device 1 is busy for long, with its own memory; device 0, which is idle, allocates and frees. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    CUcontext c0, c1;
    CUstream s;
    CUdeviceptr p, q;
    void (*hold)(CUstream) = sym("vp_sim_hold"), (*release)(CUstream) = sym("vp_sim_release");
    double begin;

    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&c0, 0));
    NEED(cuDevicePrimaryCtxRetain(&c1, 1));
    NEED(cuCtxSetCurrent(c1));
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc(&q, 1 << 20));
    hold(s);
    NEED(cuMemsetD8Async(q, 1, 1 << 20, s));
    NEED(cuCtxSetCurrent(c0));
    begin = spent();
    for (int i = 0; i < 8; i++) {
        int res = cuMemAlloc(&p, (size_t)(20 + i % 3) << 20);

        printf("%d: cuMemAlloc -> %d\n", i, res);
        if (!res)
            OK(cuMemFree(p));
    }
    fprintf(stderr, "after %.1f s\n", spent() - begin);
    printf("%s\n", spent() - begin < 3 ? "at once" : "late");
    release(s);
    OK(cuCtxSynchronize());
}
