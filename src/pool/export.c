/* Memory that other processes map (CUDA's legacy IPC).
 *
 * They can map only whole chunks, so an exported block should be alone in its chunks: the policy places blocks so
 * (vp_request.alone). If it did not, other live blocks there are shown, too, as CUDA shows them; what is free there is
 * retired.
 *
 * An exported block never becomes anybody else's memory. Another process may keep it mapped for longer than the program
 * has it, and would read and overwrite what the next owner has there. When the block is freed it is retired; once all
 * work on a chunk is over and nothing in it is live, the chunk goes back to the device. The driver keeps it for
 * processes that still have it mapped. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool.h"

#include "memory/sleep.h"

#include <errno.h>

const struct vp_chunk *vp_pool_chunk_at(const struct vp_pool *pool, CUdeviceptr addr, size_t *offset) {
    const struct vp_mapping *m = vp_mapping_at(&pool->mem, addr);
    *offset = addr - m->addr;
    return m->chunk;
}

/* The addresses of all chunks in which a block lies. */
static void chunks_of(const struct vp_pool *pool, const struct vp_region *block, CUdeviceptr *begin, CUdeviceptr *end) {
    *begin = vp_mapping_at(&pool->mem, block->addr)->addr;
    *end = vp_chunk_end(vp_mapping_at(&pool->mem, vp_region_end(block) - 1)->chunk);
}

int vp_pool_export_check(struct vp_pool *pool, const struct vp_region *block) {
    if (!block->sync || !(pool->mem.prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return -EOPNOTSUPP;
    if (block->spilled)
        return -EXDEV;
    return vp_memory_sleeps(&pool->mem, block->addr) ? -EBUSY : 0;
}

bool vp_pool_lies_alone(const struct vp_pool *pool, const struct vp_region *block) {
    CUdeviceptr begin, end;
    /* A pinned bare segment has its chunks to itself. */
    if (block->bare)
        return true;
    chunks_of(pool, block, &begin, &end);
    for (const struct vp_region *r = vp_region_at(&pool->mem, begin); r && r->addr < end; r = vp_region_next(r))
        if (r != block && r->state == VP_LIVE)
            return false;
    return true;
}

int vp_pool_export(struct vp_pool *pool, struct vp_region *block) {
    CUdeviceptr begin, end;
    int err = vp_pool_export_check(pool, block);
    if (err || block->exported)
        return err;
    chunks_of(pool, block, &begin, &end);
    struct vp_chunk *first = vp_mapping_at(&pool->mem, begin)->chunk, *last = vp_mapping_at(&pool->mem, end - 1)->chunk;
    if ((err = vp_chunk_reserve_cuts(&pool->mem, first)) < 0)
        return err;
    vp_chunk_retire_free(&pool->mem, first);
    if ((err = vp_chunk_reserve_cuts(&pool->mem, last)) < 0)
        goto mark;
    vp_chunk_retire_free(&pool->mem, last);
    block->exported = true;
mark:
    /* Even if the export failed, retired memory must go back some day. */
    vp_mappings_each(m, &pool->mem, begin, end) {
        pool->mem.exported += !m->chunk->exported;
        m->chunk->exported = true;
    }
    return err;
}

/* Is nothing in the chunk live, and all work on it over? Sets `*waits` if only work is not over. */
static bool over(const struct vp_pool *pool, const struct vp_chunk *chunk, bool *waits) {
    const struct vp_request anyone = {0};
    bool ready = true;
    CUdeviceptr at = chunk->current->addr, end = vp_chunk_end(chunk);
    while (at < end) {
        const struct vp_region *r = vp_region_at(&pool->mem, at);
        CUdeviceptr stop = vp_region_end(r) < end ? vp_region_end(r) : end;
        if (r->state >= VP_LIVE)
            return false;
        ready &= vp_range_usable(r, at, stop, &anyone, VP_USE_READY);
        at = stop;
    }
    *waits |= !ready;
    return ready;
}

void vp_exports_settle(struct vp_pool *pool) {
    struct vp_chunk *chunk, *next;
    if (!pool->mem.exports_changed)
        return;
    vp_timelines_poll(pool->mem.timelines, true);
    pool->mem.exports_changed = false;
    vp_list_each_safe(chunk, next, &pool->mem.chunks, link)
        if ((chunk->exported || chunk->host) && over(pool, chunk, &pool->mem.exports_changed)) {
            bool given = vp_chunk_reserve_cuts(&pool->mem, chunk) == 0;
            if (given) {
                vp_chunk_retire_free(&pool->mem, chunk);
                given = vp_chunk_give_back(&pool->mem, chunk);
            }
            pool->mem.exports_changed |= !given;
        }
}
