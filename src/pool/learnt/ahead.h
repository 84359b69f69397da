/* A plan in use: what an earlier run of the program has learnt (learnt.h).
 *
 * The plan's addresses in the large and the small zone are *building* (memory.h) from the beginning on: nobody else
 * takes them. A *builder* makes handles there, ahead of the program and in the order in which it will want them: a
 * thread in a process, or whoever models one. It takes the lock to choose what to make (vp_ahead_begin) and to hand
 * over what it has made (vp_ahead_end), and makes it without (vp_ahead_make). What was handed over is free memory
 * like any other.
 *
 * Requests are followed: of the plan's next ones, up to 64 ahead, the first of the right size and not seen yet is
 * taken to be this one, and its place comes first. It is taken if it is free and may be used; where its handles were
 * not made yet, they are made there and then. A program that is out of step is looked up by its last eight sizes,
 * anywhere in the plan: so it goes round and round in the steps of a training.
 *
 * A program that does something else pays little: nothing is made ahead of it but at the very beginning, and what was
 * not made goes back to being a hole. One that began as the plan's did and goes on with other sizes will need as much
 * memory: the builder goes on, in handles that are of use for any size. All rules of who may have which bytes are those
 * of any other memory.
 *
 * The caller holds the library's lock, where nothing else is said. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/learnt/learnt.h"
#include "pool/pool.h"

/* Requests looked ahead for one of the right size; and the last ones by which a place in the plan is found. */
enum { VP_AHEAD_LOOK = 64, VP_AHEAD_GRAM = 8 };

struct vp_ahead {
    struct vp_pool *pool;
    struct vp_learnt learnt;
    struct vp_learnt_device plan;              /* the part that is used; its arrays are `learnt`'s */
    size_t bytes;                              /* of this and of what lies behind it: `placed`, `built` and `grams` */
    CUdeviceptr base[VP_ZONES], end[VP_ZONES]; /* the plan's addresses; 0: none */
    size_t most;                               /* held by its handles, or by its run if that is less */
    bool trusted;                              /* it is this program's, as far as can be told */
    bool kin;                                  /* the program began as the plan's did, whatever it does by now */
    /* ---- the program ---- */
    uint32_t at;                   /* no request before that is looked for */
    uint32_t next_request;         /* behind the last that came */
    uint64_t taken;                /* bit i: request at + i has come already */
    uint64_t history;              /* bit 0: the last request had its place; bit 1: the one before; and so on */
    uint64_t requests;             /* of the large zone so far */
    uint64_t begun;                /* before it began the plan anew, or for the first time */
    uint64_t found;                /* that the plan knew */
    uint64_t served;               /* that had their places */
    uint64_t lacking;              /* whose handles were not there in time */
    uint64_t sizes[VP_AHEAD_GRAM]; /* of the last ones, by their numbers */
    uint64_t *placed;              /* bits: slots that are places of the pool by now */
    uint32_t *grams;               /* number of the last of eight requests, plus 1, by the hash of their sizes */
    /* ---- the builder ---- */
    uint32_t *built;               /* of each run: handles made, or passed by */
    size_t next;                   /* the first run with some to make */
    size_t small;                  /* bytes that the program was faster to make for small blocks */
    unsigned held_back;            /* by so many that lack memory, or want none to be made: nothing is begun */
    bool under_way;                /* the builder has some in its hands */
    CUdeviceptr way, way_end;      /* and where */
    bool ended;                    /* nothing more is made */
    uint64_t returned;             /* as far as it has seen: vp_memory_stats.planned_returned */
    uint64_t resting;              /* nothing is made before there were so many requests */
    unsigned refusals, idle_looks; /* of its thread, at a program out of step */
    uint64_t background_ns, background_calls; /* of the builder, in the driver */
};

/* Begins to use the part of a plan that is for the pool's device. `learnt` passes over: it is finished with the plan,
 * or at once if this fails. 0; -ENOENT: there is no such part; -EINVAL: it does not suit the device; -ENOMEM. */
int vp_ahead_start(struct vp_pool *pool, struct vp_learnt *learnt, bool trusted) __attribute__((cold));
void vp_ahead_finish(struct vp_ahead *ahead) __attribute__((cold));

/* ---- the program ---- */

