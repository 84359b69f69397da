/* What the files of the pool share with each other and with the policies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VP_POOL_PRIVATE_H
#define VP_POOL_PRIVATE_H

#include "pool/pool.h"

#include <assert.h>

static inline size_t vp_round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

static inline bool vp_region_has_pieces(const struct vp_region *r) {
    return r->state == VP_FREE || r->state == VP_ZOMBIE || r->state == VP_RETIRED;
}

static inline CUdeviceptr vp_region_end(const struct vp_region *r) {
    return r->addr + r->size;
}

/* After a synchronise of the program's, events that only we had left out complete at once; a busy device is not waited
 * for. */
enum { VP_SETTLE_NS = 50000 };

/* ---- index.c: free regions by size ---- */

int vp_region_compare(const struct vp_region *a, const struct vp_region *b);
/* Fills in an empty index. 0 or -ENOMEM. */
int vp_index_init(struct vp_pool *pool, struct vp_index *index, struct vp_timeline *timeline, enum vp_zone_name zone);
/* Frees what an empty index has. */
void vp_index_finish(struct vp_pool *pool, struct vp_index *index);
void vp_index_add(struct vp_pool *pool, struct vp_index *index, struct vp_region *r);
/* Takes a region out of the index that it is in; its size must still be what it was. */
void vp_index_remove(struct vp_region *r);
/* The smallest region of at least `size` bytes, and the next larger (or equal) one; NULL: none. */
struct vp_region *vp_index_first(const struct vp_index *index, size_t size);
struct vp_region *vp_index_next(const struct vp_index *index, const struct vp_region *r);

/* ---- space.c: regions and the addresses they partition ---- */

/* Makes sure that the next `n` cuts, joins and conversions cannot fail for want of metadata. 0 or -ENOMEM. */
int vp_space_reserve(struct vp_pool *pool, size_t n);
/* A new reservation of `size` bytes for one zone. 0, -ENOMEM (no such range to be had) or -EIO. */
int vp_space_add(struct vp_pool *pool, enum vp_zone_name zone, size_t size) __attribute__((cold));
/* Takes [base, base+size) of an existing reservation; `reserved_size` not 0: and owns the reservation, which begins
 * there. */
int vp_space_carve(struct vp_pool *pool, enum vp_zone_name zone, CUdeviceptr base, size_t size, size_t reserved_size);
/* Forgets every space. */
void vp_spaces_free(struct vp_pool *pool);
struct vp_space *vp_space_of(const struct vp_pool *pool, CUdeviceptr addr);
struct vp_granule *vp_space_granule(const struct vp_pool *pool, const struct vp_space *space, CUdeviceptr addr);

/* The region that holds `addr`, whatever its state; NULL outside the pool. */
struct vp_region *vp_region_at(const struct vp_pool *pool, CUdeviceptr addr);
/* Neighbours in address order; NULL at the edge of the space. */
struct vp_region *vp_region_next(const struct vp_region *r);
struct vp_region *vp_region_prev(const struct vp_region *r);
/* Splits `r` at `at` (inside it, or at an edge): returns the region that then begins at `at`. `r` stays the left part.
 */
struct vp_region *vp_region_cut(struct vp_pool *pool, struct vp_region *r, CUdeviceptr at);
/* The region that is exactly [addr, end), cut out of the one region that holds it. */
struct vp_region *vp_region_carve(struct vp_pool *pool, CUdeviceptr addr, CUdeviceptr end);
/* The same of a free region, to go live: it comes back in no index and without pieces. */
struct vp_region *vp_region_take(struct vp_pool *pool, struct vp_region *r, CUdeviceptr addr, CUdeviceptr end);
/* Unites `r` with neighbours of the same state (not live) and files it; returns the united region. */
struct vp_region *vp_region_join(struct vp_pool *pool, struct vp_region *r);
/* Takes a region out of the index or hole list it is filed in, so that its state may change. Pieces stay. */
void vp_region_unfile(struct vp_region *r);
void vp_region_clear_pieces(struct vp_pool *pool, struct vp_region *r);
/* Gives an unfiled region one piece under `fence` (whose points pass over). */
void vp_region_one_piece(struct vp_pool *pool, struct vp_region *r, struct vp_fence *fence, uint64_t age);
/* Drops met points; unites equal neighbours; refiles a free region whose class changed. */
void vp_region_refile(struct vp_pool *pool, struct vp_region *r);
/*
 * Lets slivers that wait for nothing, between bytes that do, wait with them: they are of little use, and a thousand of
 * them make every look at the region dear. Not between the choice of bytes and their taking.
 */
