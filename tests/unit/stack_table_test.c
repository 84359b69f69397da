/* The table of stacks, and walks that were made before. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "watch/stack_memo.h"
#include "watch/stack_peak.h"
#include "watch/stack_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(stack_table);

/* ---- the table ---- */

Test(stack_table, frames_of_one_text_are_one) {
    cr_assert(!vp_stack_table_open());
    uint32_t a = vp_frame_add((struct vp_frame_key){1, 2}, VP_FRAME_PYTHON, "7:f:file.py");
    cr_assert(a && a == vp_frame_find((struct vp_frame_key){1, 2}));
    cr_assert_eq(vp_frame_find((struct vp_frame_key){2, 1}), 0);
    cr_assert_eq(vp_frame_add((struct vp_frame_key){3, 4}, VP_FRAME_PYTHON, "7:f:file.py"), a);
    cr_assert_eq(vp_frame_find((struct vp_frame_key){3, 4}), a);
    cr_assert_neq(vp_frame_add((struct vp_frame_key){5, 6}, VP_FRAME_WORDS, "7:f:file.py"), a);
    cr_assert_neq(vp_frame_add((struct vp_frame_key){7, 8}, VP_FRAME_PYTHON, "8:f:file.py"), a);
    cr_assert_eq(vp_frame(a)->kind, VP_FRAME_PYTHON);
    cr_assert_str_eq(vp_frame(a)->label, "7:f:file.py");
}

Test(stack_table, stacks_share_their_outer_parts) {
    cr_assert(!vp_stack_table_open());
    uint32_t outer = vp_frame_add((struct vp_frame_key){1, 0}, VP_FRAME_WORDS, "outer");
    uint32_t inner = vp_frame_add((struct vp_frame_key){2, 0}, VP_FRAME_WORDS, "inner");
    uint32_t alone = vp_stack_push(0, inner), base = vp_stack_push(0, outer), stack = vp_stack_push(base, inner);
    cr_assert(alone && base && stack > base && stack != alone);
    cr_assert_eq(vp_stack_push(0, outer), base);
    cr_assert_eq(vp_stack_push(base, inner), stack);
    cr_assert_neq(vp_stack_push(stack, inner), stack);
    cr_assert_eq(vp_stack_parent(stack), base);
    cr_assert_eq(vp_stack_frame(stack), inner);
    cr_assert_eq(vp_stack_parent(base), 0);
}

Test(stack_table, a_full_table_says_so_and_keeps_what_it_has) {
    char text[32];
    uint32_t first = 0, last = 1;
    cr_assert(!vp_stack_table_open());
    for (unsigned i = 1; last; i++) {
        snprintf(text, sizeof text, "frame %u", i);
        last = vp_frame_add((struct vp_frame_key){i, 0}, VP_FRAME_WORDS, text);
        first = first ? first : last;
        cr_assert_lt(i, 1u << 20);
    }
    cr_assert(vp_stack_table_is_full());
    cr_assert_eq(vp_frame_find((struct vp_frame_key){1, 0}), first);
    cr_assert_str_eq(vp_frame(first)->label, "frame 1");
    cr_assert_neq(vp_stack_push(0, first), 0);
}

/* ---- walks made before. A stack of words stands in for a thread's ---- */

enum { FRAMES = 8, SIZE = 4 };

static uintptr_t stack[(FRAMES + 1) * SIZE + 1];

static uintptr_t end_of(int frame) {
    return (uintptr_t)&stack[(frame + 1) * SIZE];
}

/* Each frame ends in the caller's frame pointer and the return address. */
static void fill(void) {
    for (int i = 0; i < FRAMES; i++) {
        stack[(i + 1) * SIZE - 1] = 0x1000u + (unsigned)i;
        stack[(i + 1) * SIZE - 2] = end_of(i + 1) - 16;
    }
}

static struct vp_memo_key key_now(void) {
    return (struct vp_memo_key){.frame = (uintptr_t)stack, .went = 1};
}

static bool recalls(struct vp_memo_key key) {
    struct vp_walk walk = {.count = 0};
    bool found = vp_memo_recall(&key, &walk);
    cr_assert_eq(walk.count, found ? FRAMES : 0);
    for (unsigned i = 0; i < walk.count; i++)
        cr_assert_eq(walk.frame[i], 100 + i);
    return found;
}

#ifdef __x86_64__
static void keep(void) {
    struct vp_memo memo = {.key = key_now()};
    struct vp_walk walk = {.count = 0};
    for (int i = 0; i < FRAMES; i++) {
        vp_memo_step(&memo, 0x1000u + (unsigned)i, end_of(i), end_of(i + 1) - 16);
        walk.frame[walk.count++] = 100u + (unsigned)i;
    }
    vp_memo_keep(&memo, &walk);
}

