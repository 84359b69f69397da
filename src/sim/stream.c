/* Streams: handles, creation and destruction, queries, and the host's waits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"

#include <stdlib.h>

struct sim_stream *sim_stream_new(struct sim_context *context, enum sim_stream_kind kind, unsigned flags,
                                  int priority) {
    struct sim_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        abort();
    TAILQ_INIT(&stream->queue);
    stream->id = ++sim.next_id;
    stream->kind = kind;
    stream->blocking = kind != SIM_STREAM_LEGACY && !(flags & CU_STREAM_NON_BLOCKING);
    stream->flags = flags;
    stream->priority = priority;
    stream->context = context;
    if (kind == SIM_STREAM_PLAIN)
        stream->handle = sim_handle_new(SIM_STREAM, stream);
    LIST_INSERT_HEAD(&context->streams, stream, link);
    return stream;
}

void sim_stream_free(struct sim_stream *stream) {
    LIST_REMOVE(stream, link);
    free(stream);
}

void sim_stream_drop(struct sim_stream *stream) {
    sim_capture_leave(stream);
    if (stream->handle)
        sim_handle_free(SIM_STREAM, stream->handle);
    stream->destroyed = true;
    stream->held = false;
    sim_timed_look(stream);
    if (!stream->queued)
        sim_stream_free(stream);
}

static pthread_key_t thread_key;

/* A thread's own streams end with it, and so do their captures; what they have queued still runs. */
static void thread_ends(void *unused) {
    struct sim_context *context;
    struct sim_stream *stream, *next;
    (void)unused;
    pthread_mutex_lock(&sim.lock);
    unsigned long id = sim_self()->id;
    LIST_FOREACH(context, &sim.contexts, link)
    for (stream = LIST_FIRST(&context->streams); stream; stream = next) {
        next = LIST_NEXT(stream, link);
        if (stream->kind == SIM_STREAM_THREAD && stream->thread == id && !stream->destroyed)
            sim_stream_drop(stream);
    }
    pthread_mutex_unlock(&sim.lock);
}

static void make_thread_key(void) {
    pthread_key_create(&thread_key, thread_ends);
}

static struct sim_stream *thread_stream(struct sim_context *context) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned long id = sim_self()->id;
    struct sim_stream *stream;
    pthread_once(&once, make_thread_key);
    pthread_setspecific(thread_key, &thread_key);
    LIST_FOREACH(stream, &context->streams, link)
    if (stream->kind == SIM_STREAM_THREAD && stream->thread == id && !stream->destroyed)
        return stream;
    stream = sim_stream_new(context, SIM_STREAM_THREAD, CU_STREAM_DEFAULT, 0);
    stream->thread = id;
    return stream;
}

/* CUDA_ERROR_STREAM_DETACHED, from 13.1 on. */
static const CUresult STREAM_DETACHED = (CUresult)917;

void sim_stream_detach(struct sim_stream *stream) {
    if (stream->kind != SIM_STREAM_PLAIN || sim.options.driver < 13010) {
        sim_stream_drop(stream);
        return;
    }
    sim_capture_leave(stream);
    stream->detached = true;
    stream->held = false;
}

CUresult sim_stream_of(CUstream handle, struct sim_stream **stream) {
    if ((uintptr_t)handle > (uintptr_t)CU_STREAM_PER_THREAD) {
        *stream = sim_handle_get(SIM_STREAM, handle);
        return !*stream ? CUDA_ERROR_INVALID_HANDLE : (*stream)->detached ? STREAM_DETACHED : CUDA_SUCCESS;
    }
    CUresult why;
    struct sim_context *context = sim_current(&why);
    *stream = NULL;
    if (!context)
        return why;
    bool per_thread = handle == CU_STREAM_PER_THREAD || (handle == NULL && sim_self()->per_thread_call);
    *stream = per_thread ? thread_stream(context) : context->legacy;
    return CUDA_SUCCESS;
}

