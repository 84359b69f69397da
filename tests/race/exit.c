/* The process ends while threads allocate: the statistics are written once, and nothing hangs or crashes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include "process/process.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *allocate(void *arg) {
    CU(cuCtxSetCurrent(race_context()));
    for (;;) {
        CUdeviceptr ptr;
        CU(door_alloc_async(&ptr, 100000, NULL, CU_STREAM_PER_THREAD));
        CU(cuMemsetD8Async(ptr, 2, 100000, CU_STREAM_PER_THREAD));
        CU(door_free_async(ptr, CU_STREAM_PER_THREAD));
    }
    return arg;
}

int main(void) {
    /* It writes somewhere, but not into the test's report. */
    CHECK(!setenv("VPOOL_STATS", "/dev/null", 1));
    race_open("granularity=64K");
    CHECK(!atexit(vp_api_exit));
    for (int i = 0; i < RACERS; i++) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, allocate, NULL));
        CHECK(!pthread_detach(thread));
    }
    usleep(200000);
    return 0;
}
