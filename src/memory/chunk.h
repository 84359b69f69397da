/* Physical memory, and new ranges out of chunks that lie apart. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/fit.h"

/* ---- chunk.c: physical memory ---- */

/* A new reservation of `size` bytes for one zone. 0, -ENOMEM (no such range to be had) or -EIO. */
int vp_space_add(struct vp_memory *mem, enum vp_zone_name zone, size_t size) __attribute__((cold));
/* Some containers and virtual machines announce what they then refuse: asks for one thing less from here on. False: no
 * less can be asked for. */
bool vp_chunk_ask_less(CUmemAllocationProp *prop);
/* Creates a chunk, not mapped: of the device's memory, or of the host's (spill.h). 0, -ENOMEM (there is no more) or
 * -EIO. */
int vp_chunk_create(struct vp_memory *mem, size_t size, bool host, struct vp_chunk **out);
/* Keeps a chunk that is mapped nowhere for later; takes it back then. */
void vp_chunk_spare(struct vp_memory *mem, struct vp_chunk *chunk, bool spare);
/* Releases spares until it is so many bytes, or all. Their sum. */
size_t vp_chunk_release_spares(struct vp_memory *mem, size_t least);
/* A handle that is mapped at `addr`, open to whom it should be, becomes a chunk; of a building region without
 * mappings its addresses become free memory. 0, or -ENOMEM with nothing changed. */
int vp_chunk_adopt(struct vp_memory *mem, CUmemGenericAllocationHandle handle, size_t size, CUdeviceptr addr)
    __attribute__((cold));
/* What opens memory to those devices, one bit each; how many they are. */
size_t vp_chunk_access(uint64_t devices, CUmemAccess_flags flags, CUmemAccessDesc desc[64]);
/* Opens what was mapped there to all that the memory is open to. 0, -ENOMEM or -EIO. */
int vp_chunk_open(struct vp_memory *mem, CUdeviceptr addr, size_t size);
/* A mapping is found by its addresses, or no longer. */
void vp_mapping_note(struct vp_memory *mem, struct vp_mapping *m, bool there);
/* Whoever watches hears of a change to a mapping, or to all of a chunk's. */
static inline void vp_mapping_tell(const struct vp_memory *mem, const struct vp_mapping *m) {
    if (mem->remapped)
        mem->remapped(mem->watcher, m->addr);
}
void vp_chunk_tell(const struct vp_memory *mem, const struct vp_chunk *chunk);
/* Releases a chunk without mappings. */
void vp_chunk_destroy(struct vp_memory *mem, struct vp_chunk *chunk);
/* Maps chunks side by side at `addr` and gives access: all of them or, on failure, none. The new mappings are not
 * current, and come first in vp_chunk.mappings. 0, -ENOMEM or -EIO. */
int vp_chunk_map(struct vp_memory *mem, struct vp_chunk **chunks, size_t n, CUdeviceptr addr);
/* Unmaps one mapping and forgets it. 0 or -EIO (it stays). */
int vp_chunk_unmap(struct vp_memory *mem, struct vp_mapping *m);
/* Of a chunk with one mapping, which is kept: unmaps it at the driver; releases its physical memory; makes new memory;
 * maps that where it was. 0, -ENOMEM or -EIO, with nothing changed. */
int vp_chunk_suspend(struct vp_memory *mem, struct vp_chunk *chunk);
int vp_chunk_let_go(struct vp_memory *mem, struct vp_chunk *chunk);
int vp_chunk_make_again(struct vp_memory *mem, struct vp_chunk *chunk);
int vp_chunk_map_again(struct vp_memory *mem, struct vp_chunk *chunk);
/* The mapping at `addr`, or NULL. */
struct vp_mapping *vp_mapping_at(const struct vp_memory *mem, CUdeviceptr addr);
static inline CUdeviceptr vp_mapping_end(const struct vp_mapping *m) {
    return m->addr + m->chunk->size;
}
/* Those that [addr, end) touches, up to where nothing is mapped. */
#define vp_mappings_each(m, mem, addr, end)                                                                            \
    for (struct vp_mapping *m = vp_mapping_at(mem, addr); m;                                                           \
         m = vp_mapping_end(m) < (end) ? vp_mapping_at(mem, vp_mapping_end(m)) : NULL)
/* Does [addr, end), all of it mapped, begin and end where chunks do? */
bool vp_range_whole(const struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end);

/* ---- remap.c: new ranges ---- */

