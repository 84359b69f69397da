/* Places for blocks whose lifetimes are known: largest first, each as low as it goes. See learn.h.
 *
 * The planner of src/plan does the same and better, with malloc and for minutes; this one is for the end of a program.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/clock.h"
#include "pool/learn.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* What was placed, by address. */
struct span {
    uint64_t low, high;
    uint32_t begin, end;
};

struct placing {
    struct vp_learn_item *items;
    uint32_t *order;
    struct span *spans;
    uint64_t *best; /* offsets */
    size_t span_count;
    uint32_t count;
    size_t granularity;
};

/* Orders that are tried: by size; by size and lifetime; by lifetime. */
enum { ORDERS = 3 };

static double weight(const struct vp_learn_item *item, int order) {
    const double size = (double)item->size, life = (double)(item->end - item->begin);
    return order == 0 ? size : order == 1 ? size * life : life;
}

/* Is `a` placed before `b`? What lies alone comes first: it begins and ends where handles do. */
static bool before(const struct vp_learn_item *a, const struct vp_learn_item *b, int order) {
    const double x = weight(a, order), y = weight(b, order);
    if (a->alone != b->alone)
        return a->alone;
    if (x > y || x < y)
        return x > y;
    return a->size != b->size ? a->size > b->size : a->begin < b->begin;
}

/* Heap sort: libc's qsort may call malloc. */
static void sort(const struct placing *p, int order) {
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
            if (j + 1 < end && before(&p->items[list[j]], &p->items[list[j + 1]], order))
                j++;
            if (!before(&p->items[list[i]], &p->items[list[j]], order))
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

int vp_learn_place(struct vp_learn_item *items, uint32_t count, size_t granularity, uint64_t until, uint64_t *end) {
    const size_t room = (size_t)count + 1,
                 bytes = room * (sizeof(struct span) + sizeof(uint64_t) + sizeof(uint32_t));
    struct span *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED)
        return -ENOMEM;
    struct placing p = {.items = items, .spans = mem, .count = count, .granularity = granularity};
    p.best = (uint64_t *)(mem + room);
    p.order = (uint32_t *)(p.best + room);
    const uint64_t least = least_end(&p);
    *end = UINT64_MAX;
    for (int order = 0; order < ORDERS && *end > least; order++) {
        sort(&p, order);
        /* The first one is to be had whatever it takes: with at most VP_LEARNT_REQUESTS that is a second. */
        const uint64_t reached = place(&p, order ? until : 0);
        for (uint32_t i = 0; i < count && reached < *end; i++)
            p.best[i] = items[i].offset;
        *end = reached < *end ? reached : *end;
    }
    for (uint32_t i = 0; i < count; i++)
        items[i].offset = p.best[i];
    munmap(mem, bytes);
    return 0;
}
