/* The single state of the library, and what the files of this folder share. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/locked.h"
#include "process/process.h"
#include "process/watch.h"
#include "base/cancel.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/options.h"
#include "base/process.h"
#include "pool/policy.h"

#include <assert.h>

enum { VP_DEVICES = VP_ORDER_DEVICES };

/* For the functions of include/vpool.h. */
#define VP_PUBLIC __attribute__((visibility("default")))

/* Bits of sync_matters: there are pools with a threshold, or without opportunistic reuse; idle memory that is to go
 * back; destroyed pools that are not closed yet. */
enum { VP_SYNC_POOLS = 1, VP_SYNC_GIVING = 2, VP_SYNC_ENDED = 4 };

/* A stream-ordered memory pool that the library serves. The handle is the driver's, and owns no memory there. */
struct vp_mempool {
    CUmemoryPool handle;
    CUdevice device;
    bool is_default;
    bool ending; /* being destroyed, or destroyed: the handle may belong to another pool by now */
    bool dead;   /* destroyed; stays while blocks count for it */
    size_t blocks;
    uint64_t used, used_high, reserved_high;
    uint64_t had; /* the most that was used since it was trimmed */
    bool told;    /* has a threshold, and the program has asked what it holds */
    uint64_t threshold;
    bool threshold_set; /* by the program: then obeyed */
    uint64_t access;    /* devices that the pool itself was opened to, one bit each */
    bool fenced;        /* dead, with no block left, and `fence` is what those had queued by then */
    struct vp_fence fence;
    bool reuse_opportunistic, reuse_internal, decompresses;
    struct vp_list link; /* vp_state.mempools */
};

/* What a program was last told is free on a device, how much of that was idle memory, and vp_pool_generation() then. */
struct vp_told {
    uint64_t generation;
    size_t bytes, idle;
};

/* The last block of the size reported as free or, after that failed, of a half, a quarter…; and the state before it. */
struct vp_trial {
    uint64_t serial, allocs, served_ns;
    size_t held, peak_live, top_live, top_held;
    uint64_t had, used_high, reserved_high; /* of its memory pool */
};

/* cuCtxEnablePeerAccess, called in `from`, for the memory of `to`'s device. */
struct vp_peer {
    const struct vp_context *from, *to;
    struct vp_list link; /* vp_state.peers */
};

/* Physical memory of a device that other code in the process has made. */
struct vp_foreign_sum {
    uint64_t handles, bytes, peak_bytes;
};

/* Functions of higher files that state.c calls. vp_api_open() fills them in, once. */
struct vp_hooks {
    void (*forked)(void);    /* this is the child of a fork that no handler heard of */
    void (*drop_lost)(void); /* contexts have ended with nobody telling us; with the lock held */
    void (*left)(void);      /* the lock was let go, and vp_thread.tells_end is set */
    struct vp_pool *(*open_pool)(CUdevice dev);
    struct vp_bare *(*promised)(
        void); /* where the calling thread was promised room, for a block that has yet to come */
};

/* The library's lock (vp_library_lock) guards everything here that is not atomic. It is never held while the host
 * waits. Driver calls are made under it. The driver holds no lock when it calls back, but a tool may: see vp_enter().
 */
