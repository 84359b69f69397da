/* A program that allocates as it is told to: a word of the command line after the other. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "../../common/forked.h"

#include <cuda.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult res = (call);                                                                                         \
        if (res) {                                                                                                     \
            fprintf(stderr, "%s: %d\n", #call, (int)res);                                                              \
            exit(99);                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { MIB = 1 << 20 };

static CUdeviceptr blocks[64];
static unsigned count;
static CUstream stream;

static void open_device(int device) {
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void capture(void) {
    CUgraph graph;
    CUdeviceptr ptr;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemAllocAsync(&ptr, MIB, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
}

/* Pairs that a stream cache serves, for some seconds. */
static void pairs(double seconds) {
    for (long n = (long)(seconds * 1000); n > 0; n--) {
        for (int i = 0; i < 20; i++) {
            CUdeviceptr ptr;
            CHECK(cuMemAllocAsync(&ptr, 64 << 10, stream));
            CHECK(cuMemFreeAsync(ptr, stream));
        }
        usleep(1000);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What a thread of a storm does until time is over: blocks of all sizes, by either call, a few of them kept for a
 * while. */
static void *storm_thread(void *until) {
    enum { SLOTS = 24 };
    CUdeviceptr mine[SLOTS] = {0};
    CUcontext context;
    CUstream own;
    unsigned seed = (unsigned)(uintptr_t)&mine;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    for (unsigned n = 0; now() < *(double *)until; n++) {
        CUdeviceptr *slot = &mine[rand_r(&seed) % SLOTS];
        size_t size = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 64 << 10 : 3 * MIB);
        if (*slot && n & 1)
            CHECK(cuMemFreeAsync(*slot, own));
        else if (*slot)
            CHECK(cuMemFree(*slot));
        if (n & 2 ? cuMemAllocAsync(slot, size, own) : cuMemAlloc(slot, size))
            *slot = 0;
    }
    return NULL;
}

static void storm(double seconds) {
    pthread_t threads[4];
    double until = now() + seconds;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, storm_thread, &until);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* Whatever signals come. */
static void doze(double seconds) {
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left))
        continue;
}

static void on_signal(int number) {
    static const char said[] = "mine\n";
    (void)number;
    if (write(STDOUT_FILENO, said, sizeof said - 1) < 0)
        _exit(97);
}

int main(int argc, char **argv) {
    setlocale(LC_ALL, "");
    for (int i = 1; i < argc; i++) {
        const char *value = strchr(argv[i], '=') ? strchr(argv[i], '=') + 1 : "0";
        if (!strncmp(argv[i], "open", 4))
            open_device(atoi(value));
        else if (!strncmp(argv[i], "alloc=", 6))
            CHECK(cuMemAlloc(&blocks[count++], (size_t)atoi(value) * MIB));
        else if (!strncmp(argv[i], "try=", 4)) {
            CUdeviceptr unused;
            printf("%d\n", (int)cuMemAlloc(&unused, (size_t)atoi(value) * MIB));
        } else if (!strncmp(argv[i], "bytes=", 6))
            CHECK(cuMemAlloc(&blocks[count++], strtoull(value, NULL, 10)));
        else if (!strncmp(argv[i], "storm=", 6))
            storm(atof(value));
        else if (!strncmp(argv[i], "handler=", 8))
            signal(atoi(value), on_signal);
        else if (!strncmp(argv[i], "async=", 6))
            CHECK(cuMemAllocAsync(&blocks[count++], (size_t)atoi(value) * MIB, stream));
        else if (!strcmp(argv[i], "leave"))
            CHECK(cuMemFreeAsync(blocks[--count], stream));
        else if (!strcmp(argv[i], "free"))
            CHECK(cuMemFree(blocks[--count]));
        else if (!strcmp(argv[i], "capture"))
            capture();
        else if (!strncmp(argv[i], "pairs=", 6))
            pairs(atof(value));
        else if (!strncmp(argv[i], "sleep=", 6))
            doze(atof(value));
        else if (!strcmp(argv[i], "line"))
            getchar();
        else if (!strncmp(argv[i], "raise=", 6))
            raise(atoi(value));
        else if (!strncmp(argv[i], "exit=", 5))
            exit(atoi(value));
        else if (!strncmp(argv[i], "kill=", 5))
            raise(atoi(value));
        else if (!strcmp(argv[i], "exec"))
            execl("/bin/sleep", "sleep", "60", (char *)NULL);
        else if (!strcmp(argv[i], "fork")) {
            /* What follows is the child's; the parent ends as it does. */
            int status = 0;
            if (fork()) {
                wait(&status);
                return WEXITSTATUS(status);
            }
        } else
            return 98;
        if (!strncmp(argv[i], "open", 4) || strchr(argv[i], '=')) {
            printf("%s\n", argv[i]);
            fflush(stdout);
        }
    }
    return 0;
}
