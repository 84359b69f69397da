/* The pool as a whole: opened, allocated from, freed into, and closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/bare.h"
#include "pool/policy.h"
#include "pool/giving.h"
#include "pool/learnt/learn.h"
#include "pool/parking.h"
#include "pool/learnt/ahead.h"
#include "pool/slack.h"
#include "base/os_memory.h"

#include <errno.h>

/* Default size of the first reservation: room for many old mappings of each byte of any present device. Halved, down to
 * VA_LEAST, while the driver refuses. */
static const size_t VA_FIRST = (size_t)1 << 42, VA_LEAST = (size_t)1 << 32;

/* The share of the first reservation for the small zone. */
enum { SMALL_SHARE = 8 };

/* If the process's address space is limited, as by ulimit -v, reservations are only this share of it: the program's own
 * memory needs most of it, other devices some. More is reserved as needed. */
enum { LIMITED_SHARE = 32 };

static size_t step_of(size_t addresses) {
    const size_t share = addresses / LIMITED_SHARE;
    return !share || share > VA_FIRST ? 0 : vp_greater(share, VA_LEAST);
}

static int reserve_first(struct vp_pool *pool) {
    const bool one_zone = pool->traits.one_zone;
    size_t unit = pool->mem.granularity * (one_zone ? 1 : SMALL_SHARE);
    size_t first = pool->mem.va ? pool->mem.va : pool->mem.va_step ? pool->mem.va_step : VA_FIRST;
    size_t size = vp_round_up(first, unit);
    CUdeviceptr base = 0;
    int err = -ENOMEM;
    for (;; size = vp_round_up(size / 2, unit)) {
        pool->mem.stats.calls.reserve++;
        if (!pool->mem.drv->cuMemAddressReserve(&base, size, pool->mem.granularity, 0, 0))
            break;
        if (size / 2 < VA_LEAST)
            return err;
    }
    const size_t first_zone = one_zone ? size : size / SMALL_SHARE;
    err = vp_space_carve(&pool->mem, one_zone ? VP_ZONE_LARGE : VP_ZONE_SMALL, base, first_zone, size);
    if (err)
        pool->mem.drv->cuMemAddressFree(base, size);
    else if (!one_zone)
        err = vp_space_carve(&pool->mem, VP_ZONE_LARGE, base + first_zone, size - first_zone, 0);
    return err;
}

int vp_pool_init(struct vp_pool *pool, const struct vp_driver *drv, struct vp_timelines *timelines, CUdevice dev,
                 const struct vp_policy *policy, const struct vp_pool_config *config) {
    const struct vp_traits *traits = &policy->traits;
    *pool = (struct vp_pool){.policy = policy, .traits = *traits, .config = *config};
    pool->mem = (struct vp_memory){.drv = drv,
                                   .timelines = timelines,
                                   .device = dev,
                                   .va = config->va,
                                   .va_step = step_of(config->addresses),
                                   .limit = config->limit,
                                   .rdma = config->rdma,
                                   .by_stream = traits->by_stream,
                                   .per_stream = traits->per_stream,
                                   .homes = traits->homes,
                                   .account = config->account,
                                   .peers = config->peers};
    int err = vp_memory_init(&pool->mem);
    if (err)
        return err;
    pool->giving.regret_from = SIZE_MAX;
    pool->throttle.opened = config->now ? config->now() : 0;
    pool->config.handle = vp_greater(pool->config.handle, pool->mem.granularity);
    pool->config.handle -= pool->config.handle % pool->mem.granularity;
    vp_stream_caches_init(&pool->caches, timelines, dev, &pool->mem.stats);
    vp_list_init(&pool->place_used);
    for (int z = 0; z < VP_ZONES; z++) {
        RB_INIT(&pool->places[z]);
        RB_INIT(&pool->open_places[z]);
    }
    RB_INIT(&pool->taken_places);
    vp_slab_init(&pool->place_slab, sizeof(struct vp_place));
    if (!traits->own_spaces)
        err = reserve_first(pool);
    if (!err && policy->open)
        err = policy->open(pool);
    if (err)
        vp_pool_finish(pool);
    return err;
}

