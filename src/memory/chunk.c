/* Physical memory: the driver's calls, counted and timed, and undone when one of several fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_private.h"

#include "base/cancel.h"
#include "base/clock.h"

#include <errno.h>

/* One driver call: counts it, adds its time. */
#define CALL(pool, field, call)                                                                                        \
    ({                                                                                                                 \
        uint64_t begin_ = vp_clock_ns();                                                                               \
        vp_cancel_hold();                                                                                              \
        CUresult res_ = (call);                                                                                        \
        (pool)->stats.driver_ns += vp_clock_ns() - begin_;                                                             \
        (pool)->stats.calls.field++;                                                                                   \
        res_;                                                                                                          \
    })

static int failure(struct vp_pool *pool, CUresult res) {
    if (res == CUDA_ERROR_OUT_OF_MEMORY)
        return -ENOMEM;
    pool->error = res;
    return -EIO;
}

/* Some containers and virtual machines announce export and RDMA, and then refuse them. */
static bool refused(CUresult res) {
    return res == CUDA_ERROR_NOT_SUPPORTED || res == CUDA_ERROR_NOT_PERMITTED || res == CUDA_ERROR_INVALID_VALUE ||
           res == CUDA_ERROR_INVALID_DEVICE;
}

/* ---- addresses ---- */

static int reserve(struct vp_pool *pool, size_t size, CUdeviceptr *base) {
    CUresult res = CALL(pool, reserve, pool->drv->cuMemAddressReserve(base, size, pool->granularity, 0, 0));
    return res ? failure(pool, res) : 0;
}

int vp_space_add(struct vp_pool *pool, enum vp_zone_name zone, size_t size) {
    CUdeviceptr base;
    int err = reserve(pool, size, &base);
    if (err)
        return err;
    if ((err = vp_space_carve(pool, zone, base, size, size)) < 0)
        pool->drv->cuMemAddressFree(base, size);
    return err;
}

/* ---- chunks ---- */

int vp_chunk_create(struct vp_pool *pool, size_t size, struct vp_chunk **out) {
    size_t limit = pool->config.limit;
    if (limit && (size > limit || pool->stats.held_bytes > limit - size))
        return -ENOMEM;
    struct vp_chunk *chunk = vp_slab_alloc(&pool->chunk_slab);
    if (!chunk)
        return -ENOMEM;
    CUresult res = CALL(pool, create, pool->drv->cuMemCreate(&chunk->handle, size, &pool->prop, 0));
    if (refused(res) && (pool->prop.requestedHandleTypes || pool->prop.allocFlags.gpuDirectRDMACapable)) {
        /* Plain memory from here on. */
        CUmemAllocationProp plain = pool->prop;
        plain.requestedHandleTypes = 0;
        plain.allocFlags.gpuDirectRDMACapable = 0;
        res = CALL(pool, create, pool->drv->cuMemCreate(&chunk->handle, size, &plain, 0));
        if (!res)
            pool->prop = plain;
    }
    if (res) {
        vp_slab_free(&pool->chunk_slab, chunk);
        return failure(pool, res);
    }
    chunk->size = size;
    vp_list_append(&pool->chunks, &chunk->link);
    pool->chunk_count++;
    pool->stats.held_bytes += size;
    if (pool->stats.held_bytes > pool->stats.peak_held_bytes)
        pool->stats.peak_held_bytes = pool->stats.held_bytes;
    *out = chunk;
    return 0;
}

void vp_chunk_destroy(struct vp_pool *pool, struct vp_chunk *chunk) {
    assert(!chunk->mappings);
    CALL(pool, release, pool->drv->cuMemRelease(chunk->handle));
    pool->stats.held_bytes -= chunk->size;
    pool->exported -= chunk->exported;
    vp_list_remove(&chunk->link);
    pool->chunk_count--;
    vp_slab_free(&pool->chunk_slab, chunk);
}

struct vp_mapping *vp_mapping_at(const struct vp_pool *pool, CUdeviceptr addr) {
    const struct vp_space *s = vp_space_of(pool, addr);
    return s ? vp_space_granule(pool, s, addr)->mapping : NULL;
}

static void set_granules(struct vp_pool *pool, CUdeviceptr addr, size_t size, struct vp_mapping *m) {
    struct vp_granule *granule = vp_space_granule(pool, vp_space_of(pool, addr), addr);
    for (size_t i = 0; i < size >> pool->granularity_shift; i++)
        granule[i].mapping = m;
}

static int set_access(struct vp_pool *pool, CUdeviceptr addr, size_t size, uint64_t devices, CUmemAccess_flags flags) {
    CUmemAccessDesc desc[64];
    size_t n = 0;
    for (int dev = 0; dev < 64; dev++)
        if (devices >> dev & 1)
            desc[n++] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev}, .flags = flags};
    CUresult res = CALL(pool, set_access, pool->drv->cuMemSetAccess(addr, size, desc, n));
    return res ? failure(pool, res) : 0;
}

