/* Out of memory beside a capture that runs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include "fault.h"

int main(void) {
    CUdevice d;
    CUcontext c;
    CUdeviceptr p;
    CUstream s;
    CUgraph g;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    int oom = 0;
    for (int i = 0; i < 20; i++) {
        int r = cuMemAlloc(&p, 20 << 20);
        if (r)
            oom++;
        else
            OK(cuMemFree(p));
    }
    printf("20 x (cuMemAlloc 20 MiB, cuMemFree) beside a running relaxed capture: %d failed\n", oom);
    OK(cuStreamEndCapture(s, &g));
}
