/* Memory for what CUDA allocates itself. A call that was passed on has failed for want of memory: what the pools keep
 * idle may be what is missing, and so may what waits in them for work to end. Without us cudaFree would have waited for
 * that work, and the memory would be there. So idle memory is given back and the call made again; and if that was not
 * enough, what is pending is waited for, for as long as an allocation of ours would wait. Nothing of this costs a call
 * that succeeds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "process/state.h"
#include "base/clock.h"

/* As in an allocation: how long pending work is waited for, and how much of that may be for captures to end, before
 * which what was freed meanwhile cannot be known to be over. The capture may be the calling thread's own. */
static const uint64_t PENDING_WAIT_NS = 5000000000, QUARANTINE_WAIT_NS = 100000000;

static size_t trim_all(void) {
    size_t given = 0;
    for (int dev = 0; dev < VP_DEVICES; dev++)
        if (vp_state.pools[dev])
            given += vp_pool_trim(vp_state.pools[dev], 0);
    return given;
}

/* A pool that could give memory back once work has ended; NULL: there is nothing to wait for. */
static struct vp_pool *shrinkable(void) {
    for (int dev = 0; dev < VP_DEVICES; dev++)
        if (vp_state.pools[dev] && vp_pool_shrinkable(vp_state.pools[dev]))
            return vp_state.pools[dev];
    return NULL;
}

/* Waits without the lock until some of what was pending at the first call is over and could be given back; true then.
 */
static bool wait_for_work(struct vp_relief *relief) {
    struct vp_timelines *timelines = &vp_state.timelines;
    uint64_t moves = timelines->moves;
    if (!relief->waited)
        relief->serial = timelines->recorded;
    relief->waited = true;
    for (struct vp_pool *pool = shrinkable(); pool;) {
        uint64_t waited = vp_clock_ns() - relief->begin;
        bool quarantine = atomic_load(&timelines->captures) && vp_timelines_open(timelines) &&
                          waited < QUARANTINE_WAIT_NS;
        if (waited >= PENDING_WAIT_NS || (!quarantine && !vp_timelines_waiting(timelines, relief->serial)))
            return false;
        pool->config.pause(waited);
        vp_timelines_poll(timelines, quarantine);
        if (quarantine)
            relief->serial = timelines->recorded;
        /* Another thread may have asked before us. */
        if (timelines->moves == moves)
            continue;
        moves = timelines->moves;
        if (trim_all())
            return true;
        pool = shrinkable();
    }
    return false;
}

static bool wait_pending(struct vp_relief *relief) {
    struct vp_pool *pool = shrinkable();
    uint64_t begin = vp_clock_ns();
    if (!pool || vp_list_empty(&vp_state.timelines.pending))
        return false;
    bool gained = wait_for_work(relief);
    vp_pool_waited(pool, vp_clock_ns() - begin, !gained);
    return gained;
}

bool vp_api_relieve(void) {
    if (!vp_enter())
        return false;
    bool given = trim_all() > 0;
    vp_leave();
    return given;
}

bool vp_api_relieve_more(struct vp_relief *relief) {
    if (!vp_enter())
        return false;
    if (!relief->begin)
        relief->begin = vp_clock_ns();
    /* Other threads may go on freeing: they are not followed for ever. */
    bool more = vp_clock_ns() - relief->begin < PENDING_WAIT_NS && (trim_all() > 0 || wait_pending(relief));
    vp_leave();
    return more;
}
