/* What the tests of the simulated driver share: one context, its streams, and a piece of memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim.h"

#include <criterion/criterion.h>

#define G ((size_t)64 << 10)
#define OK(call) cr_assert_eq(call, CUDA_SUCCESS, "%s failed", #call)
/* The rest of the arguments, if any, say why. */
#define IS(call, code, ...)                                                                                            \
    do {                                                                                                               \
        int got_ = (int)(call);                                                                                        \
        cr_assert_eq(got_, (int)(code), "%s gave %d and not %d", #call, got_, (int)(code));                            \
    } while (0)
#define READY(event) (cuEventQuery(event) == CUDA_SUCCESS)

static CUcontext context;
static CUdeviceptr memory; /* 1 MiB, all zero */
static CUstream blocking, other, free_stream;
static CUevent event;

static inline void start(const char *options) {
    vp_sim_configure(options);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&memory, 1 << 20));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
}

/* Held streams stay where they are; everything else runs. */
static inline void late(void) {
    start("granularity=64K,lazy=100,timeout=200");
}

static inline int byte(size_t at) {
    return ((volatile unsigned char *)memory)[at];
}

static inline void drain(void) {
    while (vp_sim_step(1000) > 0)
        continue;
}

static inline CUmemGenericAllocationHandle create(size_t size) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static inline void allow(CUdeviceptr at, size_t size) {
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(at, size, &access, 1));
}
