/* Captures, and the graphs that come of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <string.h>

int free_graph(void) {
    for (int i = 0; i < GRAPHS; i++)
        if (!world.graphs[i].taken)
            return i;
    return -1;
}

void release_blocks(int graph) {
    for (int i = 0; i < BLOCKS; i++)
        world.blocks[i].graphs &= ~(1u << graph);
}

/* The capture that began on a stream is over: with a graph, or without. A stream that left it by its end spoils it, but
 * it goes on. */
void capture_over(int first, CUstream left) {
    struct stream *s = &world.streams[first];
    if (left)
        return;
    for (int i = 0; i < BLOCKS; i++)
        if (world.blocks[i].kind == GRAPH && world.blocks[i].capture == first)
            forget_block(&world.blocks[i]);
    if (!world.graphs[s->graph].graph) {
        if (s->into) /* its memory would stay with it */
            cuGraphDestroy(s->into);
        release_blocks(s->graph);
        world.graphs[s->graph].taken = false;
    }
    for (int i = 0; i < STREAMS; i++)
        if (world.streams[i].capture == first + 1)
            world.streams[i].capture = 0;
    world.captures--;
}

static void begin(void) {
    int i = pick_made_stream(), g = free_graph(), mode = one_in(30) ? 3 : (int)below(3);
    if (one_in(30)) {
        if (!world.captures)
            CALL(cuStreamBeginCapture, one_in(2) ? NULL : CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL);
        return;
    }
    if (i < 0 || g < 0 || (world.captures && !one_in(4)))
        return;
    struct stream *s = &world.streams[i];
    say(" s%d", i);
    if (!capturing(i)) {
        for (int b = 0; b < BLOCKS; b++)
            if (world.blocks[b].kind && world.blocks[b].last.stream == i && !drained(&world.blocks[b]))
                return;
    }
    CUgraph into = NULL;
    int res = one_in(4) && !cuGraphCreate(&into, 0)
                  ? CALL(cuStreamBeginCaptureToGraph, s->handle, into, NULL, NULL, 0, (CUstreamCaptureMode)mode)
              : world.ptsz ? CALL(cuStreamBeginCapture_v2_ptsz, s->handle, (CUstreamCaptureMode)mode)
                           : CALL(cuStreamBeginCapture_v2, s->handle, (CUstreamCaptureMode)mode);
    if (res && into)
        cuGraphDestroy(into);
    if (res || s->capture)
        return;
    s->into = into;
    s->capture = i + 1;
    s->graph = g;
    s->mode = mode;
    world.graphs[g] = (struct graph){.taken = true, .context = s->context};
    world.captures++;
}

static int pick_capturing(void) {
    int at = (int)below(STREAMS);
    for (int i = 0; i < STREAMS; i++, at = (at + 1) % STREAMS)
        if (capturing(at))
            return at;
    return -1;
}

static void end(void) {
    CUgraph graph = NULL;
    int i = pick_capturing();
    if (i < 0)
        return;
    struct stream *s = &world.streams[i];
    say(" s%d", i);
    int res = CALLS(cuStreamEndCapture, s->handle, &graph);
    say(graph ? " graph" : " none");
    bool goes_on = s->capture != i + 1 || res == CUDA_ERROR_ILLEGAL_STATE || res == CUDA_ERROR_INVALID_HANDLE;
    if (goes_on)
        return;
    world.graphs[s->graph].graph = graph;
    capture_over(i, NULL);
}

/* Another stream takes part, and comes back or not. */
static void fork_capture(void) {
    int i = pick_capturing(), j = pick_made_stream();
    if (i < 0 || j < 0 || j == i)
        return;
    struct stream *s = &world.streams[i], *t = &world.streams[j];
    for (int b = 0; b < BLOCKS; b++)
        if (world.blocks[b].kind && world.blocks[b].last.stream == j)
            return;
    say(" s%d s%d", i, j);
    if (CALL(cuEventRecord, s->event, s->handle) || CALL(cuStreamWaitEvent, t->handle, s->event, 0))
        return;
    bool was = t->capture;
    if (!was)
        t->capture = s->capture;
    int b = pick_block_of(1u << DEVICE | 1u << ASYNC);
    struct block *block = &world.blocks[b < 0 ? 0 : b];
    if (b >= 0 && block->last.stream == -1 && block->device == world.contexts[t->context].device &&
        CALL(cuMemsetD8Async, block->at, 5, block->size, t->handle) == 0)
        block->graphs |= 1u << world.streams[s->capture - 1].graph;
    if (one_in(12))
        return;
    if (CALL(cuEventRecord, t->event, t->handle) == 0)
        CALL(cuStreamWaitEvent, s->handle, t->event, 0);
}

