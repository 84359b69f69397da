/* STAlloc's planner, as published (arXiv 2507.16274), for comparison with our own:
 *   - blocks that are allocated in one phase of the program and freed in one phase are a group, planned by itself;
 *   - neighbouring groups are fused where that lowers their time-memory product: bytes of addresses by time;
 *   - groups are placed as blocks of their own, in descending sizes: into a gap of a layer of larger ones; else into
 *     the layer of their own size that has been free for the shortest time; else into a new layer, behind the others.
 * A program that tells of no phases has no groups: its blocks are placed one by one. Not modelled: requests of a number
 * and a size that differ from step to step (experts), which the original plans by the modules that make them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/instance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups ---- */

/* Blocks [from, from + count) of the order in which they are grouped. */
struct group {
    size_t from, count;
    uint32_t first_phase, last_phase;
    struct vp_plan_block whole; /* size: the addresses that the group takes */
};

struct member {
    uint32_t first_phase, last_phase;
    size_t block;
};

struct groups {
    struct vp_plan_block *blocks;
    struct member *members;
    struct group *items;
    struct vp_plan_block *wholes;
    struct vp_plan_block *scratch; /* a group's blocks, while it is planned */
    size_t *apart;                 /* the offsets of two groups' blocks before they are fused */
    size_t count;
};

