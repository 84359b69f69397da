/* What the files of the simulated driver share.
 *
 * The model in one paragraph. Every queued piece of GPU work is an *op*. An op may run when it is the first
 * of its stream's queue, when all ops that it depends on are done, and when nobody holds the stream. Streams,
 * events, the legacy stream's implicit order and context barriers are all expressed by these rules. Nothing
 * runs when it is queued; ops run inside later driver calls, chosen at random among those that may.
 * With a modelled clock (timed.c) nothing is random: ops run as soon as they may, and kernels take time.
 *
 * One mutex guards everything. SIM_API takes it around each function body; what is named sim_* here expects
 * it held. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/queue.h>

#include "../driver/younger.h"
#include "options.h"

#define SIM_EXPORT __attribute__((visibility("default")))

/* ---- entry points (core.c, entry.c) ---- */

enum {
    SIM_EARLY = 1, /* may be called before cuInit */
    SIM_SURE = 2,  /* not counted by fail=*:N; still fails by name */
    SIM_VMM = 4,   /* NOT_SUPPORTED where vmm=0 */
};

struct sim_entry {
    const char *name;          /* the exported symbol, _v2 included */
    void *legacy, *per_thread; /* per_thread: the _ptsz or _ptds form, or NULL */
    int since;                 /* first CUDA version that has it */
    unsigned flags;
    unsigned long calls;
};

/* Pointers to all entries, gathered by the linker from every file. */
extern struct sim_entry *const __start_vp_sim_entries[], *const __stop_vp_sim_entries[];

CUresult sim_enter(struct sim_entry *entry, bool per_thread);
CUresult sim_leave(struct sim_entry *entry, CUresult result);

#define SIM_ENTRY(flags_, since_, fn, per_thread_)                                                                     \
    static struct sim_entry fn##_entry = {#fn, (void *)fn, (void *)per_thread_, since_, flags_, 0};                    \
    static struct sim_entry *const fn##_link __attribute__((section("vp_sim_entries"), used)) = &fn##_entry

