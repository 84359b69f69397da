/* Waits on the host in the middle of a call, without the lock. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"

#include "base/clock.h"

#include <sched.h>

/* How long a host wait for an earlier cudaFree may last before more memory is taken instead: natively that cudaFree
 * would have waited without bound, but maybe on another thread, which this one could be holding up. */
static const uint64_t BARRIER_WAIT_NS = 2000000000;

static void relax_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Each check queries the driver, under a lock that launches take, too: no more often than it helps. */
static const uint64_t LOOK_EVERY_NS = 10000, NAP_FROM_NS = 1000000;

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
    else if (waited_ns < NAP_FROM_NS)
        spin_for(LOOK_EVERY_NS);
    else
        vp_clock_sleep(50000);
}

/* The lock is not passed on in order: a thread that releases it for a moment could take it again before the threads
 * that it kept waiting wake up. These get this many more naps, together. */
enum { NAPS = 400, LOOKS = 8 };

/* Work held up by a context whose end no call reported would be waited for in vain. */
static VP_LOCKED void drop_ended(void) {
    struct vp_context *ctx;
    vp_list_each(ctx, &vp_state.timelines.contexts, link)
        if (!ctx->gone)
            vp_context_check(&vp_state.timelines, ctx);
    vp_state.on.drop_lost();
}

void vp_wait_pause(uint64_t waited_ns) {
    const unsigned came = atomic_load(&vp_state.came);
    vp_step_out();
    pause_for(waited_ns);
    for (int i = 0; i < NAPS && waited_ns >= NAP_FROM_NS && (int)(came - atomic_load(&vp_state.had)) > 0; i++)
        pause_for(waited_ns);
    vp_step_in();
    if (waited_ns >= NAP_FROM_NS)
        drop_ended();
}

bool vp_wait_event(struct vp_event *ev) {
    uint64_t begin = vp_clock_ns();
    struct vp_context *ctx = ev->context;
    CUevent handle = ev->handle;
    CUresult res = CUDA_ERROR_NOT_READY;
    ctx->waiters++;
    vp_step_out();
    while (!atomic_load(&ctx->ending)) {
        CUstreamCaptureMode mode = vp_capture_relax(&vp_state.timelines);
        res = vp_state.drv.cuEventQuery(handle);
        vp_capture_restore(&vp_state.timelines, mode);
        uint64_t waited = vp_clock_ns() - begin;
        if (res != CUDA_ERROR_NOT_READY || waited > BARRIER_WAIT_NS)
            break;
        pause_for(waited);
    }
    vp_step_in();
    ctx->waiters--;
    if (res && res != CUDA_ERROR_NOT_READY && !ev->dropped)
        vp_context_failed(ctx, res);
    vp_event_put(&vp_state.timelines, ev);
    return res == CUDA_SUCCESS;
}

bool vp_wait_is_hopeless(struct vp_pool *pool, size_t size) {
    const size_t idle = vp_pool_idle(pool);
    return vp_list_empty(&vp_state.timelines.pending) || size > SIZE_MAX / 2 ||
           (size > idle && !vp_memory_possible(&pool->mem, vp_round_up(size - idle, pool->mem.granularity)));
}

/* Once no older work is left, other threads may have taken what it freed. CUDA's own call would have waited for what
 * they freed. */
static VP_LOCKED bool goes_on(struct vp_pool *pool, size_t size, uint64_t *serial) {
    if (!vp_timelines_waiting(&vp_state.timelines, *serial) && !vp_wait_is_hopeless(pool, size))
        *serial = UINT64_MAX;
    return vp_timelines_waiting(&vp_state.timelines, *serial);
}

/* Is something held up by a context that another thread is ending, or may be? Such a context is not queried meanwhile.
 */
static VP_LOCKED bool one_ends(const struct vp_timelines *ls) {
    const struct vp_timeline *timeline;
    vp_list_each(timeline, &ls->pending, pending)
        if (timeline->context->ending && !timeline->context->gone && !timeline->context->lost)
            return true;
    return false;
}

