/* Questions about captures: what a call answers beside one, and what becomes of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "driver_answers.h"

#include <pthread.h>

/* Begins a capture, makes one call, and says what became of the capture. */
#define DURING(flags, mode, call)                                                                                      \
    do {                                                                                                               \
        CUstream s;                                                                                                    \
        CUgraph graph_ = NULL;                                                                                         \
        NEED(cuStreamCreate(&s, flags));                                                                               \
        NEED(cuStreamBeginCapture(s, mode));                                                                           \
        int result_ = (int)(call);                                                                                     \
        int end_ = (int)cuStreamEndCapture(s, &graph_);                                                                \
        printf("%s capture of a %s stream: %-60s %d, then the end %d\n", mode_names[mode],                             \
               flags ? "non-blocking" : "blocking", #call, result_, end_);                                             \
        if (graph_)                                                                                                    \
            cuGraphDestroy(graph_);                                                                                    \
        NEED(cuStreamDestroy(s));                                                                                      \
    } while (0)

static const char *const mode_names[] = {"global", "thread-local", "relaxed"};

static CUresult relaxed_query(CUevent event) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    CUresult result = cuEventQuery(event);
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    return result;
}

struct job {
    CUevent event;
    CUresult result;
};

static void *query_elsewhere(void *arg) {
    struct job *job = arg;
    NEED(cuCtxSetCurrent(context));
    job->result = cuEventQuery(job->event);
    return NULL;
}

static CUresult other_thread_query(CUevent event) {
    struct job job = {event, 0};
    pthread_t thread;
    pthread_create(&thread, NULL, query_elsewhere, &job);
    pthread_join(thread, NULL);
    return job.result;
}

/* The questions name them as they stand here. */
static CUevent done, fresh;
static CUstream other, nb;
static CUdeviceptr p, q;
static CUgraph graph;
static CUstreamCaptureStatus status;

static void order_during(unsigned flags, CUstreamCaptureMode mode) {
    unsigned long long id;
    CUcontext c;
    DURING(flags, mode, CUDA_SUCCESS);
    DURING(flags, mode, cuEventQuery(done));
    DURING(flags, mode, relaxed_query(done));
    DURING(flags, mode, other_thread_query(done));
    DURING(flags, mode, cuEventSynchronize(done));
    DURING(flags, mode, cuEventRecord(done, other));
    DURING(flags, mode, cuEventRecord(done, nb));
    DURING(flags, mode, cuEventRecord(done, NULL));
    DURING(flags, mode, cuEventRecord(fresh, s));
    DURING(flags, mode, cuCtxRecordEvent(context, done));
    DURING(flags, mode, cuStreamWaitEvent(s, done, 0));
    DURING(flags, mode, cuStreamWaitEvent(other, done, 0));
    DURING(flags, mode, cuStreamWaitEvent(NULL, done, 0));
    DURING(flags, mode, cuStreamGetId(s, &id));
    DURING(flags, mode, cuStreamGetCtx(s, &c));
    DURING(flags, mode, cuStreamIsCapturing(s, &status));
    DURING(flags, mode, cuStreamIsCapturing(NULL, &status));
    DURING(flags, mode, cuStreamIsCapturing(nb, &status));
    DURING(flags, mode, cuStreamQuery(s));
    DURING(flags, mode, cuStreamQuery(nb));
    DURING(flags, mode, cuStreamQuery(other));
    DURING(flags, mode, cuStreamQuery(NULL));
    DURING(flags, mode, cuStreamSynchronize(s));
    DURING(flags, mode, cuStreamSynchronize(nb));
    DURING(flags, mode, cuStreamSynchronize(NULL));
    DURING(flags, mode, cuCtxSynchronize());
}

