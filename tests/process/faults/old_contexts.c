/* A context made as old programs do: by the name without a version, which ctypes finds, or for OpenGL, as PyCUDA does.
 * What runs there on another context's memory counts as what runs in any other. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

enum { SIZE = 8 << 20, ROUNDS = 10 };

typedef CUresult create(CUcontext *context, unsigned int flags, CUdevice device);

/* The function's name. */
int main(int argc, char **argv) {
    CUcontext primary = start(), other;
    create *made_by = (create *)sym(argv[argc - 1]);
    int wrong = 0;

    NEED(!made_by || made_by(&other, 0, 0));
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char found = 0;
        CUdeviceptr p, q;

        NEED(cuCtxSetCurrent(primary));
        NEED(cuMemAlloc(&p, SIZE));
        NEED(cuCtxSetCurrent(other));
        NEED(cuMemsetD8Async(p, 1, SIZE, NULL));
        NEED(cuCtxSetCurrent(primary));
        NEED(cuMemFree(p));
        NEED(cuMemAlloc(&q, SIZE));
        NEED(cuMemsetD8(q, 2, SIZE));
        NEED(cuCtxSetCurrent(other));
        NEED(cuCtxSynchronize());
        NEED(cuCtxSetCurrent(primary));
        NEED(cuMemcpyDtoH(&found, q + SIZE / 2, 1));
        wrong += found != 2;
        NEED(cuMemFree(q));
    }
    printf("%d wrong\n", wrong);
    return 0;
}
