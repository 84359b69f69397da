/* libcudart.so.12, or so it is called: as little of a runtime as two of them in one process need. It says
 * that it is CUDA 11, whose cudaSetDevice leaves the context to the next call, and counts the calls that
 * reach it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

int cudaRuntimeGetVersion(int *version);
int cudaMalloc(void **ptr, size_t size);
int cudaFree(void *ptr);
int cudaGetLastError(void);
int fake_mallocs(void);
void *fake_default(const char *name);

static int last_error, mallocs;

static void *driver(const char *name) {
    static void *cuda;

    if (!cuda) {
        CUresult (*retain)(CUcontext *, CUdevice), (*set)(CUcontext), (*init)(unsigned);
        CUcontext context;

        cuda = dlopen("libcuda.so.1", RTLD_NOW);
        init = dlsym(cuda, "cuInit");
        retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
        set = dlsym(cuda, "cuCtxSetCurrent");
        init(0);
        retain(&context, 0);
        set(context);
    }
    return dlsym(cuda, name);
}

int cudaRuntimeGetVersion(int *version) {
    *version = 11080;
    return 0;
}

int cudaMalloc(void **ptr, size_t size) {
    CUresult (*alloc)(void **, size_t) = driver("cuMemAlloc_v2");
    int res = alloc(ptr, size);

    mallocs++;
    if (res)
        last_error = res;
    return res;
}

int cudaFree(void *ptr) {
    CUresult (*release)(void *) = driver("cuMemFree_v2");

    return release(ptr);
}

int cudaGetLastError(void) {
    int error = last_error;

    last_error = 0;
    return error;
}

int fake_mallocs(void) {
    return mallocs;
}

/* As seen from here. */
void *fake_default(const char *name) {
    void *volatile found = dlsym(RTLD_DEFAULT, name);

    return found;
}
