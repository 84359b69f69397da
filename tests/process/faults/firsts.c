/* Many threads make their first call of the runtime at once, as a tool that looks at each dlopen makes that slow. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include "fault.h"

enum { THREADS = 40 };

static pthread_barrier_t together;

/* The tool's: it stands before libc's. */
void *dlopen(const char *file, int mode) {
    void *(*real)(const char *, int) = (__typeof__(real))dlsym(RTLD_NEXT, "dlopen");

    usleep(2000);
    return real(file, mode);
}

static void *first(void *unused) {
    void *p;

    pthread_barrier_wait(&together);
    OK(cudaMalloc(&p, 1 << 20));
    OK(cudaFree(p));
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];

    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, first, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("all served");
}
