/* Six threads allocate and free at once while a stream captures: there is enough for all of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

enum { THREADS = 6, ROUNDS = 2500 };

static CUcontext context;
static int failed;

static void *allocate(void *size) {
    CUdeviceptr p;
    NEED(cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS; i++)
        if (cuMemAlloc(&p, (size_t)size))
            __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
        else
            OK(cuMemFree(p));
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    CUstream stream;
    CUgraph graph;
    context = start();
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (size_t i = 0; i < THREADS; i++)
        NEED(pthread_create(&threads[i], NULL, allocate, (void *)((3 + i) << 20)));
    for (size_t i = 0; i < THREADS; i++)
        NEED(pthread_join(threads[i], NULL));
    OK(cuStreamEndCapture(stream, &graph));
    printf("failed: %d\n", failed);
}