void vp_pool_finish(struct vp_pool *pool) {
    if (pool->policy->close)
        pool->policy->close(pool);
    vp_learn_destroy(pool->learn);
    pool->learn = NULL;
    vp_ahead_finish(pool->ahead);
    pool->ahead = NULL;
    vp_bare_finish(pool->bare);
    pool->bare = NULL;
    vp_memory_finish(&pool->mem);
    if (pool->scratch.mem)
        vp_os_give(pool->scratch.mem, pool->scratch.bytes);
    vp_slack_finish(pool);
    vp_slab_finish(&pool->place_slab);
    vp_slab_finish(&pool->caches.slab);
}

/* Notes a stream that wants large blocks. Returns whether there are several. */
static bool note_stream(struct vp_pool *pool, const struct vp_timeline *timeline) {
    if (!pool->first_stream)
        pool->first_stream = timeline->id;
    if (pool->first_stream != timeline->id)
        atomic_store_explicit(&pool->caches.several, true, memory_order_relaxed);
    return atomic_load_explicit(&pool->caches.several, memory_order_relaxed);
}

int vp_pool_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    req->await = NULL;
    pool->waits_early |= req->waits == VP_WAITS_EARLY;
    int err = pool->policy->layout(pool, req);
    if (err)
        return err;
    /* Streams wait for events alone: one that allocates may want what a stream frees that allocates nothing. */
    if (pool->traits.events == VP_EVENTS_WORTH && req->timeline && req->size >= VP_EVENT_WORTH &&
        (req->waits == VP_WAITS_EARLY || req->waits == VP_WAITS_LATE))
        note_stream(pool, req->timeline);
    if ((*out = vp_parking_unpark(pool, req)))
        return 0;
    if (req->timeline)
        vp_parking_flush_own(pool, req->timeline);
    vp_exports_settle(pool);
    err = pool->policy->alloc(pool, req, out);
    if (err == -EBUSY) {
        /* What could be waited for when it was chosen no longer can be: this time without waits. */
        req->waits = VP_WAITS_NEVER;
        err = pool->policy->alloc(pool, req, out);
    }
    if (err == -ENOMEM && !req->pressed) {
        req->pressed = true;
        err = pool->policy->alloc(pool, req, out);
    }
    if (!err) {
        const uint64_t live = pool->mem.stats.live_bytes;
        if (live > pool->recent_peak)
            pool->recent_peak = live;
        vp_pool_note_peak(live, &pool->mem.stats.peak_live_bytes, pool, NULL);
        vp_giving_note(pool, req->asked);
    }
    vp_pool_verify(pool);
    return err;
}

CUresult vp_pool_error(const struct vp_pool *pool, const struct vp_context *ctx) {
    return pool->mem.error || !ctx ? pool->mem.error : ctx->error;
}

void vp_pool_error_forget(struct vp_pool *pool, struct vp_context *ctx) {
    pool->mem.error = CUDA_SUCCESS;
    if (ctx)
        ctx->error = CUDA_SUCCESS;
}

struct vp_region *vp_pool_find(struct vp_pool *pool, CUdeviceptr addr) {
    struct vp_region *r = addr ? vp_table_seek(&pool->mem.live, addr) : NULL;
    return r && (!r->cache || vp_stream_cache_recall(r)) ? r : NULL;
}

/* The block that holds `addr`, or another region there. A granule may have thousands of small blocks, which are mostly
 * looked up by their first byte or one near it. */
enum { QUANTA_NEAR = 8 };
static struct vp_region *block_near(const struct vp_memory *mem, CUdeviceptr addr) {
    for (CUdeviceptr i = 0, first = addr - addr % VP_QUANTUM; i < QUANTA_NEAR; i++) {
        struct vp_region *r = vp_table_get(&mem->live, first - i * VP_QUANTUM);
        if (r)
            return addr < vp_region_end(r) ? r : NULL;
    }
    return vp_region_at(mem, addr);
}

struct vp_region *vp_pool_find_inside(const struct vp_pool *pool, CUdeviceptr addr) {
    struct vp_bare_segment *segment = vp_bare_at(pool->bare, addr);
    if (segment)
        return &segment->whole;
    struct vp_region *r = vp_mapping_at(&pool->mem, addr) ? block_near(&pool->mem, addr) : NULL;
    return r && r->state == VP_LIVE && (!r->cache || vp_stream_cache_recall(r)) ? r : NULL;
}

