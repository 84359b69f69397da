/* Streams that come and go with work and frees queued on them, and each thread's own default stream, whose
 * frees others find. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

enum { ROUNDS = 250 };

static void racer(int index) {
    for (int i = 0; i < ROUNDS; i++) {
        CUstream own, other;
        CUdeviceptr ptr, big;
        CUevent event;
        size_t size = (size_t)1 << (12 + (i + index) % 10);
        CU(door_stream_create(&own, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        other = i % 3 ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
        CU(door_alloc_async(&ptr, size, NULL, own));
        CU(door_alloc_async(&big, 2 << 20, NULL, other));
        CU(cuMemsetD32Async(ptr, 7, size / 4, own));
        CU(cuMemsetD32Async(big, 7, (2 << 20) / 4, other));
        CU(door_free_async(big, other));
        CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CU(cuEventRecord(event, own));
        CU(cuStreamWaitEvent(other, event, 0));
        CU(cuEventDestroy(event));
        CU(door_free_async(ptr, i % 2 ? own : other));
        CU(door_stream_destroy(own));
    }
}

int main(void) {
    race_open("granularity=64K,capacity=64M,lazy=90");
    race_run(racer);
    /* Threads that have ended left frees on streams which nobody can name any more. */
    race_run(racer);
    race_close();
    return 0;
}
