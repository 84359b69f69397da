/* The planner: what it places lies apart, as low as promised; and the checker sees what does not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "plan/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 4096 };

static struct vp_plan_block blocks[MOST];
static size_t count;

static void add(uint64_t size, uint64_t begin, uint64_t end) {
    blocks[count++] = (struct vp_plan_block){size, 0, begin, end};
}

static struct vp_plan_figures place(uint64_t capacity, double seconds) {
    struct vp_plan_limits limits = {capacity, seconds};
    struct vp_plan_figures figures;
    size_t a, b;
    cr_assert(zero(vp_plan_place(blocks, count, &limits, &figures)));
    cr_expect(vp_plan_check(blocks, count, figures.peak, &a, &b), "blocks %zu and %zu", a, b);
    cr_expect(figures.peak >= figures.lower_bound);
    return figures;
}

Test(plan, nothing_needs_nothing) {
    cr_expect(eq(u64, place(0, 1).peak, 0));
}

Test(plan, blocks_that_meet_share_an_address) {
    add(100, 0, 5);
    add(100, 5, 9);
    cr_expect(eq(u64, place(0, 1).peak, 100));
}

/* By size the blocks of 4 and 3 come first, and leave holes of 1 under and over the others. */
static void add_what_no_order_finds(void) {
    add(4, 0, 2);
    add(3, 1, 4);
    add(2, 3, 6);
    add(2, 0, 1);
    add(2, 5, 8);
    add(4, 7, 9);
    add(5, 4, 5);
}

Test(plan, what_no_order_by_size_finds_is_searched) {
    add_what_no_order_finds();
    struct vp_plan_figures f = place(0, 2);
    cr_expect(eq(u64, f.peak, f.lower_bound));
}

