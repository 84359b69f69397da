/* Allocation and release, and the state behind them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include "watch/dump.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "pool/throttle.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct vp_state vp_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* How long a host wait for an earlier cudaFree may last before more memory is taken instead: natively that cudaFree
 * would have waited without bound, but maybe on another thread, which this one could be holding up. */
static const uint64_t BARRIER_WAIT_NS = 2000000000;

/* After such a wait in vain, others are not tried for so long: what holds the device up may do so for good. */
static const uint64_t BARRIER_REST_NS = 60000000000;

/* How long an allocation waits for pending work to free something before it reports out of memory. */
static const uint64_t PENDING_WAIT_NS = 5000000000;

/* How much of it may be waiting for captures to end, before which nothing freed meanwhile can be known to be over. Most
 * take less; some programs capture all the time. */
static const uint64_t QUARANTINE_WAIT_NS = 100000000;

__thread bool vp_inside __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* As vp_enter(), for calls that mostly come to no point of cancellation. */
static inline bool enter_briefly(void) {
    if (__builtin_expect(!vp_process_is_marked(), false))
        vp_api_fork_child();
    if (atomic_load_explicit(&vp_state.phase, memory_order_acquire) != VP_OPEN || vp_inside)
        return false;
    vp_cancel_arm();
    pthread_mutex_lock(&vp_state.lock);
    vp_inside = true;
    if (__builtin_expect(vp_state.timelines.lost, false))
        vp_contexts_drop_lost();
    return true;
}

bool vp_enter(void) {
    if (!enter_briefly())
        return false;
    vp_cancel_hold();
    return true;
}

/* For a while: the thread cannot be cancelled meanwhile, and comes back by step_in(). */
static void step_out(void) {
    vp_cancel_hold();
    if (vp_state.page)
        vp_shared_stats_publish();
    vp_inside = false;
    pthread_mutex_unlock(&vp_state.lock);
}

static void step_in(void) {
    pthread_mutex_lock(&vp_state.lock);
    vp_inside = true;
}

void vp_leave(void) {
    if (vp_state.page)
        vp_shared_stats_publish();
    vp_inside = false;
    pthread_mutex_unlock(&vp_state.lock);
    vp_thread_left();
    vp_cancel_release();
}

static void closing(void *user, struct vp_timeline *timeline) {
    struct vp_pool *pool = vp_state.pools[timeline->context->device];
    (void)user;
    if (pool)
        vp_pool_close_timeline(pool, timeline);
}

static void forget_timeline(void *user, struct vp_timeline *timeline) {
    struct vp_pool *pool = vp_state.pools[timeline->context->device];
    (void)user;
    if (pool)
        vp_pool_drop_timeline(pool, timeline);
}

const struct vp_policy *vp_policy_chosen(void) {
    const struct vp_policy *policy = vp_policies[vp_options()->policy];
    if (vp_options()->policy == VP_POLICY_NATIVE)
        return NULL;
    return policy ? policy : &vp_policy_vpool;
}

static void announce(void) {
    int choice = vp_options()->policy;
    const char *name = secure_getenv("VPOOL_POLICY");
    vp_options_announce();
    if (choice != VP_POLICY_NATIVE && !vp_policies[choice])
        vp_log(VP_LOG_WARN,
               "VPOOL_POLICY=%.16s is in libvpool-compare.so, not in this library; vpool's own policy serves",
               name ? name : "");
}

