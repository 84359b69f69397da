/* Physical memory: driver calls, which are counted and timed, and undone if one of several fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/chunk.h"

#include "base/cancel.h"
#include "base/clock.h"

#include <errno.h>

/* One driver call: counts it, adds its time. */
#define CALL(mem, field, call)                                                                                         \
    ({                                                                                                                 \
        uint64_t begin_ = vp_clock_ns();                                                                               \
        vp_cancel_hold();                                                                                              \
        CUresult res_ = (call);                                                                                        \
        (mem)->stats.driver_ns += vp_clock_ns() - begin_;                                                              \
        (mem)->stats.calls.field++;                                                                                    \
        res_;                                                                                                          \
    })

/* Translates the driver's answer into 0 or a negative errno. */
static int errno_of(struct vp_memory *mem, CUresult res) {
    if (res == CUDA_SUCCESS || res == CUDA_ERROR_OUT_OF_MEMORY)
        return res ? -ENOMEM : 0;
    mem->error = res;
    return -EIO;
}

/* Some containers and virtual machines announce export and RDMA, and then refuse them. */
static bool refused(CUresult res) {
    return res == CUDA_ERROR_NOT_SUPPORTED || res == CUDA_ERROR_NOT_PERMITTED || res == CUDA_ERROR_INVALID_VALUE ||
           res == CUDA_ERROR_INVALID_DEVICE;
}

/* ---- addresses ---- */

int vp_space_add(struct vp_memory *mem, enum vp_zone_name zone, size_t size) {
    CUdeviceptr base;
    int err = errno_of(mem, CALL(mem, reserve, mem->drv->cuMemAddressReserve(&base, size, mem->granularity, 0, 0)));
    if (err)
        return err;
    if ((err = vp_space_carve(mem, zone, base, size, size)) < 0)
        mem->drv->cuMemAddressFree(base, size);
    return err;
}

/* ---- chunks ---- */

bool vp_chunk_ask_less(CUmemAllocationProp *prop) {
    if (prop->allocFlags.usage)
        prop->allocFlags.usage = 0;
    else if (prop->allocFlags.gpuDirectRDMACapable)
        prop->allocFlags.gpuDirectRDMACapable = 0;
    else if (prop->requestedHandleTypes)
        prop->requestedHandleTypes = 0;
    else
        return false;
    return true;
}

static void note_held(struct vp_memory *mem, size_t size) {
    mem->stats.held_bytes += size;
    mem->stats.peak_held_bytes = vp_greater(mem->stats.peak_held_bytes, mem->stats.held_bytes);
}

/* Creates physical memory of `size` bytes for a chunk, and counts it as held. */
static int create(struct vp_memory *mem, struct vp_chunk *chunk, size_t size) {
    size_t limit = mem->limit;
    if (limit && (size > limit || mem->stats.held_bytes + mem->coming_bytes > limit - size))
        return -ENOMEM;
    if (mem->may_grow && !mem->may_grow(mem->device)) {
        mem->held_back++;
        return -ENOMEM;
    }
    CUmemAllocationProp prop = mem->prop;
    CUresult res;
    while (refused(res = CALL(mem, create, mem->drv->cuMemCreate(&chunk->handle, size, &prop, 0))) &&
           vp_chunk_ask_less(&prop))
        continue;
    if (res)
        return errno_of(mem, res);
    mem->prop = prop;
    chunk->birth = ++mem->births;
    note_held(mem, size);
    return 0;
}

/* The same with host memory, which is counted apart, and not limited by the device's limit. */
static int create_on_host(struct vp_memory *mem, struct vp_chunk *chunk, size_t size) {
    int err = errno_of(mem, CALL(mem, create, mem->drv->cuMemCreate(&chunk->handle, size, &mem->host_prop, 0)));
    if (err)
        return err;
    chunk->host = true;
    chunk->birth = ++mem->births;
    mem->stats.spilled_bytes += size;
    mem->stats.peak_spilled_bytes = vp_greater(mem->stats.peak_spilled_bytes, mem->stats.spilled_bytes);
    return 0;
}

static void enlist(struct vp_memory *mem, struct vp_chunk *chunk) {
    vp_list_append(&mem->chunks, &chunk->link);
    mem->chunk_count++;
    if (!chunk->host)
        mem->largest = vp_greater(mem->largest, chunk->size);
}

int vp_chunk_create(struct vp_memory *mem, size_t size, bool host, struct vp_chunk **out) {
    struct vp_chunk *chunk = vp_slab_alloc(&mem->chunk_slab);
    int err = !chunk ? -ENOMEM : host ? create_on_host(mem, chunk, size) : create(mem, chunk, size);
    if (err) {
        vp_slab_free(&mem->chunk_slab, chunk);
        return err;
    }
    chunk->size = size;
    enlist(mem, chunk);
    *out = chunk;
    return 0;
}

