/* Searches for places below a given address. In any plan, blocks can be pushed down until each lies on another block or
 * at 0; so it is enough to place blocks in ascending order of their offsets, each right where those before it end. Only
 * such orders are tried, and of equal offsets only one order. A branch ends when at some moment the blocks still to
 * come cannot fit below the capacity. Blocks that share no moment are searched separately. (The order, the bound and
 * the two ways to prune are from MiniMalloc, Moffitt 2023.) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/instance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The clock is read once in so many steps. */
enum { STEPS = 256 };

struct search {
    const struct vp_plan_instance *in;
    uint64_t capacity;
    double until;
    unsigned steps;
    bool over;                /* the time is up */
    const uint32_t *priority; /* by item: among equals, the lower comes first */
    uint64_t *low;            /* by item: the least offset that is still open; its offset once it is placed */
    uint64_t *floor, *rest;   /* by rank: the least offset open to remaining items, and their bytes */
    /* A stack: lists of items and saved offsets. */
    uint32_t *stack;
    uint64_t *saved;
    size_t used, room;
};

/* What was placed last: later items are higher, or as high and later in priority. */
struct last {
    uint64_t offset;
    int64_t priority;
};

static bool solve(struct search *s, uint32_t *items, size_t count, struct last last);

static bool overlap(const struct vp_plan_item *a, const struct vp_plan_item *b) {
    return a->begin < b->end && b->begin < a->end;
}

/* Can the remaining items still be below the capacity at every time? */
static bool possible(struct search *s, const uint32_t *items, size_t count, uint64_t least) {
    uint32_t begin = UINT32_MAX, end = 0;
    for (size_t i = 0; i < count; i++) {
        const struct vp_plan_item *it = &s->in->items[items[i]];
        if (s->low[items[i]] + it->size > s->capacity)
            return false;
        begin = it->begin < begin ? it->begin : begin;
        end = it->end > end ? it->end : end;
    }
    for (uint32_t t = begin; t < end; t++) {
        s->floor[t] = UINT64_MAX;
        s->rest[t] = 0;
    }
    for (size_t i = 0; i < count; i++) {
        const struct vp_plan_item *it = &s->in->items[items[i]];
        uint64_t low = s->low[items[i]] > least ? s->low[items[i]] : least;
        for (uint32_t t = it->begin; t < it->end; t++) {
            s->floor[t] = low < s->floor[t] ? low : s->floor[t];
            s->rest[t] += it->size;
        }
    }
    for (uint32_t t = begin; t < end; t++)
        if (s->rest[t] && (s->floor[t] > s->capacity || s->rest[t] > s->capacity - s->floor[t]))
            return false;
    return true;
}

static bool out_of_time(struct search *s) {
    if (!s->over && ++s->steps % STEPS == 0)
        s->over = vp_plan_now() >= s->until;
    return s->over;
}

/* Solves groups of items apart. Items are in order of begin; a group shares no time with the next. */
static bool solve_apart(struct search *s, uint32_t *items, size_t count, struct last last) {
    for (size_t from = 0; from < count;) {
        uint32_t end = s->in->items[items[from]].end;
        size_t to = from + 1;
        for (; to < count && s->in->items[items[to]].begin < end; to++)
            if (s->in->items[items[to]].end > end)
                end = s->in->items[items[to]].end;
        if (!solve(s, items + from, to - from, last))
            return false;
        from = to;
    }
    return true;
}

/* Places an item, and continues with the others. `alone`: none of them shares a time with it. */
static bool try(struct search *s, const uint32_t *items, size_t count, uint32_t chosen, bool *alone) {
    const struct vp_plan_item *it = &s->in->items[chosen];
    struct last last = {s->low[chosen], s->priority[chosen]};
    uint64_t above = last.offset + it->size;
    size_t mark = s->used, left = 0;
    uint32_t *others = s->stack + mark;
    uint64_t *before = s->saved + mark;
    s->used += count;
    *alone = true;
    for (size_t i = 0; i < count; i++) {
        uint32_t other = items[i];
        if (other == chosen)
            continue;
        before[left] = s->low[other];
        others[left++] = other;
        if (!overlap(it, &s->in->items[other]))
            continue;
        *alone = false;
        if (s->low[other] < above)
            s->low[other] = above;
    }
    bool found = possible(s, others, left, last.offset) && solve_apart(s, others, left, last);
    if (!found)
        for (size_t i = 0; i < left; i++)
            s->low[others[i]] = before[i];
    s->used = mark;
    return found;
}

static bool comes_after(const struct search *s, uint32_t item, struct last last) {
    return s->low[item] > last.offset || (s->low[item] == last.offset && (int64_t)s->priority[item] > last.priority);
}

/* Returns the first item to try after `last` and below the height; UINT32_MAX: none. */
static uint32_t next(const struct search *s, const uint32_t *items, size_t count, uint64_t height, struct last last) {
    uint32_t chosen = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        uint32_t item = items[i];
        if (s->low[item] < height && comes_after(s, item, last) &&
            (chosen == UINT32_MAX || !comes_after(s, item, (struct last){s->low[chosen], s->priority[chosen]})))
            chosen = item;
    }
    return chosen;
}

