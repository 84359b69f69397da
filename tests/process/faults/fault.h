/* What the programs of this folder have in common. Each of them once ended otherwise under libvpool.so than alone;
 * run.py tells them apart. They link to the simulated driver, and may tell it to hold a stream or to fail a call. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vpool.h>

/* What goes wrong is printed, and the program goes on: the same lines are wanted bare and under the library. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int result_ = (int)(call);                                                                                     \
        if (result_)                                                                                                   \
            printf("%d: %s -> %d\n", __LINE__, #call, result_);                                                        \
    } while (0)
/* What goes wrong ends the program. */
#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        int result_ = (int)(call);                                                                                     \
        if (result_) {                                                                                                 \
            fprintf(stderr, "%s:%d %s -> %d\n", __FILE__, __LINE__, #call, result_);                                   \
            exit(3);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define SHOW(call) printf("%-60s -> %d\n", #call, (int)(call))

static inline double now(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* As now(), without the time for which this thread has waited for a processor: a machine may have much else to do. */
static inline double spent(void) {
    unsigned long long ran, waited = 0;
    FILE *f = fopen("/proc/thread-self/schedstat", "r");

    if (f && fscanf(f, "%llu %llu", &ran, &waited) != 2)
        waited = 0;
    if (f)
        fclose(f);
    return now() - (double)waited / 1e9;
}

/* A function of the driver, as programs look it up; vp_sim_... are the simulated one's own (src/sim/sim.h). */
static inline void *sym(const char *name) {
    return dlsym(dlopen("libcuda.so.1", RTLD_LAZY), name);
}

/* Of device 0; all 0 without the library. */
static inline struct vpool_stats stats(int device) {
    struct vpool_stats s = {.size = sizeof(s)};
    int (*ask)(int, struct vpool_stats *) = (__typeof__(ask))dlsym(RTLD_DEFAULT, "vpool_stats");

    if (!ask || ask(device, &s))
        s = (struct vpool_stats){.size = 0};
    return s;
}

static inline void held(const char *what, int device) {
    const struct vpool_stats s = stats(device);

    if (s.size)
        printf("%s: live %.1f MiB held %.1f MiB\n", what, (double)s.live_bytes / 1048576,
               (double)s.held_bytes / 1048576);
    else
        printf("%s: no stats\n", what);
}

/* KiB of memory of this process. */
static inline long rss(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    long all, resident = 0;

    if (f && fscanf(f, "%ld %ld", &all, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * 4;
}

/* CUDA begun, with the primary context of device 0 current. */
static inline CUcontext start(void) {
    CUcontext c;

    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&c, 0));
    NEED(cuCtxSetCurrent(c));
    return c;
}
