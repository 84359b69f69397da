/* The pool's own invariants, beside those of its memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/bare.h"
#include "pool/place.h"

static bool check_places(const struct vp_pool *pool, FILE *out) {
    struct vp_place *k;
    size_t used = 0;
    vp_list_each(k, &pool->place_used, used)
        used++;
    size_t sought = 0;
    for (int z = 0; z < VP_ZONES; z++)
        for (k = RB_MIN(vp_open_places, (struct vp_open_places *)&pool->open_places[z]); k;
             k = RB_NEXT(vp_open_places, &pool->open_places[z], k))
            sought += !k->taken_by;
    for (k = RB_MIN(vp_taken_places, (struct vp_taken_places *)&pool->taken_places); k;
         k = RB_NEXT(vp_taken_places, &pool->taken_places, k)) {
        const struct vp_region *block = vp_region_at(&pool->mem, k->taken_by);
        sought += block && block->addr == k->taken_by && block->state == VP_LIVE && block->takes_places;
    }
    for (int z = 0; z < VP_ZONES; z++)
        for (k = RB_MIN(vp_place_tree, (struct vp_place_tree *)&pool->places[z]); k;
             k = RB_NEXT(vp_place_tree, &pool->places[z], k))
            used--;
    if (sought != pool->place_count)
        vp_memory_breach(out, "a place may be free, or a live block lies in it that wakes it", NULL);
    if (!used && sought == pool->place_count && pool->place_count <= VP_PLACE_MOST)
        return true;
    vp_memory_breach(out, "places are found by size and by use, and are not too many", NULL);
    return false;
}

bool vp_pool_check(const struct vp_pool *pool, FILE *out) {
    bool sound = vp_memory_check(&pool->mem, out);
    sound &= vp_bare_check(pool, out);
    sound &= vp_bare_check_room(pool, out);
    return check_places(pool, out) && sound;
}