void vp_region_coarsen(struct vp_pool *pool, struct vp_region *r);
/* What the pool keeps for a timeline, made if need be; NULL for a timeline of another device, or when memory ran out.
 */
struct vp_stream_store *vp_stream_store_of(struct vp_pool *pool, struct vp_timeline *timeline);
/* A live block, in no cache, becomes free memory under `fence` (whose points pass over). */
void vp_region_release(struct vp_pool *pool, struct vp_region *block, struct vp_fence *fence);
/* A live block begins or ends to count among what is live. */
void vp_region_account(struct vp_pool *pool, const struct vp_region *r, bool taken);
/* The piece that holds `addr`. */
struct vp_piece *vp_piece_at(const struct vp_region *r, CUdeviceptr addr);

/* ---- chunk.c: physical memory ---- */

/* Creates a chunk, not mapped. 0, -ENOMEM (the device has no more) or -EIO. */
int vp_chunk_create(struct vp_pool *pool, size_t size, struct vp_chunk **out);
/* Releases a chunk without mappings. */
void vp_chunk_destroy(struct vp_pool *pool, struct vp_chunk *chunk);
/*
 * Maps chunks side by side at `addr` and gives access: all of them or, on failure, none. The new mappings are not
 * current. Their nodes come back in `out` (as many as chunks). 0, -ENOMEM or -EIO.
 */
int vp_chunk_map(struct vp_pool *pool, struct vp_chunk **chunks, size_t n, CUdeviceptr addr, struct vp_mapping **out);
/* Unmaps one mapping and forgets it. 0 or -EIO (it stays). */
int vp_chunk_unmap(struct vp_pool *pool, struct vp_mapping *m);
/* The mapping at `addr`, or NULL. */
struct vp_mapping *vp_mapping_at(const struct vp_pool *pool, CUdeviceptr addr);

/* ---- fit.c: which free bytes may a request use ---- */

enum vp_usable {
    VP_USE_READY,     /* with no waiting at all */
    VP_USE_WAIT,      /* also by a wait of the stream on the GPU, while nothing outside can hold it up */
    VP_USE_WAIT_LATE, /* by any wait at a free's own point */
    VP_USE_PENDING, /* once what it waits for is over, whatever that is: the host might wait. Nothing may be taken so */
};

struct vp_fit {
    struct vp_region *region; /* NULL: none */
    CUdeviceptr addr;
};

bool vp_piece_usable(const struct vp_piece *p, const struct vp_request *req, enum vp_usable use);
/* May the request use all bytes of [addr, end) of the free region? */
bool vp_range_usable(const struct vp_region *r, CUdeviceptr addr, CUdeviceptr end, const struct vp_request *req,
                     enum vp_usable use);
