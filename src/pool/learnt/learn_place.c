/* Places for blocks of known lifetimes: the largest first, each as low as possible. See learn.h.
 *
 * The planner of src/plan does the same and better, with malloc and for minutes; this one runs at the end of a
 * program. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/os_memory.h"
#include "base/sort.h"
#include "pool/learnt/learn.h"

#include <errno.h>
#include <string.h>

/* A block that was placed. */
struct span {
    uint64_t low, high;
    uint32_t begin, end, stream;
};

/* The blocks placed in a part of the run, so that a short-lived one is compared with few others. Ordered by address,
 * except that the newest `last` ones are ordered by themselves: inserting each among ten thousand others would take
 * longer than all else. */
struct stretch {
    struct span *spans;
    uint32_t count, last; /* the newest so many of these */
};
enum { LAST_MOST = 256 };

/* The run is cut into parts in several ways, finer ones first, each also shifted by half a part: so most blocks lie
 * within one part. */
enum { CUTS = 4, STRETCHES = 129 };
static const uint32_t PARTS[CUTS] = {128, 128, 16, 16};

struct placing {
    struct vp_learn_item *items;
    float *weight; /* the order of items, within those that are alone and within the others */
    uint32_t *order;
    struct stretch all, part[CUTS][STRETCHES];
    uint64_t *best;              /* offsets of the best placing so far */
    struct span last[LAST_MOST]; /* scratch */
    uint32_t count, gap;
    size_t granularity;
};

/* Orders that are tried: by size, behind blocks that stay for good; by size; by size times lifetime. What then lies too
 * high is placed earlier the next time, until so many tries in a row have not helped. */
enum { ORDERS = 3, PATIENCE = 50, PATIENCE_FIRST = 4 };

/* Blocks that stay for good are placed first: side by side, in large handles that nobody else needs. */
static const float FIRST = 0x1p40F;

/* A placing is good enough if it ends at most 1/GOOD_SHARE above the most bytes alive at once. */
enum { GOOD_SHARE = 500 };

/* What one stream has left another may have once work on it is over, which takes time. A place that is not ready then
 * costs more than its own memory, as its block lies in the way of others. So between blocks of two streams at one place
 * there are so many requests, if that costs half a hundredth of memory at most; else fewer. */
enum { GAPS = 2, SPARE_SHARE = 200 };
static const uint32_t GAP[GAPS] = {1024, 128};

static void weigh(struct placing *p, int order) {
    for (uint32_t i = 0; i < p->count; i++) {
        const float size = (float)p->items[i].size, life = (float)(p->items[i].end - p->items[i].begin);
        p->weight[i] = order <= 1 ? size : size * life;
        if (!order && vp_learn_stays(&p->items[i], p->count))
            p->weight[i] *= FIRST;
    }
}

static void blame(struct placing *p, uint64_t least) {
    for (uint32_t i = 0; i < p->count; i++)
        if (p->items[i].offset + p->items[i].size > least)
            p->weight[i] *= 1.5F;
}

/* Is `a` placed behind `b`? Blocks that are alone come first, as they begin and end where handles do. */
static bool behind(const void *a, const void *b, const void *placing) {
    const struct placing *p = placing;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const struct vp_learn_item *x = &p->items[i], *y = &p->items[j];
    if (x->alone != y->alone)
        return y->alone;
    if (p->weight[i] > p->weight[j] || p->weight[i] < p->weight[j])
        return p->weight[i] < p->weight[j];
    return x->size != y->size ? x->size < y->size : i > j;
}

static void sort(const struct placing *p) {
    for (uint32_t i = 0; i < p->count; i++)
        p->order[i] = i;
    vp_sort(p->order, sizeof *p->order, p->count, behind, p);
}

static uint32_t part_of(const struct placing *p, int cut, uint32_t request) {
    const uint32_t width = p->count / PARTS[cut] + 1;
    return (request + (cut % 2 ? width / 2 : 0)) / width;
}

static uint64_t lowest_fit(const struct placing *p, const struct vp_learn_item *item) {
    const uint64_t align = item->alone ? p->granularity : VP_QUANTUM;
    const uint32_t begin = item->begin > p->gap ? item->begin - p->gap : 0;
    const uint32_t end = p->count - item->end > p->gap ? item->end + p->gap : p->count;
    const struct stretch *among = &p->all;
    for (int cut = 0; cut < CUTS && among == &p->all; cut++)
        if (part_of(p, cut, begin) == part_of(p, cut, end - 1))
            among = &p->part[cut][part_of(p, cut, begin)];
    const struct span *s = among->spans, *s_end = s + (among->count - among->last), *last = s_end,
                      *last_end = last + among->last;
    uint64_t at = 0;
    while (s < s_end || last < last_end) {
        const struct span *one = last == last_end || (s < s_end && s->low <= last->low) ? s++ : last++;
        const bool other = one->stream != item->stream;
        if (one->begin >= (other ? end : item->end) || one->end <= (other ? begin : item->begin) || one->high <= at)
            continue;
        if (one->low >= at && one->low - at >= item->size)
            break;
        at = (one->high + align - 1) & -align;
    }
    return at;
}

/* Moves the newest ones to where they belong. */
static void merge(struct placing *p, struct stretch *among) {
    uint32_t to = among->count, from = among->count - among->last, last = among->last;
    memcpy(p->last, &among->spans[from], last * sizeof *p->last);
    while (last)
        among->spans[--to] = from && among->spans[from - 1].low > p->last[last - 1].low ? among->spans[--from]
                                                                                        : p->last[--last];
    among->last = 0;
}

