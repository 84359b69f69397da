/* Events: a name for the op that recorded them last. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"

#include <stdlib.h>

/* Costs in nanoseconds, as measured. */
enum { COST_CREATE = 140, COST_RECORD = 170, COST_RECORD_LEGACY = 250, COST_QUERY = 140, COST_WAIT = 180 };

static struct sim_context *root(struct sim_context *context) {
    return context->parent ? context->parent : context;
}

static struct sim_event *event_of(CUevent handle) {
    return handle ? sim_handle_get(SIM_EVENT, handle) : NULL;
}

void sim_event_drop(struct sim_event *event) {
    sim_op_put(event->op);
    sim_op_put(event->node);
    sim_handle_free(SIM_EVENT, event->handle);
    LIST_REMOVE(event, link);
    free(event);
}

static void set_record(struct sim_event *event, struct sim_op *op) {
    sim_op_put(event->op);
    sim_op_put(event->node);
    event->op = op;
    event->node = NULL;
    event->capture = 0;
}

SIM_API(0, 2000, cuEventCreate, (CUevent * handle, unsigned int flags), (handle, flags)) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    if (!context)
        return why;
    unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!handle || (flags & ~known) || ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_event *event = calloc(1, sizeof(*event));
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->context = context;
    event->flags = flags;
    event->handle = *handle = sim_handle_new(SIM_EVENT, event);
    LIST_INSERT_HEAD(&context->events, event, link);
    sim_cost(COST_CREATE);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 4000, cuEventDestroy_v2, (CUevent handle), (handle)) {
    struct sim_event *event = event_of(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_event_drop(event);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent handle, CUstream stream_handle) {
    struct sim_stream *stream;
    struct sim_event *event = event_of(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_stream_for_work(stream_handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (root(event->context) != root(stream->context))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_cost(stream->kind == SIM_STREAM_LEGACY ? COST_RECORD_LEGACY : COST_RECORD);
    if (stream->capture) {
        set_record(event, NULL);
        event->capture = stream->capture->id;
        event->node = sim_op_get(stream->capture_tail);
        return CUDA_SUCCESS;
    }
    struct sim_op *op = sim_op_new(SIM_OP_EVENT);
    set_record(event, sim_op_get(op));
    sim_op_enqueue(stream, op);
    return CUDA_SUCCESS;
}

SIM_STREAM_API(_ptsz, 0, 2000, cuEventRecord, (CUevent event, CUstream stream), (event, stream)) {
    return record(event, stream);
}

SIM_STREAM_API(_ptsz, 0, 11010, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags),
               (event, stream, flags)) {
    /* An external record would be a node of its own in a graph: not modelled. */
    return flags ? CUDA_ERROR_NOT_SUPPORTED : record(event, stream);
}

CUresult sim_event_record_barrier(struct sim_context *context, CUevent handle) {
    struct sim_event *event = event_of(handle);
    if (!event || root(event->context) != root(context))
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_capture_in_context(context)) {
        sim_capture_invalidate_context(context);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    struct sim_op *barrier = sim_barrier_context(context);
    sim_cost(150 + 2 * barrier->dep_count);
    set_record(event, barrier);
    return CUDA_SUCCESS;
}

SIM_API(0, 12050, cuCtxRecordEvent, (CUcontext handle, CUevent event), (handle, event)) {
    CUresult why;
    struct sim_context *context = sim_context_of(handle, &why);
    return context ? sim_event_record_barrier(context, event) : why;
}

/* An event recorded in a capture stands for no work. A query invalidates the capture; after that there is nothing to
 * query. */
static CUresult ask_captured(const struct sim_event *event) {
    struct sim_capture *capture = sim_capture_find(event->capture);
    if (!capture || capture->invalid)
        return CUDA_ERROR_INVALID_VALUE;
    capture->invalid = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

SIM_API(0, 2000, cuEventQuery, (CUevent handle), (handle)) {
    struct sim_event *event = event_of(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture)
        return ask_captured(event);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    sim_cost(COST_QUERY);
    sim_progress_query();
    return sim_op_done(event->op) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_API(0, 2000, cuEventSynchronize, (CUevent handle), (handle)) {
    struct sim_event *event = event_of(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture)
        return ask_captured(event);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    int device = event->context->device;
    /* The event may be recorded again or destroyed by another thread while this one waits. */
    result = event->op ? sim_op_wait_put(sim_op_get(event->op)) : CUDA_SUCCESS;
    sim_pools_settle(device, SIM_NO_STREAM);
    return result;
}

static CUresult elapsed(float *milliseconds, CUevent from, CUevent to) {
    struct sim_event *start = event_of(from), *end = event_of(to);
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start || !end || (start->flags & CU_EVENT_DISABLE_TIMING) || (end->flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!start->op || !end->op)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_op_done(start->op) || !sim_op_done(end->op))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)end->op->when_ns - (double)start->op->when_ns) / 1e6f;
    return CUDA_SUCCESS;
}

#undef cuEventElapsedTime
SIM_API(SIM_SURE, 2000, cuEventElapsedTime, (float *milliseconds, CUevent from, CUevent to), (milliseconds, from, to)) {
    return elapsed(milliseconds, from, to);
}

SIM_API(SIM_SURE, 12080, cuEventElapsedTime_v2, (float *milliseconds, CUevent from, CUevent to),
        (milliseconds, from, to)) {
    return elapsed(milliseconds, from, to);
}

/* ---- waits of the device ---- */

static CUresult wait_on(struct sim_stream *stream, struct sim_event *event) {
    sim_cost(COST_WAIT);
    if (stream->capture || event->capture)
        return sim_capture_wait(stream, event);
    if (sim_op_done(event->op))
        return CUDA_SUCCESS;
    struct sim_op *op = sim_op_new(SIM_OP_NOP);
    sim_op_depend(op, event->op);
    sim_op_enqueue(stream, op);
    return CUDA_SUCCESS;
}

SIM_STREAM_API(_ptsz, 0, 3020, cuStreamWaitEvent, (CUstream handle, CUevent event_handle, unsigned int flags),
               (handle, event_handle, flags)) {
    struct sim_stream *stream;
    struct sim_event *event = event_of(event_handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_stream_for_work(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : wait_on(stream, event);
}

static CUresult context_wait(struct sim_context *context, CUevent handle) {
    struct sim_event *event = event_of(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_capture_in_context(context)) {
        sim_capture_invalidate_context(context);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    /* This queues no command in any stream: a query of an idle stream says that it is idle (H200). */
    struct sim_op *before = context->awaits;
    context->awaits = sim_op_new(SIM_OP_NOP);
    sim_op_depend(context->awaits, before);
    sim_op_depend(context->awaits, event->op);
    sim_op_put(before);
    return CUDA_SUCCESS;
}

SIM_API(0, 12050, cuCtxWaitEvent, (CUcontext handle, CUevent event), (handle, event)) {
    CUresult why;
    struct sim_context *context = sim_context_of(handle, &why);
    return context ? context_wait(context, event) : why;
}

#if CUDA_VERSION >= 12040
SIM_API(0, 12040, cuGreenCtxWaitEvent, (CUgreenCtx green, CUevent event), (green, event)) {
    struct sim_context *context = green ? sim_handle_get(SIM_GREEN, green) : NULL;
    return context ? context_wait(context, event) : CUDA_ERROR_INVALID_CONTEXT;
}
#endif
