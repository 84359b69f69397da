/* A replay that starts from what an earlier one has learnt (VPOOL_PLAN), and its builder in modelled time. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/learnt/ahead.h"
#include "tool/read/trace.h"

/* The builder is a thread in a process. Here it has a clock of its own: the program's is what the trace tells, and the
 * time of its driver calls; a batch is handed over once that has come to where the builder's calls end. The program
 * waits for a batch that has its place. */
struct vp_second {
    const char *path; /* NULL: no plan */
    unsigned device;  /* the trace's device */
    struct vp_pool *pool;
    const struct vp_driver *drv;
    unsigned long long (*cost_ns)(void); /* modelled; NULL on a GPU: the builder is as far as it may be, always */
    struct vp_ahead_batch batch;         /* the batch under way */
    uint64_t begin_cost;                 /* the driver's cost when the replay began */
    uint64_t round_ns, now_ns; /* the program's clock, less its driver calls: of the rounds before, and in all */
    uint64_t until_ns;         /* when the batch is done, or the builder was last idle */
    uint64_t background_ns, waited_ns; /* the builder's time in the driver; the program's waits for it */
    uint64_t background_calls;
    bool used;
};

/* How well the plan served. */
struct vp_second_figures {
    bool wanted, used; /* VPOOL_PLAN names a file; the file existed */
    uint64_t background_ns, background_calls, waited_ns;
    uint64_t requests, found, served, lacking;
    uint64_t made_bytes, used_bytes, returned_bytes;
};

/* The file that VPOOL_PLAN names; NULL: none, of which `auto` is told on stderr once. */
const char *vp_second_path(const char *command);

/* Begins, in a pool that was just opened: reads the plan if it is there, and has the pool learn. */
void vp_second_begin(struct vp_second *s, const char *command, const char *path, unsigned device, struct vp_pool *pool,
                     const struct vp_driver *drv, unsigned long long (*cost_ns)(void));
/* An event of the trace is next, so many microseconds after the first; `round`: another repetition begins. */
void vp_second_before(struct vp_second *s, uint64_t us, bool round);
/* Of the modelled time in the driver: what the program's thread spent there, or waited for the builder. */
uint64_t vp_second_program_ns(const struct vp_second *s, uint64_t driver_ns);
/* Ends the replay: writes what was learnt. */
void vp_second_end(struct vp_second *s, const char *command, const char *program, struct vp_second_figures *out);
