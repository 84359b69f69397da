/* libwheel.so: a plug-in that is linked to libcudart-late.so (late.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

cudaError_t wheel_call(void);

__attribute__((visibility("default"))) cudaError_t wheel_call(void) {
    void *block = NULL;
    cudaError_t err = cudaMalloc(&block, 1 << 20);
    return err ? err : cudaFree(block);
}
