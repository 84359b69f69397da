/* When the host waits for memory, for how long, and what that costs: see throttle.h. */
#include "pool/throttle.h"

#include "pool/pool_private.h"

#include <errno.h>

/* Smaller requests are not worth a wait; nor do their frees record the events that are waited for. */
enum { WORTH = 1 << 20 };

/* Memory above the most that was alive at once which needs no wait: half a percent, as promised, and some chunks' rounding. */
enum { SHARE = 200, ROOM = 32 << 20 };

/* The bound of a wait: 50 ms is long for a layer of a network, and short for whoever watches. Waits that took longer and succeeded make it longer. */
static const uint64_t BOUND_LEAST_NS = 50000000, BOUND_MOST_NS = 1000000000;
enum { BOUND_TIMES = 4 };

/* After a wait in vain none is tried for so long; after two in a row the program is taken to be held up by itself, and none for longer, and longer. */
static const uint64_t REST_NS = 250000000, REST_LONG_NS = 60000000000, REST_LONGEST_NS = 3600000000000;

/*
 * What a wait costs the program: nothing while the device still has work when it ends. Else the device stands still until new work comes, some 50 us. Where
 * waits are less than a tenth of all time, the host is what limits the program, and all of the wait is lost.
 */
static const uint64_t GAP_NS = 50000;
enum { HOST_BOUND = 10 };

/* Of the program's time, what may be lost: a hundredth, and 1 ms to begin with. */
enum { LOST_SHARE = 100 };
static const uint64_t LOST_FIRST_NS = 1000000;

/* Have other streams freed memory, a granule of it or more in one piece, that the request may not use yet? */
static bool pending(const struct vp_pool *pool, const struct vp_request *req) {
    const struct vp_index *index;
    vp_list_each(index, &pool->line_indexes, link)
        if (index->line != req->line && index->zone == VP_ZONE_LARGE && vp_index_first(index, pool->granularity))
            return true;
    for (struct vp_region *r = vp_index_first(&pool->mixed[VP_ZONE_LARGE], pool->granularity); r;
         r = vp_index_next(&pool->mixed[VP_ZONE_LARGE], r))
        for (const struct vp_piece *p = r->pieces; p; p = p->next)
            if (!vp_cond_ready(&p->cond, req->line))
                return true;
    return false;
}

bool vp_throttle_due(struct vp_pool *pool, const struct vp_request *req, size_t fresh) {
    struct vp_throttle *t = &pool->throttle;
    if (!pool->config.pause || req->waits != VP_WAITS_HOST || req->impatient || req->pressed || req->strict || req->asked < WORTH)
        return false;
    uint64_t alive = pool->stats.live_bytes + req->size;
    if (alive < pool->stats.peak_live_bytes)
        alive = pool->stats.peak_live_bytes;
    if (pool->stats.held_bytes + fresh <= alive + alive / SHARE + ROOM + t->allowance)
        return false;
    if (atomic_load(&pool->lines->captures) || !pending(pool, req))
        return false;
    uint64_t now = pool->config.now();
    if (now < t->not_before)
        return false;
    if (t->lost_ns > (now - t->opened) / LOST_SHARE + LOST_FIRST_NS) {
        t->allowance += fresh;
        return false;
    }
    return true;
}

/* One request's wait. All zero at first. */
struct wait {
    uint64_t begin, bound;      /* when it began; how long it may take. `bound` 0: it has not begun */
    uint64_t serial;            /* events up to this one are worth waiting for */
    vp_cond busy;               /* all that the device had to do when it began */
    bool late;                  /* it has taken too long */
};

static void begin(struct vp_pool *pool, const struct vp_request *req, struct wait *wait) {
    wait->begin = pool->config.now();
    wait->bound = BOUND_TIMES * pool->throttle.longest_ns;
    if (wait->bound < BOUND_LEAST_NS)
        wait->bound = BOUND_LEAST_NS;
    if (wait->bound > BOUND_MOST_NS)
        wait->bound = BOUND_MOST_NS;
    /* What was freed with no event of its own gets one, which can be asked like any other. */
    vp_lines_poll(pool->lines, true);
    vp_cond_barrier(pool->lines, &wait->busy, req->context, true);
    wait->serial = pool->lines->recorded;
}

/* Waits until some work is over, so that another try may do. False: nothing is left to wait for, or it takes too long. */
static bool go_on(struct vp_pool *pool, const struct vp_request *req, struct wait *wait) {
    struct vp_lines *lines = pool->lines;
    for (;;) {
        uint64_t waited = pool->config.now() - wait->begin;
        wait->late = waited >= wait->bound;
        if (wait->late || atomic_load(&lines->captures) || !vp_lines_waiting(lines, wait->serial))
            return false;
        pool->config.pause(waited);
        if (req->line->gone || req->context->ending)
            return false;
        vp_lines_poll(lines, false);
        if (pool->moves != lines->moves)
            return true;
    }
}

static void rest(struct vp_throttle *t, uint64_t now, uint64_t bound) {
    uint64_t rest_ns = bound > REST_NS ? bound : REST_NS;
    if (++t->fruitless > 1) {
        t->rest_ns = t->rest_ns ? 2 * t->rest_ns : REST_LONG_NS;
        if (t->rest_ns > REST_LONGEST_NS)
            t->rest_ns = REST_LONGEST_NS;
        rest_ns = t->rest_ns;
    }
    t->rested = now;
    t->not_before = now + rest_ns;
}

/* The request has been served, or has failed: what was learnt is kept. */
static void end(struct vp_pool *pool, struct wait *wait) {
    struct vp_throttle *t = &pool->throttle;
    uint64_t now = pool->config.now(), took = now - wait->begin;
    vp_pool_waited(pool, took, wait->late);
    t->waited_ns += took;
    if (wait->late) {
        /* One that began before the last rest did went on beside that wait: nothing new is learnt, and only what it took longer is lost. */
        bool beside = wait->begin < t->rested;
        t->lost_ns += beside ? now - t->rested : took;
        if (!beside)
            rest(t, now, wait->bound);
    } else {
        t->fruitless = 0;
        t->rest_ns = 0;
        if (took > t->longest_ns)
            t->longest_ns = took;
        if (vp_cond_settle(pool->lines, &wait->busy))
            t->lost_ns += t->waited_ns * HOST_BOUND < now - t->opened ? took : GAP_NS;
    }
    vp_cond_clear(pool->lines, &wait->busy);
}

int vp_throttle_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct wait wait = { 0 };
    int err = vp_pool_alloc(pool, req, out);
    if (err != -EAGAIN || !req->line)
        return err;
    begin(pool, req, &wait);
    do {
        req->impatient = !go_on(pool, req, &wait);
        bool ended = req->line->gone || req->context->ending;
        err = ended ? -ENODEV : vp_pool_alloc(pool, req, out);
    } while (err == -EAGAIN);
    end(pool, &wait);
    return err;
}
