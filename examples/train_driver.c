/* The training loop of train.c on the CUDA driver API. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

const char train_api[] = "CUDA driver API";

static CUdevice device;
static CUcontext context;
static CUstream streams[STREAMS];
static CUevent events[EVENTS];

#define CHECK(call) check(call, #call)

static void check(CUresult result, const char *call) {
    if (result != CUDA_SUCCESS) {
        const char *text = NULL;
        cuGetErrorString(result, &text);
        fprintf(stderr, "%s: %s\n", call, text ? text : "unknown error");
        exit(1);
    }
}

static CUdeviceptr address(const void *block) {
    return (CUdeviceptr)(uintptr_t)block;
}

void gpu_open(void) {
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    for (int s = 0; s < STREAMS; s++)
        CHECK(cuStreamCreate(&streams[s], CU_STREAM_NON_BLOCKING));
    for (int e = 0; e < EVENTS; e++)
        CHECK(cuEventCreate(&events[e], CU_EVENT_DISABLE_TIMING));
}

void gpu_close(void) {
    for (int e = 0; e < EVENTS; e++)
        CHECK(cuEventDestroy(events[e]));
    for (int s = 0; s < STREAMS; s++)
        CHECK(cuStreamDestroy(streams[s]));
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuDevicePrimaryCtxRelease(device));
}

size_t gpu_used(void) {
    size_t free, total;
    CHECK(cuMemGetInfo(&free, &total));
    return total - free;
}

void *gpu_alloc(size_t bytes) {
    CUdeviceptr block;
    CHECK(cuMemAlloc(&block, bytes));
    return (void *)(uintptr_t)block;
}

void gpu_free(void *block) {
    CHECK(cuMemFree(address(block)));
}

void *gpu_alloc_on(enum train_stream stream, size_t bytes) {
    CUdeviceptr block;
    CHECK(cuMemAllocAsync(&block, bytes, streams[stream]));
    return (void *)(uintptr_t)block;
}

void gpu_free_on(enum train_stream stream, void *block) {
    CHECK(cuMemFreeAsync(address(block), streams[stream]));
}

void *gpu_host_alloc(size_t bytes) {
    void *block;
    CHECK(cuMemAllocHost(&block, bytes));
    return block;
}

void gpu_host_free(void *block) {
    CHECK(cuMemFreeHost(block));
}

void gpu_fill(enum train_stream stream, void *block, unsigned char value, size_t bytes) {
    CHECK(cuMemsetD8Async(address(block), value, bytes, streams[stream]));
}

void gpu_copy(enum train_stream stream, void *to, const void *from, size_t bytes) {
    CHECK(cuMemcpyDtoDAsync(address(to), address(from), bytes, streams[stream]));
}

void gpu_send(enum train_stream stream, void *to, const void *host, size_t bytes) {
    CHECK(cuMemcpyHtoDAsync(address(to), host, bytes, streams[stream]));
}

void gpu_fetch(enum train_stream stream, void *host, const void *from, size_t bytes) {
    CHECK(cuMemcpyDtoHAsync(host, address(from), bytes, streams[stream]));
}

void gpu_record(enum train_event event, enum train_stream stream) {
    CHECK(cuEventRecord(events[event], streams[stream]));
}

void gpu_wait(enum train_event event, enum train_stream stream) {
    CHECK(cuStreamWaitEvent(streams[stream], events[event], 0));
}

void gpu_synchronize(enum train_stream stream) {
    CHECK(cuStreamSynchronize(streams[stream]));
}
