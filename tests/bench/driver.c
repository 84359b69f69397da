/* The benchmarks by the driver API. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "check.h"

const char bench_api[] = "driver API";

static CUcontext context;

void gpu_open(void) {
    CUmemoryPool pool;
    cuuint64_t keep = UINT64_MAX;
    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    CU(cuDeviceGetDefaultMemPool(&pool, 0));
    CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
}

void gpu_enter(void) {
    CU(cuCtxSetCurrent(context));
}

void gpu_synchronize(void) {
    CU(cuCtxSynchronize());
}

bench_stream gpu_stream_create(void) {
    CUstream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

void gpu_stream_destroy(bench_stream stream) {
    CU(cuStreamDestroy(stream));
}

bench_block gpu_alloc(size_t bytes) {
    CUdeviceptr block;
    CU(cuMemAlloc(&block, bytes));
    return block;
}

void gpu_free(bench_block block) {
    CU(cuMemFree(block));
}

bench_block gpu_alloc_on(bench_stream stream, size_t bytes) {
    CUdeviceptr block;
    CU(cuMemAllocAsync(&block, bytes, stream));
    return block;
}

void gpu_free_on(bench_stream stream, bench_block block) {
    CU(cuMemFreeAsync(block, stream));
}
