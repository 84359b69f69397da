/* The program has a dlopen() and a dlclose() of its own, which look CUDA up, as tools do that wait for it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <cuda_runtime_api.h>

static void *found[3];

static void look(void *handle) {
    found[0] = dlsym(handle, "cuMemAlloc_v2");
    found[1] = dlvsym(handle, "cuMemFree_v2", "none");
    found[2] = dlsym(RTLD_DEFAULT, "cudaMalloc");
}

__attribute__((visibility("default"))) void *dlopen(const char *file, int mode) {
    void *(*real)(const char *, int) = (__typeof__(real))dlsym(RTLD_NEXT, "dlopen");
    void *handle = real(file, mode);
    if (handle && file && strstr(file, "libcuda"))
        look(handle);
    return handle;
}

__attribute__((visibility("default"))) int dlclose(void *handle) {
    int (*real)(void *) = (__typeof__(real))dlsym(RTLD_NEXT, "dlclose");
    look(handle);
    return real(handle);
}

int main(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW), *block = NULL;
    printf("found: %d %d %d\n", found[0] != NULL, found[1] != NULL, found[2] != NULL);
    OK(cudaMalloc(&block, 1 << 20));
    OK(cudaFree(block));
    OK(cudaMallocAsync(&block, 1 << 20, NULL));
    OK(cudaFreeAsync(block, NULL));
    OK(dlclose(handle));
    return 0;
}
