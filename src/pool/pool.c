/* The pool as a whole: opened, asked, freed into, and closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/policy.h"
#include "pool/stream_cache.h"

#include <errno.h>
#include <sys/mman.h>

/* Automatic reservation: plenty of addresses for old mappings beside each byte of any device of today; halved while
 * refused. */
static const size_t VA_FIRST = (size_t)1 << 42, VA_LEAST = (size_t)1 << 32;

/* The part of the first reservation that the small zone gets. */
enum { SMALL_SHARE = 8 };

/* With several streams in use, frees of this size and more record an event, so that others can wait for exactly them.
 * Below, the event would cost more than the bytes are worth. */
enum { EVENT_WORTH = 1 << 20 };

static int attribute(const struct vp_pool *pool, CUdevice_attribute which) {
    int value = 0;
    return pool->drv->cuDeviceGetAttribute(&value, which, pool->device) ? 0 : value;
}

static int reserve_first(struct vp_pool *pool) {
    bool one_zone = pool->policy->one_zone;
    size_t unit = pool->granularity * (one_zone ? 1 : SMALL_SHARE);
    size_t size = pool->config.va ? vp_round_up(pool->config.va, unit) : VA_FIRST;
    CUdeviceptr base = 0;
    int err = -ENOMEM;
    for (;; size /= 2) {
        pool->stats.calls.reserve++;
        if (!pool->drv->cuMemAddressReserve(&base, size, pool->granularity, 0, 0))
            break;
        if (size / 2 < VA_LEAST)
            return err;
    }
    if (one_zone) {
        err = vp_space_carve(pool, VP_ZONE_LARGE, base, size, size);
        if (err)
            pool->drv->cuMemAddressFree(base, size);
        return err;
    }
    size_t small = size / SMALL_SHARE;
    err = vp_space_carve(pool, VP_ZONE_SMALL, base, small, size);
    if (err)
        pool->drv->cuMemAddressFree(base, size);
    else
        err = vp_space_carve(pool, VP_ZONE_LARGE, base + small, size - small, 0);
    return err;
}