/* The legacy stream would have to wait for the capturing stream, whose work does not exist yet. */
CUresult sim_capture_implicit(const struct sim_stream *stream) {
    if (stream->kind != SIM_STREAM_LEGACY || !sim_capture_blocking(stream->context))
        return CUDA_SUCCESS;
    sim_capture_invalidate_context(stream->context);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult sim_stream_for_work(CUstream handle, struct sim_stream **stream) {
    CUresult result = sim_stream_of(handle, stream);
    if (result != CUDA_SUCCESS)
        return result;
    if ((*stream)->capture && (*stream)->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return sim_capture_implicit(*stream);
}

/* A query of what a stream is. It fails for a capture that has failed, and for the legacy stream while a stream that it
 * would wait for captures. */
static CUresult stream_asked(CUstream handle, struct sim_stream **stream) {
    CUresult result = sim_stream_of(handle, stream);
    if (result != CUDA_SUCCESS)
        return result;
    return (*stream)->capture && (*stream)->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                                             : sim_capture_implicit(*stream);
}

/* Other queries end the capture of the stream itself. */
static CUresult stream_named(CUstream handle, struct sim_stream **stream) {
    CUresult result = sim_stream_of(handle, stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!(*stream)->capture)
        return sim_capture_implicit(*stream);
    (*stream)->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* A question about a stream's progress: a capturing stream has none, and asking is unsafe during other
 * captures. */
static CUresult refuse_capturing(struct sim_stream *stream) {
    if (!stream->capture) {
        CUresult result = sim_capture_implicit(stream);
        return result == CUDA_SUCCESS ? sim_capture_unsafe() : result;
    }
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult create(CUstream *handle, unsigned flags, int priority) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    if (!handle || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    if (!context)
        return why;
    *handle = sim_stream_new(context, SIM_STREAM_PLAIN, flags, priority)->handle;
    return CUDA_SUCCESS;
}

SIM_API(0, 2000, cuStreamCreate, (CUstream * stream, unsigned int flags), (stream, flags)) {
    return create(stream, flags, 0);
}

SIM_API(0, 5050, cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority),
        (stream, flags, priority)) {
    return create(stream, flags, priority);
}

SIM_API(SIM_SURE, 4000, cuStreamDestroy_v2, (CUstream handle), (handle)) {
    if ((uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_stream *stream = sim_handle_get(SIM_STREAM, handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_stream_drop(stream);
    return CUDA_SUCCESS;
}

SIM_STREAM_API(_ptsz, 0, 2000, cuStreamQuery, (CUstream handle), (handle)) {
    struct sim_stream *stream;
    CUresult result = sim_stream_of(handle, &stream);
    if (result != CUDA_SUCCESS || (result = refuse_capturing(stream)) != CUDA_SUCCESS)
        return result;
    sim_cost(140);
    sim_progress_query();
    struct sim_op *barrier = sim_barrier_stream(stream);
    bool done = sim_op_done(barrier);
    sim_op_put(barrier);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_STREAM_API(_ptsz, 0, 2000, cuStreamSynchronize, (CUstream handle), (handle)) {
    struct sim_stream *stream;
    CUresult result = sim_stream_of(handle, &stream);
    if (result != CUDA_SUCCESS || (result = refuse_capturing(stream)) != CUDA_SUCCESS)
        return result;
    int device = stream->context->device;
    uint64_t id = stream->id;
    result = sim_op_wait_put(sim_barrier_stream(stream));
    sim_pools_settle(device, id);
    return result;
}

SIM_STREAM_API(_ptsz, SIM_SURE, 12000, cuStreamGetId, (CUstream handle, unsigned long long *id), (handle, id)) {
    struct sim_stream *stream;
    CUresult result = stream_named(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    sim_cost(14);
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = stream->id;
    return CUDA_SUCCESS;
}

SIM_STREAM_API(_ptsz, SIM_SURE, 9020, cuStreamGetCtx, (CUstream handle, CUcontext *context), (handle, context)) {
    struct sim_stream *stream;
    CUresult result = stream_asked(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = stream->context->handle;
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12050
SIM_STREAM_API(_ptsz, SIM_SURE, 12050, cuStreamGetCtx_v2, (CUstream handle, CUcontext *context, CUgreenCtx *green),
               (handle, context, green)) {
    struct sim_stream *stream;
    CUresult result = sim_stream_of(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (context)
        *context = stream->context->green ? NULL : stream->context->handle;
    if (green)
        *green = stream->context->green;
    return CUDA_SUCCESS;
}
#endif

SIM_STREAM_API(_ptsz, SIM_SURE, 12080, cuStreamGetDevice, (CUstream handle, CUdevice *device), (handle, device)) {
    struct sim_stream *stream;
    CUresult result = device ? sim_stream_of(handle, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *device = stream->context->device;
    return result;
}

SIM_STREAM_API(_ptsz, SIM_SURE, 5050, cuStreamGetFlags, (CUstream handle, unsigned int *flags), (handle, flags)) {
    struct sim_stream *stream;
    CUresult result = flags ? stream_named(handle, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *flags = stream->flags;
    return result;
}

SIM_STREAM_API(_ptsz, SIM_SURE, 5050, cuStreamGetPriority, (CUstream handle, int *priority), (handle, priority)) {
    struct sim_stream *stream;
    CUresult result = priority ? stream_asked(handle, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *priority = stream->priority;
    return result;
}

static CUresult host_function(CUstream handle, CUhostFn fn, void *arg) {
    struct sim_stream *stream;
    CUresult result = sim_stream_for_work(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = sim_op_new(SIM_OP_HOST);
    op->host.fn = fn;
    op->host.arg = arg;
    sim_op_enqueue(stream, op);
    return CUDA_SUCCESS;
}

SIM_STREAM_API(_ptsz, 0, 10000, cuLaunchHostFunc, (CUstream handle, CUhostFn fn, void *arg), (handle, fn, arg)) {
    return host_function(handle, fn, arg);
}

SIM_STREAM_API(_ptsz, 0, 13010, cuLaunchHostFunc_v2, (CUstream handle, CUhostFn fn, void *arg, unsigned int sync),
               (handle, fn, arg, sync)) {
    return sync > 1 ? CUDA_ERROR_INVALID_VALUE : host_function(handle, fn, arg);
}

SIM_STREAM_API(_ptsz, 0, 5000, cuStreamAddCallback,
               (CUstream handle, CUstreamCallback callback, void *arg, unsigned int flags),
               (handle, callback, arg, flags)) {
    struct sim_stream *stream;
    CUresult result = sim_stream_for_work(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return refuse_capturing(stream);
    struct sim_op *op = sim_op_new(SIM_OP_HOST);
    op->host.callback = callback;
    op->host.handle = handle;
    op->host.arg = arg;
    sim_op_enqueue(stream, op);
    return CUDA_SUCCESS;
}

/* ---- stream memory operations ---- */

static CUresult queue_value(CUstream handle, enum sim_op_kind kind, CUdeviceptr at, uint64_t value, unsigned flags,
                            bool wide) {
    struct sim_stream *stream;
    CUresult result = sim_stream_for_work(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    const struct sim_block *block = sim_block_find((uintptr_t)at);
    if (!at || at % (wide ? 8 : 4) || (block && block->kind == SIM_BLOCK_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    sim_cost(1750);
    struct sim_op *op = sim_op_new(kind);
    op->value.at = (uintptr_t)at;
    op->value.value = value;
    op->value.flags = flags;
    op->value.wide = wide;
    sim_op_enqueue(stream, op);
    return CUDA_SUCCESS;
}

#define VALUE_API(fn, since, kind, type, wide)                                                                         \
    SIM_STREAM_API(_ptsz, 0, since, fn, (CUstream stream, CUdeviceptr at, type value, unsigned int flags),             \
                   (stream, at, value, flags)) {                                                                       \
        return queue_value(stream, kind, at, value, flags, wide);                                                      \
    }

#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64
#undef cuStreamBatchMemOp

VALUE_API(cuStreamWaitValue32, 8000, SIM_OP_WAIT_VALUE, cuuint32_t, false)
VALUE_API(cuStreamWaitValue64, 9000, SIM_OP_WAIT_VALUE, cuuint64_t, true)
VALUE_API(cuStreamWriteValue32, 8000, SIM_OP_WRITE_VALUE, cuuint32_t, false)
VALUE_API(cuStreamWriteValue64, 9000, SIM_OP_WRITE_VALUE, cuuint64_t, true)
VALUE_API(cuStreamWaitValue32_v2, 11070, SIM_OP_WAIT_VALUE, cuuint32_t, false)
VALUE_API(cuStreamWaitValue64_v2, 11070, SIM_OP_WAIT_VALUE, cuuint64_t, true)
VALUE_API(cuStreamWriteValue32_v2, 11070, SIM_OP_WRITE_VALUE, cuuint32_t, false)
VALUE_API(cuStreamWriteValue64_v2, 11070, SIM_OP_WRITE_VALUE, cuuint64_t, true)

static CUresult queue_batch(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *params, unsigned flags) {
    CUresult result = flags || count > 256 || (count && !params) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUstreamBatchMemOpParams *p = &params[i];
        bool wide = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        bool waits = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        if (waits)
            result = queue_value(stream, SIM_OP_WAIT_VALUE, p->waitValue.address,
                                 wide ? p->waitValue.value64 : p->waitValue.value, p->waitValue.flags, wide);
        else if (wide || p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
            result = queue_value(stream, SIM_OP_WRITE_VALUE, p->writeValue.address,
                                 wide ? p->writeValue.value64 : p->writeValue.value, p->writeValue.flags, wide);
    }
    return result;
}

SIM_STREAM_API(_ptsz, 0, 8000, cuStreamBatchMemOp,
               (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params, unsigned int flags),
               (stream, count, params, flags)) {
    return queue_batch(stream, count, params, flags);
}

SIM_STREAM_API(_ptsz, 0, 11070, cuStreamBatchMemOp_v2,
               (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params, unsigned int flags),
               (stream, count, params, flags)) {
    return queue_batch(stream, count, params, flags);
}
