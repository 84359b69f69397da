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
/* Returns how long a call must take, in milliseconds, before or after its work. */
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
/* Does the object (still) exist? */
bool sim_handle_is(enum sim_handle_kind kind, const void *handle);
void sim_handle_free(enum sim_handle_kind kind, const void *handle);
/* Calls `visit` for every live item. */
void sim_handle_each(enum sim_handle_kind kind, void (*visit)(void *item, void *arg), void *arg);
size_t sim_handle_count(enum sim_handle_kind kind);
void sim_handle_reset(void);
/* Arrays and modules go with their context. */
struct sim_context;
void sim_code_end(struct sim_context *context);
/* Returns where an array's bytes are, and the length of a row; 0: it has none. */
uintptr_t sim_array_at(CUarray array, size_t *row);

/* Disjoint address ranges, kept in a search tree. Embedded first in what lies there. */
struct sim_range {
    uintptr_t start, end;
};

/* Some range that overlaps [start, end), or NULL. With one byte: the range that holds the address. */
void *sim_range_find(void *const *root, uintptr_t start, uintptr_t end);
void sim_range_insert(void **root, struct sim_range *range);
void sim_range_remove(void **root, struct sim_range *range);
/* Visits all ranges in address order, with the simulator's lock held. The tree must not change meanwhile. */
void sim_range_each(const void *root, void (*visit)(void *item, void *arg), void *arg);
/* Returns any range: used to empty a tree. */
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
    int ordinal, physical, memfd;     /* ordinal: its number here; physical: its number among all */
    size_t used, used_vmm, of_graphs; /* of_graphs: what destroyed graphs have left for others */
    off_t next_offset;                /* memfd offsets only grow; released ranges are punched out */
    struct sim_context *primary;
    int primary_refs;
    unsigned primary_flags;
    struct sim_pool *default_pool, *pool;
};

enum { SIM_ENTERED_FIRST = 16 };

/* A thread's view: the stack of contexts, and the capture mode. Dropped if its generation is not that of the state. */
struct sim_thread {
    unsigned long generation, id;
    struct sim_context *first[SIM_ENTERED_FIRST], **more; /* the stack: few, as threads have little room; the rest */
    size_t depth, room;                                   /* contexts in both; room in `more` */
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
    uint64_t clock_ns; /* the modelled time */
    uint64_t next_id;  /* stream, context, capture and buffer ids: never used twice */
    unsigned long violations;
    void (*watch_fills)(CUdeviceptr at, size_t bytes, uint32_t value); /* NULL: no watcher */
    void (*watch_copies)(CUdeviceptr to, CUdeviceptr from, size_t bytes);
    struct sim_device devices[SIM_MAX_DEVICES];
    int device_count;                       /* visible devices */
    void *reservations, *mappings, *blocks; /* roots of range trees */
    void *graves;                           /* address space of freed blocks, kept for the next of its size */
    size_t reserved_bytes;
    size_t host_bytes;                 /* bytes of handles in host memory */
    LIST_HEAD(, sim_context) contexts; /* sim_context.link; destroyed ones stay until the reset */
    LIST_HEAD(, sim_capture) captures; /* sim_capture.link; running ones */
};

extern struct sim_state sim;

struct sim_thread *sim_self(void);
/* The context that the thread has entered last, alive or not; NULL: none. */
struct sim_context *sim_entered(void);
CUresult sim_enter_context(struct sim_context *context);
void sim_leave_context(void); /* that one, if there is one */
/* A cancellation point in the middle of a call, with the lock released; then the op is put. */
void sim_may_be_cancelled(struct sim_op *op);
uint32_t sim_random(uint32_t below);
void sim_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_cost(uint64_t nanoseconds);
/* The modelled clock in timed mode, else the real one; the second function always returns the real one. */
uint64_t sim_now_ns(void);
uint64_t sim_real_ns(void);
bool sim_device_ok(CUdevice device);
size_t sim_capacity(int device);
int sim_device_at(int physical); /* the number of devices: it is not visible */
bool sim_has_vmm(int device);
/* Can work of one device access memory of another, if that is allowed? */
bool sim_device_reaches(int device, int owner);
/* The host's one node. */
enum { SIM_HOST_NODE = 0 };
/* Are any of these bytes in a handle of host memory? The real driver counts such memory as the host's, and refuses
 * copies that call it the device's. */
