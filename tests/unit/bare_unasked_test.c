/* Bare segments: a pool is set back, which tells of all its blocks and then frees those that were free. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "pool/giving.h"

#include <pthread.h>
#include <unistd.h>
#include <vpool.h>

/* Nobody names a stream then. */
static void told(CUdeviceptr at, size_t size) {
    cr_assert(vp_bare_used(at, size, (struct vp_bare_stream){0}));
}

static void gone(CUdeviceptr at, size_t size) {
    cr_assert(vp_bare_unused(at, size, false));
}

/* As a graph's segment is. */
static void pin(CUdeviceptr at, CUstream s) {
    CUstream c = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_begin_capture(c, CU_STREAM_CAPTURE_MODE_RELAXED));
    use(at, MiB, s);
    unuse(at, MiB);
    cu_ok(door_end_capture(c, NULL));
}

Test(bare, what_had_memory_is_set_back_without_a_call) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 8 * MiB, s);
    use(seg + 8 * MiB, 30 * MiB, s);
    unuse(seg + 8 * MiB, 30 * MiB);
    const unsigned long before = maps() + vp_sim_calls("cuMemCreate");
    const size_t had = held();
    for (int round = 0; round < 4; round++) {
        gone(seg, 8 * MiB);
        told(seg, 8 * MiB);
        told(seg + 8 * MiB, 30 * MiB);
        gone(seg + 8 * MiB, 30 * MiB);
    }
    cr_assert_eq(maps() + vp_sim_calls("cuMemCreate"), before);
    cr_assert_eq(held(), had);
    door_close();
}

/* Addresses that never had memory get some for that moment. It is anybody's then. */
Test(bare, what_had_none_is_idle_when_its_block_is_gone) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(80 * MiB, s);
    use(seg, 8 * MiB, s);
    told(seg + 8 * MiB, 72 * MiB);
    gone(seg + 8 * MiB, 72 * MiB);
    door_malloc(60 * MiB);
    cr_assert_leq(held(), 81 * MiB);
    door_close();
}

Test(bare, what_had_none_does_not_stay_in_a_graphs_segment) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(80 * MiB, s);
    pin(seg, s);
    told(seg + MiB, 79 * MiB);
    cr_assert_geq(held(), 79 * MiB);
    gone(seg + MiB, 79 * MiB);
    cu_ok(cuCtxSynchronize());
    vp_pool_trim(pool_of(0), 0);
    cr_assert_leq(held(), MiB + PAGE);
    cr_assert_geq(held(), MiB); /* the graph's own */
    cr_assert(vp_pool_check(pool_of(0), stderr));
    door_close();
}

Test(bare, what_a_graph_may_know_stays_though_no_room_was_asked_for) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), c = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(80 * MiB, s);
    pin(seg, s);
    told(seg + MiB, 40 * MiB);
    cu_ok(door_begin_capture(c, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_end_capture(c, NULL));
    gone(seg + MiB, 40 * MiB);
    cu_ok(cuCtxSynchronize());
    vp_pool_trim(pool_of(0), 0);
    cr_assert_geq(held(), 41 * MiB);
    door_close();
}

