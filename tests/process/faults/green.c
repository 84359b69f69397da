/* A green context is destroyed while its stream captures. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    CUdevice d;
    CUcontext c;
    CUdeviceptr p;
    CUgreenCtx gc;
    CUdevResource r;
    CUdevResourceDesc ds;
    CUstream s;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuMemAlloc(&p, 1 << 20));
    OK(cuMemFree(p));
    OK(cuDeviceGetDevResource(d, &r, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevResourceGenerateDesc(&ds, &r, 1));
    OK(cuGreenCtxCreate(&gc, ds, d, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuGreenCtxStreamCreate(&s, gc, 1, 0));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    SHOW(cuGreenCtxDestroy(gc));
    for (int i = 0; i < 5; i++) {
        int e = cuMemAlloc(&p, 20 << 20);
        printf("%d ", e);
        if (!e)
            OK(cuMemFree(p));
        OK(cuCtxSynchronize());
        held("", 0);
    }
}
