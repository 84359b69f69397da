/* How a new range is made: where it begins, which wholly free chunks move into it, and fresh ones for the rest. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/build.h"

#include "pool/bound.h"
#include "pool/fresh.h"
#include "pool/learnt/ahead.h"
#include "pool/slack.h"
#include "pool/throttle.h"
#include "pool/tight.h"

#include <errno.h>

/* ---- where to build ---- */

/* A block that grows gets addresses to grow by 1/GROWS_BY of its size before it must move to others. Sizes that have
 * doubled several times will double again: a request of at least DOUBLES_FROM handles, as memory was cut when sizes
 * were small, gets DOUBLES times its size, enough for three doublings. Each size then begins in free memory of the one
 * before, and moves half as many handles. */
enum { GROWS_BY = 2, DOUBLES_FROM = 64, DOUBLES = 7 };

static bool doubles(struct vp_pool *pool, const struct vp_request *req) {
    const size_t handle = pool->mem.stats.held_bytes / (pool->mem.chunk_count + 1);
    return req->size / DOUBLES_FROM >= handle && !vp_slack_roams(pool) && vp_place_doubles(pool, req);
}

/* Holes that are looked at for one request; there may be thousands. */
enum { HOLES = 1024 };

/* Finds the longest usable end of a free region right before a hole with room; of equally long ones, before the oldest
 * hole. False: there is none. */
static bool find_end(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_site *site) {
    const struct vp_index *holes = &pool->mem.holes[req->zone];
    const size_t room = vp_pool_room(pool);
    const struct vp_region *hole = vp_index_first(holes, (vp_slack_roams(pool) ? 0 : req->size) + room);
    uint64_t hole_serial = 0;
    size_t longest = 0;
    for (unsigned left = HOLES; hole && left--; hole = vp_index_next(holes, hole)) {
        const struct vp_region *before_hole = vp_region_prev(hole);
        CUdeviceptr run = 0, begin = before_hole ? before_hole->addr : 0;
        if (!before_hole || before_hole->state != VP_FREE)
            continue;
        for (const struct vp_piece *p = before_hole->pieces; p; begin = p->end, p = p->next)
            run = !vp_piece_usable(p, req, use) ? 0 : run ? run : begin;
        run = run ? vp_round_up(run, req->align) : 0;
        const size_t length = run && run < hole->addr ? hole->addr - run : 0;
        if (length && length < req->size &&
            (length > longest || (length == longest && hole->hole_serial < hole_serial)) &&
            hole->size - room >= req->size - length) {
            longest = length;
            hole_serial = hole->hole_serial;
            *site = (struct vp_site){run, hole->addr};
        }
    }
    return longest > 0;
}

/* Takes a hole by itself. Its first `room` bytes stay free for what lies before to grow; no memory is given up for
 * them. */
static int find_hole(struct vp_pool *pool, const struct vp_request *req, size_t room, struct vp_site *site) {
    struct vp_region *hole;
    int err = vp_pool_hole(pool, req->zone, vp_round_up(req->size, pool->mem.granularity) + vp_pool_room(pool) + room,
                           !room, &hole);
    if (!err)
        *site = (struct vp_site){hole->addr + room, hole->addr + room};
    return err;
}

/* An end that is at least 1/LONG_END of the request. */
enum { LONG_END = 8 };

static bool find_long_end(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use,
                          struct vp_site *site) {
    return find_end(pool, req, use, site) && site->map - site->begin >= req->size / LONG_END;
}

/* Sets what of the request exists already: all that lies before `map`. */
static void count_there(const struct vp_pool *pool, const struct vp_request *req, struct vp_site *site) {
    const size_t there = site->map - site->begin;
    site->there = site->begin;
    site->there_end = site->map;
    site->want = there < req->size ? vp_round_up(req->size - there, pool->mem.granularity) : 0;
}

/* Addresses of its own, with room on both sides for building at its ends; only if such a hole exists already. */
static bool find_roomy_hole(struct vp_pool *pool, const struct vp_request *req, struct vp_site *site) {
    const size_t room = vp_tight_room(pool, req);
    const struct vp_region *hole = vp_index_first(
        &pool->mem.holes[req->zone], vp_round_up(req->size, pool->mem.granularity) + vp_pool_room(pool) + 2 * room);
    if (hole)
        *site = (struct vp_site){hole->addr + room, hole->addr + room};
    return hole;
}

/* A smaller place that can be extended, for a block that grows; else addresses of its own with room behind for it to
 * grow, which cost nothing. For other blocks the end of a free region, else a hole. In a program that roams nearly
 * every size seems to grow from another, and a long end is as good as addresses of its own. */
static int find_loose_site(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use,
                           struct vp_site *site) {
    if (req->alone)
        return find_hole(pool, req, 0, site);
    if (!vp_slack_packs(pool, req) && req->zone == VP_ZONE_LARGE && vp_place_grows(pool, req)) {
        const size_t room = doubles(pool, req) ? DOUBLES * req->size : req->size / GROWS_BY;
        site->begin = vp_place_find_smaller(pool, req, use, &site->map).addr;
        if (site->begin || (vp_slack_roams(pool) && find_long_end(pool, req, use, site)) ||
            find_hole(pool, req, vp_round_up(room + vp_pool_room(pool), pool->mem.granularity), site) == 0)
            return 0;
    }
    return find_end(pool, req, use, site) ? 0 : find_hole(pool, req, 0, site);
}

