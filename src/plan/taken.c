/* Finds the addresses in use during a block's life: those of the placed blocks that live at some of its times. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/instance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void vp_plan_taken_finish(struct vp_plan_taken *t) {
    free(t->offset);
    free(t->placed);
    free(t->first);
    free(t->head);
    free(t->links);
    free(t->spans);
}

int vp_plan_taken_start(struct vp_plan_taken *t, const struct vp_plan_instance *in) {
    *t = (struct vp_plan_taken){.in = in, .leaves = 1};
    while (t->leaves < in->times)
        t->leaves *= 2;
    t->link_room = in->count * 4 + 64;
    t->offset = malloc((in->count + 1) * sizeof *t->offset);
    t->placed = malloc(in->count + 1);
    t->first = malloc((in->times + 1) * sizeof *t->first);
    t->head = malloc(2 * (size_t)t->leaves * sizeof *t->head);
    t->links = malloc(t->link_room * sizeof *t->links);
    t->spans = malloc((in->count + 1) * sizeof *t->spans);
    if (!t->offset || !t->placed || !t->first || !t->head || !t->links || !t->spans)
        return -ENOMEM;
    for (uint32_t time = 0, i = 0; time <= in->times; time++) {
        while (i < in->count && in->items[i].begin < time)
            i++;
        t->first[time] = i;
    }
    vp_plan_taken_clear(t);
    return 0;
}

void vp_plan_taken_clear(struct vp_plan_taken *t) {
    memset(t->placed, 0, t->in->count);
    memset(t->head, 0, 2 * (size_t)t->leaves * sizeof *t->head);
    t->link_count = 0;
}

static void take(struct vp_plan_taken *t, uint32_t item) {
    uint64_t low = t->offset[item];
    t->spans[t->span_count++] = (struct vp_plan_span){low, low + t->in->items[item].size, item};
}

static int by_low(const void *a, const void *b) {
    const struct vp_plan_span *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

void vp_plan_taken_by(struct vp_plan_taken *t, uint32_t item) {
    const struct vp_plan_item *it = &t->in->items[item];
    t->span_count = 0;
    for (uint32_t node = it->begin + t->leaves; node; node /= 2)
        for (uint32_t at = t->head[node]; at; at = t->links[at - 1].next)
            take(t, t->links[at - 1].item);
    for (uint32_t i = t->first[it->begin + 1]; i < t->first[it->end]; i++)
        if (t->placed[i])
            take(t, i);
    qsort(t->spans, t->span_count, sizeof *t->spans, by_low);
}

static int hang(struct vp_plan_taken *t, uint32_t node, uint32_t item) {
    if (t->link_count == t->link_room) {
        struct vp_plan_link *more = realloc(t->links, 2 * t->link_room * sizeof *more);
        if (!more)
            return -ENOMEM;
        t->links = more;
        t->link_room *= 2;
    }
    t->links[t->link_count++] = (struct vp_plan_link){item, t->head[node]};
    t->head[node] = (uint32_t)t->link_count;
    return 0;
}

int vp_plan_taken_add(struct vp_plan_taken *t, uint32_t item, uint64_t offset) {
    const struct vp_plan_item *it = &t->in->items[item];
    uint32_t low = it->begin + t->leaves, high = it->end + t->leaves;
    int err = 0;
    t->offset[item] = offset;
    t->placed[item] = true;
    for (; low < high && !err; low /= 2, high /= 2) {
        if (low & 1)
            err = hang(t, low++, item);
        if (!err && high & 1)
            err = hang(t, --high, item);
    }
    return err;
}
