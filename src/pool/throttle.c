/* When the host waits for memory, for how long, and what that costs: see throttle.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/throttle.h"

#include "pool/tight.h"

#include <errno.h>

/* Smaller requests are not worth a wait, except in a small program; nor do their frees record events to wait for. */
enum { WORTH = 1 << 20 };

/* Memory above the peak of live bytes that needs no wait: half a percent, as promised, and rounding of some chunks. */
enum { SHARE = 200, ROOM = 32 << 20 };

/* In a small program ROOM would be much: there it is at most 1/ROOM_SHARE of what is alive. */
enum { ROOM_SHARE = 16 };

static size_t room(size_t alive) {
    return alive / ROOM_SHARE < ROOM ? alive / ROOM_SHARE : ROOM;
}

/* For a GPU that lags, memory above that peak is created before idle memory is moved, up to this share. Measured on a
 * training that gathers its layers on a second stream: without it memory moves all the time, and training takes 1.3 to
 * 1.5 times as long; with an eighth, 1.02 times. A small program gets only `room` for it. */
enum { LAG_SHARE = 8 };

/* The bound of a wait: 50 ms is long for a layer of a network, and short for a person. Longer waits that succeeded
 * raise it to BOUND_TIMES the longest. */
static const uint64_t BOUND_LEAST_NS = 50000000, BOUND_MOST_NS = 1000000000;
enum { BOUND_TIMES = 4 };

/* How long no wait is tried after one in vain. After two in a row the program seems to hold itself up, and the rest is
 * long, and doubles each time. */
static const uint64_t REST_NS = 250000000, REST_LONG_NS = 60000000000, REST_LONGEST_NS = 3600000000000;

/* The cost of waits to the program is the time for which the device has no work. The device may run out of it in a
 * wait, or in driver calls of the same request. And after a wait the host is less far ahead than before: if the device
 * runs out of work in driver calls of later requests, earlier waits are to blame, for up to their total time. That ends
 * when the device still has work after as long a time: the host has caught up. No program is more than a second ahead.
 * Two short times are unknown, and taken to be equal: how much work was left when the device was last seen to have
 * some, and when it gets more after a request. */
static const uint64_t AHEAD_MOST_NS = 1000000000;

/* The part of the program's time that may be lost: a hundredth, and at the beginning, when memory is still created and
 * the host has no time to spare, as much as one wait in vain may take. With less, most of what the program holds in the
 * end would be granted in its first moments. */
enum { LOST_SHARE = 100 };
static const uint64_t LOST_FIRST_NS = 50000000;

/* If more time is lost, this share of what is alive may be held in addition: then waits are fewer and shorter. Each
 * time GRANT_NS more are lost the share doubles, until it is all of it. */
enum { GRANT_SHARE = 16, GRANTS_DOUBLED = 4 };
static const uint64_t GRANT_NS = 5000000;

/* What memory is worth, in time that may be lost. As much memory as is alive is worth PRICE_NS, a part of it that part;
 * and the more is held already the more it is worth, by the fourth power of held / alive. So no single wait uses up
 * most of what may be lost at the beginning (20 ms in a recorded training, for memory that it needed a moment later
 * anyway), and yet what is held does not run away while wait after wait is too short: docs/measured-log.md. In a small
 * program, which has no other room, memory is worth SMALL_TIMES as much. A wait may also take 1/LEFT_SHARE of what
 * waits have left of their part of the program's time. */
static const uint64_t PRICE_NS = 8000000;
enum { LEFT_SHARE = 8, SMALL_TIMES = 4 };

/* The host's lead matters if driver calls are to come. As many are expected as there were lately: MAP_NS for each map,
 * forgotten within a tenth of a second. If they take no more than may still be lost (more at the beginning, when all
 * programs create memory), a wait may use up all of the lead: one that is cut short leaves the device as far behind as
 * it was, and the next request waits in vain, too. */
static const uint64_t MAP_NS = 40000, MAPS_FORGOTTEN_NS = 100000000, LEAD_FIRST_NS = 30000000;

/* It is not known when the device ran out of work between two looks: half-way is assumed, but at most so long ago, as
 * the program may have had nothing to do. */
static const uint64_t GAP_MOST_NS = 400000;

/* A request that raises the peak itself belongs to a program that still grows, and will soon need what is created
 * beyond it: up to this share of what is alive it does not wait. */
enum { GROWTH_SHARE = 4 };

/* Have other streams freed memory that the request may not use yet, in a piece of a granule or more? For small requests
 * of a small program: in one as large as the request. */
