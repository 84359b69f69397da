/* The driver's functions for programs that find it at run time: a program lists those that it calls in FUNCTIONS(X)
 * before it includes this. p_cuInit is one's pointer, NEED() a call that must succeed. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define POINTER(name) static __typeof__(&name) p_##name;
FUNCTIONS(POINTER)
#undef POINTER

/* False if one is missing: its pointer is NULL. */
static inline bool find_driver(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    bool all = true;
#define FIND(name) all &= cuda && (p_##name = (__typeof__(p_##name))dlsym(cuda, #name));
    FUNCTIONS(FIND)
#undef FIND
    return all;
}

static inline void need(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %d\n", what, (int)result);
        exit(1);
    }
}
#define NEED(name, ...) need(p_##name(__VA_ARGS__), #name)

/* The device's primary context, for this thread, and a stream in it. */
static inline CUstream need_stream(void) {
    CUcontext context;
    CUstream stream;
    NEED(cuInit, 0);
    NEED(cuDevicePrimaryCtxRetain, &context, 0);
    NEED(cuCtxSetCurrent, context);
    NEED(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    return stream;
}

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
