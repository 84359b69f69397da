/* RMM's log: Thread,Time,Action,Pointer,Size,Stream. Pointers are those that the pool gave. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static void put(FILE *file, unsigned thread, uint64_t us, bool alloc, uint64_t addr, uint64_t size, uint64_t stream) {
    uint64_t s = us / 1000000 % 86400;
    fprintf(file, "%u,%02u:%02u:%02u.%06u,%s,0x%" PRIx64 ",%" PRIu64 ",0x%" PRIx64 "\n", thread, (unsigned)(s / 3600),
            (unsigned)(s / 60 % 60), (unsigned)(s % 60), (unsigned)(us % 1000000), alloc ? "allocate" : "free", addr,
            size, stream);
}

/* The pointer of a block. A block that the pool did not serve has a made-up pointer, above all addresses of a device.
 * RMM's log knows one device: the pointers of further devices lie above each other, and each device appears as a
 * thread. */
static uint64_t pointer_of(const struct vp_record *r, uint32_t block, unsigned device) {
    uint64_t addr = r->blocks[block].addr ? r->blocks[block].addr : UINT64_C(1) << 54 | (uint64_t)block << 9;
    return addr | (uint64_t)device << 56;
}

/* Writes the events in the order of the whole trace. */
static int put_trace(FILE *file, const struct vp_export *from) {
    const struct vp_trace *t = from->trace;
    size_t next[VP_TRACE_DEVICES] = {0};
    uint64_t *sizes = calloc(t->blocks + 1u, sizeof *sizes);
    if (!sizes)
        return -ENOMEM;
    for (size_t i = 0; i < t->count; i++) {
        const struct vp_trace_event *e = &t->events[i];
        unsigned d = vp_export_device(t, e->device);
        const struct vp_record *r = &from->records[d];
        if (e->alloc)
            sizes[e->block] = e->size;
        put(file, d + 1, e->us, e->alloc, pointer_of(r, r->trace->events[next[d]++].block, d), sizes[e->block],
            e->stream);
    }
    free(sizes);
    return 0;
}

int vp_export_rmm(FILE *file, const struct vp_export *from) {
    fputs("Thread,Time,Action,Pointer,Size,Stream\n", file);
    if (from->trace)
        return put_trace(file, from);
    for (size_t d = 0; d < from->dump->count; d++)
        for (size_t i = 0; i < from->dump->devices[d].count; i++) {
            const struct vp_dump_region *r = &from->dump->devices[d].regions[i];
            if (r->state == VP_DUMP_LIVE)
                put(file, 1, 0, true, r->addr, r->asked ? r->asked : r->size, r->stream);
        }
    return 0;
}
