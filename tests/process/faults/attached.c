/* A thread waits in cuMemAllocAsync while another takes a reference to the context, and gives it back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext c;
static CUstream s;
static volatile int done;

static void *ask(void *unused) {
    CUdeviceptr p;
    int res;

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    res = cuMemAllocAsync(&p, 64 << 20, s);
    printf("cuMemAllocAsync -> %d\n", res);
    done = 1;
    if (!res)
        OK(cuMemFreeAsync(p, s));
    return NULL;
}

int main(void) {
    void (*hold)(CUstream) = sym("vp_sim_hold"), (*release)(CUstream) = sym("vp_sim_release");
    CUresult (*attach)(CUcontext *, unsigned) = sym("cuCtxAttach"), (*detach)(CUcontext) = sym("cuCtxDetach");
    CUcontext again;
    CUstream f;
    CUdeviceptr p;
    pthread_t thread;

    NEED(cuInit(0));
    NEED(cuCtxCreate(&c, NULL, 0, 0));
    NEED(cuStreamCreate(&f, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAllocAsync(&p, 200 << 20, f));
    hold(f);
    NEED(cuMemsetD8Async(p, 1, 100, f));
    NEED(cuMemFreeAsync(p, f));
    pthread_create(&thread, NULL, ask, NULL);
    usleep(5000);
    while (!done) {
        NEED(attach(&again, 0));
        NEED(detach(c));
    }
    pthread_join(thread, NULL);
    release(f);
    OK(cuCtxSynchronize());
}
