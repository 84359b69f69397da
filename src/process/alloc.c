/* Allocation and free: the functions that the doors call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include "base/clock.h"
#include "pool/bare/bare.h"
#include "pool/bound.h"
#include "pool/giving.h"
#include "pool/throttle.h"
#include "process/poison.h"
#include "process/spill.h"

#include <errno.h>

/* After such a wait was in vain, no other is tried for this long: whatever holds the device up may do so for good. */
static const uint64_t BARRIER_REST_NS = 60000000000;

/* The first try ended with `err`. `held_back`: vp_memory.held_back before. */
static __attribute__((noinline, cold)) VP_LOCKED int wait_and_try(struct vp_pool *pool, struct vp_request *req,
                                                                  struct vp_region **out, int err, unsigned held_back) {
    uint64_t begin = 0, serial = 0, borrows = 0;
    /* The barrier of a context that has ended meanwhile may be another's. */
    for (;; vp_pool_error_forget(pool, req->context),
            err = vp_bound_ended(req) ? -ENODEV : vp_throttle_alloc(pool, req, out)) {
        const uint64_t moves = vp_state.timelines.moves;
        if (err == -EAGAIN) {
            uint64_t from = vp_clock_ns();
            req->impatient = !vp_wait_event(req->await);
            if (req->impatient)
                pool->barrier_rest = vp_clock_ns() + BARRIER_REST_NS;
            vp_pool_waited(pool, vp_clock_ns() - from, req->impatient);
        } else if (err == -ENOMEM) {
            if (vp_borrow_held_back(pool, &held_back) || vp_borrow(pool, req->asked, &borrows))
                continue;
            if (!begin) {
                if (moves == vp_state.timelines.moves && vp_wait_is_hopeless(pool, req->asked))
                    return vp_spill(pool, req, true, out);
                begin = vp_clock_ns();
                serial = vp_state.timelines.recorded;
            }
            uint64_t from = vp_clock_ns();
            const size_t size = req->waits == VP_WAITS_HOST ? SIZE_MAX : req->asked;
            bool gained = vp_wait_pending(pool, size, serial, begin, moves);
            vp_pool_waited(pool, vp_clock_ns() - from, !gained);
            if (!gained) {
                /* CUDA's own pools would now let the stream wait, and so do we: the last thing before the host's
                 * memory, and out of memory. */
                if (req->waits != VP_WAITS_HOST)
                    return vp_spill(pool, req, true, out);
                req->waits = VP_WAITS_LATE;
            }
        } else {
            return err;
        }
        if (vp_pool_error(pool, req->context))
            return -EIO;
    }
}

/* Allocates, and waits where that is right. The lock is held at entry and exit, and released in between. */
static inline __attribute__((always_inline)) VP_LOCKED int allocate(struct vp_pool *pool, struct vp_request *req,
                                                                    struct vp_region **out) {
    const unsigned held_back = pool->mem.held_back;
    if (__builtin_expect(vp_options()->spill != 0, false) && vp_spill_is_due(pool, req->asked)) {
        int err = vp_spill(pool, req, false, out);
        if (!err || err == -ENODEV)
            return err;
    }
    vp_pool_error_forget(pool, req->context);
    int err = vp_throttle_alloc(pool, req, out);
    return __builtin_expect(err == -EAGAIN || err == -ENOMEM, false) ? wait_and_try(pool, req, out, err, held_back)
                                                                     : err;
}

/* What the door returns. */
static inline __attribute__((always_inline)) VP_LOCKED CUresult answer(struct vp_pool *pool, int err,
                                                                       const struct vp_request *req,
                                                                       const struct vp_region *r, CUdeviceptr *out) {
    if (err == -EIO && !pool->mem.stats.peak_live_bytes) { /* the driver has made none so far, and may make none ever */
        vp_log_once(VP_LOG_WARN, "device %d: the driver refuses to create or map memory; CUDA's own allocator serves",
                    pool->mem.device);
        err = -EOPNOTSUPP;
    }
    if (err == -EOPNOTSUPP) /* that, or the policy leaves it to CUDA */
        return VP_NOT_OURS;
    if (err == -ENOMEM) {
        pool->mem.stats.ooms++;
        vp_record('x', pool->mem.device, 0, req->asked, req->timeline ? req->timeline->number : 0);
    }
    if (!err) {
        *out = r->addr;
        vp_record('a', pool->mem.device, r->serial, r->asked, req->timeline ? req->timeline->number : 0);
        if (__builtin_expect(pool->bound.excess != 0, false))
            vp_pressure_remember(true);
    }
    return vp_result(err, pool, req->context);
}

/* ---- the calls ---- */

