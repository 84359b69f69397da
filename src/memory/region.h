/* Regions, the addresses that they partition, and indexes of the free ones by size. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/memory.h"

static inline bool vp_region_has_pieces(const struct vp_region *r) {
    return r->state == VP_FREE || r->state == VP_ZOMBIE || r->state == VP_RETIRED;
}

static inline CUdeviceptr vp_region_end(const struct vp_region *r) {
    return r->addr + r->size;
}

/* ---- free_index.c: free regions and holes by size ---- */

int vp_region_compare(const struct vp_region *a, const struct vp_region *b);
/* Initialises an empty index. 0 or -ENOMEM. */
int vp_index_init(struct vp_memory *mem, struct vp_index *index, struct vp_timeline *timeline, enum vp_zone_name zone);
/* Frees the memory of an empty index. */
void vp_index_finish(struct vp_memory *mem, struct vp_index *index);
void vp_index_add(struct vp_memory *mem, struct vp_index *index, struct vp_region *r);
/* Takes a region out of its index; must be called before its size changes. */
void vp_index_remove(struct vp_region *r);
/* The smallest region of at least `size` bytes; the next one in order of size. NULL: none. */
struct vp_region *vp_index_first(const struct vp_index *index, size_t size);
struct vp_region *vp_index_next(const struct vp_index *index, const struct vp_region *r);

/* ---- region.c: regions and the addresses they partition ---- */

/* Reserves metadata: the next `n` cuts, joins and conversions, and any free, then cannot fail. 0 or -ENOMEM. */
int vp_space_reserve(struct vp_memory *mem, size_t n);
/* Makes a space of [base, base+size), which is reserved. `reserved_size` not 0: the space owns that reservation, which
 * begins at `base`. 0 or -ENOMEM. */
int vp_space_carve(struct vp_memory *mem, enum vp_zone_name zone, CUdeviceptr base, size_t size, size_t reserved_size);
/* Is nothing mapped there? */
static inline bool vp_space_is_hole(const struct vp_space *space) {
    const struct vp_region *first = vp_container_of(space->regions.next, struct vp_region, va);
    return first->state == VP_HOLE && first->size == space->size;
}
/* Forgets a space, all of which is a hole. */
void vp_space_forget(struct vp_memory *mem, struct vp_space *space) __attribute__((cold));
/* Forgets all spaces. */
void vp_spaces_free(struct vp_memory *mem);
struct vp_space *vp_space_of(const struct vp_memory *mem, CUdeviceptr addr);
/* True if `addr` was never in a space of any memory, nor in a range told to vp_spaces_widen(). Needs no lock. */
extern _Atomic CUdeviceptr vp_spaces_low, vp_spaces_high;
static inline bool vp_spaces_miss(CUdeviceptr addr) {
    return addr < vp_spaces_low || addr >= vp_spaces_high;
}
void vp_spaces_widen(CUdeviceptr base, size_t size);
static inline struct vp_granule *vp_space_granule(const struct vp_memory *mem, const struct vp_space *space,
                                                  CUdeviceptr addr) {
    return &space->granules[(addr - space->base) >> mem->granularity_shift];
}

/* The region that holds `addr`, whatever its state; NULL outside all spaces. The second knows the space of `addr`. */
struct vp_region *vp_region_at(const struct vp_memory *mem, CUdeviceptr addr);
struct vp_region *vp_region_in(const struct vp_memory *mem, const struct vp_space *space, CUdeviceptr addr);
/* The neighbours by address; NULL at the edge of the space. */
struct vp_region *vp_region_next(const struct vp_region *r);
struct vp_region *vp_region_prev(const struct vp_region *r);
/* Cuts the region [addr, end) out of the one region that holds it. */
struct vp_region *vp_region_carve(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end);
/* The same for one that is not live: takes it out of its index and sets its state. Its pieces stay. */
struct vp_region *vp_region_turn(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end, enum vp_region_state state);
/* The same for a free region that is about to go live: it is in no index then, and has no pieces. */
struct vp_region *vp_region_take(struct vp_memory *mem, struct vp_region *r, CUdeviceptr addr, CUdeviceptr end);
/* Unites `r` with neighbours of the same state (not live), files it, and returns the united region. */
struct vp_region *vp_region_join(struct vp_memory *mem, struct vp_region *r);
/* Takes a region out of its index, so that its state may change. Its pieces stay. */
void vp_region_unfile(struct vp_region *r);
void vp_region_clear_pieces(struct vp_memory *mem, struct vp_region *r);
/* Gives a region that is in no index one piece, behind `fence` (whose points pass over). */
void vp_region_one_piece(struct vp_memory *mem, struct vp_region *r, struct vp_fence *fence, uint64_t age);
/* Drops points that are met, unites equal pieces, and moves a free region to another index if it now belongs there. */
void vp_region_refile(struct vp_memory *mem, struct vp_region *r);
/* Lets small pieces that wait for nothing, beside larger ones that do, wait with these: they are of little use, and a
 * thousand of them make every look at the region slow. Not to be called between choosing bytes and taking them. */
void vp_region_coarsen(struct vp_memory *mem, struct vp_region *r);
/* What the pool keeps for a timeline, made if need be; NULL: the timeline is of another device, or out of memory. */
struct vp_stream_store *vp_stream_store_of(struct vp_memory *mem, struct vp_timeline *timeline);
/* The timeline's struct is about to be reused: nothing waits for it or is parked for it any more. */
void vp_stream_store_drop(struct vp_memory *mem, struct vp_timeline *timeline);
/* Has the program since waited on the host for the free of this piece? Only for pieces that wait for nothing. */
bool vp_piece_synchronized(const struct vp_memory *mem, const struct vp_piece *p);
/* The piece that holds `addr`. */
struct vp_piece *vp_piece_at(const struct vp_region *r, CUdeviceptr addr);
