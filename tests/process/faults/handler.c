/* A signal's handler frees while its thread waits in a call of CUDA's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <errno.h>
#include <unistd.h>

static CUdeviceptr ptr;
static CUstream stream;
static pthread_t main_thread;
static volatile sig_atomic_t armed;
static volatile int answer = -1;

static void on_signal(int number) {
    (void)number;
    answer = cuMemFreeAsync(ptr, stream);
}

/* The simulated driver waits by this one, and holds no lock of its own meanwhile. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    (void)condition, (void)until;
    pthread_mutex_unlock(mutex);
    if (armed && pthread_equal(main_thread, pthread_self())) {
        armed = 0;
        raise(SIGUSR1);
    }
    usleep(1000);
    pthread_mutex_lock(mutex);
    return ETIMEDOUT;
}

static void sleep_a_while(void *unused) {
    (void)unused;
    usleep(50000);
}

int main(void) {
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&ptr, 1 << 20, stream));
    signal(SIGUSR1, on_signal);
    OK(cuLaunchHostFunc(stream, sleep_a_while, NULL));
    main_thread = pthread_self();
    armed = 1;
    OK(cuStreamSynchronize(stream));
    printf("freed: %d, live: %zu\n", answer, (size_t)stats(0).live_bytes);
}
