/* Threads that come and go: what is held for them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext c;

static void *work(void *arg) {
    CUdeviceptr p[4];
    NEED(cuCtxSetCurrent(c));
    for (int i = 0; i < 4; i++)
        NEED(cuMemAllocAsync(&p[i], 3000 << i, CU_STREAM_PER_THREAD));
    for (int i = 0; i < 4; i++)
        NEED(cuMemFreeAsync(p[i], CU_STREAM_PER_THREAD));
    NEED(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 4000;
    c = start();
    for (int i = 1; i <= n; i++) {
        pthread_t t;
        pthread_create(&t, NULL, work, NULL);
        pthread_join(t, NULL);
        if (i % (n / 8) == 0) {
            CUdeviceptr p[64];
            double t0 = now();
            for (int k = 0; k < 64; k++)
                NEED(cuMemAlloc(&p[k], 700000 + 1024 * ((i + k) % 97)));
            double per = (now() - t0) / 64 * 1e6;
            for (int k = 0; k < 64; k++)
                NEED(cuMemFree(p[k]));
            printf("after %5d threads: held %zu MiB, a cudaMalloc of 700 KB takes %.1f us\n", i,
                   (size_t)stats(0).held_bytes >> 20, per);
        }
    }
}
