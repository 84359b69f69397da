/*
 * Lanes: the fast path. Most frees are followed by a request for the same size on the same stream. What a stream frees is
 * therefore parked in its lane for a moment; taken from there, it costs neither a search nor a change of the regions, and
 * the library's lock is not taken: a lane has its own, which in a well-behaved program only one thread ever wants.
 *
 * To the rest of the pool a parked block is live. Before a request is served otherwise, its own lane is flushed: what it
 * holds becomes free memory for good, but for tiny blocks, of which there are many in most programs: whatever lies about in small
 * pieces serves as well, and only before a chunk is needed do they go too. If there is no free memory to be had at once, the other lanes are, before anything
 * else is tried; but those that serve their stream well may keep a little until memory is really short, so that threads which each
 * repeat themselves do not rob each other for ever of a few blocks too few for all. Live bytes are exact whenever a peak of
 * them is noted; in between they include what is parked.
 *
 * Who may touch what: of a block that a lane has once held (region.lane), the lane's lock guards whether it is live; the
 * rest is as for other blocks. The fast path does not even look at the region: neighbouring regions lie side by side in
 * memory, and another thread's block may be the neighbour. Order of locks: the library's, then a lane's. Under a lane's lock
 * runs no driver call but cuStreamGetId.
 *
 * A free that others might wait for records an event (see vp_pool_worth_event), which is dear, and the dearer the more
 * threads do it. A lane that serves one such block after another while nobody else asks for what it holds is *calm*, and parks
 * without one; should somebody ask after all, then for what is parked at that moment a later event must do.
 */
#ifndef VP_LANE_H
#define VP_LANE_H

#include "pool/pool.h"

/* Blocks parked: few, so that finding one is a glance. Blocks remembered: so that a free needs no look-up that others lock. */
enum { VP_LANE_PARKED = 32, VP_LANE_RECENT = 128, VP_LANE_KINDS = 256 };

/* A block, as the fast path knows it. */
struct vp_lane_block {
    CUdeviceptr addr;
    struct vp_region *region;
    size_t asked;
    const void *owner;
    uint64_t serial;            /* of its present allocation; newer than the region's */
    bool event;                 /* its free is worth one, if others may want it */
};

/* Its lock guards all of it. What is atomic is looked at without it too, where a value of a moment ago will do: stored relaxed, under the lock. */
struct vp_lane {
    atomic_bool locked;
    bool listed;                /* on vp_pool.busy_lanes; whoever lists it, flushes it */
    atomic_uint count;          /* of parked */
    uint64_t id;                /* of its line; 0: it has none */
    struct vp_line *line;
    atomic_uint_least32_t number;   /* of its line */
    struct vp_pool *pool;
    struct vp_lane *next_busy;  /* vp_pool.busy_lanes */
    struct vp_list link;        /* vp_pool.lanes or spare_lanes */
    uint64_t serial, serial_end;    /* serials that may still be given, from the pool's */
    uint64_t allocs, frees;     /* not yet counted by the pool */
    size_t spent;               /* points of blocks that it gave out again, still among those of its line */
    atomic_uint calm;           /* requests for large blocks served since somebody else wanted what it held */
    atomic_uint in_vain;        /* blocks parked since a request was served; also stored under the library's lock alone */
    atomic_uint tiny;           /* how many of the parked ones are */
    size_t bytes;               /* parked, as asked for */
    _Atomic uint8_t kinds[VP_LANE_KINDS];   /* how many of the parked blocks have a tag of that kind: mostly there is none of the one asked for */
    uint16_t tag[VP_LANE_PARKED];   /* of parked blocks, oldest first: so that a glance finds one */
    uint8_t place[VP_LANE_PARKED];  /* in the same order, where in `parked` they are; then the places that are free */
    struct {
        struct vp_lane_block block;
        vp_cond cond;           /* only if an event was recorded at the free; else a later one will do for others */
    } parked[VP_LANE_PARKED];
    _Atomic CUdeviceptr recent_at[VP_LANE_RECENT];  /* live blocks that this lane gave out, by address; some are forgotten. 0: an empty place */
    struct vp_lane_block recent[VP_LANE_RECENT];    /* what it knows of each */
    char apart[64];             /* from what another thread writes */
};

/* ---- without the library's lock ---- */