bool vp_wait_pending(struct vp_pool *pool, size_t size, uint64_t serial, uint64_t begin, uint64_t moves) {
    struct vp_timelines *timelines = &vp_state.timelines;
    unsigned looks = 0;
    bool unasked = false;
    while (vp_clock_ns() - begin < VP_PENDING_WAIT_NS) {
        bool quarantine = vp_timelines_open(timelines) && (unasked || vp_clock_ns() - begin < VP_QUARANTINE_WAIT_NS);
        if (!quarantine && !goes_on(pool, size, &serial))
            return timelines->moves != moves;
        /* What others free meanwhile puts off all that it is united with: some looks come without. */
        if (!quarantine || looks++ % LOOKS == 0)
            vp_wait_pause(vp_clock_ns() - begin);
        vp_timelines_poll(timelines, quarantine);
        if (quarantine)
            vp_timelines_cover(timelines);
        if (timelines->moves != moves || pool->mem.moves != timelines->moves)
            return true;
        unasked = one_ends(timelines);
        if (quarantine)
            serial = timelines->recorded;
    }
    return false;
}

/* The devices whose work could have accessed the memory: the device itself, those that it was opened to, and all others
 * once a copy has named a context for each end, or a graph was launched, which needs no access. */
uint64_t vp_devices_of_all(const struct vp_pool *pool) {
    return vp_devices_touching(UINT64_C(1) << pool->mem.device | pool->mem.peers | pool->mem.copiers);
}

/* Of each context of these. One that fails for good has no work left that could; on its own device it is asked all the
 * same, and what it has freed stays behind it until its end. For other devices CUDA does not wait in a cudaFree. */
int vp_barrier_of_all(const struct vp_pool *pool, bool record, struct vp_fence *fence) {
    const uint64_t devices = vp_devices_of_all(pool);
    const bool named = vp_timelines_all_named(&vp_state.timelines);
    struct vp_context *ctx;
    int err = 0;
    vp_list_each(ctx, &vp_state.timelines.contexts, link)
        if (!err && !ctx->gone && devices >> ctx->device & 1 && (ctx->device == pool->mem.device || !ctx->sick)) {
            err = vp_fence_add_barrier(&vp_state.timelines, fence, ctx,
                                       record && (ctx->device == pool->mem.device || !named));
            /* It has ended unseen. If another has its handle by now, that is the list's last, and its turn comes. */
            if (ctx->lost)
                vp_context_get(&vp_state.timelines, ctx->handle);
        }
    return err;
}

CUresult vp_wait_for_devices(uint64_t devices, CUdevice own, bool *over) {
    CUresult failed = CUDA_SUCCESS;
    struct vp_context *ctx;
    *over = true;
    vp_list_each(ctx, &vp_state.timelines.contexts, link) {
        if (ctx->gone || ctx->ending || !(devices >> ctx->device & 1))
            continue;
        if (atomic_load(&vp_state.timelines.captures)) {
            *over = false;
            break;
        }
        /* A capture that begins meanwhile would be ended by a wait for the context, not by one for an event. */
        struct vp_timelines *timelines = &vp_state.timelines;
        struct vp_fence fence = {0};
        bool told = timelines->barriers && !vp_fence_add_barrier(timelines, &fence, ctx, true);
        bool ended = told && vp_fence_settle(timelines, &fence);
        struct vp_event *ev = told ? vp_fence_event(&fence) : NULL;
        vp_fence_clear(timelines, &fence);
        ctx->waiters++; /* its handle stays good until this is over */
        vp_step_out();
        const struct vp_entered entered = vp_context_enter(&vp_state.drv, ctx->handle);
        CUstreamCaptureMode mode = vp_capture_relax(timelines);
        CUresult res = ended             ? CUDA_SUCCESS
                       : entered.refused ? CUDA_ERROR_NOT_READY
                       : ev              ? vp_state.drv.cuEventSynchronize(ev->handle)
                                         : vp_state.drv.cuCtxSynchronize();
        vp_capture_restore(timelines, mode);
        vp_context_leave(&vp_state.drv, entered);
        vp_step_in();
        ctx->waiters--;
        if (ev)
            vp_event_put(timelines, ev);
        /* A capture began meanwhile, or the context cannot be entered: memory waits alone. */
        if (res == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || res == CUDA_ERROR_NOT_READY) {
            *over = false;
            res = CUDA_SUCCESS;
        }
        if (ctx->device == own && !ctx->ending && res != CUDA_ERROR_INVALID_CONTEXT &&
            res != CUDA_ERROR_CONTEXT_IS_DESTROYED)
            failed = res ? res : failed;
    }
    return failed;
}
