/* A plan in use: does the program do what the plan's did? See ahead.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/learnt/ahead.h"

/* So many requests tell whether the program does what the plan's did: at first by their sizes, nearly all of which must
 * be the plan's; then by whether half of them get their places. */
enum { FEW = 16, LAST = 32, STRANGERS = 8 };

/* What the pool made beside the plan, for requests that the plan does not know or has no free place for: more than this
 * part of the plan's peak, and some handles, and the program does something else. */
enum { BESIDE_SHARE = 256, BESIDE_LEAST = 32 << 20 };

static bool makes_beside(const struct vp_ahead *p) {
    const struct vp_memory_stats *stats = &p->pool->mem.stats;
    /* A cache on bare segments has addresses of its own, and memory under them that no plan has made. */
    if (p->pool->bare && p->requests < FEW)
        return false;
    const uint64_t planned = stats->planned_bytes - stats->planned_returned;
    return stats->held_bytes > planned + p->plan.peak_held / BESIDE_SHARE + BESIDE_LEAST;
}

enum vp_ahead_step vp_ahead_in_step(const struct vp_ahead *p) {
    const uint64_t strangers = p->requests - p->found;
    if (makes_beside(p))
        return VP_AHEAD_OUT_OF_STEP;
    if (p->requests < FEW)
        return strangers <= p->requests / STRANGERS ? VP_AHEAD_UNKNOWN : VP_AHEAD_OUT_OF_STEP;
    if (p->requests < LAST)
        return strangers <= FEW / STRANGERS ? VP_AHEAD_IN_STEP : VP_AHEAD_OUT_OF_STEP;
    return 2 * __builtin_popcountll(p->history & (UINT64_MAX >> (64 - LAST))) >= LAST ? VP_AHEAD_IN_STEP
                                                                                      : VP_AHEAD_OUT_OF_STEP;
}

bool vp_ahead_is_exact(const struct vp_ahead *p) {
    enum { OF_LAST = LAST - LAST / 8 };
    return p->requests < LAST || __builtin_popcountll(p->history & (UINT64_MAX >> (64 - LAST))) >= OF_LAST;
}
