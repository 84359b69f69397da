/* Physical memory (chunks), and new ranges made of chunks that lie apart. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/fit.h"

/* ---- chunk.c: physical memory ---- */

/* Reserves `size` bytes of addresses for a zone. 0, -ENOMEM (no such range is free) or -EIO. */
int vp_space_add(struct vp_memory *mem, enum vp_zone_name zone, size_t size) __attribute__((cold));
/* Some containers and virtual machines announce features that they then refuse: asks for one feature less from now on.
 * False: none is left. */
bool vp_chunk_ask_less(CUmemAllocationProp *prop);
/* Creates an unmapped chunk of device memory, or of host memory (spill.h). 0, -ENOMEM (there is no more) or -EIO. */
int vp_chunk_create(struct vp_memory *mem, size_t size, bool host, struct vp_chunk **out);
/* Puts an unmapped chunk among the spares, to keep it for later; or takes it back from there. */
void vp_chunk_spare(struct vp_memory *mem, struct vp_chunk *chunk, bool spare);
/* Releases spares until `least` bytes are released or none is left. Returns the bytes released. */
size_t vp_chunk_release_spares(struct vp_memory *mem, size_t least);
/* Makes a chunk of a handle that is already mapped at `addr` with all access rights. Its addresses, a part without
 * mappings of a building region, become free memory. 0, or -ENOMEM with nothing changed. */
int vp_chunk_adopt(struct vp_memory *mem, CUmemGenericAllocationHandle handle, size_t size, CUdeviceptr addr)
    __attribute__((cold));
/* Notes that a chunk is mapped at `addr`, too, as above. Its addresses become an old mapping, at which the chunk can be
 * current without a driver call. */
int vp_chunk_adopt_again(struct vp_memory *mem, struct vp_chunk *chunk, CUdeviceptr addr) __attribute__((cold));
/* Fills in access descriptions for these devices, one bit each; returns their number. */
size_t vp_chunk_access(uint64_t devices, CUmemAccess_flags flags, CUmemAccessDesc desc[64]);
/* Gives access rights to what was just mapped there: to all that the memory is open to. 0, -ENOMEM or -EIO. */
int vp_chunk_open(struct vp_memory *mem, CUdeviceptr addr, size_t size);
/* Enters a mapping in the table of its granules, or takes it out. */
void vp_mapping_note(struct vp_memory *mem, struct vp_mapping *m, bool there);
/* Reports a change to a mapping, or to all mappings of a chunk, to vp_memory.remapped. */
static inline void vp_mapping_tell(const struct vp_memory *mem, const struct vp_mapping *m) {
    if (mem->remapped)
        mem->remapped(mem->watcher, m->addr);
}
void vp_chunk_tell(const struct vp_memory *mem, const struct vp_chunk *chunk);
/* Releases an unmapped chunk. */
void vp_chunk_destroy(struct vp_memory *mem, struct vp_chunk *chunk);
/* Maps chunks side by side at `addr`, with access rights: all or, on failure, none. The new mappings are not current,
 * and come first in vp_chunk.mappings. 0, -ENOMEM or -EIO. */
int vp_chunk_map(struct vp_memory *mem, struct vp_chunk **chunks, size_t n, CUdeviceptr addr);
/* Unmaps one mapping and forgets it. 0 or -EIO (it stays). */
int vp_chunk_unmap(struct vp_memory *mem, struct vp_mapping *m);
/* For a chunk with one mapping, which stays on record: unmaps it; releases the physical memory; creates new memory;
 * maps that at the same address. Each returns 0; -ENOMEM or -EIO, with nothing changed. */
int vp_chunk_suspend(struct vp_memory *mem, struct vp_chunk *chunk);
int vp_chunk_let_go(struct vp_memory *mem, struct vp_chunk *chunk);
int vp_chunk_make_again(struct vp_memory *mem, struct vp_chunk *chunk);
int vp_chunk_map_again(struct vp_memory *mem, struct vp_chunk *chunk);
/* The mapping that covers `addr`, or NULL. */
struct vp_mapping *vp_mapping_at(const struct vp_memory *mem, CUdeviceptr addr);
static inline CUdeviceptr vp_mapping_end(const struct vp_mapping *m) {
    return m->addr + m->chunk->size;
}
/* All mappings that [addr, end) touches, up to the first address where nothing is mapped. */
#define vp_mappings_each(m, mem, addr, end)                                                                            \
    for (struct vp_mapping *m = vp_mapping_at(mem, addr); m;                                                           \
         m = vp_mapping_end(m) < (end) ? vp_mapping_at(mem, vp_mapping_end(m)) : NULL)
/* Does [addr, end), which is all mapped, begin and end at edges of chunks? */
bool vp_range_whole(const struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end);

/* ---- remap.c: new ranges ---- */

