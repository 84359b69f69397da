/* Finds what a plan leaves free: for each stretch of time, the addresses that no placed block uses at any time in it.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/instance.h"

#include <errno.h>
#include <stdlib.h>

static int put(struct vp_plan_spares *spares, uint64_t low, uint64_t high) {
    if (low >= high)
        return 0;
    if (spares->count == spares->room) {
        size_t room = spares->room ? spares->room * 2 : 256;
        struct vp_plan_spare *items = realloc(spares->items, room * sizeof *items);
        if (!items)
            return -ENOMEM;
        spares->items = items;
        spares->room = room;
    }
    spares->items[spares->count++] = (struct vp_plan_spare){low, high};
    return 0;
}

/* Adds the gaps between the spans that are taken in the stretch. */
static int gaps(const struct vp_plan_taken *taken, uint64_t peak, struct vp_plan_spares *spares) {
    uint64_t at = 0;
    int err = 0;
    for (size_t i = 0; i < taken->span_count && !err; i++) {
        err = put(spares, at, taken->spans[i].low);
        if (taken->spans[i].high > at)
            at = taken->spans[i].high;
    }
    return err ? err : put(spares, at, peak);
}

int vp_plan_spare(const struct vp_plan_block *blocks, size_t count, uint64_t peak, struct vp_plan_stretch *stretches,
                  size_t stretch_count, struct vp_plan_spares *spares) {
    struct vp_plan_block *all = malloc((count + stretch_count + 1) * sizeof *all);
    uint32_t *item_of = malloc((count + stretch_count + 1) * sizeof *item_of);
    struct vp_plan_instance in = {0};
    struct vp_plan_taken taken = {0};
    int err = all && item_of ? 0 : -ENOMEM;
    for (size_t i = 0; i < count && !err; i++)
        all[i] = blocks[i];
    /* A stretch is a block that is never placed. */
    for (size_t i = 0; i < stretch_count && !err; i++)
        all[count + i] = (struct vp_plan_block){.size = 1, .begin = stretches[i].begin, .end = stretches[i].end};
    err = err ? err : vp_plan_instance(&in, all, count + stretch_count);
    err = err ? err : vp_plan_taken_start(&taken, &in);
    for (size_t i = 0; i < count + stretch_count && !err; i++) {
        item_of[in.number[i]] = (uint32_t)i;
        if (in.number[i] < count)
            err = vp_plan_taken_add(&taken, (uint32_t)i, blocks[in.number[i]].offset);
    }
    for (size_t i = 0; i < stretch_count && !err; i++) {
        vp_plan_taken_by(&taken, item_of[count + i]);
        stretches[i].first = spares->count;
        err = gaps(&taken, peak, spares);
        stretches[i].count = spares->count - stretches[i].first;
    }
    vp_plan_taken_finish(&taken);
    vp_plan_instance_finish(&in);
    free(item_of);
    free(all);
    return err;
}
