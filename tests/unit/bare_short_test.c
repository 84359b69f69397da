/* Bare segments where others take memory, end contexts and say what is not so, between what the cache says. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "base/clock.h"
#include "pool/giving.h"
#include "watch/snapshot.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static CUcontext made_current;

/* Room is known of a while before: what others took since counts. */
Test(bare, room_that_another_allocation_took_is_room_no_more) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    cu_ok(vp_bare_room(0, MiB, on(s)));
    door_malloc(80 * MiB);
    cr_assert_eq(vp_bare_room(0, 40 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    use(seg, 10 * MiB, s);
    cu_ok(cuMemsetD8Async(seg, 1, 10 * MiB, s));
    door_close();
}

/* And what another library took. */
Test(bare, room_that_another_library_took_is_room_no_more) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    segment(128 * MiB, s);
    cu_ok(vp_bare_room(0, MiB, on(s)));
    CUdeviceptr other;
    cu_ok(cuMemAlloc(&other, 80 * MiB));
    cr_assert_eq(vp_bare_room(0, 40 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    door_close();
}

/* What another process took, moments after the device was asked. */
Test(bare, room_that_another_process_took_is_room_no_more) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s);
    use(seg, 100 * KiB, s);
    vp_sim_others(0, 96 * MiB - held());
    cr_assert_eq(vp_bare_room(0, 600 * KiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    vp_sim_others(0, 0);
    use(seg + MiB, 600 * KiB, s);
    door_close();
}

/* Pages that a capture pinned are not idle when a later block leaves them. */
Test(bare, room_that_stays_pinned_is_no_room) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), capturing = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = segment(60 * MiB, s), b = segment(60 * MiB, s);
    CUgraph graph;
    use(a, 40 * MiB, s);
    cu_ok(door_begin_capture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    unuse(a, 40 * MiB);
    cu_ok(door_end_capture(capturing, &graph));
    use(a, 40 * MiB, s);
    use(b, 40 * MiB, s);
    unuse(a, 40 * MiB);
    cr_assert_eq(vp_bare_room(0, 30 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    use(b + 40 * MiB, 8 * MiB, s);
    cu_ok(cuMemsetD8Async(b, 1, 48 * MiB, s));
    door_close();
}

/* A page takes the place of a chunk whose rest lies beyond the segment, and that goes back to the device. */
Test(bare, what_has_gone_back_is_room_no_more) {
    enum { COUNT = 64 };
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr large = segment(COUNT * VP_SLOT_PAGES * PAGE, s), block;
    cu_ok(vp_bare_room(0, COUNT * VP_SLOT_PAGES * PAGE, on(s)));
    cr_assert(vp_bare_used(large, COUNT * VP_SLOT_PAGES * PAGE, on(s)));
    cr_assert(vp_bare_unused(large, COUNT * VP_SLOT_PAGES * PAGE, false));
    cu_ok(door_free(large));
    for (int i = 0; i < COUNT; i++) {
        block = segment(PAGE, s);
        cu_ok(vp_bare_room(0, PAGE, on(s)));
        cr_assert(vp_bare_know_idle(pool_of(0)));
        cr_assert(vp_bare_used(block, PAGE, on(s)));
        cr_assert(vp_pool_check(pool_of(0), stderr)); /* one stays, as a spare, and is idle no more */
    }
    vp_sim_others(0, 96 * MiB - held());
    cr_assert_eq(vp_bare_room(0, vp_bare_all_of(vp_bare_idle_pages(pool_of(0), false)) * PAGE + MiB, on(s)),
                 CUDA_ERROR_OUT_OF_MEMORY);
    door_close();
}

static CUstream busy_streams[2];
static atomic_bool enough;

/* Work is queued before the work before it is over, as it is while the host is ahead. For some seconds at most. */
static void *keep_busy(void *at) {
    const uint64_t begin = vp_clock_ns();
    cu_ok(cuCtxSetCurrent(made_current));
    for (unsigned i = 1; !atomic_load(&enough) && vp_clock_ns() - begin < 3000000000; i++) {
        busy(*(CUdeviceptr *)at, busy_streams[i % 2]);
        usleep(1000);
        vp_sim_release(busy_streams[(i + 1) % 2]);
        cu_ok(cuStreamSynchronize(busy_streams[(i + 1) % 2]));
    }
    for (int i = 0; i < 2; i++)
        vp_sim_release(busy_streams[i]);
    return NULL;
}

/* The last memory that is to be had is the rest of a chunk that a block reaches into, and that other streams have used.
 * They have more to do all the time, and what they had to do then is over in a moment. */
Test(bare, what_a_block_pins_for_a_part_is_had_while_other_streams_work_on) {
    const size_t own = 19 * PAGE, x = 8 * PAGE, z = 12 * PAGE, all = 128 * PAGE;
    pthread_t thread;
    made_current = door_open("capacity=8M,granularity=64K,lazy=0,timeout=3000");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(2 * MiB, s), spare = segment(MiB, s), rest = segment(all, s);
    use(seg, x, s);
    use(spare, z, s);
    use(rest, all - x - z - 10 * PAGE, s);
    use(rest + all - 10 * PAGE, 8 * PAGE, s);
    use(rest + all - 2 * PAGE, PAGE, s);
    cr_assert(vp_bare_unused(seg, x, true)); /* others use it on */
    unuse(spare, z);
    for (int i = 0; i < 2; i++)
        busy_streams[i] = door_stream(CU_STREAM_NON_BLOCKING);
    busy(rest, busy_streams[0]);
    cu_ok(vp_bare_room(0, own, on(s)));
    cr_assert(!pthread_create(&thread, NULL, keep_busy, &rest));
    const uint64_t begin = vp_clock_ns();
    cr_assert(vp_bare_used(seg + 3 * PAGE, own, on(s)));
    const uint64_t took = vp_clock_ns() - begin;
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    cu_ok(cuMemsetD8Async(seg + 3 * PAGE, 1, own, s));
    cr_assert_lt(took, 1000000000);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    door_close();
}

/* ---- between room and the block ---- */

/* Another process may take all that the device has: the block has its memory already. */
Test(bare, what_was_made_room_for_no_other_process_takes) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s);
    for (size_t size = 10 * KiB; size < MiB; size *= 3) {
        cu_ok(vp_bare_room(0, size, on(s)));
        vp_sim_others(0, 96 * MiB - held());
        cr_assert(vp_bare_used(seg + 60 * KiB, size, on(s)));
        cu_ok(cuMemsetD8Async(seg + 60 * KiB, 1, size, s));
        cu_ok(cuStreamSynchronize(s));
        vp_sim_others(0, 0);
        unuse(seg + 60 * KiB, size);
        seg += MiB;
    }
    door_close();
}

static void *take(void *got) {
    cu_ok(cuCtxSetCurrent(made_current));
    cr_assert_eq(door_alloc(got, 40 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    return NULL;
}

/* No other call of the cache comes between, but any of other threads. */
Test(bare, what_was_made_room_for_is_not_given_to_others) {
    pthread_t thread;
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s), other;
    use(seg, 40 * MiB, s);
    cu_ok(vp_bare_room(0, 45 * MiB, on(s)));
    cr_assert(!pthread_create(&thread, NULL, take, &other));
    usleep(10000);
    cr_assert(vp_bare_used(seg + 40 * MiB, 45 * MiB, on(s)));
    cu_ok(cuMemsetD8Async(seg + 40 * MiB, 1, 45 * MiB, s));
    pthread_join(thread, NULL);
    door_close();
}

static void *pin(void *segment) {
    cu_ok(cuCtxSetCurrent(made_current));
    vp_bare_pin(*(CUdeviceptr *)segment + 80 * MiB, 45 * MiB);
    return NULL;
}

/* It is idle there, and counted on. */
Test(bare, what_was_made_room_for_is_not_pinned) {
    pthread_t thread;
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    use(seg, 40 * MiB, s);
    use(seg + 80 * MiB, 45 * MiB, s);
    unuse(seg + 80 * MiB, 45 * MiB);
    cu_ok(cuCtxSynchronize());
    cu_ok(vp_bare_room(0, 40 * MiB, on(s)));
    cr_assert(!pthread_create(&thread, NULL, pin, &seg));
    usleep(10000);
    cr_assert(vp_bare_used(seg + 40 * MiB, 40 * MiB, on(s)));
    cu_ok(cuMemsetD8Async(seg + 40 * MiB, 1, 40 * MiB, s));
    pthread_join(thread, NULL);
    door_close();
}

static pthread_barrier_t turns;

/* What this thread was promised is not what is promised now: its block never came. */
static void *take_after_a_promise(void *stream) {
    CUdeviceptr got;
    cu_ok(cuCtxSetCurrent(made_current));
    cu_ok(vp_bare_room(0, MiB, on(stream)));
    pthread_barrier_wait(&turns);
    pthread_barrier_wait(&turns);
    cr_assert_eq(door_alloc(&got, 40 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    return NULL;
}

Test(bare, what_another_thread_was_promised_is_not_taken_for_ones_own) {
    pthread_t thread;
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    use(seg, 40 * MiB, s);
    pthread_barrier_init(&turns, NULL, 2);
    cr_assert(!pthread_create(&thread, NULL, take_after_a_promise, s));
    pthread_barrier_wait(&turns);
    cu_ok(vp_bare_room(0, 45 * MiB, on(s)));
    pthread_barrier_wait(&turns);
    usleep(10000);
    cr_assert(vp_bare_used(seg + 40 * MiB, 45 * MiB, on(s)));
    cu_ok(cuMemsetD8Async(seg + 40 * MiB, 1, 45 * MiB, s));
    pthread_join(thread, NULL);
    door_close();
}

/* Nobody waits for a block that has come to lie elsewhere. */
Test(bare, a_block_in_a_segment_with_memory_keeps_no_promise_open) {
    CUdeviceptr other;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    use(segment(4 * MiB, s), MiB, s);
    cu_ok(door_alloc(&other, MiB));
    cu_ok(vp_bare_room(0, MiB, on(s)));
    cr_assert(vp_bare_promised(pool_of(0)->bare));
    cr_assert(!vp_bare_used(other, MiB, on(s)));
    cr_assert(!vp_bare_promised(pool_of(0)->bare));
    door_close();
}

static void *trim(void *unused) {
    CUdeviceptr other;
    (void)unused;
    cu_ok(cuCtxSetCurrent(made_current));
    door_relieve();
    cr_assert_eq(cuMemAlloc(&other, 40 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    return NULL;
}

/* Another process has at once what goes back. */
static void *lend(void *trims) {
    cu_ok(cuCtxSetCurrent(made_current));
    cr_assert(vp_enter());
    if (trims)
        vp_pressure_trim(pool_of(0), 0);
    else
        vp_giving_lend(pool_of(0), 90 * MiB);
    vp_sim_others(0, 96 * MiB - held());
    vp_leave();
    return NULL;
}

static void room_stays(void *(*taker)(void *), void *trims) {
    pthread_t thread;
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    use(seg, 90 * MiB, s);
    unuse(seg, 90 * MiB);
    cu_ok(vp_bare_room(0, 80 * MiB, on(s)));
    cr_assert(!pthread_create(&thread, NULL, taker, trims));
    usleep(10000);
    cr_assert(vp_bare_used(seg + 10 * MiB, 80 * MiB, on(s)));
    cu_ok(cuMemsetD8Async(seg + 10 * MiB, 1, 80 * MiB, s));
    pthread_join(thread, NULL);
    door_close();
}

Test(bare, what_was_made_room_for_is_not_trimmed) {
    room_stays(trim, NULL);
}

Test(bare, what_was_made_room_for_is_not_lent) {
    room_stays(lend, NULL);
}

Test(bare, what_was_made_room_for_does_not_go_back_by_request) {
    room_stays(lend, &made_current);
}

Test(bare, what_was_lent_is_room_no_more) {
    pthread_t thread;
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    use(seg, 90 * MiB, s);
    unuse(seg, 90 * MiB);
    use(seg, MiB, s);
    cr_assert(!pthread_create(&thread, NULL, lend, NULL));
    pthread_join(thread, NULL);
    cr_assert_eq(vp_bare_room(0, 40 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    door_close();
}

static void *spill(void *unused) {
    CUdeviceptr got;
    (void)unused;
    cu_ok(cuCtxSetCurrent(made_current));
    cu_ok(door_alloc(&got, 92 * MiB));
    return NULL;
}

/* What ends in the host's memory begins with what the device has. */
Test(bare, what_was_made_room_for_is_not_spilled_into) {
    pthread_t thread;
    setenv("VPOOL_SPILL", "1G", 1);
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    use(seg, 90 * MiB, s);
    unuse(seg, 90 * MiB);
    vp_bare_flush(pool_of(0));
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 0); /* it is brought up to date */
    cu_ok(vp_bare_room(0, 80 * MiB, on(s)));
    cr_assert(!pthread_create(&thread, NULL, spill, NULL));
    usleep(10000);
    cr_assert(vp_bare_used(seg + 10 * MiB, 80 * MiB, on(s)));
    cu_ok(cuMemsetD8Async(seg + 10 * MiB, 1, 80 * MiB, s));
    pthread_join(thread, NULL);
    door_close();
}

static void *take_late(void *round) {
    CUdeviceptr other;
    cu_ok(cuCtxSetCurrent(made_current));
    const uint64_t begin = vp_clock_ns();
    cu_ok(door_alloc(&other, MiB));
    const uint64_t took = vp_clock_ns() - begin;
    cr_assert(*(int *)round ? took < VP_BARE_PATIENCE_NS : took >= VP_BARE_PATIENCE_NS && took < 1000000000);
    return NULL;
}

/* The cache may refuse it after all, or its thread be held up by the one that waits. */
Test(bare, a_block_that_does_not_come_is_waited_for_once) {
    pthread_t thread;
    CUdeviceptr other;
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    segment(128 * MiB, s);
    cu_ok(vp_bare_room(0, 80 * MiB, on(s)));
    cu_ok(door_alloc(&other, MiB)); /* its own thread does not wait */
    for (int i = 0; i < 2; i++) {
        cr_assert(!pthread_create(&thread, NULL, take_late, &i));
        pthread_join(thread, NULL);
    }
    door_close();
}

static void *take_what_was_promised(void *unused) {
    CUdeviceptr other;
    (void)unused;
    cu_ok(cuCtxSetCurrent(made_current));
    cr_assert_eq(door_alloc(&other, 60 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    return NULL;
}

/* Memory that was made for a block which came to lie elsewhere is no block's, and told of as idle. */
Test(bare, what_no_block_has_needed_serves_other_allocations) {
    struct vp_snapshot snap;
    struct vp_digest digest;
    CUdeviceptr other;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    segment(128 * MiB, s);
    cu_ok(vp_bare_room(0, 80 * MiB, on(s)));
    cr_assert_geq(vp_pool_stats(pool_of(0)).held_bytes, 60 * MiB);
    vp_lock_take(&vp_library_lock);
    cr_assert_eq(vp_snapshot_take(pool_of(0), &snap), 0);
    vp_snapshot_digest(&snap, UINT64_MAX, &digest);
    cr_assert_eq(digest.idle, snap.stats.held_bytes);
    vp_snapshot_finish(&snap);
    vp_lock_release(&vp_library_lock);
    cu_ok(door_alloc(&other, 60 * MiB));
    cu_ok(cuMemsetD8(other, 1, 60 * MiB));
    cu_ok(door_free(other));
    door_close();
}

/* One that vfork() holds up looks, to the kernel, like one that waits for a page. */
Test(bare, a_thread_that_is_held_up_keeps_what_it_was_promised) {
    pthread_t thread;
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    cu_ok(vp_bare_room(0, 80 * MiB, on(s)));
    cr_assert(!pthread_create(&thread, NULL, take_what_was_promised, NULL));
    pid_t child = vfork();
    if (!child) {
        nanosleep(&(struct timespec){.tv_nsec = 4 * VP_BARE_PATIENCE_NS}, NULL);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
    cr_assert(vp_bare_used(seg, 80 * MiB, on(s)));
    cu_ok(cuMemsetD8Async(seg, 1, 80 * MiB, s));
    pthread_join(thread, NULL);
    door_close();
}

static atomic_uint lock_kept; /* so often it is not let go */

/* The one that waits for the block gets no CPU for a while after each look, and has the library's lock meanwhile. */
static void pause_for_long(uint64_t waited_ns) {
    if (atomic_load(&lock_kept))
        atomic_fetch_sub(&lock_kept, 1);
    else
        vp_wait_pause(waited_ns);
    usleep(2 * VP_BARE_PATIENCE_NS / 1000);
}

static void block_comes_late(bool makes_segment) {
    pthread_t thread;
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    cu_ok(vp_bare_room(0, 80 * MiB, on(s)));
    pool_of(0)->config.pause = pause_for_long;
    atomic_store(&lock_kept, makes_segment ? 3 : 0);
    cr_assert(!pthread_create(&thread, NULL, take_what_was_promised, NULL));
    usleep(20000);
    /* It sleeps whenever that one looks, and has run each time. */
    for (int i = 0; i < 100 && !makes_segment; i++)
        usleep(3000);
    if (makes_segment)
        segment(MiB, s);
    cr_assert(vp_bare_used(seg, 80 * MiB, on(s)));
    cu_ok(cuMemsetD8Async(seg, 1, 80 * MiB, s));
    pthread_join(thread, NULL);
    pool_of(0)->config.pause = vp_wait_pause;
    door_close();
}

Test(bare, a_thread_that_sleeps_now_and_then_keeps_what_it_was_promised) {
    block_comes_late(false);
}

Test(bare, a_thread_that_waits_for_the_lock_keeps_what_it_was_promised) {
    block_comes_late(true);
}

/* A few bytes pin a page. */
Test(bare, room_counts_pages_that_few_bytes_pin) {
    made_current = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(128 * MiB, s);
    cu_ok(vp_bare_room(0, MiB, on(s)));
    for (size_t at = 0; at < 64 * MiB; at += PAGE)
        use(seg + at, 512, s);
    cr_assert_eq(vp_bare_room(0, 40 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    door_close();
}

/* ---- what is not so ---- */

Test(bare, blocks_that_are_none_do_not_count) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    for (int i = 0; i < 3; i++) {
        vp_bare_unused(seg, 3 * MiB, false);
        vp_bare_unused(seg + 12 * MiB, 12 * KiB, i & 1);
    }
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 0);
    cr_assert_leq(vp_pool_stats(pool_of(0)).peak_live_bytes, 0);
    use(seg, MiB, s);
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, MiB);
    cr_assert_eq(vp_pool_stats(pool_of(0)).peak_live_bytes, MiB);
    cr_assert_eq(vp_bare_room(0, 200 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    door_close();
}

Test(bare, a_segment_takes_its_blocks_along) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 30 * MiB, s);
    use(seg + 31 * MiB, 5 * KiB, s);
    cu_ok(door_free(seg));
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 0);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    door_close();
}

/* ---- ends ---- */

static CUcontext ctx;

static void *end_context(void *stream) {
    usleep(20000);
    door_context_destroy(ctx);
    vp_sim_release(stream);
    return NULL;
}

/* The cache's thread waits for memory then, with the lock let go. */
Test(bare, a_segment_that_ends_with_its_context_while_memory_is_waited_for) {
    pthread_t thread;
    door_open(SIM);
    CUcontext first;
    cu_ok(cuCtxGetCurrent(&first));
    CUstream side = door_stream(CU_STREAM_NON_BLOCKING);
    ctx = door_context(0);
    cu_ok(cuCtxSetCurrent(ctx));
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 10 * MiB, s);
    unuse(seg, 10 * MiB);
    cu_ok(cuCtxSetCurrent(first));
    vp_sim_hold(side);
    cu_ok(cuMemsetD8Async(seg, 1, MiB, side));
    cu_ok(cuCtxSetCurrent(ctx));
    cu_ok(door_free(seg));
    CUdeviceptr again = segment(64 * MiB, s);
    cr_assert_eq(again, seg);
    cr_assert(!pthread_create(&thread, NULL, end_context, side));
    cr_assert(vp_bare_used(again, 10 * MiB, on(s)));
    pthread_join(thread, NULL);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cu_ok(cuCtxSetCurrent(first));
    door_close();
}

static CUdeviceptr going;

static void *end_segment(void *stream) {
    usleep(20000);
    door_free(going);
    usleep(20000);
    vp_sim_release(stream);
    return NULL;
}

/* Work on all that is idle does not end: who shows a part of a segment to others is refused, as by cudaMalloc. */
Test(bare, what_is_pinned_is_waited_for_no_longer_than_by_an_allocation, .timeout = 60) {
    door_open("capacity=32M,granularity=64K,lazy=0,timeout=30000");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(30 * MiB, s), other = segment(20 * MiB, side);
    use(seg, 28 * MiB, s);
    vp_sim_hold(s);
    cu_ok(cuMemsetD8Async(seg, 1, 28 * MiB, s));
    unuse(seg, 28 * MiB);
    uint64_t begin = vp_clock_ns();
    cr_assert_eq(vp_bare_pin(other, 20 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    const uint64_t took = vp_clock_ns() - begin;
    cr_assert(took < 20000000000, "%llu", (unsigned long long)took);
    vp_sim_release(s);
    cu_ok(cuCtxSynchronize());
    cr_assert_eq(vp_bare_pin(other, 20 * MiB), CUDA_SUCCESS);
    cu_ok(cuMemsetD8Async(other, 2, 20 * MiB, side));
    door_close();
}

Test(bare, a_segment_that_is_freed_while_it_is_pinned) {
    pthread_t thread;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 10 * MiB, s);
    unuse(seg, 10 * MiB);
    vp_sim_hold(side);
    cu_ok(cuMemsetD8Async(seg, 1, MiB, side));
    cu_ok(door_free(seg));
    going = segment(64 * MiB, s);
    cr_assert_eq(going, seg);
    cr_assert(!pthread_create(&thread, NULL, end_segment, side));
    vp_bare_pin(going, 10 * MiB);
    pthread_join(thread, NULL);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    CUdeviceptr again = segment(64 * MiB, s);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    use(again, 10 * MiB, s);
    cu_ok(cuMemsetD8Async(again, 1, 10 * MiB, s));
    door_close();
}
