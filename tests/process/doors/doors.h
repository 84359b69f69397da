/* A made-up program of CUDA calls: what it has at the moment, and how it says what each call answered.
 *
 * It runs twice, bare and under libvpool.so, and must say the same. So nothing that it says may depend on addresses, on
 * when queued work runs, or on how much memory is free: an address is said as a block and an offset, and contents are
 * looked at when all work is over. What it does next depends on its seed alone, and on answers that must be the same.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    BLOCKS = 40,
    STALE = 32,
    STREAMS = 12, /* the first two are the legacy stream, and the thread's own */
    CONTEXTS = 6, /* the first of them are the devices' primary ones */
    EVENTS = 8,
    POOLS = 4, /* the first of them are the devices' default ones */
    GRAPHS = 6,
    NODES = 10,
    THREADS = 3,
    DEVICES = 2,
    LEGACY = 0,
    OWN = 1,
};

enum kind { NONE, DEVICE, ASYNC, MANAGED, HOST, REGISTERED, MAPPED, GRAPH };

/* Where work was queued: on a stream; of the first two, in which context and by which thread. Of a stream that is no
 * more, and of several at once, only the context is known (stream -2). */
struct use {
    int stream, context, thread;
};

struct block {
    enum kind kind;
    CUdeviceptr at;
    size_t size;
    int device, context, pool;
    bool known;      /* its contents are the same in both runs */
    unsigned access; /* of what is mapped: devices that may */
    unsigned graphs; /* that use it: it may not be freed */
    int capture;     /* of graph memory: the stream that captured its allocation */
    struct use last;
    CUmemGenericAllocationHandle handle;
};

struct stream {
    CUstream handle;
    CUevent event;
    int context;
    int capture;  /* 1 + the stream whose capture it takes part in */
    CUgraph into; /* the graph that its own capture began with */
    int graph;    /* of a capture's first stream: which graph it will be */
    int mode;
};

struct context {
    CUcontext handle;
    int device;
    bool alive;
    CUfunction fill; /* a kernel; NULL: it was not loaded */
    unsigned peers;
    int peer_of[DEVICES]; /* the context that it was given for */
};

struct pool {
    CUmemoryPool handle;
    int device;
    unsigned access;
    bool alive, current;
};

/* What was added to a graph by itself, and the blocks that it uses. */
enum what { FILL_NODE, COPY_NODE, MEMORY_NODE, KERNEL_NODE, HOST_NODE, CHILD_NODE, CONDITIONAL_NODE };
struct node {
    enum what what;
    CUgraphNode node;
    int to, from;
};

struct graph {
    CUgraph graph;
    CUgraphExec exec;
    int context;
    bool taken;
    bool made;                /* node by node, each behind the one before */
    bool memory;              /* and has memory of its own: it stays as it is */
    bool conditional, abroad; /* a conditional node; nodes of another context */
    struct node nodes[NODES];
    int count;
};

struct world {
    struct block blocks[BLOCKS];
    CUdeviceptr stale[STALE];
    unsigned stale_next;
    struct stream streams[STREAMS];
    struct context contexts[CONTEXTS];
    struct pool pools[POOLS];
    struct graph graphs[GRAPHS];
    CUevent events[EVENTS];
    int event_contexts[EVENTS];
    bool recorded[EVENTS];
    int captures;
    size_t alive, most; /* bytes of blocks of the devices */
    int thread;         /* that runs this step */
    bool ptsz;          /* this step calls the entry points of the per-thread stream */
    bool context_destroyed;
};

extern struct world world;

/* ---- what is random: the step's own numbers ---- */

uint64_t any(void);
unsigned below(unsigned n);
bool one_in(unsigned n);

/* ---- what is said ---- */

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* An address as a block and an offset, or 0, or that it is nobody's. */
void say_address(CUdeviceptr at);
void say_context(CUcontext context);
/* A line of this step counts for nothing: what it does may answer otherwise by where memory lies. */
void say_loose(void);
uint64_t hash(const void *data, size_t bytes);

/* Calls, says the name and the result, and gives the result. */
#define CALL(fn, ...) said(#fn, (int)fn(__VA_ARGS__))
/* By the entry point of this step. */
#define CALLS(fn, ...) (world.ptsz ? said(#fn "_ptsz", (int)fn##_ptsz(__VA_ARGS__)) : said(#fn, (int)fn(__VA_ARGS__)))
/* The same, but for what depends on the time: that work is not over yet is no other answer than that it is. */
#define CALL_SOON(fn, ...) said_soon(#fn, (int)fn(__VA_ARGS__))
int said(const char *name, int result);
int said_soon(const char *name, int result);

