/* vpool's own policy.
 *
 * A large request gets the first of these that is to be had:
 *   1. the oldest place of its size, if it is all that the other streams' caches have to give up. Otherwise what they
 *      give up becomes free memory for the next steps (parking.h);
 *   2. the place that an earlier run of the program found for it (learnt/ahead.h);
 *   3. the place that served its size before (place.c). For that its stream may wait on the GPU, or the host: a program
 *      that repeats itself must not get another place, and then others after it, because the GPU was slower this time;
 *   4. the best fit among free bytes that it may use at once, or the beginning of a somewhat larger place that can be
 *      switched back;
 *   5. the same after asking the driver what has completed;
 *   6. the same behind a wait of its stream on the GPU (unless memory is to be created before that);
 *   7. for cudaMalloc: a host wait for the barrier of an earlier cudaFree, once not waiting costs too much memory;
 *   8. a new range (build.c): it extends a smaller place or the usable end of a free region before a hole, by wholly
 *      free chunks that are remapped behind that, and by fresh chunks for the rest. Nothing is created while enough
 *      wholly free, usable chunks exist; nor before the host has waited for other streams' frees, if due (throttle.h).
 *
 * If the device has no more memory, 6 and 8 are tried again with the waits that were to come after growing. Last comes
 * what other blocks have left of a chunk, for small requests and those that were to be alone in theirs. A small request
 * takes its best fit first: all chunks of the small zone are alike. Where several streams roam (slack.h) it takes what
 * is left between large blocks before a new range. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/bare.h"
#include "pool/bound.h"
#include "pool/build.h"
#include "pool/learnt/learn.h"
#include "pool/parking.h"
#include "pool/learnt/ahead.h"
#include "pool/slack.h"
#include "pool/throttle.h"
#include "pool/tight.h"

#include <errno.h>

/* Synchronous blocks of this size and more share no 64 KiB page with others: NICs and DMA-BUF register whole pages. */
enum { SYNC_PAGES = 1 << 20, SYNC_PAGE = 64 << 10 };

/* Before cudaMalloc waits for an earlier cudaFree, it may let the pool hold so much above the peak of live bytes,
 * beyond one block: rounding of a few chunks. */
enum { SYNC_SLACK_GRANULES = 4 };

static int layout(struct vp_pool *pool, struct vp_request *req) {
    bool pages = !req->timeline && req->asked >= SYNC_PAGES;
    if (req->asked > SIZE_MAX / 4)
        return -ENOMEM;
    /* Requests for whole granules have their granules to themselves, so that they can be exported; no more is held for
     * that. With all large requests of a recorded training step placed so, the driver would take three to four times as
     * long until the step repeats (583 for 152 ms, in a replay). */
    req->alone |= pages && vp_is_aligned(req->asked, pool->mem.granularity);
    req->align = req->alone ? pool->mem.granularity : pages ? SYNC_PAGE : VP_QUANTUM;
    req->size = vp_align_up(req->asked, req->align);
    req->zone = !req->alone && req->asked < VP_SMALL_BELOW && req->asked < pool->mem.granularity ? VP_ZONE_SMALL
                                                                                                 : VP_ZONE_LARGE;
    return 0;
}

/* ---- the steps: each serves the request (0), fails (a negative errno), or leaves it to the next one ---- */

enum { NEXT = 1 };

/* Loops over constant tables are unrolled, so that calls are direct. By pointer a cudaMalloc took a tenth longer. */
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define APART __attribute__((noinline))

static bool flush_caches(struct vp_pool *pool, const struct vp_request *req, enum vp_flush unpressed) {
    return vp_parking_flush(pool, req->pressed ? VP_FLUSH_ALL : unpressed);
}

/* The wait that the request's stream may make on the GPU; VP_USE_READY: none. */
static enum vp_usable waits_of(const struct vp_request *req) {
    if (!req->timeline || !(req->waits == VP_WAITS_EARLY || (req->waits == VP_WAITS_LATE && req->pressed)))
        return VP_USE_READY;
    return req->pressed ? VP_USE_WAIT_ANY : VP_USE_WAIT;
}

