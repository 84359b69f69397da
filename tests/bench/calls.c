/* What the driver's own calls cost that an allocator makes for each block. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "check.h"

struct calls {
    CUstream stream;
    CUevent event;
};

static void stream_id(void *user, int count) {
    const struct calls *c = user;
    unsigned long long id;
    for (int i = 0; i < count; i++)
        CU(cuStreamGetId(c->stream, &id));
}

static void capture(void *user, int count) {
    const struct calls *c = user;
    CUstreamCaptureStatus status;
    for (int i = 0; i < count; i++)
        CU(cuStreamIsCapturing(c->stream, &status));
}

static void current(void *user, int count) {
    CUcontext context;
    for (int i = 0; i < count; i++)
        CU(cuCtxGetCurrent(&context));
}

static void record(void *user, int count) {
    const struct calls *c = user;
    for (int i = 0; i < count; i++)
        CU(cuEventRecord(c->event, c->stream));
}

/* Once the event has been reached. */
static void query(void *user, int count) {
    const struct calls *c = user;
    for (int i = 0; i < count; i++)
        CU(cuEventQuery(c->event));
}

static void wait(void *user, int count) {
    const struct calls *c = user;
    for (int i = 0; i < count; i++)
        CU(cuStreamWaitEvent(c->stream, c->event, 0));
}

void bench_calls(void) {
    enum { CALLS = 2000 };
    struct calls c;
    CU(cuStreamCreate(&c.stream, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&c.event, CU_EVENT_DISABLE_TIMING));
    bench_print("cuStreamGetId", bench_batches(stream_id, &c, CALLS));
    bench_print("cuStreamIsCapturing", bench_batches(capture, &c, CALLS));
    bench_print("cuCtxGetCurrent", bench_batches(current, &c, CALLS));
    bench_print("cuEventRecord", bench_batches(record, &c, CALLS));
    bench_print("cuEventQuery", bench_batches(query, &c, CALLS));
    bench_print("cuStreamWaitEvent", bench_batches(wait, &c, CALLS));
    CU(cuEventDestroy(c.event));
    CU(cuStreamDestroy(c.stream));
}