/* New mappings for all that the pool is open to. Copies of other devices are worth no failure: where theirs fails they
 * are given up. */
static int open_range(struct vp_pool *pool, CUdeviceptr addr, size_t size) {
    const uint64_t needed = pool->peers | UINT64_C(1) << pool->device;
    const CUresult before = pool->error;
    int err = set_access(pool, addr, size, needed | pool->copiers, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (!err || !(pool->copiers & ~needed))
        return err;
    pool->error = before;
    if ((err = set_access(pool, addr, size, needed, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)))
        return err;
    pool->refused |= pool->copiers & ~needed;
    pool->copiers &= needed;
    return 0;
}

int vp_chunk_map(struct vp_pool *pool, struct vp_chunk **chunks, size_t n, CUdeviceptr addr, struct vp_mapping **out) {
    CUdeviceptr end = addr;
    size_t done = 0;
    int err = vp_slab_reserve(&pool->mapping_slab, n);
    for (; !err && done < n; done++) {
        CUresult res = CALL(pool, map, pool->drv->cuMemMap(end, chunks[done]->size, 0, chunks[done]->handle, 0));
        if (res) {
            err = failure(pool, res);
            break;
        }
        end += chunks[done]->size;
    }
    if (!err)
        err = open_range(pool, addr, end - addr);
    if (err) {
        if (end > addr)
            CALL(pool, unmap, pool->drv->cuMemUnmap(addr, end - addr));
        return err;
    }
    end = addr;
    for (size_t i = 0; i < n; i++) {
        struct vp_mapping *m = vp_slab_alloc(&pool->mapping_slab);
        *m = (struct vp_mapping){.addr = end, .chunk = chunks[i]};
        m->next = chunks[i]->mappings;
        chunks[i]->mappings = m;
        vp_list_append(&pool->zombies, &m->zombie);
        set_granules(pool, end, chunks[i]->size, m);
        end += chunks[i]->size;
        out[i] = m;
    }
    pool->mappings += n;
    return 0;
}

int vp_chunk_unmap(struct vp_pool *pool, struct vp_mapping *m) {
    if (CALL(pool, unmap, pool->drv->cuMemUnmap(m->addr, m->chunk->size)))
        return -EIO;
    set_granules(pool, m->addr, m->chunk->size, NULL);
    pool->away -= m->chunk->current != m->chunk->home;
    if (m->chunk->current == m)
        m->chunk->current = NULL;
    if (m->chunk->home == m)
        m->chunk->home = m->chunk->current;
    pool->away += m->chunk->current != m->chunk->home;
    struct vp_mapping **link = &m->chunk->mappings;
    while (*link != m)
        link = &(*link)->next;
    *link = m->next;
    vp_list_remove(&m->zombie);
    vp_slab_free(&pool->mapping_slab, m);
    pool->mappings--;
    return 0;
}

/* ---- peers ---- */

/* Every mapping of every chunk: the old ones may be taken back, and a cache's blocks lie in them like all others. */
static int access_everywhere(struct vp_pool *pool, uint64_t devices, CUmemAccess_flags flags) {
    struct vp_chunk *chunk;
    struct vp_mapping *m;
    int err = 0;
    vp_list_each(chunk, &pool->chunks, link)
        for (m = chunk->mappings; m && !err; m = m->next)
            err = set_access(pool, m->addr, chunk->size, devices, flags);
    return err;
}

/* All of it or, on failure, none. */
static int open_everywhere(struct vp_pool *pool, uint64_t devices) {
    int err = access_everywhere(pool, devices, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (err)
        access_everywhere(pool, devices, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    return err;
}

int vp_pool_set_peers(struct vp_pool *pool, uint64_t peers) {
    const uint64_t open = pool->peers | pool->copiers, wanted = peers | pool->copiers;
    const uint64_t added = wanted & ~open, taken = open & ~wanted;
    int err = added ? open_everywhere(pool, added) : 0;
    if (err)
        return err;
    if (taken && (err = access_everywhere(pool, taken, CU_MEM_ACCESS_FLAGS_PROT_NONE))) {
        access_everywhere(pool, taken, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        if (added)
            access_everywhere(pool, added, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        return err;
    }
    pool->peers = peers;
    return 0;
}

bool vp_pool_add_copier(struct vp_pool *pool, CUdevice dev) {
    const uint64_t one = UINT64_C(1) << dev;
    const CUresult before = pool->error;
    if (dev == pool->device || pool->copiers & one)
        return true;
    if (!(pool->peers & one) && (pool->refused & one || open_everywhere(pool, one))) {
        pool->refused |= one;
        pool->error = before;
        return false;
    }
    pool->copiers |= one;
    return true;
}
