/* Allocates and frees once. What is said of that goes to a pipe that nobody reads. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include "fault.h"

int main(void) {
    void *p;
    OK(cudaMalloc(&p, 1 << 20));
    OK(cudaFree(p));
    puts("finished");
    return 0;
}