static void memory_during(unsigned flags, CUstreamCaptureMode mode) {
    size_t a, b;
    CUmemAllocationProp prop = prop_of();
    CUmemGenericAllocationHandle h;
    char host[16];
    void *pinned;
    DURING(flags, mode, cuMemAlloc(&q, 512));
    DURING(flags, mode, cuMemFree(p) == 0 ? cuMemAlloc(&p, 4096) : 1);
    DURING(flags, mode, cuMemGetInfo(&a, &b));
    DURING(flags, mode, cuMemHostAlloc(&pinned, 512, 0));
    DURING(flags, mode, cuMemAllocAsync(&q, 512, s));
    DURING(flags, mode, cuMemAllocAsync(&q, 512, nb));
    DURING(flags, mode, cuMemAllocAsync(&q, 512, other));
    DURING(flags, mode, cuMemAllocAsync(&q, 512, NULL));
    DURING(flags, mode, cuMemFreeAsync(p, s));
    DURING(flags, mode, cuMemFreeAsync(0, s));
    DURING(flags, mode, cuMemCreate(&h, granularity, &prop, 0) ? 1 : cuMemRelease(h));
    DURING(flags, mode, cuMemsetD8(p, 1, 16));
    DURING(flags, mode, cuMemsetD8Async(p, 1, 16, s));
    DURING(flags, mode, cuMemsetD8Async(p, 1, 16, nb));
    DURING(flags, mode, cuMemsetD8Async(p, 1, 16, other));
    DURING(flags, mode, cuMemsetD8Async(p, 1, 16, NULL));
    DURING(flags, mode, cuMemcpyDtoH(host, p, 16));
    DURING(flags, mode, cuStreamCreate(&(CUstream){0}, 0));
    DURING(flags, mode, cuEventCreate(&(CUevent){0}, 0));
    DURING(flags, mode, cuStreamBeginCapture(s, mode));
}

static void joins(void) {
    puts("# captured events, joins");
    NEED(cuStreamBeginCapture(nb, 2));
    SAY(cuEventRecord(fresh, nb));
    SAY(relaxed_query(fresh));
    SAY(cuStreamWaitEvent(other, fresh, 0));
    SAY(cuStreamIsCapturing(other, &status));
    printf("status: %d\n", status);
    SAY(cuMemsetD8Async(p, 1, 16, other));
    SAY(cuStreamEndCapture(other, &graph));
    SAY(cuStreamEndCapture(nb, &graph));
    SAY(relaxed_query(fresh));
    SAY(cuStreamWaitEvent(other, fresh, 0));
    NEED(cuStreamBeginCapture(nb, 2));
    SAY(cuEventRecord(fresh, nb));
    SAY(cuStreamWaitEvent(other, fresh, 0));
    SAY(cuMemsetD8Async(p, 1, 16, other));
    SAY(cuStreamEndCapture(nb, &graph));
    NEED(cuStreamBeginCapture(nb, 2));
    SAY(cuEventRecord(fresh, nb));
    SAY(cuStreamWaitEvent(other, fresh, 0));
    SAY(cuMemsetD8Async(p, 1, 16, other));
    SAY(cuEventRecord(fresh, other));
    SAY(cuStreamWaitEvent(nb, fresh, 0));
    SAY(cuStreamEndCapture(nb, &graph));
    SAY(cuGraphDestroy(graph));
    SAY(cuStreamIsCapturing(other, &status));
    printf("status: %d\n", status);
    SAY(cuEventQuery(fresh));
}

static void graph_memory(void) {
    puts("# graph memory");
    CUgraphExec exec;
    NEED(cuStreamBeginCapture(nb, 0));
    SAY(cuMemAllocAsync(&q, 4096, nb));
    SAY(cuMemsetD8Async(q, 1, 4096, nb));
    SAY(cuMemFreeAsync(q, nb));
    SAY(cuStreamEndCapture(nb, &graph));
    SAY(cuGraphInstantiate(&exec, graph, 0));
    SAY(cuGraphLaunch(exec, nb));
    SAY(cuGraphLaunch(exec, NULL));
    SAY(cuCtxSynchronize());
    SAY(cuMemFree(q));
    SAY(cuGraphExecDestroy(exec));
    SAY(cuGraphDestroy(graph));
}

void captures(void) {
    NEED(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&fresh, CU_EVENT_DISABLE_TIMING));
    NEED(cuStreamCreate(&other, 0));
    NEED(cuStreamCreate(&nb, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc(&p, 4096));
    NEED(cuEventRecord(done, nb));
    NEED(cuCtxSynchronize());
    puts("# captures");
    for (int blocking = 0; blocking < 2; blocking++)
        for (CUstreamCaptureMode mode = 0; mode < 3; mode++) {
            order_during(blocking ? 0 : CU_STREAM_NON_BLOCKING, mode);
            memory_during(blocking ? 0 : CU_STREAM_NON_BLOCKING, mode);
        }
    SAY(cuStreamBeginCapture(NULL, 0));
    SAY(cuStreamEndCapture(nb, &graph));
    SAY(cuStreamEndCapture(NULL, &graph));

    joins();
    graph_memory();
    NEED(cuMemFree(p));
    NEED(cuStreamDestroy(other));
    NEED(cuStreamDestroy(nb));
    NEED(cuEventDestroy(done));
    NEED(cuEventDestroy(fresh));
}
