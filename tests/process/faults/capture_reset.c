/* A primary context is reset while one of its streams captures; memory comes and goes after that. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    CUcontext c;
    CUdevice d;
    CUdeviceptr p;
    CUstream s;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuMemAlloc(&p, 1 << 20));
    OK(cuMemFree(p));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    if (!getenv("NOCAP"))
        OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    SHOW(cuDevicePrimaryCtxReset(d));
    SHOW(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    for (int i = 0; i < 12; i++) {
        double t = now();
        int r = cuMemAlloc(&p, 20 << 20);
        printf("alloc %d -> %d (%.2fs) ", i, r, now() - t);
        if (!r) {
            OK(cuMemsetD8(p, 1, 1 << 20));
            OK(cuCtxSynchronize());
            OK(cuMemFree(p));
        }
        held("", 0);
    }
}
