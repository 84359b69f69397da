/* Where a request pins least. A block that covers a part of a chunk makes the whole chunk useless for requests that
 * need whole chunks.
 *
 * Best fit goes by the size of free regions, and a region of few large chunks may be smaller than one of many small
 * ones. Where each byte counts, a block goes beside others into a chunk that is pinned already, or into the smallest
 * wholly free chunk. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/chunk.h"

/* A fit is reconsidered only if it pins MUCH times the request. Then so many regions are tried in order of size, and so
 * many chunks of each. */
enum { MUCH = 8, REGIONS = 64, CHUNKS = 64 };

struct choice {
    struct vp_fit fit;
    size_t pinned; /* bytes of chunks that are wholly free now */
};

/* Bytes of those chunks that [addr, end) touches and that lie wholly in the free region. */
static size_t pinned_by(const struct vp_memory *mem, const struct vp_region *r, CUdeviceptr addr, CUdeviceptr end) {
    size_t bytes = 0;
    vp_mappings_each(m, mem, addr, end)
        bytes += m->addr >= r->addr && vp_mapping_end(m) <= vp_region_end(r) ? m->chunk->size : 0;
    return bytes;
}

static void consider(const struct vp_memory *mem, struct vp_region *r, CUdeviceptr addr, const struct vp_request *req,
                     enum vp_usable use, struct choice *best) {
    const CUdeviceptr end = addr + req->size;
    if (addr < r->addr || end > vp_region_end(r))
        return;
    const size_t pinned = pinned_by(mem, r, addr, end);
    if (pinned < best->pinned && vp_range_usable(r, addr, end, req, use))
        *best = (struct choice){{r, addr}, pinned};
}

/* Tries the beginning of each of its chunks, and its end. */
static void look_into(const struct vp_memory *mem, struct vp_region *r, const struct vp_request *req,
                      enum vp_usable use, struct choice *best) {
    CUdeviceptr at = r->addr;
    for (int tries = CHUNKS; tries-- > 0 && at < vp_region_end(r) && best->pinned;) {
        const struct vp_chunk *chunk = vp_mapping_at(mem, at)->chunk;
        if (chunk->size < best->pinned || chunk->current->addr < r->addr)
            consider(mem, r, vp_round_up(at, req->align), req, use, best);
        at = vp_chunk_end(chunk);
    }
    const CUdeviceptr last = vp_region_end(r) - req->size;
    consider(mem, r, last - last % req->align, req, use, best);
}

static void look_through(const struct vp_memory *mem, const struct vp_index *index, const struct vp_request *req,
                         enum vp_usable use, struct choice *best) {
    struct vp_region *r = vp_index_first(index, req->size);
    for (int tries = REGIONS; tries-- > 0 && r && best->pinned; r = vp_index_next(index, r))
        look_into(mem, r, req, use, best);
}

size_t vp_fit_pins(const struct vp_memory *mem, const struct vp_request *req, struct vp_fit fit) {
    return pinned_by(mem, fit.region, fit.addr, fit.addr + req->size);
}

bool vp_fit_pins_much(const struct vp_memory *mem, const struct vp_request *req, struct vp_fit fit) {
    return fit.region && req->zone == VP_ZONE_LARGE && !req->alone &&
           vp_mapping_at(mem, fit.addr)->chunk->size / MUCH >= req->size &&
           vp_fit_pins(mem, req, fit) / MUCH >= req->size;
}

struct vp_fit vp_fit_pin_less(const struct vp_memory *mem, const struct vp_request *req, enum vp_usable use,
                              struct vp_fit fit) {
    struct choice best = {fit, vp_fit_pins(mem, req, fit)};
    look_through(mem, &mem->met[req->zone], req, use, &best);
    if (req->timeline && req->timeline->store && req->timeline->context->device == mem->device)
        look_through(mem, &req->timeline->store->index[req->zone], req, use, &best);
    look_through(mem, &mem->mixed[req->zone], req, use, &best);
    return best.fit;
}

bool vp_pin_is_last(const struct vp_memory *mem, const struct vp_region *block) {
    const CUdeviceptr begin = vp_mapping_at(mem, block->addr)->addr;
    const struct vp_mapping *last = vp_mapping_at(mem, vp_region_end(block) - 1);
    const CUdeviceptr end = last->addr + last->chunk->size;
    const struct vp_region *before = vp_region_prev(block), *behind = vp_region_next(block);
    return (block->addr == begin || (before && before->state == VP_FREE && before->addr <= begin)) &&
           (vp_region_end(block) == end || (behind && behind->state == VP_FREE && vp_region_end(behind) >= end));
}
