/* Recorded allocation traces. Two formats are read, told apart by their header line, gzipped or plain:
 *   op,id,size,stream,us                           ours: `a` allocates, `f` frees; `us` since the first event.
 *                                                  trace_records.c has the other kinds of line
 *   Thread,Time,Action,Pointer,Size,Stream         RMM's CSV log; failures and what has no bytes are passed over
 * Whatever is not as it should be is an error: a trace is read whole or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/read/stacks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No machine has more devices, and a page has no room for more. */
enum { VP_TRACE_DEVICES = 64 };

struct vp_trace_event {
    bool alloc;
    uint16_t device;
    uint32_t block;  /* the allocation's number, from 0 in order of appearance */
    uint32_t stream; /* the stream's number, likewise */
    uint32_t stack;  /* of an allocation; 0: unknown */
    uint64_t size;   /* bytes; 0 for a free */
    uint64_t us;     /* since the first event; times never decrease */
};

/* Other records have a place among the events: `at` is the number of events before them. */

struct vp_trace_mark {
    size_t at;
    uint64_t us, thread;
    char *name;
};

struct vp_trace_range {
    size_t from, to; /* to: the number of events, if it does not end */
    uint64_t from_us, to_us, thread;
    uint32_t depth;
    bool open; /* it does not end */
    char *name;
};

/* What a device's pool held from then on when the program ran, and how many driver calls it had made. */
struct vp_trace_held {
    size_t at;
    uint64_t us, device, held, calls;
};

/* A stream waits for all work that another was given so far. */
struct vp_trace_order {
    size_t at;
    uint32_t stream, other;
};

/* The addresses of bare segments on a device from then on. */
struct vp_trace_addressed {
    uint64_t device, bytes;
};

/* An allocation that found no memory. */
struct vp_trace_failure {
    size_t at;
    uint64_t us, device, size, stream;
};

struct vp_trace {
    struct vp_trace_event *events;
    size_t count;
    uint32_t blocks, streams;
    struct vp_array marks, ranges, held, addressed, failures, orders; /* of the structs above, in order of beginning */
    struct vp_stacks stacks;
    uint16_t devices[VP_TRACE_DEVICES]; /* the devices of the events, in order */
    unsigned device_count;
    bool part; /* names and stacks belong to another trace */
};

/* The name of a trace in tables: its file's, without ".csv.gz". The caller frees it; NULL: no memory. */
char *vp_trace_title(const char *path);
/* The width of a table's column for the names of these traces. */
int vp_trace_titles_width(char *const *paths, int count);
/* Reads a whole file. 0; or -EINVAL, -EIO, -ENOMEM, with one line that names file, line and fault in
 * `message`; nothing is kept then. */
int vp_trace_read(struct vp_trace *trace, const char *path, char *message, size_t room);
void vp_trace_finish(struct vp_trace *trace);

/* Names the frames of the stacks (stacks.h). 0 or -ENOMEM. */
int vp_trace_name(struct vp_trace *trace);

/* Makes a trace of what happened on one device, by its index in `devices`: blocks and streams are renumbered, all marks
 * and ranges are kept. To be finished before the whole. 0 or -ENOMEM. */
int vp_trace_of_device(const struct vp_trace *whole, unsigned device, struct vp_trace *part);

/* What was true in the program, if it was recorded. */
struct vp_trace_truth {
    bool known;
    uint64_t peak_held_bytes, driver_calls, failures;
    uint64_t peak_addressed_bytes; /* 0: no bare segments */
};
struct vp_trace_truth vp_trace_truth(const struct vp_trace *trace, uint16_t device);

/* Finds the first event at which the most requested bytes were live, and how many. False: there are no events. */
struct vp_trace_peak {
    size_t event;
    uint64_t bytes;
};
bool vp_trace_peak(const struct vp_trace *trace, struct vp_trace_peak *peak);
