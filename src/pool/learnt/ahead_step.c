/* A plan in use: does the program do what the plan's run did? See ahead.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/learnt/ahead.h"

/* So many requests tell whether the program follows the plan: at first by their sizes, nearly all of which must be the
 * plan's; then by whether half of them get their places. */
enum { FEW = 16, LAST = 32, STRANGERS = 8 };

/* If the pool has created more than this share of the plan's peak, and some handles, beside the plan (for requests that
 * the plan does not know or has no free place for), the program does something else. */
enum { BESIDE_SHARE = 256, BESIDE_LEAST = 32 << 20 };

/* Would the pool, with `more` bytes, have created so much? */
static bool is_beside(const struct vp_ahead *p, size_t more) {
    const struct vp_memory_stats *stats = &p->pool->mem.stats;
    const uint64_t planned = stats->planned_bytes - stats->planned_returned;
    return stats->held_bytes + more > planned + p->plan.peak_held / BESIDE_SHARE + BESIDE_LEAST;
}

static bool makes_beside(const struct vp_ahead *p) {
    /* A cache on bare segments has addresses of its own, and memory there that no plan has made. */
    return !(p->pool->bare && p->requests < FEW) && is_beside(p, 0);
}

/* A block that stays is kept apart if it is at most such a share of all. It stays if none of so many requests after it
 * has a place that overlaps its own. */
enum { APART_SHARE = 200, STAYS = 1024 };

bool vp_ahead_keeps_apart(const struct vp_ahead *p, uint32_t number, size_t size) {
    if (!number || size > p->plan.peak_held / APART_SHARE || is_beside(p, size) ||
        vp_ahead_in_step(p) != VP_AHEAD_IN_STEP)
        return false;
    const struct vp_learnt_slot *slots = p->plan.slots, *mine = &slots[p->plan.requests[number - 1]];
    for (size_t i = number; i < p->plan.request_count && i < number + STAYS; i++) {
        const struct vp_learnt_slot *other = &slots[p->plan.requests[i]];
        if (other->offset < mine->offset + mine->size && mine->offset < other->offset + other->size)
            return false;
    }
    return true;
}

bool vp_ahead_keeps_places(const struct vp_pool *pool, const struct vp_request *req, size_t fresh) {
    const struct vp_ahead *p = pool->ahead;
    return p && req->zone == VP_ZONE_SMALL && !req->pressed && !vp_pool_is_small(pool) &&
           vp_ahead_in_step(p) == VP_AHEAD_IN_STEP && !is_beside(p, fresh);
}

enum vp_ahead_step vp_ahead_in_step(const struct vp_ahead *p) {
    const uint64_t strangers = p->requests - p->found;
    if (makes_beside(p) && !(p->requests >= LAST && vp_ahead_is_exact(p)))
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
