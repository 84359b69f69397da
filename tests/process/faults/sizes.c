/* Odd sizes, NULL, double frees, and questions about freed memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include "fault.h"

static const size_t sizes[] = {
    0,
    1,
    SIZE_MAX,
    SIZE_MAX - 1,
    SIZE_MAX - 510,
    SIZE_MAX - 511,
    SIZE_MAX - 512,
    SIZE_MAX - 65535,
    SIZE_MAX - 65536,
    SIZE_MAX - (2 << 20) + 1,
    SIZE_MAX - (2 << 20),
    SIZE_MAX / 2,
    SIZE_MAX / 2 + 1,
    1ull << 47,
    1ull << 48,
    1ull << 62,
    1ull << 63,
};

static CUdeviceptr p;
static CUstream s;
static size_t pitch;

static void odd_size(size_t size) {
    p = 77;
    int r = cuMemAlloc(&p, size);
    int q = (int)(p == 77);
    CUdeviceptr p2 = 77;
    int r2 = cuMemAllocAsync(&p2, size, s);
    void *x = (void *)77;
    int r3 = cudaMalloc(&x, size);
    void *y = (void *)77;
    int r4 = cudaMallocPitch(&y, &pitch, size, 3);
    void *w = (void *)77;
    int r5 = cudaMallocPitch(&w, &pitch, 3, size);
    int r6 = cudaMallocAsync(&w, size, (cudaStream_t)s);
    cudaGetLastError();
    printf("%zx: alloc %d%s async %d%s rt %d pitch %d %d rtasync %d\n", size, r, q ? " (untouched)" : "", r2,
           p2 == 77 ? " (untouched)" : "", r3, r4, r5, r6);
}

static void nothing(void) {
    SHOW(cuMemAlloc(NULL, 100));
    SHOW(cuMemAllocAsync(NULL, 100, s));
    SHOW(cuMemFree(0));
    SHOW(cuMemFreeAsync(0, s));
    SHOW(cudaMalloc(NULL, 100));
    SHOW(cudaFree(0));
    SHOW(cudaFreeAsync(0, (cudaStream_t)s));
    SHOW(cudaMallocPitch(NULL, &pitch, 10, 10));
    SHOW(cudaMallocPitch((void **)&p, NULL, 10, 10));
    SHOW(cudaGetLastError());
    SHOW(cuMemGetAddressRange(NULL, NULL, 1));
}

static void frees(void) {
    OK(cuMemAlloc(&p, 3 << 20));
    SHOW(cuMemFree(p + 512));
    SHOW(cuMemFree(p + (2 << 20)));
    SHOW(cuMemFreeAsync(p + 512, s));
    SHOW(cuMemFree(p));
    SHOW(cuMemFree(p));
    SHOW(cuMemFreeAsync(p, s));
    OK(cuMemAllocAsync(&p, 4096, s));
    SHOW(cuMemFreeAsync(p, s));
    SHOW(cuMemFreeAsync(p, s));
    SHOW(cuMemFree(p));
    OK(cuMemAllocAsync(&p, 4096, s));
    SHOW(cuMemFreeAsync(p, s));
    SHOW(cuMemFree(p));
    SHOW(cuMemFreeAsync(p, s));
    SHOW(cudaFree((void *)p));
    SHOW(cudaGetLastError());
    OK(cuMemAllocAsync(&p, 8 << 20, s));
    SHOW(cuMemFree(p));
    SHOW(cuMemFree(p));
    SHOW(cuMemFreeAsync(p, s));
    OK(cuMemAlloc(&p, 8 << 20));
    SHOW(cuMemFreeAsync(p, s));
    SHOW(cuMemFreeAsync(p, s));
    SHOW(cuMemFree(p));
}

static void questions(void) {
    CUdeviceptr b;
    size_t n;
    OK(cuMemAlloc(&p, 1000));
    SHOW(cuMemGetAddressRange(&b, &n, p + 999));
    printf("%d %zu\n", b == p, n);
    SHOW(cuMemGetAddressRange(&b, &n, p + 1000));
    printf("%d %zu\n", b == p, n);
    SHOW(cuMemGetAddressRange(&b, &n, p + 1024));
    OK(cuMemFree(p));
    SHOW(cuMemGetAddressRange(&b, &n, p));
    int mt = 0;
    SHOW(cuPointerGetAttribute(&mt, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    printf("type %d\n", mt);
    struct cudaPointerAttributes at;
    SHOW(cudaPointerGetAttributes(&at, (void *)p));
    printf("rt type of freed pointer %d\n", at.type);
    SHOW(cuMemsetD8(p, 1, 100));
}

int main(void) {
    CUcontext c;
    CUdevice d;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuStreamCreate(&s, 1));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        odd_size(sizes[i]);
    nothing();
    frees();
    questions();
}
