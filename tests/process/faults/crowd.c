/* Threads that wait in vain for one held stream, all at once: argv[1] of them. Seconds later a stream asks for what
 * another will have freed in 30 ms. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext c;
static pthread_barrier_t before, after;

static void *ask(void *unused) {
    CUdeviceptr p;
    CUstream s;

    (void)unused;
    NEED(cuCtxSetCurrent(c));
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    pthread_barrier_wait(&before);
    OK(cuMemAllocAsync(&p, 64 << 20, s));
    pthread_barrier_wait(&after);
    OK(cuMemFreeAsync(p, s));
    OK(cuStreamSynchronize(s));
    return NULL;
}

static void *release_later(void *s) {
    void (*release)(CUstream) = sym("vp_sim_release");

    usleep(30000);
    release(s);
    return NULL;
}

int main(int argc, char **argv) {
    void (*hold)(CUstream) = sym("vp_sim_hold"), (*release)(CUstream) = sym("vp_sim_release");
    const int count = argc > 1 ? atoi(argv[1]) : 8;
    pthread_t threads[64], later;
    CUdeviceptr p, q;
    CUstream f, s;
    unsigned long waits;

    c = start();
    NEED(cuStreamCreate(&f, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    pthread_barrier_init(&before, NULL, (unsigned)count + 1);
    pthread_barrier_init(&after, NULL, (unsigned)count + 1);
    NEED(cuMemAllocAsync(&p, 320 << 20, f));
    hold(f);
    NEED(cuMemsetD8Async(p, 1, 100, f));
    NEED(cuMemFreeAsync(p, f));
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, ask, NULL);
    pthread_barrier_wait(&before);
    pthread_barrier_wait(&after);
    waits = stats(0).waits_fruitless;
    release(f);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    OK(cuCtxSynchronize());
    fprintf(stderr, "%lu waits in vain\n", waits);
    /* What all that has cost is more than a hundredth of the program's time for a while. */
    sleep(7);

    NEED(cuMemAllocAsync(&p, (size_t)1 << 30, f));
    hold(f);
    NEED(cuMemsetD8Async(p, 1, 100, f));
    NEED(cuMemFreeAsync(p, f));
    waits = stats(0).waits_host;
    pthread_create(&later, NULL, release_later, f);
    OK(cuMemAllocAsync(&q, (size_t)1 << 30, s));
    printf("waited: %lu\n", stats(0).waits_host - waits);
    pthread_join(later, NULL);
    OK(cuMemFreeAsync(q, s));
    OK(cuCtxSynchronize());
}
