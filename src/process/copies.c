/* Copies between devices, and of spilled memory.
 *
 * CUDA copies between any two devices without being given access. For mapped memory, the device that makes the copy
 * needs access to both ends (memory of cuMemAlloc itself counts as accessible everywhere, and is staged if it is not).
 * Opening all memory to all devices would make each mapping slower for programs that never copy between devices. So a
 * device's memory is opened to another at the first copy that needs it, and stays open, for copies only: the program
 * does not see it. If that is impossible, the copy is made by cuMemcpyPeer, which names a context for each end and
 * needs no access; graphs have no such node.
 *
 * CUDA takes spilled memory (spill.h) for host memory: it refuses a copy that calls it device memory, so the copy is
 * made by a call that does not say. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"
#include "memory/spill.h"

/* True until the library is open, so that the doors look for the driver. */
atomic_bool vp_copies_matter = true;

static atomic_bool any_spilled;

void vp_api_copied_between(void) {
    if (!atomic_load_explicit(&vp_copies_between, memory_order_relaxed))
        atomic_store_explicit(&vp_copies_between, true, memory_order_release);
}

void vp_copies_arrived(void *unused, struct vp_context *ctx) {
    if (ctx->device < 0 || ctx->device >= VP_DEVICES)
        return;
    vp_state.used |= UINT64_C(1) << ctx->device;
    vp_copies_update();
}

void vp_copies_update(void) {
    bool spilled = false;
    vp_pools_each(pool) spilled |= pool->mem.spilled_live > 0;
    atomic_store_explicit(&any_spilled, spilled, memory_order_relaxed);
    atomic_store_explicit(&vp_copies_matter, spilled || (vp_state.used & (vp_state.used - 1)), memory_order_relaxed);
}

static VP_LOCKED struct vp_pool *pool_at(CUdeviceptr ptr) {
    vp_pools_each(pool) if (vp_mapping_at(&pool->mem, ptr)) return pool;
    return NULL;
}

static VP_LOCKED bool spilled_at(const struct vp_pool *pool, CUdeviceptr ptr) {
    return pool && vp_spill_holds(&pool->mem, ptr);
}

bool vp_api_copy_spilled(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from) {
    if (!atomic_load_explicit(&any_spilled, memory_order_relaxed) || !vp_enter())
        return false;
    const bool spilled = spilled_at(pool_at(dst), dst) || spilled_at(pool_at(src), src);
    vp_leave();
    return spilled && !vp_context_known(&vp_state.drv, to) && !vp_context_known(&vp_state.drv, from);
}

static VP_LOCKED CUcontext handle_on(CUdevice dev) {
    const struct vp_context *ctx = vp_context_on(&vp_state.timelines, dev);
    return ctx ? ctx->handle : NULL;
}

static bool can_access(CUdevice dev, CUdevice owner) {
    int can = 0;
    return !vp_state.drv.cuDeviceCanAccessPeer(&can, dev, owner) && can;
}

bool vp_copies_reach_all(const struct vp_pool *pool) {
    for (CUdevice dev = 0; dev < VP_DEVICES; dev++)
        if (vp_state.used >> dev & 1 && dev != pool->mem.device && !can_access(dev, pool->mem.device))
            return false;
    return true;
}

/* Opens the memory if need be. Memory that is open to a peer of the program's is noted, too: it must stay open while
 * copies run. */
static VP_LOCKED bool pool_reached(struct vp_pool *pool, CUdevice dev) {
    const uint64_t one = UINT64_C(1) << dev;
    if (dev == pool->mem.device || pool->mem.copiers & one)
        return true;
    if (!((pool->mem.refused | pool->mem.peers) & one) && !can_access(dev, pool->mem.device))
        pool->mem.refused |= one;
    return vp_memory_add_copier(&pool->mem, dev);
}

/* Memory that is not ours. */
static VP_LOCKED void ask_driver(struct vp_copy_end *end) {
    unsigned type = CU_MEMORYTYPE_HOST, managed = 0;
    int dev = -1;
    const struct vp_driver *drv = &vp_state.drv;
    if (drv->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, end->ptr) || type != CU_MEMORYTYPE_DEVICE ||
        (!drv->cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, end->ptr) && managed)) {
        end->anywhere = true;
        return;
    }
    if ((drv->cuPointerGetAttribute(&end->context, CU_POINTER_ATTRIBUTE_CONTEXT, end->ptr) || !end->context) &&
        !drv->cuPointerGetAttribute(&dev, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, end->ptr))
        end->context = handle_on(dev);
}

/* Whose an end is, if it is ours. */
struct owner {
    struct vp_pool *pool;
    struct vp_import *import;
};

static VP_LOCKED struct owner owner_of(const struct vp_copy_end *end) {
    struct owner owner = {0};
    if (end->anywhere || !end->ptr)
        return owner;
    owner.pool = pool_at(end->ptr);
    if (!owner.pool)
        owner.import = (struct vp_import *)vp_import_at(end->ptr);
    return owner;
}

