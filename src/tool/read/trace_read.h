/* Shared by the files of the trace reader. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/plan/numbers.h"
#include "tool/read/trace.h"

/* A record whose text may continue in the next line. */
struct vp_trace_text {
    char kind; /* 0: none is open */
    char *text;
    size_t length;
    char of; /* of a frame: its kind */
    char *build_id;
    uint64_t number, thread, depth, us;
};

struct vp_trace_reader {
    struct vp_trace *trace;
    const char *path;
    size_t line, room;
    bool rmm, timed;
    struct vp_numbers live;                    /* id + 1 -> number of the block + 1 */
    struct vp_numbers streams;                 /* stream + 1 -> number + 1 */
    struct vp_numbers modules, frames, stacks; /* number + 1 -> place in the table + 1 */
    struct vp_numbers open;                    /* thread and depth -> number of the open range + 1 */
    struct vp_trace_text text;
    uint64_t first_us, last_us;
    char *message;
    size_t message_room;
};

int vp_trace_fault(struct vp_trace_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool vp_trace_number(const char *text, int base, uint64_t *out);
/* Reads a number of at most `most`; `name` is for messages. 0 or -EINVAL. */
int vp_trace_field(struct vp_trace_reader *r, const char *text, uint64_t most, const char *name, uint64_t *out);
/* Returns the time of a record since the first one; times never decrease. */
uint64_t vp_trace_time(struct vp_trace_reader *r, uint64_t us);

/* Reads a line of vpool's that is neither `a` nor `f`, in five fields. 0 or a negative errno. */
int vp_trace_record(struct vp_trace_reader *r, char **fields);
/* Ends the record whose text is open, if there is one. 0 or a negative errno. */
int vp_trace_record_end(struct vp_trace_reader *r);
/* Closes all open ranges at the trace's end. */
void vp_trace_close_ranges(struct vp_trace_reader *r);
