/* The one state of the library, and what the files of this layer share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VP_API_PRIVATE_H
#define VP_API_PRIVATE_H

#include "process/process.h"
#include "watch/shared_stats.h"
#include "base/log.h"
#include "base/options.h"
#include "pool/policy.h"

#include <pthread.h>

enum { VP_DEVICES = 64 };

/* A stream-ordered memory pool that we serve. The handle is the driver's own, and owns no memory there. */
struct vp_mempool {
    CUmemoryPool handle;
    CUdevice device;
    bool is_default;
    bool ending; /* being destroyed, or destroyed: the handle may be another pool's by now */
    bool dead;   /* destroyed; stays while blocks count for it */
    size_t blocks;
    uint64_t used, used_high, reserved_high;
    uint64_t threshold;
    bool threshold_set; /* by the program: then obeyed */
    uint64_t access;    /* devices that the pool itself was opened to, one bit each */
    bool reuse_opportunistic, reuse_internal;
    struct vp_list link; /* vp_state.mempools */
};

/* Physical memory of a device that others in the process have made themselves. */
struct vp_foreign_sum {
    uint64_t handles, bytes, peak_bytes;
};

struct vp_state {
    /* Guards everything below that is not atomic. Never held while a host wait runs. Driver calls are made under it;
     * the driver calls us back under none of its locks, but a tool's callback may: see vp_enter(). */
    pthread_mutex_t lock;
    atomic_int phase; /* enum vp_phase */
    atomic_bool coupled;
    bool fast;      /* the fast path may serve: no check runs after each operation */
    bool recording; /* each event goes to the recorder */
    struct vp_driver drv;
    struct vp_timelines timelines;
    struct vp_pool *pools[VP_DEVICES];
    bool refused[VP_DEVICES]; /* the device cannot: said once, passed on */
    struct vp_list peers;     /* of struct vp_peer: which context was given access to which one's device (peers.c) */
    uint64_t used;            /* devices that a context was seen of, one bit each */
    struct vp_mempool *current[VP_DEVICES]; /* the device's current pool; NULL: one that we do not serve */
    atomic_uint_least64_t
        mempools_changed; /* grows whenever a handle, or no handle, may mean another memory pool than before */
    struct vp_list mempools;
    atomic_bool sync_matters; /* some memory pool wants to know when the program synchronises */
    struct vp_slab mempool_slab, pool_slab, peer_slab;
    bool takes_dumps; /* a thread waits for somebody to ask for one */
    struct vp_foreign_sum others[VP_DEVICES];
    struct vp_table other_handles; /* struct vp_foreign by handle: others.c */
    struct vp_slab other_slab;
    struct vp_shared_stats *_Atomic page; /* what this process publishes (page.h); NULL: nothing. Set under the lock; at
                                             exit it is looked at without */
    atomic_uint_least64_t passed[VP_PASSED_COUNT];
    struct vp_list imports; /* of vp_import.link: memory of other processes (ipc.h) */
    unsigned doors;         /* one bit for each enum vp_passed: calls of that kind have come here */
};

enum vp_phase { VP_CLOSED, VP_OPEN, VP_REFUSED };

extern struct vp_state vp_state;

/* True while this thread is inside: what it meets under a driver call of ours is passed on. Initial-exec: the library
 * is there from the start, and asks nothing of the dynamic linker later. */
