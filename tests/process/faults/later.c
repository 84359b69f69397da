/* What an allocation waits for is not enough, as another thread has had some; what that one frees meanwhile is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

enum { MIB = 1 << 20 };

static CUcontext c;
static CUstream first, second;
static void (*rel)(CUstream);

static void *release(void *unused) {
    usleep(400000);
    rel(first);
    usleep(300000);
    rel(second);
    return 0;
}

static void *want(void *unused) {
    CUdeviceptr p;

    NEED(cuCtxSetCurrent(c));
    SHOW(cuMemAlloc(&p, 32 * MIB));
    return 0;
}

int main(void) {
    void (*hold)(CUstream) = sym("vp_sim_hold");
    CUdeviceptr a, between, b, other;
    pthread_t releaser, waiter;

    rel = sym("vp_sim_release");
    c = start();
    NEED(cuStreamCreate(&first, 1));
    NEED(cuStreamCreate(&second, 1));
    NEED(cuMemAlloc(&a, 24 * MIB));
    NEED(cuMemAlloc(&between, 2 * MIB));
    NEED(cuMemAlloc(&b, 24 * MIB));
    hold(first);
    hold(second);
    NEED(cuMemsetD8Async(a, 1, 24 * MIB, first));
    pthread_create(&releaser, 0, release, 0);
    NEED(cuMemFree(a));
    pthread_create(&waiter, 0, want, 0);
    usleep(150000);
    NEED(cuMemsetD8Async(b, 1, 24 * MIB, second));
    NEED(cuMemFree(b));
    OK(cuMemAlloc(&other, 12 * MIB));
    pthread_join(waiter, 0);
    pthread_join(releaser, 0);
    return 0;
}
