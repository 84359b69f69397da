/* The planner: greedy placements first, then, for what is small enough, a search. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/instance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* More blocks than this are not searched: the search's cost grows with their square. */
enum { SEARCHABLE = 4096 };

/* The share of the time that greedy placements may take if a search can follow. */
#define GREEDY_SHARE 0.1

double vp_plan_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- times as ranks ---- */

static int by_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint32_t rank_of(const uint64_t *times, size_t count, uint64_t time) {
    const uint64_t *at = bsearch(&time, times, count, sizeof *times, by_u64);
    return (uint32_t)(at - times);
}

struct entry {
    struct vp_plan_item item;
    uint32_t number;
};

static int by_begin(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->item.begin != y->item.begin)
        return x->item.begin < y->item.begin ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static size_t unique(uint64_t *values, size_t count) {
    size_t kept = 0;
    qsort(values, count, sizeof *values, by_u64);
    for (size_t i = 0; i < count; i++)
        if (!i || values[i] != values[kept - 1])
            values[kept++] = values[i];
    return kept;
}

static void sum_alive(struct vp_plan_instance *in) {
    for (size_t i = 0; i < in->count; i++) {
        in->alive[in->items[i].begin] += in->items[i].size;
        in->alive[in->items[i].end] -= in->items[i].size; /* wraps around, and back again in the sum */
    }
    for (uint32_t t = 0; t < in->times; t++) {
        in->alive[t] += t ? in->alive[t - 1] : 0;
        if (in->alive[t] > in->lower_bound)
            in->lower_bound = in->alive[t];
    }
}

int vp_plan_instance(struct vp_plan_instance *in, const struct vp_plan_block *blocks, size_t count) {
    uint64_t all = 0;
    memset(in, 0, sizeof *in);
    for (size_t i = 0; i < count; i++)
        if (!blocks[i].size || blocks[i].begin >= blocks[i].end || __builtin_add_overflow(all, blocks[i].size, &all))
            return -EINVAL;
    if (count > UINT32_MAX / 2)
        return -EINVAL;
    uint64_t *times = malloc((2 * count + 1) * sizeof *times);
    struct entry *entries = malloc((count + 1) * sizeof *entries);
    in->items = malloc((count + 1) * sizeof *in->items);
    in->number = malloc((count + 1) * sizeof *in->number);
    in->alive = calloc(2 * count + 1, sizeof *in->alive);
    int err = times && entries && in->items && in->number && in->alive ? 0 : -ENOMEM;
    if (!err) {
        for (size_t i = 0; i < count; i++) {
            times[2 * i] = blocks[i].begin;
            times[2 * i + 1] = blocks[i].end;
        }
        size_t kept = unique(times, 2 * count);
        for (size_t i = 0; i < count; i++)
            entries[i] = (struct entry){
                {blocks[i].size, rank_of(times, kept, blocks[i].begin), rank_of(times, kept, blocks[i].end)},
                (uint32_t)i};
        qsort(entries, count, sizeof *entries, by_begin);
        for (size_t i = 0; i < count; i++) {
            in->items[i] = entries[i].item;
            in->number[i] = entries[i].number;
        }
        in->count = count;
        in->times = (uint32_t)kept;
        sum_alive(in);
    }
    free(times);
    free(entries);
    if (err)
        vp_plan_instance_finish(in);
    return err;
}

void vp_plan_instance_finish(struct vp_plan_instance *in) {
    free(in->items);
    free(in->number);
    free(in->alive);
    memset(in, 0, sizeof *in);
}

int vp_plan_lower_bound(const struct vp_plan_block *blocks, size_t count, uint64_t *bytes) {
    struct vp_plan_instance in;
    int err = vp_plan_instance(&in, blocks, count);
    *bytes = err ? 0 : in.lower_bound;
    if (!err)
        vp_plan_instance_finish(&in);
    return err;
}

/* ---- the whole ---- */

static uint64_t peak_of(const struct vp_plan_instance *in, const uint64_t *offsets) {
    uint64_t peak = 0;
    for (size_t i = 0; i < in->count; i++)
        if (offsets[i] + in->items[i].size > peak)
            peak = offsets[i] + in->items[i].size;
    return peak;
}

/* Searches for better plans. A requested capacity is tried first. Without one, or if it cannot be met, each try is half
 * way between the best peak so far and the least capacity not known to be too small. */
static int search_down(const struct vp_plan_instance *in, uint64_t least, bool asked, double until, uint64_t *offsets,
                       struct vp_plan_figures *figures) {
    uint64_t *found = malloc((in->count + 1) * sizeof *found);
    int err = found ? 0 : -ENOMEM;
    while (!err && figures->peak > least && vp_plan_now() < until) {
        const uint64_t capacity = asked ? least : least + (figures->peak - least) / 2;
        asked = false;
        err = vp_plan_search(in, capacity, until, found);
        if (err > 0) {
            err = 0;
            memcpy(offsets, found, in->count * sizeof *found);
            figures->peak = peak_of(in, offsets);
            figures->searched = true;
        } else if (vp_plan_now() < until) {
            least = capacity + 1;
        }
    }
    free(found);
    return err;
}

int vp_plan_place(struct vp_plan_block *blocks, size_t count, const struct vp_plan_limits *limits,
                  struct vp_plan_figures *figures) {
    struct vp_plan_instance in;
    double begin = vp_plan_now();
    memset(figures, 0, sizeof *figures);
    int err = vp_plan_instance(&in, blocks, count);
    if (err)
        return err;
    uint64_t *offsets = calloc(count + 1, sizeof *offsets);
    uint64_t wanted = limits->capacity > in.lower_bound ? limits->capacity : in.lower_bound;
    bool searchable = count <= SEARCHABLE;
    figures->lower_bound = in.lower_bound;
    err = offsets ? vp_plan_greedy(&in, wanted, begin + limits->seconds * (searchable ? GREEDY_SHARE : 1), offsets,
                                   &figures->peak, &figures->rounds)
                  : -ENOMEM;
    if (!err && searchable && figures->peak > wanted)
        err = search_down(&in, wanted, limits->capacity >= in.lower_bound, begin + limits->seconds, offsets, figures);
    if (!err)
        for (size_t i = 0; i < count; i++)
            blocks[in.number[i]].offset = offsets[i];
    figures->seconds = vp_plan_now() - begin;
    free(offsets);
    vp_plan_instance_finish(&in);
    return err;
}
