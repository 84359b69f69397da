/* Greedy placement: places each block at the lowest address where it fits; then repeats this with the blocks that were
 * too high moved forward in the order ("squeaky wheel"). Only large blocks are placed repeatedly: small ones fit
 * between. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/instance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t lowest_fit(const struct vp_plan_taken *g, uint64_t size) {
    uint64_t at = 0;
    for (size_t i = 0; i < g->span_count; i++) {
        if (g->spans[i].low >= at && g->spans[i].low - at >= size)
            break;
        if (g->spans[i].high > at)
            at = g->spans[i].high;
    }
    return at;
}

/* Places the first `count` items of an order. */
static int place(struct vp_plan_taken *g, const uint32_t *order, size_t count, uint64_t *peak) {
    vp_plan_taken_clear(g);
    *peak = 0;
    for (size_t k = 0; k < count; k++) {
        vp_plan_taken_by(g, order[k]);
        int err = vp_plan_taken_add(g, order[k], lowest_fit(g, g->in->items[order[k]].size));
        if (err)
            return err;
        uint64_t high = g->offset[order[k]] + g->in->items[order[k]].size;
        if (high > *peak)
            *peak = high;
    }
    return 0;
}

/* ---- orders ---- */

struct ranked {
    double weight;
    uint32_t item;
};

static int by_weight(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

enum { ORDERS = 3, PATIENCE = 200, SMALL = 8192 };

/* Large items are ranked by weight, and come before all others, which are ranked by size. */
struct orders {
    struct ranked *ranked;
    uint32_t *order, *best;
    size_t count, large;
};

static int orders_start(struct orders *o, const struct vp_plan_instance *in) {
    *o = (struct orders){.ranked = malloc((in->count + 1) * sizeof *o->ranked),
                         .order = malloc((in->count + 1) * sizeof *o->order),
                         .best = malloc((in->count + 1) * sizeof *o->best),
                         .count = in->count};
    if (!o->ranked || !o->order || !o->best)
        return -ENOMEM;
    for (size_t i = 0; i < in->count; i++)
        o->ranked[i] = (struct ranked){(double)in->items[i].size, (uint32_t)i};
    qsort(o->ranked, in->count, sizeof *o->ranked, by_weight);
    while (o->large < in->count && in->items[o->ranked[o->large].item].size >= in->lower_bound / SMALL)
        o->large++;
    return 0;
}

static void orders_finish(struct orders *o) {
    free(o->ranked);
    free(o->order);
    free(o->best);
}

static void weigh(const struct vp_plan_instance *in, struct orders *o, int kind) {
    for (size_t i = 0; i < o->large; i++) {
        const struct vp_plan_item *it = &in->items[o->ranked[i].item];
        double size = (double)it->size, life = (double)(it->end - it->begin);
        o->ranked[i].weight = kind == 0 ? size : kind == 1 ? size * life : life;
    }
}

static void sort(struct orders *o) {
    qsort(o->ranked, o->large, sizeof *o->ranked, by_weight);
    for (size_t i = 0; i < o->count; i++)
        o->order[i] = o->ranked[i].item;
}

/* Items that reach above the bound gain weight, so that they are placed earlier next time. */
static void blame(const struct vp_plan_taken *g, struct orders *o, uint64_t bound) {
    for (size_t i = 0; i < o->large; i++)
        if (g->offset[o->ranked[i].item] + g->in->items[o->ranked[i].item].size > bound)
            o->ranked[i].weight *= 1.5;
}

/* Tries one kind of order, and improves it; `least` is the best peak of the large items so far. */
static int improve(struct vp_plan_taken *g, struct orders *o, int kind, uint64_t capacity, double until,
                   uint64_t *least, unsigned *rounds) {
    uint64_t best = UINT64_MAX, reached;
    unsigned idle = 0;
    weigh(g->in, o, kind);
    do {
        sort(o);
        int err = place(g, o->order, o->large, &reached);
        if (err)
            return err;
        ++*rounds;
        idle = reached < best ? 0 : idle + 1;
        best = reached < best ? reached : best;
        if (reached < *least) {
            *least = reached;
            memcpy(o->best, o->order, o->count * sizeof *o->best);
        }
        blame(g, o, capacity);
    } while (*least > capacity && idle < PATIENCE && vp_plan_now() < until);
    return 0;
}

int vp_plan_greedy(const struct vp_plan_instance *in, uint64_t capacity, double until, uint64_t *offsets,
                   uint64_t *peak, unsigned *rounds) {
    struct vp_plan_taken g;
    struct orders o = {0};
    uint64_t least = UINT64_MAX;
    int err = vp_plan_taken_start(&g, in);
    err = err ? err : orders_start(&o, in);
    for (int kind = 0; kind < ORDERS && !err && least > capacity; kind++) {
        double now = vp_plan_now();
        if (kind && now >= until)
            break;
        err = improve(&g, &o, kind, capacity, now + (until - now) / (ORDERS - kind), &least, rounds);
    }
    if (!err)
        err = place(&g, o.best, in->count, peak);
    if (!err)
        memcpy(offsets, g.offset, in->count * sizeof *offsets);
    vp_plan_taken_finish(&g);
    orders_finish(&o);
    return err;
}
