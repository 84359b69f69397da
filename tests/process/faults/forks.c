/* A signal's handler forks while its thread begins ranges, marks moments and allocates. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <stdbool.h>
#include <sys/time.h>

enum { SECONDS = 2, EVERY = 20 };

static volatile int came;

static void on_signal(int number) {
    (void)number;
    if (came++ % EVERY)
        return;
    pid_t child = fork();
    if (!child)
        _exit(0);
    waitpid(child, NULL, 0);
}

int main(void) {
    const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    int (*push)(const char *) = (__typeof__(push))dlsym(RTLD_DEFAULT, "vpool_range_push");
    int (*pop)(void) = (__typeof__(pop))dlsym(RTLD_DEFAULT, "vpool_range_pop");
    int (*mark)(const char *) = (__typeof__(mark))dlsym(RTLD_DEFAULT, "vpool_mark");
    CUstream stream;
    CUdeviceptr p;
    bool in_order = true;

    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    signal(SIGALRM, on_signal);
    OK(setitimer(ITIMER_REAL, &often, NULL));
    for (double begin = now(); now() - begin < SECONDS;) {
        in_order &= !push || !push("range");
        if (mark)
            mark("mark");
        OK(cuMemAllocAsync(&p, 1 << 20, stream));
        OK(cuMemFreeAsync(p, stream));
        in_order &= !pop || !pop();
    }
    OK(setitimer(ITIMER_REAL, &never, NULL));
    printf("in order: %d\n", in_order);
}
