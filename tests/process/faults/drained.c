/* A snapshot goes into a pipe that is full. Who empties it is a signal's handler of the thread that takes it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <fcntl.h>
#include <sys/time.h>

static int ends[2];

static void empty(int number) {
    char text[4096];
    (void)number;
    while (read(ends[0], text, sizeof text) == (ssize_t)sizeof text)
        continue;
}

int main(void) {
    static const char full[4096];
    const struct itimerval often = {{0, 20000}, {0, 20000}};
    int (*take)(int) = (__typeof__(take))dlsym(RTLD_DEFAULT, "vpool_snapshot");
    CUdeviceptr p;

    start();
    OK(cuMemAlloc(&p, 1 << 20));
    OK(pipe2(ends, O_NONBLOCK));
    while (write(ends[1], full, sizeof full) > 0)
        continue;
    OK(fcntl(ends[1], F_SETFL, 0));
    signal(SIGALRM, empty);
    OK(setitimer(ITIMER_REAL, &often, NULL));
    printf("taken: %d\n", take ? take(ends[1]) : 0);
}
