/* The first call of a thread makes its device's context current. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include "fault.h"

static cudaStream_t s;
static void *p, *q;

static void *t1(void *x) {
    CUcontext c = 0;
    void *r;
    printf("cudaMallocAsync -> %d, ", cudaMallocAsync(&r, 1 << 20, s));
    cuCtxGetCurrent(&c);
    printf("context current %s, cuMemsetD8Async(s=0) -> %d\n", c ? "yes" : "NO",
           cuMemsetD8Async((CUdeviceptr)r, 0, 100, 0));
    return 0;
}

static void *t2(void *x) {
    CUcontext c = 0;
    printf("cudaFree -> %d, ", cudaFree(p));
    cuCtxGetCurrent(&c);
    CUdeviceptr z;
    printf("context current %s, cuMemAlloc -> %d\n", c ? "yes" : "NO", cuMemAlloc(&z, 100));
    return 0;
}

static void *t3(void *x) {
    CUcontext c = 0;
    printf("cudaFreeAsync -> %d, ", cudaFreeAsync(q, s));
    cuCtxGetCurrent(&c);
    CUevent e;
    printf("context current %s, cuEventCreate -> %d\n", c ? "yes" : "NO", cuEventCreate(&e, 0));
    return 0;
}

/* Which has left its context, by the name that ctypes finds. */
static void *t4(void *x) {
    CUresult (*pop)(CUcontext *) = (CUresult(*)(CUcontext *))sym("cuCtxPopCurrent");
    CUcontext c = 0;
    void *r;
    OK(cudaMalloc(&r, 1 << 20));
    OK(cudaFree(r));
    OK(cudaMalloc(&r, 1 << 20));
    OK(pop(&c));
    c = 0;
    printf("cudaFree -> %d, ", cudaFree(r));
    cuCtxGetCurrent(&c);
    CUdeviceptr z;
    printf("context current %s, cuMemAlloc -> %d\n", c ? "yes" : "NO", cuMemAlloc(&z, 100));
    return 0;
}

int main(void) {
    OK(cudaMalloc(&p, 1 << 20));
    OK(cudaStreamCreate(&s));
    OK(cudaMallocAsync(&q, 1 << 20, s));
    void *(*f[])(void *) = {t1, t2, t3, t4};
    for (int i = 0; i < 4; i++) {
        pthread_t h;
        pthread_create(&h, 0, f[i], 0);
        pthread_join(h, 0);
    }
}
