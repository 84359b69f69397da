/* Fresh chunks: how large, and how many. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/fresh.h"

#include "pool/slack.h"
#include "pool/tight.h"

#include <errno.h>

/* Sizes of handles in the large zone. A remap costs by the handle, not by the byte; but a block that covers a part of a
 * handle pins all of it. So handles grow with the request: with 1/128 of it a remap takes some 128 calls at any size.
 * With 1/256 it takes half as many calls again, and wastes a tenth less; 1/64 saves a third of the calls and wastes
 * twice as much. Below 8 MiB calls become too many: 4 MiB doubles them. Measured on recorded programs (scripts/bench
 * prints the frontier) and on training (286, 183 and 125 ms of driver time for 1.0044, 1.0049 and 1.0097 times what was
 * live). */
enum { HANDLE_SHARE = 128, HANDLE_LEAST = 8 << 20 };

/* Larger requests have larger handles in programs that may never repeat: to move 8 GiB of what other requests had left
 * took 400 handles, and 20 ms; it takes 130. */
enum { HUGE = 1 << 30, HUGE_SHARE = 32 };

/* In a small program a handle of HANDLE_LEAST that a block covers in part is much of what is alive. There it is at most
 * 1/SMALL_SHARE of that. Measured on programs that never repeat: 1.27 to 1.29 times what is alive instead of 1.31 to
 * 1.38, and 1.14 to 1.16 instead of 1.20 to 1.25. */
enum { SMALL_SHARE = 64 };

/* From so many largest handles on a range ends in small handles even if large ones would fit exactly. With a lower
 * number a program that grows step by step ends up with small handles only. */
enum { ENDS_FROM = 3 };

/* From so many handles and bytes on the device is first asked whether it has all of them. To create some and then fail
 * takes long, as the driver clears each: an H200 with half its memory free took 0.7 s for each request of all of it. */
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

/* The least size of a request's largest handles. All programs are small at first; whether they stay so shows later. */
static size_t least_handle(const struct vp_pool *pool, const struct vp_request *req) {
    const size_t share = (pool->mem.stats.live_bytes + req->size) / SMALL_SHARE;
    return vp_slack_small(pool) && share < HANDLE_LEAST ? share : HANDLE_LEAST;
}

size_t vp_fresh_handle(const struct vp_pool *pool, const struct vp_request *req, size_t fresh) {
    size_t size = pool->mem.granularity, most = req->size / HANDLE_SHARE;
    /* The kernel driver registers memory for networks and storage only if it lies in one handle. */
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
    /* Not so many handles that creating them takes long. */
    if (fresh / size > VP_FRESH_MOST && vp_fresh_may_be_few(pool))
        while (fresh / size > VP_FRESH_FEW)
            size *= 2;
    return size;
}

/* The largest handle to create for a new range. */
static size_t handle_of_range(const struct vp_pool *pool, const struct vp_harvest *h, size_t fresh) {
    size_t size = vp_fresh_handle(pool, h->req, fresh);
    while (h->few && fresh / size > VP_FRESH_FEW)
        size *= 2;
    return size;
}

int vp_fresh_assemble(struct vp_pool *pool, struct vp_harvest *h, size_t want, CUdeviceptr addr, size_t *built) {
    /* Compacts the chosen chunks in place: each pointer is written over a candidate that was read before. */
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
