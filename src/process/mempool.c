/* Stream-ordered memory pools. A pool that we serve keeps its driver handle, which owns no memory; its attributes and
 * accounts are here. All pools of a device share one vp_pool: memory that one has freed serves the others, too. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"

#include "pool/parking.h"

#include <stddef.h>
#include <string.h>

static struct vp_mempool *mempool_new(CUmemoryPool handle, CUdevice dev) {
    struct vp_mempool *mp = vp_slab_alloc(&vp_state.mempool_slab);
    if (!mp)
        return NULL;
    *mp = (struct vp_mempool){.handle = handle, .device = dev, .reuse_opportunistic = true, .reuse_internal = true};
    vp_list_append(&vp_state.mempools, &mp->link);
    return mp;
}

static void mempool_free(struct vp_mempool *mp) {
    vp_list_remove(&mp->link);
    vp_slab_free(&vp_state.mempool_slab, mp);
}

static VP_LOCKED void ask_current(CUdevice dev) {
    const struct vp_driver *drv = &vp_state.drv;
    CUmemoryPool now = NULL;
    if (drv->cuDeviceGetMemPool(&now, dev))
        drv->cuDeviceGetDefaultMemPool(&now, dev);
    vp_state.current[dev] = vp_mempool_of(now);
}

void vp_mempool_open_device(CUdevice dev) {
    CUmemoryPool handle = NULL;
    struct vp_mempool *mp = vp_state.drv.cuDeviceGetDefaultMemPool(&handle, dev) ? NULL : mempool_new(handle, dev);
    if (!mp)
        return;
    mp->is_default = true;
    ask_current(dev);
}

/* A pool's device is opened if the handle is its default. */
struct vp_mempool *vp_mempool_of(CUmemoryPool handle) {
    const struct vp_driver *drv = &vp_state.drv;
    struct vp_mempool *mp;
    int count = 0;
    vp_list_each(mp, &vp_state.mempools, link)
        if (mp->handle == handle && !mp->ending)
            return mp;
    if (!handle || drv->cuDeviceGetCount(&count))
        return NULL;
    for (int i = 0; i < count && i < VP_DEVICES; i++)
        if (!vp_state.pools[i] && (vp_state.defaults[i] || !drv->cuDeviceGetDefaultMemPool(&vp_state.defaults[i], i)) &&
            vp_state.defaults[i] == handle)
            return vp_state_pool(i) ? vp_mempool_of(handle) : NULL;
    return NULL;
}

/* What it is to keep, and has had, beyond what is in use; or, `either`, one of the two. */
static VP_LOCKED uint64_t kept(const struct vp_mempool *mp, bool either) {
    const uint64_t most = (mp->threshold < mp->had) != either ? mp->threshold : mp->had;
    return most > mp->used ? most - mp->used : 0;
}

/* What nobody uses counts for pools of the program's own as far as these are to keep it and have had it, and else for
 * the default pool as far as that is to keep it or, until a synchronise, has had it: once in all, so that sums agree.
 */
uint64_t vp_mempools_idle(CUdevice dev, const struct vp_mempool *of) {
    uint64_t idle = vp_pool_idle(vp_state.pools[dev]), told = 0, rest = 0;
    idle -= vp_lesser(idle, vp_state.pools[dev]->giving.loose);
    const struct vp_mempool *mp;
    vp_list_each(mp, &vp_state.mempools, link) {
        const uint64_t its = mp->device != dev ? 0 : kept(mp, false) < idle ? kept(mp, false) : idle;
        if (mp == of && !mp->is_default)
            return its;
        if (mp->is_default && mp->device == dev && mp->threshold_set && (of || mp->told))
            rest = kept(mp, true);
        idle -= mp->is_default ? 0 : its;
        told += mp->is_default || of || !mp->told ? 0 : its;
    }
    return told + (rest < idle ? rest : idle);
}

uint64_t vp_mempool_reserved(const struct vp_mempool *mp) {
    return mp->used + vp_mempools_idle(mp->device, mp);
}

/* Has no block been allocated or freed since the program was told that the device's idle memory is free? */
static VP_LOCKED bool told_as_free(const struct vp_mempool *mp) {
    return vp_state.told[mp->device].idle &&
           vp_state.told[mp->device].generation == vp_pool_generation(vp_state.pools[mp->device]);
}

static VP_LOCKED void note_peaks(struct vp_mempool *mp) {
    const uint64_t now = vp_mempool_reserved(mp);
    vp_pool_note_peak(mp->used, &mp->used_high, vp_state.pools[mp->device], mp);
    mp->reserved_high = now > mp->reserved_high ? now : mp->reserved_high;
}