/* The device has not enough for all of them at once, but for those that stay. */
static void set_back(bool pinned, bool first) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(200 * MiB, s), stays = seg + (first ? 2 : 70) * MiB, dead = seg + (first ? 70 : 2) * MiB;
    if (pinned)
        pin(seg, s);
    told(first ? stays : dead, 60 * MiB);
    told(first ? dead : stays, 60 * MiB);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    gone(dead, 60 * MiB);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cu_ok(cuMemsetD8Async(stays, 1, 60 * MiB, s));
    cu_ok(cuStreamSynchronize(s));
    cr_assert_eq(vp_bare_room(0, 60 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    unuse(stays, 60 * MiB);
    use(seg + 70 * MiB, 20 * MiB, s);
    door_close();
}

Test(bare, one_that_stays_has_memory_when_those_that_go_are_gone) {
    set_back(false, false);
}

Test(bare, one_that_comes_first_keeps_its_memory) {
    set_back(false, true);
}

Test(bare, one_that_stays_in_a_graphs_segment_has_memory_too) {
    set_back(true, false);
}

/* However many they are. */
Test(bare, each_that_stays_has_memory_when_those_that_go_are_gone) {
    enum { MANY = 300 };
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr dead = segment(200 * MiB, s), stay = dead + 96 * MiB;
    told(dead, 95 * MiB);
    for (size_t i = 0; i < MANY; i++)
        told(stay + i * PAGE, PAGE);
    gone(dead, 95 * MiB);
    cr_assert(!vp_bare_lacking(pool_of(0)->bare, stay, MANY * PAGE));
    cu_ok(cuMemsetD8Async(stay, 1, MANY * PAGE, s));
    cu_ok(vp_bare_room(0, MiB, on(s)));
    cr_assert(vp_pool_check(pool_of(0), stderr));
    door_close();
}

/* ---- and keeps its bytes ---- */

static CUcontext made_current;
static CUstream stream;
static CUdeviceptr kept;
static atomic_bool is_through;

enum { MARK = 7 };

/* A cache with pools, which no capture has seen, and 60 of 96 MiB in use by one of them. */
static void open_with_a_block(void) {
    atomic_store(&vp_bare_pools, true);
    made_current = door_open(SIM);
    stream = door_stream(CU_STREAM_NON_BLOCKING);
    kept = segment(200 * MiB, stream) + 70 * MiB;
    use(kept, 60 * MiB, stream);
    cu_ok(cuMemsetD8Async(kept, MARK, 60 * MiB, stream));
    cu_ok(cuStreamSynchronize(stream));
}

static void expect_bytes(void) {
    unsigned char bytes[4096];
    for (size_t at = 0; at < 60 * MiB; at += PAGE / 2) {
        cu_ok(cuMemcpyDtoH(bytes, kept + at, sizeof bytes));
        for (size_t i = 0; i < sizeof bytes; i++)
            cr_assert_eq(bytes[i], MARK, "at %zu KiB", at / KiB);
    }
    cr_assert(vp_pool_check(pool_of(0), stderr));
    unuse(kept, 60 * MiB);
    cu_ok(vp_bare_room(0, 80 * MiB, on(stream))); /* and what a block has left is there for the next */
    cr_assert(vp_bare_used(kept - 60 * MiB, 80 * MiB, on(stream)));
    cu_ok(cuMemsetD8Async(kept - 60 * MiB, 1, 80 * MiB, stream));
    door_close();
}

/* What comes first never had memory, and there is not enough for both. */
Test(bare, one_that_stays_keeps_its_bytes_beside_one_that_goes) {
    open_with_a_block();
    gone(kept, 60 * MiB);
    told(kept - 70 * MiB, 69 * MiB);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    told(kept, 60 * MiB);
    gone(kept - 70 * MiB, 69 * MiB);
    expect_bytes();
}

/* Nor has a block come, only since room was made for one that the cache refused after all. */
Test(bare, one_that_stays_keeps_its_bytes_after_a_refusal) {
    open_with_a_block();
    CUdeviceptr small = segment(2 * MiB, stream);
    use(small, MiB, stream);
    cu_ok(vp_bare_room(0, MiB, on(stream)));
    gone(small, MiB);
    gone(kept, 60 * MiB);
    told(small, MiB);
    told(kept - 70 * MiB, 69 * MiB);
    told(kept, 60 * MiB);
    gone(kept - 70 * MiB, 69 * MiB);
    expect_bytes();
}

/* Slack that is over goes back when a block comes that room was made for: one that stays may lack memory before. */
Test(bare, one_that_stays_finds_what_is_paid_for_no_more) {
    open_with_a_block();
    struct vp_slack *slack = &pool_of(0)->bare_slack;
    const CUdeviceptr other = segment(32 * MiB, stream), small = segment(4 * MiB, stream);
    unuse(kept, 60 * MiB);
    slack->step = 7;
    use(other, 16 * MiB, stream);
    unuse(other, 16 * MiB);
    use(small, MiB, stream);
    gone(small, MiB);
    slack->step = 0;
    slack->over = true;
    const size_t had = held();
    told(small + MiB, MiB);
    cr_assert_eq(held(), had);
    use(small + 2 * MiB, MiB, stream);
    cr_assert_leq(held(), 62 * MiB, "and now it goes");
    cr_assert(vp_pool_check(pool_of(0), stderr));
    door_close();
}

static void *take_it(void *unused) {
    CUdeviceptr other;
    (void)unused;
    cu_ok(cuCtxSetCurrent(made_current));
    cr_assert_eq(door_alloc(&other, 60 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    return NULL;
}

static void *lend_it(void *unused) {
    (void)unused;
    cr_assert(vp_enter());
    vp_giving_lend(pool_of(0), 90 * MiB);
    vp_leave();
    return NULL;
}

static void *trim_it(void *unused) {
    (void)unused;
    cu_ok(cuCtxSetCurrent(made_current));
    door_relieve();
    return NULL;
}

static void *pause_it(void *unused) {
    (void)unused;
    cr_assert_eq(vpool_pause(0), 0);
    cr_assert_eq(vpool_resume(0), 0);
    return NULL;
}

static void set_back_beside(void *(*taker)(void *), bool barrier) {
    pthread_t thread;
    open_with_a_block();
    cr_assert(vp_bare_unused(kept, 60 * MiB, barrier));
    cr_assert(!pthread_create(&thread, NULL, taker, NULL));
    usleep(20000);
    told(kept, 60 * MiB);
    vp_bare_room(0, MiB, on(stream)); /* the cache goes on */
    pthread_join(thread, NULL);
    expect_bytes();
}

Test(bare, one_that_stays_keeps_its_bytes_beside_an_allocation) {
    set_back_beside(take_it, false);
}

Test(bare, one_that_others_use_keeps_its_bytes_too) {
    set_back_beside(take_it, true);
}

Test(bare, one_that_stays_keeps_its_bytes_beside_a_loan) {
    set_back_beside(lend_it, false);
}

Test(bare, one_that_stays_keeps_its_bytes_beside_a_trim) {
    set_back_beside(trim_it, false);
}

Test(bare, one_that_stays_keeps_its_bytes_beside_a_pause) {
    set_back_beside(pause_it, false);
}

/* ---- and what was not set back is anyone's ---- */

/* Behind a barrier that is taken as the cache goes on, not when somebody wants it. */
Test(bare, what_others_use_is_let_go_of_when_it_is_in_no_doubt) {
    open_with_a_block();
    const struct vp_bare *bare = pool_of(0)->bare;
    const size_t page = vp_bare_page(bare, kept) + VP_SLOT_PAGES;
    cr_assert(vp_bare_unused(kept, 60 * MiB, true));
    cr_assert(vp_bare_word(bare, page) & VP_PAGE_BACKED);
    cu_ok(vp_bare_room(0, KiB, on(stream)));
    cr_assert(!(vp_bare_word(bare, page) & VP_PAGE_BACKED));
    door_close();
}

Test(bare, what_this_thread_has_freed_it_has_for_something_else) {
    CUdeviceptr other;
    open_with_a_block();
    gone(kept, 60 * MiB);
    cr_assert_geq(vp_pool_trim(pool_of(0), 0), 60 * MiB);
    cu_ok(door_alloc(&other, 80 * MiB));
    cu_ok(cuMemsetD8(other, 1, 80 * MiB));
    door_close();
}

static void *have_it(void *unused) {
    CUdeviceptr other;
    (void)unused;
    cu_ok(cuCtxSetCurrent(made_current));
    cu_ok(door_alloc(&other, 80 * MiB));
    cu_ok(cuMemsetD8(other, 1, 80 * MiB));
    atomic_store(&is_through, true);
    return NULL;
}

Test(bare, what_another_thread_has_freed_is_had_in_a_moment) {
    pthread_t thread;
    open_with_a_block();
    gone(kept, 60 * MiB);
    cr_assert(!pthread_create(&thread, NULL, have_it, NULL));
    for (int i = 0; i < 4000 && !atomic_load(&is_through); i++)
        usleep(1000);
    cr_assert(atomic_load(&is_through));
    pthread_join(thread, NULL);
    door_close();
}

static void *tell(void *at) {
    gone(*(CUdeviceptr *)at, MiB);
    return NULL;
}

/* The cache's lock is another thread's by then. */
Test(bare, what_a_thread_frees_ends_another_threads_doubt) {
    pthread_t thread;
    open_with_a_block();
    CUdeviceptr small = segment(2 * MiB, stream);
    use(small, MiB, stream);
    gone(kept, 60 * MiB);
    cr_assert(!pthread_create(&thread, NULL, tell, &small));
    pthread_join(thread, NULL);
    told(kept - 70 * MiB, 69 * MiB);
    cu_ok(cuMemsetD8Async(kept - 70 * MiB, 1, 69 * MiB, stream));
    door_close();
}

/* What others may still use is let go of when the cache has gone on. That is no block without memory: with one, each
 * block would ask the device what it has. */
Test(bare, what_is_let_go_of_later_was_not_given_up) {
    door_open(SIM);
    atomic_store(&vp_bare_pools, true);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 8 * MiB, s);
    cr_assert(vp_bare_unused(seg, 8 * MiB, true));
    cr_assert_eq(pool_of(0)->bare->unasked_count, 1);
    use(seg + 16 * MiB, 2 * MiB, s);
    cr_assert(!pool_of(0)->bare->gave_up);
    use(seg + 24 * MiB, 2 * MiB, s);
    const unsigned long asked = vp_sim_calls("cuMemGetInfo_v2") + vp_sim_calls("cuMemGetInfo");
    for (int i = 0; i < 8; i++)
        cu_ok(vp_bare_room(0, 64 * KiB, on(s)));
    cr_assert_leq(vp_sim_calls("cuMemGetInfo_v2") + vp_sim_calls("cuMemGetInfo") - asked, 2);
    door_close();
}

/* One of the smallest, for which the cache asks no room. */
Test(bare, one_that_is_refused_after_all_is_used_no_more) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(2 * MiB, s);
    vp_sim_others(0, VP_SIM_ALL);
    for (int i = 0; i < 2; i++) {
        cr_assert(vp_bare_used(seg, 512, on(s)));
        cr_assert(vp_bare_refused(0, seg, 512));
        cr_assert(vp_pool_check(pool_of(0), stderr));
        cr_assert_eq(vp_bare_used_bytes(pool_of(0)->bare), 0);
        cr_assert_eq(pool_of(0)->bare->unasked_count, 0);
    }
    vp_sim_others(0, 0);
    cr_assert(vp_bare_used(seg, 512, on(s)));
    cr_assert(!vp_bare_refused(0, seg, 512));
    cu_ok(cuMemsetD8Async(seg, 1, 512, s));
    unuse(seg, 512);
    door_close();
}
