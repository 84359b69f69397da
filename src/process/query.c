/* Answers queries about memory with the allocation instead of the chunk or the reservation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include <string.h>
#include "pool/bare/bare.h"
#include "pool/learnt/ahead.h"

/* The driver counts its buffer ids from 1; ours begin where it never gets. */
static const uint64_t BUFFER_ID_BASE = UINT64_C(1) << 62, IMPORT_ID_BASE = UINT64_C(1) << 61;

/* The idle memory of other processes, which they give on request. Alone on the device, they would have given it back
 * when they freed it, and programs plan by what is reported as free before they request any. */
static VP_LOCKED size_t lent_when_asked(CUdevice dev) {
    const CUuuid uuid = vp_ipc_uuid(dev), none = {{0}};
    if (!vp_options()->page || !memcmp(&uuid, &none, sizeof uuid))
        return 0;
    vp_step_out();
    const size_t spare = vp_watch.spare(dev, &uuid);
    vp_step_in();
    return spare;
}

CUresult vp_api_mem_info(size_t *free_bytes, size_t *total) {
    CUdevice dev;
    size_t unused = 0, all = 0;
    if (!vp_enter())
        return VP_NOT_OURS;
    const bool known = !vp_state.drv.cuCtxGetDevice(&dev) && dev < VP_DEVICES;
    const size_t lent = known ? lent_when_asked(dev) : 0;
    /* What is being made ahead is idle memory as soon as it is there. */
    if (known && vp_state.pools[dev]) {
        vp_ahead_hold_back(vp_state.pools[dev]);
        vp_ahead_go_on(vp_state.pools[dev]);
    }
    CUresult res = vp_state.drv.cuMemGetInfo_v2(&unused, &all);
    if (res == CUDA_SUCCESS) {
        struct vp_pool *pool = NULL;
        if (known) {
            unused += vp_lesser(lent, all - vp_lesser(unused, all));
            pool = vp_options()->limit ? vp_state_pool(dev) : vp_state.pools[dev];
        }
        if (pool) {
            vp_pool_stats(pool);
            /* What blocks have beyond what was asked for nobody else can have, nor what a graph writes to, nor what is
             * told as reserved. */
            const uint64_t held = pool->mem.stats.held_bytes,
                           live = vp_memory_awake(&pool->mem) + pool->mem.rounded + vp_bare_stays(pool),
                           idle = held > live ? held - live : 0, told = vp_mempools_idle(dev, NULL),
                           taken = live + (told < idle ? told : idle);
            unused += idle + live - taken;
            vp_state.told[dev] = (struct vp_told){.generation = vp_pool_generation(pool),
                                                  .idle = idle > told ? idle - told : 0};
            /* Under a limit the device is as small as that: programs that take a part of it stay within. */
            if (pool->mem.limit && all > pool->mem.limit)
                all = pool->mem.limit;
            unused = vp_lesser(unused, all - vp_lesser(taken, all));
            vp_state.told[dev].bytes = vp_lesser(unused, all);
        }
        if (free_bytes)
            *free_bytes = vp_lesser(unused, all);
        if (total)
            *total = all;
    }
    vp_leave();
    return res;
}

/* The live block with this byte: what lies behind the last one that was asked for is nobody's. */
static VP_LOCKED struct vp_region *block_at(CUdeviceptr ptr, struct vp_pool **pool) {
    struct vp_region *r = vp_state_find_inside(ptr, pool);
    return r && ptr - r->addr < r->asked ? r : NULL;
}

/* On the page of NULL: no driver has memory there. */
static const CUdeviceptr NOWHERE = 0x100;

/* Is any of these bytes, or that at `ptr`, a pool's? */
static VP_LOCKED bool in_a_pool(CUdeviceptr ptr, size_t size) {
    const struct vp_space *space;
    vp_pools_each(pool) vp_list_each(space, &pool->mem.spaces,
                                     link) if (vp_ranges_meet(ptr, size, space->base, space->size)) return true;
    return false;
}

CUdeviceptr vp_api_asked_address(CUdeviceptr ptr) {
    struct vp_pool *pool;
    if (vp_spaces_miss(ptr) || !vp_enter())
        return ptr;
    bool freed = in_a_pool(ptr, 0) && !block_at(ptr, &pool) && !vp_import_at(ptr);
    vp_leave();
    return freed ? NOWHERE : ptr;
}

/* A query for a block may be rounded to pages, or be for what is mapped there (xNVMe): it may include so much unused
 * memory. */
