/* Fresh chunks: how large, and how many. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/fresh.h"

#include "pool/slack.h"
#include "pool/tight.h"

#include <errno.h>

/* Handles of the large zone. A remap costs by the handle, not by the byte, and a handle that a block covers in part is
 * pinned whole: so the handle grows with the request. With one in 128 it is remapped in some 128 calls however large it
 * is. One in 256 makes half as many calls again and spares a tenth of the waste; one in 64 saves a third of them and
 * wastes twice as much. Below 8 MiB the calls become too many: 4 MiB doubles them. Measured on recorded programs
 * (scripts/bench prints the frontier) and on training (there 286, 183 and 125 ms of driver time for 1.0044, 1.0049
 * and 1.0097 times what was live). */
enum { HANDLE_SHARE = 128, HANDLE_LEAST = 8 << 20 };

/* Requests from this size on have larger handles in programs that may never repeat: 8 GiB of what other requests had
 * left behind were moved in 400 handles, at 20 ms, and are in 130. */
enum { HUGE = 1 << 30, HUGE_SHARE = 32 };

/* In small programs a handle of that size which a block covers in part is much of what is alive. There it is at most
 * such a share of that. Measured on programs that never repeat: 1.27 to 1.29 times what is alive instead of 1.31 to
 * 1.38, 1.14 to 1.16 instead of 1.20 to 1.25. */
enum { SMALL_SHARE = 64 };

/* Fresh bytes, in largest handles, from which on a range ends in small handles even where large ones come out even.
 * Lower, and a program that grows step by step ends up with small handles only. */
enum { ENDS_FROM = 3 };

/* Handles, and bytes, from which on it is asked first whether the device has all of them. To make what it has and fail
 * then takes long: the driver clears each, and an H200 whose half was free took 0.7 s for each request of all of it. */
enum { ASKED_FROM = 4, ASKED_BYTES = 1 << 30 };

bool vp_fresh_possible(struct vp_pool *pool, size_t bytes, size_t largest) {
    return bytes < ASKED_BYTES || bytes / ASKED_FROM < largest || vp_memory_possible(&pool->mem, bytes);
}

int vp_fresh_create(struct vp_pool *pool, size_t bytes, size_t largest, struct vp_chunk **out, size_t *count) {
    size_t n = 0, spared = bytes >= ENDS_FROM * largest ? pool->mem.granularity : 0;
    int err = vp_fresh_possible(pool, bytes, largest) ? 0 : -ENOMEM;
    while (bytes && !err) {
        size_t size = largest;
        if (bytes < largest || (n && bytes == largest))
            for (size = pool->mem.granularity; size * 2 + spared <= bytes; size *= 2)
                continue;
        err = vp_chunk_create(&pool->mem, size, false, &out[n]);
        if (!err) {
            n++;
            bytes -= size;
        }
    }
    *count = n;
    return err;
}

/* The least of the largest handles. Every program is small at first: whether it stays so is known a little later. */
static size_t least_handle(const struct vp_pool *pool, const struct vp_request *req) {
    const size_t share = (pool->mem.stats.live_bytes + req->size) / SMALL_SHARE;
    return vp_slack_small(pool) && share < HANDLE_LEAST ? share : HANDLE_LEAST;
}

size_t vp_fresh_handle(const struct vp_pool *pool, const struct vp_request *req, size_t fresh) {
    size_t size = pool->mem.granularity, most = req->size / HANDLE_SHARE;
    /* The kernel's part of the driver registers for networks and storage what lies in one handle, and refuses else. */
    if (req->whole && fresh >= req->size)
        return fresh;
    if (req->size >= HUGE && vp_slack_novel(pool))
        most = req->size / HUGE_SHARE;
    if (req->zone == VP_ZONE_SMALL || vp_tight(pool, req) || vp_slack_fine(pool, req, fresh))
        return size;
    const size_t coarse = vp_slack_handle(pool, req, fresh);
    const size_t least = least_handle(pool, req);
    most = vp_lesser(vp_greater(most, vp_greater(least, coarse)), pool->config.handle);
    while (size * 2 <= most)
        size *= 2;
    /* Not so many that to make them takes long. */
    if (fresh / size > VP_FRESH_MOST && vp_fresh_may_be_few(pool))
        while (fresh / size > VP_FRESH_FEW)
            size *= 2;
    return size;
}

/* The largest handle of fresh memory in a new range. */
static size_t handle_of_range(const struct vp_pool *pool, const struct vp_harvest *h, size_t fresh) {
    size_t size = vp_fresh_handle(pool, h->req, fresh);
    while (h->few && fresh / size > VP_FRESH_FEW)
        size *= 2;
    return size;
}

int vp_fresh_assemble(struct vp_pool *pool, struct vp_harvest *h, size_t want, CUdeviceptr addr, size_t *built) {
    /* The chosen chunks move up to the front of the same memory, each over what was read before. */
    struct vp_chunk **chunks = (struct vp_chunk **)h->list;
    size_t old = h->chosen, lacking = h->bytes < want ? want - h->bytes : 0, fresh = 0;
    int err = 0;
    for (size_t i = 0; i < old; i++)
        chunks[i] = h->list[i].chunk;
    if (lacking)
        err = vp_fresh_create(pool, lacking, handle_of_range(pool, h, lacking), chunks + old, &fresh);
    if (!err)
        err = vp_stitch_map(&pool->mem, chunks, old + fresh, addr);
    for (size_t i = 0; i < old && !err && (vp_slack_stays(pool, h->req) || vp_tight(pool, h->req)); i++)
        vp_mapping_settle(&pool->mem, chunks[i]);
    *built = old + fresh;
    while (err && fresh)
        vp_chunk_destroy(&pool->mem, chunks[old + --fresh]);
    return err;
}
