/* A kernel that writes where nothing is: what a memory checker must find. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common.cuh"

__global__ void write_to(char *where) {
    *where = 1;
}

int main() {
    write_to<<<1, 1>>>((char *)(uintptr_t)4096);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
