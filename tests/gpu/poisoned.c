/* Faults of four kinds, planted, under VPOOL_POISON=1: a write after a stream's free, one on a stream that the free
 * knew nothing of, one after cudaFree, and reads of what was not written. Prints what was found as one JSON object; and
 * how long a right program takes, which must not be accused.
 *
 * Fills and copies only: it also runs on the simulated driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <vpool.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                                  \
    X(cuDevicePrimaryCtxRetain)                                                                                                                  \
    X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemAllocAsync) X(cuMemFreeAsync)                       \
        X(cuStreamCreate) X(cuStreamSynchronize) X(cuMemsetD8Async) X(cuMemcpyDtoH_v2)

#include "found.h"

enum { MIB = 1 << 20, BLOCK = 8 * MIB, STEPS = 50, LAYERS = 16, AGAIN = 8 };

static CUstream stream, side;
static __typeof__(&vpool_stats) stats_of;

static unsigned long found(void) {
    struct vpool_stats stats = {.size = sizeof(stats)};
    return stats_of(0, &stats) ? 0 : (unsigned long)stats.written_after_free;
}

static CUdeviceptr take(void) {
    CUdeviceptr at;
    NEED(cuMemAllocAsync, &at, BLOCK, stream);
    return at;
}

static bool is_no_number(CUdeviceptr at) {
    float value;
    NEED(cuStreamSynchronize, stream);
    NEED(cuMemcpyDtoH_v2, &value, at, sizeof(value));
    return value != value;
}

static bool after_a_streams_free(void) {
    unsigned long before = found();
    CUdeviceptr at = take();
    NEED(cuMemFreeAsync, at, stream);
    NEED(cuMemsetD8Async, at + 5 * MIB, 1, 100, stream);
    NEED(cuMemFreeAsync, take(), stream);
    return found() == before + 1;
}

static bool on_a_side_stream(void) {
    unsigned long before = found();
    CUdeviceptr at = take();
    NEED(cuStreamSynchronize, stream);
    NEED(cuMemFreeAsync, at, stream);
    NEED(cuStreamSynchronize, stream);
    NEED(cuMemsetD8Async, at, 2, BLOCK, side);
    NEED(cuStreamSynchronize, side);
    NEED(cuMemFreeAsync, take(), stream);
    return found() == before + 1;
}

static bool after_cudaFree(void) {
    unsigned long before = found();
    CUdeviceptr at, again[AGAIN];
    NEED(cuMemAlloc_v2, &at, BLOCK);
    NEED(cuMemFree_v2, at);
    NEED(cuMemsetD8Async, at + BLOCK - 1, 3, 1, side);
    NEED(cuCtxSynchronize);
    /* Whatever is free: those bytes are among it, and come again. */
    for (int i = 0; i < AGAIN; i++)
        NEED(cuMemAlloc_v2, &again[i], BLOCK);
    for (int i = 0; i < AGAIN; i++)
        NEED(cuMemFree_v2, again[i]);
    return found() == before + 1;
}

static bool reads(void) {
    CUdeviceptr fresh, at = take();
    bool seen = is_no_number(at);
    NEED(cuMemsetD8Async, at, 0, BLOCK, stream);
    seen &= !is_no_number(at);
    NEED(cuMemFreeAsync, at, stream);
    seen &= is_no_number(at);
    NEED(cuMemAlloc_v2, &fresh, BLOCK);
    seen &= is_no_number(fresh);
    NEED(cuMemFree_v2, fresh);
    return seen;
}

/* Layers forward and backward, of sizes that change: bytes go from hand to hand. */
static bool a_right_program(double *seconds) {
    const double begin = now();
    unsigned long before = found();
    for (int step = 0; step < STEPS; step++) {
        CUdeviceptr layer[LAYERS];
        for (int i = 0; i < LAYERS; i++) {
            size_t bytes = (size_t)(1 + (step * 7 + i * 3) % 11) * MIB / 2 + (size_t)(step * 512);
            NEED(cuMemAllocAsync, &layer[i], bytes, stream);
            NEED(cuMemsetD8Async, layer[i], (unsigned char)i, bytes, stream);
        }
        for (int i = LAYERS; i-- > 0;)
            NEED(cuMemFreeAsync, layer[i], stream);
    }
    NEED(cuCtxSynchronize);
    *seconds = now() - begin;
    return found() == before;
}

int main(void) {
    double seconds = 0;
    stats_of = (__typeof__(stats_of))dlsym(RTLD_DEFAULT, "vpool_stats");
    if (!find_driver())
        return 1;
    if (!stats_of) {
        fprintf(stderr, "poisoned: run this under libvpool.so, with VPOOL_POISON=1\n");
        return 1;
    }
    stream = need_stream();
    NEED(cuStreamCreate, &side, CU_STREAM_NON_BLOCKING);
    bool accused = !a_right_program(&seconds);
    bool kinds[] = {after_a_streams_free(), on_a_side_stream(), after_cudaFree(), reads()};
    bool ok = !accused && kinds[0] && kinds[1] && kinds[2] && kinds[3];
    printf("{\"after_a_streams_free\": %d, \"on_a_side_stream\": %d, \"after_cudaFree\": %d, \"reads\": %d, "
           "\"accused\": %d, \"right_program_s\": %.3f, \"ok\": %s}\n",
           kinds[0], kinds[1], kinds[2], kinds[3], accused, seconds, ok ? "true" : "false");
    return !ok;
}
