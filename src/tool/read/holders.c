/* Sums up live memory by the source lines that allocated it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/holders.h"

#include <errno.h>

static int by_bytes(const void *a, const void *b) {
    const struct vp_holder *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* Adds up what each stack has live. */
static void add_up(const struct vp_trace *trace, size_t event, struct vp_holder *of, struct vp_trace_event *blocks) {
    for (size_t i = 0; i <= event && i < trace->count; i++) {
        const struct vp_trace_event *e = &trace->events[i];
        if (e->alloc)
            blocks[e->block] = *e;
        struct vp_holder *h = &of[blocks[e->block].stack];
        h->bytes += e->alloc ? e->size : -blocks[e->block].size;
        h->blocks += e->alloc ? 1 : -UINT64_C(1);
    }
}

int vp_holders_at(const struct vp_trace *trace, size_t event, struct vp_array *holders) {
    const struct vp_stacks *s = &trace->stacks;
    size_t stacks = s->stacks.count, frames = s->frames.count;
    struct vp_holder *of = calloc(stacks + 1, sizeof *of), *lines = calloc(frames + 2, sizeof *lines);
    struct vp_trace_event *blocks = calloc(trace->blocks + 1u, sizeof *blocks);
    int err = of && lines && blocks ? 0 : -ENOMEM;
    if (!err)
        add_up(trace, event, of, blocks);
    for (uint32_t i = 0; i < stacks && !err; i++) {
        uint32_t line = i ? vp_stacks_line(s, i) : 0;
        struct vp_holder *h = line ? &lines[vp_stacks_at(s, line)->frame + 1] : lines;
        h->stack = line;
        h->bytes += of[i].bytes;
        h->blocks += of[i].blocks;
    }
    for (size_t i = 0; i <= frames && !err; i++)
        if (lines[i].blocks) {
            struct vp_holder *new = vp_array_add(holders, sizeof *new);
            err = new ? 0 : -ENOMEM;
            if (new)
                *new = lines[i];
        }
    if (!err && holders->count)
        qsort(holders->items, holders->count, sizeof(struct vp_holder), by_bytes);
    free(of);
    free(lines);
    free(blocks);
    return err;
}