struct vp_state {
    atomic_uint came, had; /* threads that found it taken, and those of them that have had it since */
    atomic_int phase;      /* enum vp_phase */
    atomic_bool coupled, shares;
    bool adopted VP_GUARDED; /* a framework makes stream-ordered calls because of us */
    bool fills;              /* memory handed out is filled: poison.h */
    bool fast;               /* the fast path may serve: no check runs after each operation */
    atomic_bool recording;   /* each event is told of */
    bool published;          /* what changes is told when the lock is let go */
    struct vp_hooks on;
    struct vp_driver drv;
    struct vp_timelines timelines; /* but for what it says is atomic */
    struct vp_pool *pools[VP_DEVICES] VP_GUARDED;
    _Atomic(struct vp_bare *) bares[VP_DEVICES]; /* bare segments of a device, found without the lock */
    atomic_int bare_count;                       /* devices up to here may have some */
    bool refused[VP_DEVICES] VP_GUARDED;         /* the device cannot: said once, passed on */
    /* Of struct vp_peer (peers.c): which context was given access to which context's device. */
    struct vp_list peers VP_GUARDED;
    uint64_t used VP_GUARDED;                          /* devices that a context was seen of, one bit each */
    CUmemoryPool defaults[VP_DEVICES] VP_GUARDED;      /* the default pools of devices, as far as they were asked for */
    struct vp_mempool *current[VP_DEVICES] VP_GUARDED; /* the device's current pool; NULL: one that we do not serve */
    struct vp_told told[VP_DEVICES] VP_GUARDED;
    struct vp_trial trial[VP_DEVICES] VP_GUARDED;
    atomic_uint_least64_t
        mempools_changed; /* grows whenever a handle, or no handle, may mean another memory pool than before */
    struct vp_list mempools VP_GUARDED;
    atomic_uint sync_matters; /* VP_SYNC_: who wants to know when the program synchronises */
    struct vp_slab mempool_slab VP_GUARDED, pool_slab VP_GUARDED, peer_slab VP_GUARDED;
    struct vp_foreign_sum others[VP_DEVICES] VP_GUARDED;
    struct vp_table other_handles VP_GUARDED; /* struct vp_foreign by handle: foreign.c */
    struct vp_slab other_slab VP_GUARDED;
    atomic_uint_least64_t passed[VP_PASSED_COUNT];
    atomic_bool ranks;                 /* an NCCL communicator of several ranks was made */
    bool rdma;                         /* other devices may want to reach the GPUs' memory */
    bool ranked;                       /* one of several processes that were started together, as by MPI */
    uint64_t registered VP_GUARDED;    /* devices memory of which was registered with others, one bit each */
    uint64_t multicast VP_GUARDED;     /* or bound to a multicast object */
    CUdeviceptr latest VP_GUARDED;     /* that cudaMalloc handed out */
    bool shows_next VP_GUARDED;        /* and that others are shown: so may be the next */
    struct vp_list imports VP_GUARDED; /* of vp_import.link: memory of other processes (ipc.h) */
    unsigned ties[VP_TIES] VP_GUARDED; /* ties.c */
    unsigned tied VP_GUARDED;          /* of which kinds there are some, one bit each */
    struct vp_table managed VP_GUARDED;
    struct vp_slab managed_slab VP_GUARDED;
    unsigned doors VP_GUARDED; /* one bit for each enum vp_passed: calls of that kind have come here */
};

enum vp_phase { VP_CLOSED, VP_OPEN, VP_REFUSED };

extern struct vp_state vp_state;

/* Initial-exec: the library is loaded at the start, so access needs no call of the dynamic linker. */
struct vp_thread {
    bool inside;    /* this thread has the lock, or is about to: what it meets under a driver call of ours, or in a
                       signal's handler, is passed on */
    bool tells;     /* though inside, it has not the lock: it tells of what its stream's cache has served */
    bool tells_end; /* its end is to be told of: see vp_thread_left() */
    bool forks;     /* it has taken what a fork takes */
};
extern __thread struct vp_thread vp_thread __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* ---- state.c ---- */

void vp_forked(void) __attribute__((cold));

/* Takes the lock. Threads that have to wait for it are counted: see vp_wait_pause(). */
void vp_lock_behind_others(void) VP_ACQUIRES(vp_library_lock) __attribute__((cold));
static inline VP_ACQUIRES(vp_library_lock) void vp_lock_in_turn(void) {
    if (__builtin_expect(!vp_lock_try(&vp_library_lock), false))
        vp_lock_behind_others();
}

/* Around driver calls of the library that are made without the lock; not nested. What the thread does during them (a
 * tool's callback that calls CUDA) is passed on, as under the lock. A thread with the lock has this state, too. */
extern struct VP_LOCK_TYPE vp_calls vp_own_calls; /* for the analysis alone: there is none */
static inline VP_ACQUIRES(vp_own_calls) VP_NOT_ANALYSED void vp_calls_begin(void) {
    assert(!vp_thread.inside);
    vp_thread.inside = true;
}
static inline VP_RELEASES(vp_own_calls) VP_NOT_ANALYSED void vp_calls_end(void) {
    vp_thread.inside = false;
}

