/* The lines of a trace that are no events: what the pools hold, failures, marks and ranges. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/trace.h"

#include "pool/bare/bare.h"
#include "watch/watch.h"

#include <string.h>

/* What the file says of each device, under the library's lock. */
static struct {
    uint64_t held, calls, addressed;
} told[VP_DEVICES];

/* Addresses of bare segments change when segments come and go. */
static VP_LOCKED void tell_addressed(const struct vp_pool *pool) {
    const CUdevice device = pool->mem.device;
    const uint64_t addressed = pool->bare ? pool->bare->addressed : 0;
    if (addressed == told[device].addressed || !vp_trace_lock())
        return;
    vp_trace_put('v', VP_TRACE_NUMBER((uint64_t)device), VP_TRACE_NUMBER(addressed),
                 VP_TRACE_NUMBER((uint64_t)pool->mem.bare_segments));
    told[device].addressed = addressed;
    vp_trace_unlock();
}

void vp_trace_held(void) {
    vp_pools_each(pool) {
        tell_addressed(pool);
        CUdevice device = pool->mem.device;
        const struct vp_timeline_stats timelines = vp_state.timelines.stats[device];
        const uint64_t held = pool->mem.stats.held_bytes, calls = vp_stats_calls(&pool->mem.stats, &timelines);
        if ((held == told[device].held && calls == told[device].calls) || !vp_trace_lock())
            continue;
        vp_trace_put('h', VP_TRACE_NUMBER((uint64_t)device), VP_TRACE_NUMBER(held), VP_TRACE_NUMBER(calls));
        told[device].held = held;
        told[device].calls = calls;
        vp_trace_unlock();
    }
}

void vp_trace_held_anew(void) {
    memset(told, 0, sizeof told);
}

void vp_trace_failure(CUdevice device, size_t size, uint32_t stream) {
    if (!vp_trace_lock())
        return;
    vp_trace_put('x', VP_TRACE_NUMBER((uint64_t)device), VP_TRACE_NUMBER(size), VP_TRACE_NUMBER(stream));
    vp_trace_unlock();
}
