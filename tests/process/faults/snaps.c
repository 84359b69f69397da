/* A signal's handler allocates while its thread takes snapshots, in which who holds memory is told. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <fcntl.h>
#include <sys/time.h>

enum { BLOCKS = 400, SECONDS = 2 };

static CUstream stream;
static volatile int errors;

static void on_signal(int number) {
    CUdeviceptr p;
    (void)number;
    errors += cuMemAllocAsync(&p, 1 << 20, stream) || cuMemFreeAsync(p, stream);
}

int main(void) {
    const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    int (*take)(int) = (__typeof__(take))dlsym(RTLD_DEFAULT, "vpool_snapshot");
    const int out = open("/dev/null", O_WRONLY);
    CUdeviceptr p;

    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemAlloc(&p, 4096 * (i % 64 + 1)));
    signal(SIGALRM, on_signal);
    OK(setitimer(ITIMER_REAL, &often, NULL));
    for (double begin = now(); now() - begin < SECONDS;)
        OK(take ? take(out) : 0);
    OK(setitimer(ITIMER_REAL, &never, NULL));
    printf("errors: %d\n", errors);
}
