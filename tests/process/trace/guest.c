/* A program to be recorded, on the simulated driver: `guest COUNTER N [fork|exit]` allocates and frees in two
 * threads, on two streams, with some synchronous calls, and counts the calls that returned in the file
 * COUNTER, from where they can be read after a kill. N calls, or without end if N is 0. fork: makes a child
 * first, which ends in the ordinary way while the parent goes on. exit: a thread goes on while the process
 * exits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "../../common/check.h"
#include "../../common/forked.h"

#include <cuda.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 64, THREADS = 2 };

static _Atomic unsigned long *counter;
static unsigned long most;
static CUcontext context;

/* No more than `most` are begun. */
static int begin(void) {
    static _Atomic unsigned long begun;
    return !most || atomic_fetch_add(&begun, 1) < most;
}

static void *work(void *seed) {
    CUdeviceptr blocks[BLOCKS] = {0};
    CUstream stream;
    unsigned state = (unsigned)(size_t)seed;
    CHECK(!cuCtxSetCurrent(context) && !cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (begin()) {
        int i = rand_r(&state) % BLOCKS, sync = i < 4;
        if (blocks[i]) {
            CHECK(!(sync ? cuMemFree(blocks[i]) : cuMemFreeAsync(blocks[i], stream)));
            blocks[i] = 0;
        } else {
            size_t size = 1 + (size_t)rand_r(&state) % 60000;
            CHECK(!(sync ? cuMemAlloc(&blocks[i], size) : cuMemAllocAsync(&blocks[i], size, stream)));
        }
        atomic_fetch_add(counter, 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    const char *mode = argc > 3 ? argv[3] : "";
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0 && !ftruncate(fd, 4096));
    counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(counter != MAP_FAILED);
    most = strtoul(argv[2], NULL, 10);
    CHECK(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context));
    if (!strcmp(mode, "fork")) {
        CUdeviceptr ptr;
        CHECK(!cuMemAlloc(&ptr, 4096) && !cuMemFree(ptr));
        atomic_fetch_add(counter, 2);
        pid_t pid = fork();
        if (!pid)
            exit(0);
        CHECK(waitpid(pid, NULL, 0) == pid);
    }
    for (size_t t = 0; t < THREADS; t++)
        CHECK(!pthread_create(&threads[t], NULL, work, (void *)(t + 1)));
    if (!strcmp(mode, "exit")) {
        while (atomic_load(counter) < 2000)
            usleep(100);
        exit(0);
    }
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    return 0;
}
