/* What CUDA orders by itself: the legacy stream and those that wait for it. Memory that was freed behind a stream's
 * work is allocated again, and another's to write.
 * argv[1]: own: work of a thread's own stream, freed on the legacy one, for another thread's; wait, query: the legacy
 * stream's, freed on a blocking one that is waited for then, or asked, for one that is not; by a copy: copy, slices; by
 * a value: value; or the legacy one has but a command behind another's work: event, record, flags, until, batch; or a
 * context is to wait for that, of which no stream knows yet: context, parts; another context writes there then */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <stdbool.h>

enum { SIZE = 4 << 20, STEPS = 1000 };
static const struct timespec briefly = {.tv_nsec = 200000000};
static CUcontext context, writes;
static CUdeviceptr next;
static CUstream stream, works;
static void (*hold)(CUstream), (*let_go)(CUstream), (*step)(int);

static void *write_there(void *unused) {
    NEED(cuCtxSetCurrent(writes));
    NEED(cuMemsetD8Async(next, 2, SIZE, stream));
    step(STEPS);
    NEED(cuCtxSetCurrent(context));
    return unused;
}

static void *release(void *unused) {
    NEED(cuCtxSetCurrent(context));
    nanosleep(&briefly, NULL);
    let_go(works);
    return unused;
}

static void copy_slices(CUdeviceptr to, CUdeviceptr from) {
    CUresult (*copy)(CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream);
    CUDA_MEMCPY3D_BATCH_OP op = {
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = from},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = to},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        .extent = {.width = SIZE, .height = 1, .depth = 1},
    };
    *(void **)&copy = sym("cuMemcpy3DWithAttributesAsync");
    NEED(copy(&op, 0, CU_STREAM_LEGACY));
}

static bool is(const char *how, const char *words) {
    return strstr(words, how) != NULL;
}

static CUgreenCtx part;

/* A stream of a part of the device. */
static void create_part(CUstream *out) {
    CUdevResource all, some;
    CUdevResourceDesc of;
    unsigned n = 1;
    NEED(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    NEED(cuDevSmResourceSplitByCount(&some, &n, &all, NULL, 0, 8));
    NEED(cuDevResourceGenerateDesc(&of, &some, 1));
    NEED(cuGreenCtxCreate(&part, of, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    NEED(cuGreenCtxStreamCreate(out, part, CU_STREAM_NON_BLOCKING, 0));
}

/* The work, and what the legacy stream has behind that, if it is another's. */
static void queue(const char *how, CUdeviceptr first, CUdeviceptr other) {
    const unsigned written = 0x01010101, flags = CU_STREAM_WAIT_VALUE_EQ;
    CUstreamBatchMemOpParams op = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32};
    CUevent event;

    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    op.waitValue.address = first;
    op.waitValue.value = written;
    op.waitValue.flags = flags;
    if (is(how, "copy"))
        NEED(cuMemcpyDtoDAsync(first, other, SIZE, works));
    else if (is(how, "slices"))
        copy_slices(first, other);
    else if (is(how, "value"))
        NEED(cuStreamWriteValue32(works, first, 1, 0));
    else
        NEED(cuMemsetD8Async(first, 1, SIZE, works));
    if (is(how, "event")) {
        NEED(cuEventRecord(event, works));
        NEED(cuStreamWaitEvent(CU_STREAM_LEGACY, event, 0));
    } else if (is(how, "context parts")) {
        NEED(cuEventRecord(event, works));
        NEED(part ? cuGreenCtxWaitEvent(part, event) : cuCtxWaitEvent(context, event));
    } else if (is(how, "record")) {
        NEED(cuEventRecord(event, CU_STREAM_LEGACY));
    } else if (is(how, "flags")) {
        NEED(cuEventRecordWithFlags(event, CU_STREAM_LEGACY, 0));
    } else if (is(how, "until")) {
        NEED(cuStreamWaitValue32(CU_STREAM_LEGACY, first, written, flags));
    } else if (is(how, "batch")) {
        NEED(cuStreamBatchMemOp(CU_STREAM_LEGACY, 1, &op, 0));
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "own";
    const bool own = is(how, "own"), asked = is(how, "query");
    CUstream frees = CU_STREAM_LEGACY;
    unsigned char byte = 0;
    CUdeviceptr first, other;
    pthread_t thread;

    writes = context = start();
    *(void **)&hold = sym("vp_sim_hold");
    *(void **)&let_go = sym("vp_sim_release");
    *(void **)&step = sym("vp_sim_step");
    works = own ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    stream = CU_STREAM_PER_THREAD;
    if (!own) {
        if (is(how, "parts"))
            create_part(&frees);
        else
            NEED(cuStreamCreate(&frees, CU_STREAM_DEFAULT));
        if (is(how, "context"))
            NEED(cuCtxCreate(&writes, NULL, 0, 0));
        NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        NEED(cuCtxSetCurrent(context));
    }
    if (is(how, "event record flags until batch context parts"))
        NEED(cuStreamCreate(&works, is(how, "event context parts") ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    NEED(cuMemAllocAsync(&other, SIZE, stream == CU_STREAM_PER_THREAD ? CU_STREAM_LEGACY : stream));
    NEED(cuMemAllocAsync(&first, SIZE, frees));
    NEED(cuCtxSynchronize());
    hold(works);
    queue(how, first, other);
    NEED(cuMemFreeAsync(first, frees));
    NEED(cuMemAllocAsync(&next, SIZE, frees));
    if (!own)
        NEED(pthread_create(&thread, NULL, release, NULL));
    if (!own && !asked)
        NEED(cuStreamSynchronize(frees));
    while (asked && cuStreamQuery(frees) == CUDA_ERROR_NOT_READY)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (own) {
        NEED(pthread_create(&thread, NULL, write_there, NULL));
        NEED(pthread_join(thread, NULL));
        let_go(works);
    } else {
        write_there(NULL);
        NEED(pthread_join(thread, NULL));
    }
    NEED(cuCtxSynchronize());
    NEED(cuMemcpyDtoH(&byte, next, 1));
    printf("byte %d\n", byte);
    return 0;
}