/* The place that the plan has for a request, free memory now; none if it has none, or that is taken. */
struct vp_fit vp_ahead_find(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* Its place is not to be had. Is the block to get memory of its own, beside the plan? It would stay for long, or for
 * good, in the way of all that the plan has where it came to lie; and it is small. */
bool vp_ahead_keep_apart(const struct vp_pool *pool, const struct vp_request *req);
/* If its place is not made yet, and the builder has that in its hands, or other memory, beside which none is made:
 * waits for that. True: it has waited. */
bool vp_ahead_await(struct vp_pool *pool, const struct vp_request *req);
/* It was served, there or elsewhere. */
void vp_ahead_served(struct vp_pool *pool, const struct vp_request *req, CUdeviceptr addr);

/* Did it do just what the plan's did, so that there is nothing new to be learnt? */
bool vp_ahead_fitted(const struct vp_ahead *ahead);
/* Bytes of handles that were made ahead and that something ever lay in, as far as they are held still. */
size_t vp_ahead_used_bytes(const struct vp_pool *pool);
/* Does the program do what the plan's did? */
enum vp_ahead_step { VP_AHEAD_UNKNOWN, VP_AHEAD_IN_STEP, VP_AHEAD_OUT_OF_STEP };
enum vp_ahead_step vp_ahead_in_step(const struct vp_ahead *ahead);
/* Would a block of `size` bytes, the plan's request `number` - 1, stay, and may it have memory beside the plan? */
bool vp_ahead_keeps_apart(const struct vp_ahead *ahead, uint32_t number, size_t size);
/* Is so much to be made for a small request? What it took from a place would lack there, and that block lie where
 * others are to come. */
bool vp_ahead_keeps_places(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* Just that, of late? */
bool vp_ahead_is_exact(const struct vp_ahead *ahead);

/* ---- the builder ---- */

enum { VP_AHEAD_BATCH = 16 };

/* Handles to be made, side by side. */
struct vp_ahead_batch {
    CUdeviceptr addr;
    size_t size;                /* of each */
    unsigned count;             /* wanted; once they were made: there are */
    unsigned each;              /* handles of the plan in one */
    unsigned parts;             /* or one of the plan in so many */
    size_t run;                 /* of the plan */
    bool bare, short_of;        /* in bare segments; the device, or the driver, refused some */
    struct vp_context *context; /* to ask what is free, and kept from ending; NULL: not to be asked */
    CUmemAllocationProp prop;
    uint64_t devices; /* that they are opened to, one bit each */
    CUmemGenericAllocationHandle handles[VP_AHEAD_BATCH];
    uint64_t ns, calls;
};

/* Is there something to be made now? It is the builder's, then, and what lies there is to be handed over. */
bool vp_ahead_begin(struct vp_ahead *ahead, struct vp_ahead_batch *batch);
/* Without the lock: makes and maps them; fewer, if the device is short. */
void vp_ahead_make(const struct vp_driver *drv, struct vp_ahead_batch *batch);
/* Hands them over. `background`: the program's own threads did not wait for them. */
void vp_ahead_end(struct vp_ahead *ahead, const struct vp_ahead_batch *batch, bool background);
/* Nothing more is made: what was not becomes holes. Not while a batch is under way. */
void vp_ahead_stop(struct vp_ahead *ahead);
/* Is anything left to be made, now or later? */
static inline bool vp_ahead_is_open(const struct vp_ahead *ahead) {
    return ahead && !ahead->ended;
}
/* Are [addr, end) of the large zone made? What is not is made now, if the program seems to be the plan's. */
bool vp_ahead_complete(struct vp_ahead *ahead, CUdeviceptr addr, CUdeviceptr end);
/* Whoever lacks memory, or wants all that is idle, waits for what the builder has in its hands, which counts nowhere
 * yet. True: it has waited. Nothing more is begun before vp_ahead_go_on(). */
bool vp_ahead_hold_back(struct vp_pool *pool) __attribute__((cold));
void vp_ahead_go_on(struct vp_pool *pool) __attribute__((cold));
/* Of the large zone: has nobody made some of that yet, though it is the builder's, or would be made for a request? */
bool vp_ahead_lacks(const struct vp_ahead *ahead, CUdeviceptr addr, CUdeviceptr end);
/* Has the builder some of that in its hands? */
bool vp_ahead_busy(const struct vp_ahead *ahead, CUdeviceptr addr, CUdeviceptr end);