/* Whoever looks for 85 alone has found nothing when the time is up. */
Test(plan, what_lies_between_the_lower_bound_and_the_first_placement_is_found) {
    static const uint8_t known[][3] = {{5, 0, 9},   {7, 0, 2},    {6, 0, 7},   {13, 0, 3},  {4, 0, 2},   {17, 0, 14},
                                       {17, 0, 1},  {13, 0, 12},  {3, 0, 5},   {14, 1, 14}, {2, 1, 3},   {1, 1, 14},
                                       {9, 2, 9},   {1, 2, 4},    {1, 2, 14},  {3, 3, 14},  {3, 3, 11},  {6, 3, 4},
                                       {3, 3, 7},   {4, 4, 6},    {3, 4, 14},  {1, 5, 6},   {1, 5, 14},  {1, 5, 8},
                                       {5, 6, 14},  {2, 7, 14},   {5, 7, 14},  {1, 7, 14},  {1, 7, 10},  {1, 8, 14},
                                       {10, 9, 14}, {3, 9, 14},   {1, 9, 14},  {1, 10, 14}, {1, 11, 13}, {1, 11, 14},
                                       {1, 11, 14}, {11, 12, 14}, {1, 12, 14}, {1, 12, 14}, {1, 13, 14}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        add(known[i][0], known[i][1], known[i][2]);
    struct vp_plan_figures f = place(0, 1);
    cr_expect(eq(u64, f.lower_bound, 85));
    cr_expect(f.peak <= 87, "%lu", (unsigned long)f.peak);
    f = place(86, 2);
    cr_expect(f.peak <= 86, "%lu", (unsigned long)f.peak);
}

/* With hundreds of thousands of blocks each placement takes many seconds. */
Test(plan, without_time_one_placement_does) {
    add_what_no_order_finds();
    struct vp_plan_figures f = place(0, 0);
    cr_expect(f.peak > f.lower_bound);
    cr_expect(eq(uint, f.rounds, 1));
}

Test(plan, wrong_blocks_are_refused) {
    struct vp_plan_limits limits = {0, 1};
    struct vp_plan_figures figures;
    add(0, 0, 1);
    cr_expect(eq(int, vp_plan_place(blocks, count, &limits, &figures), -EINVAL));
    count = 0;
    add(1, 3, 3);
    cr_expect(eq(int, vp_plan_place(blocks, count, &limits, &figures), -EINVAL));
    count = 0;
    add(UINT64_MAX, 0, 1);
    add(1, 0, 1);
    cr_expect(eq(int, vp_plan_place(blocks, count, &limits, &figures), -EINVAL));
}

Test(plan, the_checker_sees_shared_bytes) {
    size_t a, b;
    add(10, 0, 5);
    add(10, 4, 9);
    blocks[1].offset = 9;
    cr_expect(not(vp_plan_check(blocks, count, 100, &a, &b)));
    cr_expect(eq(sz, a + b, 1));
    blocks[1].offset = 10;
    cr_expect(vp_plan_check(blocks, count, 20, &a, &b));
    cr_expect(not(vp_plan_check(blocks, count, 19, &a, &b)));
    cr_expect(eq(sz, a, 1));
    cr_expect(eq(sz, b, 1));
    blocks[1] = (struct vp_plan_block){3, 4, 4, 9}; /* within */
    cr_expect(not(vp_plan_check(blocks, count, 100, &a, &b)));
    blocks[1].begin = 5;
    cr_expect(vp_plan_check(blocks, count, 100, &a, &b));
}

/* Bytes that are told apart by who wrote them last: a checker that knows nothing of addresses in order. */
static void check_by_painting(uint64_t peak) {
    static size_t owner[1 << 12];
    cr_assert(peak <= sizeof owner / sizeof *owner);
    for (uint64_t t = 0; t < 64; t++) {
        for (uint64_t i = 0; i < peak; i++)
            owner[i] = SIZE_MAX;
        for (size_t k = 0; k < count; k++)
            for (uint64_t i = 0; t >= blocks[k].begin && t < blocks[k].end && i < blocks[k].size; i++) {
                cr_assert(eq(sz, owner[blocks[k].offset + i], SIZE_MAX));
                owner[blocks[k].offset + i] = k;
            }
    }
}

Test(plan, random_blocks_lie_apart) {
    srand(1);
    for (int round = 0; round < 50; round++) {
        count = 0;
        for (int i = 0; i < 60; i++) {
            uint64_t begin = (uint64_t)rand() % 60;
            add(1 + (uint64_t)rand() % 40, begin, begin + 1 + (uint64_t)rand() % (63 - begin));
        }
        check_by_painting(place(0, 0.01).peak);
    }
}

/* ---- STAlloc's planner ---- */

static struct vp_plan_figures place_published(const uint64_t *phases, size_t phase_count) {
    struct vp_plan_figures figures;
    size_t a, b;
    cr_assert(zero(vp_plan_stalloc(blocks, count, phases, phase_count, &figures)));
    cr_expect(vp_plan_check(blocks, count, figures.peak, &a, &b), "blocks %zu and %zu", a, b);
    cr_expect(figures.peak >= figures.lower_bound);
    return figures;
}

Test(plan, published_nothing_needs_nothing) {
    cr_expect(eq(u64, place_published(NULL, 0).peak, 0));
}

Test(plan, published_smaller_blocks_lie_in_gaps_of_larger_ones) {
    add(10, 0, 4);
    add(10, 6, 9);
    add(4, 4, 6); /* between the two */
    add(6, 4, 6); /* beside it */
    add(3, 3, 5); /* in no gap: a layer of its own */
    add(3, 5, 8); /* in that layer, behind it */
    struct vp_plan_figures f = place_published(NULL, 0);
    cr_expect(eq(u64, f.peak, 13));
    cr_expect(eq(u64, blocks[0].offset, 0));
    cr_expect(eq(u64, blocks[1].offset, 0));
    cr_expect(eq(u64, blocks[4].offset, 10));
    cr_expect(eq(u64, blocks[5].offset, 10));
}

Test(plan, published_of_equal_layers_the_latest_ending) {
    add(10, 0, 3);
    add(10, 0, 5);
    add(10, 6, 9);
    place_published(NULL, 0);
    cr_expect(eq(u64, blocks[2].offset, blocks[1].offset));
}

/* Two blocks that live through the same phases are one group, though each would find a place by itself. */
Test(plan, published_blocks_of_the_same_phases_lie_together) {
    const uint64_t phases[] = {0, 10};
    add(8, 0, 20);
    add(5, 1, 12);
    add(5, 2, 13);
    place_published(phases, 2);
    cr_expect(eq(u64,
                 blocks[1].offset > blocks[2].offset ? blocks[1].offset - blocks[2].offset
                                                     : blocks[2].offset - blocks[1].offset,
                 5));
}

Test(plan, published_groups_are_fused_where_that_saves) {
    /* What the second phase allocates lies where the first one's small group leaves room: 10 in all. */
    const uint64_t phases[] = {0, 10};
    add(10, 0, 9);
    add(1, 8, 11);
    add(9, 10, 19);
    struct vp_plan_figures f = place_published(phases, 2);
    cr_expect(f.peak <= 11, "%llu", (unsigned long long)f.peak);
}

Test(plan, published_random_blocks_lie_apart) {
    srand(2);
    for (int round = 0; round < 60; round++) {
        const uint64_t phases[] = {0, 10, 13, 40};
        struct vp_plan_figures f;
        size_t a, b;
        count = 0;
        for (int i = 0; i < 80; i++) {
            uint64_t begin = (uint64_t)rand() % 60;
            add(1 + (uint64_t)rand() % 40, begin, begin + 1 + (uint64_t)rand() % (63 - begin));
        }
        cr_assert(zero(vp_plan_stalloc(blocks, count, phases, (size_t)round % 5, &f)));
        cr_assert(vp_plan_check(blocks, count, f.peak, &a, &b), "blocks %zu and %zu", a, b);
        if (f.peak < 1 << 12)
            check_by_painting(f.peak);
    }
}

/* ---- what a plan leaves free ---- */

Test(plan, what_no_block_has_meanwhile_is_spare) {
    struct vp_plan_stretch stretches[] = {{.begin = 0, .end = 2}, {.begin = 5, .end = 6}, {.begin = 2, .end = 9}};
    struct vp_plan_spares spares = {0};
    add(10, 0, 5);
    add(5, 0, 2);
    add(5, 6, 9);
    blocks[0].offset = 5;
    blocks[1].offset = 20;
    blocks[2].offset = 25;
    cr_assert(zero(vp_plan_spare(blocks, count, 30, stretches, 3, &spares)));
    cr_expect(eq(sz, stretches[0].count, 3)); /* 0 to 5, 15 to 20, 25 to 30 */
    cr_expect(eq(u64, spares.items[1].low, 15));
    cr_expect(eq(u64, spares.items[2].low, 25));
    cr_expect(eq(sz, stretches[1].count, 1)); /* all */
    cr_expect(eq(u64, spares.items[stretches[1].first].high, 30));
    cr_expect(eq(sz, stretches[2].count, 2)); /* 0 to 5, 15 to 25 */
    cr_expect(eq(u64, spares.items[stretches[2].first + 1].high, 25));
    free(spares.items);
}

/* Against a picture of every byte at every time. */
Test(plan, random_spares_are_what_is_free) {
    enum { BYTES = 64, TIMES = 64, STRETCHES = 20 };
    srand(3);
    for (int round = 0; round < 50; round++) {
        struct vp_plan_stretch stretches[STRETCHES];
        struct vp_plan_spares spares = {0};
        count = 0;
        for (int i = 0; i < 12; i++) {
            uint64_t begin = (uint64_t)rand() % 60;
            add(1 + (uint64_t)rand() % 16, begin, begin + 1 + (uint64_t)rand() % (63 - begin));
            blocks[i].offset = (uint64_t)rand() % 48;
        }
        for (int i = 0; i < STRETCHES; i++) {
            stretches[i].begin = (uint64_t)rand() % 60;
            stretches[i].end = stretches[i].begin + 1 + (uint64_t)rand() % 4;
        }
        cr_assert(zero(vp_plan_spare(blocks, count, BYTES, stretches, STRETCHES, &spares)));
        for (int i = 0; i < STRETCHES; i++)
            for (uint64_t byte = 0; byte < BYTES; byte++) {
                bool taken = false, spare = false;
                for (size_t b = 0; b < count; b++)
                    taken |= byte >= blocks[b].offset && byte < blocks[b].offset + blocks[b].size &&
                             blocks[b].begin < stretches[i].end && stretches[i].begin < blocks[b].end;
                for (size_t s = 0; s < stretches[i].count; s++)
                    spare |= byte >= spares.items[stretches[i].first + s].low &&
                             byte < spares.items[stretches[i].first + s].high;
                cr_assert(spare != taken, "byte %llu of stretch %d", (unsigned long long)byte, i);
            }
        free(spares.items);
    }
}

/* Problems of others, each to be placed within its capacity. */
static void problem(char wanted) {
    FILE *file = fopen(MINIMALLOC, "r");
    char line[256], name;
    unsigned long long lower, upper, size;
    cr_assert(ne(ptr, file, NULL));
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%c,%llu,%llu,%llu", &name, &lower, &upper, &size) == 4 && name == wanted)
            add(size, lower, upper);
    fclose(file);
    cr_assert(ne(sz, count, 0));
    struct vp_plan_figures f = place(1 << 20, 60);
    cr_expect(f.peak <= 1 << 20, "problem %c: %llu", wanted, (unsigned long long)f.peak);
}

/* Two of those that no greedy order solves, and the search soon does. */
Test(plan, problem_b) {
    problem('B');
}

Test(plan, problem_f) {
    problem('F');
}