/* The size's old place comes before other free memory, except in programs that roam: there it would split that. */
static ALWAYS_INLINE struct vp_fit first_place(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    return vp_slack_keeps_place(pool, req) ? vp_place_find(pool, req, use) : (struct vp_fit){0};
}

static ALWAYS_INLINE struct vp_fit late_place(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    return vp_slack_keeps_place(pool, req) ? (struct vp_fit){0} : vp_place_find(pool, req, use);
}

static ALWAYS_INLINE struct vp_fit best_fit(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    struct vp_fit fit = vp_fit_find(&pool->mem, req, use);
    return vp_fit_pins_much(&pool->mem, req, fit) && vp_slack_spares(pool) ? vp_fit_pin_less(&pool->mem, req, use, fit)
                                                                           : fit;
}

static struct vp_fit best_fit_of_parked(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    return flush_caches(pool, req, VP_FLUSH_MOST) ? best_fit(pool, req, use) : (struct vp_fit){0};
}

/* Without old mappings all free memory is free where it lies, which best fit has already searched. */
static struct vp_fit old_place(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    const bool any = pool->mem.mappings > pool->mem.chunk_count;
    const struct vp_fit fit = any ? vp_place_find(pool, req, use) : (struct vp_fit){0};
    return fit.region || !any ? fit : vp_place_find_larger(pool, req, use);
}

/* Where to look for existing memory, in this order. */
enum { LOOKS = 4 };
static struct vp_fit (*const LOOK[VP_ZONES][LOOKS])(struct vp_pool *, const struct vp_request *, enum vp_usable) = {
    [VP_ZONE_SMALL] = {best_fit, best_fit_of_parked, old_place},
    [VP_ZONE_LARGE] = {first_place, best_fit, late_place, vp_place_find_larger},
};

/* Takes existing memory. Whatever serves a large request becomes a place, if it was none. */
static ALWAYS_INLINE int reuse_in(struct vp_pool *pool, enum vp_zone_name zone, const struct vp_request *req,
                                  enum vp_usable use, struct vp_region **out) {
#pragma GCC unroll 4
    for (int i = 0; i < LOOKS; i++) {
        struct vp_fit fit = LOOK[zone][i] ? LOOK[zone][i](pool, req, use) : (struct vp_fit){0};
        if (!fit.region)
            continue;
        int err = vp_fit_take(&pool->mem, fit, req, out);
        if (!err && i && zone == VP_ZONE_LARGE)
            vp_place_add(pool, (*out)->addr, req->size);
        return err;
    }
    return NEXT;
}

static int reuse_tight(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out) {
    struct vp_fit fit = vp_tight_fit(pool, req, use);
    return fit.region ? vp_fit_take(&pool->mem, fit, req, out) : NEXT;
}

static int reuse(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out) {
    if (vp_tight(pool, req))
        return reuse_tight(pool, req, use, out);
    return req->zone == VP_ZONE_SMALL ? reuse_in(pool, VP_ZONE_SMALL, req, use, out)
                                      : reuse_in(pool, VP_ZONE_LARGE, req, use, out);
}

/* For a large-zone request, makes free memory of what other streams have parked: which place is the oldest must not
 * depend on who parked what. If that is a single block, which is the very place that would then be found, it is taken
 * without being freed first. A small request need not disturb other streams while there is room: see LOOK. */
