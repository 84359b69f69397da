/* The soak: threads that allocate, use, hand over and free memory at random, as programs may, on the
 * simulated driver; and a check of every byte. Each block is filled with a word that no other block has;
 * before it is freed a copy of it to the host is queued, in the order of its streams, and compared later. Two
 * owners of one byte thus show as a wrong word, which names the other owner.
 *
 * Locks, in this order: soak.world, one stream's `use` and soak.legacy in any order (who wants to write only
 * tries), soak.table_lock, soak.shelf_lock or those of the caches; then those of what is called. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../common/doors.h"
#include "../common/owners.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    DEVICES_MOST = 8,
    THREADS_MOST = 64,
    STREAMS_MOST = 256,
    BLOCKS_MOST = 4096,
    SHELF = 64,
    REPEATED = 16,
    CACHED_MOST = 48
};

/* ---- streams (stream.c) ---- */

enum stream_kind { PLAIN, LEGACY, PER_THREAD };

struct stream {
    enum stream_kind kind;
    CUstream handle;
    int device;
    pthread_rwlock_t use; /* read: to queue work; write: to destroy */
    bool gone;
    CUevent last;    /* when gone: behind all of its work */
    atomic_int refs; /* the table, and the blocks at home here */
};

/* ---- blocks (block.c) ---- */

struct block {
    CUdeviceptr ptr;
    size_t size;
    uint32_t word; /* what each of its words holds; 0: nothing was written yet */
    int device;
    struct stream *home; /* the stream behind whose work the block may be used */
    CUevent ready;       /* not NULL: handed over, and usable behind this event only */
    bool served;         /* by the pool; else by the driver itself */
};

/* A copy on its way to the host. */
struct inspection {
    struct block block;
    CUevent copied;
    size_t at, bytes; /* in the ring; bytes with padding */
};

enum { INSPECTIONS = 64 };

/* ---- history (history.c) ---- */

enum deed { ALLOC, ALLOC_ASYNC, FILL, INSPECT, FREE, FREE_ASYNC, MOVE, HAND_OVER, LOST, USE, UNUSE, DEEDS };

struct record {
    uint64_t time;
    enum deed deed;
    struct block block;
    unsigned long long stream; /* its id; 0: none */
};

enum { HISTORY = 1 << 15 };

/* ---- threads (worker.c) ---- */

struct worker {
    int index;
    pthread_t thread;
    uint64_t random;
    uint64_t ops, quota;
    int device;                       /* whose primary context is current */
    bool no_legacy;                   /* it holds soak.legacy: a blocking stream of its captures */
    struct stream *own[DEVICES_MOST]; /* its per-thread default streams */
    struct block blocks[BLOCKS_MOST];
    size_t count;
    struct block cached[CACHED_MOST]; /* of the cache on bare segments */
    size_t cached_count;
    char *ring; /* pinned memory for inspections */
    size_t ring_head, ring_used;
    struct inspection inspections[INSPECTIONS];
    unsigned first_inspection, inspecting;
    size_t repeated[REPEATED]; /* sizes that come again and again */
    struct door_other other;   /* what it has from CUDA itself */
    struct record *history;
    uint64_t recorded;
};

struct soak {
    int threads, streams, devices;
    uint64_t ops, seed;
    unsigned seconds, check_every;
    unsigned pressure, sync; /* percent */
    size_t capacity, granularity, largest, ring;
    bool peers;      /* the devices may access each other's memory */
    bool pools;      /* some of the cache's segments are pools, which are set back */
    bool pages_only; /* the policy serves whole pages; the driver serves the rest */

    CUcontext context[DEVICES_MOST];
    CUmemoryPool pool[DEVICES_MOST]; /* a second memory pool of each device */
    atomic_size_t live[DEVICES_MOST];
    struct stream *legacy_stream[DEVICES_MOST];
    struct worker *workers;
    atomic_uint_least64_t done, allocs, ooms, captures, contexts, streams_made, clock, slept, cached, set_back;
    atomic_uint next_word;
    atomic_bool stop;

    pthread_rwlock_t world;  /* read: each operation; write: what nobody else may run beside */
    pthread_rwlock_t legacy; /* read: work on a legacy stream; write: a blocking stream captures */
    pthread_mutex_t table_lock, shelf_lock;
    struct stream *table[STREAMS_MOST];
    struct block shelf[SHELF]; /* blocks on their way from one thread to another */
    size_t shelved;
};

