/* Checks plans: sweeps over time with a balanced tree of the live blocks, by address. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

#include <stdlib.h>

struct moment {
    uint64_t time;
    uint64_t low;
    size_t block;
    bool begins;
};

/* Orders events by time. At the same time, ends come before beginnings. */
static int by_time(const void *a, const void *b) {
    const struct moment *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->begins != y->begins)
        return x->begins ? 1 : -1;
    return (x->block > y->block) - (x->block < y->block);
}

/* The blocks that are alive: an array sorted by address, in which a block is found by bisection. */
struct alive {
    size_t *blocks, count;
};

static size_t place_of(const struct vp_plan_block *blocks, const struct alive *alive, uint64_t offset) {
    size_t low = 0, high = alive->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[alive->blocks[middle]].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool enter(const struct vp_plan_block *blocks, struct alive *alive, size_t block, size_t *other) {
    size_t at = place_of(blocks, alive, blocks[block].offset);
    if (at < alive->count && blocks[alive->blocks[at]].offset - blocks[block].offset < blocks[block].size) {
        *other = alive->blocks[at];
        return false;
    }
    if (at && blocks[block].offset - blocks[alive->blocks[at - 1]].offset < blocks[alive->blocks[at - 1]].size) {
        *other = alive->blocks[at - 1];
        return false;
    }
    for (size_t i = alive->count++; i > at; i--)
        alive->blocks[i] = alive->blocks[i - 1];
    alive->blocks[at] = block;
    return true;
}

static void leave(const struct vp_plan_block *blocks, struct alive *alive, size_t block) {
    size_t at = place_of(blocks, alive, blocks[block].offset);
    alive->count--;
    for (; at < alive->count; at++)
        alive->blocks[at] = alive->blocks[at + 1];
}

bool vp_plan_check(const struct vp_plan_block *blocks, size_t count, uint64_t peak, size_t *a, size_t *b) {
    struct moment *moments = malloc((2 * count + 1) * sizeof *moments);
    struct alive alive = {malloc((count + 1) * sizeof *alive.blocks), 0};
    bool right = moments && alive.blocks;
    *a = *b = 0;
    for (size_t i = 0; i < count && right; i++) {
        moments[2 * i] = (struct moment){blocks[i].begin, 0, i, true};
        moments[2 * i + 1] = (struct moment){blocks[i].end, 0, i, false};
        if (blocks[i].size > peak || blocks[i].offset > peak - blocks[i].size) {
            *a = *b = i;
            right = false;
        }
    }
    if (right)
        qsort(moments, 2 * count, sizeof *moments, by_time);
    for (size_t i = 0; i < 2 * count && right; i++) {
        if (!moments[i].begins)
            leave(blocks, &alive, moments[i].block);
        else if (!enter(blocks, &alive, moments[i].block, b)) {
            *a = moments[i].block;
            right = false;
        }
    }
    free(moments);
    free(alive.blocks);
    return right;
}
