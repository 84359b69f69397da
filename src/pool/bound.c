/* How long one call may take and hold up others: see bound.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bound.h"

#include "pool/bare/bare.h"
#include "pool/fresh.h"
#include "pool/learnt/ahead.h"
#include "pool/place.h"
#include "pool/slack.h"

#include <errno.h>

/* Driver time for moving a handle, creating one, each MiB created, and for giving a handle back: each of its mappings,
 * and the handle. Measured on an H200 with driver 580. */
enum { MAP_NS = 24000, CREATE_NS = 31000, CREATE_MIB_NS = 47, UNMAP_NS = 15000, RELEASE_NS = 12000 };

/* Time that most calls may take; that one part of a longer call takes; and that one call spends on giving back. */
enum { BOUND_NS = 4200000, PART_NS = 3600000, RETURN_NS = 4000000 };

/* How many handles are moved at once. In a program that roams whatever would take longer than BOUND_NS is created anew.
 * Other programs come to rest, as they move them only once. When all of them created anew what took more than 5 ms,
 * some held up to 1.23 times what was alive; so they do it only from MOVED_MOST handles on, at 17 ms, and between the
 * two a range is built in parts. With a plan the limit is higher: it saves many times as much, and has small handles
 * for blocks of other sizes. */
enum { PART = PART_NS / MAP_NS, MOVED_MOST = 700, MOVED_BY_PLAN = 1100 };

/* After the device had no more memory, so many further calls do not ask it again. */
enum { REST = 64 };

/* Chunks that a call looks at for one to give back; and how often all may be looked at in vain before it gives up. */
enum { TRIES = 1024, PASSES = 32 };

/* How long other threads get between two parts, as an argument of vp_pool_config.pause: it sleeps for a moment then. */
static const uint64_t GAP_NS = 2000000;

/* ---- made anew ---- */

static uint64_t create_ns(size_t bytes) {
    return (uint64_t)(bytes >> 20) * CREATE_MIB_NS + (uint64_t)VP_FRESH_FEW * CREATE_NS;
}

/* How long the request takes if all chosen chunks are moved. */
static uint64_t whole_ns(const struct vp_pool *pool, const struct vp_harvest *h, size_t want) {
    const size_t lacking = h->bytes < want ? want - h->bytes : 0;
    const size_t fresh = lacking ? lacking / vp_fresh_handle(pool, h->req, lacking) + 1 : 0;
    return h->chosen * MAP_NS + fresh * CREATE_NS + (uint64_t)(lacking >> 20) * CREATE_MIB_NS;
}

size_t vp_bound_spare_moves(struct vp_pool *pool, struct vp_harvest *h, size_t want) {
    const size_t most = pool->ahead && pool->ahead->kin ? MOVED_BY_PLAN : MOVED_MOST;
    if (h->req->pressed || (vp_slack_roams(pool) ? whole_ns(pool, h, want) <= BOUND_NS : h->chosen <= most))
        return 0;
    if (!vp_fresh_may_be_few(pool))
        return 0;
    if (pool->bound.rest) {
        pool->bound.rest--;
        return 0;
    }
    const uint64_t fresh_ns = create_ns(want);
    const size_t moved = vp_lesser(fresh_ns < BOUND_NS ? (BOUND_NS - fresh_ns) / MAP_NS : 0, h->chosen);
    size_t bytes = 0;
    for (size_t i = 0; i < moved; i++)
        bytes += h->list[i].chunk->size;
    const size_t fresh = want - bytes, lacking = h->bytes < want ? want - h->bytes : 0;
    const size_t held = pool->mem.stats.held_bytes;
    if (pool->mem.limit && (fresh > pool->mem.limit || held > pool->mem.limit - fresh))
        return 0;
    h->chosen = moved;
    h->bytes = bytes;
    h->few = true;
    return fresh - lacking;
}

void vp_bound_moves_spared(struct vp_pool *pool, size_t bytes, int err) {
    if (err) {
        pool->bound.rest = REST;
        return;
    }
    pool->bound.excess += bytes;
    pool->bound.tries = pool->bound.passes = 0;
    pool->mem.stats.spared_bytes += bytes;
}

static uint64_t return_ns(const struct vp_memory *mem) {
    return mem->stats.calls.unmap * UNMAP_NS + mem->stats.calls.release * RELEASE_NS;
}