int vp_api_open(void *(*lookup)(const char *name, void *ctx), void *ctx) {
    int phase = atomic_load_explicit(&vp_state.phase, memory_order_acquire);
    if (phase != VP_CLOSED)
        return phase == VP_OPEN ? 0 : -ENODEV;
    const char *missing = NULL;
    pthread_mutex_lock(&vp_state.lock);
    int err = 0;
    if (atomic_load(&vp_state.phase) == VP_CLOSED) {
        vp_process_mark();
        announce();
        vp_dump_plan();
        err = vp_driver_fill(&vp_state.drv, lookup, ctx, &missing);
        if (!err) {
            vp_timelines_init(&vp_state.timelines, &vp_state.drv);
            vp_state.timelines.arrived = vp_copies_arrived;
            vp_state.timelines.closing = closing;
            vp_state.timelines.forget = forget_timeline;
            vp_state.timelines.of_thread = vp_thread_streams;
            vp_threads_init();
            vp_state.fast = !vp_options()->check;
            vp_state.recording = *vp_options()->trace;
            vp_list_init(&vp_state.mempools);
            vp_list_init(&vp_state.imports);
            vp_slab_init(&vp_state.mempool_slab, sizeof(struct vp_mempool));
            vp_slab_init(&vp_state.pool_slab, sizeof(struct vp_pool));
            vp_peers_init();
        }
        atomic_store_explicit(&vp_copies_matter, false, memory_order_relaxed);
        atomic_store_explicit(&vp_state.phase, err ? VP_REFUSED : VP_OPEN, memory_order_release);
    }
    pthread_mutex_unlock(&vp_state.lock);
    if (err)
        vp_log(VP_LOG_WARN, "this CUDA driver lacks %s: everything is passed on to it", missing);
    return err;
}

bool vp_api_ready(void) {
    return atomic_load_explicit(&vp_state.phase, memory_order_acquire) == VP_OPEN;
}

/* ---- waiting on the host, without the lock ---- */

static void relax_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Each look asks the driver, under a lock of its own that launches take, too: not oftener than it helps. */
static const uint64_t LOOK_EVERY_NS = 10000;

static void spin_for(uint64_t ns) {
    const uint64_t begin = vp_clock_ns();
    sched_yield();
    while (vp_clock_ns() - begin < ns)
        relax_cpu();
}