CUresult vp_api_alloc(CUdeviceptr *out, size_t size) {
    CUresult res = VP_NOT_OURS;
    if (!out || !size || !vp_enter_briefly())
        return res;
    vp_state.doors |= 1u << VP_PASSED_cuMemAlloc;
    struct vp_context *ctx = vp_options()->ipc == VP_IPC_NATIVE ? NULL : vp_context_current(&vp_state.timelines);
    struct vp_pool *pool = ctx && !ctx->sick ? vp_state_pool(ctx->device) : NULL;
    if (pool && vp_forbidden()) {
        res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (__builtin_expect(pool != NULL, true)) {
        const bool alone = vp_ipc_alone(size);
        struct vp_request req = {.asked = size,
                                 .context = ctx,
                                 .alone = alone,
                                 .whole = alone && vp_state.rdma,
                                 .apart = vp_options()->ipc == VP_IPC_ALONE,
                                 .impatient = pool->barrier_rest && vp_clock_ns() < pool->barrier_rest};
        struct vp_region *r = NULL;
        ctx->pins++;
        int err = allocate(pool, &req, &r);
        if (__builtin_expect(!err && vp_state.fills, false) && !vp_poison_handed_out(pool, r, NULL, ctx))
            err = -ENODEV;
        ctx->pins--;
        /* It ended while this thread waited, and synchronous blocks with it. */
        if (!err && ctx->gone) {
            vp_pool_free(pool, r, &(struct vp_fence){0});
            vp_copies_update();
            res = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        } else {
            res = answer(pool, err, &req, r, out);
            vp_state.latest = r ? r->addr : 0;
        }
    }
    vp_leave();
    if (res == CUDA_ERROR_OUT_OF_MEMORY)
        vp_watch.out_of_memory(pool->mem.device, size, 0);
    return res;
}

CUresult vp_api_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned elem) {
    if (!out || !pitch || !width || !height || (elem != 4 && elem != 8 && elem != 16) || width > SIZE_MAX / 2)
        return VP_NOT_OURS;
    size_t row = vp_round_up(width, VP_PITCH);
    CUresult res = height > SIZE_MAX / 2 / row ? VP_NOT_OURS : vp_api_alloc(out, row * height);
    if (res != VP_NOT_OURS)
        *pitch = row;
    return res;
}

static int stream_waits(const struct vp_pool *pool, const struct vp_mempool *mp) {
    const bool tied = atomic_load_explicit(&vp_state.coupled, memory_order_relaxed);
    const int usual = pool->traits.host_waits ? VP_WAITS_HOST : tied ? VP_WAITS_LATE : VP_WAITS_EARLY;
    return mp->reuse_internal ? vp_waits_of(vp_options()->wait, usual) : VP_WAITS_NEVER;
}