/* Memory of the graph. */
static void alloc_captured(void) {
    int i = pick_capturing(), slot = free_block();
    CUdeviceptr at = 0;
    if (i < 0 || slot < 0)
        return;
    struct stream *s = &world.streams[i];
    size_t size = some_size();
    say(" s%d", i);
    if (CALLS(cuMemAllocAsync, &at, size, s->handle))
        return;
    struct block *b = new_block(GRAPH, at, size, world.contexts[s->context].device, -1);
    b->capture = s->capture - 1;
    CALLS(cuMemsetD8Async, at, 1, size, s->handle);
    /* Copied out of it, so that it is seen that it was there. */
    int to = pick_block_of(1u << DEVICE | 1u << ASYNC);
    struct block *t = &world.blocks[to < 0 ? 0 : to];
    if (to >= 0 && t->last.stream == -1 && may_copy(s->context, t) && may_copy_in_graph(s->context, t, t)) {
        size_t n = t->size < size ? t->size : size;
        if (CALLS(cuMemcpyAsync, t->at, at, n, s->handle) == 0)
            t->graphs |= 1u << world.streams[s->capture - 1].graph;
    }
    if (!one_in(4)) {
        CALLS(cuMemFreeAsync, at, s->handle);
        forget_block(b);
    }
}

/* What a capture did not allocate is not its to free. */
static void free_captured(void) {
    int i = pick_capturing(), b = pick_block_of(1u << DEVICE | 1u << ASYNC | 1u << GRAPH);
    if (i < 0 || b < 0)
        return;
    struct block *block = &world.blocks[b];
    say(" s%d b%d", i, b);
    if (CALLS(cuMemFreeAsync, one_in(6) ? 0 : block->at, world.streams[i].handle) == 0 && block->kind == GRAPH)
        forget_block(block);
}

int pick_graph(void) {
    int at = (int)below(GRAPHS);
    for (int i = 0; i < GRAPHS; i++, at = (at + 1) % GRAPHS)
        if (world.graphs[at].taken && world.graphs[at].graph)
            return at;
    return -1;
}

static void launch(void) {
    int i = pick_graph(), s = pick_stream();
    struct graph *g = &world.graphs[i < 0 ? 0 : i];
    if (i < 0 || world.captures || !drain_all())
        return;
    say(" g%d s%d", i, s);
    if (!g->exec && CALL(cuGraphInstantiateWithFlags, &g->exec, g->graph,
                         one_in(3) ? CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH : 0))
        return;
    if (one_in(4))
        CALL(cuGraphUpload, g->exec, handle_of(s));
    if (context_of(s) < 0)
        return;
    bool known = true;
    for (int b = 0; b < BLOCKS; b++)
        if (world.blocks[b].graphs & 1u << i)
            known = known && world.blocks[b].known;
    for (int n = 1 + (int)below(2); n; n--)
        CALLS(cuGraphLaunch, g->exec, handle_of(s));
    for (int b = 0; b < BLOCKS; b++)
        if (world.blocks[b].graphs & 1u << i) {
            world.blocks[b].known = world.blocks[b].known && known;
            used(&world.blocks[b], s);
        }
    /* What of it is of another device CUDA may not wait for as it frees. */
    if (world.contexts[context_of(s)].device != world.contexts[g->context].device || g->abroad || one_in(2))
        drain_all();
}

static void destroy_graph(void) {
    int i = pick_graph();
    struct graph *g = &world.graphs[i < 0 ? 0 : i];
    if (i < 0)
        return;
    say(" g%d", i);
    if (one_in(2)) {
        CALL(cuGraphDestroy, g->graph);
        if (g->exec)
            CALL(cuGraphExecDestroy, g->exec);
    } else {
        if (g->exec)
            CALL(cuGraphExecDestroy, g->exec);
        CALL(cuGraphDestroy, g->graph);
    }
    release_blocks(i);
    memset(g, 0, sizeof(*g));
}

static void exchange_mode(void) {
    CUstreamCaptureMode mode = (CUstreamCaptureMode)below(3);
    CALL(cuThreadExchangeStreamCaptureMode, &mode);
    say(" %d", (int)mode);
    if (one_in(2)) {
        mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        CALL(cuThreadExchangeStreamCaptureMode, &mode);
    }
}

const struct step graph_steps[] = {
    {"begin", 4, begin},
    {"end", 9, end},
    {"fork", 2, fork_capture},
    {"alloc_captured", 3, alloc_captured},
    {"free_captured", 1, free_captured},
    {"launch", 5, launch},
    {"destroy_graph", 3, destroy_graph},
    {"exchange_mode", 1, exchange_mode},
    {0},
};
