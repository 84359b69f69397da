/* The trace: what trace.c writes, and what other files of this folder add to it. docs/stacks.md tells of its lines. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"

/* The last that anybody takes. */
extern struct vp_lock vp_trace_guard;

/* `stack` NULL: stacks are not recorded; else what the trace does not have of it yet comes first. */
void vp_trace_event(char op, CUdevice device, uint64_t serial, size_t size, uint32_t stream, const uint32_t *stack);

/* With the library's lock: what the pools hold, where that has changed. */
void vp_trace_held(void) VP_LOCKED;
void vp_trace_failure(CUdevice device, size_t size, uint32_t stream);

/* Takes the trace's lock; false, without it: nothing is recorded. The caller holds cancellation off. */
bool vp_trace_lock(void) VP_TRIES(vp_trace_guard);
void vp_trace_unlock(void) VP_RELEASES(vp_trace_guard);

/* With the lock, until it is let go: what is put has come at that time of vp_clock_ns(). */
void vp_trace_at(uint64_t ns) VP_REQUIRES(vp_trace_guard);

/* A field of a record: text, or where that is NULL a number. */
struct vp_trace_field {
    const char *text;
    uint64_t number;
};
#define VP_TRACE_NUMBER(n) ((struct vp_trace_field){.number = (n)})
#define VP_TRACE_TEXT(t) ((struct vp_trace_field){.text = (t)})

/* With the lock. A text that the line has no room for goes on in lines of its own; only a record's last one may. */
void vp_trace_put(char op, struct vp_trace_field a, struct vp_trace_field b, struct vp_trace_field c)
    VP_REQUIRES(vp_trace_guard);

/* The file gets its true length; nothing is recorded any more. */
void vp_trace_end(void);
/* The file that is written to; NULL: there is none. */
const char *vp_trace_file(void);
/* In the child of a fork: the file stays the parent's. */
void vp_trace_fork_child(void);