static bool pending(const struct vp_pool *pool, const struct vp_request *req) {
    const struct vp_index *index;
    const size_t least = vp_pool_is_small(pool) && req->size < pool->mem.granularity ? req->size
                                                                                     : pool->mem.granularity;
    vp_list_each_behind(index, &pool->mem.mixed[VP_ZONES - 1].link, &pool->mem.indexes, link)
        if (index->timeline != req->timeline && index->zone == req->zone && vp_index_first(index, least))
            return true;
    for (struct vp_region *r = vp_index_first(&pool->mem.mixed[req->zone], least); r;
         r = vp_index_next(&pool->mem.mixed[req->zone], r))
        for (const struct vp_piece *p = r->pieces; p; p = p->next)
            if (!vp_fence_ready(&p->fence, req->timeline))
                return true;
    return false;
}

/* Where streams wait, the host waits only for a small program whose blocks lie tight. There old mappings are in the way
 * of others, and can be unmapped only when the host has seen work on them end. */
static bool host_waits(const struct vp_pool *pool, const struct vp_request *req) {
    return req->waits == VP_WAITS_HOST ||
           (req->waits == VP_WAITS_EARLY && pool->traits.host_waits && vp_tight(pool, req));
}

/* May the host wait at all for this request, which would make the pool hold `held` bytes? */
static bool may_wait(const struct vp_pool *pool, const struct vp_request *req, size_t held, bool blocked) {
    if (!pool->config.pause || !host_waits(pool, req) || req->impatient || req->pressed || req->strict ||
        (req->asked < WORTH && !vp_pool_is_small(pool)))
        return false;
    const uint64_t alive = vp_pool_peak_with(pool, req->size);
    return held > alive + alive / SHARE + room(alive) && held > pool->throttle.granted &&
           !atomic_load(&pool->mem.timelines->captures) && (blocked || pending(pool, req)) &&
           (!pool->throttle.not_before || pool->config.now() >= pool->throttle.not_before);
}

bool vp_throttle_room(const struct vp_pool *pool, const struct vp_request *req, size_t fresh) {
    const size_t peak = pool->mem.stats.peak_live_bytes;
    return pool->config.pause && req->timeline && req->waits == VP_WAITS_HOST && !req->pressed && req->asked >= WORTH &&
           pool->mem.stats.held_bytes + fresh <= peak + (vp_pool_is_small(pool) ? 0 : peak / LAG_SHARE) + room(peak);
}

/* Time of the program that waits may cost so far. */
static uint64_t may_lose(const struct vp_pool *pool) {
    return (pool->config.now() - pool->throttle.opened) / LOST_SHARE + LOST_FIRST_NS;
}

/* May a wait use up the host's lead? See MAP_NS. */
static bool may_use_lead(struct vp_pool *pool) {
    struct vp_throttle *t = &pool->throttle;
    const uint64_t now = pool->config.now(), ago = now - t->maps_at, maps = pool->mem.stats.calls.map;
    const uint64_t part = ago < MAPS_FORGOTTEN_NS ? MAPS_FORGOTTEN_NS - ago : 0;
    t->remaps_ns = (uint64_t)((double)t->remaps_ns * (double)part / (double)MAPS_FORGOTTEN_NS) +
                   (maps - t->maps) * MAP_NS;
    t->maps = maps;
    t->maps_at = now;
    return now >= t->short_before && t->remaps_ns <= (now - t->opened) / LOST_SHARE + LEAD_FIRST_NS;
}

/* What waits have left of their part of the program's time, if all is lost that still may be. */
static uint64_t left(const struct vp_pool *pool) {
    const uint64_t all = (pool->config.now() - pool->throttle.opened) / LOST_SHARE;
    const uint64_t used = pool->throttle.lost_ns + pool->throttle.lead_used_ns;
    return all > used ? all - used : 0;
}

/* Does the program still grow, and may so much be held for that? */
static bool grows(const struct vp_pool *pool, const struct vp_request *req, size_t held) {
    const size_t alive = pool->mem.stats.live_bytes + req->size;
    return req->waits == VP_WAITS_HOST && !vp_pool_is_small(pool) && alive > pool->mem.stats.peak_live_bytes &&
           held <= alive + alive / GROWTH_SHARE + room(alive);
}

bool vp_throttle_due(struct vp_pool *pool, const struct vp_request *req, size_t fresh, enum vp_throttled how) {
    const size_t held = pool->mem.stats.held_bytes + fresh;
    const bool blocked = how == VP_THROTTLED_BLOCKED;
    if ((how == VP_THROTTLED_LAGS && !may_use_lead(pool)) || !fresh || !may_wait(pool, req, held, blocked) ||
        (!blocked && grows(pool, req, held)))
        return false;
    pool->throttle.lacking = fresh;
    return true;
}

bool vp_throttle_place_due(struct vp_pool *pool, const struct vp_request *req) {
    if (!may_wait(pool, req, pool->mem.stats.held_bytes + req->size, false) ||
        (pool->throttle.no_place_before && pool->config.now() < pool->throttle.no_place_before) || !may_use_lead(pool))
        return false;
    pool->throttle.lacking = 0;
    return true;
}

