/* Stream capture, and the graphs that it makes.
 *
 * A captured op becomes a node: an op that depends on the nodes before it. An executable has copies of all nodes. A
 * launch replays them in the order of capture on the launching stream, which is one of the orders that the graph
 * allows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- captures ---- */

struct sim_capture *sim_capture_find(uint64_t id) {
    struct sim_capture *capture;
    LIST_FOREACH(capture, &sim.captures, link)
    if (capture->id == id)
        return capture;
    return NULL;
}

/* Which captures a potentially unsafe call of this thread conflicts with, by the documented rule. */
static bool conflicts(const struct sim_capture *capture, const struct sim_thread *self) {
    bool own = capture->thread == self->id && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    switch (self->capture_mode) {
    case CU_STREAM_CAPTURE_MODE_GLOBAL: return own || capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: return own;
    default: return false;
    }
}

CUresult sim_capture_unsafe(void) {
    const struct sim_thread *self = sim_self();
    CUresult result = CUDA_SUCCESS;
    struct sim_capture *capture;
    LIST_FOREACH(capture, &sim.captures, link)
    if (conflicts(capture, self)) {
        capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

static bool belongs(const struct sim_stream *stream, const struct sim_context *context) {
    return stream->context == context || stream->context->parent == context;
}

static struct sim_stream *next_capturing(const struct sim_context *context, struct sim_context **at,
                                         struct sim_stream *after) {
    struct sim_stream *stream = after ? LIST_NEXT(after, link) : NULL;
    struct sim_context *c = after ? *at : LIST_FIRST(&sim.contexts);
    for (; c; c = LIST_NEXT(c, link)) {
        if (c != *at || !after)
            stream = LIST_FIRST(&c->streams);
        after = NULL;
        for (; stream; stream = LIST_NEXT(stream, link))
            if (stream->capture && belongs(stream, context)) {
                *at = c;
                return stream;
            }
    }
    return NULL;
}

#define EACH_CAPTURING(stream, context, at)                                                                            \
    for (struct sim_stream *stream = next_capturing(context, &at, NULL); stream;                                       \
         stream = next_capturing(context, &at, stream))

void sim_capture_invalidate_context(const struct sim_context *context) {
    struct sim_context *at = NULL;
    EACH_CAPTURING(stream, context, at)
    stream->capture->invalid = true;
}

bool sim_capture_in_context(const struct sim_context *context) {
    struct sim_context *at = NULL;
    return !LIST_EMPTY(&sim.captures) && next_capturing(context, &at, NULL);
}

bool sim_capture_blocking(const struct sim_context *context) {
    struct sim_context *at = NULL;
    if (LIST_EMPTY(&sim.captures))
        return false;
    EACH_CAPTURING(stream, context, at)
    if (stream->blocking && stream->context == context)
        return true;
    return false;
}

void sim_graph_add(struct sim_graph *graph, struct sim_op *op) {
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 16;
        graph->nodes = realloc(graph->nodes, graph->room * sizeof(*graph->nodes));
        if (!graph->nodes)
            abort();
    }
    op->graph = graph;
    op->node = ++sim.next_id;
    graph->nodes[graph->count++] = op;
}

void sim_capture_append(struct sim_stream *stream, struct sim_op *op) {
    op->stream = stream;
    sim_op_follow(op, stream->capture_tail);
    sim_graph_add(stream->capture->graph, op);
    sim_op_put(stream->capture_tail);
    stream->capture_tail = sim_op_get(op);
}

CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event) {
    struct sim_capture *capture = event->capture ? sim_capture_find(event->capture) : NULL;
    if (stream->capture && !event->capture) {
        if (!event->op)
            return CUDA_SUCCESS; /* never recorded: nothing to wait for */
        stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!capture || capture->invalid)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture && stream->capture != capture) {
        stream->capture->invalid = capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->kind == SIM_STREAM_LEGACY) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    stream->capture = capture;
    struct sim_op *op = sim_op_new(SIM_OP_NOP);
    sim_op_follow(op, event->node);
    sim_capture_append(stream, op);
    return CUDA_SUCCESS;
}

