/* A blocking stream captures, in a mode that leaves other threads alone; one of these allocates and frees, on a stream
 * of its own. argv[1]: the captured stream's device */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext context;

static void *work(void *unused) {
    CUdeviceptr p;
    CUstream s;
    int failed = 0;

    (void)unused;
    NEED(cuCtxSetCurrent(context));
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 40; i++) {
        if (cuMemAlloc(&p, (size_t)(20 + i % 3) << 20)) {
            failed++;
            continue;
        }
        OK(cuMemsetD8Async(p, 1, 100, s));
        OK(cuStreamSynchronize(s));
        OK(cuMemFree(p));
    }
    printf("%d of 40 failed\n", failed);
    return NULL;
}

int main(int argc, char **argv) {
    CUcontext other;
    CUstream s;
    CUgraph g;
    pthread_t thread;

    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuDevicePrimaryCtxRetain(&other, argc > 1 ? atoi(argv[1]) : 0));
    NEED(cuCtxSetCurrent(other));
    NEED(cuStreamCreate(&s, CU_STREAM_DEFAULT));
    NEED(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    SHOW(cuStreamEndCapture(s, &g));
}
