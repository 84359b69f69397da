/* A plan in use: handles of bare segments that the builder maps at further addresses.
 *
 * A cache uses many more addresses than it uses memory at any one time. So a handle lies now under one block, now under
 * another, and each first time takes driver calls. The plan knows beforehand which blocks can share a handle
 * (learn_bare.c). Mapped ahead at all their addresses it goes from one to the other without a call: as an old mapping
 * whose chunk is idle elsewhere does. Whose turn it is, and when, is decided as for all other memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/learnt/ahead.h"

#include "base/clock.h"
#include "memory/chunk.h"
#include "pool/bare/bare.h"

/* Handles that one look passes over, as they are not there, or their addresses are taken. */
enum { PASSED_OVER = 1024 };

bool vp_ahead_take_bare(struct vp_pool *pool, CUdeviceptr addr, size_t size, size_t count) {
    const struct vp_bare *bare = pool->bare;
    const size_t page = pool->mem.granularity, slot = VP_SLOT_PAGES * page;
    const CUdeviceptr end = addr + size * count;
    /* What lies in two slots may lie in two segments. */
    if (size != page && (size != slot || (addr - bare->base) % slot))
        return false;
    const struct vp_region *r = end - bare->base <= bare->size ? vp_region_at(&pool->mem, addr) : NULL;
    return r && r->state == VP_HOLE && vp_region_end(r) >= end && !vp_stitch_begin(&pool->mem, addr, end, false);
}

/* The chunk of which a handle is to be mapped again, if it is still there; NULL: it is not. */
static struct vp_chunk *chunk_at(const struct vp_memory *mem, CUdeviceptr addr, size_t size) {
    const struct vp_mapping *m = vp_mapping_at(mem, addr);
    return m && m->addr == addr && m->chunk->size == size && !m->chunk->exported && !m->chunk->asleep ? m->chunk : NULL;
}

/* Takes as many handles of one of the plan's `agains` as are there, side by side. False: the next one is not. */
static bool choose(struct vp_ahead *p, const struct vp_learnt_again *again, struct vp_ahead_batch *batch) {
    struct vp_pool *pool = p->pool;
    const uint64_t done = again->size * p->mapped_again;
    const CUdeviceptr from = pool->bare->base + again->from + done, to = pool->bare->base + again->to + done;
    const uint32_t left = again->count - p->mapped_again;
    const struct vp_chunk *chunk;
    unsigned n = 0;
    for (; n < left && n < VP_AHEAD_BATCH && (chunk = chunk_at(&pool->mem, from + n * again->size, again->size)); n++) {
        batch->handles[n] = chunk->handle;
        batch->births[n] = chunk->birth;
    }
    while (n && !vp_ahead_take_bare(pool, to, again->size, n))
        n /= 2;
    batch->addr = to;
    batch->size = again->size;
    batch->count = n;
    return n;
}

bool vp_ahead_again_begin(struct vp_ahead *p, size_t run, struct vp_ahead_batch *batch) {
    if (!p->pool->bare || p->next_again == p->plan.again_count)
        return false;
    const uint32_t before = run < p->plan.run_count ? p->plan.runs[run].need : UINT32_MAX;
    const enum vp_ahead_step step = vp_ahead_blocks_in_step(p);
    if (step == VP_AHEAD_OUT_OF_STEP && !vp_ahead_blocks_kin(p))
        p->next_again = p->plan.again_count;
    if (step == VP_AHEAD_UNKNOWN && !p->trusted)
        return false;
    for (unsigned passed = 0; p->next_again < p->plan.again_count && passed < PASSED_OVER;) {
        const struct vp_learnt_again *again = &p->plan.agains[p->next_again];
        if (again->need > before)
            return false;
        if (p->mapped_again == again->count) {
            p->next_again++;
            p->mapped_again = 0;
            continue;
        }
        *batch = (struct vp_ahead_batch){.again = true, .bare = true, .run = p->next_again, .prop = p->pool->mem.prop};
        if (choose(p, again, batch))
            return true;
        p->mapped_again++;
        passed++;
    }
    return false;
}

void vp_ahead_again_make(const struct vp_driver *drv, struct vp_ahead_batch *batch) {
    CUmemAccessDesc access[64];
    const size_t devices = vp_chunk_access(batch->devices, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, access);
    const uint64_t begin = vp_clock_ns();
    unsigned made = 0;
    while (made < batch->count &&
           !drv->cuMemMap(batch->addr + batch->size * made, batch->size, 0, batch->handles[made], 0))
        made++;
    batch->calls += made + 2;
    batch->short_of = made < batch->count;
    if (made && drv->cuMemSetAccess(batch->addr, batch->size * made, access, devices)) {
        drv->cuMemUnmap(batch->addr, batch->size * made);
        batch->short_of = true;
        made = 0;
    }
    batch->count = made;
    batch->ns += vp_clock_ns() - begin;
}

/* A handle may have gone meanwhile, and another may have got its number. So the chunk must be the same as before. */
unsigned vp_ahead_again_end(struct vp_ahead *p, const struct vp_ahead_batch *batch) {
    struct vp_memory *mem = &p->pool->mem;
    const struct vp_learnt_again *again = &p->plan.agains[batch->run];
    const CUdeviceptr from = p->pool->bare->base + again->from + again->size * p->mapped_again;
    unsigned done = 0;
    for (; done < batch->count; done++) {
        struct vp_chunk *chunk = chunk_at(mem, from + done * batch->size, batch->size);
        if (!chunk || chunk->birth != batch->births[done] ||
            vp_chunk_adopt_again(mem, chunk, batch->addr + done * batch->size))
            break;
    }
    p->mapped_again += done ? done : 1;
    if (batch->short_of)
        p->next_again = p->plan.again_count;
    return done;
}