CUdeviceptr vp_api_shown_address(CUdeviceptr ptr, size_t size) {
    struct vp_pool *pool;
    size_t beside = 0;
    if (!vp_enter())
        return ptr;
    vp_pools_each(one) beside = vp_greater(beside, one->mem.granularity);
    beside = vp_lesser(beside, size);
    size_t seen = in_a_pool(ptr, size) ? 0 : size, nobodys = 0;
    while (seen < size && nobodys < beside) {
        const struct vp_region *r = vp_state_find_inside(ptr + seen, &pool);
        seen = r ? vp_region_end(r) - ptr : seen + VP_QUANTUM;
        nobodys = r ? 0 : nobodys + VP_QUANTUM;
    }
    vp_leave();
    return nobodys && nobodys >= beside ? NOWHERE : ptr;
}

CUdeviceptr vp_api_mapped_address(CUdeviceptr ptr, size_t size, bool ordered) {
    struct vp_pool *pool;
    if ((!size && vp_spaces_miss(ptr)) || !vp_enter())
        return ptr;
    const struct vp_region *r = ordered ? block_at(ptr, &pool) : NULL;
    const bool whole = r && !r->sync && size <= r->asked - (ptr - r->addr);
    bool ours = !whole && (in_a_pool(ptr, size) || vp_import_maps(ptr, size));
    vp_leave();
    return ours ? NOWHERE : ptr;
}

/* Is it memory of another device to which the program has not given the current context access? It may be open for
 * copies. */
static VP_LOCKED bool out_of_sight(const struct vp_pool *pool, const struct vp_region *r,
                                   const struct vp_import *import) {
    const struct vp_context *ctx = vp_context_current(&vp_state.timelines);
    return ctx && !(import ? vp_peers_reach(ctx, import->ctx) : vp_peers_may(ctx, pool, r));
}

CUresult vp_api_address_range(CUdeviceptr *base, size_t *size, CUdeviceptr ptr) {
    struct vp_pool *pool;
    if ((!base && !size) || vp_spaces_miss(ptr) || !vp_enter())
        return VP_NOT_OURS;
    const struct vp_region *r = block_at(ptr, &pool);
    const struct vp_import *import = r ? NULL : vp_import_at(ptr);
    /* It is an error without a context, or in one that has ended, which the driver is left to name. */
    bool ours = (r || import) && !vp_context_known(&vp_state.drv, NULL), hidden = ours && out_of_sight(pool, r, import);
    if (ours && base && !hidden)
        *base = r ? r->addr : import->ptr;
    if (ours && size)
        *size = hidden ? 0 : r ? r->asked : import->asked;
    vp_leave();
    return hidden ? CUDA_ERROR_NOT_FOUND : ours ? CUDA_SUCCESS : VP_NOT_OURS;
}

/* Where the memory is and whose it is: the driver describes a chunk and a reservation. Whole granules are reported as
 * mapped, as they can be exported. */
static bool described(void *data, CUpointer_attribute attribute, CUdeviceptr base, size_t size, CUdeviceptr mapped,
                      CUdeviceptr mapped_end, uint64_t id, CUcontext context) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)data = base; return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = size; return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: *(CUdeviceptr *)data = mapped; return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: *(size_t *)data = mapped_end - mapped; return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)data = id; return true;
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data = context; return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: *(int *)data = 0; return true;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        *(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS *)data = (CUDA_POINTER_ATTRIBUTE_P2P_TOKENS){0};
        return true;
    /* Nothing but cuIpcGetMemHandle exports a block: its handles are the pool's. */
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *(unsigned long long *)data = CU_MEM_HANDLE_TYPE_NONE; return true;
    default: return false;
    }
}

/* CUDA says so of memory, whether the device has an engine or not. */
static bool decompresses(const struct vp_pool *pool, const struct vp_region *r) {
    const struct vp_mempool *mp = r->owner;
    return r->sync ? !pool->mem.engine || (!r->spilled && pool->mem.prop.allocFlags.usage) : mp && mp->decompresses;
}

/* CUDA takes spilled memory for host memory, and memory that is asleep for none. Programs that are told so would access
 * it from the host. */
static VP_LOCKED CUresult unknown_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
                                            const struct vp_pool *pool, const struct vp_region *r) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)data = CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(void **)data = NULL; return CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (vp_context_known(&vp_state.drv, NULL))
            return VP_NOT_OURS; /* the driver names the error */
        *(CUdeviceptr *)data = ptr;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = pool->mem.device; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(int *)data = 0; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(int *)data = 1; break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)data = r->sync && (pool->mem.no_rdma || pool->mem.prop.allocFlags.gpuDirectRDMACapable);
        break;
    default: return VP_NOT_OURS;
    }
    return CUDA_SUCCESS;
}

