/* Regions, the addresses that they partition, and the free ones by size. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/memory.h"

static inline bool vp_region_has_pieces(const struct vp_region *r) {
    return r->state == VP_FREE || r->state == VP_ZOMBIE || r->state == VP_RETIRED;
}

static inline CUdeviceptr vp_region_end(const struct vp_region *r) {
    return r->addr + r->size;
}

/* ---- free_index.c: free regions, and holes, by size ---- */

int vp_region_compare(const struct vp_region *a, const struct vp_region *b);
/* Fills in an empty index. 0 or -ENOMEM. */
int vp_index_init(struct vp_memory *mem, struct vp_index *index, struct vp_timeline *timeline, enum vp_zone_name zone);
/* Frees what an empty index has. */
void vp_index_finish(struct vp_memory *mem, struct vp_index *index);
void vp_index_add(struct vp_memory *mem, struct vp_index *index, struct vp_region *r);
/* Takes a region out of the index that it is in; its size must still be what it was. */
void vp_index_remove(struct vp_region *r);
/* The smallest region of at least `size` bytes, and the next larger (or equal) one; NULL: none. */
struct vp_region *vp_index_first(const struct vp_index *index, size_t size);
struct vp_region *vp_index_next(const struct vp_index *index, const struct vp_region *r);

/* ---- region.c: regions and the addresses they partition ---- */

/* Makes sure that the next `n` cuts, joins and conversions cannot fail for want of metadata, nor the free of any block.
 * 0 or -ENOMEM. */
int vp_space_reserve(struct vp_memory *mem, size_t n);
/* Takes [base, base+size) of an existing reservation; `reserved_size` not 0: and owns the reservation, which begins
 * there. */
int vp_space_carve(struct vp_memory *mem, enum vp_zone_name zone, CUdeviceptr base, size_t size, size_t reserved_size);
/* Is nothing mapped there? */
static inline bool vp_space_is_hole(const struct vp_space *space) {
    const struct vp_region *first = vp_container_of(space->regions.next, struct vp_region, va);
    return first->state == VP_HOLE && first->size == space->size;
}
/* Forgets one, which is a hole. */
void vp_space_forget(struct vp_memory *mem, struct vp_space *space) __attribute__((cold));
/* Forgets every space. */
void vp_spaces_free(struct vp_memory *mem);
struct vp_space *vp_space_of(const struct vp_memory *mem, CUdeviceptr addr);
/* Did no space of any memory, nor what was told of so, ever have that address? Known without a lock. */
extern _Atomic CUdeviceptr vp_spaces_low, vp_spaces_high;
static inline bool vp_spaces_miss(CUdeviceptr addr) {
    return addr < vp_spaces_low || addr >= vp_spaces_high;
}
void vp_spaces_widen(CUdeviceptr base, size_t size);
static inline struct vp_granule *vp_space_granule(const struct vp_memory *mem, const struct vp_space *space,
                                                  CUdeviceptr addr) {
    return &space->granules[(addr - space->base) >> mem->granularity_shift];
}

/* The region that holds `addr`, whatever its state; NULL outside of all spaces. The same in the space of `addr`. */
struct vp_region *vp_region_at(const struct vp_memory *mem, CUdeviceptr addr);
struct vp_region *vp_region_in(const struct vp_memory *mem, const struct vp_space *space, CUdeviceptr addr);
/* Neighbours in address order; NULL at the edge of the space. */
struct vp_region *vp_region_next(const struct vp_region *r);
struct vp_region *vp_region_prev(const struct vp_region *r);
/* The region that is exactly [addr, end), cut out of the one region that holds it. */
struct vp_region *vp_region_carve(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end);
/* The same, in no index, and in another state: not of a live one. Pieces stay. */
struct vp_region *vp_region_turn(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end, enum vp_region_state state);
/* The same of a free region, to go live: it comes back in no index and without pieces. */
struct vp_region *vp_region_take(struct vp_memory *mem, struct vp_region *r, CUdeviceptr addr, CUdeviceptr end);
/* Unites `r` with neighbours of the same state (not live) and files it; returns the united region. */
struct vp_region *vp_region_join(struct vp_memory *mem, struct vp_region *r);
/* Takes a region out of the index that it is filed in, so that its state may change. Pieces stay. */
void vp_region_unfile(struct vp_region *r);
void vp_region_clear_pieces(struct vp_memory *mem, struct vp_region *r);
/* Gives an unfiled region one piece under `fence` (whose points pass over). */
void vp_region_one_piece(struct vp_memory *mem, struct vp_region *r, struct vp_fence *fence, uint64_t age);
/* Drops met points; unites equal neighbours; refiles a free region whose class changed. */
void vp_region_refile(struct vp_memory *mem, struct vp_region *r);
/* Lets slivers that wait for nothing, between bytes that do, wait with them: they are of little use, and a thousand of
 * them make every look at the region dear. Not between the choice of bytes and their taking. */
void vp_region_coarsen(struct vp_memory *mem, struct vp_region *r);
/* What is kept for a timeline, made if need be; NULL for a timeline of another device, or when memory ran out. */
struct vp_stream_store *vp_stream_store_of(struct vp_memory *mem, struct vp_timeline *timeline);
/* The timeline's memory is about to be used again: nothing of it waits or is parked any more. */
void vp_stream_store_drop(struct vp_memory *mem, struct vp_timeline *timeline);
/* Has the program, on the host, waited for what freed the piece since? Said of those that wait for nothing. */
bool vp_piece_synchronized(const struct vp_memory *mem, const struct vp_piece *p);
/* The piece that holds `addr`. */
struct vp_piece *vp_piece_at(const struct vp_region *r, CUdeviceptr addr);
