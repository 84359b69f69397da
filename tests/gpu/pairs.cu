/* Times an allocation and its free, again and again.
 *
 * usage: pairs [CASE...]      prints one JSON object: nanoseconds a pair by case
 *
 * Each case runs in batches; a batch's time divided by its pairs is one sample, and the median sample counts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common.cuh"

#include <algorithm>
#include <cstring>

struct timed_case {
    const char *name;
    size_t bytes;
    bool async;
    bool kernel; /* a kernel writes the block between */
    int batches, pairs;
};

static const struct timed_case cases[] = {
    {"sync_64m", 64 << 20, false, false, 40, 250},  {"sync_64m_kernel", 64 << 20, false, true, 20, 50},
    {"sync_1m", 1 << 20, false, false, 40, 250},    {"sync_1k", 1 << 10, false, false, 40, 250},
    {"async_64m", 64 << 20, true, false, 40, 1000}, {"async_64k", 64 << 10, true, false, 40, 1000},
    {"async_1k", 1 << 10, true, false, 40, 1000},
};

static void one_pair(const struct timed_case *c, cudaStream_t stream) {
    void *block;
    if (c->async)
        CHECK(cudaMallocAsync(&block, c->bytes, stream));
    else
        CHECK(cudaMalloc(&block, c->bytes));
    if (c->kernel)
        pattern_write_on(stream, block, 4096, 1);
    if (c->async)
        CHECK(cudaFreeAsync(block, stream));
    else
        CHECK(cudaFree(block));
}

static double median_ns(const struct timed_case *c, cudaStream_t stream) {
    static double samples[64];

    for (int i = 0; i < 5; i++)
        one_pair(c, stream);
    CHECK(cudaDeviceSynchronize());
    for (int b = 0; b < c->batches; b++) {
        double start = now_s();
        for (int i = 0; i < c->pairs; i++)
            one_pair(c, stream);
        samples[b] = (now_s() - start) * 1e9 / c->pairs;
        CHECK(cudaDeviceSynchronize());
    }
    std::sort(samples, samples + c->batches);
    return samples[c->batches / 2];
}

static bool wanted(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc == 1;
}

int main(int argc, char **argv) {
    cudaStream_t stream;
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    /* CUDA's own pool at its best: it gives nothing back. */
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));

    printf("{\"ok\": true");
    for (const struct timed_case &c : cases)
        if (wanted(c.name, argc, argv))
            printf(", \"%s\": %.1f", c.name, median_ns(&c, stream));
    printf("}\n");
    return 0;
}
