/* A thread is cancelled in the process's first call, in its first mark, be there earlier ones or not, in an allocation
 * that fails, in pairs that are recorded until the file has grown, in a snapshot, or as it names more ranges than are
 * told apart, which is said; another allocates and fails afterwards.
 *
 * usage: cancel_more first|mark|early|oom|pairs|snapshot|names */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUcontext c;
static const char *what;

static void mark(const char *name) {
    int (*told)(const char *) = (__typeof__(told))dlsym(RTLD_DEFAULT, "vpool_mark");

    if (told)
        told(name);
}

static int snapshot(FILE *out) {
    int (*take)(int) = (__typeof__(take))dlsym(RTLD_DEFAULT, "vpool_snapshot");

    return take && out ? take(fileno(out)) : 0;
}

static void ranges(int count) {
    int (*push)(const char *) = (__typeof__(push))dlsym(RTLD_DEFAULT, "vpool_range_push");
    int (*pop)(void) = (__typeof__(pop))dlsym(RTLD_DEFAULT, "vpool_range_pop");
    char name[16];

    for (int i = 0; push && pop && i < count; i++) {
        snprintf(name, sizeof name, "%d", i);
        push(name);
        pop();
    }
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
    FILE *out = tmpfile();

    cuCtxSetCurrent(c);
    if (!strcmp(what, "pairs")) {
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        pairs(stream, 2);
    }
    if (!strcmp(what, "snapshot"))
        cuMemAlloc(&p, 1 << 20);
    pthread_cancel(pthread_self());
    if (!strcmp(what, "first"))
        cuDevicePrimaryCtxRetain(&c, 0);
    else if (!strcmp(what, "mark") || !strcmp(what, "early"))
        mark("first");
    else if (!strcmp(what, "snapshot"))
        snapshot(out);
    else if (!strcmp(what, "names"))
        ranges(300);
    else if (!strcmp(what, "pairs"))
        pairs(stream, PAIRS);
    else
        cuMemAlloc(&p, (size_t)1 << 40);
    return unused;
}

int main(int argc, char **argv) {
    double begin, took;
    CUdeviceptr p;
    pthread_t thread;
    pid_t child;

    what = argc > 1 ? argv[1] : "first";
    if (!strcmp(what, "early"))
        mark("before CUDA");
    OK(cuInit(0));
    if (strcmp(what, "first"))
        start();
    OK(cuCtxGetCurrent(&c));
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    alarm(60);
    begin = spent();
    start();
    mark("second");
    SHOW(cuMemAlloc(&p, 1 << 20));
    if (!strcmp(what, "snapshot"))
        OK(snapshot(tmpfile()));
    SHOW(cuMemAlloc(&p, (size_t)1 << 40));
    if (!(child = fork()))
        _exit(0);
    took = spent() - begin;
    waitpid(child, NULL, 0);
    printf("%s, %s\n", took < 0.5 ? "at once" : "held up", stats(0).size ? "served" : "not served");
}