static void leave(struct sim_stream *stream) {
    stream->capture = NULL;
    sim_op_put(stream->capture_tail);
    stream->capture_tail = NULL;
}

void sim_graph_put(struct sim_graph *graph) {
    if (!graph || --graph->refs)
        return;
    while (!LIST_EMPTY(&graph->blocks))
        sim_block_destroy(LIST_FIRST(&graph->blocks));
    for (size_t i = graph->count; i-- > 0;)
        sim_op_put(graph->nodes[i]);
    free(graph->nodes);
    free(graph);
}

static void capture_end(struct sim_capture *capture) {
    struct sim_context *context;
    struct sim_stream *stream;
    LIST_FOREACH(context, &sim.contexts, link)
    LIST_FOREACH(stream, &context->streams, link)
    if (stream->capture == capture)
        leave(stream);
    LIST_REMOVE(capture, link);
    free(capture);
}

void sim_capture_leave(struct sim_stream *stream) {
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return;
    if (capture->origin == stream) {
        sim_graph_put(capture->graph);
        capture_end(capture);
    } else { /* a program may destroy a stream that it has joined back: what it captured stays */
        leave(stream);
    }
}

/* Begins a capture into `graph`, after `tail`; takes over a reference to each. NULL: into a new graph. */
static CUresult begin(CUstream handle, CUstreamCaptureMode mode, struct sim_graph *graph, struct sim_op *tail) {
    struct sim_stream *stream;
    CUresult result = sim_stream_of(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if ((result = sim_capture_implicit(stream)) != CUDA_SUCCESS)
        return result;
    if (stream->kind == SIM_STREAM_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *capture = calloc(1, sizeof(*capture));
    if (!graph && (graph = calloc(1, sizeof(*graph))))
        graph->refs = 1;
    if (!capture || !graph)
        abort();
    capture->first = graph->count;
    stream->capture_tail = tail;
    capture->id = ++sim.next_id;
    capture->mode = mode;
    capture->thread = sim_self()->id;
    capture->origin = stream;
    capture->graph = graph;
    LIST_INSERT_HEAD(&sim.captures, capture, link);
    stream->capture = capture;
    return CUDA_SUCCESS;
}

#undef cuStreamBeginCapture
SIM_STREAM_API(_ptsz, 0, 10000, cuStreamBeginCapture, (CUstream handle), (handle)) {
    return begin(handle, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL);
}

SIM_STREAM_API(_ptsz, 0, 10010, cuStreamBeginCapture_v2, (CUstream handle, CUstreamCaptureMode mode), (handle, mode)) {
    return begin(handle, mode, NULL, NULL);
}

#if CUDA_VERSION >= 12030
SIM_STREAM_API(_ptsz, 0, 12030, cuStreamBeginCaptureToGraph,
               (CUstream handle, CUgraph graph_handle, const CUgraphNode *after, const CUgraphEdgeData *edges,
                size_t count, CUstreamCaptureMode mode),
               (handle, graph_handle, after, edges, count, mode)) {
    struct sim_graph *graph = graph_handle ? sim_handle_get(SIM_GRAPH, graph_handle) : NULL;
    (void)edges;
    if (!graph || (count && !after))
        return CUDA_ERROR_INVALID_VALUE;
    /* Not a node: it combines the nodes that the first captured one depends on. */
    struct sim_op *tail = count == 1 ? sim_op_get((struct sim_op *)after[0]) : count ? sim_op_new(SIM_OP_NOP) : NULL;
    for (size_t i = 0; count > 1 && i < count; i++)
        sim_op_follow(tail, (struct sim_op *)after[i]);
    CUresult result = begin(handle, mode, graph, tail);
    if (result == CUDA_SUCCESS)
        graph->refs++;
    else
        sim_op_put(tail);
    return result;
}
#endif

/* The graph's old contents are dropped. Whether the new ones match them, and the callback if not, are not modelled. */
SIM_STREAM_API(_ptsz, 0, 13030, cuStreamBeginRecaptureToGraph,
               (CUstream handle, CUstreamCaptureMode mode, CUgraph graph_handle, CUgraphRecaptureCallback differs,
                void *data),
               (handle, mode, graph_handle, differs, data)) {
    struct sim_graph *graph = graph_handle ? sim_handle_get(SIM_GRAPH, graph_handle) : NULL;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = begin(handle, mode, graph, NULL);
    if (result == CUDA_SUCCESS) {
        graph->refs++;
        while (graph->count)
            sim_op_put(graph->nodes[--graph->count]);
        LIST_FIRST(&sim.captures)->first = 0;
    }
    return result;
}

static void reach(struct sim_op *op) {
    for (; op && !op->mark; op = op->dep_count ? op->deps[0] : NULL) {
        op->mark = true;
        for (unsigned i = 1; i < op->dep_count; i++)
            reach(op->deps[i]);
    }
}

/* Does everything captured lead to the end of the origin stream? */
static bool joined(const struct sim_capture *capture) {
    reach(capture->origin->capture_tail);
    for (size_t i = capture->first; i < capture->graph->count; i++)
        if (!capture->graph->nodes[i]->mark)
            return false;
    return true;
}

SIM_STREAM_API(_ptsz, SIM_SURE, 10000, cuStreamEndCapture, (CUstream handle, CUgraph *out), (handle, out)) {
    struct sim_stream *stream;
    CUresult result = sim_stream_of(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_capture *capture = stream->capture;
    if (out)
        *out = NULL;
    if ((result = sim_capture_implicit(stream)) != CUDA_SUCCESS)
        return result;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (capture->thread != sim_self()->id && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; /* the capture ends all the same (H200) */
    else if (!out && !capture->graph->handle)            /* a capture into the program's graph has that already */
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (result == CUDA_SUCCESS && capture->graph->refs == 1 && !capture->graph->handle) {
        *out = capture->graph->handle = sim_handle_new(SIM_GRAPH, capture->graph);
    } else {
        if (result != CUDA_SUCCESS)
            capture->graph->broken = true;
        else if (out)
            *out = capture->graph->handle;
        sim_graph_put(capture->graph);
    }
    capture_end(capture);
    return result;
}

/* Asking for a capture's state harms nothing, even on the legacy stream. */
static CUresult capture_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id) {
    struct sim_stream *stream;
    CUresult result = sim_stream_of(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->kind == SIM_STREAM_LEGACY && sim_capture_blocking(stream->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
        *id = stream->capture->id;
    return CUDA_SUCCESS;
}

SIM_STREAM_API(_ptsz, SIM_SURE, 10000, cuStreamIsCapturing, (CUstream handle, CUstreamCaptureStatus *status),
               (handle, status)) {
    sim_cost(40);
    return capture_info(handle, status, NULL);
}

/* What the stream's next node will depend on. A graph under capture has no handle here, unless it had one before. */
static void captured_so_far(CUstream handle, CUgraph *graph, const CUgraphNode **dependencies, size_t *count) {
    struct sim_stream *stream;
    bool any = sim_stream_of(handle, &stream) == CUDA_SUCCESS && stream->capture && stream->capture_tail;
    if (graph)
        *graph = any ? stream->capture->graph->handle : NULL;
    if (dependencies)
        *dependencies = any ? (const CUgraphNode *)(void *)&stream->capture_tail : NULL;
    if (count)
        *count = any;
}

SIM_STREAM_API(_ptsz, SIM_SURE, 11030, cuStreamGetCaptureInfo_v2,
               (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                const CUgraphNode **dependencies, size_t *count),
               (handle, status, id, graph, dependencies, count)) {
    captured_so_far(handle, graph, dependencies, count);
    return capture_info(handle, status, id);
}

#if CUDA_VERSION >= 12030
SIM_STREAM_API(_ptsz, SIM_SURE, 12030, cuStreamGetCaptureInfo_v3,
               (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count),
               (handle, status, id, graph, dependencies, edges, count)) {
    captured_so_far(handle, graph, dependencies, count);
    if (edges)
        *edges = NULL;
    return capture_info(handle, status, id);
}
#endif

SIM_API(SIM_SURE, 10010, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode)) {
    struct sim_thread *self = sim_self();
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode old = self->capture_mode;
    self->capture_mode = *mode;
    *mode = old;
    sim_cost(8);
    return CUDA_SUCCESS;
}

/* ---- graphs ---- */

struct sim_op *sim_op_again(const struct sim_op *node) {
    struct sim_op *op = sim_op_new(node->kind);
    *op = *node;
    op->refs = 1;
    op->mark = op->done = false;
    op->graph = op->launched = NULL;
    op->original = node->node;
    op->deps = NULL;
    op->dep_count = op->dep_room = 0;
    if (op->kind == SIM_OP_COPY && op->copy.staged) {
        size_t size = op->copy.width * op->copy.height;
        op->copy.staged = malloc(size);
        if (!op->copy.staged)
            abort();
        memcpy(op->copy.staged, node->copy.staged, size);
    }
    if (op->kind == SIM_OP_GRAPH || op->kind == SIM_OP_CONDITIONAL)
        op->child = sim_child_copy(node->child);
    return op;
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
    struct sim_graph *graph = handle ? sim_handle_get(SIM_GRAPH, handle) : NULL;
    CUresult why;
    if (!out || !graph || graph->moved)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_current(&why))
        return why;
    /* CUDA's documentation forbids this, and does not say with which error. */
    if (graph->execs && sim_graph_has(graph, SIM_MEMORY_NODES))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_exec *exec = calloc(1, sizeof(*exec));
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph->refs++;
    graph->execs++;
    exec->graph = graph;
    struct sim_flat flat = {0};
    sim_graph_flatten(graph, &flat);
    exec->count = flat.count;
    exec->nodes = calloc(3 * flat.count + 1, sizeof(*exec->nodes));
    if (!exec->nodes)
        abort();
    exec->of = exec->nodes + flat.count;
    exec->top = exec->of + flat.count;
    for (size_t i = 0; i < flat.count; i++) {
        exec->of[i] = sim_op_get(flat.ops[i]);
        exec->top[i] = sim_op_get(flat.tops[i]);
        exec->nodes[i] = sim_op_again(flat.ops[i]);
    }
    sim_flat_free(&flat);
    exec->flags = flags;
    *out = exec->handle = sim_handle_new(SIM_EXEC, exec);
    return CUDA_SUCCESS;
}

#undef cuGraphInstantiate
SIM_API(0, 10000, cuGraphInstantiate, (CUgraphExec * exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size),
        (exec, graph, failed, log, size)) {
    (void)failed, (void)log, (void)size;
    return instantiate(exec, graph, 0);
}

SIM_API(0, 11000, cuGraphInstantiate_v2,
        (CUgraphExec * exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size),
        (exec, graph, failed, log, size)) {
    (void)failed, (void)log, (void)size;
    return instantiate(exec, graph, 0);
}

SIM_API(0, 11040, cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
        (exec, graph, flags)) {
    return instantiate(exec, graph, flags);
}

#if CUDA_VERSION >= 12000
SIM_STREAM_API(_ptsz, 0, 12000, cuGraphInstantiateWithParams,
               (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (exec, graph, params)) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return instantiate(exec, graph, params->flags);
}
#endif

/* A launch in a capture becomes a node that holds the launched graph. */
static CUresult capture_launch(const struct sim_exec *exec, struct sim_stream *stream) {
    if (sim_graph_has(exec->graph, SIM_MEMORY_NODES | 1u << SIM_OP_CONDITIONAL))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_graph *graph = calloc(1, sizeof(*graph));
    if (!graph)
        abort();
    graph->refs = 1;
    for (size_t i = 0; i < exec->count; i++) {
        struct sim_op *op = sim_op_again(exec->nodes[i]);
        sim_op_follow(op, i ? graph->nodes[i - 1] : NULL);
        sim_graph_add(graph, op);
    }
    sim_op_enqueue(stream, sim_child_op(SIM_OP_GRAPH, 1, 0, &graph));
    return CUDA_SUCCESS;
}

SIM_STREAM_API(_ptsz, 0, 10000, cuGraphLaunch, (CUgraphExec handle, CUstream stream_handle), (handle, stream_handle)) {
    struct sim_stream *stream;
    struct sim_exec *exec = handle ? sim_handle_get(SIM_EXEC, handle) : NULL;
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_stream_for_work(stream_handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture)
        return capture_launch(exec, stream);
    if (!sim_graph_may_launch(exec))
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_memory_take_unfreed(exec, stream);
    for (size_t i = 0; i < exec->count; i++) {
        struct sim_op *op = sim_op_again(exec->nodes[i]);
        if (op->kind == SIM_OP_ALLOC)
            sim_graph_memory_give(op->block);
        if (op->kind == SIM_OP_FREE)
            sim_graph_memory_take(op->block);
        op->launched = exec->graph;
        op->launched->refs++;
        if (!i && exec->last)
            sim_op_depend(op, exec->last);
        if (i + 1 == exec->count) {
            sim_op_put(exec->last);
            exec->last = sim_op_get(op);
        }
        sim_op_enqueue(stream, op);
    }
    return CUDA_SUCCESS;
}

SIM_STREAM_API(_ptsz, 0, 11010, cuGraphUpload, (CUgraphExec handle, CUstream stream), (handle, stream)) {
    struct sim_stream *unused;
    return handle && sim_handle_get(SIM_EXEC, handle) ? sim_stream_of(stream, &unused) : CUDA_ERROR_INVALID_VALUE;
}

static void exec_free(void *item, void *arg) {
    struct sim_exec *exec = item;
    (void)arg;
    sim_handle_free(SIM_EXEC, exec->handle);
    for (size_t i = 0; i < 3 * exec->count; i++)
        sim_op_put(exec->nodes[i]);
    sim_op_put(exec->last);
    free(exec->nodes);
    exec->graph->execs--;
    sim_graph_put(exec->graph);
    free(exec);
}

SIM_API(SIM_SURE, 10000, cuGraphExecDestroy, (CUgraphExec handle), (handle)) {
    struct sim_exec *exec = handle ? sim_handle_get(SIM_EXEC, handle) : NULL;
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    exec_free(exec, NULL);
    return CUDA_SUCCESS;
}

static void graph_free(void *item, void *arg) {
    struct sim_graph *graph = item;
    (void)arg;
    if (graph->embedded)
        return;
    sim_handle_free(SIM_GRAPH, graph->handle);
    graph->handle = NULL;
    sim_graph_put(graph);
}

SIM_API(SIM_SURE, 10000, cuGraphDestroy, (CUgraph handle), (handle)) {
    struct sim_graph *graph = handle ? sim_handle_get(SIM_GRAPH, handle) : NULL;
    if (!graph || graph->embedded)
        return CUDA_ERROR_INVALID_VALUE;
    graph_free(graph, NULL);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 10000, cuGraphGetNodes, (CUgraph handle, CUgraphNode *nodes, size_t *count), (handle, nodes, count)) {
    struct sim_graph *graph = handle ? sim_handle_get(SIM_GRAPH, handle) : NULL;
    if (!graph || !count || graph->broken) /* seen on an H200 */
        return CUDA_ERROR_INVALID_VALUE;
    if (nodes)
        for (size_t i = 0; i < *count && i < graph->count; i++)
            nodes[i] = (CUgraphNode)graph->nodes[i];
    *count = graph->count;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 10000, cuGraphCreate, (CUgraph * out, unsigned int flags), (out, flags)) {
    struct sim_graph *graph = out && !flags ? calloc(1, sizeof(*graph)) : NULL;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    graph->refs = 1;
    *out = graph->handle = sim_handle_new(SIM_GRAPH, graph);
    return CUDA_SUCCESS;
}

bool sim_graph_append(CUgraph handle, struct sim_op *op, const CUgraphNode *after, size_t count) {
    struct sim_graph *graph = handle ? sim_handle_get(SIM_GRAPH, handle) : NULL;
    if (!graph)
        return false;
    for (size_t i = 0; i < count; i++)
        sim_op_follow(op, (struct sim_op *)after[i]);
    sim_graph_add(graph, op);
    return true;
}

void sim_graphs_reset(void) {
    while (!LIST_EMPTY(&sim.captures)) {
        struct sim_capture *capture = LIST_FIRST(&sim.captures);
        sim_graph_put(capture->graph);
        capture_end(capture);
    }
    sim_handle_each(SIM_EXEC, exec_free, NULL)
        ;
    sim_handle_each(SIM_GRAPH, graph_free, NULL)
        ;
    sim_graph_memory_reset();
}