static void pause_for(uint64_t waited_ns) {
    /* A barrier on an idle device is done within half a microsecond; a long kernel must not keep a core busy. */
    if (waited_ns < 5000)
        relax_cpu();
    else if (waited_ns < 1000000)
        spin_for(LOOK_EVERY_NS);
    else
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* The same in the middle of a call. */
static void pause_unlocked(uint64_t waited_ns) {
    step_out();
    pause_for(waited_ns);
    step_in();
}

struct vp_pool *vp_state_open_pool(CUdevice dev) {
    if (dev < 0 || dev >= VP_DEVICES || vp_state.refused[dev])
        return NULL;
    const struct vp_options *o = vp_options();
    const struct vp_policy *policy = vp_policy_chosen();
    vp_cancel_hold();
    const struct vp_pool_config config = {
        .handle = o->handle,
        .va = o->va,
        .pages = o->vpmm_pages,
        .check = o->check,
        .account = vp_mempool_account,
        .limit = vp_pressure_limit(dev),
        .split_most = o->bfc_max_split,
        .stitch_least = o->gmlake_fragment,
        .stitched_most = o->gmlake_stitched,
        .peers = vp_peers_of(dev),
        .pause = pause_unlocked,
        .now = vp_clock_ns,
    };
    struct vp_pool *pool = policy ? vp_slab_alloc(&vp_state.pool_slab) : NULL;
    int err = pool ? vp_pool_init(pool, &vp_state.drv, &vp_state.timelines, dev, policy, &config) : -ENOENT;
    if (err) {
        vp_slab_free(&vp_state.pool_slab, pool);
        vp_state.refused[dev] = true;
        if (policy)
            vp_log(VP_LOG_WARN, "device %d: %s; its memory is left to CUDA", dev,
                   err == -EOPNOTSUPP ? "no virtual memory management"
                   : err == -ENOMEM   ? "no address range to be had"
                                      : "the driver refuses to map memory");
        return NULL;
    }
    vp_state.pools[dev] = pool;
    vp_pressure_start();
    vp_mempool_open_device(dev);
    vp_shared_stats_open_device(pool);
    return pool;
}

struct vp_region *vp_state_find(CUdeviceptr ptr, struct vp_pool **pool) {
    for (int dev = 0; dev < VP_DEVICES; dev++) {
        struct vp_region *r = vp_state.pools[dev] ? vp_pool_find(vp_state.pools[dev], ptr) : NULL;
        if (r) {
            vp_pool_expect_free(r); /* it is mostly sought to be freed */
            *pool = vp_state.pools[dev];
            return r;
        }
    }
    return NULL;
}

struct vp_region *vp_state_find_inside(CUdeviceptr ptr, struct vp_pool **pool) {
    for (int dev = 0; dev < VP_DEVICES; dev++) {
        struct vp_region *r = vp_state.pools[dev] ? vp_pool_find_inside(vp_state.pools[dev], ptr) : NULL;
        if (r) {
            *pool = vp_state.pools[dev];
            return r;
        }
    }
    return NULL;
}

/* Returns true if the event completed; false after the bound, the end of its context, or an error (then its context has
 * it). */
static __attribute__((cold)) bool wait_event(struct vp_event *ev) {
    uint64_t begin = vp_clock_ns();
    struct vp_context *ctx = ev->context;
    CUevent handle = ev->handle;
    CUresult res = CUDA_ERROR_NOT_READY;
    ctx->waiters++;
    step_out();
    while (!atomic_load(&ctx->ending)) {
        CUstreamCaptureMode mode = vp_capture_relax(&vp_state.timelines);
        res = vp_state.drv.cuEventQuery(handle);
        vp_capture_restore(&vp_state.timelines, mode);
        uint64_t waited = vp_clock_ns() - begin;
        if (res != CUDA_ERROR_NOT_READY || waited > BARRIER_WAIT_NS)
            break;
        pause_for(waited);
    }
    step_in();
    ctx->waiters--;
    if (res && res != CUDA_ERROR_NOT_READY && !ev->dropped)
        vp_context_failed(ctx, res);
    vp_event_put(&vp_state.timelines, ev);
    return res == CUDA_SUCCESS;
}

CUresult vp_state_mem_info(CUdevice dev, size_t *free_bytes, size_t *total) {
    CUdevice current;
    CUcontext popped;
    vp_cancel_hold();
    const struct vp_context *ctx = vp_state.drv.cuCtxGetDevice(&current) || current != dev
                                       ? vp_context_on(&vp_state.timelines, dev)
                                       : NULL;
    bool pushed = ctx && !vp_state.drv.cuCtxPushCurrent_v2(ctx->handle);
    CUresult res = vp_state.drv.cuMemGetInfo_v2(free_bytes, total);
    if (pushed)
        vp_state.drv.cuCtxPopCurrent_v2(&popped);
    return res;
}

/* Could the request be met at all, if everything pending came free? */
static __attribute__((cold)) bool hopeless(const struct vp_pool *pool, size_t size) {
    size_t free_bytes = 0, total = 0;
    if (vp_list_empty(&vp_state.timelines.pending))
        return true;
    vp_state_mem_info(pool->device, &free_bytes, &total);
    size_t limit = pool->config.limit, held = pool->stats.held_bytes;
    if (limit && free_bytes > (limit > held ? limit - held : 0))
        free_bytes = limit > held ? limit - held : 0;
    return size > free_bytes + pool->stats.held_bytes - pool->stats.live_bytes;
}

/*
 * Waits without the lock for work that was queued before `serial`; true if something completed since, so that another
 * try may succeed. False: nothing of it is left, or it takes too long. What was freed while captures run has no event
 * yet, and is waited for as well.
 */
static __attribute__((cold)) bool wait_pending(struct vp_pool *pool, uint64_t serial, uint64_t begin) {
    struct vp_timelines *timelines = &vp_state.timelines;
    while (vp_clock_ns() - begin < PENDING_WAIT_NS) {
        bool quarantine = vp_timelines_open(timelines) && vp_clock_ns() - begin < QUARANTINE_WAIT_NS;
        if (!quarantine && !vp_timelines_waiting(timelines, serial))
            return false;
        pause_unlocked(vp_clock_ns() - begin);
        vp_timelines_poll(timelines, quarantine);
        if (quarantine)
            vp_timelines_cover(timelines);
        if (pool->moves != timelines->moves)
            return true;
        if (quarantine)
            serial = timelines->recorded;
    }
    return false;
}

/* Allocates, waiting where that is right. The lock is held at entry and exit, and let go in between. */
static int allocate(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    uint64_t begin = 0, serial = 0;
    for (;;) {
        vp_pool_error_forget(pool, req->context);
        int err = vp_throttle_alloc(pool, req, out);
        if (err == -EAGAIN) {
            uint64_t from = vp_clock_ns();
            req->impatient = !wait_event(req->await);
            if (req->impatient)
                pool->barrier_rest = vp_clock_ns() + BARRIER_REST_NS;
            vp_pool_waited(pool, vp_clock_ns() - from, req->impatient);
        } else if (err == -ENOMEM) {
            if (!begin) {
                if (hopeless(pool, req->asked))
                    return err;
                begin = vp_clock_ns();
                serial = vp_state.timelines.recorded;
            }
            uint64_t from = vp_clock_ns();
            bool gained = wait_pending(pool, serial, begin);
            vp_pool_waited(pool, vp_clock_ns() - from, !gained);
            if (!gained) {
                /* CUDA's own pools would now let the stream wait, and so do we: the last thing before out of memory. */
                if (req->waits != VP_WAITS_HOST)
                    return err;
                req->waits = VP_WAITS_LATE;
            }
        } else {
            return err;
        }
        if (vp_pool_error(pool, req->context))
            return -EIO;
    }
}

CUresult vp_state_result(int err, const struct vp_pool *pool, const struct vp_context *ctx) {
    CUresult res = err == -EIO && pool ? vp_pool_error(pool, ctx) : CUDA_SUCCESS;
    return res ? res : vp_driver_result(err);
}

/* What the door returns. */
static CUresult answer(struct vp_pool *pool, int err, const struct vp_request *req, const struct vp_region *r,
                       CUdeviceptr *out) {
    if (err == -EOPNOTSUPP) /* the policy leaves it to CUDA */
        return VP_NOT_OURS;
    if (err == -ENOMEM)
        pool->stats.ooms++;
    if (!err) {
        *out = r->addr;
        vp_trace_event('a', pool->device, r->serial, r->asked, req->timeline ? req->timeline->number : 0);
    }
    return vp_state_result(err, pool, req->context);
}

/* ---- the calls ---- */

CUresult vp_api_alloc(CUdeviceptr *out, size_t size) {
    CUresult res = VP_NOT_OURS;
    if (!out || !size || !enter_briefly())
        return res;
    vp_state.doors |= 1u << VP_PASSED_cuMemAlloc;
    bool native = vp_options()->ipc == VP_IPC_NATIVE;
    struct vp_context *ctx = native ? NULL : vp_context_current(&vp_state.timelines);
    struct vp_pool *pool = ctx ? vp_state_pool(ctx->device) : NULL;
    if (pool) {
        struct vp_request req = {.asked = size,
                                 .context = ctx,
                                 .alone = vp_ipc_alone(size),
                                 .impatient = pool->barrier_rest && vp_clock_ns() < pool->barrier_rest};
        struct vp_region *r = NULL;
        ctx->pins++;
        int err = allocate(pool, &req, &r);
        ctx->pins--;
        /* It ended while this thread waited, and synchronous blocks with it. */
        if (!err && ctx->gone) {
            vp_pool_free(pool, r, &(struct vp_fence){0});
            res = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        } else {
            res = answer(pool, err, &req, r, out);
        }
    }
    vp_leave();
    if (res == CUDA_ERROR_OUT_OF_MEMORY)
        vp_oom_explain(pool->device, size, 0);
    return res;
}

/* The pitch that CUDA 12 and 13 use on every device so far: rows begin at multiples of 512 bytes. */
enum { PITCH = 512 };

CUresult vp_api_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned elem) {
    if (!out || !pitch || !width || !height || (elem != 4 && elem != 8 && elem != 16) || width > SIZE_MAX / 2)
        return VP_NOT_OURS;
    size_t row = vp_round_up(width, PITCH);
    CUresult res = height > SIZE_MAX / 2 / row ? VP_NOT_OURS : vp_api_alloc(out, row * height);
    if (res == CUDA_SUCCESS)
        *pitch = row;
    return res;
}

