/* Peers: which devices may access the memory of a device.
 *
 * Access applies to the device's whole memory: what one context or one memory pool opens to a peer is open in all of
 * it, until the last of them revokes it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include <errno.h>

int vp_peers_update(CUdevice dev) {
    struct vp_pool *pool = vp_state.pools[dev];
    const uint64_t peers = vp_peers_of(dev);
    int err = pool ? vp_memory_set_peers(&pool->mem, peers) : 0;
    if (!err)
        vp_imports_set_peers(dev, peers);
    return err;
}

static struct vp_peer *find(const struct vp_context *from, const struct vp_context *to) {
    struct vp_peer *peer;
    vp_list_each(peer, &vp_state.peers, link)
        if (peer->from == from && peer->to == to)
            return peer;
    return NULL;
}

bool vp_peers_reach(const struct vp_context *ctx, const struct vp_context *owner) {
    return ctx->device == owner->device || find(ctx, owner);
}

bool vp_peers_may(const struct vp_context *ctx, const struct vp_pool *pool, const struct vp_region *block) {
    const struct vp_mempool *mp = block->owner;
    return ctx->device == pool->mem.device ||
           (block->sync ? vp_peers_reach(ctx, block->context) : mp && mp->access >> ctx->device & 1);
}

static void remove_peer(struct vp_peer *peer) {
    vp_list_remove(&peer->link);
    vp_slab_free(&vp_state.peer_slab, peer);
}

static VP_LOCKED void withdraw(struct vp_peer *peer) {
    const CUdevice dev = peer->to->device;
    remove_peer(peer);
    if (vp_peers_update(dev))
        vp_log(VP_LOG_WARN, "access to the memory of device %d could not be revoked", (int)dev);
}

CUresult vp_api_peer_enabled(CUcontext handle) {
    if (!vp_enter())
        return CUDA_SUCCESS;
    const struct vp_context *from = vp_context_current(&vp_state.timelines),
                            *to = vp_context_get(&vp_state.timelines, handle);
    struct vp_peer *peer = from && to ? find(from, to) : NULL;
    int err = from && to ? 0 : -ENOMEM;
    if (!err && !peer && from->device < VP_DEVICES && to->device < VP_DEVICES) {
        if ((peer = vp_slab_alloc(&vp_state.peer_slab))) {
            *peer = (struct vp_peer){.from = from, .to = to};
            vp_list_append(&vp_state.peers, &peer->link);
        }
        err = peer ? vp_peers_update(to->device) : -ENOMEM;
        if (err && peer)
            remove_peer(peer);
    }
    CUresult res = vp_result(err, to ? vp_state.pools[to->device] : NULL, NULL);
    vp_leave();
    return res;
}

void vp_api_peer_disabled(CUcontext handle) {
    if (!vp_enter())
        return;
    const struct vp_context *from = vp_context_current(&vp_state.timelines),
                            *to = vp_context_get(&vp_state.timelines, handle);
    struct vp_peer *peer = from && to ? find(from, to) : NULL;
    if (peer)
        withdraw(peer);
    vp_leave();
}

void vp_peers_forget(const struct vp_context *ctx) {
    struct vp_peer *peer, *next;
    vp_list_each_safe(peer, next, &vp_state.peers, link)
        if (peer->from == ctx || peer->to == ctx)
            withdraw(peer);
}