void vp_bound_settle(struct vp_pool *pool, bool waited) {
    struct vp_memory *mem = &pool->mem;
    if (pool->bound.passes && !waited)
        return;
    if (waited)
        vp_fit_refresh(mem);
    pool->bound.excess = vp_lesser(pool->bound.excess, vp_slack_excess(pool));
    const uint64_t until = return_ns(mem) + RETURN_NS;
    for (unsigned i = 0; i < TRIES && pool->bound.excess && return_ns(mem) < until; i++) {
        struct vp_chunk *chunk = vp_container_of(mem->chunks.next, struct vp_chunk, link);
        const size_t size = chunk->size;
        vp_list_remove(&chunk->link);
        vp_list_append(&mem->chunks, &chunk->link);
        if (size <= pool->bound.excess && vp_chunk_ready(mem, chunk, NULL) && vp_chunk_give_back(mem, chunk)) {
            pool->bound.excess -= size;
            pool->bound.tries = 0;
            mem->stats.returned_bytes += size;
        } else if (++pool->bound.tries > mem->chunk_count) {
            if (++pool->bound.passes == PASSES)
                pool->bound.excess = 0; /* what was idle is in use by now */
            pool->bound.tries = 0;
            return;
        }
    }
}

/* ---- built in parts ---- */

bool vp_bound_parts(struct vp_pool *pool, struct vp_harvest *h, size_t want) {
    if (!pool->config.pause || pool->config.at_once || h->chosen <= PART)
        return false;
    struct vp_harvest less = *h;
    const unsigned rest = pool->bound.rest;
    const bool anew = vp_bound_spare_moves(pool, &less, want);
    pool->bound.rest = rest;
    return !anew;
}

/* A range that is being built. */
struct parts {
    CUdeviceptr addr, at, end; /* of the block: its begin, how far it is built, and its end in whole granules */
    CUdeviceptr stop;          /* end of the addresses taken for it */
};

/* Maps some more chunks. The last part also creates what is still missing. */
static int part(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct parts *p) {
    /* The largest chunk may have grown since the addresses were taken. */
    const bool exact = req->alone || vp_pool_room(pool) > p->stop - p->end;
    struct vp_harvest h = {.req = req, .use = use, .exact = exact};
    size_t want = p->end - p->at, built;
    if (!vp_harvest_room(pool, &h, want))
        return -ENOMEM;
    vp_harvest(pool, &h, want);
    if (h.chosen <= PART && exact && h.bytes < want)
        vp_harvest_break_one(pool, &h);
    for (; h.chosen > PART; want = h.bytes)
        h.bytes -= h.list[--h.chosen].chunk->size;
    int err = vp_fresh_assemble(pool, &h, want, p->at, &built);
    p->at += err ? 0 : vp_greater(h.bytes, want);
    return err;
}

bool vp_bound_ended(const struct vp_request *req) {
    return req->context->gone || (req->timeline && req->timeline->gone);
}

static void let_others(struct vp_pool *pool) {
    pool->config.pause(GAP_NS);
    vp_bare_await(pool);
}

int vp_bound_build(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out) {
    struct vp_region *hole;
    const size_t size = vp_round_up(req->size, pool->mem.granularity), room = vp_pool_room(pool);
    int err = vp_pool_hole(pool, req->zone, size + room, true, &hole);
    if (err)
        return err;
    struct parts p = {hole->addr, hole->addr, hole->addr + size, hole->addr + size + room};
    if ((err = vp_stitch_begin(&pool->mem, p.addr, p.stop, false)))
        return err;
    pool->bound.under_way = true;
    while (!(err = part(pool, req, use, &p)) && p.at < p.end) {
        let_others(pool);
        if (vp_bound_ended(req) || !vp_bare_leaves(pool, p.end - p.at)) {
            err = vp_bound_ended(req) ? -ENODEV : -ENOMEM;
            break;
        }
    }
    pool->bound.under_way = false;
    vp_stitch_end(&pool->mem, p.addr, p.at, p.stop);
    if (err)
        return err;
    vp_place_add(pool, p.addr, req->size);
    vp_place_limit(pool, PART);
    return vp_fit_take(&pool->mem, (struct vp_fit){vp_region_at(&pool->mem, p.addr), p.addr}, req, out);
}

bool vp_bound_wait(struct vp_pool *pool) {
    if (!pool->bound.under_way)
        return false;
    while (pool->bound.under_way)
        let_others(pool);
    return true;
}
