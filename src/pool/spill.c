/* A block whose end, or all of it, lies in host memory: see spill.h.
 *
 * Such a block is not remembered: it becomes no place, and no stream cache keeps it. Host memory is slow, so the next
 * request of its size had better find the device's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/spill.h"

#include "memory/spill.h"
#include "pool/fresh.h"
#include "pool/harvest.h"
#include "pool/parking.h"

#include <errno.h>

/* Largest handle of host memory. Creating one takes its time by the byte (5 to 7 ms for 32 MiB), so that larger ones
 * save nothing; and unmapping and releasing a large one takes long at once. */
enum { HOST_HANDLE = 64 << 20 };

/* The chunks of a block: first the device's, then the host's. */
struct parts {
    struct vp_chunk **chunks;
    size_t old, count; /* those that existed before; all */
};

static void unmake(struct vp_pool *pool, struct parts *p) {
    while (p->count > p->old)
        vp_chunk_destroy(&pool->mem, p->chunks[--p->count]);
}

static int make_host(struct vp_pool *pool, size_t bytes, struct parts *p) {
    int err = 0;
    while (bytes && !err) {
        size_t size = HOST_HANDLE < pool->mem.granularity ? pool->mem.granularity : HOST_HANDLE;
        while (size > bytes)
            size /= 2;
        err = vp_chunk_create(&pool->mem, size, true, &p->chunks[p->count]);
        if (!err) {
            p->count++;
            bytes -= size;
        }
    }
    return err;
}

/* Collects the chunks: the chosen idle ones, new ones of the device as far as there are, host memory for the rest. */
static int gather(struct vp_pool *pool, struct vp_harvest *h, const struct vp_spill_room *room, struct parts *p) {
    const size_t most = room->device - h->bytes < room->fresh ? room->device - h->bytes : room->fresh;
    size_t lacking = h->req->size - h->bytes, fresh = 0, more = lacking < most ? lacking : most;
    int err = 0;
    /* Compacts the chosen chunks in place: each pointer is written over a candidate that was read before. */
    p->chunks = (struct vp_chunk **)h->list;
    for (size_t i = 0; i < h->chosen; i++)
        p->chunks[i] = h->list[i].chunk;
    p->old = p->count = h->chosen;
    more -= more % pool->mem.granularity;
    if (lacking - more > room->host)
        return -EDQUOT;
    if (more)
        err = vp_fresh_create(pool, more, vp_fresh_handle(pool, h->req, more), p->chunks + p->old, &fresh);
    for (size_t i = p->old; i < p->old + fresh; i++)
        lacking -= p->chunks[i]->size;
    p->count += fresh;
    if (err == -ENOMEM) /* another process was faster */
        err = lacking > room->host ? -EDQUOT : 0;
    if (!err)
        err = make_host(pool, lacking, p);
    if (err)
        unmake(pool, p);
    return err;
}

/* Sets size, zone and alignment, so that the block shares no chunk with anything. */
static int lay_out(struct vp_pool *pool, struct vp_request *req) {
    if (!pool->traits.gives || req->asked > SIZE_MAX / 4 || !vp_spill_possible(&pool->mem))
        return -EOPNOTSUPP;
    req->alone = true;
    req->zone = VP_ZONE_LARGE;
    req->align = pool->mem.granularity;
    req->size = vp_round_up(req->asked, pool->mem.granularity);
    return 0;
}

int vp_spill_alloc(struct vp_pool *pool, struct vp_request *req, const struct vp_spill_room *room,
                   struct vp_region **out) {
    struct vp_harvest h = {.req = req, .use = VP_USE_READY};
    struct vp_region *hole;
    struct parts parts;
    int err = lay_out(pool, req);
    if (!err)
        err = vp_pool_hole(pool, req->zone, req->size, true, &hole);
    if (err)
        return err;
    const CUdeviceptr addr = hole->addr;
    vp_parking_flush(pool, VP_FLUSH_ALL);
    vp_fit_refresh(&pool->mem);
    if (!vp_harvest_room(pool, &h, req->size))
        return -ENOMEM;
    const size_t device = room->device - room->device % pool->mem.granularity;
    if (device)
        vp_harvest(pool, &h, device < req->size ? device : req->size);
    if ((err = gather(pool, &h, room, &parts)))
        return err;
    bool spilled = parts.count && parts.chunks[parts.count - 1]->host;
    if ((err = vp_stitch_map(&pool->mem, parts.chunks, parts.count, addr))) {
        unmake(pool, &parts);
        return err;
    }
    err = vp_fit_take(&pool->mem, (struct vp_fit){vp_region_at(&pool->mem, addr), addr}, req, out);
    if (spilled && !err)
        vp_spill_went_live(&pool->mem, *out);
    else if (spilled) /* no memory to describe it: released at the next settling */
        pool->mem.exports_changed = true;
    if (!err)
        vp_pool_note_peak(pool->mem.stats.live_bytes, &pool->mem.stats.peak_live_bytes, pool, NULL);
    return err;
}

bool vp_spill_settle(struct vp_pool *pool) {
    vp_exports_settle(pool);
    return pool->mem.stats.spilled_bytes > pool->mem.spilled_live;
}
