/* A cache on bare segments: pools of memory that belong to a captured graph, and pools that are set back to how they
 * were. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/bare.h"
#include "process/state.h"
#include "cache.h"

/* ---- captured ---- */

/* A graph's memory is in use for as long as there is the graph, whether the cache counts it so or not. */
static void end_blocks(int graph, int stream) {
    for (unsigned i = 0; i < cache.count;) {
        const struct cached b = cache.blocks[i];
        if (cache.segments[b.segment].graph != graph) {
            i++;
            continue;
        }
        if (b.owner) {
            owner_ending(b.owner);
            if (stream >= 0)
                MUST(cuMemsetD32Async(b.at, owner_word(b.owner, true), b.size / 4, enter(stream)->handle));
            owner_ended(b.owner);
        }
        cache_remove(i);
        if (b.told)
            cache_tell_unused(&b);
    }
    for (int i = 0; i < SEGMENTS; i++)
        if (cache.segments[i].graph == graph)
            cache.segments[i].graph = OF_A_GRAPH_BEFORE;
}

static void forget(int graph, int stream) {
    struct graph *g = &cache.graphs[graph];
    say("graph %d is forgotten", graph);
    if (stream >= 0 && g->launched && g->stream != stream)
        wait_for(g->stream, stream);
    end_blocks(graph, stream);
    /* Another stream may capture. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    if (g->exec)
        MUST(cuGraphExecDestroy(g->exec));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    *g = (struct graph){0};
}

/* The graph of a stream that captures; -1: there is none, and no room for one. */
static int graph_of(int stream) {
    int none = -1;
    for (int i = 0; i < GRAPHS; i++) {
        const struct graph *g = &cache.graphs[i];
        if (g->captured && !g->exec && g->stream == stream)
            return i;
        if (!g->captured)
            none = i;
    }
    if (none >= 0)
        cache.graphs[none] = (struct graph){.captured = true, .device = run.streams[stream].device, .stream = stream};
    return none;
}

/* A block for the stream that captures, and work on it. */
void cache_capture(void) {
    size_t size = cache_size();
    unsigned how = fuzz_byte(&run.in);
    int stream = 0;
    while (stream < STREAMS && !run.streams[stream].capturing)
        stream++;
    if (stream == STREAMS || cache.busy || (run.kept_back += size) > world.limit / 16 ||
        !vp_state.pools[run.streams[stream].device])
        return;
    const int graph = graph_of(stream);
    if (graph < 0)
        return;
    atomic_store(&vp_bare_pools, true);
    const int number = cache_get(stream, size, graph, how);
    /* The capture may have ended meanwhile, with its context. */
    if (!cache.graphs[graph].captured || !run.streams[stream].capturing) {
        forget(graph, -1);
        return;
    }
    if (number < 0 || !cache.blocks[number].owner)
        return;
    struct cached *b = &cache.blocks[number];
    /* The graph may run on any stream, at any time. */
    say("block %d is graph %d's", number, graph);
    owner_begin(b->owner);
    MUST(cuMemsetD32Async(b->at, owner_word(b->owner, false), b->size / 4, enter(stream)->handle));
    /* Of no use to the cache any more, or until the graph ends. */
    if (how & 128) {
        cache_tell_unused(b);
        b->told = false;
    }
}

void cache_captured(int stream, CUgraph captured) {
    for (int i = 0; i < GRAPHS; i++) {
        struct graph *g = &cache.graphs[i];
        if (!g->captured || g->exec || g->stream != stream)
            continue;
        CUresult res = captured ? cuGraphInstantiateWithFlags(&g->exec, captured, 0) : CUDA_ERROR_OUT_OF_MEMORY;
        if (res == CUDA_ERROR_OUT_OF_MEMORY)
            forget(i, -1);
        else
            must(res, "cuGraphInstantiate");
    }
}

/* ---- launched, and no more ---- */

static int any_graph(int *stream) {
    const unsigned which = fuzz_byte(&run.in);
    *stream = any_stream();
    const struct graph *g = &cache.graphs[which % GRAPHS];
    if (!g->exec || cache.busy)
        return -1;
    *stream = g->device * STREAMS_EACH + *stream % STREAMS_EACH;
    return usable(*stream) && (!g->launched || usable(g->stream)) ? (int)(which % GRAPHS) : -1;
}

void cache_launch(void) {
    int stream, graph = any_graph(&stream);
    if (graph < 0)
        return;
    struct graph *g = &cache.graphs[graph];
    if (g->launched && g->stream != stream)
        wait_for(g->stream, stream);
    say("graph %d is launched on stream %d", graph, stream);
    CUresult res = cuGraphLaunch(g->exec, enter(stream)->handle);
    g->stream = stream;
    g->launched = true;
    if (res != CUDA_ERROR_OUT_OF_MEMORY) /* of its own, which it may have */
        must(res, "cuGraphLaunch");
}

void cache_forget(void) {
    int stream, graph = any_graph(&stream);
    if (graph >= 0)
        forget(graph, stream);
}

/* ---- set back ---- */

/* How a pool is set back: of segments by bit; each one's stretches are told of one by one. */
static void tell_of_segment(int segment, bool used) {
    const struct segment *s = &cache.segments[segment];
    CUdeviceptr at = s->at, end = s->at + s->size;
    while (at < end) {
        const struct cached *here = NULL;
        CUdeviceptr next = end;
        for (unsigned i = 0; i < cache.count; i++) {
            const struct cached *b = &cache.blocks[i];
            if (b->segment != segment || !b->told)
                continue;
            if (b->at == at)
                here = b;
            else if (b->at > at && b->at < next)
                next = b->at;
        }
        const size_t size = here ? here->size : next - at;
        if (used)
            vp_bare_used(at, size, (struct vp_bare_stream){0});
        else if (!here)
            vp_bare_unused(at, size, atomic_load(&vp_bare_pools) && cache.other_uses);
        at += size;
        run.pool_operations++;
    }
}

void cache_set_back(void) {
    const unsigned which = fuzz_byte(&run.in) | fuzz_byte(&run.in) << 8;
    if (!atomic_load(&vp_bare_pools) || cache.busy || run.capturing)
        return;
    for (unsigned i = 0; i < cache.count; i++) {
        const struct cached *b = &cache.blocks[i];
        if (b->told && which >> b->segment & 1)
            cache_tell_unused(b);
    }
    say("segments %#x are set back", which);
    hold_for(1);
    for (int i = 0; i < SEGMENTS; i++) {
        if (!cache.segments[i].at || !(which >> i & 1))
            continue;
        tell_of_segment(i, true);
        tell_of_segment(i, false);
    }
    hold_for(0);
}

/* ---- what happens to all of them ---- */

void cache_graphs_hand_over(int from, int to) {
    for (int i = 0; i < GRAPHS; i++)
        if (cache.graphs[i].exec && cache.graphs[i].stream == from)
            cache.graphs[i].stream = to;
}

void cache_graphs_reset(int device) {
    for (int i = 0; i < GRAPHS; i++)
        if (cache.graphs[i].captured && cache.graphs[i].device == device)
            forget(i, -1);
}

void cache_graphs_release(void) {
    for (int i = 0; i < GRAPHS; i++)
        if (cache.graphs[i].exec)
            forget(i, cache.graphs[i].device * STREAMS_EACH);
}
