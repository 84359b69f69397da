/* Copies between two devices without peer access. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include "fault.h"

int main(void) {
    void *a, *b;
    char h[16];
    OK(cudaSetDevice(0));
    OK(cudaMalloc(&a, 1 << 20));
    OK(cudaMemset(a, 7, 1 << 20));
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&b, 1 << 20));
    SHOW(cudaMemcpy(b, a, 1 << 20, cudaMemcpyDefault));
    SHOW(cudaMemcpy(b, a, 1 << 20, cudaMemcpyDeviceToDevice));
    SHOW(cudaMemcpyPeer(b, 1, a, 0, 1 << 20));
    OK(cudaGetLastError());
    OK(cudaMemcpy(h, b, 16, cudaMemcpyDefault));
    printf("data %d (7 expected)\n", h[3]);
}
