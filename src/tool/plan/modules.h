/* The modules of a recorded program: its ranges named `module:…`, and which of them differ from visit to visit. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/read/trace.h"

/* A walk through a trace's events, with the modules that begin and end among them. */
struct vp_modules_walk {
    const struct vp_trace *trace;
    size_t next;          /* index of the range */
    struct vp_array open; /* of size_t: indices of open ranges, in order of beginning */
    void *context;
    void (*told)(void *context, size_t range, bool begins);
};
/* Advances the walk to just before that event; the number of events: to the end. 0 or -ENOMEM. */
int vp_modules_before(struct vp_modules_walk *walk, size_t event);
void vp_modules_walked(struct vp_modules_walk *walk);

struct vp_module_visit {
    size_t range;                   /* index among the trace's ranges */
    size_t module;                  /* the number of its name */
    const char *microbatch, *phase; /* in which it began; "": none that has a name */
    uint64_t signature;             /* of the sizes requested in it, but not in modules within it */
};

struct vp_modules {
    struct vp_module_visit *visits; /* in order of beginning */
    size_t count;
    uint32_t *visit_of;      /* of each event, the index of the innermost visit, plus one; 0: in none */
    struct vp_array modules; /* of struct vp_visited_module */
};

struct vp_visited_module {
    const char *name; /* owned by the trace */
    bool varies;      /* its requests differ between visits in phases, and micro-batches, of one name */
};

/* Finds the modules. Requests of less than `least` bytes do not count. 0 or -ENOMEM; to be finished in either case,
 * before the trace. */
int vp_modules_find(struct vp_modules *m, const struct vp_trace *trace, uint64_t least);
void vp_modules_finish(struct vp_modules *m);

/* If the event was within a module that varies, returns the index of the visit, plus one; else 0. */
uint32_t vp_modules_varying(const struct vp_modules *m, size_t event);
