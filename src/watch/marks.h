/* The program's own marks and ranges: those that vpool_mark() and vpool_range_push() name, and NVTX's.
 *
 * Each thread has a stack of ranges, which ends with the thread; and the process has ranges that one thread may start
 * and another end. In traces and dumps these are thread 0's, and what is a depth elsewhere is a place among them. For
 * every name there is known how much was alive at most while a range of that
 * name was open, in whatever thread: blocks of all devices count. All is bounded: see the constants of marks.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"

/* As much of a name as is looked at, its final zero included. */
enum { VP_MARKS_NAME = 129 };

/* As vpool_range_push() and vpool_range_pop(). A domain's pop ends the innermost range of its own; NULL is that of
 * those two. */
int vp_marks_push(const char *name, const void *domain);
int vp_marks_pop(const void *domain);

/* A range of the process: its number, by which any thread ends it; 0: too many are open. Other numbers end nothing. */
uint64_t vp_marks_start(const char *name);
void vp_marks_end(uint64_t id);

/* The same text for good, of a string or domain that NVTX registers; NULL: there is no room. */
void *vp_marks_register(const char *name);

/* Does somebody want to hear of each event? */
bool vp_marks_want_events(void);
/* Of a block, without any lock. */
void vp_marks_event(char op, size_t size);

/* Before the first event: puts into the trace what came before CUDA, each at its own time. Takes the trace's lock. */
void vp_marks_tell_early(void);

extern struct vp_lock vp_marks_guard;
void vp_marks_fork_child(void);

/* ---- what dumps and statistics tell: the next, from 0 on, which moves behind it; false: there are no more ---- */

struct vp_marks_peak {
    char name[VP_MARKS_NAME];
    uint64_t peak_bytes; /* the most that was alive while one was open */
    uint64_t times;      /* that one began */
};
bool vp_marks_peak(unsigned *next, struct vp_marks_peak *out);

/* A thread and the innermost range that is open in it; or a range of the process. */
struct vp_marks_open {
    char name[VP_MARKS_NAME];
    uint64_t thread; /* 0: the process */
    unsigned depth;  /* from 0 */
};
bool vp_marks_open(unsigned *next, struct vp_marks_open *out);
