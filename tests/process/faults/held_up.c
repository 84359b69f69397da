/* Work on one stream ends only when the host says so, after another stream has used the memory freed behind it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    start();
    void (*hold)(CUstream) = sym("vp_sim_hold"), (*release)(CUstream) = sym("vp_sim_release");
    CUstream f, s;
    CUdeviceptr a, b, w;
    NEED(cuStreamCreate(&f, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    /* both streams have freed large blocks before */
    NEED(cuMemAllocAsync(&w, 8 << 20, s));
    NEED(cuMemFreeAsync(w, s));
    NEED(cuMemAllocAsync(&w, 8 << 20, f));
    NEED(cuMemFreeAsync(w, f));
    NEED(cuStreamSynchronize(f));
    NEED(cuStreamSynchronize(s));
    NEED(cuMemAllocAsync(&a, 32 << 20, f));
    hold(f);
    NEED(cuMemsetD8Async(a, 1, 32 << 20, f));
    NEED(cuMemFreeAsync(a, f));
    NEED(cuMemAllocAsync(&b, 32 << 20, s));
    NEED(cuMemsetD8Async(b, 2, 32 << 20, s));
    double t0 = now();
    CUresult r = cuStreamSynchronize(s);
    printf("same address: %d, gpu waits %llu, cuStreamSynchronize(S) -> %d after %.1f s (702: the simulator "
           "gave up: a hang)\n",
           a == b, (unsigned long long)stats(0).waits_gpu, r, now() - t0);
    release(f);
    return r != 0;
}
