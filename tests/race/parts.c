/* Large ranges, built in parts, while others take small memory, look and trim: a device that is nearly full. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include "vpool.h"

#include <stdatomic.h>

enum { ROUNDS = 10, PAIRS = 1024, LARGE = 360, SIZES = 64, LOOKS = 7, TRIM_EVERY = 50 };
static const size_t CHUNK = 64 << 10;

static CUdeviceptr block[2 * PAIRS];
static atomic_int builders = 2;

static bool is_served(CUresult res) {
    CHECK(res == CUDA_SUCCESS || res == CUDA_ERROR_OUT_OF_MEMORY);
    return !res;
}

/* Each time a little larger, so that no range of before will do. In the end there is room for one of the two at a time.
 */
static void build(int index) {
    for (int i = 0, had = 0; i < ROUNDS || !had; i++) {
        const size_t size = (size_t)(LARGE + index * 16 + i % ROUNDS * (LARGE / 10)) * CHUNK;
        CUdeviceptr ptr;
        unsigned char seen[LOOKS], mark = (unsigned char)(1 + 2 * i + index);
        if (!is_served(door_alloc(&ptr, size)))
            continue;
        had++;
        CU(cuMemsetD8(ptr, mark, size));
        for (size_t at = 0; at < LOOKS; at++)
            CU(cuMemcpyDtoH(&seen[at], ptr + at * (size - 1) / (LOOKS - 1), 1));
        for (size_t at = 0; at < LOOKS; at++)
            CHECK(seen[at] == mark);
        CU(door_free(ptr));
    }
    atomic_fetch_sub(&builders, 1);
}

/* Sizes of all kinds, so that no cache serves them. */
static void take(void) {
    CUstream stream;
    CU(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; atomic_load(&builders); i++) {
        const size_t size = CHUNK + (size_t)(i % SIZES) * 512;
        unsigned char seen;
        CUdeviceptr ptr;
        if (!is_served(door_alloc_async(&ptr, size, NULL, stream)))
            continue;
        CU(cuMemsetD8Async(ptr, 255, size, stream));
        CU(cuStreamSynchronize(stream));
        CU(cuMemcpyDtoH(&seen, ptr + size - 1, 1));
        CHECK(seen == 255);
        CU(door_free_async(ptr, stream));
    }
    CU(door_stream_destroy(stream));
}

static void look(void) {
    for (int i = 1; atomic_load(&builders); i++) {
        struct vpool_stats stats = {.size = sizeof stats};
        CHECK(!vpool_stats(0, &stats) && stats.held_bytes >= stats.live_bytes);
        if (i % TRIM_EVERY == 0)
            CHECK(vpool_trim(0, stats.held_bytes - CHUNK) >= 0);
    }
}

static void each(int index) {
    if (index < 2)
        build(index);
    else
        index == 2 ? take() : look();
}

int main(void) {
    race_open("granularity=64K,capacity=130M,lazy=0");
    for (int i = 0; i < 2 * PAIRS; i++)
        CU(door_alloc(&block[i], CHUNK));
    for (int i = 0; i < 2 * PAIRS; i += 2)
        CU(door_free(block[i]));
    race_run(each);
    for (int i = 1; i < 2 * PAIRS; i += 2)
        CU(door_free(block[i]));
    race_close();
    return 0;
}
