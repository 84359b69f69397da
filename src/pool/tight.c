/* Where the blocks of a small program lie.
 *
 * What a block of a few granules leaves free at its ends is much compared with what such a program has alive, and a
 * granule with a single live byte cannot move. So what matters first is how many wholly free granules a request
 * *opens*, and then what it leaves behind:
 *
 *     granules  |   a   |   b   |       |       |   c   |
 *     live       ######  ###                       ####
 *     request             <--------->                      opens one: its odd end fits into b
 *     or                             <--------->           opens one, and ends in c
 *
 * A request of n granules and an odd rest opens only n if some granule has room for the rest at its edge, and the
 * others can be mapped behind or before it. So each range that is built gets free addresses on both sides. Of places
 * that open equally many, the one is taken that leaves the smallest piece; and what fits into an open granule rather
 * goes to one with many live blocks, which will not be wholly free so soon. In a model, both rules together hold 0.05
 * to 0.1 times what is alive less than best fit alone.
 *
 * Small and large blocks share granules here. All free regions of some size are looked at; they are few, as the program
 * has less than 256 MiB alive. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/tight.h"

#include "pool/slack.h"

/* A program wastes much if it holds more above its peak than this share of it and WASTE_LEAST, and wants more. It is
 * then placed tightly for STAYS requests. */
enum { WASTE_SHARE = 20, WASTE_LEAST = 4 << 20, STAYS = 4096 };

/* Nothing is built at smaller free pieces. Smaller requests first try the small zone, which is full of them. */
enum { PIECE_LEAST = 32 << 10 };

/* Live blocks that are counted in a granule, at most. */
enum { COUNTED = 16 };

/* Mapping a granule counts as losing this share of one. */
enum { MAP_SHARE = 64 };

/* Addresses left free on each side of a range that is built by itself: ROOM_TIMES its size, and at least ROOM_LEAST. */
enum { ROOM_TIMES = 4 };
static const size_t ROOM_LEAST = 16 << 20;

bool vp_tight(const struct vp_pool *pool, const struct vp_request *req) {
    return !req->alone && vp_slack_small(pool) &&
           (vp_slack_roams(pool) || vp_slack_early(pool) || pool->mem.stats.allocs < pool->tight_until);
}

/* Would it waste much with `live` more live bytes and `held` more held? */
static bool wastes(const struct vp_pool *pool, size_t live, size_t held) {
    const uint64_t alive = vp_pool_peak_with(pool, live);
    return pool->mem.stats.held_bytes + held > alive + alive / WASTE_SHARE + WASTE_LEAST;
}

bool vp_tight_short(const struct vp_pool *pool) {
    return wastes(pool, 0, 0);
}

void vp_tight_note(struct vp_pool *pool, const struct vp_request *req, size_t fresh) {
    if (fresh && wastes(pool, req->size, fresh))
        pool->tight_until = pool->mem.stats.allocs + STAYS;
}

size_t vp_tight_room(const struct vp_pool *pool, const struct vp_request *req) {
    const size_t room = vp_round_up(ROOM_TIMES * req->size, pool->mem.granularity);
    return room > ROOM_LEAST ? room : ROOM_LEAST;
}

/* ---- what is there ---- */

/* Free bytes that the request may use, up to live ones, other pieces, or the end of what is mapped. */
struct run {
    CUdeviceptr begin, end;
    CUdeviceptr first, last;   /* first and last chunk edges in it; first > last: none */
    CUdeviceptr before, after; /* how far chunks can be mapped before and behind it; its own edges: not at all */
};

struct look {
    struct vp_pool *pool;
    const struct vp_request *req;
    enum vp_usable use;
    bool builds, later;
    size_t opened; /* by the best so far */
    int64_t cost;
    struct vp_site best;
};

static size_t granule(const struct look *l) {
    return l->pool->mem.granularity;
}

/* May this mapping give way to another chunk's? With `later`: once work on it is over. */
static bool replaceable(const struct vp_memory *mem, const struct vp_mapping *m, bool later) {
    return m && m->chunk->current != m && m->chunk->home != m && (later || vp_mapping_over(mem, m));
}

/* How far other chunks may be mapped behind a free region, or before it, up to `most` bytes away. */
static CUdeviceptr room_beside(const struct vp_memory *mem, struct vp_region *r, size_t most, bool later, bool behind) {
    const CUdeviceptr edge = behind ? vp_region_end(r) : r->addr;
    size_t room = 0;
    while (room < most && (r = behind ? vp_region_next(r) : vp_region_prev(r)) &&
           (r->state == VP_HOLE || r->state == VP_ZOMBIE)) {
        const size_t all = room + r->size;
        if (r->state == VP_HOLE)
            room = all;
        while (room < all && room < most) {
            const struct vp_mapping *m = vp_mapping_at(mem, behind ? edge + room : edge - room - 1);
            if (!replaceable(mem, m, later))
                return behind ? edge + room : edge - room;
            room += m->chunk->size;
        }
    }
    room = vp_lesser(room, most);
    return behind ? edge + room : edge - room;
}