/* Best fit: the smallest free region with a usable run that is long enough; of equals, the lowest. */
struct vp_fit vp_fit_find(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* A fit that the host could wait for (see vp_fence_host_waitable); the condition of its first unmet piece in `*fence`.
 */
struct vp_fit vp_fit_host(struct vp_pool *pool, const struct vp_request *req, const struct vp_fence **fence);
/* Asks the timelines what has completed, and refiles the regions that this changes. True if anything did. */
bool vp_fit_refresh(struct vp_pool *pool);
/* Makes the stream wait for a condition if it must, and counts that. As vp_fence_wait(). */
int vp_fit_await(struct vp_pool *pool, const struct vp_fence *fence, struct vp_timeline *timeline);
/* Makes the stream wait for what [addr, end) of a free region still needs. 0 or -EIO. */
int vp_fit_wait(struct vp_pool *pool, struct vp_region *r, CUdeviceptr addr, CUdeviceptr end,
                const struct vp_request *req);
/* Waits if need be, and makes the bytes of a fit live. 0 or -EIO, with nothing changed. */
int vp_fit_take(struct vp_pool *pool, struct vp_fit fit, const struct vp_request *req, struct vp_region **out);

/* The region is live now, for this request. */
void vp_fit_go_live(struct vp_pool *pool, struct vp_region *r, const struct vp_request *req);

/* ---- stitch.c: new ranges out of chunks that lie apart ---- */

/* Is the chunk wholly free, and all of it usable? */
bool vp_chunk_usable(const struct vp_pool *pool, const struct vp_chunk *chunk, const struct vp_request *req,
                     enum vp_usable use);
/* Makes `to` the current mapping of its chunk: the range of the old one becomes zombie, that of the new one (zombie
 * until now) free, and the condition moves along. */
void vp_mapping_switch(struct vp_pool *pool, struct vp_mapping *to);
/*
 * Maps chunks (wholly free ones, then fresh ones without a current mapping) into the hole at `addr`, which becomes free
 * memory. All or nothing. 0, -ENOMEM, -EIO.
 */
int vp_stitch_map(struct vp_pool *pool, struct vp_chunk **chunks, size_t n, CUdeviceptr addr);
/*
 * The smallest hole of a zone with room; if there is none, after reserving more addresses. Where none are to be had and
 * there `must` be one, all old mappings are reaped, and then idle memory is given up. 0, -ENOMEM.
 */
int vp_stitch_hole(struct vp_pool *pool, enum vp_zone_name zone, size_t size, bool must, struct vp_region **hole);
/*
 * Of the chunks that are current in [addr, end), those that are wholly free go back to their home. The layout of free
 * memory then depends on what is live and no more on how it came about: a program that repeats itself meets the same
 * layout again, makes the same choices, and finds every range that it needs built already.
 */
void vp_mapping_go_home(struct vp_pool *pool, CUdeviceptr addr, CUdeviceptr end);
/* Unmaps a chunk, of which no byte is live, everywhere, and gives it back to the device. False: work on some mapping of
 * it is not over, or the driver refuses. */
bool vp_chunk_give_back(struct vp_pool *pool, struct vp_chunk *chunk);
/* Unmaps zombie [addr, end), as far as the host has seen its conditions met; the homes of chunks only with `homes`.
 * True if all of it is a hole now. */
bool vp_stitch_reap(struct vp_pool *pool, CUdeviceptr addr, CUdeviceptr end, bool homes);
/* The same for every zombie, homes included. */
void vp_stitch_reap_all(struct vp_pool *pool);
/* Reaps up to `n` zombies, those left longest ago first and no homes. Looks at no more than `tries`: one whose work is
 * not over counts as left just now. */
void vp_stitch_reap_some(struct vp_pool *pool, size_t n, size_t tries);
/* Scratch memory of the pool: at least `bytes`, contents undefined; NULL when the system has no more. Valid until the
 * next call. */
void *vp_pool_scratch(struct vp_pool *pool, size_t bytes);

/* ---- export.c: memory that other processes map ---- */

/* Gives exported chunks back of which all blocks were freed and all work is over. */
void vp_exports_settle(struct vp_pool *pool);
/* Does [addr, end), all of it mapped, begin and end where chunks do? */
bool vp_range_whole(const struct vp_pool *pool, CUdeviceptr addr, CUdeviceptr end);

/* ---- kept.c: places that served a request before ---- */

/* Places that are remembered: hints of some 80 bytes each. Beyond, the least recently used one is forgotten; what is
 * mapped there stays until it is reaped. */
enum { VP_PLACE_MOST = 16384 };

/* Is the oldest place of the request's size at `addr`? It counts as used then. */
bool vp_place_is_oldest(struct vp_pool *pool, const struct vp_request *req, CUdeviceptr addr);

int vp_place_compare(const struct vp_place *a, const struct vp_place *b);
RB_PROTOTYPE(vp_place_tree, vp_place, by_size, vp_place_compare)

/* Remembers that a request of this size was served at `addr`. Not to be called for a place that is remembered already.
 */
void vp_place_add(struct vp_pool *pool, CUdeviceptr addr, size_t size);
/* The oldest place of exactly this size whose every byte is free or can be switched back; made free memory. Driver
 * calls: none. */
struct vp_fit vp_place_find(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* The same among places that are somewhat larger than the request: at the beginning of one. */
struct vp_fit vp_place_find_larger(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/*
 * The beginning of the request at a smaller place, made free memory as far as anything is mapped there; `*end`: how far
 * that is. If the request does not end there, nothing is mapped behind, with room for it and a handle more. Driver
 * calls: none.
 */
struct vp_fit vp_place_find_smaller(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use,
                                    CUdeviceptr *end);
/* Is there a smaller place that would do, free or not? The request is then one step of something that grows, or of
 * something that varies. */
bool vp_place_grows(struct vp_pool *pool, const struct vp_request *req);
/* A range of `built` chunks was mapped: if there are too many old mappings now, reaps some of those left longest ago.
 */
void vp_place_limit(struct vp_pool *pool, size_t built);
/* Reaps the least recently used ranges, as far as work on them is over, while they take more than `most` bytes of
 * addresses together. */
void vp_place_shrink(struct vp_pool *pool, size_t most);

#endif
