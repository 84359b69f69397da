/* The pool's own invariants, beside those of its memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare.h"
#include "pool/place.h"

static bool check_places(const struct vp_pool *pool, FILE *out) {
    struct vp_place *k;
    size_t used = 0;
    vp_list_each(k, &pool->place_used, used)
        used++;
    for (int z = 0; z < VP_ZONES; z++)
        for (k = RB_MIN(vp_place_tree, (struct vp_place_tree *)&pool->places[z]); k;
             k = RB_NEXT(vp_place_tree, &pool->places[z], k))
            used--;
    if (!used && pool->place_count <= VP_PLACE_MOST)
        return true;
    vp_memory_breach(out, "places are found by size and by use, and are not too many", NULL);
    return false;
}

bool vp_pool_check(const struct vp_pool *pool, FILE *out) {
    bool sound = vp_memory_check(&pool->mem, out);
    sound &= vp_bare_check(pool, out);
    return check_places(pool, out) && sound;
}
