/* Threads lack memory of CUDA's own at once, while enough for all of them is idle: one has it given back for all. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

enum { BLOCKS = 32, THREADS = 4, ROUNDS = 10, SIZE = 2 << 20 };

static CUcontext c;
static pthread_barrier_t all;
static CUmodule module[THREADS];

static void *load(void *at) {
    NEED(cuCtxSetCurrent(c));
    pthread_barrier_wait(&all);
    OK(cuModuleLoadData(at, "code"));
    return 0;
}

int main(void) {
    CUdeviceptr p[BLOCKS];
    pthread_t t[THREADS];

    c = start();
    for (int i = 0; i < BLOCKS; i++)
        NEED(cuMemAlloc(&p[i], SIZE));
    pthread_barrier_init(&all, 0, THREADS);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < THREADS; i++)
            NEED(cuMemFree(p[i * 3]));
        for (int i = 0; i < THREADS; i++)
            pthread_create(&t[i], 0, load, &module[i]);
        for (int i = 0; i < THREADS; i++)
            pthread_join(t[i], 0);
        for (int i = 0; i < THREADS; i++) {
            OK(cuModuleUnload(module[i]));
            OK(cuMemAlloc(&p[i * 3], SIZE));
        }
    }
    puts("over");
    return 0;
}
