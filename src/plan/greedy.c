/* Greedy placement: block by block, each at the lowest address where it fits; then again with those that lay too high
 * earlier in the order, which is the whole art ("squeaky wheel"). Only what is large is placed again and again: what is
 * small finds room between.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/instance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct link {
    uint32_t item, next; /* next: a link's number and one, 0 for none */
};

struct greedy {
    const struct vp_plan_instance *in;
    uint64_t *offset;
    bool *placed;
    /* Of each rank, the first item that begins there or later. */
    uint32_t *first;
    /* A segment tree over the ranks: each placed item hangs at the nodes that its lifetime covers. */
    uint32_t leaves;
    uint32_t *head;
    struct link *links;
    size_t link_count, link_room;
    /* The intervals of addresses that are taken while the item in hand lives. */
    struct span {
        uint64_t low, high;
    } *spans;
    size_t span_count;
};

static void finish(struct greedy *g) {
    free(g->offset);
    free(g->placed);
    free(g->first);
    free(g->head);
    free(g->links);
    free(g->spans);
}

static int start(struct greedy *g, const struct vp_plan_instance *in) {
    *g = (struct greedy){.in = in, .leaves = 1};
    while (g->leaves < in->times)
        g->leaves *= 2;
    g->link_room = in->count * 4 + 64;
    g->offset = malloc((in->count + 1) * sizeof *g->offset);
    g->placed = malloc(in->count + 1);
    g->first = malloc((in->times + 1) * sizeof *g->first);
    g->head = malloc(2 * (size_t)g->leaves * sizeof *g->head);
    g->links = malloc(g->link_room * sizeof *g->links);
    g->spans = malloc((in->count + 1) * sizeof *g->spans);
    if (!g->offset || !g->placed || !g->first || !g->head || !g->links || !g->spans)
        return -ENOMEM;
    for (uint32_t t = 0, i = 0; t <= in->times; t++) {
        while (i < in->count && in->items[i].begin < t)
            i++;
        g->first[t] = i;
    }
    return 0;
}

static void take(struct greedy *g, uint32_t item) {
    uint64_t low = g->offset[item];
    g->spans[g->span_count++] = (struct span){low, low + g->in->items[item].size};
}

/* What is placed and alive at some time when the item is. */
static void collect(struct greedy *g, uint32_t item) {
    const struct vp_plan_item *it = &g->in->items[item];
    g->span_count = 0;
    for (uint32_t node = it->begin + g->leaves; node; node /= 2)
        for (uint32_t at = g->head[node]; at; at = g->links[at - 1].next)
            take(g, g->links[at - 1].item);
    for (uint32_t i = g->first[it->begin + 1]; i < g->first[it->end]; i++)
        if (g->placed[i])
            take(g, i);
}

static int by_low(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

static uint64_t lowest_fit(struct greedy *g, uint64_t size) {
    uint64_t at = 0;
    qsort(g->spans, g->span_count, sizeof *g->spans, by_low);
    for (size_t i = 0; i < g->span_count; i++) {
        if (g->spans[i].low >= at && g->spans[i].low - at >= size)
            break;
        if (g->spans[i].high > at)
            at = g->spans[i].high;
    }
    return at;
}

static int hang(struct greedy *g, uint32_t node, uint32_t item) {
    if (g->link_count == g->link_room) {
        struct link *more = realloc(g->links, 2 * g->link_room * sizeof *more);
        if (!more)
            return -ENOMEM;
        g->links = more;
        g->link_room *= 2;
    }
    g->links[g->link_count++] = (struct link){item, g->head[node]};
    g->head[node] = (uint32_t)g->link_count;
    return 0;
}

static int put(struct greedy *g, uint32_t item) {
    const struct vp_plan_item *it = &g->in->items[item];
    uint32_t low = it->begin + g->leaves, high = it->end + g->leaves;
    int err = 0;
    collect(g, item);
    g->offset[item] = lowest_fit(g, it->size);
    g->placed[item] = true;
    for (; low < high && !err; low /= 2, high /= 2) {
        if (low & 1)
            err = hang(g, low++, item);
        if (!err && high & 1)
            err = hang(g, --high, item);
    }
    return err;
}

/* The first `count` of an order. */
static int place(struct greedy *g, const uint32_t *order, size_t count, uint64_t *peak) {
    memset(g->placed, 0, g->in->count);
    memset(g->head, 0, 2 * (size_t)g->leaves * sizeof *g->head);
    g->link_count = 0;
    *peak = 0;
    for (size_t k = 0; k < count; k++) {
        int err = put(g, order[k]);
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

/* The large items are ranked by weight, and come before all others, which are ranked by size. */
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

/* What lay above the bound is placed before others of its weight next time. */
static void blame(const struct greedy *g, struct orders *o, uint64_t bound) {
    for (size_t i = 0; i < o->large; i++)
        if (g->offset[o->ranked[i].item] + g->in->items[o->ranked[i].item].size > bound)
            o->ranked[i].weight *= 1.5;
}

/* Tries one kind of order and what becomes of it; `least` is the best peak of the large items so far. */
static int improve(struct greedy *g, struct orders *o, int kind, uint64_t capacity, double until, uint64_t *least,
                   unsigned *rounds) {
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
    struct greedy g;
    struct orders o = {0};
    uint64_t least = UINT64_MAX;
    int err = start(&g, in);
    err = err ? err : orders_start(&o, in);
    for (int kind = 0; kind < ORDERS && !err && least > capacity; kind++) {
        double now = vp_plan_now();
        err = improve(&g, &o, kind, capacity, now + (until - now) / (ORDERS - kind), &least, rounds);
    }
    if (!err)
        err = place(&g, o.best, in->count, peak);
    if (!err)
        memcpy(offsets, g.offset, in->count * sizeof *offsets);
    finish(&g);
    orders_finish(&o);
    return err;
}
