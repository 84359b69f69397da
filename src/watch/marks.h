/* The program's marks and ranges: those of vpool_mark() and vpool_range_push(), and NVTX's.
 *
 * Each thread has a stack of ranges, which ends with the thread. The process also has ranges that one thread may start
 * and another end: traces and dumps show them as thread 0, with an index among them in place of a depth. For every
 * name, the most bytes that were alive while a range of that name was open are kept, in any thread and on all devices.
 * Everything has a fixed limit: see the constants of marks.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"

/* The part of a name that counts, with the final zero. */
enum { VP_MARKS_NAME = 129 };

/* As vpool_range_push() and vpool_range_pop(), whose domain is NULL. A pop ends the innermost range of its domain. */
int vp_marks_push(const char *name, const void *domain);
int vp_marks_pop(const void *domain);

/* Starts a range of the process. Returns its number, by which any thread may end it; 0: too many are open. */
uint64_t vp_marks_start(const char *name);
void vp_marks_end(uint64_t id);

/* Keeps a copy of the text of a string or domain that NVTX registers, for good. NULL: there is no room. */
void *vp_marks_register(const char *name);

/* Must every event be reported to vp_marks_event()? */
bool vp_marks_want_events(void);
/* An event of a block. Takes no lock. */
void vp_marks_event(char op, size_t size);

/* Before the first event: writes into the trace what came before CUDA, each with its own time. Takes the trace's lock.
 */
void vp_marks_tell_early(void);

extern struct vp_lock vp_marks_guard;
void vp_marks_fork_child(void);

/* ---- for dumps and statistics: read the entry `*next`, from 0 on, and advance it; false: there are no more ---- */

struct vp_marks_peak {
    char name[VP_MARKS_NAME];
    uint64_t peak_bytes; /* the most that was alive while one was open */
    uint64_t times;      /* that one began */
};
bool vp_marks_peak(unsigned *next, struct vp_marks_peak *out);

/* A thread and its innermost open range; or a range of the process. */
struct vp_marks_open {
    char name[VP_MARKS_NAME];
    uint64_t thread; /* 0: the process */
    unsigned depth;  /* from 0 */
};
bool vp_marks_open(unsigned *next, struct vp_marks_open *out);
