/* What a driver says in contexts that have ended, and to threads that enter many. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "driver_answers.h"

#include <pthread.h>

enum { DEEP = 1000 };

void many_entered(void) {
    CUcontext got = NULL;
    int entered = 0, left = 0;
    puts("# a context entered time and again");
    while (entered < DEEP && !cuCtxPushCurrent(context))
        entered++;
    printf("entered: %d\n", entered);
    SAY(cuCtxSetCurrent(NULL));
    SAY(cuCtxGetCurrent(&got));
    printf("none is current: %d\n", got == NULL);
    while (left < DEEP + 10 && !cuCtxPopCurrent(&got))
        left++;
    printf("left: %d\n", left);
}

static CUcontext made;
static CUstream stream;
static CUevent event;
static CUdeviceptr block;

/* Another context, which is current, with something of each kind in it. */
static void begin(void) {
    NEED(cuCtxCreate(&made, NULL, 0, 0));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(cuMemAlloc(&block, 4096));
    NEED(cuEventRecord(event, stream));
    NEED(cuCtxSynchronize());
}

static void *destroy(void *arg) {
    NEED(cuCtxDestroy(made));
    return arg;
}

static void end_elsewhere(void) {
    pthread_t thread;
    if (!pthread_create(&thread, NULL, destroy, NULL))
        pthread_join(thread, NULL);
}

/* What the thread may ask that is in such a context. */
static void ask_within(void) {
    CUcontext got = NULL;
    CUdevice device = -1;
    CUdeviceptr p;
    CUevent e;
    CUstream s;
    size_t a, b;
    unsigned version;
    unsigned long long id;
    SAY(cuCtxGetCurrent(&got));
    printf("it is current: %d\n", got == made);
    SAY(cuCtxGetDevice(&device));
    SAY(cuCtxGetApiVersion(made, &version));
    SAY(cuCtxGetApiVersion(NULL, &version));
    SAY(cuCtxGetId(made, &id));
    SAY(cuCtxGetId(NULL, &id));
    SAY(cuMemGetInfo(&a, &b));
    SAY(cuMemAlloc(&p, 4096));
    SAY(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    SAY(cuStreamCreate(&s, 0));
    SAY(cuMemsetD8Async(block, 0, 16, NULL));
    SAY(cuStreamQuery(NULL));
    SAY(cuStreamGetId(NULL, &id));
    SAY(cuCtxSynchronize());
}

void ended_here(void) {
    CUcontext got = NULL;
    puts("# a context that was current ends");
    begin();
    SAY(cuCtxDestroy(made));
    SAY(cuCtxGetCurrent(&got));
    printf("it is current: %d\n", got == made);
    printf("what was before is current: %d\n", got == context);
    SAY(cuCtxPopCurrent(&got));
    printf("popped what was before: %d\n", got == context);
    SAY(cuCtxPopCurrent(&got));
}

void ended_elsewhere(void) {
    CUcontext got = NULL;
    puts("# a context ends on another thread while it is current here");
    begin();
    end_elsewhere();
    ask_within();
    SAY(cuCtxPopCurrent(&got));
    printf("popped: %d\n", got == made);
    SAY(cuCtxGetCurrent(&got));
    printf("what was before is current: %d\n", got == context);
}

/* The next call crashed on an H100: it is not asked. */
void ended_entered(void) {
    CUcontext got = NULL;
    puts("# a context that has ended is entered");
    begin();
    SAY(cuCtxDestroy(made));
    SAY(cuCtxPushCurrent(made));
    SAY(cuCtxGetCurrent(&got));
    printf("it is current: %d\n", got == made);
}