Test(stack_table, a_walk_is_known_again) {
    fill();
    cr_assert(!recalls(key_now()));
    keep();
    cr_assert(recalls(key_now()));
}

Test(stack_table, a_walk_is_another_where_a_return_address_is) {
    fill();
    keep();
    for (int i = 0; i < FRAMES; i++) {
        stack[(i + 1) * SIZE - 1]++;
        cr_assert(!recalls(key_now()), "frame %d", i);
        stack[(i + 1) * SIZE - 1]--;
    }
    cr_assert(recalls(key_now()));
}

Test(stack_table, a_walk_is_another_where_a_frame_pointer_is) {
    fill();
    keep();
    for (int i = 0; i < FRAMES; i++) {
        stack[(i + 1) * SIZE - 2] += 16;
        cr_assert(!recalls(key_now()), "frame %d", i);
        stack[(i + 1) * SIZE - 2] -= 16;
    }
    cr_assert(recalls(key_now()));
}

Test(stack_table, a_walk_is_forgotten_with_a_module) {
    struct vp_memo_key later = key_now();
    fill();
    keep();
    later.went++;
    cr_assert(!recalls(later));
}
#endif

Test(stack_table, a_walk_with_return_addresses_elsewhere_is_not_kept) {
    struct vp_memo memo = {.key = key_now()};
    struct vp_walk walk = {.count = 0};
    fill();
    vp_memo_step(&memo, 0x1000, end_of(0), 0);
    vp_memo_step(&memo, 0x2000, end_of(1), 0);
    vp_memo_keep(&memo, &walk);
    cr_assert(memo.lost && !recalls(key_now()));
}

/* ---- the peak ---- */

enum { COUNT = 12 };

Test(stack_table, the_peak_is_as_a_copy_made_then) {
    enum { STEPS = 4000 };
    int64_t now[COUNT + 1] = {0}, then[COUNT + 1] = {0}, alive = 0, most = 0;
    struct vp_line_peak told;
    unsigned random = 1;
    cr_assert(!vp_stack_table_open() && !vp_line_peak(&told));
    for (uint64_t i = 1; i <= COUNT; i++)
        cr_assert(vp_stack_push(
                      0, vp_frame_add((struct vp_frame_key){i, 0}, VP_FRAME_WORDS, (char[]){(char)('a' + i), 0})) == i);
    for (int step = 0; step < STEPS; step++) {
        const uint32_t which = 1 + (uint32_t)rand_r(&random) % COUNT;
        const int64_t bytes = rand_r(&random) % 3 && now[which] ? -(1 + rand_r(&random) % now[which])
                                                                : 1 + rand_r(&random) % 1000;
        vp_stack_peak_add(which, bytes);
        now[which] += bytes;
        alive += bytes;
        if (alive > most) {
            most = alive;
            memcpy(then, now, sizeof then);
        }
        /* Each stack is a line of its own. */
        uint32_t first = 1;
        for (uint32_t i = 2; i <= COUNT; i++)
            first = then[i] > then[first] ? i : first;
        cr_assert(vp_line_peak(&told) && (int64_t)told.of == most && told.frame == first);
        cr_assert_eq((int64_t)told.bytes, then[first]);
    }
}

Test(stack_table, a_line_that_many_stacks_share_holds_what_they_do_together) {
    struct vp_line_peak most;
    cr_assert(!vp_stack_table_open() && !vp_line_peak(&most));
    uint32_t frame[8];
    const char *const text[] = {"9:<module>:/home/a.py", "1:f:/home/a.py", "2:g:/home/a.py",
                                "5:forward:/x/site-packages/torch/n.py", "1:<module>:<stdin>"};
    for (uint64_t i = 0; i < 5; i++)
        frame[i] = vp_frame_add((struct vp_frame_key){i + 1, 0}, VP_FRAME_PYTHON, text[i]);
    const uint32_t module = vp_stack_push(0, frame[0]), f = vp_stack_push(module, frame[1]);
    const uint32_t g = vp_stack_push(module, frame[2]), fg = vp_stack_push(f, frame[2]);
    vp_stack_peak_add(f, 50);
    vp_stack_peak_add(g, 30);
    vp_stack_peak_add(vp_stack_push(fg, frame[3]), 31); /* g's line, in code that others wrote */
    cr_assert(vp_line_peak(&most) && most.frame == frame[2] && most.bytes == 61 && most.of == 111);
    /* What was typed is the user's own. */
    const uint32_t typed = vp_stack_push(0, frame[4]);
    vp_stack_peak_add(vp_stack_push(typed, frame[3]), 100);
    cr_assert(vp_line_peak(&most) && most.frame == frame[4] && most.bytes == 100);
}