static void add(struct placing *p, struct stretch *among, const struct vp_learn_item *item) {
    if (among->last == LAST_MOST || among->last * among->last > 2 * among->count + LAST_MOST)
        merge(p, among);
    uint32_t from = among->count - among->last, to = among->count;
    while (from < to) {
        const uint32_t middle = (from + to) / 2;
        if (among->spans[middle].low < item->offset)
            from = middle + 1;
        else
            to = middle;
    }
    memmove(&among->spans[from + 1], &among->spans[from], (among->count - from) * sizeof *among->spans);
    among->spans[from] = (struct span){item->offset, item->offset + item->size, item->begin, item->end, item->stream};
    among->count++;
    among->last++;
}

static void add_everywhere(struct placing *p, const struct vp_learn_item *item) {
    add(p, &p->all, item);
    for (int cut = 0; cut < CUTS; cut++)
        for (uint32_t i = part_of(p, cut, item->begin); i <= part_of(p, cut, item->end - 1); i++)
            add(p, &p->part[cut][i], item);
}

/* Places all. Returns the end of the highest; UINT64_MAX: time was up. */
static uint64_t place(struct placing *p, uint64_t until) {
    uint64_t end = 0;
    p->all.count = p->all.last = 0;
    for (int cut = 0; cut < CUTS; cut++)
        for (int i = 0; i < STRETCHES; i++)
            p->part[cut][i].count = p->part[cut][i].last = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        struct vp_learn_item *item = &p->items[p->order[i]];
        if (until && i % 256 == 0 && vp_clock_ns() > until)
            return UINT64_MAX;
        item->offset = lowest_fit(p, item);
        add_everywhere(p, item);
        end = vp_greater(end, item->offset + item->size);
    }
    return end;
}

/* The most bytes that were alive at once: no placing can end lower. */
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

/* Tries one order and its improvements; keeps the best placing so far. */
static void improve(struct placing *p, int order, uint64_t good, uint64_t until, uint64_t *end) {
    uint64_t best = UINT64_MAX;
    weigh(p, order);
    for (int idle = 0; idle < (order ? PATIENCE : PATIENCE_FIRST) && *end > good; idle++) {
        sort(p);
        /* The first placing is made whatever it takes: a second for VP_LEARNT_REQUESTS. */
        const uint64_t reached = place(p, *end == UINT64_MAX ? 0 : until);
        if (reached == UINT64_MAX)
            return;
        for (uint32_t i = 0; i < p->count && reached < *end; i++)
            p->best[i] = p->items[i].offset;
        *end = reached < *end ? reached : *end;
        idle = reached < best ? 0 : idle;
        best = reached < best ? reached : best;
        blame(p, good);
    }
}

/* Counts the blocks alive in each part of the run; returns the sum. */
static size_t count_parts(struct placing *p) {
    size_t sum = 0;
    for (uint32_t i = 0; i < p->count; i++)
        for (int cut = 0; cut < CUTS; cut++)
            for (uint32_t at = part_of(p, cut, p->items[i].begin); at <= part_of(p, cut, p->items[i].end - 1);
                 at++, sum++)
                p->part[cut][at].count++;
    return sum;
}

/* Gives each part room for as many as were counted. */
static void give_room(struct placing *p, struct span *mem, size_t room) {
    p->all.spans = mem;
    mem += room;
    for (int cut = 0; cut < CUTS; cut++)
        for (int i = 0; i < STRETCHES; i++) {
            p->part[cut][i].spans = mem;
            mem += p->part[cut][i].count;
        }
}

static void try_orders(struct placing *p, uint64_t good, uint64_t until, uint64_t *end) {
    for (int order = 0; order < ORDERS && *end > good; order++)
        improve(p, order, good, until, end);
}

static bool has_streams(const struct placing *p) {
    for (uint32_t i = 1; i < p->count; i++)
        if (p->items[i].stream != p->items[0].stream)
            return true;
    return false;
}

static int place_all(struct placing *p, uint64_t until, uint64_t most, uint64_t *end) {
    const size_t room = (size_t)p->count + 1, spans = room + count_parts(p),
                 bytes = spans * sizeof(struct span) + room * (sizeof *p->best + sizeof *p->order + sizeof *p->weight);
    struct span *mem = vp_os_take(bytes);
    if (!mem)
        return -ENOMEM;
    give_room(p, mem, room);
    p->best = (uint64_t *)(mem + spans);
    p->order = (uint32_t *)(p->best + room);
    p->weight = (float *)(p->order + room);
    const uint64_t least = least_end(p), good = least + least / GOOD_SHARE;
    *end = UINT64_MAX;
    try_orders(p, good, until, end);
    for (int i = 0; i < GAPS && has_streams(p); i++) {
        const uint64_t beyond = (least + least / SPARE_SHARE < most ? least + least / SPARE_SHARE : most) + 1;
        uint64_t reached = beyond;
        p->gap = GAP[i];
        try_orders(p, good, until, &reached);
        if (reached < beyond) {
            *end = reached;
            break;
        }
    }
    for (uint32_t i = 0; i < p->count; i++)
        p->items[i].offset = p->best[i];
    vp_os_give(mem, bytes);
    return 0;
}

int vp_learn_place(struct vp_learn_item *items, uint32_t count, size_t granularity, uint64_t until, uint64_t most,
                   uint64_t *end) {
    struct placing *p = vp_os_take(sizeof *p); /* too large for some stacks */
    if (!p)
        return -ENOMEM;
    *p = (struct placing){.items = items, .count = count, .granularity = granularity};
    const int err = place_all(p, until, most, end);
    vp_os_give(p, sizeof *p);
    return err;
}
