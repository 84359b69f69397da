/* The modules of a recorded program: its ranges named `module:…`, and which of them differ from visit to visit. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/read/trace.h"

/* Going through a trace's events, with the modules that begin and end among them. */
struct vp_modules_walk {
    const struct vp_trace *trace;
    size_t next;          /* range */
    struct vp_array open; /* of size_t: ranges, in order of beginning */
    void *context;
    void (*told)(void *context, size_t range, bool begins);
};
/* Before that event; the number of events: behind the last. 0 or -ENOMEM. */
int vp_modules_before(struct vp_modules_walk *walk, size_t event);
void vp_modules_walked(struct vp_modules_walk *walk);

struct vp_module_visit {
    size_t range;                   /* of the trace */
    size_t module;                  /* number of its name */
    const char *microbatch, *phase; /* that it began in; "": none that has a name */
    uint64_t signature;             /* of the sizes asked for in it, and in no module within */
};

struct vp_modules {
    struct vp_module_visit *visits; /* in order of beginning */
    size_t count;
    uint32_t *visit_of;      /* of each event, the innermost visit, and one; 0: in none */
    struct vp_array modules; /* of struct vp_visited_module */
};

struct vp_visited_module {
    const char *name; /* the trace's */
    bool varies;      /* what it asks for differs between visits in phases, and micro-batches, of one name */
};

/* Requests of less than `least` bytes do not count. 0 or -ENOMEM; to be finished either way, before the trace. */
int vp_modules_find(struct vp_modules *m, const struct vp_trace *trace, uint64_t least);
void vp_modules_finish(struct vp_modules *m);

/* Was it asked for, or freed, within a module that varies: its visit, and one; else 0. */
uint32_t vp_modules_varying(const struct vp_modules *m, size_t event);