/* Is the chunk wholly free, and all of it usable on the timeline (NULL: on any) with no waiting? */
bool vp_chunk_ready(const struct vp_memory *mem, const struct vp_chunk *chunk, struct vp_timeline *timeline);
/* Metadata for switching these chunks. 0 or -ENOMEM. */
int vp_mapping_prepare(struct vp_memory *mem, struct vp_chunk **chunks, size_t n);
/* Has all work on the mapping ended, as far as the host has seen? It may be unmapped then. */
bool vp_mapping_over(const struct vp_memory *mem, const struct vp_mapping *m);
/* Makes `to` the current mapping of its chunk: the range of the old one becomes zombie, that of the new one (zombie
 * until now) free, and the condition moves along. One that is building goes on doing so. */
void vp_mapping_switch(struct vp_memory *mem, struct vp_mapping *to);
/* Maps chunks (wholly free ones, then fresh ones without a current mapping) into the hole at `addr`, which becomes free
 * memory, or into a range that is building, which goes on doing so. All or nothing. 0, -ENOMEM, -EIO. */
int vp_stitch_map(struct vp_memory *mem, struct vp_chunk **chunks, size_t n, CUdeviceptr addr);
/* A range that is mapped in parts, between which the lock may be let go. begin takes the hole's [addr, end) for it, or
 * for a plan; 0 or -ENOMEM. end makes free memory of what there is by then, up to `built`, and a hole of the rest. */
int vp_stitch_begin(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end, bool planned);
void vp_stitch_end(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr built, CUdeviceptr end);
/* The smallest hole of a zone with room; if there is none, after reserving more addresses. Where none are to be had and
 * there `must` be one, all old mappings are reaped. 0, -ENOMEM. */
int vp_stitch_hole(struct vp_memory *mem, enum vp_zone_name zone, size_t size, bool must, struct vp_region **hole);
/* Of the chunks that are current in [addr, end), those that are wholly free go back to their home. The layout of free
 * memory then depends on what is live and no more on how it came about: a program that repeats itself meets the same
 * layout again, makes the same choices, and finds every range that it needs built already. */
void vp_mapping_go_home(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end);
/* Where the chunk is current now becomes its home; what was it may be reaped. */
void vp_mapping_settle(struct vp_memory *mem, struct vp_chunk *chunk);
/* Unmaps a chunk, of which no byte is live, everywhere, and gives it back to the device. False: work on some mapping of
 * it is not over, or the driver refuses. */
bool vp_chunk_give_back(struct vp_memory *mem, struct vp_chunk *chunk);
/* Unmaps a mapping, and its bytes turn into a hole. 0, -ENOMEM or -EIO: it stays. */
int vp_mapping_unmap(struct vp_memory *mem, struct vp_mapping *m);
/* sleep.c. The free bytes of a chunk are taken out of use. Metadata for that is to be reserved before: 0 or -ENOMEM. */
int vp_chunk_reserve_cuts(struct vp_memory *mem, const struct vp_chunk *chunk);
void vp_chunk_retire_free(struct vp_memory *mem, const struct vp_chunk *chunk);
static inline CUdeviceptr vp_chunk_end(const struct vp_chunk *chunk) {
    return chunk->current->addr + chunk->size;
}
/* Unmaps zombie [addr, end), as far as the host has seen its conditions met; the homes of chunks only with `homes`.
 * True if all of it is a hole now. */
bool vp_stitch_reap(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end, bool homes);
/* The same for every zombie, homes included. */
void vp_stitch_reap_all(struct vp_memory *mem);
/* Reaps up to `n` zombies, those left longest ago first and no homes. Looks at no more than `tries`: one whose work is
 * not over counts as left just now. */
void vp_stitch_reap_some(struct vp_memory *mem, size_t n, size_t tries);

/* ---- backing.c: pages of bare segments ---- */

/* A current mapping in a bare segment, all of it free, is in use from now on, whatever its fence says. 0 or -ENOMEM. */
int vp_backing_take(struct vp_memory *mem, const struct vp_mapping *m);
/* It is free again, behind `fence` (whose points pass over). 0, or -ENOMEM with nothing changed. */
int vp_backing_drop(struct vp_memory *mem, const struct vp_mapping *m, struct vp_fence *fence);
/* The same, and nobody's any more: its chunk is exported. */
int vp_backing_retire(struct vp_memory *mem, const struct vp_mapping *m, struct vp_fence *fence);
/* Takes a mapping away, so that another chunk may be mapped there: an old one, or the current one of a chunk that is
 * wholly free (which is current elsewhere then, or given back). 0; -EAGAIN: work on it is not over, or the driver
 * refuses; -ENOMEM. */
int vp_backing_clear(struct vp_memory *mem, struct vp_mapping *m);