void vp_chunk_spare(struct vp_memory *mem, struct vp_chunk *chunk, bool spare) {
    assert(!chunk->mappings);
    vp_list_remove(&chunk->link);
    vp_list_append(spare ? &mem->spares : &mem->chunks, &chunk->link);
}

bool vp_chunk_is_kept(const struct vp_memory *mem, const struct vp_chunk *chunk) {
    size_t i = 0;
    while (i < mem->kept_count && mem->kept[i] != chunk->birth)
        i++;
    return i < mem->kept_count;
}

size_t vp_chunk_release_spares(struct vp_memory *mem, size_t least) {
    struct vp_chunk *chunk, *next;
    size_t released = 0;
    vp_list_each_safe(chunk, next, &mem->spares, link) {
        if (released >= least)
            break;
        if (vp_chunk_is_kept(mem, chunk))
            continue;
        released += chunk->size;
        vp_chunk_destroy(mem, chunk);
    }
    return released;
}

void vp_chunk_destroy(struct vp_memory *mem, struct vp_chunk *chunk) {
    assert(!chunk->mappings);
    if (chunk->released) {
        mem->asleep_bytes -= chunk->size;
    } else {
        CALL(mem, release, mem->drv->cuMemRelease(chunk->handle));
        if (chunk->host)
            mem->stats.spilled_bytes -= chunk->size;
        else
            mem->stats.held_bytes -= chunk->size;
    }
    mem->stats.planned_returned += chunk->planned ? chunk->size : 0;
    mem->asleep -= chunk->asleep;
    mem->exported -= chunk->exported;
    vp_list_remove(&chunk->link);
    mem->chunk_count--;
    vp_slab_free(&mem->chunk_slab, chunk);
}

struct vp_mapping *vp_mapping_at(const struct vp_memory *mem, CUdeviceptr addr) {
    const struct vp_space *s = vp_space_of(mem, addr);
    return s ? vp_space_granule(mem, s, addr)->mapping : NULL;
}

bool vp_range_whole(const struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end) {
    const struct vp_space *s = vp_space_of(mem, addr);
    const bool inside = s && end - s->base <= s->size;
    const struct vp_mapping *first = inside ? vp_space_granule(mem, s, addr)->mapping : NULL,
                            *last = first ? vp_space_granule(mem, s, end - 1)->mapping : NULL;
    return last && first->addr == addr && last->addr + last->chunk->size == end;
}

void vp_chunk_tell(const struct vp_memory *mem, const struct vp_chunk *chunk) {
    for (const struct vp_mapping *m = chunk->mappings; m; m = m->next)
        vp_mapping_tell(mem, m);
}

void vp_mapping_note(struct vp_memory *mem, struct vp_mapping *m, bool there) {
    struct vp_granule *granule = vp_space_granule(mem, vp_space_of(mem, m->addr), m->addr);
    for (size_t i = 0; i < m->chunk->size >> mem->granularity_shift; i++)
        granule[i].mapping = there ? m : NULL;
    vp_mapping_tell(mem, m);
}

size_t vp_chunk_access(uint64_t devices, CUmemAccess_flags flags, CUmemAccessDesc desc[64]) {
    size_t n = 0;
    for (int dev = 0; dev < 64; dev++)
        if (devices >> dev & 1)
            desc[n++] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev}, .flags = flags};
    return n;
}

static int set_access(struct vp_memory *mem, CUdeviceptr addr, size_t size, uint64_t devices, CUmemAccess_flags flags) {
    CUmemAccessDesc desc[64];
    const size_t n = vp_chunk_access(devices, flags, desc);
    return errno_of(mem, CALL(mem, set_access, mem->drv->cuMemSetAccess(addr, size, desc, n)));
}

/* Access rights for new mappings of one kind of memory. Copies by other devices must not make it fail: if only their
 * rights fail, copiers are given up. */