/* As vp_enter(), for calls that mostly reach no cancellation point. */
static inline VP_TRIES(vp_library_lock) bool vp_enter_briefly(void) {
    if (__builtin_expect(!vp_process_is_marked(), false))
        vp_forked();
    if (atomic_load_explicit(&vp_state.phase, memory_order_acquire) != VP_OPEN || vp_thread.inside)
        return false;
    vp_cancel_arm();
    vp_thread.inside = true;
    vp_lock_in_turn();
    if (__builtin_expect(vp_state.timelines.lost, false))
        vp_state.on.drop_lost();
    return true;
}
/* Takes the lock. False: the library is not open, or this thread is inside it (a tool's callback): pass the call on. */
bool vp_enter(void) VP_TRIES(vp_library_lock);
void vp_leave(void) VP_RELEASES(vp_library_lock);
/* In the middle of a call: release the lock, and take it again. The thread cannot be cancelled meanwhile. */
void vp_step_out(void) VP_RELEASES(vp_library_lock);
void vp_step_in(void) VP_ACQUIRES(vp_library_lock);

/* Starts a thread of the library's own, which gets no signals of the program and ends with the process. 0 or -errno. */
int vp_thread_start(void *(*run)(void *));

/* For each pool that there is. */
#define vp_pools_each(pool) for (struct vp_pool *pool = vp_next_pool(-1); pool; pool = vp_next_pool(pool->mem.device))
static inline VP_LOCKED struct vp_pool *vp_next_pool(CUdevice dev) {
    while (++dev < VP_DEVICES)
        if (vp_state.pools[dev])
            return vp_state.pools[dev];
    return NULL;
}
/* The pool of a device, opened at first use; NULL: the device's memory is not served. */
static inline VP_LOCKED struct vp_pool *vp_state_pool(CUdevice dev) {
    struct vp_pool *pool = dev >= 0 && dev < VP_DEVICES ? vp_state.pools[dev] : NULL;
    return pool ? pool : vp_state.on.open_pool(dev);
}
/* The pool and live region that begins at `ptr`, or that holds it. */
struct vp_region *vp_state_find(CUdeviceptr ptr, struct vp_pool **pool) VP_LOCKED;
struct vp_region *vp_state_find_inside(CUdeviceptr ptr, struct vp_pool **pool) VP_LOCKED;
/* The devices, one bit each, that the program has given access to the memory of `dev`, without `dev` itself. */
uint64_t vp_peers_of(CUdevice dev) VP_LOCKED;
/* The names of enum vp_passed. */
extern const char *const vp_passed_names[VP_PASSED_COUNT];
/* query.c. Has the driver let such calls wait in a context? See vp_api_sync_memops(). */
bool vp_sync_memops(struct vp_context *ctx) VP_LOCKED;

static inline void vp_record(char op, CUdevice device, uint64_t serial, size_t size, uint32_t stream) {
    if (atomic_load_explicit(&vp_state.recording, memory_order_relaxed))
        vp_watch.event(op, device, serial, size, stream);
}

/* ---- errors.c ---- */

/* What a call returns for an errno; behind -EIO, the driver's own answer to the pool. `pool` and `ctx` may be NULL. */
CUresult vp_result_of(int err, const struct vp_pool *pool, const struct vp_context *ctx) VP_LOCKED;
static inline VP_LOCKED CUresult vp_result(int err, const struct vp_pool *pool, const struct vp_context *ctx) {
    return err ? vp_result_of(err, pool, ctx) : CUDA_SUCCESS;
}

/* ---- wait.c: on the host. The lock is held at entry and exit, and let go in between ---- */

/* How long an allocation waits for pending work to free something before it reports out of memory. */
static const uint64_t VP_PENDING_WAIT_NS = 5000000000;
/* How much of it may be waiting for captures to end, before which nothing freed meanwhile can be known to be over. Most
 * take less; some programs capture all the time; and it may be the calling thread's own. */
static const uint64_t VP_QUARANTINE_WAIT_NS = 100000000;