/* ---- what there is: world.c ---- */

void world_start(void);
/* Of the calling thread; -1: none, or not one of ours. */
int current_context(void);
int current_device(void);
/* Then CUDA refuses frees (709), which are served here. */
bool current_has_ended(void);
/* A slot, or -1. */
int pick_block(void);
int pick_block_of(unsigned kinds);
int free_block(void);
int pick_stream(void);
int pick_made_stream(void);
int pick_context(void);
int pick_pool(void);
bool capturing(int stream);
/* The handle to name it by, in this step. */
CUstream handle_of(int stream);
int context_of(int stream);
/* The block's work so far comes before what this stream gets from now on. False: it could not be seen to. */
bool ordered(struct block *block, int stream);
void used(struct block *block, int stream);
/* All work in the block's contexts is over. */
bool drained(struct block *block);
bool drain_context(int context);
/* Nothing is queued any more. False while a stream captures. */
bool drain_all(void);
void forget_block(struct block *block);
void forget_context(int context);
void look_at_primary(int device);
/* Graphs, or captures that will be some. */
bool graphs_about(void);
bool may_touch(int context, const struct block *block);
bool may_copy(int context, const struct block *block);
bool may_copy_in_graph(int context, const struct block *to, const struct block *from);
/* Takes a slot for what was allocated. */
struct block *new_block(enum kind kind, CUdeviceptr at, size_t size, int device, int stream);
/* Reads all of what is known, and says its sum. */
void verify(void);
size_t some_size(void);

/* The capture that began on this stream is over, or a stream has left it. */
void capture_over(int first, CUstream left);
unsigned host_count(void);
/* A slot, or -1: graphs.c. */
int free_graph(void);
int pick_graph(void);
void release_blocks(int graph);
/* Node by node: nodes.c. */
int pick_made_graph(void);
struct node *pick_node(int *g);
const CUgraphNode *last_node(const struct graph *graph);
void added(int g, enum what what, int to, int from, CUgraphNode node, int res);
void share_blocks(int with, int of);
enum { SPILLED = 1 << 20 }; /* from which size on: compare */
bool may_be_spilled(int g);
/* A step's use of a block: copies.c. */
bool begin_use(struct block *b, int stream);
void end_use(struct block *b, int stream, int res);
void CUDA_CB host_counts(void *unused);

/* ---- what can be done ---- */

typedef void step_fn(void);
struct step {
    const char *name;
    unsigned weight;
    step_fn *run;
};
extern const struct step memory_steps[], copy_steps[], query_steps[], stream_steps[], context_steps[], graph_steps[],
    node_steps[], child_steps[], left_steps[], apart_steps[], runtime_steps[];

/* ---- the per-thread forms, which cuda.h does not declare ---- */

#define PTSZ(X)                                                                                                        \
    X(cuMemAllocAsync) X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) X(cuMemsetD8Async) X(cuMemsetD16Async)                               \
        X(cuMemsetD32Async) X(cuMemsetD2D8Async) X(cuMemcpyAsync) X(cuStreamSynchronize) X(cuStreamQuery)                             \
            X(cuEventRecord) X(cuStreamWaitEvent) X(cuLaunchHostFunc) X(cuStreamIsCapturing) X(cuStreamGetFlags)                         \
                X(cuStreamGetCtx) X(cuGraphLaunch) X(cuMemcpyPeerAsync) X(cuLaunchKernel) X(cuStreamEndCapture)                            \
                    X(cuStreamGetPriority)
#define DECLARE(fn) extern __typeof__(fn) fn##_ptsz;
PTSZ(DECLARE)
#undef DECLARE
/* Those of another number, by their own names. */
extern __typeof__(cuMemcpyHtoDAsync_v2) cuMemcpyHtoDAsync_v2_ptsz;
extern __typeof__(cuMemcpyDtoHAsync_v2) cuMemcpyDtoHAsync_v2_ptsz;
extern __typeof__(cuMemcpyDtoDAsync_v2) cuMemcpyDtoDAsync_v2_ptsz;
extern __typeof__(cuMemcpy2DAsync_v2) cuMemcpy2DAsync_v2_ptsz;
extern __typeof__(cuMemcpy3DAsync_v2) cuMemcpy3DAsync_v2_ptsz;
extern __typeof__(cuStreamBeginCapture_v2) cuStreamBeginCapture_v2_ptsz;
