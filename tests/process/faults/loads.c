/* A library whose constructor waits for another thread is loaded once CUDA is in use: that thread may not wait for the
 * dynamic linker, which is busy with the library, not to tell who else has memory either, which NVML is asked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include "fault.h"

int main(void) {
    void *block = NULL;
    printf("NVML: %d\n", dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) != NULL);
    NEED(cudaMalloc(&block, 1 << 20));
    NEED(cudaFree(block));
    printf("loaded: %d\n", dlopen("libbegins.so", RTLD_NOW | RTLD_LOCAL) != NULL);
    return 0;
}
