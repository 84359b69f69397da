/* One stream waits, as by a spinning kernel, for what the program queues on another later. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUstream F, S;
static void (*rel)(CUstream);
int main(int argc, char **argv) {
    CUdevice d;
    CUcontext c;
    CUdeviceptr p, q, w;
    void (*hold)(CUstream) = sym("vp_sim_hold");
    rel = sym("vp_sim_release");
    size_t n = (argc > 1 ? atol(argv[1]) : 16) << 20;
    int sync = argc > 2;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuStreamCreate(&F, 1));
    OK(cuStreamCreate(&S, 1));
    OK(cuMemAllocAsync(&w, n, S));
    OK(cuMemsetD8Async(w, 1, n, S));
    OK(cuMemFreeAsync(w, S));
    OK(cuCtxSynchronize());
    OK(cuMemAllocAsync(&p, n, F));
    OK(cuMemsetD8Async(p, 1, n, F));
    hold(F);
    OK(cuMemsetD8Async(p, 2, n, F)); /* the spinning kernel */
    if (!sync)
        OK(cuMemFreeAsync(p, F));
    else
        OK(cuMemFreeAsync(p, F));
    OK(cuMemAllocAsync(&w, n, S));
    if (argc > 2)
        OK(cuMemAllocAsync(&q, n, S));
    OK(cuMemsetD8Async(w, 3, n, S)); /* the producer */
    double t = now();
    int r = cuStreamSynchronize(S);
    printf("producer's stream: %d after %.2f s%s\n", r, now() - t, r ? "  (HANG: on a GPU for ever)" : "");
    rel(F);
    OK(cuCtxSynchronize());
}