/* The device was out of work for `ns` nanoseconds, during a wait or a request: counts what waits are to blame for. */
static void lose(struct vp_throttle *t, uint64_t ns) {
    ns = vp_lesser(ns, t->lead_used_ns);
    t->lead_used_ns -= ns;
    t->lost_ns += ns;
}

/* Notes all that the device has to do now. If no event recorded now tells of that, looks for another way. */
static void note_work(struct vp_pool *pool, struct vp_context *context, struct vp_fence *fence) {
    struct vp_timelines *timelines = pool->mem.timelines;
    const bool named = vp_timelines_all_named(timelines);
    vp_fence_add_barrier(timelines, fence, context, !named);
    if (named)
        vp_timelines_poll(timelines, true);
}

/* After a request: does the device still have work that it had before? If not, waits may be to blame. */
static __attribute__((noinline, cold)) void look(struct vp_pool *pool, struct vp_context *context) {
    struct vp_throttle *t = &pool->throttle;
    struct vp_timelines *timelines = pool->mem.timelines;
    const uint64_t now = pool->config.now(), gap = t->probe_at - t->probed_at;
    if (!atomic_load(&timelines->captures)) { /* one may have begun since */
        if (vp_timelines_all_named(timelines))
            vp_timelines_poll(timelines, true);
        else
            vp_timeline_poll(timelines, context->barrier);
    }
    const bool idle = vp_fence_settle(timelines, &t->probe);
    if (idle)
        lose(t, now - t->probe_at + (gap < GAP_MOST_NS ? gap : GAP_MOST_NS) / (t->idle ? 1 : 2));
    else if (t->probe_at - t->waited_at > t->lead_used_ns)
        t->lead_used_ns = 0;
    t->idle = idle;
    t->probed_at = now;
    vp_fence_clear(timelines, &t->probe);
}

/* Is the device to be looked at after this request? If so, notes what it has to do now. */
static __attribute__((noinline, cold)) bool will_look(struct vp_pool *pool, const struct vp_request *req) {
    struct vp_throttle *t = &pool->throttle;
    if (req->waits != VP_WAITS_HOST || !req->timeline || req->asked < WORTH || !vp_fence_empty(&t->probe) ||
        atomic_load(&pool->mem.timelines->captures))
        return false;
    t->probe_at = pool->config.now();
    note_work(pool, req->context, &t->probe);
    return true;
}

/* If waits have cost more than they may, allows more to be held from now on, a step at a time. */
static void grant(struct vp_pool *pool) {
    struct vp_throttle *t = &pool->throttle;
    const uint64_t most = may_lose(pool);
    if (t->lost_ns <= most)
        return;
    const size_t held = pool->mem.stats.held_bytes;
    const size_t more = pool->mem.stats.peak_live_bytes / GRANT_SHARE << t->grants;
    t->granted = (held > t->granted ? held : t->granted) + more;
    t->grants += t->grants < GRANTS_DOUBLED;
    t->lost_ns = most - GRANT_NS;
}

/* The waits of one request. All zero at first. */
struct wait {
    uint64_t begin, bound; /* when they began; how long they may take together */
    uint64_t moved_at;     /* when some work was last seen to end */
    uint64_t working_at;   /* when the device last had something left to do of `busy` */
    uint64_t over;         /* when the host last stopped waiting */
    uint64_t serial;       /* number of the last event worth waiting for */
    struct vp_fence busy;  /* all that the device had to do when it began */
    size_t lacking;        /* bytes of new memory that would have been created instead */
    bool timed_out;        /* it has taken too long */
    bool in_vain;          /* and spared no memory */
};

/* How long a wait may take, whatever for. */
static uint64_t bound_of(const struct vp_throttle *t) {
    const uint64_t bound = BOUND_TIMES * t->longest_ns;
    return bound < BOUND_LEAST_NS ? BOUND_LEAST_NS : bound > BOUND_MOST_NS ? BOUND_MOST_NS : bound;
}

/* How long it may take for what it would spare. */
static uint64_t worth(struct vp_pool *pool) {
    if (may_use_lead(pool))
        return BOUND_MOST_NS;
    const double alive = (double)pool->mem.stats.peak_live_bytes + 1;
    const double over = (double)pool->mem.stats.held_bytes / alive, part = (double)pool->throttle.lacking / alive;
    const double whole = (double)PRICE_NS * (vp_pool_is_small(pool) ? SMALL_TIMES : 1);
    const double price = whole * part * over * over * over * over;
    const bool rests = pool->config.now() < pool->throttle.short_before;
    const double spare = rests ? 0 : (double)left(pool) / LEFT_SHARE;
    const double ns = price > spare ? price : spare;
    return ns < (double)BOUND_MOST_NS ? (uint64_t)ns : BOUND_MOST_NS;
}

