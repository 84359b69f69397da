/* Plans of recorded programs: made from a trace, written, and read again. A plan is for one device.
 * src/compare/stalloc_file.h describes the file. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "compare/stalloc.h"
#include "plan/plan.h"
#include "tool/read/trace.h"

struct vp_planned_phase {
    size_t first; /* request */
    char *name;
};

struct vp_planned {
    uint16_t device;
    struct vp_stalloc_plan plan;
    struct vp_plan_figures figures;
    struct vp_array phases; /* of struct vp_planned_phase, in order; empty: the program has no marks */
    size_t within;          /* requests of modules that vary, which have no places */
};

struct vp_planned_limits {
    bool published;    /* made by STAlloc's planner, without what its runtime leaves to other pools */
    uint64_t capacity; /* as in struct vp_plan_limits */
    double seconds;
};

/* Plans a trace of one device. 0, or -EINVAL or -ENOMEM with nothing kept. */
int vp_planned_make(struct vp_planned *p, const struct vp_trace *trace, const struct vp_planned_limits *limits);
/* Describes that error for people. */
const char *vp_planned_error(int err);
/* Copies the requests that STAlloc's runtime places (NULL: of none). 0, or -ENOMEM with nothing kept. */
int vp_planned_large(struct vp_planned *p, const struct vp_planned *of);
void vp_planned_finish(struct vp_planned *p);

/* The plans of one program. */
struct vp_planned_file {
    char *trace; /* the trace that it was made from */
    bool published;
    struct vp_planned devices[VP_TRACE_DEVICES];
    unsigned device_count;
};

/* Writes plans. 0 or -ENOMEM; other errors show in the file's state, as with printf(). */
int vp_planned_write(FILE *out, const struct vp_planned_file *file);
/* 0; or -EINVAL, -EIO, -ENOMEM, with one line that names file, line and fault in `message`; nothing is kept then. */
int vp_planned_read(struct vp_planned_file *file, const char *path, char *message, size_t room);
void vp_planned_file_finish(struct vp_planned_file *file);
/* Returns the plan of the device of that number; a file with only one plan gives that one for any number. NULL: there
 * is none. */
const struct vp_planned *vp_planned_of_device(const struct vp_planned_file *file, uint16_t device);
