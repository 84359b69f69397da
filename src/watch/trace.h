/* The trace: trace.c writes it, and other files of this folder add to it. docs/stacks.md describes its lines. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"

/* The last lock in the order of locks. */
extern struct vp_lock vp_trace_guard;

/* Writes an event. `stack` NULL: stacks are not recorded; else first writes what of the stack the trace lacks. */
void vp_trace_event(char op, CUdevice device, uint64_t serial, size_t size, uint32_t stream, const uint32_t *stack);

/* With the library's lock: writes what the pools hold, if that has changed. */
void vp_trace_held(void) VP_LOCKED;
void vp_trace_failure(CUdevice device, size_t size, uint32_t stream);

/* Takes the trace's lock; false, without it: nothing is recorded. The caller has disabled cancellation. */
bool vp_trace_lock(void) VP_TRIES(vp_trace_guard);
void vp_trace_unlock(void) VP_RELEASES(vp_trace_guard);

/* With the lock, until it is released: records have this time of vp_clock_ns(). */
void vp_trace_at(uint64_t ns) VP_REQUIRES(vp_trace_guard);

/* A field of a record: text, or where that is NULL a number. */
struct vp_trace_field {
    const char *text;
    uint64_t number;
};
#define VP_TRACE_NUMBER(n) ((struct vp_trace_field){.number = (n)})
#define VP_TRACE_TEXT(t) ((struct vp_trace_field){.text = (t)})

/* Writes a record. A text too long for its line continues on further lines; only the last field may be that long. */
void vp_trace_put(char op, struct vp_trace_field a, struct vp_trace_field b, struct vp_trace_field c)
    VP_REQUIRES(vp_trace_guard);

/* Ends recording, and truncates the file to its true length. */
void vp_trace_end(void);
/* The path of the trace; NULL: there is none. */
const char *vp_trace_file(void);
/* In the child of a fork: the file stays the parent's. */
void vp_trace_fork_child(void);