static bool solve(struct search *s, uint32_t *items, size_t count, struct last last) {
    uint64_t height = UINT64_MAX;
    bool alone = false;
    if (!count)
        return true;
    /* An item at this height or above would leave room for a whole block beneath it. */
    for (size_t i = 0; i < count; i++) {
        uint64_t top = s->low[items[i]] + s->in->items[items[i]].size;
        height = top < height ? top : height;
    }
    while (!alone && !out_of_time(s)) {
        uint32_t chosen = next(s, items, count, height, last);
        if (chosen == UINT32_MAX)
            break;
        last = (struct last){s->low[chosen], s->priority[chosen]};
        if (try(s, items, count, chosen, &alone))
            return true;
    }
    return false;
}

/* ---- priorities ---- */

struct measure {
    double key[3];
    uint32_t item;
};

static int by_keys(const void *a, const void *b) {
    const struct measure *x = a, *y = b;
    for (int k = 0; k < 3; k++)
        if (x->key[k] != y->key[k])
            return x->key[k] > y->key[k] ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

enum { TOTAL, WIDTH, AREA, SIZE, MEASURES };
static const uint8_t heuristics[][3] = {{WIDTH, AREA, TOTAL}, {TOTAL, AREA, WIDTH}, {TOTAL, WIDTH, AREA},
                                        {AREA, TOTAL, WIDTH}, {SIZE, WIDTH, TOTAL}, {WIDTH, TOTAL, AREA}};
enum { HEURISTICS = sizeof heuristics / sizeof *heuristics };

/* A pseudo-random factor from 1 to 1 + spread, the same in each run. */
static double noise(uint64_t *state, double spread) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return 1 + spread * (double)(*state >> 40) / (double)(1 << 24);
}

/* Sets priorities. The first turns use only the measures; each later round blurs them more. */
static void prioritise(const struct vp_plan_instance *in, unsigned turn, uint64_t *state, struct measure *sorted,
                       uint32_t *priority) {
    const uint8_t *keys = heuristics[turn % HEURISTICS];
    double spread = turn < HEURISTICS ? 0 : 0.25 * (turn / HEURISTICS % 5);
    for (size_t i = 0; i < in->count; i++) {
        const struct vp_plan_item *it = &in->items[i];
        double width = it->end - it->begin, of[MEASURES] = {0, width, (double)it->size * width, (double)it->size};
        for (uint32_t t = it->begin; t < it->end; t++)
            of[TOTAL] = (double)in->alive[t] > of[TOTAL] ? (double)in->alive[t] : of[TOTAL];
        sorted[i].item = (uint32_t)i;
        for (int k = 0; k < 3; k++)
            sorted[i].key[k] = of[keys[k]] * noise(state, spread);
    }
    qsort(sorted, in->count, sizeof *sorted, by_keys);
    for (size_t i = 0; i < in->count; i++)
        priority[sorted[i].item] = (uint32_t)i;
}

int vp_plan_search(const struct vp_plan_instance *in, uint64_t capacity, double until, uint64_t *offsets) {
    size_t n = in->count, depth = n * (n + 1) / 2 + n + 1;
    struct search s = {.in = in, .capacity = capacity};
    uint32_t *priority = malloc((n + 1) * sizeof *priority), *items = malloc((n + 1) * sizeof *items);
    struct measure *sorted = malloc((n + 1) * sizeof *sorted);
    s.low = malloc((n + 1) * sizeof *s.low);
    s.floor = malloc((in->times + 1) * sizeof *s.floor);
    s.rest = malloc((in->times + 1) * sizeof *s.rest);
    s.stack = malloc(depth * sizeof *s.stack);
    s.saved = malloc(depth * sizeof *s.saved);
    s.priority = priority;
    int result = priority && items && sorted && s.low && s.floor && s.rest && s.stack && s.saved ? 0 : -ENOMEM;
    double slice = 0.02;
    uint64_t state = 1;
    for (unsigned turn = 0; !result && vp_plan_now() < until; turn++) {
        if (turn && turn % (4 * HEURISTICS) == 0)
            slice *= 1.5;
        prioritise(in, turn, &state, sorted, priority);
        memset(s.low, 0, n * sizeof *s.low);
        for (size_t i = 0; i < n; i++)
            items[i] = (uint32_t)i;
        s.used = 0;
        s.over = false;
        s.until = vp_plan_now() + slice < until ? vp_plan_now() + slice : until;
        if (possible(&s, items, n, 0) && solve_apart(&s, items, n, (struct last){0, -1}))
            result = 1;
        else if (!s.over)
            break; /* there is none */
    }
    if (result > 0)
        memcpy(offsets, s.low, n * sizeof *offsets);
    free(priority);
    free(items);
    free(sorted);
    free(s.low);
    free(s.floor);
    free(s.rest);
    free(s.stack);
    free(s.saved);
    return result;
}