static int stream_waits(const struct vp_pool *pool, const struct vp_mempool *mp) {
    int mode = vp_options()->wait;
    if (mode == VP_WAIT_NEVER || !mp->reuse_internal)
        return VP_WAITS_NEVER;
    if (mode == VP_WAIT_AUTO && pool->policy->host_waits)
        return VP_WAITS_HOST;
    if (mode == VP_WAIT_AUTO)
        mode = atomic_load_explicit(&vp_state.coupled, memory_order_relaxed) ? VP_WAIT_LATE : VP_WAIT_EARLY;
    return mode == VP_WAIT_EARLY ? VP_WAITS_EARLY : VP_WAITS_LATE;
}

CUresult vp_api_alloc_async(CUdeviceptr *out, size_t size, CUmemoryPool handle, CUstream stream) {
    CUresult res = VP_NOT_OURS;
    struct vp_pool *pool = NULL;
    struct vp_timeline *timeline;
    uint64_t id = 0;
    if (!out || !size)
        return res;
    if (vp_fast_alloc(out, size, handle, stream))
        return CUDA_SUCCESS;
    if (!enter_briefly())
        return res;
    vp_state.doors |= 1u << (handle ? VP_PASSED_cuMemAllocFromPoolAsync : VP_PASSED_cuMemAllocAsync);
    if (!vp_timeline_get(&vp_state.timelines, stream, &timeline) && vp_state_pool(timeline->context->device)) {
        struct vp_mempool *mp = handle ? vp_mempool_of(handle) : vp_state.current[timeline->context->device];
        pool = mp && !mp->dead ? vp_state_pool(mp->device) : NULL;
        if (pool) {
            struct vp_request req = {.asked = size,
                                     .timeline = timeline,
                                     .context = timeline->context,
                                     .owner = mp,
                                     .waits = stream_waits(pool, mp),
                                     .strict = !mp->reuse_opportunistic};
            struct vp_region *r = NULL;
            /* While a wait lets the lock go, the memory pool may be destroyed, and the stream. */
            mp->blocks++;
            timeline->refs++;
            int err = allocate(pool, &req, &r);
            timeline->refs--;
            res = answer(pool, err, &req, r, out);
            vp_fast_know(stream, handle, timeline, mp->dead ? NULL : mp);
            if (mp->dead)
                vp_mempool_account(mp, 0, false);
            else
                mp->blocks--;
            id = timeline->id;
        }
    }
    vp_leave();
    if (res == CUDA_ERROR_OUT_OF_MEMORY)
        vp_oom_explain(pool->device, size, id);
    return res;
}