void vp_mempool_account(void *mempool, size_t size, bool taken) {
    struct vp_mempool *mp = mempool;
    if (taken) {
        mp->blocks++;
        mp->used += size;
        mp->had = mp->used > mp->had ? mp->used : mp->had;
        note_peaks(mp);
    } else {
        mp->blocks--;
        mp->used -= size;
        if (mp->dead && !mp->blocks && !mp->access)
            mempool_free(mp);
    }
}

/* As in CUDA, a destroyed pool stays while work uses what it has freed: other devices may be working there, and the
 * stream of the free waits for them. Until then its memory stays open to them. */
static VP_LOCKED void close_ended(void) {
    struct vp_mempool *mp, *next;
    atomic_fetch_and(&vp_state.sync_matters, ~(unsigned)VP_SYNC_ENDED);
    vp_timelines_poll(&vp_state.timelines, true);
    vp_list_each_safe(mp, next, &vp_state.mempools, link) {
        struct vp_pool *pool = vp_state.pools[mp->device];
        if (!mp->dead || !mp->access)
            continue;
        vp_parking_flush(pool, VP_FLUSH_ALL);
        if (!mp->blocks && !mp->fenced)
            mp->fenced = !vp_barrier_of_all(pool, !vp_timelines_all_named(&vp_state.timelines), &mp->fence);
        next = vp_container_of(mp->link.next, struct vp_mempool, link); /* one may have gone with what was parked */
        if (mp->fenced && vp_fence_settle(&vp_state.timelines, &mp->fence)) {
            mempool_free(mp);
            vp_peers_update(pool->mem.device);
        } else {
            atomic_fetch_or(&vp_state.sync_matters, VP_SYNC_ENDED);
        }
    }
}

/* Looks up a pool. Returns with the lock held; or NULL with the lock free, also if the request is not `sane`. Hence not
 * analysed. */
static VP_TRIES(vp_library_lock) VP_NOT_ANALYSED struct vp_mempool *enter_with(CUmemoryPool handle, bool sane) {
    if (!sane || !handle || !vp_enter())
        return NULL;
    struct vp_mempool *mp = vp_mempool_of(handle);
    if (!mp)
        vp_leave();
    return mp;
}

/* Is it asked for nothing that is not ours to give, a younger CUDA's wishes included? RMM asks for memory that is fit
 * for decompression wherever the driver knows of that, and few devices can. */
static bool is_plain(const CUmemPoolProps *props, const struct vp_pool *pool) {
    CUmemPoolProps rest = *props;
    static const char none[sizeof *props - offsetof(CUmemPoolProps, usage)];
    if (!pool->mem.engine)
        rest.usage &= (unsigned short)~CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS;
    return !props->maxSize && !memcmp(&rest.usage, none, sizeof none);
}

bool vp_api_pool_created(CUmemoryPool pool, const CUmemPoolProps *props) {
    struct vp_mempool *mp = NULL;
    if (!props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !vp_enter())
        return false;
    const CUdevice dev = props->location.id;
    if (vp_state_pool(dev) && is_plain(props, vp_state.pools[dev]) && (mp = mempool_new(pool, dev)))
        mp->decompresses = props->usage & CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS;
    vp_leave();
    return mp != NULL;
}

void vp_api_pool_destroying(CUmemoryPool pool) {
    struct vp_mempool *mp = enter_with(pool, true);
    if (!mp)
        return;
    mp->ending = true;
    atomic_fetch_add(&vp_state.mempools_changed, 1);
    vp_leave();
}

void vp_api_pool_destroyed(CUmemoryPool pool, bool ended) {
    struct vp_mempool *mp, *ours = NULL;
    if (!vp_enter())
        return;
    /* The oldest under this handle: a new pool may have it already. */
    vp_list_each(mp, &vp_state.mempools, link)
        if (!ours && mp->handle == pool && mp->ending && !mp->dead)
            ours = mp;
    /* CUDA makes the default pool current again if the current one is destroyed, one of CUDA's own too. */
    if (ended)
        vp_pools_each(one) ask_current(one->mem.device);
    if (ours && ended) {
        vp_parking_flush(vp_state.pools[ours->device], VP_FLUSH_ALL);
        ours->dead = true;
        ours->threshold = 0;
        if (!ours->blocks && !ours->access)
            mempool_free(ours);
        close_ended();
    } else if (ours) {
        ours->ending = false;
    }
    atomic_fetch_add(&vp_state.mempools_changed, 1);
    vp_leave();
}