/* Sleeps for a moment, which is longer the longer the call has waited. */
void vp_wait_pause(uint64_t waited_ns) VP_LOCKED;
/* Waits for an event. True: it completed. False: the time was up, its context ended, or an error occurred, which its
 * context keeps. */
bool vp_wait_event(struct vp_event *ev) VP_LOCKED __attribute__((cold));
/* Would the request fail even if all pending memory became free? */
bool vp_wait_is_hopeless(struct vp_pool *pool, size_t size) VP_LOCKED __attribute__((cold));
/* Waits for work queued before `serial`, and for later work that may free `size` bytes. True: something completed since
 * (`moves` is timelines.moves at the last attempt; other threads look, too), so another attempt may succeed. False: no
 * such work is left, or it takes too long. Also waits for memory freed during a capture, which has no event yet. */
bool vp_wait_pending(struct vp_pool *pool, size_t size, uint64_t serial, uint64_t begin, uint64_t moves) VP_LOCKED;
/* Waits for all contexts of `devices`, one bit each; not during captures, which that would end. A context that ends
 * meanwhile has no work left. Returns the error of device `own` only. `*over`: all could be waited for. */
CUresult vp_wait_for_devices(uint64_t devices, CUdevice own, bool *over) VP_LOCKED;

uint64_t vp_devices_of_all(const struct vp_pool *pool);
/* Adds to the fence all queued work, of any of these contexts, that could touch the pool's memory. 0 or -ENOMEM. */
int vp_barrier_of_all(const struct vp_pool *pool, bool record, struct vp_fence *fence) VP_LOCKED;

/* ---- borrow.c ---- */

/* Asks the user's other processes for what a request of `size` bytes lacks, and waits a bounded time while one of them
 * has some. `*begin` is 0 at first. True: some became free, so try again. Releases the lock meanwhile. */
bool vp_borrow(struct vp_pool *pool, size_t size, uint64_t *begin) VP_LOCKED __attribute__((cold));
/* Waits while another process is being woken, which needs the devices' memory. True: it waited, or memory was refused
 * for that since `*seen` was vp_memory.held_back. Releases the lock meanwhile. */
bool vp_borrow_held_back(struct vp_pool *pool, unsigned *seen) VP_LOCKED __attribute__((cold));

/* ---- ties.c ---- */

/* Memory that is not the pool's is about to be freed. */
void vp_ties_freed(CUdeviceptr ptr) VP_LOCKED;

/* ---- capture.c, context.c, stream.c ---- */

/* If no capture is in progress any more, records events for what was freed during captures. */
void vp_captures_over(void) VP_LOCKED;
/* Would CUDA refuse a synchronous allocation or free of the calling thread, because of a capture? Then its answer is
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the captures that forbid it are over. */
static inline VP_LOCKED bool vp_forbidden(void) {
    return __builtin_expect(atomic_load_explicit(&vp_state.timelines.captures, memory_order_relaxed) != 0, false) &&
           vp_captures_forbid(&vp_state.timelines);
}
/* The same of a stream-ordered one, on a stream that does not capture. But what a framework asks because of us, it
 * would have had of its own cache. */
static inline VP_LOCKED bool vp_forbidden_ordered(void) {
    return !vp_state.adopted && vp_forbidden();
}
/* Drops contexts whose end no call reported. */
void vp_contexts_drop_lost(void) VP_LOCKED;
/* The calling thread's own streams, while its end will be told of (see vp_timelines.of_thread); `init` once, before. */
void vp_threads_init(void);
struct vp_list *vp_thread_streams(void *user);
/* What is not to be done under the lock. */
void vp_thread_left(void) VP_UNLOCKED;

/* mempool.c. Registers the default pool of a device; accounts for a block. */
void vp_mempool_open_device(CUdevice dev) VP_LOCKED;
struct vp_mempool *vp_mempool_of(CUmemoryPool handle) VP_LOCKED;
void vp_mempool_account(void *mempool, size_t size, bool taken) VP_LOCKED;
/* Idle memory that belongs to `of`; of NULL: that was reported as some pool's. */
uint64_t vp_mempools_idle(CUdevice dev, const struct vp_mempool *of) VP_LOCKED;
/* What it has in use, and of that. */
uint64_t vp_mempool_reserved(const struct vp_mempool *mp) VP_LOCKED;

