/* The engine behind `vpool replay`, `report` and `export`: drives the library's pool with a recorded trace, on the
 * simulated driver (whose cost model then says what the driver calls would have cost) or on the real one.
 *
 * Each stream of the trace is a stream; its work is taken to lag behind the host, so that memory of another stream is
 * reused by a wait, not by luck; or a clock is modelled, and it lags so far (model.h). Whether a stream may wait is
 * VPOOL_WAIT's to say. What the trace leaves live is freed at the end of each repetition. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "compare/compare.h"
#include "tool/replay/model.h"
#include "tool/plan/planned.h"
#include "tool/replay/second.h"
#include "tool/read/trace.h"

struct vp_latency {
    uint32_t *ns;
    size_t count, room;
};

struct vp_replay_result {
    const char *trace, *policy;
    struct vp_memory_stats pool;
    struct vp_timeline_stats timelines;
    uint64_t late_calls, late_driver_ns, driver_ns, passed_on;
    uint64_t late_events, longest_ns;     /* longest: in the simulated driver, for one event */
    struct vp_latency malloc_ns, free_ns; /* to be freed by the caller */
    size_t metadata, live_peak_blocks;
    struct {                                /* with a lag */
        uint64_t total_ns;                  /* the program's time, to the end of all its streams */
        uint64_t lost_ns, lost_in_calls_ns; /* lost to waits of the pool; lost to its driver calls */
    } model;
    struct {                        /* of stalloc */
        bool used, phases, modules; /* a plan; and it was made by phases, and knows modules that vary */
        struct vp_stalloc_figures figures;
    } plan;
    struct vp_second_figures second; /* of VPOOL_PLAN */
};

/* An observer of a replay. A negative errno ends the replay. */
struct vp_replay_watch {
    void *context;
    /* Event `i` of the trace was replayed, on that timeline; `block` is what the pool gave for an allocation, or NULL.
     * The observer must not change the pool. */
    int (*event)(void *context, struct vp_pool *pool, size_t i, const struct vp_timeline *timeline,
                 const struct vp_region *block);
};

struct vp_replay_options {
    const char *command; /* the command, for messages */
    bool gpu;
    long repeat;
    long late;                           /* percent of the events, at the end, that count as late; 0: a third */
    bool modelled;                       /* with a modelled clock, on the simulated driver */
    uint64_t lag_ns;                     /* how far its GPU may lag behind the host */
    uint64_t work_ns;                    /* the work of each event; 0: by the trace's times */
    const char *capacity;                /* of the simulated device, as the simulator takes it */
    uint64_t handle;                     /* largest physical handle, bytes */
    const struct vp_replay_watch *watch; /* NULL: no observer */
    const struct vp_planned_file *plan;  /* for stalloc; NULL: it plans from the trace itself */
    const char *learnt;                  /* the plan file of vpool's own policy; NULL: none */
};

struct vp_engine {
    struct vp_driver table;
    void *handle;
    CUcontext context;
    struct vp_model model;
    unsigned long long (*cost_ns)(void); /* modelled; NULL on a GPU */
    void (*reset)(void);
    CUresult (*init)(unsigned);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*release)(CUdevice);
    CUresult (*set_current)(CUcontext);
    CUresult (*stream_create)(CUstream *, unsigned);
    CUresult (*stream_destroy)(CUstream);
};

/* Finds the driver. 0 or -ENODEV, with one line on stderr. */
int vp_engine_open(struct vp_engine *engine, const struct vp_replay_options *o);
/* Replays a trace in a pool of its own. The caller sets the names in `result`. 0 or a negative errno, with a message on
 * stderr; the caller frees the latencies in either case. */
int vp_engine_replay(struct vp_engine *engine, const struct vp_replay_options *o, const struct vp_policy *policy,
                     const struct vp_trace *trace, struct vp_replay_result *result);
/* Returns the number of calls that create, map, set access, unmap or release. */
uint64_t vp_engine_remap_calls(const struct vp_memory_stats *s);

/* The policies that a replay knows: those that a program can choose, and bare. */
enum { VP_ENGINE_POLICIES = VP_POLICY_CHOICES + 1 };
/* Reads "P[,P…]", which it changes, into at most VP_ENGINE_POLICIES. 0, or the status of wrong usage, with a message.
 */
int vp_engine_policies(const char *command, char *list, const struct vp_policy **policies, size_t *count);
/* Reads a size of at least one byte, perhaps with suffix K, M, G or T. */
bool vp_engine_size(const char *text, uint64_t *bytes);