/* Is the chunk wholly free and, without a wait, usable on the timeline (NULL: on any)? */
bool vp_chunk_ready(const struct vp_memory *mem, const struct vp_chunk *chunk, struct vp_timeline *timeline);
/* Reserves the metadata for switching these chunks. 0 or -ENOMEM. */
int vp_mapping_prepare(struct vp_memory *mem, struct vp_chunk **chunks, size_t n);
/* Has the host seen all work on the mapping end? Then it may be unmapped. */
bool vp_mapping_over(const struct vp_memory *mem, const struct vp_mapping *m);
/* Makes `to` the current mapping of its chunk. The old mapping's range becomes zombie; the new one's, zombie until now,
 * becomes free, and the fences move there. A building range stays building. */
void vp_mapping_switch(struct vp_memory *mem, struct vp_mapping *to);
/* Maps chunks (wholly free ones first, then fresh ones without a current mapping) into the hole at `addr`, which
 * becomes free memory, or into a building range, which stays building. All or nothing. 0, -ENOMEM or -EIO. */
int vp_stitch_map(struct vp_memory *mem, struct vp_chunk **chunks, size_t n, CUdeviceptr addr);
/* For a range that is mapped in parts, between which the lock may be released. begin takes [addr, end) of a hole,
 * `planned` for a plan; 0 or -ENOMEM. end makes free memory of what is mapped up to `built`, and a hole of the rest. */
int vp_stitch_begin(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end, bool planned);
void vp_stitch_end(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr built, CUdeviceptr end);
/* The smallest hole of a zone with room for `size`; if there is none, reserves more addresses. If none are to be had
 * and there `must` be one, reaps all old mappings. 0 or -ENOMEM. */
int vp_stitch_hole(struct vp_memory *mem, enum vp_zone_name zone, size_t size, bool must, struct vp_region **hole);
/* Sends chunks home that are current in [addr, end) and wholly free. The layout of free memory then depends only on
 * what is live, not on its history: a program that repeats itself meets the same layout again, makes the same choices,
 * and finds each range already built. */
void vp_mapping_go_home(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end);
/* Makes the current mapping of the chunk its home; the old home may then be reaped. */
void vp_mapping_settle(struct vp_memory *mem, struct vp_chunk *chunk);
/* Does another thread map it just now? */
bool vp_chunk_is_kept(const struct vp_memory *mem, const struct vp_chunk *chunk) __attribute__((cold));
/* Unmaps a chunk with no live byte everywhere, and gives it back to the device. False: work on a mapping is not over,
 * another thread maps it, or the driver refuses. */
bool vp_chunk_give_back(struct vp_memory *mem, struct vp_chunk *chunk);
/* Unmaps a mapping; its addresses become a hole. 0; -ENOMEM or -EIO: it stays. */
int vp_mapping_unmap(struct vp_memory *mem, struct vp_mapping *m);
/* sleep.c. Retires the free bytes of a chunk; the metadata for that must be reserved first. 0 or -ENOMEM. */
int vp_chunk_reserve_cuts(struct vp_memory *mem, const struct vp_chunk *chunk);
void vp_chunk_retire_free(struct vp_memory *mem, const struct vp_chunk *chunk);
static inline CUdeviceptr vp_chunk_end(const struct vp_chunk *chunk) {
    return chunk->current->addr + chunk->size;
}
/* Unmaps the zombies in [addr, end) whose fences the host has seen met; homes of chunks only if `homes`. True if all of
 * it is a hole now. */
bool vp_stitch_reap(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end, bool homes);
/* The same for all zombies, homes included. */
void vp_stitch_reap_all(struct vp_memory *mem);
/* Reaps up to `n` zombies, the longest unused first, and no homes. Looks at no more than `tries`; one with work not
 * over counts as just used. */
void vp_stitch_reap_some(struct vp_memory *mem, size_t n, size_t tries);

/* ---- backing.c: pages of bare segments ---- */

/* A current mapping in a bare segment, all of it free, is in use from now on, whatever its fence. 0 or -ENOMEM. */
int vp_backing_take(struct vp_memory *mem, const struct vp_mapping *m);
/* It is free again, behind `fence` (whose points pass over). 0, or -ENOMEM with nothing changed. */
int vp_backing_drop(struct vp_memory *mem, const struct vp_mapping *m, struct vp_fence *fence);
/* The same, but it is retired, as its chunk is exported. */
int vp_backing_retire(struct vp_memory *mem, const struct vp_mapping *m, struct vp_fence *fence);
/* Takes away an old mapping, or the current one of a wholly free chunk, so that another chunk can be mapped there. The
 * chunk is then current elsewhere, or given back. 0; -EAGAIN: work on it is not over, or the driver refuses;
 * -ENOMEM. */
int vp_backing_unmap(struct vp_memory *mem, struct vp_mapping *m);
