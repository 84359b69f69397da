/* Out of memory behind work that does not end: each call waits once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include "fault.h"

int main(void) {
    void *p, *q;
    size_t pitch;
    cudaStream_t s;
    void (*hold)(CUstream) = sym("vp_sim_hold");
    OK(cudaMalloc(&p, 40 << 20));
    OK(cudaStreamCreateWithFlags(&s, 1));
    hold((CUstream)s);
    OK(cudaMemsetAsync(p, 1, 1 << 20, s));
    OK(cudaFree(p));
    double t = spent();
    int r = cudaMalloc(&q, 50 << 20);
    printf("cudaMalloc -> %d after %.1f s\n", r, spent() - t);
    t = spent();
    r = cudaMallocPitch(&q, &pitch, 512, 50 * 2048);
    printf("cudaMallocPitch -> %d after %.1f s\n", r, spent() - t);
    fflush(stdout);
    _exit(0);
}
