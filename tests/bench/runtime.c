/* The benchmarks by the runtime API. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

const char bench_api[] = "runtime API";

#define CHECK(call) check(call, #call)

static void check(cudaError_t error, const char *call) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
    exit(1);
}

void gpu_open(void) {
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
}

void gpu_enter(void) {
    CHECK(cudaSetDevice(0));
}

void gpu_synchronize(void) {
    CHECK(cudaDeviceSynchronize());
}

bench_stream gpu_stream_create(void) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

void gpu_stream_destroy(bench_stream stream) {
    CHECK(cudaStreamDestroy(stream));
}

bench_block gpu_alloc(size_t bytes) {
    void *block;
    CHECK(cudaMalloc(&block, bytes));
    return (bench_block)block;
}

void gpu_free(bench_block block) {
    CHECK(cudaFree((void *)block));
}

bench_block gpu_alloc_on(bench_stream stream, size_t bytes) {
    void *block;
    CHECK(cudaMallocAsync(&block, bytes, stream));
    return (bench_block)block;
}

void gpu_free_on(bench_stream stream, bench_block block) {
    CHECK(cudaFreeAsync((void *)block, stream));
}

/* The runtime adds its own to each of them; bench_driver measures what is beneath. */
void bench_calls(void) {
}
