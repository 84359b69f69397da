/* libtells.so: another interposer, preloaded in front of libvpool.so or behind it, which links to libcudart and passes
 * on by RTLD_NEXT. It tells of what comes by. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>

static int deep;

static void tell(const char *name) {
    if (deep)
        printf("%s comes back\n", name);
    else
        printf("%s\n", name);
}

__attribute__((visibility("default"))) cudaError_t cudaMalloc(void **block, size_t size) {
    cudaError_t (*real)(void **, size_t) = (__typeof__(real))dlsym(RTLD_NEXT, "cudaMalloc");
    tell("cudaMalloc");
    if (deep++)
        return cudaErrorUnknown;
    cudaError_t err = real(block, size);
    deep = 0;
    if (err != cudaSuccess)
        printf("cudaMalloc: %s\n", cudaGetErrorString(err));
    return err;
}

__attribute__((visibility("default"))) cudaError_t cudaFree(void *block) {
    cudaError_t (*real)(void *) = (__typeof__(real))dlsym(RTLD_NEXT, "cudaFree");
    tell("cudaFree");
    if (deep++)
        return cudaErrorUnknown;
    cudaError_t err = real(block);
    deep = 0;
    return err;
}