/* Where several streams roam hardly any chunk is wholly free, and missing memory is created even when no slack is left.
 * Then the request gets a place that opens fewer granules, if there is one. */
static bool find_tight_site(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use,
                            struct vp_site *site) {
    if (!vp_tight(pool, req) && !vp_slack_crowded(pool, req))
        return false;
    site->exact = vp_tight_site(pool, req, use, site);
    return site->exact;
}

static int find_site(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_site *site) {
    if (find_tight_site(pool, req, use, site))
        return 0;
    int err = !vp_tight(pool, req)               ? find_loose_site(pool, req, use, site)
              : find_roomy_hole(pool, req, site) ? 0
                                                 : find_hole(pool, req, 0, site);
    if (!err)
        count_there(pool, req, site);
    return err;
}

/* ---- build ---- */

/* Does something free fit that is not ready yet? */
static bool fit_pending(struct vp_pool *pool, const struct vp_request *req) {
    return vp_place_is_pending(pool, req) || vp_fit_find(&pool->mem, req, VP_USE_PENDING).region;
}

/* Only one thread does this at a time; after a wait for another one, starts over. */
static int build_in_parts(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use,
                          struct vp_region **out) {
    if (!vp_bound_wait(pool))
        return vp_bound_build(pool, req, use, out);
    return vp_bound_ended(req) ? -ENODEV : vp_build(pool, req, use, out);
}

int vp_build(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out) {
    struct vp_site site = {0};
    int err = find_site(pool, req, use, &site);
    if (err)
        return err;
    if (site.want && vp_tight(pool, req) && vp_tight_blocked(pool, req, use, site.want / pool->mem.granularity) &&
        vp_throttle_due(pool, req, site.want, VP_THROTTLED_BLOCKED))
        return -EAGAIN;
    size_t built = 0, want = site.want;
    struct vp_harvest h = {.req = req,
                           .use = use,
                           .skip = site.there,
                           .skip_end = site.there_end,
                           .exact = req->alone || site.exact || vp_tight(pool, req)};
    if (!vp_harvest_room(pool, &h, want))
        return -ENOMEM;
    const bool lags = want && vp_throttle_room(pool, req, want) && fit_pending(pool, req);
    if (lags && vp_throttle_due(pool, req, want, VP_THROTTLED_LAGS))
        return -EAGAIN;
    const bool created = lags || (want && (vp_slack_room(pool, req, want) || vp_ahead_keeps_places(pool, req, want)));
    if (want && created && !lags && !h.exact && vp_slack_gathers(pool, req))
        vp_harvest_ends(pool, &h, want);
    if (want && !created) {
        vp_harvest(pool, &h, want);
        if (h.chosen >= DOUBLES_FROM && doubles(pool, req)) {
            h.avoided = vp_place_mark_extendable(pool, req, use);
            vp_harvest(pool, &h, want);
        }
        if (vp_throttle_due(pool, req, want - h.bytes, VP_THROTTLED))
            return -EAGAIN;
        if (vp_bound_parts(pool, &h, want))
            return h.bytes >= want || vp_fresh_possible(pool, want - h.bytes, 0) ? build_in_parts(pool, req, use, out)
                                                                                 : -ENOMEM;
        if (h.exact && h.bytes < want)
            vp_harvest_break_one(pool, &h);
        vp_tight_note(pool, req, h.bytes < want ? want - h.bytes : 0);
    }
    const size_t anew = want && !created ? vp_bound_spare_moves(pool, &h, want) : 0;
    if (want)
        err = vp_fresh_assemble(pool, &h, want, site.map, &built);
    if (!err && pool->ahead && req->zone == VP_ZONE_SMALL)
        pool->ahead->small += want;
    if (anew)
        vp_bound_moves_spared(pool, anew, err);
    if (anew && err == -ENOMEM) /* not tried again so soon */
        return vp_build(pool, req, use, out);
    if (err)
        return err;
    vp_place_add(pool, site.begin, req->size);
    vp_place_limit(pool, built);
    return vp_fit_take(&pool->mem, (struct vp_fit){vp_region_at(&pool->mem, site.begin), site.begin}, req, out);
}

int vp_build_fresh(struct vp_pool *pool, const struct vp_request *req, struct vp_region **out) {
    struct vp_site site;
    struct vp_harvest h = {.req = req, .exact = true};
    const size_t want = vp_round_up(req->size, pool->mem.granularity);
    size_t built;
    int err = find_hole(pool, req, 0, &site);
    if (!err && !vp_harvest_room(pool, &h, want))
        err = -ENOMEM;
    if (!err)
        err = vp_fresh_assemble(pool, &h, want, site.map, &built);
    return err ? err
               : vp_fit_take(&pool->mem, (struct vp_fit){vp_region_at(&pool->mem, site.begin), site.begin}, req, out);
}
