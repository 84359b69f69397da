/* Pairs of an allocation and a free by several threads at once, each on a stream of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, TURNS = 3, SPELL_MS = 200, PAIRS_A_LOOK = 64 };

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    atomic_bool *stop;
    size_t bytes;
    uint64_t pairs, ns;
};

static void *work(void *arg) {
    struct worker *w = arg;
    gpu_enter();
    bench_stream stream = gpu_stream_create();
    for (int i = 0; i < 1000; i++)
        gpu_free_on(stream, gpu_alloc_on(stream, w->bytes));
    pthread_barrier_wait(w->start);
    uint64_t begin = bench_now_ns();
    do {
        for (int i = 0; i < PAIRS_A_LOOK; i++)
            gpu_free_on(stream, gpu_alloc_on(stream, w->bytes));
        w->pairs += PAIRS_A_LOOK;
    } while (!atomic_load_explicit(w->stop, memory_order_relaxed));
    w->ns = bench_now_ns() - begin;
    /* Streams go when all have stopped: what a destruction does is no part of this. */
    pthread_barrier_wait(w->start);
    gpu_stream_destroy(stream);
    return NULL;
}

/* Pairs a second, of all threads together. */
static double throughput(int threads, size_t bytes) {
    struct worker workers[THREADS] = {0};
    pthread_barrier_t start;
    atomic_bool stop = false;
    double sum = 0;

    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    for (int t = 0; t < threads; t++) {
        workers[t] = (struct worker){.start = &start, .stop = &stop, .bytes = bytes};
        if (pthread_create(&workers[t].thread, NULL, work, &workers[t])) {
            perror("pthread_create");
            exit(1);
        }
    }
    pthread_barrier_wait(&start);
    for (uint64_t begin = bench_now_ns(); bench_now_ns() - begin < SPELL_MS * 1000000ull;)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_store(&stop, true);
    pthread_barrier_wait(&start);
    for (int t = 0; t < threads; t++) {
        pthread_join(workers[t].thread, NULL);
        sum += (double)workers[t].pairs * 1e9 / (double)workers[t].ns;
    }
    pthread_barrier_destroy(&start);
    gpu_synchronize();
    return sum;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(const char *name, size_t bytes) {
    char text[64];
    double one[TURNS], all[TURNS];
    if (!bench_wanted("threads") && !bench_wanted(name))
        return;
    for (int i = 0; i < TURNS; i++) {
        one[i] = throughput(1, bytes);
        all[i] = throughput(THREADS, bytes);
    }
    qsort(one, TURNS, sizeof *one, by_value);
    qsort(all, TURNS, sizeof *all, by_value);
    snprintf(text, sizeof text, "%s_1", name);
    bench_print(text, one[TURNS / 2]);
    snprintf(text, sizeof text, "%s_%d", name, THREADS);
    bench_print(text, all[TURNS / 2]);
}

void bench_threads(void) {
    measure("threads_64k", 64 << 10);
    measure("threads_2m", 2 << 20);
}
