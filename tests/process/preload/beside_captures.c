/* Asks what calls that allocate and free memory answer beside a stream capture of each mode, from the thread that
 * captures or another one, in its own mode or relaxed: twice, then what has become of the capture, and then once more.
 * Calls that are answered alike share a line.
 *
 * usage: beside_captures [recorded]     only what H200s have been asked: beside_captures.txt */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "guest.h"

#define MIB ((size_t)1 << 20)

/* In the order in which H200s were asked. The number says on which device it is called. */
#define CALLS(X)                                                                                                       \
    X("cudaMalloc", 0, cudaMalloc(&at, MIB))                                                                                                                  \
    X("cudaFree", 0, cudaFree(old))                                                                                                                  \
    X("cuMemAlloc", 0, cuMemAlloc((CUdeviceptr *)&at, MIB))                                                                                                                  \
    X("cuMemFree", 0, cuMemFree((CUdeviceptr)old))                                                                                                                  \
    X("cudaMalloc:1", 1, cudaMalloc(&at, MIB))                                                                                                                  \
    X("cudaFree:1", 1, cudaFree(old))                                                                                                                  \
    X("cuMemAlloc:1", 1, cuMemAlloc((CUdeviceptr *)&at, MIB))                                                                                                                  \
    X("cudaFree:1-from-0", 0, cudaFree(old))                                                                                                                  \
    X("cudaMallocAsync", 0, cudaMallocAsync(&at, MIB, other))                                                                                                                  \
    X("cudaFreeAsync", 0, cudaFreeAsync(old, other))                                                                                                                  \
    X("cudaMallocHost", 0, cudaMallocHost(&host, MIB))                                                                                                                  \
    X("cudaMallocPitch", 0, cudaMallocPitch(&at, &a, 100, 100))                                                                                                                  \
    X("cudaMemGetInfo", 0, cudaMemGetInfo(&a, &b))

#define COUNTED(name, device, call) +1
enum { COUNT = 0 CALLS(COUNTED), FREES_OF_1 = 5, FREES_OF_1_FROM_0 = 7, FREES_ASYNC = 9, HOST = 10 };
#define NAMED(name, device, call) name,
static const char *const names[] = {CALLS(NAMED)};

enum { SAME, OTHER, OTHER_RELAXED, SAME_RELAXED, THREADS };
static const char *const threads[] = {"the same thread", "another thread", "another thread, relaxed",
                                      "the same thread, relaxed"};
static const char *const modes[] = {"global", "thread-local", "relaxed"};

static cudaStream_t stream, other;
static CUfunction nothing;

/* What is asked. */
static struct {
    int call;
    bool relaxed;
    void *old[3]; /* to free: the same one each time, but for stream-ordered frees */
    int answers[2];
} asked;

static int ask(void *old) {
    void *at = NULL, *host = NULL;
    size_t a, b;
    int n = 0, res = 0;

#define ASKED(name, device, made)                                                                                      \
    if (n++ == asked.call) {                                                                                           \
        CHECK_OK(cudaSetDevice(device));                                                                               \
        res = (int)(made);                                                                                             \
    }
    CALLS(ASKED)
    CHECK_OK(cudaSetDevice(0));
    cudaGetLastError();
    return res;
}

static void *ask_twice(void *unused) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

    (void)unused;
    CHECK_OK(cudaSetDevice(0));
    if (asked.relaxed)
        CHECK_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    asked.answers[0] = ask(asked.old[0]);
    asked.answers[1] = ask(asked.old[1]);
    if (asked.relaxed)
        CHECK_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    return NULL;
}

static int work(void) {
    return (int)cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/* Writes the answers to one call, without its name. */
static void one_case(int mode, int thread, int call, char *line, size_t room) {
    enum cudaStreamCaptureStatus status;
    cudaGraph_t graph = NULL;
    pthread_t other_thread;

    asked.call = call;
    asked.relaxed = thread == OTHER_RELAXED || thread == SAME_RELAXED;
    CHECK_OK(cudaSetDevice(call == FREES_OF_1 || call == FREES_OF_1_FROM_0));
    for (int i = 0; i < 3; i++)
        if (i && call != FREES_ASYNC)
            asked.old[i] = asked.old[0];
        else
            CHECK_OK(cudaMalloc(&asked.old[i], MIB));
    CHECK_OK(cudaSetDevice(0));
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
    if (thread == SAME || thread == SAME_RELAXED)
        ask_twice(NULL);
    else
        CHECK(!pthread_create(&other_thread, NULL, ask_twice, NULL) && !pthread_join(other_thread, NULL));
    CHECK_OK(cudaStreamIsCapturing(stream, &status));
    const int worked = work(), ended = cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    snprintf(line, room, "%d, %d, then capture %d, work %d, end %d, call %d:", asked.answers[0], asked.answers[1],
             (int)status, worked, ended, ask(asked.old[2]));
    if (graph)
        CHECK_OK(cudaGraphDestroy(graph));
}

/* They were asked in this order, until the time was up. */
static bool was_recorded(int mode, int thread, int call) {
    return mode == 0 || (mode == 1 && (thread < OTHER_RELAXED || (thread == OTHER_RELAXED && call <= HOST)));
}

static void load(void) {
    static const char module[] =
        ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
    CUmodule loaded;

    CHECK_OK(cudaSetDevice(1));
    CHECK_OK(cudaFree(NULL));
    CHECK_OK(cudaSetDevice(0));
    CHECK_OK(cudaFree(NULL));
    CHECK_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK_OK(cuModuleLoadData(&loaded, module));
    CHECK_OK(cuModuleGetFunction(&nothing, loaded, "nothing"));
    CHECK_OK(work());
}

int main(int argc, char **argv) {
    const bool recorded = argc > 1 && !strcmp(argv[1], "recorded");
    char answers[COUNT][120];

    load();
    for (int i = 0; i < 3 * THREADS; i++) {
        const int mode = i / THREADS, thread = i % THREADS;

        if (recorded && !was_recorded(mode, thread, 0))
            continue;
        printf("%s capture, %s:\n", modes[mode], threads[thread]);
        for (int call = 0; call < COUNT; call++) {
            *answers[call] = 0;
            if (!recorded || was_recorded(mode, thread, call))
                one_case(mode, thread, call, answers[call], sizeof(answers[call]));
        }
        for (int call = 0; call < COUNT; call++) {
            char line[sizeof(answers[0])];

            if (!*answers[call])
                continue;
            memcpy(line, answers[call], sizeof(line));
            printf("  %s", line);
            for (int same = call; same < COUNT; same++)
                if (!strcmp(answers[same], line)) {
                    printf(" %s", names[same]);
                    *answers[same] = 0;
                }
            printf("\n");
        }
    }
    return 0;
}
