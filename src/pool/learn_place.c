/* Places for blocks whose lifetimes are known: largest first, each as low as it goes. See learn.h.
 *
 * The planner of src/plan does the same and better, with malloc and for minutes; this one is for the end of a program.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/clock.h"
#include "pool/learn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What was placed, by address. */
struct span {
    uint64_t low, high;
    uint32_t begin, end;
};

struct placing {
    struct vp_learn_item *items;
    float *weight; /* by which items are ordered, within those that lie alone and the others */
    uint32_t *order;
    struct span *spans;
    uint64_t *best; /* offsets */
    size_t span_count;
    uint32_t count;
    size_t granularity;
};

/* Orders that are tried: by size; by size and lifetime; by lifetime. What then lies too high comes earlier the next
 * time, as long as that helps within so many times. */
enum { ORDERS = 3, PATIENCE = 50 };

static void weigh(struct placing *p, int order) {
    for (uint32_t i = 0; i < p->count; i++) {
        const float size = (float)p->items[i].size, life = (float)(p->items[i].end - p->items[i].begin);
        p->weight[i] = order == 0 ? size : order == 1 ? size * life : life;
    }
}

static void blame(struct placing *p, uint64_t least) {
    for (uint32_t i = 0; i < p->count; i++)
        if (p->items[i].offset + p->items[i].size > least)
            p->weight[i] *= 1.5F;
}

/* Is `a` placed before `b`? What lies alone comes first: it begins and ends where handles do. */
static bool before(const struct placing *p, uint32_t a, uint32_t b) {
    const struct vp_learn_item *x = &p->items[a], *y = &p->items[b];
    if (x->alone != y->alone)
        return x->alone;
    if (p->weight[a] > p->weight[b] || p->weight[a] < p->weight[b])
        return p->weight[a] > p->weight[b];
    return x->size != y->size ? x->size > y->size : a < b;
}

/* Heap sort: libc's qsort may call malloc. */
static void sort(const struct placing *p) {
    uint32_t *list = p->order;
    for (uint32_t i = 0; i < p->count; i++)
        list[i] = i;
    for (uint32_t start = p->count / 2, end = p->count; end > 1;) {
        if (start > 0) {
            start--;
        } else {
            const uint32_t last = list[--end];
            list[end] = list[0];
            list[0] = last;
        }
        for (uint32_t i = start, j; (j = 2 * i + 1) < end; i = j) {
            if (j + 1 < end && before(p, list[j], list[j + 1]))
                j++;
            if (!before(p, list[i], list[j]))
                break;
            const uint32_t t = list[i];
            list[i] = list[j];
            list[j] = t;
        }
    }
}

static uint64_t lowest_fit(const struct placing *p, const struct vp_learn_item *item) {
    const uint64_t align = item->alone ? p->granularity : VP_QUANTUM;
    uint64_t at = 0;
    for (const struct span *s = p->spans, *stop = s + p->span_count; s < stop; s++) {
        if (s->begin >= item->end || s->end <= item->begin || s->high <= at)
            continue;
        if (s->low >= at && s->low - at >= item->size)
            break;
        at = (s->high + align - 1) & -align;
    }
    return at;
}

static void add(struct placing *p, const struct vp_learn_item *item) {
    size_t from = 0, to = p->span_count;
    while (from < to) {
        const size_t middle = (from + to) / 2;
        if (p->spans[middle].low < item->offset)
            from = middle + 1;
        else
            to = middle;
    }
    memmove(&p->spans[from + 1], &p->spans[from], (p->span_count - from) * sizeof *p->spans);
    p->spans[from] = (struct span){item->offset, item->offset + item->size, item->begin, item->end};
    p->span_count++;
}

/* The end of the highest, or UINT64_MAX: time was up. */
static uint64_t place(struct placing *p, uint64_t until) {
    uint64_t end = 0;
    p->span_count = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        struct vp_learn_item *item = &p->items[p->order[i]];
        if (until && i % 256 == 0 && vp_clock_ns() > until)
            return UINT64_MAX;
        item->offset = lowest_fit(p, item);
        add(p, item);
        if (item->offset + item->size > end)
            end = item->offset + item->size;
    }
    return end;
}

/* The most bytes that were alive at once: no placing takes less. */
static uint64_t least_end(const struct placing *p) {
    uint64_t *change = p->best, alive = 0, most = 0;
    memset(change, 0, (p->count + 1) * sizeof *change);
    for (uint32_t i = 0; i < p->count; i++) {
        change[p->items[i].begin] += p->items[i].size;
        change[p->items[i].end] -= p->items[i].size;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        alive += change[i];
        most = alive > most ? alive : most;
    }
    return most;
}

/* Places in one order and what becomes of it; the best so far is kept. */
static void improve(struct placing *p, int order, uint64_t least, uint64_t until, uint64_t *end) {
    uint64_t best = UINT64_MAX;
    weigh(p, order);
    for (int idle = 0; idle < PATIENCE && *end > least; idle++) {
        sort(p);
        /* The first one is to be had whatever it takes: with at most VP_LEARNT_REQUESTS that is a second. */
        const uint64_t reached = place(p, *end == UINT64_MAX ? 0 : until);
        if (reached == UINT64_MAX)
            return;
        for (uint32_t i = 0; i < p->count && reached < *end; i++)
            p->best[i] = p->items[i].offset;
        *end = reached < *end ? reached : *end;
        idle = reached < best ? 0 : idle;
        best = reached < best ? reached : best;
        blame(p, least);
        if (getenv("DBG"))
            fprintf(stderr, "order %d idle %d reached %.4f of least, %.3f s left\n", order, idle, (double)reached / (double)least, ((double)until - (double)vp_clock_ns()) / 1e9);
    }
}

int vp_learn_place(struct vp_learn_item *items, uint32_t count, size_t granularity, uint64_t until, uint64_t *end) {
    const size_t room = (size_t)count + 1,
                 bytes = room * (sizeof(struct span) + sizeof(uint64_t) + sizeof(uint32_t) + sizeof(float));
    struct span *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED)
        return -ENOMEM;
    struct placing p = {.items = items, .spans = mem, .count = count, .granularity = granularity};
    p.best = (uint64_t *)(mem + room);
    p.order = (uint32_t *)(p.best + room);
    p.weight = (float *)(p.order + room);
    const uint64_t least = least_end(&p);
    *end = UINT64_MAX;
    for (int order = 0; order < ORDERS && *end > least; order++)
        improve(&p, order, least, until, end);
    for (uint32_t i = 0; i < count; i++)
        items[i].offset = p.best[i];
    munmap(mem, bytes);
    return 0;
}
