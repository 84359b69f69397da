/* A thread is cancelled inside an allocation; another allocates afterwards. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext c;

static void *work(void *x) {
    CUdeviceptr p;
    cuCtxSetCurrent(c);
    pthread_cancel(pthread_self());
    cuMemAlloc(&p, 1 << 20);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
    puts("thread got through");
    return 0;
}

int main(void) {
    CUdevice d;
    CUdeviceptr p;
    pthread_t h;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    pthread_create(&h, 0, work, 0);
    void *r;
    pthread_join(h, &r);
    printf("thread %s\n", r == PTHREAD_CANCELED ? "was cancelled inside" : "ended");
    fflush(stdout);
    alarm(60);
    SHOW(cuMemAlloc(&p, 1 << 20));
}