static APART int take_parked(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct vp_handed handed = {0};
    if (!req->timeline || req->alone) {
        flush_caches(pool, req, VP_FLUSH_SOME);
        return NEXT;
    }
    vp_parking_flush_for(pool, req->pressed ? VP_FLUSH_ALL : VP_FLUSH_SOME, req, &handed);
    struct vp_region *r = handed.block.region;
    if (!r)
        return NEXT;
    const struct vp_piece freed = {
        .end = vp_region_end(r), .fence = handed.block.fence, .age = pool->mem.age + 1, .stream = handed.timeline->id};
    if (r->size == req->size && vp_is_aligned(r->addr, req->align) && vp_piece_usable(&freed, req, waits_of(req)) &&
        vp_place_is_oldest(pool, req, r->addr) && !vp_handed_take(pool, &handed, req)) {
        *out = r;
        return 0;
    }
    vp_handed_settle(pool, &handed);
    return NEXT;
}

static ALWAYS_INLINE int take_over(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    return vp_parking_holds(pool) ? take_parked(pool, req, out) : NEXT;
}

/* Is the oldest place of the request's size free, but not ready yet? */
static bool place_pending(struct vp_pool *pool, const struct vp_request *req) {
    for (bool asked = false;; asked = true) {
        struct vp_fit fit = vp_place_find(pool, req, VP_USE_PENDING);
        if (!fit.region || vp_range_usable(fit.region, fit.addr, fit.addr + req->size, req, VP_USE_READY))
            return false;
        if (asked || !vp_fit_refresh(&pool->mem))
            return true;
    }
}

/* The place that served the size before, behind a wait of the stream or of the host. */
static APART int await_place(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    if (!vp_slack_keeps_place(pool, req) || vp_tight(pool, req))
        return NEXT;
    const enum vp_usable waits = waits_of(req);
    struct vp_fit fit = waits != VP_USE_READY ? vp_place_find(pool, req, waits) : (struct vp_fit){0};
    if (fit.region)
        return vp_fit_take(&pool->mem, fit, req, out);
    /* A program that roams never comes to rest, whatever is waited for. */
    if (vp_slack_roams(pool) || !vp_throttle_place_due(pool, req) || !place_pending(pool, req))
        return NEXT;
    /* A younger place that is ready will do. Waiting for the oldest all the same makes far fewer maps in replays with a
     * GPU that lags (scripts/bench --sim, gather). But then the host is only a few blocks ahead: on an H200
     * examples/gather.py took as long so, and held a tenth more, as the device was idle at times. */
    fit = vp_place_find(pool, req, VP_USE_READY);
    return fit.region ? vp_fit_take(&pool->mem, fit, req, out) : -EAGAIN;
}

static ALWAYS_INLINE int wait_for_place(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    return req->waits == VP_WAITS_NEVER ? NEXT : await_place(pool, req, out);
}

/* Serves a block beside the plan that would stay in the way of what the plan has there. */
static int beside_plan(struct vp_pool *pool, const struct vp_request *req, struct vp_region **out) {
    return vp_ahead_keep_apart(pool, req) && vp_build_fresh(pool, req, out) == 0 ? 0 : NEXT;
}

/* The place that an earlier run found for the request; as for places of its size, with a wait. */
static APART int ahead_place(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    const enum vp_usable waits = waits_of(req);
    if (vp_ahead_await(pool, req) && vp_bound_ended(req))
        return -ENODEV;
    struct vp_fit fit = vp_ahead_find(pool, req, VP_USE_READY);
    if (!fit.region) {
        fit = vp_ahead_find(pool, req, VP_USE_PENDING);
        if (!fit.region)
            return NEXT;
        vp_fit_refresh(&pool->mem);
        fit = vp_ahead_find(pool, req, waits);
        if (!fit.region)
            return vp_throttle_place_due(pool, req) ? -EAGAIN : beside_plan(pool, req, out);
    }
    return vp_fit_take(&pool->mem, fit, req, out);
}

static ALWAYS_INLINE int planned_place(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    return __builtin_expect(pool->ahead != NULL, false) ? ahead_place(pool, req, out) : NEXT;
}

