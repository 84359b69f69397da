/* Places that served a request before: see place.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* A place that once served a request of exactly `size` bytes. */
struct vp_place {
    CUdeviceptr addr;
    size_t size;
    uint64_t serial;              /* in order of making */
    const struct vp_space *space; /* that it lies in */
    RB_ENTRY(vp_place) by_size;
    struct vp_list used;  /* vp_pool.place_used, least recent first */
    CUdeviceptr taken_by; /* address of a live block that lies in it, or in its chunks elsewhere; 0: none is known */
    union {
        RB_ENTRY(vp_place) open;  /* vp_pool.open_places, without such a block */
        RB_ENTRY(vp_place) taken; /* vp_pool.taken_places, with one */
    };
};

/* Places that are remembered: hints of some 120 bytes each. Beyond, the least recently used one is forgotten; what is
 * mapped there stays until it is reaped. */
enum { VP_PLACE_MOST = 16384 };

/* Is the oldest place of the request's size at `addr`? It counts as used then. */
bool vp_place_is_oldest(struct vp_pool *pool, const struct vp_request *req, CUdeviceptr addr);

int vp_place_compare(const struct vp_place *a, const struct vp_place *b);
RB_PROTOTYPE(vp_place_tree, vp_place, by_size, vp_place_compare)

/* ---- place_taken.c: a block that is live lies in the way ---- */

RB_PROTOTYPE(vp_open_places, vp_place, open, vp_place_compare)
RB_PROTOTYPE(vp_taken_places, vp_place, taken, )

/* A place has been made, which nothing is known of; it is forgotten. */
void vp_place_open(struct vp_pool *pool, struct vp_place *k);
void vp_place_close(struct vp_pool *pool, struct vp_place *k);
/* It is not looked at until that block is freed. */
void vp_place_take(struct vp_pool *pool, struct vp_place *k, struct vp_region *block);
/* A live block is about to be free memory. */
void vp_place_wake(struct vp_pool *pool, struct vp_region *block);
static inline void vp_place_freed(struct vp_pool *pool, struct vp_region *block) {
    if (block->blocks)
        vp_place_wake(pool, block);
}

/* ---- place.c ---- */

/* Remembers that a request of this size was served at `addr`. Not to be called for one that is remembered already. */
void vp_place_add(struct vp_pool *pool, CUdeviceptr addr, size_t size);
/* The oldest place of exactly this size whose every byte is free or can be switched back; made free memory. Driver
 * calls: none. */
struct vp_fit vp_place_find(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* The request at an address, whether it is a remembered place or not; made free memory. Driver calls: none. */
struct vp_fit vp_place_find_at(struct vp_pool *pool, CUdeviceptr addr, const struct vp_request *req,
                               enum vp_usable use);
/* Is there one that would be found, were it ready? Nothing is switched: the caller has chosen where to build. */
bool vp_place_is_pending(struct vp_pool *pool, const struct vp_request *req);
/* The same among places that are somewhat larger than the request: at the beginning of one. */
struct vp_fit vp_place_find_larger(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* The beginning of the request at a smaller place, made free memory as far as anything is mapped there; `*end`: how far
 * that is. If the request does not end there, nothing is mapped behind, with room for it and a handle more. Driver
 * calls: none. */
struct vp_fit vp_place_find_smaller(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use,
                                    CUdeviceptr *end);
/* Are there places of half the request's size, of a quarter and so on? */
bool vp_place_doubles(struct vp_pool *pool, const struct vp_request *req);
/* Marks the chunks of smaller places that are free and can be made as long as the request; returns the mark. */
uint64_t vp_place_spare(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* Is there a smaller place that would do, free or not? The request is then one step of something that grows, or of
 * something that varies. */
bool vp_place_grows(struct vp_pool *pool, const struct vp_request *req);
/* A range of `built` chunks was mapped: if there are too many old mappings now, reaps some left longest ago. */
void vp_place_limit(struct vp_pool *pool, size_t built);
/* One was used; and one is no more, as far as is known here. */
void vp_place_touch(struct vp_pool *pool, struct vp_place *place);
void vp_place_remove(struct vp_pool *pool, struct vp_place *place);
/* All of a space that is about to go. */
void vp_places_leave(struct vp_pool *pool, const struct vp_space *space) __attribute__((cold));
