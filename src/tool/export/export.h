/* The writers of `vpool export`, one function per format. They fail only by errors of the file, which its owner checks.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/read/dump_read.h"
#include "tool/replay/record.h"

struct vp_export {
    const char *name;             /* of the input, for people */
    const struct vp_trace *trace; /* the whole of it, with its stacks named; NULL: a dump */
    struct vp_record *records;    /* of each of its devices, for formats that want places; else NULL */
    const struct vp_dump_file *dump;
};

/* 0 or -ENOMEM. */
typedef int vp_export_fn(FILE *file, const struct vp_export *from);
/* Chrome's trace format, which Perfetto reads: counters of bytes, a slice for each event that called the driver and for
 * each large block. */
vp_export_fn vp_export_perfetto;
/* PyTorch's memory snapshot: a pickle that memory_viz opens. */
vp_export_fn vp_export_snapshot;
/* RMM's log. Of a dump, the allocations that are live. */
vp_export_fn vp_export_rmm;
/* A profile as pprof reads it, not compressed: by stack, device and stream what was allocated, alive at the peak, and
 * at the end. Of a trace alone. */
vp_export_fn vp_export_pprof;
/* A line for each stack, with the bytes alive at the peak: as flamegraph.pl and its kin read it. Of a trace alone. */
vp_export_fn vp_export_collapsed;

/* The number of a device of a trace among its devices. */
static inline unsigned vp_export_device(const struct vp_trace *t, uint16_t device) {
    unsigned d = 0;
    while (t->devices[d] != device)
        d++;
    return d;
}

/* The mappings in order of their ends: their numbers, to be freed; NULL: no memory. */
size_t *vp_export_ends(const struct vp_record *record);
