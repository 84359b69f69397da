/* Allocates once, and ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    CUdevice d;
    CUcontext c;
    CUdeviceptr p;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuMemAlloc(&p, 1 << 20));
    return 0;
}
