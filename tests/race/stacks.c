/* Stacks and ranges recorded by some threads, from ever other places, while others tell who holds what. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include "watch/marks.h"
#include "watch/stacks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 400, WORKERS = RACERS - 1, KEPT = 16, HOLDERS = 8 };

static atomic_int working = WORKERS;
static atomic_uint_least64_t started[KEPT];

__attribute__((noinline)) static void take(CUstream stream, CUdeviceptr *out, size_t size, int depth) {
    if (depth > 0)
        take(stream, out, size, depth - 1);
    else
        CU(depth % 2 ? door_alloc(out, size) : door_alloc_async(out, size, NULL, stream));
    atomic_signal_fence(memory_order_seq_cst); /* so that the call stays one */
}

static void work(int index) {
    static const char *const names[] = {"one", "two", "three"};
    CUdeviceptr kept[KEPT] = {0};
    CUstream stream;
    CU(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < ROUNDS; i++) {
        const int at = (i * 7 + index) % KEPT;
        /* What one starts, another ends. */
        vp_marks_end(atomic_exchange(&started[at], vp_marks_start(names[(i + 1) % 3])));
        CHECK(vp_marks_push(names[i % 3], NULL) >= 0);
        if (kept[at])
            CU(door_free_async(kept[at], stream));
        take(stream, &kept[at], (size_t)(1 + i % 9) << 12, i % 40);
        CHECK(vp_marks_pop(NULL) >= 0);
    }
    for (int i = 0; i < KEPT; i++)
        if (kept[i])
            CU(door_free_async(kept[i], stream));
    CHECK(vp_marks_push("never popped", names) == 0);
    atomic_fetch_sub(&working, 1);
}

static void tell(void) {
    while (atomic_load(&working)) {
        struct vp_stack_holder all[HOLDERS];
        struct vp_marks_peak peak;
        struct vp_marks_open open;
        int count = vp_stacks_holders(0, all, HOLDERS);
        CHECK(count >= 0 && count <= HOLDERS);
        for (int i = 0; i < count; i++) {
            CHECK(all[i].bytes && all[i].stack && (!i || all[i].bytes <= all[i - 1].bytes));
            for (uint32_t s = all[i].stack; s; s = vp_stack_parent(s))
                CHECK(*vp_frame(vp_stack_frame(s))->label && vp_stack_parent(s) < s);
        }
        for (unsigned i = 0; vp_marks_peak(&i, &peak);)
            CHECK(*peak.name);
        for (unsigned i = 0; vp_marks_open(&i, &open);)
            CHECK(*open.name && (!open.thread || !open.depth));
    }
}

static void racer(int index) {
    if (index < WORKERS)
        work(index);
    else
        tell();
}

int main(void) {
    char name[64];
    struct vp_stack_holder left[HOLDERS];
    struct vp_marks_open open;
    snprintf(name, sizeof name, "race-stacks-%d.csv.gz", (int)getpid());
    CHECK(!setenv("VPOOL_STACKS", "8K", 1) && !setenv("VPOOL_TRACE", name, 1));
    race_open("granularity=64K,capacity=256M");
    vp_stacks_start();
    race_run(racer);
    CHECK(vp_stacks_holders(0, left, HOLDERS) == 0);
    for (unsigned i = 0; vp_marks_open(&i, &open);)
        CHECK(!open.thread); /* what was open in a thread has ended with it */
    CHECK(!unlink(name));
    return 0;
}