int vp_chunk_open(struct vp_memory *mem, CUdeviceptr addr, size_t size) {
    const uint64_t needed = mem->peers | UINT64_C(1) << mem->device;
    const CUresult before = mem->error;
    int err = set_access(mem, addr, size, needed | mem->copiers, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (!err || !(mem->copiers & ~needed))
        return err;
    mem->error = before;
    if ((err = set_access(mem, addr, size, needed, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)))
        return err;
    mem->refused |= mem->copiers & ~needed;
    mem->copiers &= needed;
    return 0;
}

/* Access rights for chunks mapped side by side from `addr` on; device and host memory need separate calls. */
static int open_chunks(struct vp_memory *mem, struct vp_chunk **chunks, size_t n, CUdeviceptr addr) {
    CUdeviceptr end = addr;
    int err = 0;
    for (size_t i = 0; i < n && !err; i++) {
        end += chunks[i]->size;
        if (i + 1 < n && chunks[i + 1]->host == chunks[i]->host)
            continue;
        err = vp_chunk_open(mem, addr, end - addr);
        addr = end;
    }
    return err;
}

/* Creates chunks again with fewer features, if they cannot be accessed: under WSL2 RDMA chunks map, but do not open. */
static bool make_for_less(struct vp_memory *mem, struct vp_chunk **chunks, size_t n) {
    bool made = vp_chunk_ask_less(&mem->prop);
    for (size_t i = 0; made && i < n; i++)
        made = !chunks[i]->host && !vp_chunk_let_go(mem, chunks[i]) && !vp_chunk_make_again(mem, chunks[i]);
    mem->error = made ? CUDA_SUCCESS : mem->error;
    return made;
}

/* Notes a new mapping, which is not current. Its node was reserved. */
static struct vp_mapping *map_note(struct vp_memory *mem, struct vp_chunk *chunk, CUdeviceptr addr) {
    struct vp_mapping *m = vp_slab_alloc(&mem->mapping_slab);
    *m = (struct vp_mapping){.addr = addr, .chunk = chunk, .next = chunk->mappings};
    chunk->mappings = m;
    vp_list_append(&mem->zombies, &m->zombie);
    vp_mapping_note(mem, m, true);
    mem->mappings++;
    return m;
}

int vp_chunk_map(struct vp_memory *mem, struct vp_chunk **chunks, size_t n, CUdeviceptr addr) {
    CUdeviceptr end = addr;
    size_t done = 0;
    int err = vp_slab_reserve(&mem->mapping_slab, n);
    while (!err && done < n) {
        err = errno_of(mem, CALL(mem, map, mem->drv->cuMemMap(end, chunks[done]->size, 0, chunks[done]->handle, 0)));
        if (!err)
            end += chunks[done++]->size;
    }
    if (!err)
        err = open_chunks(mem, chunks, n, addr);
    if (err) {
        if (end > addr)
            CALL(mem, unmap, mem->drv->cuMemUnmap(addr, end - addr));
        const CUmemAllocationProp asked = mem->prop;
        if (err == -EIO && !mem->mappings && make_for_less(mem, chunks, n) && !vp_chunk_map(mem, chunks, n, addr))
            return 0;
        mem->prop = asked;
        return err;
    }
    end = addr;
    for (size_t i = 0; i < n; i++) {
        map_note(mem, chunks[i], end);
        end += chunks[i]->size;
    }
    return 0;
}

/* What another thread has mapped in a building region becomes memory that waits for nothing. */
static void leave_building(struct vp_memory *mem, CUdeviceptr addr, size_t size, enum vp_region_state state) {
    struct vp_region *r = vp_region_carve(mem, addr, addr + size);
    assert(r->state == VP_BUILDING && !r->pieces);
    vp_region_one_piece(mem, r, &(struct vp_fence){0}, 0);
    r->planned = false;
    r->state = state;
    vp_region_join(mem, r);
}

int vp_chunk_adopt(struct vp_memory *mem, CUmemGenericAllocationHandle handle, size_t size, CUdeviceptr addr) {
    int err = vp_space_reserve(mem, 8);
    if (!err)
        err = vp_slab_reserve(&mem->mapping_slab, 1);
    struct vp_chunk *chunk = err ? NULL : vp_slab_alloc(&mem->chunk_slab);
    if (!chunk)
        return -ENOMEM;
    *chunk = (struct vp_chunk){.handle = handle, .size = size, .planned = true, .birth = ++mem->births};
    enlist(mem, chunk);
    note_held(mem, size);
    mem->stats.planned_bytes += size;
    chunk->current = chunk->home = map_note(mem, chunk, addr);
    vp_chunk_tell(mem, chunk);
    vp_list_remove(&chunk->home->zombie);
    leave_building(mem, addr, size, VP_FREE);
    return 0;
}

int vp_chunk_adopt_again(struct vp_memory *mem, struct vp_chunk *chunk, CUdeviceptr addr) {
    int err = vp_space_reserve(mem, 8);
    if (!err)
        err = vp_slab_reserve(&mem->mapping_slab, 1);
    if (err)
        return err;
    map_note(mem, chunk, addr);
    leave_building(mem, addr, chunk->size, VP_ZOMBIE);
    return 0;
}

int vp_chunk_suspend(struct vp_memory *mem, struct vp_chunk *chunk) {
    int err = errno_of(mem, CALL(mem, unmap, mem->drv->cuMemUnmap(chunk->current->addr, chunk->size)));
    if (err)
        return err;
    chunk->unmapped = true;
    return 0;
}

int vp_chunk_let_go(struct vp_memory *mem, struct vp_chunk *chunk) {
    int err = errno_of(mem, CALL(mem, release, mem->drv->cuMemRelease(chunk->handle)));
    if (err)
        return err;
    chunk->released = true;
    chunk->handle = 0;
    mem->stats.held_bytes -= chunk->size;
    mem->asleep_bytes += chunk->size;
    return 0;
}

int vp_chunk_make_again(struct vp_memory *mem, struct vp_chunk *chunk) {
    int err = create(mem, chunk, chunk->size);
    if (err)
        return err;
    chunk->released = false;
    mem->asleep_bytes -= chunk->size;
    return 0;
}

int vp_chunk_map_again(struct vp_memory *mem, struct vp_chunk *chunk) {
    const CUdeviceptr addr = chunk->current->addr;
    int err = errno_of(mem, CALL(mem, map, mem->drv->cuMemMap(addr, chunk->size, 0, chunk->handle, 0)));
    if (!err && (err = vp_chunk_open(mem, addr, chunk->size)))
        CALL(mem, unmap, mem->drv->cuMemUnmap(addr, chunk->size));
    if (!err)
        chunk->unmapped = false;
    return err;
}

int vp_chunk_unmap(struct vp_memory *mem, struct vp_mapping *m) {
    const bool there = !m->chunk->unmapped || m != m->chunk->current;
    if (there && CALL(mem, unmap, mem->drv->cuMemUnmap(m->addr, m->chunk->size)))
        return -EIO;
    vp_mapping_note(mem, m, false);
    mem->away -= m->chunk->current != m->chunk->home;
    if (m->chunk->current == m)
        m->chunk->current = NULL;
    if (m->chunk->home == m) {
        m->chunk->home = m->chunk->current;
        vp_chunk_tell(mem, m->chunk);
    }
    mem->away += m->chunk->current != m->chunk->home;
    struct vp_mapping **link = &m->chunk->mappings;
    while (*link != m)
        link = &(*link)->next;
    *link = m->next;
    vp_list_remove(&m->zombie);
    vp_slab_free(&mem->mapping_slab, m);
    mem->mappings--;
    return 0;
}

/* ---- peers ---- */

/* Sets access rights of every mapping: old ones may be switched back, and a cache's blocks lie in them, too. */
static int access_everywhere(struct vp_memory *mem, uint64_t devices, CUmemAccess_flags flags) {
    struct vp_chunk *chunk;
    struct vp_mapping *m;
    int err = 0;
    if (!devices)
        return 0;
    vp_list_each(chunk, &mem->chunks, link)
        for (m = chunk->unmapped ? NULL : chunk->mappings; m && !err; m = m->next)
            err = set_access(mem, m->addr, chunk->size, devices, flags);
    return err;
}

/* Opens all mappings or, on failure, none. */
static int open_everywhere(struct vp_memory *mem, uint64_t devices) {
    int err = access_everywhere(mem, devices, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (err)
        access_everywhere(mem, devices, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    return err;
}

int vp_memory_set_peers(struct vp_memory *mem, uint64_t peers) {
    const uint64_t open = mem->peers | mem->copiers, wanted = peers | mem->copiers;
    const uint64_t added = wanted & ~open, taken = open & ~wanted;
    int err = open_everywhere(mem, added);
    if (err)
        return err;
    if ((err = access_everywhere(mem, taken, CU_MEM_ACCESS_FLAGS_PROT_NONE))) {
        access_everywhere(mem, taken, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        access_everywhere(mem, added, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        return err;
    }
    mem->peers = peers;
    mem->copiers |= added & mem->former_peers;
    mem->former_peers |= taken;
    return 0;
}

bool vp_memory_add_copier(struct vp_memory *mem, CUdevice dev) {
    const uint64_t one = UINT64_C(1) << dev;
    const CUresult before = mem->error;
    if (dev == mem->device || mem->copiers & one)
        return true;
    if (!(mem->peers & one) && (mem->refused & one || open_everywhere(mem, one))) {
        mem->refused |= one;
        mem->error = before;
        return false;
    }
    mem->copiers |= one;
    return true;
}
