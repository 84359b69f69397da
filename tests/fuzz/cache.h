/* A cache of the program's own on bare segments, such as PyTorch's: it makes segments for a stream's blocks, cuts
 * blocks out of them, and tells the library which are in use. A capture has segments to itself, for as long as its
 * graph is there. A target without such operations has an empty one. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "program.h"

enum { SEGMENTS = 16, CACHED = 64, GRAPHS = 3 };

/* What a segment is of, but for a graph, by number. */
enum { OF_NO_GRAPH = -1, OF_A_GRAPH_BEFORE = -2 };

struct segment {
    CUdeviceptr at; /* 0: there is none */
    size_t size;
    int device, stream;
    int graph;
    bool strange; /* another stream has it than it was made for, by bare_segment */
};

struct cached {
    CUdeviceptr at;
    size_t size;
    struct owner *owner; /* NULL: the block has no memory that may be touched */
    int segment;
    int home;      /* the stream that works on it, in order */
    uint32_t used; /* other streams that do, by bit */
    bool strange;  /* its home is not the stream that the segment was made for */
    bool told;     /* it is in use, as far as the library knows */
    bool bad;      /* the driver failed, and it has none */
    CUevent over;  /* not in use, and may not be before that; NULL: there is none */
};

struct graph {
    bool captured; /* or being so */
    CUgraphExec exec;
    bool launched;
    int device, stream; /* that captures; that it was launched on last */
};

struct cache {
    struct segment segments[SEGMENTS];
    struct cached blocks[CACHED];
    unsigned count;
    struct graph graphs[GRAPHS];
    bool other_uses; /* a block was used by another stream than its own */
    int busy;        /* a call of the library's runs for this stream, and its number is one less; 0: none does */
    bool promised;   /* and has made room for a block, which is to come before any capture begins */
    bool legacy;     /* a segment was made for a legacy stream */
    bool pins;       /* something was, or may have been */
    bool asleep;     /* so is the device: nothing is queued on it */
    unsigned resets[DEVICES];   /* of its primary context */
    size_t neighbours[DEVICES]; /* bytes that other processes have */
};

extern struct cache cache;

void cache_open(void);
void cache_release_all(void);
/* All that lies on a stream is another's from now on, which waits for it. */
void cache_hand_over(int from, int to);
/* Other processes have nothing any more. */
void cache_alone(void);
/* Has a legacy stream had segments? The library records events there that others, of blocking streams, wait for. */
bool cache_on_legacy(void);
/* The primary context of a device is about to be reset; nothing is at work. */
void cache_reset(int device);
/* The devices sleep. One block is freed meanwhile; false: there is none. And they are awake again. */
void cache_fall_asleep(void);
bool cache_free_asleep(void);
void cache_wake(void);
/* A capture has ended; NULL: with its stream, or its context. */
void cache_captured(int stream, CUgraph captured);

/* ---- cache.c: operations, and what they share ---- */

void cache_alloc(void);
void cache_free(void);
void cache_free_last(void);
void cache_again(void);
void cache_use(void);
void cache_record(void);
void cache_empty(void);
void cache_pin(void);
void cache_process(void);
void cache_others(void);
void cache_fill(void);

/* Of a block: any, or some pages, and a little more or less. */
size_t cache_size(void);

/* Bytes for a block of a stream; its number, or -1. */
int cache_get(int stream, size_t size, int graph, unsigned how);
/* The library is told that it is in use no more. True: it knows it. */
void cache_tell_unused(const struct cached *b);
void cache_remove(unsigned number);
void cache_empty_device(int device, bool waits);
static inline bool cache_uses(int stream) {
    return cache.busy == stream + 1;
}

/* ---- cache_graphs.c ---- */

void cache_capture(void);
void cache_launch(void);
void cache_forget(void);
void cache_set_back(void);

void cache_graphs_hand_over(int from, int to);
void cache_graphs_reset(int device);
void cache_graphs_release(void);