/* With the lock. A separate function, like that of frees, so that the fast path need not save registers. */
__attribute__((noinline)) static CUresult alloc_locked(CUdeviceptr *out, size_t size, CUmemoryPool handle,
                                                       CUstream stream) {
    CUresult res = VP_NOT_OURS;
    struct vp_pool *pool = NULL;
    struct vp_timeline *timeline;
    bool is_trial = false;
    uint64_t id = 0;
    if (!vp_enter_briefly())
        return res;
    vp_state.doors |= 1u << (handle ? VP_PASSED_cuMemAllocFromPoolAsync : VP_PASSED_cuMemAllocAsync);
    if (!vp_timeline_get(&vp_state.timelines, stream, &timeline) && !timeline->context->sick &&
        vp_state_pool(timeline->context->device)) {
        struct vp_mempool *mp = handle ? vp_mempool_of(handle) : vp_state.current[timeline->context->device];
        pool = mp && !mp->dead ? vp_state_pool(mp->device) : NULL;
        if (pool && vp_forbidden_ordered()) {
            res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        } else if (pool) {
            struct vp_request req = {.asked = size,
                                     .timeline = timeline,
                                     .context = timeline->context,
                                     .owner = mp,
                                     .waits = stream_waits(pool, mp),
                                     .strict = mp->reuse_opportunistic ? NULL : &pool->mem};
            struct vp_region *r = NULL;
            struct vp_trial trial;
            if (__builtin_expect(size >= VP_GIVING_LEAST, false) && (is_trial = vp_trial_is(pool, size)))
                trial = vp_trial_begin(pool, mp);
            /* While a wait lets the lock go, the memory pool may be destroyed, and the stream. */
            mp->blocks++;
            timeline->refs++;
            int err = allocate(pool, &req, &r);
            if (is_trial && !err)
                vp_trial_served(pool, trial, r);
            else if (is_trial)
                vp_trial_failed(pool);
            if (__builtin_expect(!err && vp_state.fills, false) && !vp_poison_handed_out(pool, r, timeline, NULL))
                err = -ENODEV;
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
    if (res == CUDA_ERROR_OUT_OF_MEMORY && !is_trial)
        vp_watch.out_of_memory(pool->mem.device, size, id);
    return res;
}

CUresult vp_api_alloc_async(CUdeviceptr *out, size_t size, CUmemoryPool handle, CUstream stream) {
    if (!out || !size)
        return VP_NOT_OURS;
    return vp_fast_alloc(out, size, handle, stream) ? CUDA_SUCCESS : alloc_locked(out, size, handle, stream);
}

/* Below this a cudaFree shares the barrier of a later one: its bytes come back a little later. */
enum { BARRIER_WORTH = 1 << 20 };

CUresult vp_api_free(CUdeviceptr ptr) {
    struct vp_pool *pool;
    struct vp_region *r;
    CUresult res;
    if (!ptr || !vp_enter_briefly())
        return VP_NOT_OURS;
    vp_state.doors |= 1u << VP_PASSED_cuMemFree;
    /* As in CUDA, no context need be current. */
    if (!(r = vp_state_find(ptr, &pool))) {
        vp_ties_freed(ptr);
        vp_leave();
        return VP_NOT_OURS;
    }
    if (vp_forbidden()) {
        vp_leave();
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    const struct vp_options *options = vp_options();
    if ((options->sync_free || options->poison) && !atomic_load(&vp_state.timelines.captures)) {
        /* As CUDA's own waits for the device: for the peers that may touch it, too, and whatever is current here. What
         * a reset has taken meanwhile may be another's block by then. */
        const uint64_t serial = r->serial;
        bool over;
        /* Nothing is written beneath a copy. */
        const uint64_t devices = options->poison ? vp_devices_of_all(pool)
                                                 : pool->mem.peers | UINT64_C(1) << pool->mem.device;
        res = vp_wait_for_devices(devices, pool->mem.device, &over);
        if (!res && over && options->poison && (r = vp_state_find(ptr, &pool)) && r->serial == serial)
            vp_poison_freed(pool, r, NULL);
        if (!res && (!(r = vp_state_find(ptr, &pool)) || r->serial != serial))
            res = VP_NOT_OURS;
        if (res) {
            vp_leave();
            return res;
        }
    }
    struct vp_fence fence = {0};
    int err = vp_barrier_of_all(pool, r->asked >= BARRIER_WORTH, &fence);
    if (err) {
        vp_fence_clear(&vp_state.timelines, &fence);
    } else {
        const size_t asked = r->asked;
        const bool bare = r->bare, spilled = r->spilled;
        if (!bare) /* its blocks are told of */
            vp_record('f', pool->mem.device, r->serial, asked, 0);
        vp_pool_free(pool, r, &fence);
        /* A write to what is gone would be a fault of the device, and not be found. */
        if (asked >= BARRIER_WORTH && !(pool->bare && pool->bare->gives) && !options->poison)
            vp_pressure_remember(vp_giving_freed(pool, asked, bare));
        if (spilled)
            vp_spill_freed(pool);
    }
    const struct vp_context *ctx = vp_state.timelines.sick ? vp_context_current(&vp_state.timelines) : NULL;
    res = !err && ctx && ctx->sick ? ctx->sick : vp_result(err, NULL, NULL);
    vp_leave();
    return res;
}

static __thread CUdeviceptr refused __attribute__((tls_model("initial-exec")));

void vp_api_free_async_refused(CUdeviceptr ptr) {
    refused = ptr;
}

__attribute__((noinline)) static CUresult free_locked(CUdeviceptr ptr, CUstream stream) {
    struct vp_pool *pool;
    struct vp_region *r;
    struct vp_timeline *timeline;
    CUresult res = VP_NOT_OURS;
    if (!vp_enter_briefly())
        return res;
    vp_state.doors |= 1u << VP_PASSED_cuMemFreeAsync;
    /* On a capturing stream, or an invalid one, CUDA's own error is the answer, and the block stays live. */
    r = vp_state_find(ptr, &pool);
    if (r && vp_timeline_get(&vp_state.timelines, stream, &timeline))
        r = NULL;
    const bool again = r && refused == ptr && vp_api_captures();
    refused = 0;
    if (again || (r && vp_forbidden_ordered())) {
        res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (r) {
        uint64_t serial = r->serial, asked = r->asked;
        const bool bare = r->bare, spilled = r->spilled;
        struct vp_mempool *tried = __builtin_expect(asked >= VP_GIVING_LEAST, false) ? vp_trial_of(pool, r) : NULL;
        if (vp_options()->poison)
            vp_poison_freed(pool, r, timeline);
        int err = vp_pool_free_async(pool, r, timeline);
        if (!err && tried)
            vp_trial_over(pool, tried);
        if (!err && !bare)
            vp_record('f', pool->mem.device, serial, asked, timeline->number);
        if (!err && spilled)
            vp_spill_freed(pool);
        vp_fast_know(stream, NULL, timeline, NULL);
        res = vp_result(err, NULL, NULL);
    }
    vp_leave();
    return res;
}

CUresult vp_api_free_async(CUdeviceptr ptr, CUstream stream) {
    return !ptr ? VP_NOT_OURS : vp_fast_free(ptr, stream) ? CUDA_SUCCESS : free_locked(ptr, stream);
}