/* Can a copy that `dev` makes access this end? Opens it if need be. Memory that is not ours is left to CUDA. */
static VP_LOCKED bool reached(struct owner owner, CUdevice dev) {
    return owner.pool ? pool_reached(owner.pool, dev) : !owner.import || vp_import_add_copier(owner.import, dev);
}

static VP_LOCKED void find_context(struct vp_copy_end *end, struct owner owner) {
    if (owner.pool)
        end->context = handle_on(owner.pool->mem.device);
    else if (owner.import)
        end->context = owner.import->ctx->handle;
    else if (end->ptr)
        ask_driver(end);
    else if (!end->anywhere)
        vp_state.drv.cuCtxGetCurrent(&end->context);
}

static uint64_t bit_of(CUdevice dev) {
    return dev >= 0 && dev < VP_DEVICES ? UINT64_C(1) << dev : 0;
}

static uint64_t devices_of_ends(struct owner to, struct owner from) {
    return (to.pool ? bit_of(to.pool->mem.device) : 0) | (from.pool ? bit_of(from.pool->mem.device) : 0);
}

/* The devices, one bit each, that a stream may belong to. A capturing stream is not queried: the stream that began the
 * capture is known, and one that joined it may belong to any device concerned. */
static VP_LOCKED uint64_t devices_of(CUstream stream, struct owner to, struct owner from) {
    CUcontext handle = NULL;
    CUdevice dev = -1;
    if ((uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD) {
        const struct vp_timeline *timeline = NULL;
        const struct vp_context *ctx = NULL;
        if (vp_timeline_captures(&vp_state.timelines, stream)) {
            uint64_t devices = devices_of_ends(to, from) | (vp_state.drv.cuCtxGetDevice(&dev) ? 0 : bit_of(dev));
            vp_list_each(timeline, &vp_state.timelines.capturing, capturing) {
                if (timeline->stream == stream && !timeline->per_thread)
                    return bit_of(timeline->context->device);
                devices |= bit_of(timeline->context->device);
            }
            return devices;
        }
        if (!vp_state.drv.cuStreamGetCtx(stream, &handle) && (ctx = vp_context_get(&vp_state.timelines, handle)))
            return bit_of(ctx->device);
    }
    return vp_state.drv.cuCtxGetDevice(&dev) ? 0 : bit_of(dev);
}

static VP_LOCKED bool reached_by_all(struct owner to, struct owner from, uint64_t devices) {
    bool all = true;
    for (CUdevice dev = 0; dev < VP_DEVICES; dev++)
        if (devices & bit_of(dev))
            all = reached(to, dev) && reached(from, dev) && all;
    return all;
}

/* The driver chooses which device makes the copy of a node. If the context is not known, it may be any. */
static VP_LOCKED uint64_t devices_of_node(CUcontext handle, struct owner to, struct owner from) {
    const struct vp_context *ctx = handle ? vp_context_get(&vp_state.timelines, handle) : NULL;
    return devices_of_ends(to, from) | (ctx ? bit_of(ctx->device) : handle ? 0 : vp_state.used);
}

static enum vp_copy_way find_way(bool node, CUcontext handle, CUstream stream, struct vp_copy_end *dst,
                                 struct vp_copy_end *src) {
    enum vp_copy_way way = VP_COPY_AS_IT_IS;
    if (!vp_enter())
        return way;
    const struct owner to = owner_of(dst), from = owner_of(src);
    dst->spilled = spilled_at(to.pool, dst->ptr);
    src->spilled = spilled_at(from.pool, src->ptr);
    if (dst->spilled || src->spilled)
        way = VP_COPY_UNDIRECTED;
    if ((to.pool || to.import || from.pool || from.import) &&
        !reached_by_all(to, from, node ? devices_of_node(handle, to, from) : devices_of(stream, to, from))) {
        find_context(dst, to);
        find_context(src, from);
        if (dst->context && src->context)
            way = VP_COPY_BETWEEN;
        else if ((dst->anywhere && src->context) || (src->anywhere && dst->context))
            way = VP_COPY_ELSEWHERE;
    }
    vp_leave();
    return way;
}

enum vp_copy_way vp_api_copy_way(CUstream stream, struct vp_copy_end *dst, struct vp_copy_end *src) {
    return find_way(false, NULL, stream, dst, src);
}

enum vp_copy_way vp_api_copy_node(CUcontext handle, struct vp_copy_end *dst, struct vp_copy_end *src) {
    return find_way(true, handle, NULL, dst, src);
}

struct vp_entered vp_api_context_enter(CUcontext handle) {
    return vp_context_enter(&vp_state.drv, handle);
}

void vp_api_context_leave(struct vp_entered entered) {
    vp_context_leave(&vp_state.drv, entered);
}
