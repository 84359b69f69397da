/* Recorded allocation traces. Two formats are read, told apart by their header line, gzipped or plain:
 *   op,id,size,stream,us                           ours: `a` allocates, `f` frees; `us` since the first event;
 *                                                  `m` is a mark of the program's, passed over
 *   Thread,Time,Action,Pointer,Size,Stream         RMM's CSV log; failures and what has no bytes are passed over
 * Whatever is not as it should be is an error: a trace is read whole or not at all.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_TRACE_H
#define VP_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vp_trace_event {
    bool alloc;
    uint32_t block;  /* number of the allocation, from 0 in order of appearance */
    uint32_t stream; /* number of the stream, likewise */
    uint64_t size;   /* bytes; 0 of a free */
    uint64_t us;     /* since the first event, never less than the event before */
};

struct vp_trace {
    struct vp_trace_event *events;
    size_t count;
    uint32_t blocks, streams;
};

/*
 * Reads a whole file. 0; or -EINVAL, -EIO, -ENOMEM, with one line that names file, line and fault in
 * `message`; nothing is kept then.
 */
int vp_trace_read(struct vp_trace *trace, const char *path, char *message, size_t room);
void vp_trace_finish(struct vp_trace *trace);

#endif