int vp_pool_init(struct vp_pool *pool, const struct vp_driver *drv, struct vp_timelines *timelines, CUdevice dev,
                 const struct vp_policy *policy, const struct vp_pool_config *config) {
    *pool = (struct vp_pool){.drv = drv,
                             .timelines = timelines,
                             .policy = policy,
                             .config = *config,
                             .device = dev,
                             .peers = config->peers & ~(UINT64_C(1) << dev)};
    pool->throttle.opened = config->now ? config->now() : 0;
    if (!attribute(pool, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return -EOPNOTSUPP;
    pool->prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev}};
    if (attribute(pool, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        pool->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (attribute(pool, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        pool->prop.allocFlags.gpuDirectRDMACapable = 1;
    if (drv->cuMemGetAllocationGranularity(&pool->granularity, &pool->prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ||
        !pool->granularity || pool->granularity & (pool->granularity - 1))
        return -EOPNOTSUPP;
    pool->granularity_shift = (unsigned)__builtin_ctzl(pool->granularity);
    if (pool->config.handle < pool->granularity)
        pool->config.handle = pool->granularity;
    pool->config.handle -= pool->config.handle % pool->granularity;

    vp_list_init(&pool->spaces);
    vp_list_init(&pool->chunks);
    vp_list_init(&pool->zombies);
    vp_list_init(&pool->timeline_indexes);
    vp_list_init(&pool->caches);
    vp_list_init(&pool->spare_caches);
    vp_list_init(&pool->place_used);
    for (int z = 0; z < VP_ZONES; z++)
        RB_INIT(&pool->places[z]);
    vp_slab_init(&pool->region_slab, sizeof(struct vp_region));
    vp_slab_init(&pool->piece_slab, sizeof(struct vp_piece));
    pool->region_slab.many = pool->piece_slab.many = true;
    vp_slab_init(&pool->chunk_slab, sizeof(struct vp_chunk));
    vp_slab_init(&pool->mapping_slab, sizeof(struct vp_mapping));
    vp_slab_init(&pool->store_slab, sizeof(struct vp_stream_store));
    vp_slab_init(&pool->place_slab, sizeof(struct vp_place));
    vp_slab_init(&pool->cache_slab, sizeof(struct vp_stream_cache));
    vp_slab_init(&pool->bins_slab, sizeof(struct vp_bins));
    int err = 0;
    for (int z = 0; z < VP_ZONES && !err; z++)
        if (!(err = vp_index_init(pool, &pool->met[z], NULL, z)))
            err = vp_index_init(pool, &pool->mixed[z], NULL, z);
    if (!err && !policy->own_spaces)
        err = reserve_first(pool);
    if (!err && policy->open)
        err = policy->open(pool);
    if (err)
        vp_pool_finish(pool, true);
    return err;
}

static void give_back_all(struct vp_pool *pool) {
    struct vp_chunk *chunk, *next;
    struct vp_mapping *m, *next_m;
    struct vp_space *s;
    vp_list_each_safe(chunk, next, &pool->chunks, link) {
        for (m = chunk->mappings; m; m = next_m) {
            next_m = m->next;
            vp_chunk_unmap(pool, m);
        }
        if (!chunk->mappings)
            vp_chunk_destroy(pool, chunk);
    }
    vp_list_each(s, &pool->spaces, link)
        if (s->reserved)
            pool->drv->cuMemAddressFree(s->base, s->reserved_size);
}

void vp_pool_finish(struct vp_pool *pool, bool driver) {
    const struct vp_context *ctx;
    struct vp_timeline *timeline;
    if (driver)
        give_back_all(pool);
    vp_list_each(ctx, &pool->timelines->contexts, link)
        vp_list_each(timeline, &ctx->timelines, of_context)
            if (ctx->device == pool->device)
                timeline->store = NULL;
    vp_spaces_free(pool);
    if (pool->scratch.mem)
        munmap(pool->scratch.mem, pool->scratch.bytes);
    vp_table_finish(&pool->live);
    struct vp_slab *slabs[] = {&pool->region_slab, &pool->piece_slab, &pool->chunk_slab, &pool->mapping_slab,
                               &pool->store_slab,  &pool->place_slab, &pool->cache_slab, &pool->bins_slab};
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++)
        vp_slab_finish(slabs[i]);
}

static void verify(const struct vp_pool *pool) {
    if (pool->config.check && !vp_pool_check(pool, stderr))
        assert(!"vp_pool_check");
}

int vp_pool_alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    req->await = NULL;
    int err = pool->policy->layout(pool, req);
    if (err)
        return err;
    if ((*out = vp_stream_cache_unpark(pool, req)))
        return 0;
    if (req->timeline)
        vp_stream_cache_flush(pool, req->timeline);
    vp_exports_settle(pool);
    err = pool->policy->alloc(pool, req, out);
    if (err == -EBUSY) {
        /* What could be waited for when it was chosen no longer can: no waits this time. */
        req->waits = VP_WAITS_NEVER;
        err = pool->policy->alloc(pool, req, out);
    }
    if (err == -ENOMEM && !req->pressed) {
        req->pressed = true;
        err = pool->policy->alloc(pool, req, out);
    }
    verify(pool);
    return err;
}

CUresult vp_pool_error(const struct vp_pool *pool, const struct vp_context *ctx) {
    return pool->error || !ctx ? pool->error : ctx->error;
}

void vp_pool_error_forget(struct vp_pool *pool, struct vp_context *ctx) {
    pool->error = CUDA_SUCCESS;
    if (ctx)
        ctx->error = CUDA_SUCCESS;
}

struct vp_region *vp_pool_find(const struct vp_pool *pool, CUdeviceptr addr) {
    struct vp_region *r = addr ? vp_table_get(&pool->live, addr) : NULL;
    return r && (!r->cache || vp_stream_cache_recall(r)) ? r : NULL;
}

struct vp_region *vp_pool_find_inside(const struct vp_pool *pool, CUdeviceptr addr) {
    struct vp_region *r = vp_mapping_at(pool, addr) ? vp_region_at(pool, addr) : NULL;
    return r && r->state == VP_LIVE && (!r->cache || vp_stream_cache_recall(r)) ? r : NULL;
}

bool vp_pool_maps(const struct vp_pool *pool, CUdeviceptr addr) {
    return vp_mapping_at(pool, addr) != NULL;
}

bool vp_pool_reserves(const struct vp_pool *pool, CUdeviceptr addr) {
    return vp_space_of(pool, addr) != NULL;
}

bool vp_pool_large(size_t size) {
    return size >= EVENT_WORTH;
}

bool vp_pool_worth_event(const struct vp_pool *pool, size_t size) {
    return vp_pool_large(size) && atomic_load_explicit(&pool->several, memory_order_relaxed);
}

bool vp_pool_wants_event(struct vp_pool *pool, const struct vp_timeline *timeline, size_t size) {
    if (pool->policy->always_event || pool->policy->never_event)
        return pool->policy->always_event;
    if (size < EVENT_WORTH)
        return false;
    if (!pool->first_stream)
        pool->first_stream = timeline->id;
    /* A stream that only ever frees small blocks wants no large ones. */
    if (pool->first_stream != timeline->id)
        atomic_store_explicit(&pool->several, true, memory_order_relaxed);
    return vp_pool_worth_event(pool, size);
}

void vp_region_account(struct vp_pool *pool, const struct vp_region *r, bool taken) {
    pool->stats.live_bytes += taken ? r->asked : -r->asked;
    if (pool->config.account && r->owner)
        pool->config.account(r->owner, r->asked, taken);
}

/* A free neighbour is taken out of its bin, and its pieces go on in the united region. */
static void fetch_bin_and_pieces(const struct vp_region *neighbour) {
    if (neighbour && neighbour->state == VP_FREE) {
        __builtin_prefetch(neighbour->pieces, 1);
        __builtin_prefetch(neighbour->in_bin.next, 1);
        __builtin_prefetch(neighbour->in_bin.prev, 1);
    }
}

void vp_region_release(struct vp_pool *pool, struct vp_region *block, struct vp_fence *fence) {
    CUdeviceptr addr = block->addr, end = vp_region_end(block);
    fetch_bin_and_pieces(vp_region_prev(block));
    fetch_bin_and_pieces(vp_region_next(block));
    vp_region_account(pool, block, false);
    vp_table_take(&pool->live, addr);
    if (pool->exported)
        pool->retiring |= vp_mapping_at(pool, addr)->chunk->exported || vp_mapping_at(pool, end - 1)->chunk->exported;
    bool retired = block->exported;
    block->state = retired ? VP_RETIRED : VP_FREE;
    block->index = NULL;
    vp_region_one_piece(pool, block, fence, ++pool->age);
    block = vp_region_join(pool, block);
    if (retired) {
        vp_exports_settle(pool);
        return;
    }
    vp_region_coarsen(pool, block);
    /* A chunk may be wholly free now only if there is room for one. */
    if (pool->policy->homes && block->size >= pool->granularity)
        vp_mapping_go_home(pool, addr, end);
}

void vp_pool_free(struct vp_pool *pool, struct vp_region *block, struct vp_fence *fence) {
    if (block->cache)
        vp_stream_cache_recall(block);
    pool->stats.frees++;
    vp_region_release(pool, block, fence);
    verify(pool);
}

/* A region may begin in one timeline of the cache and end in the next. */
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
    bool record = vp_pool_wants_event(pool, timeline, block->size) && !vp_stream_cache_calm(timeline);
    struct vp_fence fence = {0};
    if (block->cache)
        vp_stream_cache_recall(block);
    if (!record && vp_stream_cache_park(pool, block, timeline, NULL)) {
        verify(pool);
        return 0;
    }
    int err = vp_fence_add_free(pool->timelines, &fence, timeline, record);
    if (!err && !vp_stream_cache_park(pool, block, timeline, &fence))
        vp_pool_free(pool, block, &fence);
    return err;
}

void vp_pool_drop_context(struct vp_pool *pool, const struct vp_context *ctx) {
    struct vp_space *s;
    struct vp_region *r;
    vp_stream_caches_flush(pool, VP_FLUSH_ALL);
    vp_list_each(s, &pool->spaces, link)
        for (r = vp_container_of(s->regions.next, struct vp_region, va); r;) {
            if (r->state == VP_LIVE && r->sync && r->context == ctx) {
                struct vp_fence none = {0};
                CUdeviceptr end = vp_region_end(r);
                vp_pool_free(pool, r, &none);
                r = vp_region_at(pool, end - 1);
            }
            r = vp_region_next(r);
        }
}

void vp_pool_close_timeline(struct vp_pool *pool, struct vp_timeline *timeline) {
    vp_stream_cache_close(pool, timeline);
}

void vp_pool_drop_timeline(struct vp_pool *pool, struct vp_timeline *timeline) {
    struct vp_stream_store *share = timeline->store;
    if (!share)
        return;
    assert(!share->cache);
    for (int z = 0; z < VP_ZONES; z++) {
        vp_index_finish(pool, &share->index[z]);
    }
    vp_slab_free(&pool->store_slab, share);
    timeline->store = NULL;
}

void vp_pool_note_peak(uint64_t now, uint64_t *peak, struct vp_pool *pool, const void *owner) {
    if (now <= *peak)
        return;
    now -= vp_stream_caches_parked(pool, owner);
    if (now > *peak)
        *peak = now;
}

struct vp_pool_stats vp_pool_stats(struct vp_pool *pool) {
    vp_stream_caches_flush(pool, VP_FLUSH_ALL);
    return pool->stats;
}

size_t vp_pool_metadata(const struct vp_pool *pool) {
    size_t bytes = vp_table_bytes(&pool->live);
    const struct vp_slab *slabs[] = {&pool->region_slab, &pool->piece_slab, &pool->chunk_slab, &pool->mapping_slab,
                                     &pool->store_slab,  &pool->place_slab, &pool->cache_slab, &pool->bins_slab};
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++)
        bytes += slabs[i]->bytes;
    return bytes + pool->scratch.bytes;
}