/*
 * A block of exactly `asked` bytes for `owner` that the stream parked last. `stream` is looked at under the lane's lock: it must be the one that
 * the lane belongs to, and no capture may run. False: the slow way must decide. `out` is what the lane knows of the block.
 */
bool vp_lane_alloc(struct vp_lane *lane, CUstream stream, size_t asked, const void *owner, struct vp_lane_block *out);
/* Parks a live block that the lane gave out, if its free needs no event. */
enum vp_lane_answer {
    VP_LANE_ELSE,               /* the slow way must decide */
    VP_LANE_EVENT,              /* vp_lane_free_event() may do */
    VP_LANE_DONE
};
enum vp_lane_answer vp_lane_free(struct vp_lane *lane, CUstream stream, CUdeviceptr addr, struct vp_lane_block *out);

/* ---- under the library's lock ---- */

/* The lane of a line, made if need be; NULL: the policy has none, the line is of another device, or memory ran out. */
struct vp_lane *vp_lane_of(struct vp_pool *pool, struct vp_line *line);
/* Is the line's lane calm? */
bool vp_lane_calm(const struct vp_line *line);
/* Parks a live block that the lane gave out, with an event of its own. False: the slow way must decide. */
bool vp_lane_free_event(struct vp_lane *lane, CUstream stream, CUdeviceptr addr, struct vp_lane_block *out);
/* Parks a live block that `line` frees. `cond`: its point, if the free recorded an event (then passed over), else NULL. False: free it for good. */
bool vp_lane_park(struct vp_pool *pool, struct vp_region *block, struct vp_line *line, vp_cond *cond);
/* A block as vp_lane_alloc() would find, whatever it waits for; NULL: none. */
struct vp_region *vp_lane_unpark(struct vp_pool *pool, const struct vp_request *req);
/* Is the block live (and not parked)? If so, it leaves its lane: from here on the library's lock alone guards it. */
bool vp_lane_recall(struct vp_region *block);
/* The line whose lane holds the block: live to the pool, it is free to the program then. NULL: none. */
const struct vp_line *vp_lane_holding(const struct vp_region *block);
/* Frees for good what the line's lane holds, but for tiny blocks. */
void vp_lane_flush(struct vp_pool *pool, const struct vp_line *line);
enum vp_flush {
    VP_FLUSH_SOME,              /* no tiny blocks, and of lanes that serve their stream well none at all: those keep 32 MiB together */
    VP_FLUSH_MOST,              /* tiny ones too */
    VP_FLUSH_ALL
};
/* Frees for good what lanes hold, and counts what they did. False: no lane held anything. */
bool vp_lanes_flush(struct vp_pool *pool, enum vp_flush what);
/* A block that a lane gave up because a request of another stream wants one just like it: live to the pool, and nobody's. */
struct vp_handed {
    struct vp_region *region;   /* NULL: none */
    struct vp_line *line;       /* that freed it */
    vp_cond cond;
};
/*
 * As vp_lanes_flush(), for a request of a stream: if all that lanes give up is one block of the size that it asks for, with an event of its own, that is not
 * freed for good but handed out, for vp_handed_take() or vp_handed_settle().
 */
void vp_lanes_flush_for(struct vp_pool *pool, enum vp_flush what, const struct vp_request *req, struct vp_handed *out);
/* Makes it the request's, whose stream waits for it if it must: as if it had been freed for good and found again. On failure (see vp_cond_wait) nothing changed. */
int vp_handed_take(struct vp_pool *pool, struct vp_handed *handed, const struct vp_request *req);
/* Frees it for good, if there is one. */
void vp_handed_settle(struct vp_pool *pool, struct vp_handed *handed);
/* Counts what the lanes did and flushes nothing. Returns the bytes that they hold, as asked for. */
uint64_t vp_lanes_count(struct vp_pool *pool);
/* Bytes that lanes hold for an owner (NULL: for all), as asked for. */
uint64_t vp_lanes_parked(struct vp_pool *pool, const void *owner);
/* Returns when no call without the library's lock is under way that has not seen what was stored before. */
void vp_lanes_pass(struct vp_pool *pool);
/* The line ends (its stream can still be named): frees for good what it holds, and parks no more. */
void vp_lane_close(struct vp_pool *pool, struct vp_line *line);

#endif
