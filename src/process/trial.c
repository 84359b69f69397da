/* Trial allocations. PyTorch's cudaMallocAsync backend looks for room for cuDNN's workspaces by asking for all memory
 * that was reported as free, then, if that fails, for half of it and so on; it frees at once what it gets, unused. A
 * trial must leave nothing behind: neither memory nor statistics of how much there was. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"

#include "base/clock.h"
#include "pool/giving.h"
#include "pool/parking.h"

/* Who keeps it for longer works with it. */
enum { TRIAL_NS = 10000000 };

bool vp_trial_is(const struct vp_pool *pool, size_t size) {
    const struct vp_told *told = &vp_state.told[pool->mem.device];
    return pool->traits.gives && told->generation == vp_pool_generation(pool) && size == told->bytes;
}

void vp_trial_failed(const struct vp_pool *pool) {
    vp_state.told[pool->mem.device].bytes /= 2;
}

struct vp_trial vp_trial_begin(const struct vp_pool *pool, const struct vp_mempool *mp) {
    return (struct vp_trial){.held = pool->mem.stats.held_bytes,
                             .peak_live = pool->mem.stats.peak_live_bytes,
                             .top_live = pool->giving.top_live,
                             .top_held = pool->giving.top_held,
                             .had = mp->had,
                             .used_high = mp->used_high,
                             .reserved_high = mp->reserved_high};
}

void vp_trial_served(const struct vp_pool *pool, struct vp_trial trial, const struct vp_region *block) {
    trial.serial = block->serial;
    trial.allocs = pool->mem.stats.allocs;
    trial.served_ns = vp_clock_ns();
    vp_state.trial[pool->mem.device] = trial;
}

struct vp_mempool *vp_trial_of(const struct vp_pool *pool, const struct vp_region *block) {
    const struct vp_trial *trial = &vp_state.trial[pool->mem.device];
    struct vp_mempool *mp = block->owner;
    const bool is_it = block->serial == trial->serial && pool->mem.stats.allocs == trial->allocs &&
                       vp_clock_ns() - trial->served_ns < TRIAL_NS;
    return is_it && mp && !mp->dead ? mp : NULL;
}

void vp_trial_over(struct vp_pool *pool, struct vp_mempool *mp) {
    const struct vp_trial *trial = &vp_state.trial[pool->mem.device];
    struct vp_giving *giving = &pool->giving;
    const size_t held = pool->mem.stats.held_bytes, more = held > trial->held ? held - trial->held : 0;
    vp_parking_flush(pool, VP_FLUSH_ALL);
    /* What was made for nothing goes back at the next synchronise. */
    giving->loose = vp_greater(giving->loose, more);
    giving->deferred = vp_greater(giving->deferred, more);
    giving->until = more ? 0 : giving->until;
    pool->mem.stats.peak_live_bytes = vp_greater(trial->peak_live, pool->mem.stats.live_bytes);
    giving->top_live = trial->top_live;
    giving->top_held = trial->top_held;
    mp->had = vp_greater(trial->had, mp->used);
    mp->used_high = vp_greater(trial->used_high, mp->used);
    mp->reserved_high = vp_greater(trial->reserved_high, vp_mempool_reserved(mp));
    vp_pressure_remember(vp_giving_is_due(pool));
}