/* Below this a cudaFree shares the barrier of a later one: its bytes come back a little later. */
enum { BARRIER_WORTH = 1 << 20 };

CUresult vp_state_finish_work(uint64_t devices, CUdevice own) {
    CUresult failed = CUDA_SUCCESS;
    struct vp_context *ctx;
    CUcontext popped;
    vp_list_each(ctx, &vp_state.timelines.contexts, link) {
        if (ctx->gone || ctx->ending || !(devices >> ctx->device & 1) || atomic_load(&vp_state.timelines.captures))
            continue;
        ctx->waiters++; /* its handle stays good until this is over */
        step_out();
        CUresult res = vp_state.drv.cuCtxPushCurrent_v2(ctx->handle);
        if (!res) {
            res = vp_state.drv.cuCtxSynchronize();
            vp_state.drv.cuCtxPopCurrent_v2(&popped);
        }
        step_in();
        ctx->waiters--;
        if (ctx->device == own && !ctx->ending && res != CUDA_ERROR_INVALID_CONTEXT &&
            res != CUDA_ERROR_CONTEXT_IS_DESTROYED)
            failed = res ? res : failed;
    }
    return failed;
}

/*
 * Every context that could have touched the bytes: those of the device itself and of all that it was opened to; and of
 * all others once some copy has named a context for each end, which needs no access. One that fails for good has no
 * work left that could; on its own device it is asked all the same, and what it has freed stays behind it until it is
 * destroyed.
 */
