/* usage: bench_… [CASE…]      prints one JSON object: nanoseconds by case, for threads calls a second */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UP = 3, BATCHES = 25 };

static int wanted_count;
static char **wanted;

uint64_t bench_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_batches(void (*batch)(void *user, int count), void *user, int count) {
    double ns[BATCHES];
    for (int b = -WARM_UP; b < BATCHES; b++) {
        uint64_t begin = bench_now_ns();
        batch(user, count);
        uint64_t end = bench_now_ns();
        if (b >= 0)
            ns[b] = (double)(end - begin) / count;
        gpu_synchronize();
    }
    qsort(ns, BATCHES, sizeof *ns, by_value);
    return ns[BATCHES / 2];
}

void bench_print(const char *name, double value) {
    printf(", \"%s\": %.1f", name, value);
    fflush(stdout);
}

bool bench_wanted(const char *name) {
    for (int i = 0; i < wanted_count; i++)
        if (!strcmp(wanted[i], name))
            return true;
    return wanted_count == 0;
}

static void *sleep_for_ever(void *unused) {
    for (;;)
        pause();
    return unused;
}

/* CUDA's driver has threads of its own, the simulated one has none; and glibc's locks, which that takes in each call,
 * are cheaper in a process of one thread. What an option starts a thread for would be blamed for the difference. */
static void begin_thread(void) {
    pthread_t thread;
    if (!pthread_create(&thread, NULL, sleep_for_ever, NULL))
        pthread_detach(thread);
}

int main(int argc, char **argv) {
    begin_thread();
    wanted_count = argc - 1;
    wanted = argv + 1;
    gpu_open();
    printf("{\"ok\": true, \"api\": \"%s\"", bench_api);
    if (bench_wanted("calls"))
        bench_calls();
    bench_pairs();
    bench_threads();
    printf("}\n");
    return 0;
}
