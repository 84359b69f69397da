/* Limits what the pools hold, and gives idle memory back: automatically, by time, and on demand.
 *
 * If a call that was passed on fails for lack of memory, the missing memory may be idle in the pools, or pending there.
 * Without the library, cudaFree would have waited for that work, and the memory would be free. So idle memory is given
 * back and the call is repeated; if that is not enough, pending work is waited for, as long as an allocation would
 * wait. None of this costs a call that succeeds. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"
#include "pool/learnt/ahead.h"
#include "pool/bare/bare.h"
#include "base/clock.h"
#include "pool/giving.h"
#include "pool/spill.h"

#include <time.h>

size_t vp_pressure_share(CUdevice dev, uint64_t share, const char *option) {
    size_t total = 0;
    if (!share || share > 100)
        return share;
    if (vp_state.drv.cuDeviceTotalMem_v2(&total, dev)) {
        vp_log(VP_LOG_WARN, "%s: the driver does not tell the size of device %d; it counts as 0", option, (int)dev);
        return 0;
    }
    return total * share / 100;
}

/* ---- by itself ---- */

void vp_pressure_remember(bool due) {
    if (due)
        atomic_fetch_or(&vp_state.sync_matters, VP_SYNC_GIVING);
}

size_t vp_pressure_trim(struct vp_pool *pool, size_t keep) {
    vp_bare_await_all(pool);
    vp_ahead_hold_back(pool);
    size_t given = vp_giving_trim(pool, keep);
    vp_ahead_go_on(pool);
    vp_pressure_remember(vp_giving_is_due(pool));
    return given;
}

void vp_pressure_synchronized(void) {
    bool due = false;
    if (!(atomic_load_explicit(&vp_state.sync_matters, memory_order_relaxed) & VP_SYNC_GIVING))
        return;
    vp_pools_each(pool) {
        vp_bare_await(pool);
        vp_giving_settle(pool);
        due |= vp_spill_settle(pool);
        due |= vp_giving_is_due(pool);
    }
    if (!due)
        atomic_fetch_and(&vp_state.sync_matters, ~(unsigned)VP_SYNC_GIVING);
}

/* ---- by time ---- */

void vp_pressure_tick(void) {
    vp_pools_each(pool) {
        vp_bare_await_all(pool);
        vp_giving_tick(pool, vp_options()->idle_trim * UINT64_C(1000000000));
    }
}

static atomic_bool stopped;

void vp_pressure_stop(void) {
    atomic_store(&stopped, true);
}

static void *watch(void *unused) {
    for (;;) {
        nanosleep(&(struct timespec){.tv_sec = (time_t)vp_options()->idle_trim}, NULL);
        if (!vp_enter())
            return NULL;
        /* CUDA may be gone by the time that this is set. */
        if (!atomic_load(&stopped))
            vp_pressure_tick();
        vp_leave();
    }
}

void vp_pressure_start(void) {
    static bool started;
    if (!vp_options()->idle_trim || started)
        return;
    started = vp_thread_start(watch) == 0;
    if (!started)
        vp_log(VP_LOG_WARN, "VPOOL_IDLE_TRIM: no thread can be started; idle memory is kept");
}

/* ---- on demand ---- */

/* How often memory was given back, and once more. */
static _Atomic uint64_t gifts = 1;

size_t vp_pressure_trim_all(void) {
    size_t given = 0;
    vp_pools_each(pool) {
        vp_bare_await_all(pool);
        vp_ahead_hold_back(pool);
        const struct vp_context *ctx = vp_context_on(&vp_state.timelines, pool->mem.device);
        const struct vp_entered entered = vp_context_enter(&vp_state.drv, ctx ? ctx->handle : NULL);
        given += vp_pool_trim(pool, 0);
        vp_context_leave(&vp_state.drv, entered);
        vp_ahead_go_on(pool);
    }
    gifts += given > 0;
    return given;
}

/* A pool that can give memory back once work has ended; NULL: there is nothing to wait for. */
static VP_LOCKED struct vp_pool *shrinkable(void) {
    vp_pools_each(pool) if (vp_pool_shrinkable(pool)) return pool;
    return NULL;
}

/* Waits without the lock until some pending memory is ready and could be given back; returns true then. */
static VP_LOCKED bool wait_pending(struct vp_relief *relief, size_t wanted) {
    struct vp_pool *const first = shrinkable();
    const uint64_t begin = vp_clock_ns();
    uint64_t moves = vp_state.timelines.moves;
    bool gained = false;
    if (!first || vp_list_empty(&vp_state.timelines.pending))
        return false;
    relief->serial = relief->serial ? relief->serial : vp_state.timelines.recorded;
    for (struct vp_pool *pool = first; pool && !gained; pool = shrinkable()) {
        if (!vp_wait_pending(pool, wanted, relief->serial, relief->begin, moves))
            break;
        moves = vp_state.timelines.moves;
        gained = vp_pressure_trim_all() > 0 || relief->gifts != gifts;
    }
    vp_pool_waited(first, vp_clock_ns() - begin, !gained);
    return gained;
}

/* What a context, a module or a graph may take, if that is not known. */
enum { UNKNOWN = 512 << 20 };

/* Without a pool on the device, there is none to lend for it either: opens one, which costs nothing. */
static VP_LOCKED bool borrow(struct vp_relief *relief, size_t wanted) {
    CUdevice dev;
    struct vp_pool *pool = vp_state.drv.cuCtxGetDevice(&dev) ? NULL : vp_state_pool(dev);
    if (!pool)
        return false;
    unsigned held_back = pool->mem.held_back;
    return vp_borrow_held_back(pool, &held_back) || vp_borrow(pool, wanted, &relief->borrows);
}

/* May it be what a pool keeps that a call lacks? Not where each device has that free, and as much as may go into
 * tables, of which alone the host's memory takes some. What is kept may be the host's where blocks are spilled. */
static VP_LOCKED bool is_short(size_t wanted) {
    wanted = UNKNOWN + (wanted == VP_HOST_MEMORY ? 0 : wanted);
    vp_pools_each(pool) if (pool->mem.stats.spilled_bytes || vp_memory_device_free(&pool->mem) < wanted) return true;
    return false;
}

bool vp_api_relieve_more(struct vp_relief *relief, size_t wanted) {
    if (!vp_enter())
        return false;
    if (!relief->begin)
        *relief = (struct vp_relief){.begin = vp_clock_ns(),
                                     .gifts = relief->gifts ? relief->gifts : gifts,
                                     .mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    const bool more_helps = !wanted || wanted == VP_MANAGED_MEMORY || is_short(wanted);
    wanted = wanted ? wanted : UNKNOWN;
    /* Other threads may go on freeing: they are not followed for ever. What one had given back for a call of its own
     * since the last try may have been all that was idle, and enough for both. */
    bool more = vp_clock_ns() - relief->begin < VP_PENDING_WAIT_NS &&
                (relief->gifts != gifts ||
                 (more_helps && (vp_pressure_trim_all() > 0 || wait_pending(relief, wanted))));
    relief->gifts = gifts;
    /* Once: what others give may be taken by others again. */
    if (!more && !relief->borrows && wanted < VP_MANAGED_MEMORY)
        more = borrow(relief, wanted);
    vp_leave();
    return more;
}

void vp_api_again(struct vp_relief *relief) {
    if (!relief->gifts)
        relief->gifts = gifts;
    if (relief->begin)
        vp_state.drv.cuThreadExchangeStreamCaptureMode(&relief->mode);
}
