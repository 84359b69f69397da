/* A process forks in the middle of a driver call, as a signal's handler may, while another thread allocates. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext context;
static pthread_barrier_t begins;
static int forked = -1;

static void *allocate(void *unused) {
    CUdeviceptr p;
    OK(cuCtxSetCurrent(context));
    pthread_barrier_wait(&begins);
    pthread_barrier_wait(&begins);
    OK(cuMemAlloc(&p, 1 << 20));
    OK(cuMemFree(p));
    return unused;
}

/* Called inside the driver, which nobody else enters meanwhile. */
static void midway(CUdeviceptr at, size_t bytes, uint32_t value) {
    (void)at, (void)bytes, (void)value;
    if (forked >= 0)
        return;
    pthread_barrier_wait(&begins);
    usleep(100000);
    pid_t child = fork();
    if (!child)
        _exit(7);
    waitpid(child, &forked, 0);
}

int main(void) {
    void (*watch)(void (*)(CUdeviceptr, size_t, uint32_t)) = sym("vp_sim_watch_fills");
    pthread_t thread;
    CUdeviceptr p;
    context = start();
    pthread_barrier_init(&begins, NULL, 2);
    NEED(pthread_create(&thread, NULL, allocate, NULL));
    NEED(cuMemAlloc(&p, 1 << 20));
    pthread_barrier_wait(&begins);
    watch(midway);
    OK(cuMemsetD8(p, 1, 1 << 20));
    OK(cuCtxSynchronize());
    printf("the child's end: %x\n", (unsigned)forked);
    OK(cuMemFree(p));
    OK(pthread_join(thread, NULL));
    pid_t child = fork();
    if (!child)
        _exit(0);
    printf("another child ends: %d\n", waitpid(child, NULL, 0) == child);
}