static int reuse_ready(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    if (vp_tight(pool, req)) {
        if (vp_tight_short(pool))
            vp_parking_flush(pool, VP_FLUSH_MOST);
        return reuse_tight(pool, req, waits_of(req), out);
    }
    return reuse(pool, req, VP_USE_READY, out);
}

static int ask_and_reuse(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    if (pool->bare && req->zone == VP_ZONE_LARGE)
        vp_bare_flush(pool);
    int err = vp_fit_refresh(&pool->mem) ? reuse(pool, req, VP_USE_READY, out) : NEXT;
    return err == NEXT && req->context->error ? -EIO : err;
}

static int wait_and_reuse(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    const enum vp_usable waits = waits_of(req);
    return waits != VP_USE_READY ? reuse(pool, req, waits, out) : NEXT;
}

/* cudaMalloc: is a wait of the host due? Plain CUDA would have waited in cudaFree. Not waiting may cost at most one
 * block more than plain CUDA would hold. */
static int host_wait(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    const struct vp_fence *fence;
    size_t allowed = pool->mem.stats.peak_live_bytes + SYNC_SLACK_GRANULES * pool->mem.granularity;
    if (req->timeline || req->impatient || (!req->pressed && pool->mem.stats.held_bytes <= allowed))
        return NEXT;
    if (!vp_fit_host(&pool->mem, req, &fence).region)
        return NEXT;
    req->await = vp_fence_event(fence);
    return req->await ? -EAGAIN : NEXT;
}

/* Serves a request in the large zone, beside other blocks, in a free region of less than `below` bytes. */
static APART int between_large(struct vp_pool *pool, const struct vp_request *req, size_t below,
                               struct vp_region **out) {
    struct vp_request there = *req;
    there.zone = VP_ZONE_LARGE;
    there.align = req->alone ? SYNC_PAGE : req->align;
    there.alone = false;
    const struct vp_fit fit = vp_fit_find(&pool->mem, &there, waits_of(req));
    return fit.region && fit.region->size < below ? vp_fit_take(&pool->mem, fit, req, out) : NEXT;
}

/* A small request where several streams roam: a piece of the large zone of less than a granule. No large request may
 * ever want it, and two thousand streams had a fiftieth of what was alive in such pieces. Only late, as a block there
 * is in the way of free memory beside it. */
static int reuse_scrap(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    return vp_slack_roams_apart(pool) ? between_large(pool, req, pool->mem.granularity, out) : NEXT;
}

static int build_anew(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    /* A few small blocks may keep chunks from being wholly free; in a small program parked blocks are much. */
    flush_caches(pool, req, vp_tight(pool, req) ? VP_FLUSH_ALL : VP_FLUSH_MOST);
    int err = vp_build(pool, req, waits_of(req), out);
    /* No chunk is left for a small block, or one to be alone: a part of one will do, even if it cannot be exported. */
    if (err == -ENOMEM && req->pressed && !req->apart)
        err = between_large(pool, req, SIZE_MAX, out);
    return err == NEXT ? -ENOMEM : err;
}

/* The steps of the head comment, in its order. */
enum { STEPS = 8 };
static int (*const STEP[VP_ZONES][STEPS])(struct vp_pool *, struct vp_request *, struct vp_region **) = {
    [VP_ZONE_SMALL] = {reuse_ready, ask_and_reuse, wait_and_reuse, host_wait, reuse_scrap, build_anew},
    [VP_ZONE_LARGE] = {take_over, planned_place, wait_for_place, reuse_ready, ask_and_reuse, wait_and_reuse, host_wait,
                       build_anew},
};

static ALWAYS_INLINE int alloc_in(enum vp_zone_name zone, struct vp_pool *pool, struct vp_request *req,
                                  struct vp_region **out) {
    int err = NEXT;
#pragma GCC unroll 8
    for (int i = 0; i < STEPS && err == NEXT; i++)
        if (STEP[zone][i])
            err = STEP[zone][i](pool, req, out);
    return err;
}