/* Should the free of the block on `timeline` record its own event: may others want its bytes, and are they worth one?
 * Notes that this stream frees here. */
static bool wants_event(struct vp_pool *pool, const struct vp_timeline *timeline, const struct vp_region *block) {
    if (pool->traits.events != VP_EVENTS_WORTH)
        return pool->traits.events == VP_EVENTS_ALWAYS ||
               (pool->traits.events == VP_EVENTS_CHOSEN && pool->policy->wants_event(pool, block));
    /* A stream that only frees small blocks does not want large ones. */
    return vp_pool_worth_event(pool, block) && note_stream(pool, timeline);
}

void vp_pool_free(struct vp_pool *pool, struct vp_region *block, struct vp_fence *fence) {
    const bool exported = block->exported || block->spilled;
    assert(!block->cache);
    if (block->bare) {
        vp_bare_remove(pool, vp_container_of(block, struct vp_bare_segment, whole), fence);
        vp_exports_settle(pool);
        vp_pool_verify(pool);
        return;
    }
    pool->mem.stats.frees++;
    vp_place_freed(pool, block);
    if (__builtin_expect(pool->learn != NULL, 0))
        vp_learn_freed(pool->learn, block->addr);
    vp_region_release(&pool->mem, block, fence);
    if (exported)
        vp_exports_settle(pool);
    vp_pool_verify(pool);
}

/* A region may span two cache lines. */
enum { CACHE_LINE = 64 };

static void fetch_region(const struct vp_list *va) {
    const char *r = (const char *)vp_container_of(va, struct vp_region, va);
    __builtin_prefetch(r, 1);
    __builtin_prefetch(r + CACHE_LINE, 1);
}

void vp_pool_expect_free(const struct vp_region *block) {
    fetch_region(block->va.next);
    fetch_region(block->va.prev);
}

int vp_pool_free_async(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline) {
    const struct vp_stream_cache *cache = timeline->store ? timeline->store->cache : NULL;
    bool record = wants_event(pool, timeline, block) && !(cache && vp_stream_cache_is_calm(cache));
    struct vp_fence fence = {0};
    assert(!block->cache);
    /* A spilled block: the sooner host memory is released the better. Joining streams: the free must be a command, as
     * in CUDA. */
    record |= block->spilled || vp_timeline_joins(pool->mem.timelines, timeline);
    if (block->bare) {
        int err = vp_bare_barrier(pool, &fence);
        if (!err)
            vp_pool_free(pool, block, &fence);
        return err;
    }
    if (!record && !block->spilled && vp_parking_park(pool, block, timeline, NULL)) {
        vp_pool_verify(pool);
        return 0;
    }
    int err = vp_fence_add_command(pool->mem.timelines, &fence, timeline, record);
    if (!err && (block->spilled || !vp_parking_park(pool, block, timeline, &fence)))
        vp_pool_free(pool, block, &fence);
    return err;
}

void vp_pool_drop_context(struct vp_pool *pool, const struct vp_context *ctx) {
    struct vp_space *s;
    struct vp_region *r;
    vp_parking_flush(pool, VP_FLUSH_ALL);
    vp_bare_drop_context(pool, ctx);
    vp_list_each(s, &pool->mem.spaces, link)
        for (r = vp_container_of(s->regions.next, struct vp_region, va); r;) {
            if (r->state == VP_LIVE && r->sync && r->context == ctx) {
                struct vp_fence none = {0};
                CUdeviceptr end = vp_region_end(r);
                if (pool->config.dropped)
                    pool->config.dropped(pool->mem.device, r);
                vp_pool_free(pool, r, &none);
                r = vp_region_at(&pool->mem, end - 1);
            }
            r = vp_region_next(r);
        }
}

void vp_pool_note_peak(uint64_t now, uint64_t *peak, struct vp_pool *pool, const void *owner) {
    if (now <= *peak)
        return;
    now -= vp_stream_caches_parked(&pool->caches, owner);
    if (now > *peak)
        *peak = now;
}

