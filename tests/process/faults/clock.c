/* Clocks of the program's own, as libfaketime gives it: they stand still, or are years ahead. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int clock_gettime(clockid_t clock, struct timespec *t) {
    (void)clock;
    *t = (struct timespec){.tv_sec = 4000000000};
    return 0;
}

int main(void) {
    enum { COUNT = 15 };
    start();
    void (*hold)(CUstream) = sym("vp_sim_hold"), (*release)(CUstream) = sym("vp_sim_release");
    CUdeviceptr block[COUNT], other;
    CUstream f, s;
    NEED(cuStreamCreate(&f, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < COUNT; i++)
        NEED(cuMemAlloc(&block[i], 4 << 20));
    NEED(cuMemAllocAsync(&other, 4 << 20, f));
    /* What another stream has freed is not to be had before the host says so. */
    hold(f);
    NEED(cuMemsetD8Async(other, 1, 4 << 20, f));
    NEED(cuMemFreeAsync(other, f));
    SHOW(cuMemAlloc(&other, 4 << 20));
    release(f);
    SHOW(cuMemAlloc(&other, 4 << 20));
    return 0;
}
