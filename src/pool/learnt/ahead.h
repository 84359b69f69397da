/* A plan in use: what an earlier run of the program has learnt (learnt.h).
 *
 * The plan's addresses in the large and small zones are *building* (memory.h) from the beginning: nobody else takes
 * them. A *builder* creates handles there, ahead of the program and in the order in which it will need them. It is a
 * thread of the process, or whatever models one. It chooses what to make under the lock (vp_ahead_begin), makes it
 * without the lock (vp_ahead_make), and hands it over under the lock (vp_ahead_end). Then it is free memory like any
 * other.
 *
 * Requests are followed: among the plan's next 64 requests each is taken to be the one of its size that was not seen
 * yet and is nearest to where the program is, and the place of that is tried first. It is taken if it is free and
 * usable; if its handles are not made yet, they are made at once. If there is no such request, the program's last eight
 * sizes are looked up anywhere in the plan: so it goes round and round in the steps of a training.
 *
 * A program that does something else pays little: nothing is made ahead of it except at the very beginning, and what
 * was not made becomes a hole again. A program that begins as the plan does and goes on with other sizes will need as
 * much memory: the builder goes on, with handles that suit any size. The rules of who may have which bytes are those of
 * all other memory.
 *
 * The caller holds the library's lock, unless stated otherwise. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/learnt/learnt.h"
#include "pool/pool.h"

/* LOOK: how many of the plan's next requests are searched for one of the right size. GRAM: sizes that tell where. */
enum { VP_AHEAD_LOOK = 64, VP_AHEAD_GRAM = 8 };

struct vp_ahead {
    struct vp_pool *pool;
    struct vp_learnt learnt;
    struct vp_learnt_device plan;              /* the part for this device; its arrays are those of `learnt` */
    size_t bytes;                              /* of this struct and of `placed`, `built` and `grams` behind it */
    CUdeviceptr base[VP_ZONES], end[VP_ZONES]; /* the plan's addresses in each zone; 0: none */
    size_t most;                               /* bytes of the plan's handles, or held by its run if that is less */
    bool trusted;                              /* the plan is this program's, as far as can be told */
    bool kin;                                  /* the program began as the plan does, whatever it does by now */
    /* ---- the program ---- */
    uint32_t at;                   /* no earlier request is looked for */
    uint32_t next_request;         /* the one after the request that came last */
    uint64_t taken;                /* bit i: request `at` + i has come already */
    uint64_t history;              /* one bit a request, the last one lowest: did it get its place? */
    uint64_t requests;             /* requests of the large zone so far */
    uint64_t begun;                /* value of `requests` when it last began the plan from its start */
    uint64_t found;                /* requests that the plan knew */
    uint64_t served;               /* requests that got their places */
    uint64_t lacking;              /* requests whose handles were not there in time */
    uint64_t sizes[VP_AHEAD_GRAM]; /* of the last requests, by their numbers modulo VP_AHEAD_GRAM */
    uint64_t *placed;              /* one bit a slot: it is a place of the pool by now */
    uint32_t *grams; /* by the hash of eight sizes in a row: number of the last request of these, plus 1 */
    /* ---- the builder ---- */
    uint32_t *built;          /* for each run: handles made or skipped */
    size_t next;              /* the first run with handles left to make */
    size_t next_again;        /* the first of the plan's `agains` with handles left to map */
    uint32_t mapped_again;    /* of its handles, mapped or skipped */
    size_t small;             /* bytes that the program itself created for small blocks before the builder */
    unsigned held_back;       /* callers of vp_ahead_hold_back() at work: nothing new is begun */
    bool under_way;           /* the builder is making something */
    CUdeviceptr way, way_end; /* its addresses */
    bool ended;               /* nothing more is made */
    uint64_t returned;        /* the last vp_memory_stats.planned_returned it has seen */
    uint64_t resting;         /* nothing is made before `requests` reaches this */
    /* Batches that were refused; looks of the builder's thread while the program was out of step. */
    unsigned refusals, idle_looks;
    uint64_t background_ns, background_calls; /* time and number of the builder's driver calls */
};

/* Begins to use the part of a plan that is for the pool's device. `learnt` passes over; on failure it is finished at
 * once. 0; -ENOENT: there is no such part; -EINVAL: it does not suit the device; -ENOMEM. */
int vp_ahead_start(struct vp_pool *pool, struct vp_learnt *learnt, bool trusted) __attribute__((cold));
void vp_ahead_finish(struct vp_ahead *ahead) __attribute__((cold));

/* ---- the program ---- */

/* The plan's place for a request, as free memory; none if the plan has none or it is taken. */
struct vp_fit vp_ahead_find(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use);
/* The request's place is taken. Is its block to get memory beside the plan? Only if it is small, and would stay for
 * long or for good, in the way of what the plan has wherever it lay. */
bool vp_ahead_keep_apart(const struct vp_pool *pool, const struct vp_request *req);
/* If its place is not made yet and the builder is at work, there or elsewhere, which keeps others from making anything:
 * waits for the builder. True: it has waited. */
bool vp_ahead_await(struct vp_pool *pool, const struct vp_request *req);
/* The request was served at `addr`, in its place or elsewhere. */
void vp_ahead_served(struct vp_pool *pool, const struct vp_request *req, CUdeviceptr addr);

