/* A plan in use: does the program do what the plan's run did? See ahead.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/learnt/ahead.h"

#include "pool/bare/bare.h"

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

/* ---- blocks of bare segments ---- */

/* Windows at the beginning of which half must be the plan's for a program that began as the plan does. */
enum { KIN_WINDOWS = 8 };

/* The share of all windows that may differ where a plan fitted. */
enum { FITTED_SHARE = 100 };

static const struct vp_lifetimes *lifetimes_of(const struct vp_ahead *p) {
    return p->pool->bare ? p->pool->bare->lifetimes : NULL;
}

uint32_t vp_ahead_blocks(const struct vp_ahead *p) {
    const struct vp_lifetimes *l = lifetimes_of(p);
    return l ? atomic_load(&l->count) : 0;
}

/* Full windows; beyond the plan's end nothing is known. */
static size_t windows_of(const struct vp_ahead *p) {
    return vp_lesser(vp_ahead_blocks(p) / VP_LIFETIMES_WINDOW, p->plan.window_count);
}

/* How many of the windows from `from` to before `end` are the plan's. */
static size_t alike(const struct vp_ahead *p, size_t from, size_t end) {
    const struct vp_lifetimes *l = lifetimes_of(p);
    size_t same = 0;
    for (size_t i = from; i < end; i++)
        same += atomic_load(&l->windows[i]) == p->plan.windows[i];
    return same;
}

/* One of the last two is: what comes at the edge of one may come at the edge of the other next time. */
enum vp_ahead_step vp_ahead_blocks_in_step(const struct vp_ahead *p) {
    const size_t full = windows_of(p);
    if (!full)
        return VP_AHEAD_UNKNOWN;
    return alike(p, full > 2 ? full - 2 : 0, full) ? VP_AHEAD_IN_STEP : VP_AHEAD_OUT_OF_STEP;
}

bool vp_ahead_blocks_kin(const struct vp_ahead *p) {
    const size_t full = windows_of(p), looked = full < KIN_WINDOWS ? full : KIN_WINDOWS;
    return looked && 2 * alike(p, 0, looked) >= looked;
}

bool vp_ahead_blocks_fitted(const struct vp_ahead *p) {
    const size_t all = p->plan.window_count;
    return vp_ahead_blocks(p) / VP_LIFETIMES_WINDOW == all && alike(p, 0, all) >= all - all / FITTED_SHARE;
}

bool vp_ahead_blocks_cut_short(const struct vp_ahead *p) {
    const size_t full = vp_ahead_blocks(p) / VP_LIFETIMES_WINDOW;
    return full < p->plan.window_count / 2 && alike(p, 0, full) + 1 >= full;
}
