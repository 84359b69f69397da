/* Places: addresses at which a request was served before (see place.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* A place that once served a request of exactly `size` bytes. */
struct vp_place {
    CUdeviceptr addr;
    size_t size;
    uint64_t serial;              /* order of creation */
    const struct vp_space *space; /* the space it lies in */
    RB_ENTRY(vp_place) by_size;
    struct vp_list used;  /* in vp_pool.place_used, least recently used first */
    CUdeviceptr taken_by; /* address of a live block in it, or in its chunks where they are current; 0: none known */
    union {
        RB_ENTRY(vp_place) open;  /* in vp_pool.open_places: no such block */
        RB_ENTRY(vp_place) taken; /* in vp_pool.taken_places: there is one */
    };
};

/* Most places that are remembered, of some 120 bytes each. Beyond that the least recently used one is forgotten; what
 * is mapped there stays until it is reaped. */
enum { VP_PLACE_MOST = 16384 };

/* Is `addr` the oldest place of the request's size? If so, it counts as used now. */
bool vp_place_is_oldest(struct vp_pool *pool, const struct vp_request *req, CUdeviceptr addr);

int vp_place_compare(const struct vp_place *a, const struct vp_place *b);
RB_PROTOTYPE(vp_place_tree, vp_place, by_size, vp_place_compare)

/* ---- place_taken.c: places that a live block occupies ---- */

RB_PROTOTYPE(vp_open_places, vp_place, open, vp_place_compare)
RB_PROTOTYPE(vp_taken_places, vp_place, taken, )

/* Enters a new place among the open ones; takes out one that is to be forgotten. */
void vp_place_open(struct vp_pool *pool, struct vp_place *k);
void vp_place_close(struct vp_pool *pool, struct vp_place *k);
/* Sets the place aside until `block`, which occupies it, is freed. */
void vp_place_take(struct vp_pool *pool, struct vp_place *k, struct vp_region *block);
/* To be called when a live block is about to become free memory: its places are open again. */
void vp_place_wake(struct vp_pool *pool, struct vp_region *block);
static inline void vp_place_freed(struct vp_pool *pool, struct vp_region *block) {
    if (block->takes_places)
        vp_place_wake(pool, block);
}

/* ---- place.c ---- */

/* Remembers that a request of this size was served at `addr`. The place must not be remembered already. */
void vp_place_add(struct vp_pool *pool, CUdeviceptr addr, size_t size);
/* The oldest place of exactly this size whose bytes are all free or can be switched back; it is free memory on return.
 * Makes no driver call. */
struct vp_fit vp_place_find(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* The same at the given address, whether it is a remembered place or not. Makes no driver call. */
struct vp_fit vp_place_find_at(struct vp_pool *pool, CUdeviceptr addr, const struct vp_request *req,
                               enum vp_usable use);
/* Would vp_place_find() find a place if it were ready? Switches nothing: the caller has chosen where to build. */
bool vp_place_is_pending(struct vp_pool *pool, const struct vp_request *req);
/* As vp_place_find(), at the beginning of a place that is somewhat larger than the request. */
struct vp_fit vp_place_find_larger(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* As vp_place_find(), at the beginning of a smaller place. Only what is mapped there is free memory on return; `*end`:
 * its end. If the request goes beyond that, there are unmapped addresses behind it with room for the rest and one
 * handle more. Makes no driver call. */
struct vp_fit vp_place_find_smaller(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use,
                                    CUdeviceptr *end);
/* Are there places of a half of the request's size, of a quarter, and so on? */
bool vp_place_doubles(struct vp_pool *pool, const struct vp_request *req);
/* Marks the chunks of smaller places that are free and could be made as long as the request; returns the mark. */
uint64_t vp_place_mark_extendable(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* Is there a smaller place that could be extended, free or not? Then the request is a step of what grows or varies. */
bool vp_place_grows(struct vp_pool *pool, const struct vp_request *req);
/* After a range of `built` chunks was mapped: reaps some old mappings, the longest unused first, if there are too
 * many. */
void vp_place_limit(struct vp_pool *pool, size_t built);
/* Marks a place as used now; forgets a place. */
void vp_place_touch(struct vp_pool *pool, struct vp_place *place);
void vp_place_remove(struct vp_pool *pool, struct vp_place *place);
/* Forgets all places in a space that is about to go. */
void vp_places_leave(struct vp_pool *pool, const struct vp_space *space) __attribute__((cold));