static ALWAYS_INLINE int alloc_once(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    return req->zone == VP_ZONE_SMALL ? alloc_in(VP_ZONE_SMALL, pool, req, out)
                                      : alloc_in(VP_ZONE_LARGE, pool, req, out);
}

static __attribute__((noinline)) void follow(struct vp_pool *pool, const struct vp_request *req, CUdeviceptr addr) {
    if (pool->ahead)
        vp_ahead_served(pool, req, addr);
    if (pool->learn)
        vp_learn_served(pool->learn, req, addr, pool->mem.births);
}

static APART int alloc_again(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    return alloc_once(pool, req, out);
}

/* May the request be served beside what a waiting block of PyTorch's cache needs? It may take a slot more than its
 * size: ready chunks are no larger while a block waits. */
static bool leaves(const struct vp_pool *pool, const struct vp_request *req) {
    return vp_bare_leaves(pool, req->size + VP_SLOT_PAGES * pool->mem.granularity);
}

/* A block of PyTorch's cache waits for memory, perhaps for long: others may have what it does not need. */
static __attribute__((noinline, cold)) int alloc_beside_block(struct vp_pool *pool, struct vp_request *req,
                                                              struct vp_region **out) {
    vp_parking_flush(pool, VP_FLUSH_ALL);
    vp_fit_refresh(&pool->mem);
    struct vp_fit fit = vp_fit_find(&pool->mem, req, VP_USE_READY);
    if (fit.region)
        fit = vp_fit_pin_less(&pool->mem, req, VP_USE_READY, fit);
    if (fit.region && vp_bare_leaves(pool, vp_fit_pins(&pool->mem, req, fit)))
        return vp_fit_take(&pool->mem, fit, req, out);
    return leaves(pool, req) ? alloc_again(pool, req, out) : -ENOMEM;
}

/* Waits for what other threads have in their hands, which may be what is missing. */
static APART int alloc_behind_others(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    int err = -ENOMEM;
    const bool built = vp_bound_wait(pool), told = vp_bare_await_told(pool), ahead = vp_ahead_hold_back(pool);
    if (built || told || ahead)
        err = vp_bound_ended(req) ? -ENODEV : leaves(pool, req) ? alloc_again(pool, req, out) : -ENOMEM;
    vp_ahead_go_on(pool);
    return err;
}

/* Takes what was created for blocks of PyTorch's cache that have not come, or needed less. */
static APART int alloc_instead_of_spares(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    if (vp_bare_await(pool) && vp_bound_ended(req))
        return -ENODEV;
    if (!leaves(pool, req))
        return -ENOMEM;
    vp_chunk_release_spares(&pool->mem, req->size);
    return alloc_again(pool, req, out);
}

static int alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    const uint64_t maps = pool->mem.stats.calls.map;
    if (vp_bare_await(pool) && vp_bound_ended(req))
        return -ENODEV;
    if (req->pressed)
        vp_slack_press(pool, &pool->slack);
    int err = vp_bare_lacks(pool) ? alloc_beside_block(pool, req, out) : alloc_once(pool, req, out);
    while (err == -ENOMEM && !vp_list_empty(&pool->mem.spares) && leaves(pool, req))
        err = alloc_instead_of_spares(pool, req, out);
    if (err == -ENOMEM && req->pressed)
        err = alloc_behind_others(pool, req, out);
    if (err)
        return err;
    if (__builtin_expect(pool->learn || pool->ahead, 0) && req->zone == VP_ZONE_LARGE)
        follow(pool, req, (*out)->addr);
    vp_slack_note(pool, req);
    if (__builtin_expect(pool->bound.excess, 0) && maps == pool->mem.stats.calls.map)
        vp_bound_settle(pool, false);
    return 0;
}

const struct vp_policy vp_policy_vpool = {
    .name = "vpool",
    .traits = {.host_waits = true, .homes = true, .parks = true, .gives = true},
    .layout = layout,
    .alloc = alloc,
};