static uint32_t phase_of(const uint64_t *phases, size_t count, uint64_t time) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (phases[middle] <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

static int by_phases(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    if (x->first_phase != y->first_phase)
        return x->first_phase < y->first_phase ? -1 : 1;
    if (x->last_phase != y->last_phase)
        return x->last_phase < y->last_phase ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

/* Gives the group's blocks offsets among themselves: one greedy placement, which takes no time to speak of. */
static int plan_group(struct groups *g, struct group *group) {
    const struct vp_plan_limits once = {0};
    struct vp_plan_figures figures;
    if (group->count == 1) {
        group->whole = g->blocks[g->members[group->from].block];
        g->blocks[g->members[group->from].block].offset = 0;
        return 0;
    }
    for (size_t i = 0; i < group->count; i++) {
        const struct vp_plan_block *b = &g->blocks[g->members[group->from + i].block];
        g->scratch[i] = *b;
        group->whole.begin = !i || b->begin < group->whole.begin ? b->begin : group->whole.begin;
        group->whole.end = !i || b->end > group->whole.end ? b->end : group->whole.end;
    }
    int err = vp_plan_place(g->scratch, group->count, &once, &figures);
    group->whole.size = figures.peak;
    for (size_t i = 0; i < group->count && !err; i++)
        g->blocks[g->members[group->from + i].block].offset = g->scratch[i].offset;
    return err;
}

static double product(const struct group *group) {
    return (double)group->whole.size * (double)(group->whole.end - group->whole.begin);
}

/* Are the groups neighbours: do they follow each other in the order of phases, and live at the same time for a while?
 */
static bool neighbours(const struct group *a, const struct group *b) {
    return a->whole.begin < b->whole.end && b->whole.begin < a->whole.end &&
           (a->first_phase == b->first_phase || b->first_phase - a->first_phase == 1);
}

/* Fuses `b` into `a` if that is worth it. Returns 1 if it was, else 0 or -ENOMEM. */
static int fuse(struct groups *g, struct group *a, const struct group *b) {
    struct group both = {
        .from = a->from, .count = a->count + b->count, .first_phase = a->first_phase, .last_phase = b->last_phase};
    if (!neighbours(a, b))
        return 0;
    for (size_t i = 0; i < both.count; i++)
        g->apart[i] = g->blocks[g->members[both.from + i].block].offset;
    int err = plan_group(g, &both);
    if (err)
        return err;
    if (product(&both) < product(a) + product(b)) {
        *a = both;
        return 1;
    }
    for (size_t i = 0; i < both.count; i++)
        g->blocks[g->members[both.from + i].block].offset = g->apart[i];
    return 0;
}

static int make_groups(struct groups *g, size_t count, const uint64_t *phases, size_t phase_count) {
    for (size_t i = 0; i < count; i++)
        g->members[i] = (struct member){phase_of(phases, phase_count, g->blocks[i].begin),
                                        phase_of(phases, phase_count, g->blocks[i].end), i};
    if (phase_count)
        qsort(g->members, count, sizeof *g->members, by_phases);
    for (size_t from = 0, to; from < count; from = to) {
        struct group *group = &g->items[g->count];
        *group = (struct group){
            .from = from, .first_phase = g->members[from].first_phase, .last_phase = g->members[from].last_phase};
        for (to = from + 1; phase_count && to < count && g->members[to].first_phase == group->first_phase &&
                            g->members[to].last_phase == group->last_phase;)
            to++;
        group->count = to - from;
        int err = plan_group(g, group);
        if (!err && g->count && phase_count)
            err = fuse(g, group - 1, group);
        if (err < 0)
            return err;
        g->count += !err;
    }
    return 0;
}

/* ---- layers ---- */

/* A stretch of addresses for blocks of one size, and for smaller ones while none of them lives. */
struct layer {
    uint64_t low, size;
    uint32_t end; /* when the last block of its own size ends */
};

struct layers {
    struct vp_plan_taken taken;
    struct layer *items; /* in order of address, and so of size, the largest first */
    size_t count;
};

/* Finds the lowest gap in a layer that is larger than the item. True: `offset` is its address. */
static bool gap_of(const struct layers *l, uint64_t size, uint64_t *offset) {
    size_t span = 0;
    for (size_t i = 0; i < l->count && l->items[i].size > size; i++) {
        uint64_t at = l->items[i].low, high = at + l->items[i].size;
        for (; span < l->taken.span_count && l->taken.spans[span].low < high; span++) {
            if (l->taken.spans[span].low >= at && l->taken.spans[span].low - at >= size)
                break;
            at = l->taken.spans[span].high > at ? l->taken.spans[span].high : at;
        }
        if (high - at >= size) {
            *offset = at;
            return true;
        }
        while (span < l->taken.span_count && l->taken.spans[span].low < high)
            span++;
    }
    return false;
}

/* Is nothing in [low, high) taken? */
static bool is_free(const struct layers *l, uint64_t low, uint64_t high) {
    size_t from = 0, to = l->taken.span_count;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (l->taken.spans[middle].high <= low)
            from = middle + 1;
        else
            to = middle;
    }
    return from == l->taken.span_count || l->taken.spans[from].low >= high;
}

static struct layer *latest_ending(const struct layers *l, const struct vp_plan_item *it) {
    struct layer *best = NULL;
    for (size_t i = l->count; i && l->items[i - 1].size == it->size; i--) {
        struct layer *layer = &l->items[i - 1];
        if (layer->end <= it->begin && (!best || layer->end >= best->end) &&
            is_free(l, layer->low, layer->low + layer->size))
            best = layer;
    }
    return best;
}

static int place(struct layers *l, uint32_t item, uint64_t *peak) {
    const struct vp_plan_item *it = &l->taken.in->items[item];
    uint64_t offset;
    vp_plan_taken_by(&l->taken, item);
    if (gap_of(l, it->size, &offset))
        return vp_plan_taken_add(&l->taken, item, offset);
    struct layer *layer = latest_ending(l, it);
    if (!layer) {
        layer = &l->items[l->count++];
        *layer = (struct layer){.low = *peak, .size = it->size};
        *peak += it->size;
    }
    layer->end = it->end;
    return vp_plan_taken_add(&l->taken, item, layer->low);
}

struct sized {
    uint64_t size;
    uint32_t item;
};

static int by_size(const void *a, const void *b) {
    const struct sized *x = a, *y = b;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

/* Places groups, by their begin where they are equal. */
static int place_groups(struct groups *g, struct vp_plan_figures *figures) {
    struct vp_plan_instance in;
    int err = vp_plan_instance(&in, g->wholes, g->count);
    if (err)
        return err;
    struct layers l = {.items = calloc(g->count + 1, sizeof *l.items)};
    struct sized *order = calloc(g->count + 1, sizeof *order);
    err = vp_plan_taken_start(&l.taken, &in);
    if (!l.items || !order)
        err = -ENOMEM;
    for (size_t i = 0; i < g->count && !err; i++)
        order[i] = (struct sized){in.items[i].size, (uint32_t)i};
    if (!err)
        qsort(order, g->count, sizeof *order, by_size);
    for (size_t i = 0; i < g->count && !err; i++)
        err = place(&l, order[i].item, &figures->peak);
    for (size_t i = 0; i < g->count && !err; i++)
        g->wholes[in.number[i]].offset = l.taken.offset[i];
    vp_plan_taken_finish(&l.taken);
    free(l.items);
    free(order);
    vp_plan_instance_finish(&in);
    return err;
}

static int place_all(struct groups *g, size_t count, const uint64_t *phases, size_t phase_count,
                     struct vp_plan_figures *figures) {
    int err = make_groups(g, count, phases, phase_count);
    for (size_t i = 0; i < g->count && !err; i++)
        g->wholes[i] = g->items[i].whole;
    err = err ? err : place_groups(g, figures);
    for (size_t i = 0; i < g->count && !err; i++)
        for (size_t k = 0; k < g->items[i].count; k++)
            g->blocks[g->members[g->items[i].from + k].block].offset += g->wholes[i].offset;
    return err;
}

int vp_plan_stalloc(struct vp_plan_block *blocks, size_t count, const uint64_t *phases, size_t phase_count,
                    struct vp_plan_figures *figures) {
    double begin = vp_plan_now();
    memset(figures, 0, sizeof *figures);
    int err = vp_plan_lower_bound(blocks, count, &figures->lower_bound);
    if (err)
        return err;
    struct groups g = {.blocks = blocks,
                       .members = calloc(count + 1, sizeof *g.members),
                       .items = calloc(count + 1, sizeof *g.items),
                       .wholes = calloc(count + 1, sizeof *g.wholes),
                       .scratch = calloc(count + 1, sizeof *g.scratch),
                       .apart = calloc(count + 1, sizeof *g.apart)};
    err = g.members && g.items && g.wholes && g.scratch && g.apart ? place_all(&g, count, phases, phase_count, figures)
                                                                   : -ENOMEM;
    figures->rounds = 1;
    figures->seconds = vp_plan_now() - begin;
    free(g.members);
    free(g.items);
    free(g.wholes);
    free(g.scratch);
    free(g.apart);
    return err;
}
