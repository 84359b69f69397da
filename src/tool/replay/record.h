/* A record of a replay, for pages and exports: where each block was, what was mapped when, what held bytes were lost to
 * while not live, and the driver calls.
 *
 * "At event i" is the moment after it. The life of a mapping is given as stretches [from, to) of events: one while it
 * is its chunk's current mapping, and one while it is not. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/array.h"
#include "tool/plan/numbers.h"
#include "tool/replay/engine.h"

struct vp_record_block {
    uint64_t addr, size; /* bytes taken; addr 0: not served by the pool */
};

struct vp_record_mapping {
    uint64_t addr, size;
    uint64_t home;     /* the address at which its chunk is at home: names the chunk */
    uint32_t from, to; /* indices of events; to: the number of events if it lasts */
    bool current;      /* its bytes count as held here; else a zombie */
};

/* Where the held bytes are at an event. live: asked for; internal: lost to rounding in live blocks; pinned: free, in
 * chunks that a live block lies in too; pending: in wholly free chunks of which some part waits for another stream than
 * that of the event; idle: in the other wholly free chunks. They add up to the held bytes. */
struct vp_record_sample {
    uint32_t event;
    uint64_t live, internal, pinned, pending, idle;
};

/* X(name, function): the driver calls that are counted separately. */
#define VP_RECORD_CALLS(X)                                                                                             \
    X(reserve, cuMemAddressReserve) X(create, cuMemCreate) X(map, cuMemMap) X(set_access, cuMemSetAccess) X(unmap, cuMemUnmap) X(release, cuMemRelease) X(event_record, cuEventRecord) X(event_query, cuEventQuery)                                      \
                                                                                      X(wait, cuStreamWaitEvent)

enum {
#define VP_RECORD_CALL_NUMBER(name, function) VP_RECORD_##name,
    VP_RECORD_CALLS(VP_RECORD_CALL_NUMBER)
#undef VP_RECORD_CALL_NUMBER
        VP_RECORD_KINDS
};

/* The calls of an event that made any. */
struct vp_record_calls {
    uint32_t event;
    uint32_t count[VP_RECORD_KINDS];
    uint64_t ns; /* modelled */
};

struct vp_record {
    const struct vp_trace *trace;
    const struct vp_policy *policy;
    const char *name; /* the run's name: the policy's, unless it gets another */
    struct vp_replay_result result;
    size_t granularity;
    struct vp_record_block *blocks; /* an array of trace->blocks */
    struct vp_array mappings;       /* of struct vp_record_mapping, by `from`, then address */
    struct vp_array samples;        /* of struct vp_record_sample, in order; the last is that of the last event */
    struct vp_array calls;          /* of struct vp_record_calls, in order */
    /* while the record is made */
    const struct vp_engine *engine;
    struct vp_numbers open;  /* by address, the current mapping's number + 1 */
    struct vp_array changed; /* of uint64_t: addresses where mappings have changed since they were last looked at */
    bool missed;             /* there was no room for an address */
    uint32_t step;           /* events from one sample to the next, while walks are short */
    uint64_t due;            /* the event from which on the next sample may be taken */
    uint64_t changes;        /* calls and switches that change mappings, so far */
    uint64_t totals[VP_RECORD_KINDS], ns;
};

/* Replays a trace, of which `name` is to be shown. 0, or a negative errno told on stderr. To be finished either way. */
int vp_record_make(struct vp_record *record, struct vp_engine *engine, const struct vp_replay_options *options,
                   const struct vp_policy *policy, const struct vp_trace *trace, const char *name);
void vp_record_finish(struct vp_record *record);
