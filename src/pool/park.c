/*
 * Parking: most frees are followed by a request for the same size on the same stream. A freed block is therefore kept as it is for a moment; taken
 * again, it costs neither a search nor a change of the regions. A request that finds nothing parked first frees all that is parked for good, so every
 * other choice is made as if there were no parking, and no memory is hidden from anybody.
 */
#include "policy/policy.h"

bool vp_park(struct vp_pool *pool, struct vp_region *block, struct vp_line *line, vp_cond *cond) {
    struct vp_share *share = pool->policy->parks && !block->sync ? vp_share_of(pool, line) : NULL;
    if (!share)
        return false;
    if (share->parked_count == VP_PARKED_MOST) {
        struct vp_region *oldest = share->parked[0];
        vp_cond its = oldest->parked;
        for (unsigned i = 1; i < VP_PARKED_MOST; i++)
            share->parked[i - 1] = share->parked[i];
        share->parked_count--;
        vp_region_release(pool, oldest, &its);
    }
    block->state = VP_PARKED;
    block->parked = *cond;
    *cond = (vp_cond){ 0 };
    if (!share->parked_count)
        vp_list_append(&pool->parking, &share->parking);
    share->parked[share->parked_count++] = block;
    return true;
}

struct vp_region *vp_unpark(struct vp_pool *pool, const struct vp_request *req) {
    struct vp_share *share = req->line && req->line->context->device == pool->device ? req->line->share : NULL;
    for (unsigned i = share ? share->parked_count : 0; i-- > 0;) {
        struct vp_region *r = share->parked[i];
        if (r->size != req->size)
            continue;
        share->parked_count--;
        for (unsigned j = i; j < share->parked_count; j++)
            share->parked[j] = share->parked[j + 1];
        if (!share->parked_count)
            vp_list_remove(&share->parking);
        vp_cond_clear(pool->lines, &r->parked);
        vp_fit_go_live(pool, r, req);
        return r;
    }
    return NULL;
}

void vp_park_flush(struct vp_pool *pool) {
    while (!vp_list_empty(&pool->parking)) {
        struct vp_share *share = vp_container_of(pool->parking.next, struct vp_share, parking);
        for (unsigned i = 0; i < share->parked_count; i++) {
            vp_cond cond = share->parked[i]->parked;
            vp_region_release(pool, share->parked[i], &cond);
        }
        share->parked_count = 0;
        vp_list_remove(&share->parking);
    }
}
