/* What the test programs share: checked calls, numbers, and kernels that write and verify a pattern. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VPOOL_GPU_COMMON_CUH
#define VPOOL_GPU_COMMON_CUH

#include "../common/owners.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#define CHECK(call) check(call, #call, __FILE__, __LINE__)

static inline void check(cudaError_t error, const char *call, const char *file, int line) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, call, cudaGetErrorString(error), (int)error);
    exit(1);
}

static inline double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* splitmix64: every seed is a good one. */
struct random_numbers {
    uint64_t state;

    uint64_t next() {
        uint64_t z = (state += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    uint64_t below(uint64_t limit) {
        return next() % limit;
    }
    bool chance(int in_hundred) {
        return below(100) < (uint64_t)in_hundred;
    }

    /* Spread evenly over the orders of magnitude between the two. */
    size_t size_between(int low_log2, int high_log2) {
        int log2 = low_log2 + (int)below((uint64_t)(high_log2 - low_log2));
        return ((size_t)1 << log2) + below((size_t)1 << log2);
    }
};

/* The marks of owners, each 8 bytes by owner_word_at(). */
__global__ static void pattern_write(unsigned char *block, size_t bytes, uint32_t pattern) {
    size_t words = bytes / 8, step = (size_t)gridDim.x * blockDim.x;
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t w = first; w < words; w += step)
        ((uint64_t *)block)[w] = owner_word_at(pattern, w);
    for (size_t i = words * 8 + first; i < bytes; i += step)
        block[i] = (unsigned char)(owner_word_at(pattern, words) >> (8 * (i % 8)));
}

/* What verifying found, on the device. */
struct wrong {
    unsigned long long count;                 /* words, and single bytes of a tail */
    unsigned long long block, bytes, pattern; /* the block it was found in first */
    unsigned long long index, value;          /* there: the last byte or word that a thread found, and what it read */
};

__global__ static void pattern_verify(const unsigned char *block, size_t bytes, uint32_t pattern, struct wrong *wrong) {
    size_t words = bytes / 8, step = (size_t)gridDim.x * blockDim.x;
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long mine = 0, index = 0, value = 0;

    for (size_t w = first; w < words; w += step) {
        uint64_t read = ((const uint64_t *)block)[w];
        if (read != owner_word_at(pattern, w))
            mine++, index = w * 8, value = read;
    }
    for (size_t i = words * 8 + first; i < bytes; i += step)
        if (block[i] != (unsigned char)(owner_word_at(pattern, words) >> (8 * (i % 8))))
            mine++, index = i, value = block[i];
    if (mine && atomicAdd(&wrong->count, mine) == 0) {
        wrong->block = (unsigned long long)block;
        wrong->bytes = bytes;
        wrong->pattern = pattern;
        wrong->index = index;
        wrong->value = value;
    }
}

__global__ static void spin(uint64_t ns) {
    uint64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < ns);
}

/* Enough to cover a block, and little enough that kernels of many streams run side by side. */
static inline unsigned pattern_grid(size_t bytes) {
    size_t blocks = bytes / (256 * 8 * 4) + 1;
    return (unsigned)(blocks < 64 ? blocks : 64);
}

static inline void pattern_write_on(cudaStream_t stream, void *block, size_t bytes, uint32_t pattern) {
    pattern_write<<<pattern_grid(bytes), 256, 0, stream>>>((unsigned char *)block, bytes, pattern);
    CHECK(cudaGetLastError());
}

static inline void pattern_verify_on(cudaStream_t stream, const void *block, size_t bytes, uint32_t pattern,
                                     struct wrong *wrong) {
    pattern_verify<<<pattern_grid(bytes), 256, 0, stream>>>((const unsigned char *)block, bytes, pattern, wrong);
    CHECK(cudaGetLastError());
}

static inline void spin_on(cudaStream_t stream, uint64_t ns) {
    spin<<<1, 1, 0, stream>>>(ns);
    CHECK(cudaGetLastError());
}

#endif