bool sim_is_host_vmm(uintptr_t start, size_t bytes);
/* Physical memory, counted only. False: there is not that much left. */
bool sim_phys_take(int device, size_t bytes);
void sim_phys_give(int device, size_t bytes);
/* The same for all processes that share a file (ledger.c); and what others have. */
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

/* Finds the line of a process, and locks the file for this process; NULL: that has none. The second unlocks it in
 * either case. */
struct sim_line *sim_ledger_find(int pid);
void sim_ledger_unlock(void);
/* Gives this process a line, if a file is named. */
void sim_ledger_join(void);
/* Around each driver call: waits while another process has locked this one. False: there is nothing to end. */
bool sim_ledger_begin(void);
void sim_ledger_end(void);
/* Take away what a process has of the devices, and give it back. False: there is no room. */
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
    struct sim_context *peer_of[SIM_MAX_DEVICES]; /* the peer on each device; access ends with it */
    void *local;                                  /* what its functions need to run; NULL: none has run yet */
    struct sim_op *awaits;                        /* what is queued from now on waits for this op */
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
    SIM_OP_GRAPH,      /* a node with graphs of its own, at most one of which is run; it is no work itself */
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
    uint64_t work_ns;                     /* timed mode: how long a kernel that does not run now must still run */
    struct sim_op *waiters, *next_waiter; /* timed mode: ops that may continue when this is done; one reference each */
    bool waits;                           /* it is one of them itself */
    bool mark;                            /* graphs: reached from the end */
    struct sim_graph *graph;              /* the graph that it is a node of */
    uint64_t node, original;              /* its number, and that of the node that it was cloned from */
    struct sim_graph *launched;           /* the launched graph whose memory it uses: kept until it is done */
    union {
        struct {
            uintptr_t dst;
            size_t pitch, width, height;
            uint32_t value;
            unsigned element;
            const struct sim_context *by; /* the context that it runs in */
        } fill;
        struct {
            uintptr_t dst, src;
            size_t dst_pitch, src_pitch, width, height;
            const struct sim_context *dst_by, *src_by; /* who accesses each end: the stream's, or the copy's */
            void *staged;                              /* the source, if that was ordinary host memory */
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
            const struct sim_context *by; /* the function's context */
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
/* The same for a node, which never runs, and so is never done. */
void sim_op_follow(struct sim_op *op, struct sim_op *on);
/* Appends an op to a stream, or to its capture; takes over the reference. Adds the order that the legacy
 * stream implies. */
void sim_op_enqueue(struct sim_stream *stream, struct sim_op *op);
/* Makes an op of no stream that is done when everything queued now is: on a stream, in a context, on a device. */
struct sim_op *sim_barrier_stream(struct sim_stream *stream);
struct sim_op *sim_barrier_context(struct sim_context *context);
struct sim_op *sim_barrier_device(int device);
/* Runs what the op depends on until it is done, and drops a reference; LAUNCH_TIMEOUT when that never comes. */
CUresult sim_op_wait_put(struct sim_op *op);
/* Runs up to n ops at random. Returns how many ran. */
int sim_progress(int n);
/* The little progress that a query makes. */
void sim_progress_query(void);
size_t sim_pending(void);
/* For timed.c. Returns the first dependency that is not done, and drops those that are. */
struct sim_op *sim_op_open_dep(struct sim_op *op);
/* Runs the op at the head of its queue, if nothing holds it up. */
bool sim_op_try(struct sim_op *op);
/* Marks an op as done, and removes it from its queue. */
void sim_op_finish(struct sim_op *op);
/* sim_timed_look() at every stream with something in its queue. */
void sim_queue_look(void);
/* Drop queued work without running it: of one stream, of all. */
void sim_queue_discard(struct sim_stream *stream);
void sim_queue_reset(void);
/* Reports queued ops that still refer to a range that is about to go. */
void sim_check_unused(uintptr_t start, uintptr_t end, const char *what);
/* What an op does when it runs (copy.c). */
void sim_op_execute(struct sim_op *op);

/* ---- the modelled clock (timed.c) ---- */

/* Advances the device to the current time; nothing is random. Returns how many ops were done. */
int sim_progress_due(void);
/* The same up to the next time when something is done. False: nothing runs. */
bool sim_timed_step(void);
/* To be called when something happened to a stream, or its queue was empty: it may continue. */
void sim_timed_look(struct sim_stream *stream);
/* To be called before a stream is held or released: its work stands still. */
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
    bool blocking, held, destroyed, detached; /* detached: its green context has ended; it can only be destroyed */
    unsigned flags;
    int priority;
    unsigned long thread; /* SIM_STREAM_THREAD: its thread */
    struct sim_context *context;
    CUstream handle;
    TAILQ_HEAD(sim_op_queue, sim_op) queue;
    size_t queued, active;      /* ops in the queue; index in the scheduler's list if there are any */
    uint64_t through_at;        /* timed mode, running: the share of the device at which its kernel is done */
    size_t work_place;          /* its index among running streams, from 1; 0: it does not run */
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
/* Destroys a stream. Its queued work still runs; its memory is freed when the queue is empty. */
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
    size_t count, room, execs;     /* execs: how many executables of it exist */
    bool embedded, moved;          /* it belongs to a node; and it is no clone, but the program's own */
    bool broken;                   /* a capture into it was destroyed: its nodes cannot be queried */
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

/* Makes the work of a node, as an op that is not queued yet. */
struct sim_op *sim_op_again(const struct sim_op *node);
void sim_graph_put(struct sim_graph *graph);

/* Refuses a call that is unsafe during a capture (900), and invalidates the captures that it conflicts with. */
CUresult sim_capture_unsafe(void);
/* Refuses a call on a legacy stream while a stream that it would wait for captures (906), and invalidates that capture.
 */
CUresult sim_capture_implicit(const struct sim_stream *stream);
void sim_capture_invalidate_context(const struct sim_context *context);
/* True when a blocking stream of this context captures. */
bool sim_capture_blocking(const struct sim_context *context);
bool sim_capture_in_context(const struct sim_context *context);
void sim_capture_append(struct sim_stream *stream, struct sim_op *op);
/* Makes a capturing stream wait for an event, or another stream join the event's capture. */
CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event);
void sim_capture_leave(struct sim_stream *stream);
struct sim_capture *sim_capture_find(uint64_t id);
void sim_graphs_reset(void);

/* ---- memory (vmm.c, memory.c, mempool.c, pointer.c) ---- */

/* May the device of this context access what is there, by mappings and access rights? Also true if it is no memory. */
bool sim_in_sight(CUdeviceptr at, const struct sim_context *now);

struct sim_vmm_handle {
    CUmemGenericAllocationHandle value;
    unsigned refs, maps;
    int device;
    size_t size;
    int memfd;     /* its own, once it was exported; -1: a range of the device's */
    off_t offset;  /* offset in the device's file */
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
    unsigned readable, writable; /* one bit for each device */
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
    bool sync_memops;            /* calls on it must have finished when they return */
    bool freeing;                /* a stream-ordered free is queued */
    bool dead;                   /* graph memory outside its life */
    bool given;                  /* graph memory: a launch has allocated it, and nobody has freed it since */
    struct sim_context *context; /* NULL for stream-ordered memory */
    struct sim_pool *pool;
    off_t offset;                     /* in its pool's file, where that has one */
    struct sim_op *born;              /* the stream-ordered allocation; one reference */
    uint64_t freed_by;                /* id of the stream that freed it; 0: none, or the host has waited for it since */
    struct sim_graph *graph;          /* the graph that allocates it */
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
/* Ends a stream-ordered free: the block goes back to its pool. NULL: a synchronous free. */
void sim_pool_return(struct sim_block *block, const struct sim_stream *by);
/* What a synchronise does: gives physical memory back above the release threshold; what the stream of this id has freed
 * (0: all streams, or none at all) is anyone's. */
enum { SIM_ALL_STREAMS = 0 };
#define SIM_NO_STREAM UINT64_MAX
void sim_pools_settle(int device, uint64_t stream);
void sim_pools_trim(int device);
CUresult sim_free_async(struct sim_stream *stream, struct sim_block *block);
void sim_pools_reset(void);
