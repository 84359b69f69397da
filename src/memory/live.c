/* Free bytes go live, and live blocks become free memory again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/sleep.h"
#include "memory/spill.h"

void vp_region_account(struct vp_memory *mem, const struct vp_region *r, bool taken) {
    mem->stats.live_bytes += taken ? r->asked : -r->asked;
    mem->rounded += taken ? r->size - r->asked : r->asked - r->size;
    if (mem->account && r->owner)
        mem->account(r->owner, r->asked, taken);
}

int vp_fit_take(struct vp_memory *mem, struct vp_fit fit, const struct vp_request *req, struct vp_region **out) {
    /* Fetch together what lies far apart in memory. */
    vp_table_prefetch(&mem->live, fit.addr);
    __builtin_prefetch(fit.region->va.next);
    int err = vp_table_reserve(&mem->live);
    if (!err)
        err = vp_space_reserve(mem, 4);
    if (!err)
        err = vp_fit_wait(mem, fit.region, fit.addr, fit.addr + req->size, req);
    if (err)
        return err;
    struct vp_region *r = vp_region_take(mem, fit.region, fit.addr, fit.addr + req->size);
    vp_fit_go_live(mem, r, req);
    vp_table_add(&mem->live, r);
    *out = r;
    return 0;
}

void vp_fit_go_live(struct vp_memory *mem, struct vp_region *r, const struct vp_request *req) {
    r->state = VP_LIVE;
    r->sync = !req->timeline;
    r->exported = r->spilled = r->synced = false;
    r->asked = req->asked;
    r->serial = ++mem->serial;
    r->context = r->sync ? req->context : NULL; /* other blocks may outlive their context */
    r->owner = req->owner;
    r->cache = NULL;
    r->stream = req->timeline ? req->timeline->id : 0;
    vp_region_account(mem, r, true);
    mem->stats.allocs++;
}

/* Prefetches a free neighbour, which leaves its bin, and whose pieces are extended. */
static void fetch_bin_and_pieces(const struct vp_region *neighbour) {
    if (neighbour && neighbour->state == VP_FREE) {
        __builtin_prefetch(neighbour->pieces, 1);
        __builtin_prefetch(neighbour->in_bin.next, 1);
        __builtin_prefetch(neighbour->in_bin.prev, 1);
    }
}

void vp_region_release(struct vp_memory *mem, struct vp_region *block, struct vp_fence *fence) {
    CUdeviceptr addr = block->addr, end = vp_region_end(block);
    fetch_bin_and_pieces(vp_region_prev(block));
    fetch_bin_and_pieces(vp_region_next(block));
    vp_region_account(mem, block, false);
    vp_table_take(&mem->live, addr);
    if (mem->exported)
        mem->exports_changed |= vp_mapping_at(mem, addr)->chunk->exported ||
                                vp_mapping_at(mem, end - 1)->chunk->exported;
    const CUdeviceptr host = block->spilled ? vp_spill_release(mem, block) : 0;
    bool retired = block->exported || vp_memory_sleeps(mem, addr);
    block->state = retired ? VP_RETIRED : VP_FREE;
    block->index = NULL;
    vp_region_one_piece(mem, block, fence, ++mem->age);
    block = vp_region_join(mem, block);
    if (retired)
        return;
    if (__builtin_expect(host != 0, false)) {
        vp_spill_retire(mem, host, end);
        block = vp_region_at(mem, addr);
    }
    vp_region_coarsen(mem, block);
    /* A chunk can be wholly free now only if the region has room for one. */
    if (mem->homes && block->size >= mem->granularity)
        vp_mapping_go_home(mem, addr, end);
}