static void begin(struct vp_pool *pool, const struct vp_request *req, struct wait *wait) {
    wait->begin = wait->moved_at = wait->working_at = wait->over = pool->config.now();
    wait->bound = vp_lesser(bound_of(&pool->throttle), worth(pool));
    /* Records events for frees that have none, so that these can be asked for, too. */
    vp_timelines_poll(pool->mem.timelines, true);
    note_work(pool, req->context, &wait->busy);
    wait->serial = pool->mem.timelines->recorded;
}

/* Waits until some work is over, so that another try may succeed. False: nothing to wait for, or it takes too long. */
static bool go_on(struct vp_pool *pool, const struct vp_request *req, struct wait *wait) {
    struct vp_timelines *timelines = pool->mem.timelines;
    for (;;) {
        uint64_t waited = pool->config.now() - wait->begin;
        const bool whole = wait->bound >= bound_of(&pool->throttle) && waited < BOUND_MOST_NS;
        wait->timed_out = (whole ? wait->begin + waited - wait->moved_at : waited) >= wait->bound;
        if (wait->timed_out || atomic_load(&timelines->captures) || !vp_timelines_waiting(timelines, wait->serial))
            return false;
        pool->config.pause(waited);
        if (req->timeline->gone || req->context->gone)
            return false;
        /* It may live on: the release may not have been the last, or was a detachment. */
        if (req->context->ending)
            continue;
        vp_timelines_poll(timelines, false);
        wait->over = pool->config.now();
        if (!vp_fence_settle(timelines, &wait->busy))
            wait->working_at = wait->over;
        if (pool->mem.moves != timelines->moves) {
            wait->moved_at = wait->over;
            return true;
        }
    }
}

static void rest(struct vp_throttle *t, uint64_t now) {
    uint64_t rest_ns = bound_of(t) > REST_NS ? bound_of(t) : REST_NS;
    if (++t->fruitless > 1) {
        t->rest_ns = t->rest_ns ? vp_lesser(2 * t->rest_ns, REST_LONGEST_NS) : REST_LONG_NS;
        t->not_before = now + t->rest_ns;
    }
    t->rested = now;
    t->short_before = now + rest_ns;
}

/* Several short waits in vain count as one when they have taken as long together. */
static bool long_in_vain(struct vp_throttle *t, const struct wait *wait, uint64_t took) {
    t->vain_ns = wait->in_vain ? t->vain_ns + took : 0;
    if (t->vain_ns < bound_of(t))
        return false;
    t->vain_ns = 0;
    return true;
}

/* The request was served, or failed: keeps what the wait has taught. */
static void end(struct vp_pool *pool, struct wait *wait) {
    struct vp_throttle *t = &pool->throttle;
    uint64_t now = pool->config.now(), took = now - wait->begin;
    wait->in_vain = wait->timed_out && t->lacking >= wait->lacking;
    vp_pool_waited(pool, took, wait->in_vain);
    if (long_in_vain(t, wait, took)) {
        if (!t->lacking)
            t->no_place_before = now + REST_LONG_NS;
        else if (wait->begin >= t->rested) /* else it ran beside the last one in vain, and teaches nothing new */
            rest(t, now);
    } else if (!wait->in_vain) {
        t->fruitless = 0;
        t->rest_ns = t->short_before = 0;
        t->longest_ns = vp_greater(t->longest_ns, took);
    }
    t->waited_at = now;
    t->lead_used_ns += wait->over - wait->begin;
    vp_timelines_poll(pool->mem.timelines, false);
    if (vp_fence_settle(pool->mem.timelines, &wait->busy))
        lose(t, now - wait->working_at);
    else if (t->lead_used_ns > AHEAD_MOST_NS)
        t->lead_used_ns = AHEAD_MOST_NS;
    vp_fence_clear(pool->mem.timelines, &wait->busy);
    grant(pool);
}

static __attribute__((noinline, cold)) int wait_and_allocate(struct vp_pool *pool, struct vp_request *req,
                                                             struct vp_region **out) {
    struct wait wait = {0};
    int err;
    begin(pool, req, &wait);
    wait.lacking = pool->throttle.lacking;
    do {
        req->impatient = !go_on(pool, req, &wait);
        bool ended = req->timeline->gone || req->context->gone;
        err = ended ? -ENODEV : vp_pool_alloc(pool, req, out);
    } while (err == -EAGAIN);
    end(pool, &wait);
    return err;
}

int vp_throttle_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    const bool looks = __builtin_expect(pool->throttle.lead_used_ns != 0, false) && will_look(pool, req);
    int err = vp_pool_alloc(pool, req, out);
    if (__builtin_expect(looks, false))
        look(pool, req->context);
    return __builtin_expect(err == -EAGAIN && req->timeline, false) ? wait_and_allocate(pool, req, out) : err;
}