#define SIM_WRAPPER(exported, fn, per_thread_, params, args)                                                           \
    CUresult CUDAAPI exported params {                                                                                 \
        CUresult outcome_ = sim_enter(&fn##_entry, per_thread_);                                                       \
        if (outcome_ == CUDA_SUCCESS)                                                                                  \
            outcome_ = fn##_body args;                                                                                 \
        return sim_leave(&fn##_entry, outcome_);                                                                       \
    }

/* Defines an exported driver function. What follows is the body: it runs under the lock, after the calls
 * that must fail have failed. `fn` must be the exact exported name. */
#define SIM_API(flags, since, fn, params, args)                                                                        \
    SIM_EXPORT CUresult CUDAAPI fn params;                                                                             \
    static CUresult fn##_body params;                                                                                  \
    SIM_ENTRY(flags, since, fn, NULL);                                                                                 \
    SIM_WRAPPER(fn, fn, false, params, args)                                                                           \
    static CUresult fn##_body params

/* The same for a function that also has a per-thread-default-stream form, `fn_ptsz` or `fn_ptds`. */
#define SIM_STREAM_API(suffix, flags, since, fn, params, args)                                                         \
    SIM_EXPORT CUresult CUDAAPI fn params;                                                                             \
    SIM_EXPORT CUresult CUDAAPI fn##suffix params;                                                                     \
    static CUresult fn##_body params;                                                                                  \
    SIM_ENTRY(flags, since, fn, fn##suffix);                                                                           \
    SIM_WRAPPER(fn, fn, false, params, args)                                                                           \
    SIM_WRAPPER(fn##suffix, fn, true, params, args)                                                                    \
    static CUresult fn##_body params

/* ---- options (options.c) ---- */

int sim_options_parse(const char *text, const char *source);
/* The result that an injected failure gives this call, or CUDA_SUCCESS. */
CUresult sim_fail_check(const struct sim_entry *entry);
void sim_fail_reset(void);
/* How long a call is to take, in milliseconds, before it does what it does or after it. */
unsigned sim_delay_check(const struct sim_entry *entry, bool after);
bool sim_name_matches(const char *symbol, const char *name);

/* ---- objects found by number or by address (object.c) ---- */

/* Handles are slots of a table: the slot freed last is given out first, so that a destroyed handle soon
 * comes back. */
struct sim_slots {
    void **items;
    size_t count, room;
    size_t *free;
    size_t free_count;
};

enum sim_handle_kind {
    SIM_STREAM = 1,
    SIM_EVENT,
    SIM_CONTEXT,
    SIM_GREEN,
    SIM_HANDLE,
    SIM_POOL,
    SIM_GRAPH,
    SIM_EXEC,
    SIM_DESC,
    SIM_ARRAY,
    SIM_MODULE,
    SIM_HANDLE_KINDS
};

void *sim_handle_new(enum sim_handle_kind kind, void *item);
/* NULL for a number that is no handle. One that was a handle and was destroyed counts as a violation. */
void *sim_handle_get(enum sim_handle_kind kind, const void *handle);
/* Is there such a thing (still)? */
bool sim_handle_is(enum sim_handle_kind kind, const void *handle);
void sim_handle_free(enum sim_handle_kind kind, const void *handle);
/* Calls `visit` for every live item. */
void sim_handle_each(enum sim_handle_kind kind, void (*visit)(void *item, void *arg), void *arg);
size_t sim_handle_count(enum sim_handle_kind kind);
void sim_handle_reset(void);
/* Arrays and modules go with their context. */
struct sim_context;
void sim_code_end(struct sim_context *context);
/* Where an array's bytes lie, and how long a row is; 0: it has none. */
uintptr_t sim_array_at(CUarray array, size_t *row);

/* Disjoint address ranges, kept in a search tree. Embedded first in what lies there. */
struct sim_range {
    uintptr_t start, end;
};

/* Some range that overlaps [start, end), or NULL. With one byte: the range that holds the address. */
void *sim_range_find(void *const *root, uintptr_t start, uintptr_t end);
void sim_range_insert(void **root, struct sim_range *range);
void sim_range_remove(void **root, struct sim_range *range);
/* In the order of addresses, with the simulator's lock held. The tree stays as it is meanwhile. */
void sim_range_each(const void *root, void (*visit)(void *item, void *arg), void *arg);
/* Any range at all: used to empty a tree. */
void *sim_range_any(void *const *root);
/* Address space without memory behind it, aligned; 0 when there is none left. */
uintptr_t sim_space_reserve(size_t size, size_t alignment, uintptr_t hint);

/* ---- state (core.c) ---- */

struct sim_context;
struct sim_stream;
struct sim_op;
struct sim_pool;
struct sim_capture;

struct sim_device {
    int ordinal, physical, memfd;     /* its numbers here, and among all that there are */
    size_t used, used_vmm, of_graphs; /* the last: of `used`, what graphs that are gone have left for others */
    off_t next_offset;                /* memfd offsets only grow; released ranges are punched out */
    struct sim_context *primary;
    int primary_refs;
    unsigned primary_flags;
    struct sim_pool *default_pool, *pool;
};

/* A thread's view: the stack of contexts, and the capture mode. Forgotten when the generation is not the
 * state's. */
struct sim_thread {
    unsigned long generation, id;
    struct sim_context *stack[2048]; /* CUDA lets a thread enter 100,000 */
    int depth;
    CUstreamCaptureMode capture_mode;
    bool per_thread_call; /* the running call is a _ptsz or _ptds form */
};

struct sim_state {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* something ran, or was released */
    struct sim_options options;
    bool configured, initialised, forked;
    unsigned long generation, threads;
    uint64_t random, cost_ns;
    bool timed;        /* the clock is modelled */
    uint64_t clock_ns; /* what it says */
    uint64_t next_id;  /* stream, context, capture and buffer ids: never used twice */
    unsigned long violations;
    void (*watch_fills)(CUdeviceptr at, size_t bytes, uint32_t value); /* NULL: nobody */
    void (*watch_copies)(CUdeviceptr to, CUdeviceptr from, size_t bytes);
    struct sim_device devices[SIM_MAX_DEVICES];
    int device_count;                       /* that are shown */
    void *reservations, *mappings, *blocks; /* roots of range trees */
    void *graves;                           /* address space of freed blocks, kept for the next of its size */
    size_t reserved_bytes;
    size_t host_bytes;                 /* of handles in the host's memory */
    LIST_HEAD(, sim_context) contexts; /* sim_context.link; destroyed ones stay until the reset */
    LIST_HEAD(, sim_capture) captures; /* sim_capture.link; running ones */
};

extern struct sim_state sim;

struct sim_thread *sim_self(void);
/* A point of cancellation in the middle of a call, with the lock let go; then the op is put. */
void sim_may_be_cancelled(struct sim_op *op);
uint32_t sim_random(uint32_t below);
void sim_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_cost(uint64_t nanoseconds);
/* The modelled clock in timed mode, else the real one, which is the second one always. */
uint64_t sim_now_ns(void);
uint64_t sim_real_ns(void);
bool sim_device_ok(CUdevice device);
size_t sim_capacity(int device);
int sim_device_at(int physical); /* none, if that is not shown */
bool sim_has_vmm(int device);
/* Can work of one device access memory of another, if it is let? */
bool sim_device_reaches(int device, int owner);
/* The host's one node. */
enum { SIM_HOST_NODE = 0 };
/* Does any of these bytes lie in a handle of the host's memory? The real driver calls such memory the host's, and
 * refuses copies that call it the device's. */
bool sim_is_host_vmm(uintptr_t start, size_t bytes);
/* Physical memory, counted only. False: there is not that much left. */
bool sim_phys_take(int device, size_t bytes);
void sim_phys_give(int device, size_t bytes);
/* The same of what all processes have that name one file (ledger.c); what others have. */
bool sim_ledger_take(int device, size_t bytes);
void sim_ledger_give(int device, size_t bytes);
size_t sim_ledger_others(int device);
void sim_ledger_reset(void);

/* What one process has of the devices. */
struct sim_line {
    pid_t pid;                      /* 0: free */
    atomic_uint state;              /* a CUprocessState */
    atomic_uint inside;             /* driver calls that run */
    uint64_t used[SIM_MAX_DEVICES]; /* bytes */
    uint64_t kept[SIM_MAX_DEVICES]; /* what it had when it was checkpointed */
};

/* The line of a process, and the file locked for this one; NULL: it has none. In either case unlocked by the second. */
struct sim_line *sim_ledger_find(int pid);
void sim_ledger_unlock(void);
/* This process has a line from now on, if a file is named. */
void sim_ledger_join(void);
/* Around each driver call: waits while another process has locked this one. False: there is nothing to end. */
bool sim_ledger_begin(void);
void sim_ledger_end(void);
/* What it has of the devices goes, and comes back. False: there is no room. */
void sim_ledger_put_away(struct sim_line *line);
bool sim_ledger_bring_back(struct sim_line *line);
/* A millisecond. */
void sim_nap(void);

/* ---- contexts (context.c) ---- */

struct sim_context {
    uint64_t id;
    int device;
    unsigned flags;
    bool primary, destroyed;
    unsigned attached;          /* cuCtxAttach less cuCtxDetach */
    struct sim_context *parent; /* of a green context: the primary one */
    CUcontext handle;
    CUgreenCtx green;
    unsigned peers;                               /* devices whose memory this context may touch, one bit each */
    struct sim_context *peer_of[SIM_MAX_DEVICES]; /* by which of a device's contexts; with it the leave ends */
    void *local;                                  /* what its functions need to run; NULL: none has run yet */
    struct sim_op *awaits;                        /* what is queued from here on waits for that */
    struct sim_stream *legacy;
    LIST_HEAD(, sim_stream) streams; /* sim_stream.link: all of them, the legacy one included */
    LIST_HEAD(, sim_event) events;   /* sim_event.link */
    LIST_HEAD(, sim_block) blocks;   /* sim_block.link: memory that dies with the context */
    LIST_ENTRY(sim_context) link;
};

/* The thread's current context; NULL with `*why` set when there is none or it is gone. */
struct sim_context *sim_current(CUresult *why);
struct sim_context *sim_context_of(CUcontext handle, CUresult *why);
void sim_contexts_reset(void);

/* ---- ops and the scheduler (queue.c) ---- */

enum sim_op_kind {
    SIM_OP_NOP,
    SIM_OP_EVENT,
    SIM_OP_FILL,
    SIM_OP_COPY,
    SIM_OP_HOST,
    SIM_OP_WAIT_VALUE,
    SIM_OP_WRITE_VALUE,
    SIM_OP_ALLOC,
    SIM_OP_FREE,
    SIM_OP_KERNEL,
    SIM_OP_GRAPH,      /* a node with graphs of its own, of which at most one is run; it is no work itself */
    SIM_OP_CONDITIONAL /* the same */
};

struct sim_op {
    enum sim_op_kind kind;
    unsigned refs;
    bool done, running;
    struct sim_stream *stream; /* NULL: an op of no stream, done as soon as its dependencies are */
    TAILQ_ENTRY(sim_op) next;
    struct sim_op **deps; /* one reference each */
    unsigned dep_count, dep_room;
    uint64_t when_ns;                     /* events: when it ran; timed mode, until then: not before that */
    uint64_t work_ns;                     /* timed mode: how long a kernel has yet to run that is not at work */
    struct sim_op *waiters, *next_waiter; /* timed mode: those that may get on when this is done; one reference each */
    bool waits;                           /* is one of them itself */
    bool mark;                            /* graphs: reached from the end */
    struct sim_graph *graph;              /* that it is a node of */
    uint64_t node, original;              /* its number, and that of the node that it was cloned from */
    struct sim_graph *launched;           /* whose memory it uses: kept until it is done */
    union {
        struct {
            uintptr_t dst;
            size_t pitch, width, height;
            uint32_t value;
            unsigned element;
            const struct sim_context *by; /* whose context it is done in */
        } fill;
        struct {
            uintptr_t dst, src;
            size_t dst_pitch, src_pitch, width, height;
            const struct sim_context *dst_by, *src_by; /* who touches either end: the stream's context, or those of a
                                                          copy between two */
            void *staged;                              /* the source, where that was ordinary host memory */
            bool to_host;
        } copy;
        struct {
            CUhostFn fn;
            CUstreamCallback callback;
            CUstream handle;
            void *arg;
        } host;
        struct {
            uintptr_t at;
            uint64_t value;
            unsigned flags;
            bool wide;
        } value;
        struct sim_block *block;
        struct {
            CUfunction function;
            unsigned grid[3], threads[3], shared;
            CUdeviceptr at; /* what it fills; 0: nothing */
            uint64_t bytes;
            uint32_t value;
            const struct sim_context *by; /* whose function it is */
            void *params[3];              /* told to who asks */
        } kernel;
        struct sim_child *child; /* nodes.h */
    };
};

void sim_child_free(struct sim_child *child);
struct sim_op *sim_op_new(enum sim_op_kind kind);
struct sim_op *sim_op_get(struct sim_op *op);
void sim_op_put(struct sim_op *op);
bool sim_op_done(struct sim_op *op);
void sim_op_depend(struct sim_op *op, struct sim_op *on);
/* The same of a node, which never runs, and so is never over. */
void sim_op_follow(struct sim_op *op, struct sim_op *on);
/* Appends an op to a stream, or to its capture; takes over the reference. Adds the order that the legacy
 * stream implies. */
void sim_op_enqueue(struct sim_stream *stream, struct sim_op *op);
/* An op of no stream that is done when everything now queued is: on one stream, in one context, on one
 * device. */
struct sim_op *sim_barrier_stream(struct sim_stream *stream);
struct sim_op *sim_barrier_context(struct sim_context *context);
struct sim_op *sim_barrier_device(int device);
/* Runs what the op depends on until it is done, and drops a reference; LAUNCH_TIMEOUT when that never comes. */
CUresult sim_op_wait_put(struct sim_op *op);
/* Up to n ops at random; how many ran. */
int sim_progress(int n);
/* The little progress that a query makes. */
void sim_progress_query(void);
size_t sim_pending(void);
/* For timed.c. The first dependency that is not done, dropping those that are. */
struct sim_op *sim_op_open_dep(struct sim_op *op);
/* Runs what heads its queue, if nothing holds it up. */
bool sim_op_try(struct sim_op *op);
/* It is done, and leaves its queue. */
void sim_op_finish(struct sim_op *op);
/* sim_timed_look() at every stream with something in its queue. */
void sim_queue_look(void);
/* Drops queued work without running it: of a stream, of all. */
void sim_queue_discard(struct sim_stream *stream);
void sim_queue_reset(void);
/* Reports queued ops that still refer to a range that is about to go. */
void sim_check_unused(uintptr_t start, uintptr_t end, const char *what);
/* What an op does when it runs (copy.c). */
void sim_op_execute(struct sim_op *op);

/* ---- the modelled clock (timed.c) ---- */

/* Follows the device up to now. Nothing in it is random. How many ops are over. */
int sim_progress_due(void);
/* The same up to the next moment when something is over. False: nothing is at work. */
bool sim_timed_step(void);
/* Something happened to a stream, or its queue was empty: it may get on. */
void sim_timed_look(struct sim_stream *stream);
/* A stream is about to be held, or released: what it is at stands still. */
void sim_timed_hold(struct sim_stream *stream);
/* The first op of a stream has just left its queue. */
void sim_timed_finished(struct sim_stream *stream, struct sim_op *op);
void sim_queue_kernel(struct sim_stream *stream, uint64_t nanoseconds);
void sim_timed_reset(void);

/* ---- streams and events (stream.c, event.c) ---- */

enum sim_stream_kind { SIM_STREAM_PLAIN, SIM_STREAM_LEGACY, SIM_STREAM_THREAD };

struct sim_stream {
    uint64_t id;
    enum sim_stream_kind kind;
    bool blocking, held, destroyed, detached; /* the last: its green context is no more, and it can but be destroyed */
    unsigned flags;
    int priority;
    unsigned long thread; /* SIM_STREAM_THREAD: whose */
    struct sim_context *context;
    CUstream handle;
    TAILQ_HEAD(sim_op_queue, sim_op) queue;
    size_t queued, active;      /* ops in the queue; place in the scheduler's list when there are any */
    uint64_t through_at;        /* timed mode, at work: the share of the device with which its kernel is over */
    size_t work_place;          /* where it is among those at work, counted from 1; 0: it is not */
    struct sim_streams *listed; /* timed mode: the list of timed.c's that it is on, or NULL */
    TAILQ_ENTRY(sim_stream) look;
    struct sim_capture *capture;
    struct sim_op *capture_tail; /* last node of this stream in its capture; one reference */
    LIST_ENTRY(sim_stream) link;
};

struct sim_event {
    struct sim_context *context;
    unsigned flags;
    CUevent handle;
    struct sim_op *op;   /* the latest record; one reference */
    uint64_t capture;    /* id of the capture that it was recorded in, or 0 */
    struct sim_op *node; /* the node it stands for there; one reference */
    LIST_ENTRY(sim_event) link;
};

/* Turns a handle into a stream, 0, 1 and 2 included. */
CUresult sim_stream_of(CUstream handle, struct sim_stream **stream);
/* The same for a stream about to get work: refuses what a running capture forbids there. */
CUresult sim_stream_for_work(CUstream handle, struct sim_stream **stream);
struct sim_stream *sim_stream_new(struct sim_context *context, enum sim_stream_kind kind, unsigned flags, int priority);
/* Its queued work still runs; the memory goes when the queue is empty. */
void sim_stream_drop(struct sim_stream *stream);
void sim_stream_detach(struct sim_stream *stream);
void sim_stream_free(struct sim_stream *stream);
CUresult sim_stream_idle(struct sim_stream *stream, bool *idle);
void sim_event_drop(struct sim_event *event);
CUresult sim_event_record_barrier(struct sim_context *context, CUevent handle);

/* ---- capture and graphs (graph.c) ---- */

struct sim_graph {
    CUgraph handle;
    unsigned refs;                 /* the handle's and one of each executable made of it */
    struct sim_op **nodes;         /* in the order of capture; one reference each */
    size_t count, room, execs;     /* execs: executables of it that there are */
    bool embedded, moved;          /* a node's; and no clone, but what the program made */
    bool broken;                   /* a capture into it was destroyed: it has no nodes to tell of */
    LIST_HEAD(, sim_block) blocks; /* sim_block.link: memory of allocation nodes */
};

struct sim_capture {
    uint64_t id;
    CUstreamCaptureMode mode;
    unsigned long thread;
    bool invalid;
    struct sim_stream *origin;
    struct sim_graph *graph;
    size_t first; /* the nodes before were there when it began */
    LIST_ENTRY(sim_capture) link;
};

/* The work of a node, as an op that has yet to be queued. */
struct sim_op *sim_op_again(const struct sim_op *node);
void sim_graph_put(struct sim_graph *graph);

/* Refuses a call that is unsafe during a capture (900), and destroys the captures that it conflicts with. */
CUresult sim_capture_unsafe(void);
/* Refuses what is asked of a legacy stream while one that it would wait for captures (906), and destroys that capture.
 */
CUresult sim_capture_implicit(const struct sim_stream *stream);
void sim_capture_invalidate_context(const struct sim_context *context);
/* True when a blocking stream of this context captures. */
bool sim_capture_blocking(const struct sim_context *context);
bool sim_capture_in_context(const struct sim_context *context);
void sim_capture_append(struct sim_stream *stream, struct sim_op *op);
/* A stream that captures waits for an event, or one that does not joins the event's capture. */
CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event);
void sim_capture_leave(struct sim_stream *stream);
struct sim_capture *sim_capture_find(uint64_t id);
void sim_graphs_reset(void);

/* ---- memory (vmm.c, memory.c, mempool.c, pointer.c) ---- */

/* May the device of this context touch what lies there, by what was mapped or allowed? True of what is no memory. */
bool sim_in_sight(CUdeviceptr at, const struct sim_context *now);

struct sim_vmm_handle {
    CUmemGenericAllocationHandle value;
    unsigned refs, maps;
    int device;
    size_t size;
    int memfd;     /* its own, once it was exported; -1: a range of the device's */
    off_t offset;  /* in the device's */
    bool imported; /* another process's physical memory */
    bool host;     /* its memory is the host's; `device` only says whose file has the bytes */
    CUmemAllocationProp prop;
    LIST_HEAD(, sim_mapping) mappings; /* sim_mapping.link */
};

struct sim_reservation {
    struct sim_range range;
    size_t maps;
};

struct sim_mapping {
    struct sim_range range;
    struct sim_vmm_handle *handle;
    struct sim_reservation *reservation;
    uint64_t id;
    unsigned readable, writable; /* by device, one bit each */
    LIST_ENTRY(sim_mapping) link;
};

enum sim_block_kind {
    SIM_BLOCK_DEVICE,
    SIM_BLOCK_POOL,
    SIM_BLOCK_GRAPH,
    SIM_BLOCK_MANAGED,
    SIM_BLOCK_HOST,
    SIM_BLOCK_REGISTERED,
};

struct sim_block {
    struct sim_range range; /* as asked for */
    enum sim_block_kind kind;
    int device;
    size_t space, phys; /* address space and physical memory that it holds */
    uint64_t id;
    unsigned flags;
    bool on_list;
    bool sync_memops;            /* calls on it that are to be over when they return are */
    bool freeing;                /* a stream-ordered free is queued */
    bool dead;                   /* graph memory outside its life */
    bool given;                  /* graph memory: a launch has allocated it, and nobody has freed it since */
    struct sim_context *context; /* NULL for stream-ordered memory */
    struct sim_pool *pool;
    off_t offset;                     /* in its pool's file, where that has one */
    struct sim_op *born;              /* the stream-ordered allocation; one reference */
    uint64_t freed_by;                /* id of the stream that freed it; 0: none, or the host has waited for it since */
    struct sim_graph *graph;          /* that allocates it */
    unsigned access;                  /* graph memory: devices that may touch it beside its own */
    bool freed_at_home, freed_abroad; /* a node of that graph, or of another, frees it */
    LIST_ENTRY(sim_block) link;
};

struct sim_block *sim_block_find(uintptr_t address);
/* New memory with its own address space; `phys` bytes are taken from the device. */
CUresult sim_block_new(enum sim_block_kind kind, struct sim_context *context, int device, size_t bytes,
                       struct sim_block **block);
void sim_block_destroy(struct sim_block *block);
size_t sim_block_phys(size_t bytes);
/* Gives the device as much of what graphs have left; false: they had left nothing. The real driver gives back all of it
 * before it refuses memory, and tries again for cuMemAlloc alone (H200). */
bool sim_graph_memory_trim(int device, size_t most);
bool sim_managed_leave(int device, size_t bytes);
/* Why work of a context may not touch a range, or NULL when it may. A call refuses what is not there
 * (SIM_AT_CALL); when its work runs, the order matters as well: memory not yet born, or graph memory
 * outside its life (SIM_AT_RUN). A copy may go between devices without peer access, because the driver
 * stages it. */
enum sim_when { SIM_AT_CALL, SIM_AT_RUN };
const char *sim_access_fault(uintptr_t start, size_t bytes, const struct sim_context *context, bool write, bool copy,
                             enum sim_when when);
/* False for an address that no CUDA call made or registered. */
bool sim_access_known(uintptr_t address);
/* Host memory that CUDA does not know. */
bool sim_is_pageable(uintptr_t address);
void sim_vmm_reset(void);
void sim_blocks_reset(void);
/* The end of a stream-ordered free: the block goes back to its pool. NULL: of a synchronous one. */
void sim_pool_return(struct sim_block *block, const struct sim_stream *by);
/* What a synchronise does: gives physical memory back above the release threshold; what the stream of this id has freed
 * (0: all streams, or none at all) is anyone's. */
enum { SIM_ALL_STREAMS = 0 };
#define SIM_NO_STREAM UINT64_MAX
void sim_pools_settle(int device, uint64_t stream);
void sim_pools_trim(int device);
CUresult sim_free_async(struct sim_stream *stream, struct sim_block *block);
void sim_pools_reset(void);