void vp_api_pool_set_current(CUdevice dev, CUmemoryPool pool) {
    if (dev < 0 || dev >= VP_DEVICES || !vp_enter())
        return;
    if (vp_state_pool(dev))
        vp_state.current[dev] = vp_mempool_of(pool);
    atomic_fetch_add(&vp_state.mempools_changed, 1);
    vp_leave();
}

/* The driver's handle has the properties and settings of a pool; its accounts are here. */
CUresult vp_api_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    if (!value || attr < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || attr > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return VP_NOT_OURS;
    struct vp_mempool *mp = enter_with(pool, true);
    if (!mp)
        return VP_NOT_OURS;
    if (vp_forbidden_ordered()) {
        vp_leave();
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    vp_parking_flush(vp_state.pools[mp->device], VP_FLUSH_ALL);
    note_peaks(mp);
    switch (attr) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        /* Who has it kept and asks adds it to what is free, or takes it off: from now on it is not free, too. But what
         * was told as free just before, as TensorRT-LLM asks, stays so. */
        mp->told |= mp->threshold_set && !told_as_free(mp);
        *(cuuint64_t *)value = mp->told || !mp->threshold_set ? vp_mempool_reserved(mp) : mp->used;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *(cuuint64_t *)value = mp->reserved_high; break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(cuuint64_t *)value = mp->used; break;
    default: *(cuuint64_t *)value = mp->used_high;
    }
    vp_leave();
    return CUDA_SUCCESS;
}

/* The driver has agreed. */
static VP_LOCKED void set_attribute(struct vp_mempool *mp, CUmemPool_attribute attr, const void *value) {
    switch (attr) {
    /* Events of the program's are not followed, so that nothing depends on REUSE_FOLLOW_EVENT_DEPENDENCIES. */
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        mp->reuse_opportunistic = *(const int *)value != 0;
        if (!mp->reuse_opportunistic) {
            vp_state.pools[mp->device]->stricts = vp_state.pools[mp->device]->mem.by_stream = true;
            atomic_fetch_or(&vp_state.sync_matters, VP_SYNC_POOLS);
        }
        break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: mp->reuse_internal = *(const int *)value != 0; break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        mp->threshold = *(const cuuint64_t *)value;
        mp->threshold_set = true;
        /* The highest one, which frameworks set, gives nothing back. */
        if (mp->threshold < UINT64_MAX)
            atomic_fetch_or(&vp_state.sync_matters, VP_SYNC_POOLS);
        break;
    /* The marks can only be reset. */
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: mp->reserved_high = vp_mempool_reserved(mp); break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: mp->used_high = mp->used; break;
    default:;
    }
}

CUresult vp_api_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    struct vp_mempool *mp = enter_with(pool, value);
    if (!mp)
        return VP_NOT_OURS;
    CUresult res = vp_state.drv.cuMemPoolSetAttribute(pool, attr, value);
    vp_parking_flush(vp_state.pools[mp->device], VP_FLUSH_ALL);
    if (!res)
        set_attribute(mp, attr, value);
    vp_leave();
    return res;
}

CUresult vp_api_pool_trim_to(CUmemoryPool pool, size_t keep) {
    struct vp_mempool *mp = enter_with(pool, true);
    if (!mp)
        return VP_NOT_OURS;
    if (vp_forbidden_ordered()) {
        vp_leave();
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    struct vp_pool *device = vp_state.pools[mp->device];
    const struct vp_mempool *other;
    vp_parking_flush(device, VP_FLUSH_ALL);
    /* Whole handles go back: what is left of one beside live blocks is the pool's as before. */
    const uint64_t whole = vp_align_up(keep > mp->had    ? mp->had
                                       : keep > mp->used ? keep
                                                         : mp->used,
                                       device->mem.granularity);
    uint64_t stays = vp_memory_awake(&device->mem) + (keep > whole ? keep : whole) - mp->used;
    vp_list_each(other, &vp_state.mempools, link)
        stays += other != mp && other->device == mp->device ? kept(other, false) : 0;
    vp_pressure_trim(device, stays < keep ? SIZE_MAX : stays);
    mp->had = whole < mp->had ? whole : mp->had;
    vp_leave();
    return CUDA_SUCCESS;
}

/* The driver's own pool knows the rules, and later answers cuMemPoolGetAccess. */
CUresult vp_api_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    struct vp_mempool *mp = enter_with(pool, map && count);
    if (!mp)
        return VP_NOT_OURS;
    CUresult res = vp_state.drv.cuMemPoolSetAccess(pool, map, count);
    if (!res) {
        uint64_t before = mp->access;
        for (size_t i = 0; i < count; i++)
            if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && map[i].location.id < VP_DEVICES) {
                uint64_t bit = UINT64_C(1) << map[i].location.id;
                mp->access = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? mp->access & ~bit : mp->access | bit;
            }
        int err = vp_peers_update(mp->device);
        if (err) {
            res = vp_result(err, vp_state.pools[mp->device], NULL);
            mp->access = before;
            for (size_t i = 0; i < count; i++) {
                CUmemAccessDesc old = map[i];
                bool had = old.location.id == mp->device || before >> old.location.id & 1;
                old.flags = had ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
                vp_state.drv.cuMemPoolSetAccess(pool, &old, 1);
            }
        }
    }
    vp_leave();
    return res;
}

