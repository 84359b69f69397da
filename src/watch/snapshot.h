/* The state of a pool at one moment: copied under the library's lock, read without it.
 *
 * The copy is quick (some ten nanoseconds a region) and in memory of its own, so writing it to a file delays nobody.
 * Streams are given as cuStreamGetId gives them; 0 stands for calls without a stream: cudaMalloc, and the barrier of a
 * cudaFree. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/lock.h"
#include "pool/slack.h"

struct vp_snap_space {
    CUdeviceptr base;
    size_t size;
    enum vp_zone_name zone;
};

/* A region; of a free, zombie or retired one, a stretch with one fence. */
struct vp_snap_region {
    CUdeviceptr addr;
    size_t size;
    enum vp_region_state state;
    size_t asked;    /* live: bytes the program asked for */
    uint64_t stream; /* live: that asked for it; free, zombie, retired: that freed it */
    uint32_t stack;  /* live: who asked for it, by number (stack_table.h); 0: not known */
    bool spilled;    /* live: some of it lies in the host's memory */
    bool fresh; /* free, zombie, retired: nobody has had it, or it never waited for anything; `stream` means nothing */
    uint64_t age;         /* free, zombie, retired: how many blocks have been freed since */
    uint32_t wait, waits; /* free, zombie, retired: its unmet points are so many of vp_snapshot.waits, from `wait` on */
};

/* A chunk, at its current mapping. */
struct vp_snap_chunk {
    CUdeviceptr addr;
    size_t size;
    size_t free;     /* filled in by the digest: bytes that are not live */
    uint32_t blocks; /* and how many live blocks lie in it */
};

/* A growing array in anonymous memory. */
struct vp_snap_array {
    void *items;
    size_t count, bytes; /* used, and to be had */
    bool failed;
};

struct vp_snapshot {
    CUdevice device;
    size_t granularity;
    struct vp_memory_stats stats; /* with what caches have done */
    struct vp_timeline_stats timelines;
    struct vp_slack_state slack;
    uint64_t asleep;  /* of a pause: not held until it is over */
    uint64_t leaving; /* memory of the host whose blocks are freed, until work on it is over */
    uint64_t bare_live, addressed,
        peak_addressed;           /* of bare segments: live there, and their addresses; 0: there were none */
    struct vp_snap_array spaces;  /* of struct vp_snap_space, in address order */
    struct vp_snap_array regions; /* of struct vp_snap_region, in address order */
    struct vp_snap_array
        chunks;    /* of struct vp_snap_chunk, in address order until the digest, then those mapped nowhere */
    size_t spares; /* how many these are */
    struct vp_snap_array waits; /* of uint64_t: ids of streams */
};

/* The stream id that snapshots use for a timeline's id. */
uint64_t vp_snapshot_stream(uint64_t timeline_id);

/* Takes a snapshot under the library's lock; first frees what caches hold. No driver call. 0, or -ENOMEM: it is empty.
 */
int vp_snapshot_take(struct vp_pool *pool, struct vp_snapshot *out) VP_LOCKED;
void vp_snapshot_finish(struct vp_snapshot *snap);

/* Blocks whose sizes have the same highest bit. */
struct vp_snap_sizes {
    uint64_t live, live_bytes; /* by and in what was asked for */
    uint64_t free, free_bytes; /* free neighbours count as one, whatever they wait for */
};

/* Chunks of one size. */
struct vp_snap_kind {
    size_t size;
    uint64_t count, wholly_free;
};

struct vp_snap_waited {
    uint64_t stream, bytes;
};

enum { VP_SNAP_WORST = 8 };

/* Every byte held is live, or lost in one of these ways:
 *   internal  the rest of a live block, by rounding
 *   pinned    free, in a chunk that a live block lies in too
 *   pending   in a wholly free chunk of which some part waits for a stream, or that a range is being built of
 *   idle      in a wholly free chunk that waits for nothing, or is mapped nowhere
 *   cached    in a page of a bare segment, kept for the cache that has it, and in no block of it */
struct vp_digest {
    uint64_t internal, pinned, pending, idle, cached;
    uint64_t free_bytes;
    uint64_t live_blocks;
    uint64_t pinned_chunks;
    size_t largest_free;                       /* stretch that waits for nothing */
    size_t largest_block;                      /* that fits into one, where blocks of its size go */
    struct vp_snap_sizes sizes[64];            /* by the place of the highest bit */
    struct vp_snap_chunk worst[VP_SNAP_WORST]; /* chunks in which most is pinned, the most first; `size` 0: no more */
    struct vp_snap_waited
        waited[VP_SNAP_WORST]; /* streams that most bytes wait for, the most first; `bytes` 0: no more */
};

/* Sums up the snapshot, and sorts the chunks by size. Bytes that only `stream` waits for count as waiting for nothing
 * (for a request on that stream); UINT64_MAX: no such stream. */
void vp_snapshot_digest(struct vp_snapshot *snap, uint64_t stream, struct vp_digest *out);
/* After the digest: reads the chunks of one size from `*at` on, and advances it. False: there are no more. */
bool vp_snapshot_kind(const struct vp_snapshot *snap, size_t *at, struct vp_snap_kind *out);
