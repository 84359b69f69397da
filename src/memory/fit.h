/* A request: which free bytes it may use, and how they become its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/region.h"

/* The caller fills in all members that are not marked. */
struct vp_request {
    size_t asked;                 /* bytes, at least 1 */
    size_t size, align;           /* set by the policy's layout: bytes to take, and alignment of the first */
    enum vp_zone_name zone;       /* set by the policy's layout */
    struct vp_timeline *timeline; /* the stream; NULL: usable by anyone at once (cudaMalloc) */
    struct vp_context *context;
    void *owner;
    enum {
        VP_WAITS_NEVER, /* nobody waits */
        VP_WAITS_HOST,  /* the host waits, for a bounded time, before memory is created */
        VP_WAITS_LATE,  /* the stream waits on the GPU, when no memory can be created */
        VP_WAITS_EARLY, /* the stream waits on the GPU, before memory is created */
    } waits;            /* for what other streams have freed */
    bool alone, apart;  /* nothing else may lie in its handles (alone), even if it then gets no memory (apart) */
    bool whole;         /* if all of it is created, it is one handle */
    bool impatient;     /* no host wait: the last one ran out of time */
    bool pressed;       /* no memory could be created: late waits are due (also set on the way) */
    /* NULL, or the memory that is asked: while there is other memory, what another stream freed is taken only behind a
     * queued wait or after the program synchronised, not because it was seen to be over. Only with a timeline. */
    const struct vp_memory *strict;
    /* Set with -EAGAIN: wait for it on the host without the lock, vp_event_put() it, retry. NULL: wait for any work. */
    struct vp_event *await;
};

enum vp_usable {
    VP_USE_READY,    /* without a wait */
    VP_USE_WAIT,     /* also by a wait of the stream on the GPU, if nothing outside the GPU can hold that up */
    VP_USE_WAIT_ANY, /* by any wait for the event of a free itself */
    VP_USE_PENDING,  /* whatever it waits for, as the host might wait for it. Only for questions, not to take bytes */
};

struct vp_fit {
    struct vp_region *region; /* NULL: none */
    CUdeviceptr addr;
};

bool vp_piece_usable(const struct vp_piece *p, const struct vp_request *req, enum vp_usable use);
/* May the request use all bytes of [addr, end) of the free region? */
bool vp_range_usable(const struct vp_region *r, CUdeviceptr addr, CUdeviceptr end, const struct vp_request *req,
                     enum vp_usable use);
/* Best fit: the smallest free region with a usable run that is long enough; of equal ones, the lowest. */
struct vp_fit vp_fit_find(struct vp_memory *mem, const struct vp_request *req, enum vp_usable use);
/* pin.c. Bytes of wholly free chunks that the request, placed there, takes from requests for whole chunks. */
size_t vp_fit_pins(const struct vp_memory *mem, const struct vp_request *req, struct vp_fit fit);
/* Are they many times the request's size? */
bool vp_fit_pins_much(const struct vp_memory *mem, const struct vp_request *req, struct vp_fit fit);
/* A fit that takes less; `fit` if there is none. */
struct vp_fit vp_fit_pin_less(const struct vp_memory *mem, const struct vp_request *req, enum vp_usable use,
                              struct vp_fit fit);
/* Is a live block the last one in its chunks, which are wholly free without it? */
bool vp_pin_is_last(const struct vp_memory *mem, const struct vp_region *block);
/* A fit that the host could wait for (vp_fence_host_waitable); `*fence`: of its first piece that is not ready. */
struct vp_fit vp_fit_host(struct vp_memory *mem, const struct vp_request *req, const struct vp_fence **fence);
/* Is any chunk free from end to end, whatever it waits for? Searches the free regions that are large enough for the
 * smallest chunk, since there may be many small ones beside live blocks; or the chunks, if they are fewer. */
bool vp_fit_has_chunk(const struct vp_memory *mem);
/* Asks the timelines what has completed, and refiles the regions that this changes. True if anything did. */
bool vp_fit_refresh(struct vp_memory *mem);
/* A timeline ends: what it had freed before the program waited for it can be told apart afterwards, too. */
void vp_fit_close_timeline(struct vp_memory *mem, const struct vp_timeline *timeline);
/* Makes the stream wait for a fence if it must, and counts that. Returns as vp_fence_wait(). */
int vp_fit_await(struct vp_memory *mem, const struct vp_fence *fence, struct vp_timeline *timeline);
/* Makes the stream wait for what [addr, end) of a free region still needs. 0 or -EIO. */
int vp_fit_wait(struct vp_memory *mem, struct vp_region *r, CUdeviceptr addr, CUdeviceptr end,
                const struct vp_request *req);
/* ---- live.c: what they become ---- */

/* Waits if need be, and makes the bytes of a fit live. 0 or -EIO, with nothing changed. */
int vp_fit_take(struct vp_memory *mem, struct vp_fit fit, const struct vp_request *req, struct vp_region **out);
/* Makes a region live for this request. */
void vp_fit_go_live(struct vp_memory *mem, struct vp_region *r, const struct vp_request *req);
/* Makes free memory of a live block that is in no cache, behind `fence` (whose points pass over). */
void vp_region_release(struct vp_memory *mem, struct vp_region *block, struct vp_fence *fence);
/* Counts a live block in (`taken`) or out. */
void vp_region_account(struct vp_memory *mem, const struct vp_region *r, bool taken);