/* trial.c. Is a request of so many bytes a trial? */
bool vp_trial_is(const struct vp_pool *pool, size_t size) VP_LOCKED __attribute__((cold));
/* The next is of half the size. */
void vp_trial_failed(const struct vp_pool *pool) VP_LOCKED __attribute__((cold));
/* What is before it; it was served by that block. */
struct vp_trial vp_trial_begin(const struct vp_pool *pool, const struct vp_mempool *mp) VP_LOCKED __attribute__((cold));
void vp_trial_served(const struct vp_pool *pool, struct vp_trial trial, const struct vp_region *block) VP_LOCKED
    __attribute__((cold));
/* The memory pool of a block that was one, with none served since; NULL: of any other. */
struct vp_mempool *vp_trial_of(const struct vp_pool *pool, const struct vp_region *block) VP_LOCKED
    __attribute__((cold));
/* It was freed: nothing is to be left of it. */
void vp_trial_over(struct vp_pool *pool, struct vp_mempool *mp) VP_LOCKED __attribute__((cold));

/* peers.c. Whom the memory of a device is open to: peers of its contexts, devices that one of its memory pools was
 * opened to. `update` makes the device's pool agree: 0 or a negative errno, with nothing changed. `forget`: a context
 * has ended, and what was between it and others. */
int vp_peers_update(CUdevice dev) VP_LOCKED;
void vp_peers_forget(const struct vp_context *ctx) VP_LOCKED;
/* Did the program give work of `ctx` access to the memory of `owner`, to the memory that `block` is? */
bool vp_peers_reach(const struct vp_context *ctx, const struct vp_context *owner) VP_LOCKED;
bool vp_peers_may(const struct vp_context *ctx, const struct vp_pool *pool, const struct vp_region *block) VP_LOCKED;

/* copies.c. A context was seen for the first time: from that of a second device on, copies matter. So they do while
 * something is spilled, which may have begun or ended. */
void vp_copies_arrived(void *unused, struct vp_context *ctx) VP_LOCKED;
void vp_copies_update(void) VP_LOCKED;
/* Could every device in use access the pool's memory? If not, copies name two contexts, which spilled memory forbids.
 */
bool vp_copies_reach_all(const struct vp_pool *pool) VP_LOCKED;

/* fast.c: what needs no lock of the library; false: the slow way decides. `know` tells it what that found out. */
bool vp_fast_alloc(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream) VP_UNLOCKED;
bool vp_fast_free(CUdeviceptr ptr, CUstream stream) VP_UNLOCKED;
void vp_fast_know(CUstream stream, CUmemoryPool pool, const struct vp_timeline *timeline,
                  const struct vp_mempool *mp) VP_LOCKED;

/* pressure.c: a SHARE option in bytes, of a device, 0 for none; begins to watch for idle memory, if VPOOL_IDLE_TRIM
 * says so; gives back what was idle since the last call. */
size_t vp_pressure_share(CUdevice dev, uint64_t share, const char *option);
void vp_pressure_start(void);
void vp_pressure_tick(void) VP_LOCKED;
/* Idle memory is to go back by itself when the program synchronises, if that is due. `synchronized`: it has. `trim`
 * does as it is asked, now and, for what work still uses, then. */
void vp_pressure_remember(bool due) VP_LOCKED;
void vp_pressure_synchronized(void) VP_LOCKED;
size_t vp_pressure_trim(struct vp_pool *pool, size_t keep) VP_LOCKED;
/* All that is idle, on every device, goes back now. The bytes. */
size_t vp_pressure_trim_all(void) VP_LOCKED;
/* The process ends: from here on nothing is given back by time. */
void vp_pressure_stop(void);

/* open.c. The policy in force; NULL: all is left to CUDA. */
const struct vp_policy *vp_policy_chosen(void);
/* Its name in VPOOL_POLICY. */
const char *vp_policy_name(void);