static int barrier_of_all(const struct vp_pool *pool, bool record, struct vp_fence *fence) {
    bool all = atomic_load_explicit(&vp_copies_between, memory_order_acquire);
    uint64_t devices = all ? UINT64_MAX : UINT64_C(1) << pool->device | pool->peers | pool->copiers;
    struct vp_context *ctx;
    int err = 0;
    vp_list_each(ctx, &vp_state.timelines.contexts, link)
        if (!err && !ctx->gone && devices >> ctx->device & 1 && (ctx->device == pool->device || !ctx->sick)) {
            err = vp_fence_add_barrier(&vp_state.timelines, fence, ctx, record);
            /* It has ended unseen. If another has its handle by now, that is the last of the list, and its turn comes.
             */
            if (ctx->lost)
                vp_context_get(&vp_state.timelines, ctx->handle);
        }
    return err;
}

CUresult vp_api_free(CUdeviceptr ptr) {
    struct vp_pool *pool;
    struct vp_region *r;
    CUresult res;
    if (!ptr || !enter_briefly())
        return VP_NOT_OURS;
    vp_state.doors |= 1u << VP_PASSED_cuMemFree;
    /* As in CUDA, no context need be current. */
    if (!(r = vp_state_find(ptr, &pool))) {
        vp_leave();
        return VP_NOT_OURS;
    }
    if (vp_options()->sync_free && !atomic_load(&vp_state.timelines.captures)) {
        /* As CUDA's own waits for the device: for the peers that may touch it, too, and whatever is current here. */
        res = vp_state_finish_work(pool->peers | UINT64_C(1) << pool->device, pool->device);
        if (!res && !(r = vp_state_find(ptr, &pool)))
            res = VP_NOT_OURS;
        if (res) {
            vp_leave();
            return res;
        }
    }
    struct vp_fence fence = {0};
    int err = barrier_of_all(pool, r->asked >= BARRIER_WORTH, &fence);
    if (err) {
        vp_fence_clear(&vp_state.timelines, &fence);
    } else {
        vp_trace_event('f', pool->device, r->serial, 0, 0);
        vp_pool_free(pool, r, &fence);
    }
    vp_leave();
    return vp_driver_result(err);
}

CUresult vp_api_free_async(CUdeviceptr ptr, CUstream stream) {
    struct vp_pool *pool;
    struct vp_region *r;
    struct vp_timeline *timeline;
    CUresult res = VP_NOT_OURS;
    if (!ptr)
        return res;
    if (vp_fast_free(ptr, stream))
        return CUDA_SUCCESS;
    if (!enter_briefly())
        return res;
    vp_state.doors |= 1u << VP_PASSED_cuMemFreeAsync;
    /* On a capturing stream, or an invalid one, CUDA's own error is the answer, and the block stays live. */
    if ((r = vp_state_find(ptr, &pool)) && !vp_timeline_get(&vp_state.timelines, stream, &timeline)) {
        uint64_t serial = r->serial;
        int err = vp_pool_free_async(pool, r, timeline);
        if (!err)
            vp_trace_event('f', pool->device, serial, 0, timeline->number);
        vp_fast_know(stream, NULL, timeline, NULL);
        res = vp_driver_result(err);
    }
    vp_leave();
    return res;
}

void vp_api_passed(enum vp_passed call) {
    atomic_fetch_add_explicit(&vp_state.passed[call], 1, memory_order_relaxed);
}
