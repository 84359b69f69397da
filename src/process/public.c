/* The functions of include/vpool.h, but for those that watch/ has: marks, ranges, snapshots. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/poison.h"

#include <errno.h>
#include <string.h>
#include <vpool.h>

/* The first version of the struct ends here: no caller can know a smaller one. */
static const size_t STATS_LEAST = offsetof(struct vpool_stats, driver_ns) + sizeof(uint64_t);

VP_PUBLIC const char *vpool_version(void) {
    return VP_VERSION;
}

VP_PUBLIC int vpool_stats(int device, struct vpool_stats *stats) {
    if (!stats || stats->size < STATS_LEAST || device < 0 || device >= VP_DEVICES)
        return -EINVAL;
    if (!vp_enter())
        return -ENODEV;
    struct vp_pool *pool = vp_state.pools[device];
    if (pool) {
        const struct vp_memory_stats s = vp_pool_stats(pool);
        const struct vpool_stats now = {
            .size = stats->size,
            .allocs = s.allocs,
            .frees = s.frees,
            .live_bytes = s.live_bytes,
            .peak_live_bytes = s.peak_live_bytes,
            .held_bytes = s.held_bytes,
            .peak_held_bytes = s.peak_held_bytes,
            .ooms = s.ooms,
            .waits_gpu = s.waits_gpu,
            .waits_host = s.waits_host,
            .driver_ns = s.driver_ns + vp_state.timelines.stats[device].ns,
            .waits_fruitless = s.waits_fruitless,
            .host_wait_ns = s.host_wait_ns,
            .written_after_free = vp_poison_counts.written_blocks,
            .spilled_bytes = s.spilled_bytes,
            .peak_spilled_bytes = s.peak_spilled_bytes,
            .asleep_bytes = pool->mem.asleep_bytes,
            .given_back_bytes = s.given_back,
            .lent_bytes = s.lent_bytes,
            .loans_asked = s.loans_asked,
            .loans_refused = s.loans_refused,
        };
        memset(stats, 0, stats->size);
        memcpy(stats, &now, vp_lesser(now.size, sizeof now));
    }
    vp_leave();
    return pool ? 0 : -ENODEV;
}

VP_PUBLIC int64_t vpool_trim(int device, uint64_t keep) {
    if (device < 0 || device >= VP_DEVICES)
        return -EINVAL;
    if (!vp_enter())
        return -ENODEV;
    struct vp_pool *pool = vp_state.pools[device];
    const int64_t given = pool ? (int64_t)vp_pressure_trim(pool, keep) : -ENODEV;
    vp_leave();
    return given;
}
