/* How far a GPU lags behind its host, modelled for a replay on the simulated driver (vpool replay --lag).
 *
 * The time between two events of a trace is taken for work that the program queues between them, on the stream of the
 * first: one kernel. The host needs an eighth of it, and runs ahead, until the GPU has more than `lag` before it: then
 * it waits for the GPU, as programs do that read a result or have filled a queue. What driver calls cost, and what
 * the pool waits, comes on top. Which streams wait for each other in the program is not recorded, so none does, but
 * where the trace says so (made-up ones may) or the pool makes it.
 *
 * The device is never faster or slower than one kernel alone would have it: streams with something to do share it
 * equally, and one that waits leaves its share to the others. So a wait costs time of the GPU only while no stream can
 * run; and where the host has queued all it may, the streams of a program without a wait of its own always can. On a
 * real device a lone kernel may well leave most of it unused: what a wait of the GPU costs is told too low then.
 *
 * Two shadows tell what was lost. They are the same program, with the same kernels, host and lag, once without the
 * waits of the pool, once without its driver calls, too. Of a device that shares out all its time they need to know no
 * more than when all of it is over. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "driver/driver.h"
#include "tool/read/trace.h"

struct vp_shadow {
    uint64_t now, idle; /* ns: the host's clock, and when all streams will be done */
};

struct vp_model {
    bool on;             /* if not, no function here does anything */
    uint64_t lag;        /* ns */
    void (*start)(void); /* functions of the simulator: see sim/sim.h */
    uint64_t (*now)(void);
    void (*advance)(uint64_t ns);
    CUresult (*kernel)(CUstream stream, uint64_t ns);
    CUresult (*follow)(CUstream stream, CUstream other);
    uint64_t (*next_completion)(void), (*idle_at)(void);
    unsigned long long (*cost)(void);
    const struct vp_trace *trace;
    const CUstream *streams; /* of the trace */
    size_t order;            /* the next of the trace's orders */
    uint64_t each;           /* ns of work for each event; 0: as the trace says */
    struct vp_shadow no_waits, free_calls;
    uint64_t cost_seen;
    bool pausing; /* the host waits for the pool */
};

/* Finds the functions that it needs in the simulator. -ENOSYS: the simulator is older. */
int vp_model_open(struct vp_model *model, void *driver);
/* The clock begins at 0 with the trace's first event, after the streams were made. `each_ns`: work for each event, in
 * place of the trace's times (0: those; 10 us where it has none). */
void vp_model_begin(struct vp_model *model, const struct vp_trace *trace, const CUstream *streams, uint64_t lag_ns,
                    uint64_t each_ns);
void vp_model_finish(struct vp_model *model);

/* To be called before and after what the pool does for event `i`. */
void vp_model_before(struct vp_model *model, size_t i);
void vp_model_after(struct vp_model *model, size_t i, CUstream stream);
/* To be called after the last event: waits for the GPU. */
void vp_model_end(struct vp_model *model);

/* The host waits for the pool, and looks again in a moment. */
void vp_model_pause(struct vp_model *model);

/* Returns the time lost to waits, on the GPU and on the host; and the time lost to driver calls beside that.
 * Nanoseconds. */
uint64_t vp_model_lost(const struct vp_model *model);
uint64_t vp_model_lost_in_calls(const struct vp_model *model);
