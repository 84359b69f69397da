/* When idle memory goes back to the device by itself: see giving.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/giving.h"

#include "base/sort.h"
#include "pool/bare/bare.h"
#include "pool/bound.h"
#include "pool/parking.h"

/* Less is not worth the driver calls: 32 MiB and a fiftieth of what is alive. Others lack what is idle beyond. */
enum { LEAST = VP_GIVING_LEAST, LEAST_SHARE = 50 };

/* The first period after a regret. */
static const uint64_t PERIOD_FIRST_NS = 100000000;

/* It is a mistake if 1/REGRET_SHARE of what was given back is created again. */
enum { REGRET_SHARE = 2 };

static uint64_t now_ns(const struct vp_pool *pool) {
    return pool->config.now ? pool->config.now() : 0;
}

/* Is it no time to give back by itself? A stream captures; or room was made for a block that has yet to come, and
 * PyTorch's cache frees segments meanwhile to make that room, or as it collects garbage. */
static bool is_busy(const struct vp_pool *pool) {
    return atomic_load(&pool->mem.timelines->captures) > 0 || (pool->bare && vp_bare_promised(pool->bare));
}

static size_t worth(const struct vp_pool *pool) {
    return LEAST + pool->mem.stats.live_bytes / LEAST_SHARE;
}

/* Gives memory back, and notes from when on that would be regretted. */
static void give(struct vp_pool *pool, size_t keep, uint64_t period_least) {
    struct vp_giving *g = &pool->giving;
    const uint64_t now = now_ns(pool);
    g->period_ns = vp_greater(g->period_ns, period_least);
    if (g->regret_from != SIZE_MAX && now - g->given_at > VP_REGRET_PERIODS * g->period_ns &&
        g->period_ns / 2 >= period_least)
        g->period_ns /= 2;
    size_t given = vp_pool_trim(pool, keep);
    if (given) {
        g->given_at = now;
        g->regret_from = pool->mem.stats.held_bytes + given / REGRET_SHARE;
        pool->mem.stats.given_back += given;
    }
}

/* Is so much idle that it should go back? It must be worth it, and most of what is held, or left by frees alone, or in
 * a cache that is being emptied. */
static bool is_much(struct vp_pool *pool) {
    const struct vp_giving *g = &pool->giving;
    size_t idle = vp_pool_idle(pool), least = worth(pool);
    return idle >= least && (idle > pool->mem.stats.live_bytes || g->freed >= least || g->emptied);
}

bool vp_giving_freed_some(struct vp_pool *pool) {
    struct vp_giving *g = &pool->giving;
    if (!is_much(pool) || g->freed < g->tried)
        return false;
    g->due = true;
    if (is_busy(pool) || now_ns(pool) < g->not_before)
        return true;
    give(pool, 0, PERIOD_FIRST_NS);
    /* Work may still use the rest: do not try again at every free. */
    g->tried = g->freed + worth(pool);
    g->due = is_much(pool) && vp_pool_shrinkable(pool);
    return g->due;
}

size_t vp_giving_trim(struct vp_pool *pool, size_t keep) {
    struct vp_giving *g = &pool->giving;
    size_t given = vp_pool_trim(pool, keep);
    const size_t held = pool->mem.stats.held_bytes, idle = vp_pool_idle(pool);
    pool->mem.stats.given_back += given;
    g->deferred = held <= keep || !vp_pool_shrinkable(pool) ? 0 : held - keep < idle ? held - keep : idle;
    g->loose = vp_lesser(g->loose, g->deferred);
    g->until = 0;
    return given;
}

void vp_giving_settle(struct vp_pool *pool) {
    struct vp_giving *g = &pool->giving;
    if (is_busy(pool))
        return;
    if (pool->bound.excess)
        vp_bound_settle(pool, true);
    if (g->deferred) {
        const uint64_t until = g->until;
        const size_t held = pool->mem.stats.held_bytes;
        vp_giving_trim(pool, held > g->deferred ? held - g->deferred : 0);
        g->until = until ? until : pool->mem.timelines->recorded;
        /* What is idle from then on was freed later, and nobody has asked to give that back. */
        if (until && !vp_timelines_waiting(pool->mem.timelines, until))
            g->deferred = g->loose = 0;
    }
    if (!g->due || now_ns(pool) < g->not_before)
        return;
    if (is_much(pool))
        give(pool, 0, PERIOD_FIRST_NS);
    g->due = is_much(pool) && vp_pool_shrinkable(pool);
}

/* Bytes that a period with this peak needed: the peak, and what holding it takes at a peak, since the edges of chunks
 * that blocks cover in part would otherwise be created again each time. */
static size_t needed(const struct vp_pool *pool, uint64_t peak) {
    const struct vp_giving *g = &pool->giving;
    double more = g->top_live && g->top_held > g->top_live ? (double)g->top_held / (double)g->top_live : 1;
    return (size_t)((double)peak * more);
}

void vp_giving_tick(struct vp_pool *pool, uint64_t period_ns) {
    if (is_busy(pool) || now_ns(pool) < pool->giving.not_before)
        return;
    const uint64_t elsewhere = pool->mem.stats.live_bytes - vp_memory_awake(&pool->mem);
    give(pool, needed(pool, pool->recent_peak - vp_lesser(elsewhere, pool->recent_peak)), period_ns);
    pool->recent_peak = vp_pool_stats(pool).live_bytes;
}

/* ---- for others ---- */

struct idle {
    struct vp_chunk *chunk;
    uint64_t age; /* number of the last free in it */
};

static uint64_t last_freed(const struct vp_pool *pool, const struct vp_chunk *chunk) {
    const CUdeviceptr begin = chunk->current->addr, end = begin + chunk->size;
    uint64_t last = 0;
    for (const struct vp_piece *p = vp_piece_at(vp_region_at(&pool->mem, begin), begin); p; p = p->next) {
        last = p->age > last ? p->age : last;
        if (p->end >= end)
            break;
    }
    return last;
}

static bool is_younger(const void *a, const void *b, const void *ctx) {
    return ((const struct idle *)a)->age > ((const struct idle *)b)->age;
}

size_t vp_giving_lend(struct vp_pool *pool, size_t bytes) {
    struct vp_chunk *chunk;
    vp_bare_await_all(pool);
    if (vp_bare_is_owed(pool))
        return 0;
    size_t n = 0, given = vp_chunk_release_spares(&pool->mem, SIZE_MAX);
    vp_parking_flush(pool, VP_FLUSH_ALL);
    vp_bare_flush(pool);
    vp_timelines_poll_for(pool->mem.timelines, VP_SETTLE_NS);
    vp_fit_refresh(&pool->mem);
    struct idle *list = vp_pool_scratch(pool, (pool->mem.chunk_count + 1) * sizeof *list);
    if (!list)
        return 0;
    vp_list_each(chunk, &pool->mem.chunks, link)
        if (vp_chunk_ready(&pool->mem, chunk, NULL))
            list[n++] = (struct idle){chunk, last_freed(pool, chunk)};
    vp_sort(list, sizeof *list, n, is_younger, NULL);
    for (size_t i = 0; i < n && given < bytes; i++) {
        const size_t size = list[i].chunk->size;
        if (vp_chunk_give_back(&pool->mem, list[i].chunk))
            given += size;
    }
    pool->mem.stats.given_back += given;
    pool->mem.stats.lent_bytes += given;
    return given;
}
