/* Contexts are made and destroyed, with memory of both kinds in them, while a thread of the primary context
 * allocates and frees. The handle of a destroyed context comes back at once: the end of the old one must not
 * be taken for that of the new one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

enum { ROUNDS = 500, SIZE = 300000, MAKERS = 3 };

static void maker(void) {
    for (int i = 0; i < ROUNDS; i++) {
        CUcontext ctx;
        CUstream stream;
        CUdeviceptr lost, kept, base;
        size_t size;
        CU(door_context_create(&ctx, 0));
        CU(door_stream_create(&stream, CU_STREAM_DEFAULT));
        CU(door_alloc(&lost, SIZE));
        CU(door_alloc_async(&kept, SIZE, NULL, stream));
        CU(cuMemsetD8Async(lost, 1, SIZE, stream));
        CU(cuMemsetD8Async(kept, 1, SIZE, stream));
        CU(cuStreamSynchronize(stream));
        CU(door_address_range(&base, &size, lost + SIZE / 2));
        CHECK(base == lost && size == SIZE);
        CU(door_context_destroy(ctx));
        /* Stream-ordered memory outlives its context. */
        CU(cuCtxSetCurrent(race_context()));
        CU(i % 2 ? door_free(kept) : door_free_async(kept, CU_STREAM_LEGACY));
    }
}

static void allocator(int index) {
    for (int i = 0; i < 4 * ROUNDS; i++) {
        CUdeviceptr ptr;
        size_t size = (size_t)1 << (10 + (i + index) % 12);
        CU(i % 2 ? door_alloc(&ptr, size) : door_alloc_async(&ptr, size, NULL, CU_STREAM_PER_THREAD));
        CU(cuMemsetD8Async(ptr, 2, size, CU_STREAM_PER_THREAD));
        CU(door_free(ptr));
    }
}

static void racer(int index) {
    if (index < MAKERS)
        maker();
    else
        allocator(index);
}

int main(void) {
    race_open("granularity=64K");
    race_run(racer);
    race_close();
    return 0;
}