/* ---- where the program waits on the host ---- */

/* The idle memory of a device that thresholds set by the program keep. Idle memory is shared: what one pool would keep,
 * another may have taken. Pools without a threshold do not count: CUDA's default would give everything back, which this
 * library exists to avoid. */
static VP_LOCKED uint64_t idle_allowed(CUdevice dev) {
    uint64_t idle = 0;
    bool any = false;
    struct vp_mempool *mp;
    vp_list_each(mp, &vp_state.mempools, link) {
        if (mp->device != dev || mp->dead || !mp->threshold_set)
            continue;
        uint64_t used = mp->used - vp_stream_caches_parked(&vp_state.pools[dev]->caches, mp);
        if (mp->had > mp->threshold)
            mp->had = mp->threshold > used ? mp->threshold : used;
        uint64_t its = mp->threshold > used ? mp->threshold - used : 0;
        idle = its > UINT64_MAX - idle ? UINT64_MAX : idle + its;
        any = true;
    }
    return any ? idle : UINT64_MAX;
}

static VP_LOCKED void release_idle(void) {
    vp_pools_each(pool) {
        uint64_t idle = idle_allowed(pool->mem.device), held = pool->mem.stats.held_bytes,
                 live = vp_memory_awake(&pool->mem), parked = vp_stream_caches_parked(&pool->caches, NULL);
        live -= parked < live ? parked : live;
        if (held > live && held - live > idle)
            vp_pool_trim(pool, live + idle);
    }
}

/* The context that the host has waited for: of a stream with its timeline; NULL: it is not known, as of an event. */
static VP_LOCKED struct vp_context *waited_for(enum vp_waited what, void *which, struct vp_timeline **timeline) {
    struct vp_timelines *ls = &vp_state.timelines;
    if (what == VP_WAITED_CONTEXT)
        return which ? vp_table_get(&ls->by_handle, (uintptr_t)which) : vp_context_current(ls);
    return what == VP_WAITED_STREAM && !vp_timeline_get(ls, which, timeline) ? (*timeline)->context : NULL;
}

void vp_api_synchronized(enum vp_waited what, void *which) {
    struct vp_timeline *timeline = NULL;
    if (!atomic_load_explicit(&vp_state.sync_matters, memory_order_relaxed) || !vp_enter())
        return;
    if (!atomic_load(&vp_state.timelines.captures)) {
        const struct vp_context *ctx = waited_for(what, which, &timeline);
        release_idle();
        if (atomic_load(&vp_state.sync_matters) & VP_SYNC_ENDED)
            close_ended();
        vp_pressure_synchronized();
        struct vp_pool *pool = ctx ? vp_state.pools[ctx->device] : NULL;
        if (pool && pool->stricts)
            vp_pool_synchronized(pool, timeline);
    }
    vp_leave();
}

void vp_api_failed(enum vp_waited what, void *which, CUresult res) {
    struct vp_timeline *timeline;
    if (!vp_context_error_stays(res) || !vp_enter())
        return;
    struct vp_context *ctx = waited_for(what, which, &timeline), *current = vp_context_current(&vp_state.timelines);
    if (ctx)
        vp_context_failed(ctx, res);
    /* Whose an event is cannot be asked; and some errors end all contexts of the process. */
    if (current && current != ctx && !atomic_load(&vp_state.timelines.captures)) {
        res = vp_state.drv.cuStreamQuery(CU_STREAM_LEGACY);
        if (vp_context_error_stays(res))
            vp_context_failed(current, res);
    }
    atomic_fetch_add(&vp_state.mempools_changed, 1); /* the stream caches are passed by */
    vp_leave();
}