struct vp_memory_stats vp_pool_stats(struct vp_pool *pool) {
    vp_parking_flush(pool, VP_FLUSH_ALL);
    vp_bare_count(pool);
    return pool->mem.stats;
}

uint64_t vp_pool_idle(struct vp_pool *pool) {
    vp_bare_count(pool);
    return vp_memory_idle(&pool->mem);
}

size_t vp_pool_metadata(const struct vp_pool *pool) {
    return vp_memory_metadata(&pool->mem) + pool->place_slab.bytes + pool->caches.slab.bytes + pool->scratch.bytes +
           vp_slack_metadata(pool) + vp_bare_metadata(pool->bare);
}

void *vp_pool_scratch(struct vp_pool *pool, size_t bytes) {
    if (bytes > pool->scratch.bytes) {
        size_t want = vp_round_up(bytes + bytes / 8, 65536);
        void *mem = vp_os_take(want);
        if (!mem)
            return NULL;
        if (pool->scratch.mem)
            vp_os_give(pool->scratch.mem, pool->scratch.bytes);
        pool->scratch.mem = mem;
        pool->scratch.bytes = want;
    }
    return pool->scratch.mem;
}

bool vp_pool_shrinkable(const struct vp_pool *pool) {
    return vp_fit_has_chunk(&pool->mem);
}

size_t vp_pool_trim(struct vp_pool *pool, size_t keep) {
    size_t before = pool->mem.stats.held_bytes;
    struct vp_chunk *chunk, *tmp;
    if (before <= keep || vp_bare_is_owed(pool))
        return 0;
    vp_parking_flush(pool, VP_FLUSH_ALL);
    vp_bare_flush(pool);
    vp_chunk_release_spares(&pool->mem, SIZE_MAX);
    vp_timelines_poll_for(pool->mem.timelines, VP_SETTLE_NS);
    vp_fit_refresh(&pool->mem);
    vp_exports_settle(pool);
    const bool any = vp_pool_shrinkable(pool);
    vp_list_each_safe(chunk, tmp, &pool->mem.chunks, link) {
        if (!any || pool->mem.stats.held_bytes <= keep)
            break;
        if (pool->mem.stats.held_bytes - chunk->size >= keep && vp_chunk_ready(&pool->mem, chunk, NULL))
            vp_chunk_give_back(&pool->mem, chunk);
    }
    return before - pool->mem.stats.held_bytes;
}

void vp_pool_synchronized(struct vp_pool *pool, const struct vp_timeline *timeline) {
    vp_parking_flush(pool, VP_FLUSH_ALL);
    vp_timelines_poll_for(pool->mem.timelines, VP_SETTLE_NS);
    if (!timeline)
        pool->mem.synchronized = pool->mem.age;
    else if (timeline->store)
        timeline->store->synchronized = pool->mem.age;
}

/* Returns reservations without mappings to the driver, so that they can be had in one piece. True: there were some. */
static __attribute__((noinline, cold)) bool give_addresses(struct vp_pool *pool, enum vp_zone_name zone) {
    struct vp_space *s, *next;
    bool any = false;
    vp_list_each_safe(s, next, &pool->mem.spaces, link) {
        if (s->zone != zone || s->reserved_size != s->size || !vp_space_is_hole(s))
            continue;
        const CUdeviceptr base = s->base;
        const size_t size = s->size;
        vp_places_leave(pool, s);
        vp_space_forget(&pool->mem, s);
        pool->mem.drv->cuMemAddressFree(base, size);
        any = true;
    }
    return any;
}

int vp_pool_hole(struct vp_pool *pool, enum vp_zone_name zone, size_t size, bool must, struct vp_region **hole) {
    int err = vp_stitch_hole(&pool->mem, zone, size, must, hole);
    if (!err || !must)
        return err;
    /* No addresses are left, and free memory lies scattered between holes: give it up, so that they unite. */
    vp_pool_trim(pool, 0);
    if ((*hole = vp_index_first(&pool->mem.holes[zone], size)))
        return 0;
    return give_addresses(pool, zone) ? vp_stitch_hole(&pool->mem, zone, size, true, hole) : -ENOMEM;
}
