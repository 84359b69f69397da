/* VPOOL_SPILL: when memory may be spilled, how much, and what is logged. See spill.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/spill.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/machine.h"
#include "pool/parking.h"
#include "pool/spill.h"

#include <errno.h>

/* What is kept free on a full device: for requests that may not be spilled, and for CUDA itself, which loads code
 * lazily and needs workspaces and local memory. A share of the device, and at least KEPT_LEAST; of a small device at
 * most LEAST_SHARE. */
enum { KEPT_SHARE = 128, LEAST_SHARE = 16 };
static const size_t KEPT_LEAST = 64 << 20;

/* At most one line in this time about what was spilled, and one about what was refused. */
static const uint64_t SAY_EVERY_NS = UINT64_C(60000000000);

uint64_t vp_spill_refused[VP_DEVICES][VP_SPILL_REFUSED_COUNT];

static bool forced(size_t asked) {
    return vp_options()->spill_test && vp_options()->spill && asked >= vp_options()->spill_test;
}

/* ---- may it? ---- */

/* Others access host memory in other ways than device memory, or not at all. */
static VP_LOCKED enum vp_spill_refusal refusal(const struct vp_pool *pool, size_t asked) {
    const CUdevice dev = pool->mem.device;
    if (asked <= VP_SPILL_ABOVE && !forced(asked))
        return VP_SPILL_small;
    if (atomic_load(&vp_state.timelines.captures))
        return VP_SPILL_capturing;
    if (pool->mem.exported)
        return VP_SPILL_exported;
    if (vp_state.registered >> dev & 1)
        return VP_SPILL_registered;
    if (vp_state.multicast >> dev & 1)
        return VP_SPILL_multicast;
    return pool->mem.peers | pool->mem.copiers || !vp_copies_reach_all(pool) ? VP_SPILL_peers : VP_SPILL_MAY;
}

static size_t kept_of(const struct vp_pool *pool) {
    const size_t whole = pool->mem.limit ? pool->mem.limit : vp_pressure_share(pool->mem.device, 100, "VPOOL_SPILL");
    const size_t least = whole / LEAST_SHARE < KEPT_LEAST ? whole / LEAST_SHARE : KEPT_LEAST;
    return whole / KEPT_SHARE > least ? whole / KEPT_SHARE : least;
}

/* A large request that fits on the device, but would leave less than is to be kept free, spills that much; not more,
 * since a request that would fail must first ask other processes and wait. */
bool vp_spill_is_due(struct vp_pool *pool, size_t asked) {
    const size_t idle = vp_pool_idle(pool);
    if (forced(asked) || asked <= VP_SPILL_ABOVE)
        return forced(asked);
    const size_t wanted = asked + kept_of(pool);
    if (idle >= wanted)
        return false;
    const size_t all = idle + vp_memory_device_free(&pool->mem);
    return asked <= all && wanted > all;
}

/* What may be made of the device's memory and of the host's; `*bound`: which bound is the host's. */
static VP_LOCKED struct vp_spill_room room_of(struct vp_pool *pool, size_t asked, bool last,
                                              enum vp_spill_refusal *bound) {
    const size_t most = vp_pressure_share(pool->mem.device, vp_options()->spill, "VPOOL_SPILL"),
                 now = pool->mem.stats.spilled_bytes, rest = most > now ? most - now : 0;
    const uint64_t host = vp_host_memory_room("");
    const size_t kept = kept_of(pool);
    struct vp_spill_room room = {.host = rest < host ? rest : host};
    if (!forced(asked)) {
        room.fresh = vp_memory_device_free(&pool->mem);
        const size_t all = room.fresh + vp_pool_idle(pool);
        room.device = all > kept && !vp_bare_lacks(pool) ? all - kept : 0;
        if (!last && room.host > kept)
            room.host = kept;
    }
    *bound = rest <= host ? VP_SPILL_limit : VP_SPILL_host;
    return room;
}

/* ---- what is said ---- */

static bool due(uint64_t *last) {
    const uint64_t now = vp_clock_ns();
    if (*last && now - *last < SAY_EVERY_NS)
        return false;
    *last = now;
    return true;
}

static void say_done(const struct vp_pool *pool, size_t asked) {
    static uint64_t last[VP_DEVICES];
    if (due(&last[pool->mem.device]))
        vp_log(VP_LOG_WARN,
               "device %d has no memory left for %zu MiB; %zu MiB of live blocks are in host memory now "
               "(VPOOL_SPILL). Work on them takes tens of times as long",
               (int)pool->mem.device, asked >> 20, (size_t)pool->mem.stats.spilled_bytes >> 20);
}

static int refuse(struct vp_pool *pool, size_t asked, enum vp_spill_refusal why) {
    static uint64_t last[VP_DEVICES];
    static const char *const texts[] = {
#define TEXT(name, text) text,
        VP_SPILL_REFUSALS(TEXT)
#undef TEXT
    };
    vp_spill_refused[pool->mem.device][why]++;
    pool->mem.stats.spills_refused++;
    if (due(&last[pool->mem.device]))
        vp_log(VP_LOG_WARN, "device %d has no memory left for %.1f MiB, and VPOOL_SPILL does not help: %s",
               (int)pool->mem.device, (double)asked / 1048576, texts[why]);
    return -ENOMEM;
}

/* ---- the call ---- */

int vp_spill(struct vp_pool *pool, const struct vp_request *req, bool last, struct vp_region **out) {
    struct vp_request own = *req;
    enum vp_spill_refusal bound, why;
    if (!vp_options()->spill)
        return -ENOMEM;
    vp_cancel_hold(); /* files are read, and lines written */
    if ((why = refusal(pool, req->asked)) != VP_SPILL_MAY)
        return last ? refuse(pool, req->asked, why) : -ENOMEM;
    if (vp_bare_await_all(pool) && vp_bound_ended(req))
        return -ENODEV;
    vp_parking_flush(pool, VP_FLUSH_ALL);
    const struct vp_spill_room room = room_of(pool, req->asked, last, &bound);
    const int err = vp_spill_alloc(pool, &own, &room, out);
    if (err) {
        vp_pool_error_forget(pool, NULL); /* it is the lack of memory that is told of */
        why = err == -EDQUOT ? bound : err == -EOPNOTSUPP ? VP_SPILL_unsupported : VP_SPILL_driver;
        return last ? refuse(pool, req->asked, why) : -ENOMEM;
    }
    if ((*out)->spilled) {
        vp_copies_update();
        say_done(pool, req->asked);
    }
    return 0;
}

void vp_spill_freed(struct vp_pool *pool) {
    vp_copies_update();
    vp_pressure_remember(vp_spill_settle(pool));
}
