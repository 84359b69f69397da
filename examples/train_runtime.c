/* The training loop of train.c on the CUDA runtime API. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

const char train_api[] = "CUDA runtime API";

static cudaStream_t streams[STREAMS];
static cudaEvent_t events[EVENTS];

#define CHECK(call) check(call, #call)

static void check(cudaError_t error, const char *call) {
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
        exit(1);
    }
}

void gpu_open(void) {
    CHECK(cudaSetDevice(0));
    for (int s = 0; s < STREAMS; s++)
        CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
    for (int e = 0; e < EVENTS; e++)
        CHECK(cudaEventCreateWithFlags(&events[e], cudaEventDisableTiming));
}

void gpu_close(void) {
    for (int e = 0; e < EVENTS; e++)
        CHECK(cudaEventDestroy(events[e]));
    for (int s = 0; s < STREAMS; s++)
        CHECK(cudaStreamDestroy(streams[s]));
}

size_t gpu_used(void) {
    size_t free, total;
    CHECK(cudaMemGetInfo(&free, &total));
    return total - free;
}

void *gpu_alloc(size_t bytes) {
    void *block;
    CHECK(cudaMalloc(&block, bytes));
    return block;
}

void gpu_free(void *block) {
    CHECK(cudaFree(block));
}

void *gpu_alloc_on(enum train_stream stream, size_t bytes) {
    void *block;
    CHECK(cudaMallocAsync(&block, bytes, streams[stream]));
    return block;
}

void gpu_free_on(enum train_stream stream, void *block) {
    CHECK(cudaFreeAsync(block, streams[stream]));
}

void *gpu_host_alloc(size_t bytes) {
    void *block;
    CHECK(cudaMallocHost(&block, bytes));
    return block;
}

void gpu_host_free(void *block) {
    CHECK(cudaFreeHost(block));
}

void gpu_fill(enum train_stream stream, void *block, unsigned char value, size_t bytes) {
    CHECK(cudaMemsetAsync(block, value, bytes, streams[stream]));
}

void gpu_copy(enum train_stream stream, void *to, const void *from, size_t bytes) {
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, streams[stream]));
}

void gpu_send(enum train_stream stream, void *to, const void *host, size_t bytes) {
    CHECK(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, streams[stream]));
}

void gpu_fetch(enum train_stream stream, void *host, const void *from, size_t bytes) {
    CHECK(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, streams[stream]));
}

void gpu_record(enum train_event event, enum train_stream stream) {
    CHECK(cudaEventRecord(events[event], streams[stream]));
}

void gpu_wait(enum train_event event, enum train_stream stream) {
    CHECK(cudaStreamWaitEvent(streams[stream], events[event], 0));
}

void gpu_synchronize(enum train_stream stream) {
    CHECK(cudaStreamSynchronize(streams[stream]));
}
