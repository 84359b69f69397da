/* Copies queued in a stream of another device than the current one, or captured. argv[1]: the stream's device;
 * argv[2]: the current one; argv[3], argv[4]: where it goes and comes from, a device or h for the host's memory;
 * argv[5]: c if it is captured, j if the stream has joined a capture that began on another one */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

enum { BYTES = 1 << 20 };

static CUcontext context[2];

static CUdeviceptr memory(const char *where, int value) {
    CUdeviceptr p;
    void *host;

    if (*where == 'h') {
        NEED(cuMemAllocHost(&host, BYTES));
        memset(host, value, BYTES);
        return (CUdeviceptr)(uintptr_t)host;
    }
    NEED(cuCtxSetCurrent(context[atoi(where)]));
    NEED(cuMemAlloc(&p, BYTES));
    NEED(cuMemsetD8(p, (unsigned char)value, BYTES));
    return p;
}

int main(int argc, char **argv) {
    const char how = argc > 5 ? *argv[5] : 0;
    unsigned long (*const violations)(void) = sym("vp_sim_violations");
    unsigned char found[2] = {0};
    CUdeviceptr dst, src;
    CUstream s, first;
    CUevent fork, joined;
    CUgraph g;
    CUgraphExec e;

    NEED(cuInit(0));
    for (int i = 0; i < 2; i++)
        NEED(cuDevicePrimaryCtxRetain(&context[i], i));
    NEED(cuCtxSetCurrent(context[0]));
    dst = memory(argv[3], 1);
    src = memory(argv[4], 2);
    NEED(cuCtxSetCurrent(context[atoi(argv[1])]));
    NEED(cuCtxSynchronize());
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    if (how)
        NEED(cuStreamBeginCapture(how == 'j' ? first : s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (how == 'j') {
        NEED(cuEventRecord(fork, first));
        NEED(cuStreamWaitEvent(s, fork, 0));
    }
    NEED(cuCtxSetCurrent(context[atoi(argv[2])]));
    SHOW(cuMemcpyAsync(dst, src, BYTES, s));
    NEED(cuCtxSetCurrent(context[atoi(argv[1])]));
    if (how == 'j') {
        OK(cuEventRecord(joined, s));
        OK(cuStreamWaitEvent(first, joined, 0));
    }
    if (how) {
        SHOW(cuStreamEndCapture(how == 'j' ? first : s, &g));
        SHOW(cuGraphInstantiate(&e, g, 0));
        SHOW(cuGraphLaunch(e, s));
    }
    OK(cuStreamSynchronize(s));
    if (*argv[3] == 'h') {
        found[0] = *(unsigned char *)(uintptr_t)dst;
        found[1] = *(unsigned char *)(uintptr_t)(dst + BYTES - 1);
    } else {
        NEED(cuCtxSetCurrent(context[atoi(argv[3])]));
        OK(cuMemcpyDtoH(&found[0], dst, 1));
        OK(cuMemcpyDtoH(&found[1], dst + BYTES - 1, 1));
    }
    printf("%d %d, violations %lu\n", found[0], found[1], violations());
}