static VP_LOCKED bool block_attribute(void *data, CUpointer_attribute attribute, struct vp_pool *pool,
                                      const struct vp_region *r) {
    const struct vp_mempool *mp = r->owner;
    const size_t granule = pool->mem.granularity;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(CUmemoryPool *)data = mp ? mp->handle : NULL; return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(int *)data = vp_ipc_check(pool, r) == 0; return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *(unsigned *)data = r->synced; return true;
    /* CUDA says so to every device, peer access or not (two H200s). */
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(unsigned *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE; return true;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: *(int *)data = decompresses(pool, r); return true;
    /* CUDA's stream-ordered memory is not capable; that of cuMemAlloc is as capable as the mapping beneath, and where
     * that is not made for it as there is nobody, what CUDA's would be. */
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        if (!r->sync || pool->mem.no_rdma)
            *(int *)data = r->sync;
        return !r->sync || pool->mem.no_rdma;
    default:
        return described(data, attribute, r->addr, r->asked, r->addr & -granule,
                         vp_align_up(r->addr + r->asked, granule), BUFFER_ID_BASE + r->serial,
                         r->sync ? r->context->handle : NULL);
    }
}

CUresult vp_api_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    struct vp_pool *pool;
    if (!data || vp_spaces_miss(ptr) || !vp_enter())
        return VP_NOT_OURS;
    const struct vp_region *r = block_at(ptr, &pool);
    const struct vp_import *import = r ? NULL : vp_import_at(ptr);
    /* Under no block of its cache a bare segment may have nothing that the driver knows of; what sleeps has nothing. */
    const bool unknown = r && (r->spilled || vp_memory_sleeps(&pool->mem, ptr) ||
                               (r->bare && vp_region_at(&pool->mem, ptr)->state != VP_BACKED));
    CUresult res = unknown ? unknown_attribute(data, attribute, ptr, pool, r) : VP_NOT_OURS;
    if ((r || import) && attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && out_of_sight(pool, r, import)) {
        *(CUdeviceptr *)data = 0;
        res = CUDA_ERROR_INVALID_VALUE;
    }
    /* Memory of another process answers as if cuIpcOpenMemHandle had been CUDA's. */
    if (import && described(data, attribute, import->ptr, import->asked, import->base, import->base + import->bytes,
                            IMPORT_ID_BASE + import->number, import->ctx->handle))
        res = CUDA_SUCCESS;
    else if (r && res == VP_NOT_OURS && block_attribute(data, attribute, pool, r))
        res = CUDA_SUCCESS;
    vp_leave();
    return res;
}

atomic_uint vp_sync_flag;

/* Only once: the driver call waits for a thread that launches, which may be waiting for the caller. */
bool vp_sync_memops(struct vp_context *ctx) {
    const struct vp_driver *drv = &vp_state.drv;
    unsigned flags;
    if (ctx->synced)
        return true;
    const struct vp_entered entered = vp_context_enter(drv, ctx->handle);
    const bool done = !entered.refused && drv->cuCtxSetFlags && !drv->cuCtxGetFlags(&flags) &&
                      !drv->cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS);
    vp_context_leave(drv, entered);
    return ctx->synced = done;
}

bool vp_api_owns(CUdeviceptr ptr) {
    struct vp_pool *pool;
    if (vp_spaces_miss(ptr) || !vp_enter())
        return false;
    bool owns = vp_state_find_inside(ptr, &pool) || vp_import_at(ptr);
    vp_leave();
    return owns;
}

static bool is_forbidden(void) {
    if (!vp_enter())
        return false;
    const bool forbidden = vp_forbidden();
    vp_leave();
    return forbidden;
}

CUresult vp_api_sync_memops(const void *on, CUpointer_attribute attribute, CUdeviceptr ptr) {
    struct vp_pool *pool;
    struct vp_context *ctx;
    if (vp_api_captures() && vp_api_owns(ptr) && is_forbidden())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return vp_api_owns(ptr) ? CUDA_ERROR_INVALID_VALUE : VP_NOT_OURS; /* of a mapping the driver says 801 */
    if (!on || !vp_enter())
        return VP_NOT_OURS;
    struct vp_region *r = block_at(ptr, &pool);
    const bool known = r || vp_import_at(ptr), is_new = known && *(const char *)on && !(r && r->synced);
    unsigned contexts = 0, set = 0;
    if (is_new)
        vp_list_each(ctx, &vp_state.timelines.contexts, link)
            if (!ctx->gone && !ctx->ending && !ctx->sick) {
                contexts++;
                set += vp_sync_memops(ctx);
            }
    /* Where there is none now, those to come get the flag. */
    const bool done = known && (!is_new || !contexts || set);
    if (done && r)
        r->synced = *(const char *)on;
    if (done && is_new)
        vp_sync_flag = CU_CTX_SYNC_MEMOPS;
    vp_leave();
    /* Whoever sets it is about to show the memory to a network. */
    if (done && is_new)
        vp_api_registered(ptr);
    return done ? CUDA_SUCCESS : VP_NOT_OURS;
}