extern __thread bool vp_inside __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Takes the lock. False: not open, or this thread is inside already (a tool's callback under a driver call of ours):
 * pass the call on. */
bool vp_enter(void);
void vp_leave(void);

/* thread.c: the calling thread's own streams, while its end will be told of (see vp_timelines.of_thread); to be called
 * once, before threads are. */
void vp_threads_init(void);
struct vp_list *vp_thread_streams(void *user);
/* The lock was let go: what must not be done under it. */
void vp_thread_left(void);

/* life.c; with the lock held. Contexts that ended with nobody telling us; timelines that are gone and linger. */
void vp_contexts_drop_lost(void);
void vp_timelines_tidy(void);

/* Opens the pool of a device; NULL: the device's memory is not served. */
struct vp_pool *vp_state_open_pool(CUdevice dev) __attribute__((cold));
/* The pool of a device, opened at first use. */
static inline struct vp_pool *vp_state_pool(CUdevice dev) {
    struct vp_pool *pool = dev >= 0 && dev < VP_DEVICES ? vp_state.pools[dev] : NULL;
    return pool ? pool : vp_state_open_pool(dev);
}
/*
 * Waits on the host for all contexts of those devices, one bit each; not while captures run, which that would destroy.
 * The lock is held at entry and exit, and let go in between. A context that ends meanwhile has no work left. Returns
 * what fails on `own`: what does elsewhere is not its to report.
 */
CUresult vp_state_finish_work(uint64_t devices, CUdevice own);
/* cuMemGetInfo of that device, whichever is current. */
CUresult vp_state_mem_info(CUdevice dev, size_t *free_bytes, size_t *total);
/* What a call returns for an errno of a pool: behind -EIO, the driver's own answer. Either may be NULL. */
CUresult vp_state_result(int err, const struct vp_pool *pool, const struct vp_context *ctx);
/* The pool and live region that begins at `ptr`, or that holds it. */
struct vp_region *vp_state_find(CUdeviceptr ptr, struct vp_pool **pool);
struct vp_region *vp_state_find_inside(CUdeviceptr ptr, struct vp_pool **pool);

/* mempool.c. Registers the default pool of a device; accounts for a block. */
void vp_mempool_open_device(CUdevice dev);
struct vp_mempool *vp_mempool_of(CUmemoryPool handle);
void vp_mempool_account(void *mempool, size_t size, bool taken);

/*
 * peers.c. Whom the memory of a device is open to: peers of its contexts, devices that one of its memory pools was
 * opened to. `update` makes the device's pool agree: 0 or a negative errno, with nothing changed. `forget`: a context
 * has ended, and what was between it and others.
 */
void vp_peers_init(void);
/* The devices that the program lets touch memory of `dev`, one bit each, without itself. */
uint64_t vp_peers_of(CUdevice dev);
int vp_peers_update(CUdevice dev);
void vp_peers_forget(const struct vp_context *ctx);
/* Did the program give work of `ctx` access to the memory that `block` is? */
bool vp_peers_may(const struct vp_context *ctx, const struct vp_pool *pool, const struct vp_region *block);

/* copies.c. A context was seen for the first time: from that of a second device on, copies matter. */
void vp_copies_arrived(void *unused, struct vp_context *ctx);

/* fast.c: what needs no lock of the library. As the calls of api.h; false: the slow way decides. `know` tells it what
 * that found out. */
bool vp_fast_alloc(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream);
bool vp_fast_free(CUdeviceptr ptr, CUstream stream);
void vp_fast_know(CUstream stream, CUmemoryPool pool, const struct vp_timeline *timeline, const struct vp_mempool *mp);

/* pressure.c: VPOOL_LIMIT of a device in bytes, 0 for none; begins to watch for idle memory, if VPOOL_IDLE_TRIM says
 * so; gives back what was idle since the last call (with the lock held). */
size_t vp_pressure_limit(CUdevice dev);
void vp_pressure_start(void);
void vp_pressure_tick(void);
/* The process ends: from here on nothing is given back by time. */
void vp_pressure_stop(void);

/* page.c. The pool gets a place in the page, which is made for the first one; what has changed is published; a forked
 * child has no page yet; the process ends. */
void vp_shared_stats_open_device(struct vp_pool *pool);
void vp_shared_stats_publish(void);
void vp_shared_stats_leave_to_parent(void);
void vp_shared_stats_remove(void);

/* The policy in force; NULL: all is left to CUDA. */
const struct vp_policy *vp_policy_chosen(void);
/* stats.c. Its name in VPOOL_POLICY. */
const char *vp_policy_name(void);
/* The pattern with each %p replaced by the process id; false if it does not fit. */
bool vp_file_name(char *out, size_t room, const char *pattern);
void vp_stats_write(void);

/* trace.c: records `a` (allocated) or `f` (freed); `stream` is a timeline's number, 0 for a synchronous call. Needs no
 * lock. */
void vp_trace_event(char op, CUdevice device, uint64_t serial, size_t size, uint32_t stream);
/* Records `m`, the program's own mark. False: nothing is recorded. */
bool vp_trace_mark(const char *name);
/* The file gets its true length; nothing is recorded any more. */
void vp_trace_end(void);
/* Around a fork: the file stays the parent's. The lock comes last. */
void vp_trace_fork_prepare(void);
void vp_trace_fork_parent(void);
void vp_trace_fork_child(void);

#endif
