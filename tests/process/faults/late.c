/* liblate.so: a plug-in with functions of CUDA's of its own, as libraries have them that were linked to a static
 * libcudart which shows its functions. A program's libcudart comes before it.
 *
 * libcudart-late.so: what a wheel has renamed, with the version of the program's libcudart, which comes before it, too.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#define SHOWN __attribute__((visibility("default"), noinline))

cudaError_t late_call(void);

static volatile cudaError_t own = cudaErrorUnknown;

SHOWN cudaError_t cudaMalloc(void **block, size_t size) {
    return own;
}

SHOWN cudaError_t cudaFree(void *block) {
    return own;
}

SHOWN cudaError_t late_call(void) {
    void *block = NULL;
    cudaError_t err = cudaMalloc(&block, 1 << 20);
    return err ? err : cudaFree(block);
}