extern struct soak soak;

/* Ends the program: says what went wrong, on which block (may be NULL), and what happened there before. */
_Noreturn void soak_fail(const struct worker *w, const struct block *b, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails unless the call succeeded. */
#define MUST(w, b, call) soak_must(w, b, call, #call)
void soak_must(const struct worker *w, const struct block *b, CUresult res, const char *call);

void history_add(struct worker *w, enum deed deed, const struct block *b, CUstream stream);
/* Prints what happened to the addresses of `b`, and to the block that `word` belongs to. */
void history_print(const struct block *b, uint32_t word);

uint32_t soak_random(struct worker *w, uint32_t below);
size_t soak_size(struct worker *w);
void soak_device(struct worker *w, int device);

void streams_open(void);
struct stream *stream_new(enum stream_kind kind, CUstream handle, int device);
void stream_get(struct stream *s);
void stream_put(struct stream *s);
/* A stream of any kind where a block of `device` may be used, locked for use; its device is then current. */
struct stream *stream_pick(struct worker *w, int device);
/* Tries to lock a stream for use; false: it is gone, or must not be used now. */
bool stream_enter(struct worker *w, struct stream *s);
void stream_leave(struct stream *s);
/* Destroys a stream of the table and puts a new one in its place. */
void stream_renew(struct worker *w);
/* Records an event behind the work of a stream that is locked for use. */
CUevent stream_mark(struct worker *w, const struct stream *s);
/* The thread ends: its per-thread streams can no longer be named. */
void streams_end_thread(struct worker *w);

/* Its stream, locked for use; the block's stream may change by it. */
struct stream *block_enter(struct worker *w, struct block *b);
/* Makes another stream the block's home; `to` is locked for use, and stays so. */
void block_move(struct worker *w, struct block *b, struct stream *to);
/* Writes a new word all over the block, on its home, which is locked for use. */
void block_fill(struct worker *w, struct block *b);
/* Queues the comparison with the block's word. */
void block_inspect(struct worker *w, struct block *b);
/* Fails unless all bytes of the block's copy are as they should be. */
void block_compare(struct worker *w, const struct block *b, const void *copy);
/* The same at once, for a stream whose context is about to end. */
void block_inspect_now(struct worker *w, const struct block *b);
/* A word that no block has had. */
uint32_t block_new_word(void);
/* Copies a block over the beginning of another, on the home of that one, and has the copy inspected. */
void block_copy(struct worker *w, struct block *from, struct block *to);
/* Compares what has arrived; with `all`, waits for the rest. */
void inspections_finish(struct worker *w, bool all);
/* Allocates in some way; false: out of memory. */
bool block_alloc(struct worker *w, size_t size, int device);
/* Allocates, fills and frees in the order of one stream, which is any one at first; false: out of memory. */
bool block_scratch(struct worker *w, struct block *b);
/* Frees in some way; the block leaves the worker. */
void block_free(struct worker *w, size_t index);
void block_remove(struct worker *w, size_t index);
/* May the block be used on the streams of that device? */
bool block_reaches(const struct block *b, int device);

/* Something larger: a capture, a context of its own (episode.c). */
void episode_capture(struct worker *w);
void episode_context(struct worker *w);
void episode_alone(struct worker *w);
/* What ends in the middle, and what waits for the program (ends.c). */
void episode_ending(struct worker *w);
void episode_thread(struct worker *w);
void episode_gate(struct worker *w);

/* A cache on bare segments (cache.c); its locks come before those of the library. */
void caches_open(void);
void caches_close(struct worker *w);
/* Nobody tells of blocks between these. */
void caches_lock(void);
void caches_unlock(void);
void cache_step(struct worker *w);
void cache_free(struct worker *w, size_t index);

/* A worker's thread: runs part of its quota. */
void *worker_run(void *worker);
void worker_release_all(struct worker *w);
/* Leaves the operation of this name out; false: there is none. */
bool mix_without(const char *name);
/* The threads have a cache on bare segments, too. */
void mix_with_cache(void);
/* Proves the invariants of every pool. */
void soak_check(const struct worker *w);
