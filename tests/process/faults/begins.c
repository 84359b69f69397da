/* libbegins.so: waits, as it is loaded, for a thread that allocates, as pools of threads that a library begins with do.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>

static void *allocate(void *unused) {
    void *block = NULL;
    size_t free_bytes, total;
    printf("cudaMalloc %d\n", cudaMalloc(&block, 1 << 20));
    printf("cudaMemGetInfo %d\n", cudaMemGetInfo(&free_bytes, &total));
    printf("cudaFree %d\n", cudaFree(block));
    printf("cudaFree once more %d\n", cudaFree(block));
    printf("too much: %d\n", cudaMalloc(&block, (size_t)1 << 50));
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, allocate, NULL);
    pthread_join(thread, NULL);
}
