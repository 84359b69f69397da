/* A request: which free bytes may it use, and how they become its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/region.h"

/* Fields that are not marked are the caller's to fill. */
struct vp_request {
    size_t asked;                 /* bytes, at least 1 */
    size_t size, align;           /* set by whoever lays it out: bytes taken, and where the first may lie */
    enum vp_zone_name zone;       /* so is this */
    struct vp_timeline *timeline; /* the stream; NULL: for anyone at once (cudaMalloc) */
    struct vp_context *context;
    void *owner;
    enum {
        VP_WAITS_NEVER, /* nobody waits */
        VP_WAITS_HOST,  /* the host does, before growing, for a bounded time */
        VP_WAITS_LATE,  /* the stream does on the GPU, when growing has failed */
        VP_WAITS_EARLY, /* the stream does on the GPU, before growing */
    } waits;            /* for what other streams have freed */
    bool alone, apart;  /* nothing else may lie in its handles, while there is memory; nor when there is none */
    bool whole;         /* what is made for it as a whole is one handle */
    bool impatient;     /* no host wait: the last one ran out of time */
    bool pressed;       /* growing failed: late waits are due (also set on the way) */
    const struct vp_memory *strict; /* not NULL, but the one asked: what another stream freed is not taken merely
                                       because it was seen over: a wait may be queued for it, or the program
                                       synchronises; while there is more. Only with a timeline */
    /* set for a retry */
    struct vp_event *await; /* -EAGAIN: wait for this on the host without the lock, vp_event_put() it, and ask again;
                               NULL: for pending work */
};

enum vp_usable {
    VP_USE_READY,     /* with no waiting at all */
    VP_USE_WAIT,      /* also by a wait of the stream on the GPU, while nothing outside can hold it up */
    VP_USE_WAIT_LATE, /* by any wait at a free's own point */
    VP_USE_PENDING, /* once what it waits for is over, whatever that is: the host might wait. Nothing may be taken so */
};

struct vp_fit {
    struct vp_region *region; /* NULL: none */
    CUdeviceptr addr;
};

bool vp_piece_usable(const struct vp_piece *p, const struct vp_request *req, enum vp_usable use);
/* May the request use all bytes of [addr, end) of the free region? */
bool vp_range_usable(const struct vp_region *r, CUdeviceptr addr, CUdeviceptr end, const struct vp_request *req,
                     enum vp_usable use);
/* Best fit: the smallest free region with a usable run that is long enough; of equals, the lowest. */
struct vp_fit vp_fit_find(struct vp_memory *mem, const struct vp_request *req, enum vp_usable use);
/* pin.c. Bytes of chunks, wholly free now, that a request there takes from those that want whole ones. */
size_t vp_fit_pins(const struct vp_memory *mem, const struct vp_request *req, struct vp_fit fit);
/* Are they many times its size? */
bool vp_fit_pins_much(const struct vp_memory *mem, const struct vp_request *req, struct vp_fit fit);
/* A fit that takes less; where there is none, that one. */
struct vp_fit vp_fit_pin_less(const struct vp_memory *mem, const struct vp_request *req, enum vp_usable use,
                              struct vp_fit fit);
/* Is a live block the last one in its chunks, which are wholly free without it? */
bool vp_pin_is_last(const struct vp_memory *mem, const struct vp_region *block);
/* A fit that the host could wait for (vp_fence_host_waitable); the condition of its first unmet piece in `*fence`. */
struct vp_fit vp_fit_host(struct vp_memory *mem, const struct vp_request *req, const struct vp_fence **fence);
/* Is any chunk free from end to end, whatever it waits for? Looks at free regions that are large enough for one alone,
 * as beside live blocks there may be any number of small ones; or at the chunks, where these are fewer. */
bool vp_fit_has_chunk(const struct vp_memory *mem);
/* Asks the timelines what has completed, and refiles the regions that this changes. True if anything did. */
bool vp_fit_refresh(struct vp_memory *mem);
/* Makes the stream wait for a condition if it must, and counts that. As vp_fence_wait(). */
int vp_fit_await(struct vp_memory *mem, const struct vp_fence *fence, struct vp_timeline *timeline);
/* Makes the stream wait for what [addr, end) of a free region still needs. 0 or -EIO. */
int vp_fit_wait(struct vp_memory *mem, struct vp_region *r, CUdeviceptr addr, CUdeviceptr end,
                const struct vp_request *req);
/* ---- live.c: what they become ---- */

/* Waits if need be, and makes the bytes of a fit live. 0 or -EIO, with nothing changed. */
int vp_fit_take(struct vp_memory *mem, struct vp_fit fit, const struct vp_request *req, struct vp_region **out);
/* The region is live now, for this request. */
void vp_fit_go_live(struct vp_memory *mem, struct vp_region *r, const struct vp_request *req);
/* A live block, in no cache, becomes free memory under `fence` (whose points pass over). */
void vp_region_release(struct vp_memory *mem, struct vp_region *block, struct vp_fence *fence);
/* A live block begins or ends to count among what is live. */
void vp_region_account(struct vp_memory *mem, const struct vp_region *r, bool taken);