/* Did it do just what the plan's did, so that there is nothing new to be learnt? */
bool vp_ahead_fitted(const struct vp_ahead *ahead);
/* Bytes of handles made ahead that anything ever lay in, and that are still held. */
size_t vp_ahead_used_bytes(const struct vp_pool *pool);
/* Does the program do what the plan's run did? */
enum vp_ahead_step { VP_AHEAD_UNKNOWN, VP_AHEAD_IN_STEP, VP_AHEAD_OUT_OF_STEP };
enum vp_ahead_step vp_ahead_in_step(const struct vp_ahead *ahead);
/* Would a block of `size` bytes, for the plan's request `number` - 1, stay, and may it get memory beside the plan? */
bool vp_ahead_keeps_apart(const struct vp_ahead *ahead, uint32_t number, size_t size);
/* Are `fresh` bytes to be created for a small request? Otherwise it would take them from a place that others need, and
 * lie where others are to come. */
bool vp_ahead_keeps_places(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* Has the program lately done exactly that? */
bool vp_ahead_is_exact(const struct vp_ahead *ahead);

/* Do large blocks come in bare segments as they came in the plan's run? Or did they so at the beginning? Or, nearly,
 * from the beginning to the end, and no more? How many have come? */
enum vp_ahead_step vp_ahead_blocks_in_step(const struct vp_ahead *ahead);
bool vp_ahead_blocks_kin(const struct vp_ahead *ahead);
bool vp_ahead_blocks_fitted(const struct vp_ahead *ahead);
/* Did they come so as far as the program went, which is less than half of the way? */
bool vp_ahead_blocks_cut_short(const struct vp_ahead *ahead);
uint32_t vp_ahead_blocks(const struct vp_ahead *ahead);

/* ---- the builder ---- */

enum { VP_AHEAD_BATCH = 16 };

/* A batch of equal handles to be made side by side. */
struct vp_ahead_batch {
    CUdeviceptr addr;
    size_t size;                /* of each handle, bytes */
    unsigned count;             /* wanted; after vp_ahead_make(): made */
    unsigned each;              /* handles of the plan made as one */
    unsigned parts;             /* or parts in which one handle of the plan is made */
    size_t run;                 /* its number in the plan */
    bool bare, short_of;        /* in a bare segment; the device or the driver refused some */
    bool again;                 /* nothing is created: the handles are mapped at `addr`, too */
    struct vp_context *context; /* to ask for free memory in, kept from ending; NULL: do not ask */
    CUmemAllocationProp prop;
    uint64_t devices; /* devices to open them to, one bit each */
    CUmemGenericAllocationHandle handles[VP_AHEAD_BATCH];
    uint64_t births[VP_AHEAD_BATCH]; /* again: of the handles' chunks (vp_chunk.birth) */
    uint64_t ns, calls;
};

/* ahead_again.c. The same for what is to be mapped again: begin: before the run of handles number `run` is made. */
bool vp_ahead_again_begin(struct vp_ahead *ahead, size_t run, struct vp_ahead_batch *batch);
void vp_ahead_again_make(const struct vp_driver *drv, struct vp_ahead_batch *batch);
unsigned vp_ahead_again_end(struct vp_ahead *ahead, const struct vp_ahead_batch *batch);
/* Turns addresses of a bare segment, or of none yet, into a building range for `count` handles of `size` bytes, if they
 * are a hole, and each handle is a page or a slot. */
bool vp_ahead_take_bare(struct vp_pool *pool, CUdeviceptr addr, size_t size, size_t count);

/* Is there something to make now? True: the batch is the builder's, and must be handed over with vp_ahead_end(). */
bool vp_ahead_begin(struct vp_ahead *ahead, struct vp_ahead_batch *batch);
/* Creates and maps the batch, without the lock; fewer handles if the device has no more. */
void vp_ahead_make(const struct vp_driver *drv, struct vp_ahead_batch *batch);
/* Hands the batch over. `background`: no thread of the program waited for it. */
void vp_ahead_end(struct vp_ahead *ahead, const struct vp_ahead_batch *batch, bool background);
/* Ends the plan: what was not made becomes holes. Not while a batch is under way. */
void vp_ahead_stop(struct vp_ahead *ahead);
/* Is anything left to make, now or later? */
static inline bool vp_ahead_is_open(const struct vp_ahead *ahead) {
    return ahead && !ahead->ended;
}
/* Is all of [addr, end) in the large zone made? Makes what is missing now, if the program seems to follow the plan. */
bool vp_ahead_complete(struct vp_ahead *ahead, CUdeviceptr addr, CUdeviceptr end);
/* For callers that lack memory or want all that is idle: waits for the builder's batch, which does not count anywhere
 * yet. True: it has waited. Nothing new is begun before vp_ahead_go_on(). */
bool vp_ahead_hold_back(struct vp_pool *pool) __attribute__((cold));
void vp_ahead_go_on(struct vp_pool *pool) __attribute__((cold));
/* Is something of this, in the large zone, not made yet, but in the builder's hands or to be made for a request? */
bool vp_ahead_lacks(const struct vp_ahead *ahead, CUdeviceptr addr, CUdeviceptr end);
/* Is the builder at work on something of this? */
bool vp_ahead_busy(const struct vp_ahead *ahead, CUdeviceptr addr, CUdeviceptr end);
