/* Places that a live block occupies; they are set aside until it is freed.
 *
 * A program with thousands of equal blocks has as many places of their size, nearly all taken; to look at each of them
 * for every request would take longer than to build. So a place in which a block is found is set aside under that
 * block's address, and is looked at again when the block is freed. Another block may lie in it then; that is found at
 * the next look, once for each free. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/place.h"

int vp_place_compare(const struct vp_place *a, const struct vp_place *b) {
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return a->serial < b->serial ? -1 : a->serial > b->serial;
}

static int compare_taken(const struct vp_place *a, const struct vp_place *b) {
    if (a->taken_by != b->taken_by)
        return a->taken_by < b->taken_by ? -1 : 1;
    return a->serial < b->serial ? -1 : a->serial > b->serial;
}
RB_GENERATE(vp_open_places, vp_place, open, vp_place_compare)
RB_GENERATE(vp_taken_places, vp_place, taken, compare_taken)

void vp_place_open(struct vp_pool *pool, struct vp_place *k) {
    k->taken_by = 0;
    RB_INSERT(vp_open_places, &pool->open_places[k->space->zone], k);
}

void vp_place_close(struct vp_pool *pool, struct vp_place *k) {
    if (k->taken_by)
        RB_REMOVE(vp_taken_places, &pool->taken_places, k);
    else
        RB_REMOVE(vp_open_places, &pool->open_places[k->space->zone], k);
}

void vp_place_take(struct vp_pool *pool, struct vp_place *k, struct vp_region *block) {
    assert(block->state == VP_LIVE && !k->taken_by);
    RB_REMOVE(vp_open_places, &pool->open_places[k->space->zone], k);
    k->taken_by = block->addr;
    block->takes_places = true;
    RB_INSERT(vp_taken_places, &pool->taken_places, k);
}

void vp_place_wake(struct vp_pool *pool, struct vp_region *block) {
    struct vp_place key = {.taken_by = block->addr}, *k;
    block->takes_places = false;
    while ((k = RB_NFIND(vp_taken_places, &pool->taken_places, &key)) && k->taken_by == block->addr) {
        vp_place_close(pool, k);
        vp_place_open(pool, k);
    }
}
