/* A context ends by a route that the library does not see: the driver's own cuCtxDestroy, argv[1] bytes
 * behind vp_sim_hold. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(int argc, char **argv) {
    CUdevice d;
    CUcontext c, k;
    CUdeviceptr p;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuMemAlloc(&p, 1 << 20));
    OK(cuMemFree(p));
    char *base = (char *)sym("vp_sim_hold");
    long off = atol(argv[1]);
    CUresult (*raw)(CUcontext) = (void *)(base + off);
    OK(((CUresult(*)(CUcontext *, unsigned, CUdevice))sym("cuCtxCreate_v2"))(&k, 0, d));
    OK(cuMemAlloc(&p, 1 << 20));
    OK(cuMemFree(p));
    OK(cuCtxSetCurrent(c));
    SHOW(raw(k));
    for (int i = 0; i < 5; i++) {
        int e = cuMemAlloc(&p, 20 << 20);
        printf("%d ", e);
        if (!e)
            OK(cuMemFree(p));
        OK(cuCtxSynchronize());
        held("", 0);
    }
}