/* The number of live blocks in the chunk at `addr`, up to COUNTED. */
static unsigned live_in(const struct vp_memory *mem, struct vp_region *r, CUdeviceptr addr) {
    const struct vp_mapping *m = vp_mapping_at(mem, addr);
    const CUdeviceptr begin = m->addr, end = begin + m->chunk->size;
    unsigned n = 0;
    for (struct vp_region *q = r; n < COUNTED && q->addr > begin && (q = vp_region_prev(q));)
        n += q->state == VP_LIVE;
    for (struct vp_region *q = r; n < COUNTED && vp_region_end(q) < end && (q = vp_region_next(q));)
        n += q->state == VP_LIVE;
    return n;
}

/* ---- what a place costs ---- */

/* What a free piece is worth: the square of its size in quanta. */
static int64_t square(size_t bytes) {
    const int64_t quanta = (int64_t)(bytes / VP_QUANTUM);
    return quanta * quanta;
}

/* The number of wholly free granules of the run that a block in [begin, end) opens. */
static size_t opened_in(const struct look *l, const struct run *run, CUdeviceptr begin, CUdeviceptr end) {
    const CUdeviceptr from = begin > run->first ? begin : run->first, to = end < run->last ? end : run->last;
    const size_t shift = l->pool->mem.granularity_shift;
    return from < to ? ((to - run->first - 1) >> shift) - ((from - run->first) >> shift) + 1 : 0;
}

/* By how much the block lowers the worth of all pieces together. Wholly free granules are not pieces, and a piece
 * across an edge of chunks is one. `low` and `high`: the ends of the run with what is mapped there for the block. */
static int64_t loss(const struct look *l, const struct run *run, CUdeviceptr begin, CUdeviceptr end, CUdeviceptr low,
                    CUdeviceptr high) {
    const size_t within = granule(l) - 1;
    if (run->first >= run->last)
        return square(run->end - run->begin) - square(begin - low) - square(high - end);
    int64_t less = 0;
    if (begin < run->first)
        less += (end > run->begin ? square(run->first - run->begin) : 0) - square(begin - low);
    else
        less -= square((begin - run->first) & within);
    if (end > run->last)
        less += square(run->end - run->last) - square(high - end);
    else
        less -= square((run->last - end) & within);
    return less;
}

/* Takes this site if it is the best so far. */
static void offer(struct look *l, const struct run *run, struct vp_site site, int64_t more) {
    const CUdeviceptr begin = site.begin, end = begin + l->req->size;
    const CUdeviceptr low = site.want && site.map < run->begin ? site.map : run->begin;
    const CUdeviceptr high = site.want && site.map == run->end ? run->end + site.want : run->end;
    const size_t mapped = site.want / granule(l), opened = opened_in(l, run, begin, end) + mapped;
    if (opened > l->opened)
        return;
    const int64_t cost = loss(l, run, begin, end, low, high) + more + square(granule(l)) / MAP_SHARE * (int64_t)mapped;
    if (opened == l->opened && cost >= l->cost)
        return;
    l->opened = opened;
    l->cost = cost;
    l->best = site;
}

/* Offers the place at `begin`, beside the live blocks in the chunk at `addr`. */
static void offer_there(struct look *l, struct vp_region *r, const struct run *run, CUdeviceptr begin,
                        CUdeviceptr addr) {
    const int64_t size = (int64_t)(l->req->size / VP_QUANTUM), whole = (int64_t)(granule(l) / VP_QUANTUM);
    offer(l, run, (struct vp_site){.begin = begin, .there = begin, .there_end = begin + l->req->size},
          size * whole / (live_in(&l->pool->mem, r, addr) + 1));
}

static CUdeviceptr aligned(const struct look *l, CUdeviceptr addr) {
    return addr & ~(CUdeviceptr)(l->req->align - 1);
}

/* Offers places in chunks that hold other blocks anyway. */
static void look_inside(struct look *l, struct vp_region *r, const struct run *run) {
    const size_t size = l->req->size;
    const CUdeviceptr begin = vp_round_up(run->begin, l->req->align);
    const bool whole = run->first < run->last;
    if (begin + size <= (whole ? run->first : run->end))
        offer_there(l, r, run, begin, run->begin);
    if (whole && size <= run->end - run->last && aligned(l, run->end - size) >= run->last)
        offer_there(l, r, run, aligned(l, run->end - size), run->end - 1);
}

