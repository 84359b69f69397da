/* A thread is cancelled in the process's first call, in its first mark, in an allocation that fails, or in pairs that
 * are recorded until the file has grown; another allocates and fails afterwards.
 *
 * usage: cancel_more first|mark|oom|pairs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext c;
static const char *what;

static void mark(const char *name) {
    int (*told)(const char *) = (__typeof__(told))dlsym(RTLD_DEFAULT, "vpool_mark");

    if (told)
        told(name);
}

/* Enough for a file of a trace to grow, packed too. */
enum { PAIRS = 200000 };

static void pairs(CUstream stream, int count) {
    CUdeviceptr p;

    for (int i = 0; i < count; i++) {
        cuMemAllocAsync(&p, 1 << 20, stream);
        cuMemFreeAsync(p, stream);
    }
}

static void *work(void *unused) {
    CUdeviceptr p;
    CUstream stream;

    cuCtxSetCurrent(c);
    if (!strcmp(what, "pairs")) {
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        pairs(stream, 2);
    }
    pthread_cancel(pthread_self());
    if (!strcmp(what, "first"))
        cuDevicePrimaryCtxRetain(&c, 0);
    else if (!strcmp(what, "mark"))
        mark("first");
    else if (!strcmp(what, "pairs"))
        pairs(stream, PAIRS);
    else
        cuMemAlloc(&p, (size_t)1 << 40);
    return unused;
}

int main(int argc, char **argv) {
    double begin;
    CUdeviceptr p;
    pthread_t thread;
    pid_t child;

    what = argc > 1 ? argv[1] : "first";
    OK(cuInit(0));
    if (strcmp(what, "first"))
        start();
    OK(cuCtxGetCurrent(&c));
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    alarm(10);
    begin = now();
    start();
    mark("second");
    SHOW(cuMemAlloc(&p, 1 << 20));
    SHOW(cuMemAlloc(&p, (size_t)1 << 40));
    if (!(child = fork()))
        _exit(0);
    waitpid(child, NULL, 0);
    printf("%s, %s\n", now() - begin < 0.5 ? "at once" : "held up", stats(0).size ? "served" : "not served");
}
