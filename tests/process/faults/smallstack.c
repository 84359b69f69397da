/* Threads with the smallest stack that there is: the first call of the process, allocations that are refused, one that
 * is spilled, and the end of the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <limits.h>

static CUcontext c;

static void *begin(void *unused) {
    CUdeviceptr p;

    (void)unused;
    c = start();
    OK(cuMemAlloc(&p, 1000));
    OK(cuMemFree(p));
    return NULL;
}

static void *refused(void *unused) {
    CUdeviceptr p;

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    SHOW(cuMemAlloc(&p, (size_t)1 << 40));
    SHOW(cuMemAllocAsync(&p, (size_t)1 << 40, NULL));
    return NULL;
}

static void *large(void *unused) {
    CUdeviceptr p;

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    OK(cuMemAlloc(&p, 40 << 20));
    OK(cuMemsetD8(p, 1, 40 << 20));
    OK(cuMemFree(p));
    return NULL;
}

static void *end(void *unused) {
    CUdeviceptr p[4];

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    for (int i = 0; i < 4; i++)
        OK(cuMemAlloc(&p[i], (size_t)(i + 1) << 22));
    OK(cuMemFree(p[1]));
    OK(cuMemAlloc(&p[1], 2 << 22));
    printf("done\n");
    exit(0);
}

int main(void) {
    void *(*const steps[])(void *) = {begin, refused, large, end};
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    NEED(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN));
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        NEED(pthread_create(&thread, &attributes, steps[i], NULL));
        pthread_join(thread, NULL);
    }
}