/* Offers a block that begins at `begin` in the run and may end in chunks mapped behind the run. */
static void look_from(struct look *l, const struct run *run, CUdeviceptr begin) {
    const CUdeviceptr end = begin + l->req->size;
    const size_t want = end > run->end ? vp_round_up(end - run->end, granule(l)) : 0;
    if (begin >= run->begin && begin <= run->end && (!want || run->end + want <= run->after))
        offer(l, run, (struct vp_site){begin, run->end, want, begin, want ? run->end : end}, 0);
}

/* Offers a block that ends at `end` in the run and begins in chunks mapped before it. */
static void look_to(struct look *l, const struct run *run, CUdeviceptr end) {
    const CUdeviceptr begin = aligned(l, end - l->req->size);
    const size_t want = begin < run->begin ? vp_round_up(run->begin - begin, granule(l)) : 0;
    if (end > run->begin && end <= run->end && want && run->begin - want >= run->before)
        offer(l, run, (struct vp_site){begin, run->begin - want, want, run->begin, end}, 0);
}

static void look_around(struct look *l, const struct run *run) {
    const size_t rest = l->req->size & (granule(l) - 1);
    if (run->first > run->last)
        return;
    if (l->req->size <= run->end - run->begin) {
        look_from(l, run, vp_round_up(run->begin, l->req->align));
        look_from(l, run, aligned(l, run->end - l->req->size));
    }
    look_from(l, run, aligned(l, run->first - rest));
    look_to(l, run, run->last + rest);
}

/* The first edge of chunks at or after `addr`; the last one at or before it. */
static CUdeviceptr edge_after(const struct vp_memory *mem, CUdeviceptr addr) {
    const struct vp_mapping *m = vp_mapping_at(mem, addr);
    return m->addr == addr ? addr : m->addr + m->chunk->size;
}

static CUdeviceptr edge_before(const struct vp_memory *mem, CUdeviceptr addr) {
    const struct vp_mapping *m = vp_mapping_at(mem, addr - 1);
    return m->addr + m->chunk->size == addr ? addr : m->addr;
}

static void look_at_run(struct look *l, struct vp_region *r, CUdeviceptr begin, CUdeviceptr end) {
    const struct vp_memory *mem = &l->pool->mem;
    const size_t most = l->req->size + granule(l);
    struct run run = {begin, end, edge_after(mem, begin), edge_before(mem, end), begin, end};
    if (run.last < begin)
        run.last = 0;
    if (end - begin >= l->req->size)
        look_inside(l, r, &run);
    if (!l->builds)
        return;
    if (end == vp_region_end(r) && run.last == end)
        run.after = room_beside(mem, r, most, l->later, true);
    if (begin == r->addr && run.first == begin)
        run.before = room_beside(mem, r, most, l->later, false);
    look_around(l, &run);
}

static void look_at_region(struct look *l, struct vp_region *r) {
    CUdeviceptr begin = r->addr, run = 0;
    for (const struct vp_piece *p = r->pieces; p; begin = p->end, p = p->next) {
        const bool usable = vp_piece_usable(p, l->req, l->use);
        if (usable && !run)
            run = begin;
        if (run && (!usable || !p->next))
            look_at_run(l, r, run, usable ? p->end : begin);
        if (!usable)
            run = 0;
    }
}

static void look(struct look *l) {
    const size_t least = l->builds && l->req->size > PIECE_LEAST ? PIECE_LEAST : l->req->size;
    const struct vp_index *index;
    vp_list_each(index, &l->pool->mem.indexes, link)
        if (index->zone <= VP_ZONE_LARGE)
            for (struct vp_region *r = vp_index_first(index, least); r; r = vp_index_next(index, r))
                look_at_region(l, r);
}

struct vp_fit vp_tight_fit(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    struct look l = {.pool = pool, .req = req, .use = use, .cost = INT64_MAX};
    if (req->size < PIECE_LEAST) {
        struct vp_fit fit = vp_fit_find(&pool->mem, req, use);
        if (fit.region)
            return fit;
    }
    look(&l);
    if (l.cost == INT64_MAX)
        return (struct vp_fit){0};
    return (struct vp_fit){vp_region_at(&pool->mem, l.best.begin), l.best.begin};
}

static struct look look_for_site(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, bool later) {
    const size_t unit = pool->mem.granularity, opened = vp_round_up(req->size, unit) / unit;
    /* A range by itself opens each granule it touches, and leaves the end of the last. */
    struct look l = {.pool = pool,
                     .req = req,
                     .use = use,
                     .builds = true,
                     .later = later,
                     .opened = opened,
                     .cost = square(unit) / MAP_SHARE * (int64_t)opened - square(opened * unit - req->size) + 1};
    look(&l);
    return l;
}

bool vp_tight_site(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_site *site) {
    const struct look l = look_for_site(pool, req, use, false);
    *site = l.best;
    return site->begin && (!site->want || vp_stitch_reap(&pool->mem, site->map, site->map + site->want, false));
}

bool vp_tight_blocked(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, size_t opened) {
    return look_for_site(pool, req, use, true).opened < opened;
}
