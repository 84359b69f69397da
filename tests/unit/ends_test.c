/* What ends in the middle, and lists that must not grow: contexts, threads and streams that end while something of
 * theirs is under way, told or untold. Counts go back, locks come free, and what is kept of the dead is bounded. Work
 * is counted, not timed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ends_test.h"

#include "base/clock.h"
#include "process/state.h"
#include "pool/stream_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- captures ---- */

Test(ends, a_capture_ends_with_its_context) {
    CUcontext primary = door_open(SIM), made = door_context(0);
    cu_ok(door_begin_capture(door_stream(CU_STREAM_NON_BLOCKING), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    cu_ok(door_begin_capture(door_stream(CU_STREAM_NON_BLOCKING), CU_STREAM_CAPTURE_MODE_RELAXED));
    cr_assert_eq(captures(), 2);
    cu_ok(door_context_destroy(made));
    cr_assert_eq(captures(), 0);
    cu_ok(cuCtxSetCurrent(primary));
    nothing_is_held_up();
    door_close();
}

/* Before we hear that it has ended, another stream has the handle of the one that captured: it is that one which is
 * destroyed. */
Test(ends, a_capturing_streams_handle_is_given_out_again) {
    door_open(SIM);
    CUcontext made = door_context(0);
    CUstream captures_there = door_stream(CU_STREAM_NON_BLOCKING), s;
    cu_ok(door_begin_capture(captures_there, CU_STREAM_CAPTURE_MODE_RELAXED));
    vp_api_context_destroying(made);
    cu_ok(cuCtxDestroy(made));
    door_context(0);
    cr_assert_eq(s = door_stream(CU_STREAM_NON_BLOCKING), captures_there);
    cu_ok(door_free_async(door_take(2 * MiB, s), s));
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_stream_destroy(s));
    vp_api_context_destroyed(made, true);
    nothing_is_held_up();
    cr_assert_eq(vp_sim_violations(), 0);
    cr_assert_eq(captures(), 0);
    door_close();
}

/* It has work left, behind that of another stream, and memory that waits for it; the next stream has its handle. */
Test(ends, a_stream_that_has_joined_a_capture_is_destroyed) {
    CUevent event;
    CUgraph graph;
    door_open(SIM);
    CUstream held = door_stream(CU_STREAM_NON_BLOCKING), begins = door_stream(CU_STREAM_NON_BLOCKING),
             joins = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr other = door_take(MiB, held), freed = door_take(8 * MiB, joins);
    vp_sim_hold(held);
    cu_ok(cuMemsetD8Async(other, 1, MiB, held));
    cu_ok(cuEventRecord(event, held));
    cu_ok(cuStreamWaitEvent(joins, event, 0));
    cu_ok(cuMemsetD8Async(freed, 1, 8 * MiB, joins));
    cu_ok(door_free_async(freed, joins));
    cu_ok(door_begin_capture(begins, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(cuEventRecord(event, begins));
    cu_ok(cuStreamWaitEvent(joins, event, 0));
    cu_ok(door_stream_destroy(joins));
    cr_assert_eq(door_end_capture(begins, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    cr_assert_eq(door_stream(CU_STREAM_NON_BLOCKING), joins);
    cr_assert_neq(door_malloc(8 * MiB), freed);
    vp_sim_release(held);
    nothing_is_held_up();
    door_close();
}

/* As may be once work has failed for good: its handle is none all the same. */
Test(ends, a_stream_whose_id_is_not_told_is_destroyed) {
    door_open(SIM);
    CUstream ends = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr small = door_take(3000, ends);
    cu_ok(door_free_async(door_take(3000, other), other));
    cu_ok(door_free_async(small, ends));
    vp_sim_fail("cuStreamGetId", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    cu_ok(door_stream_destroy(ends));
    vp_sim_fail("cuStreamGetId", 0, CUDA_SUCCESS);
    nothing_is_held_up();
    cr_assert_eq(vp_sim_violations(), 0);
    door_close();
}

/* A free comes behind the legacy stream's work by an event of its own stream: one over the context stands for others,
 * too.
 */
Test(ends, a_stream_that_cannot_be_named_waits_for_no_other) {
    door_open(SIM);
    CUstream held = door_stream(CU_STREAM_NON_BLOCKING), own = CU_STREAM_PER_THREAD;
    CUdeviceptr work = door_take(MiB, held), freed = door_take(2 * MiB, own);
    vp_sim_hold(held);
    cu_ok(cuMemsetD8Async(work, 1, 1, held));
    cu_ok(cuMemsetD8Async(work + 1, 1, 1, CU_STREAM_LEGACY));
    vp_sim_fail("cuStreamGetId", 2, CUDA_ERROR_ILLEGAL_ADDRESS);
    cu_ok(door_free_async(freed, own));
    vp_sim_fail("cuStreamGetId", 0, CUDA_SUCCESS);
    cu_ok(cuMemsetD8Async(work + 2, 1, 1, own));
    cu_ok(cuStreamSynchronize(own));
    vp_sim_release(held);
    nothing_is_held_up();
    door_close();
}

/* Its id is not asked then, by which a thread knows its own again: the driver would end the capture. */
Test(ends, a_threads_own_stream_that_has_joined_a_capture_is_left_alone) {
    CUevent event;
    CUgraph graph;
    door_open(SIM);
    CUstream own = CU_STREAM_PER_THREAD, begins = door_stream(CU_STREAM_NON_BLOCKING),
             wants = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr freed = door_take(8 * MiB, own);
    vp_sim_hold(own);
    cu_ok(cuMemsetD8Async(freed, 1, 8 * MiB, own));
    cu_ok(door_free_async(freed, own));
    cu_ok(door_begin_capture(begins, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(cuEventRecord(event, begins));
    cu_ok(cuStreamWaitEvent(own, event, 0));
    cr_assert_neq(door_take(8 * MiB, wants), freed);
    cu_ok(cuEventRecord(event, own));
    cu_ok(cuStreamWaitEvent(begins, event, 0));
    cu_ok(door_end_capture(begins, &graph));
    cu_ok(cuGraphDestroy(graph));
    vp_sim_release(own);
    nothing_is_held_up();
    door_close();
}

/* What it has queued a barrier tells, and none can be had while another captures. */
Test(ends, a_stream_was_destroyed_before_a_capture) {
    door_open(SIM);
    cu_ok(door_stream_destroy(door_stream(CU_STREAM_NON_BLOCKING)));
    cu_ok(door_begin_capture(door_stream(CU_STREAM_NON_BLOCKING), CU_STREAM_CAPTURE_MODE_RELAXED));
    nothing_is_held_up();
    door_close();
}

static void *capture_own_stream(void *context) {
    cu_ok(cuCtxSetCurrent(context));
    cu_ok(door_begin_capture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    return NULL;
}

Test(ends, a_capture_ends_with_its_thread) {
    pthread_t thread;
    CUcontext context = door_open(SIM);
    cr_assert(!pthread_create(&thread, NULL, capture_own_stream, context) && !pthread_join(thread, NULL));
    cr_assert_eq(captures(), 0);
    nothing_is_held_up();
    door_close();
}

/* By a route that leads through no door. */
Test(ends, a_capture_ends_unseen) {
    CUgraph graph;
    CUcontext primary = door_open(SIM), made = door_context(0);
    cu_ok(door_begin_capture(door_stream(CU_STREAM_NON_BLOCKING), CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(cuCtxDestroy(made));
    cu_ok(cuCtxSetCurrent(primary));
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(cuStreamEndCapture(s, &graph));
    nothing_is_held_up();
    cr_assert_eq(captures(), 0);
}

/* ---- contexts ---- */

#if CUDA_VERSION >= 12050
/* It holds the primary one, which the program has let go. */
Test(ends, a_green_context_takes_the_primary_with_it) {
    CUgreenCtx green;
    CUcontext context;
    CUdeviceptr got;
    door_open(SIM);
    door_malloc(2 * MiB);
    cu_ok(door_green_create(&green, &context, 0));
    cu_ok(cuDevicePrimaryCtxRelease(0));
    cu_ok(door_free(door_malloc(2 * MiB)));
    cu_ok(door_green_destroy(green, context));
    cr_assert_eq(door_alloc(&got, 2 * MiB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    cr_assert_eq(vp_state.pools[0]->mem.stats.live_bytes, 0);
    door_close();
}

Test(ends, a_reset_takes_green_contexts_along) {
    CUgreenCtx green;
    CUcontext context;
    CUdeviceptr got;
    door_open(SIM);
    cu_ok(door_green_create(&green, &context, 0));
    cu_ok(cuCtxPushCurrent(context));
    door_malloc(2 * MiB);
    cu_ok(door_primary_reset(0));
    cr_assert_eq(door_alloc(&got, 2 * MiB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    cr_assert_eq(vp_state.pools[0]->mem.stats.live_bytes, 0);
    cr_assert_eq(vp_sim_violations(), 0);
    door_close();
}

/* What it had queued still uses what was freed behind it. */
static CUdeviceptr work_in_green(CUstream held) {
    CUgreenCtx green;
    CUcontext context;
    CUstream s;
    CUevent event;
    cu_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    cu_ok(door_green_create(&green, &context, 0));
    cu_ok(door_green_stream(&s, green));
    CUdeviceptr freed = door_take(8 * MiB, s);
    if (held) {
        vp_sim_hold(held);
        cu_ok(cuEventRecord(event, held));
        cu_ok(cuStreamWaitEvent(s, event, 0));
    }
    for (int i = 0; i < 8; i++)
        cu_ok(cuMemsetD8Async(freed, 1, 8 * MiB, s));
    cu_ok(door_free_async(freed, s));
    cu_ok(door_green_destroy(green, context));
    return freed;
}

Test(ends, of_a_green_context_with_its_work) {
    door_open("capacity=64M,granularity=64K,lazy=100,timeout=300");
    CUdeviceptr freed = work_in_green(NULL);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cr_assert_eq(door_take(8 * MiB, s), freed);
    cu_ok(cuMemsetD8Async(freed, 2, 8 * MiB, s));
    cu_ok(cuStreamSynchronize(s));
    unsigned char seen;
    cu_ok(cuMemcpyDtoH(&seen, freed, 1));
    cr_assert_eq(seen, 2);
    cr_assert_eq(vp_sim_violations(), 0);
    door_close();
}

static uint64_t in_leaps(void) {
    static uint64_t now;
    return now += UINT64_C(6000000000);
}

/* The host may have to do something first: then the context stays. */
Test(ends, of_a_green_context_before_its_work) {
    door_open(SIM);
    CUstream held = door_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    vp_clock_modelled = in_leaps;
    CUdeviceptr freed = work_in_green(held);
    vp_clock_modelled = NULL;
    for (int i = 0; i < 6; i++) {
        CUdeviceptr other = i % 2 ? door_malloc(8 * MiB) : door_take(8 * MiB, s);
        cr_assert(other >= freed + 8 * MiB || freed >= other + 8 * MiB);
    }
    cr_assert_eq(vp_sim_violations(), 0);
    vp_sim_release(held);
    nothing_is_held_up();
    cr_assert(vp_pool_check(vp_state.pools[0], stderr));
    cr_assert_eq(vp_sim_violations(), 0);
    door_close();
}
#endif

Test(ends, a_context_ends_unseen) {
    CUcontext primary = door_open(SIM), made = door_context(0);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr sync = door_malloc(2 * MiB), async = door_take(2 * MiB, s);
    cu_ok(door_free(door_malloc(MiB)));
    cu_ok(cuCtxDestroy(made));
    cu_ok(cuCtxSetCurrent(primary));
    nothing_is_held_up();
    cr_assert_neq(door_free(sync), CUDA_SUCCESS, "it went with its context");
    cu_ok(door_free(async));
    struct vp_context *ctx;
    vp_list_each(ctx, &vp_state.timelines.contexts, link)
        cr_assert_eq(ctx->error, 0);
}

/* CUDA would let it be entered, and crash in the next call. */
Test(ends, a_context_that_has_ended_is_not_entered) {
    CUcontext primary = door_open(SIM), made = door_context(0), now;
    cu_ok(cuCtxDestroy(made));
    cu_ok(cuCtxSetCurrent(primary));
    const struct vp_entered entered = vp_context_enter(&vp_state.drv, made);
    cr_assert_eq(entered.refused, CUDA_ERROR_INVALID_CONTEXT);
    cu_ok(cuCtxGetCurrent(&now));
    cr_assert_eq(now, primary);
    vp_context_leave(&vp_state.drv, entered);
    cr_assert_eq(vp_sim_violations(), 0);
}

/* What it had pending will never be over: who is out of memory does not wait for it. */
Test(ends, nobody_waits_for_a_context_that_ended_unseen) {
    CUcontext primary = door_open("capacity=64M,granularity=64K,lazy=100,timeout=300"), made = door_context(0);
    cu_ok(cuMemsetD8Async(door_malloc(MiB), 1, MiB, door_stream(CU_STREAM_NON_BLOCKING)));
    cu_ok(door_free(door_malloc(2 * MiB)));
    cr_assert(vp_timelines_waiting(&vp_state.timelines, UINT64_MAX));
    cu_ok(cuCtxDestroy(made));
    cu_ok(cuCtxSetCurrent(primary));
    cr_assert(vp_enter());
    vp_timelines_poll(&vp_state.timelines, true);
    for (int i = 0; i < 100; i++)
        vp_timelines_poll(&vp_state.timelines, false);
    cr_assert(!vp_timelines_waiting(&vp_state.timelines, UINT64_MAX));
    vp_leave();
    nothing_is_held_up();
}

/* The primary context is reset unseen, and another begins under its handle. What is allocated there is its own; and so
 * might be what was allocated before, which therefore stays. */
Test(ends, another_context_has_the_handle) {
    CUcontext context = door_open(SIM);
    CUdeviceptr before = door_malloc(2 * MiB);
    cu_ok(cuDevicePrimaryCtxReset(0));
    CUcontext again;
    cu_ok(cuDevicePrimaryCtxRetain(&again, 0));
    cr_assert_eq(again, context);
    vp_api_context_created(again, true);
    CUdeviceptr after = door_malloc(2 * MiB);
    cr_assert(after + 2 * MiB <= before || after >= before + 2 * MiB);
    cu_ok(door_free(before));
    nothing_is_held_up();
    cu_ok(door_free(after));
    cr_assert(door_served);
}

/* A release that was not the last one, while another thread allocates: the context is still the one object. */
Test(ends, a_context_that_lives_on_stays_one) {
    CUcontext context = door_open(SIM);
    struct vp_context *ctx = vp_context_get(&vp_state.timelines, context);
    vp_api_context_destroying(context);
    CUdeviceptr ptr = door_malloc(MiB);
    vp_api_context_destroyed(context, false);
    cr_assert_eq(vp_context_get(&vp_state.timelines, context), ctx);
    cr_assert_eq(length(&vp_state.timelines.contexts), 1);
    cu_ok(door_free(ptr));
    nothing_is_held_up();
    door_close();
}

Test(ends, contexts_are_forgotten) {
    CUcontext primary = door_open(SIM);
    uint64_t barriers = 0;
    for (int i = 0; i < 500; i++) {
        CUcontext made = door_context(0);
        cu_ok(door_free(door_malloc(MiB)));
        cu_ok(door_context_destroy(made));
        cu_ok(cuCtxSetCurrent(primary));
        cr_assert(length(&vp_state.timelines.contexts) <= 8, "%zu", length(&vp_state.timelines.contexts));
        struct vp_timeline_stats stats = vp_state.timelines.stats[0];
        cr_assert(stats.barriers >= barriers, "counts never go back");
        barriers = stats.barriers;
    }
    cr_assert(barriers >= 500);
    door_close();
}

/* A reset takes a device's only context, and streams that nobody destroyed: nothing but their end tells of them. */
Test(ends, contexts_with_their_streams_are_forgotten) {
    door_open(SIM);
    for (int i = 0; i < 300; i++) {
        CUcontext ctx;
        struct vp_context *known;
        size_t timelines = 0;
        for (int n = 0; n < 20; n++) {
            CUstream s = door_stream(n % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
            cu_ok(door_free_async(door_take(MiB, s), s));
        }
        door_malloc(MiB);
        cu_ok(door_primary_reset(0));
        cu_ok(door_primary(&ctx, 0));
        cu_ok(cuCtxSetCurrent(ctx));
        door_malloc(MiB);
        cr_assert(length(&vp_state.timelines.contexts) <= 8, "%zu", length(&vp_state.timelines.contexts));
        vp_list_each(known, &vp_state.timelines.contexts, link)
            timelines += length(&known->timelines);
        cr_assert(timelines <= 64, "%zu", timelines);
    }
    door_close();
}

static CUresult answer_of_last;
static atomic_bool asks;

static void *allocate_in_vain(void *s) {
    CUcontext ctx;
    CUdeviceptr a;
    cu_ok(cuStreamGetCtx(s, &ctx));
    cu_ok(cuCtxSetCurrent(ctx));
    atomic_store(&asks, true);
    answer_of_last = door_alloc_async(&a, 40 * MiB, NULL, s);
    return NULL;
}

/* Its barrier is no more: work that is noted there would be another timeline's. */
Test(ends, a_context_ends_while_the_host_waits_for_memory_in_it) {
    CUcontext own = door_open("capacity=64M,granularity=64K,lazy=0,timeout=3000"), made = door_context(0);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    const struct vp_timeline *timeline;
    pthread_t thread;
    cu_ok(cuCtxSetCurrent(own));
    CUstream busy = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_take(40 * MiB, busy);
    vp_sim_hold(busy);
    cu_ok(cuMemsetD8Async(a, 1, MiB, busy));
    cu_ok(door_free_async(a, busy));
    vp_state.pools[0]->throttle.not_before = UINT64_MAX; /* it waits when nothing else is left */
    cr_assert_eq(pthread_create(&thread, NULL, allocate_in_vain, s), 0);
    while (!atomic_load(&asks))
        usleep(100);
    usleep(100000);
    cu_ok(door_context_destroy(made));
    vp_state.pools[0]->throttle.lead_used_ns = 1; /* the next request is looked after */
    vp_sim_release(busy);
    pthread_join(thread, NULL);
    cr_assert_eq(answer_of_last, CUDA_ERROR_INVALID_CONTEXT, "%d", (int)answer_of_last);
    vp_list_each(timeline, &vp_state.timelines.pending, pending)
        cr_assert(!timeline->gone);
    nothing_is_held_up();
    door_close();
}

/* ---- lists ---- */

static size_t bytes_kept(void) {
    return vp_pool_metadata(vp_state.pools[0]) + vp_state.timelines.timeline_slab.bytes +
           vp_state.timelines.event_slab.bytes + vp_state.timelines.point_slab.bytes +
           vp_state.timelines.context_slab.bytes + vp_table_bytes(&vp_state.timelines.by_id);
}

/* What is looked at, one after another, by calls that find nothing at once. */
static size_t walked(void) {
    struct vp_context *ctx;
    size_t lines = 0;
    vp_list_each(ctx, &vp_state.timelines.contexts, link)
        lines += length(&ctx->timelines);
    return lines + length(&vp_state.timelines.pending) + length(&vp_state.timelines.ended) +
           length(&vp_state.pools[0]->mem.indexes) + length(&vp_state.pools[0]->caches.used);
}

Test(ends, a_hundred_thousand_streams) {
    size_t kept = 0, most = 0;
    setenv("VPOOL_CHECK", "0", 1);
    door_open(SIM);
    for (int i = 0; i < 100000; i++) {
        CUstream s = door_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        cu_ok(door_free_async(door_take(64 * KiB, s), s));
        cu_ok(door_stream_destroy(s));
        if (i == 2000)
            kept = bytes_kept();
        if (i > 2000 && i % 100 == 0 && walked() > most)
            most = walked();
    }
    cr_assert(bytes_kept() <= kept + MiB, "%zu and then %zu bytes", kept, bytes_kept());
    cr_assert(most < 1000, "%zu", most);
    door_close();
}

static void *use_own_stream(void *context) {
    cu_ok(cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++)
        cu_ok(door_free_async(door_take(64 * KiB << i, CU_STREAM_PER_THREAD), CU_STREAM_PER_THREAD));
    return NULL;
}

Test(ends, threads_leave_nothing_behind) {
    size_t kept = 0, most = 0;
    pthread_t thread;
    setenv("VPOOL_CHECK", "0", 1);
    CUcontext context = door_open(SIM);
    for (int i = 0; i < 4000; i++) {
        cr_assert(!pthread_create(&thread, NULL, use_own_stream, context) && !pthread_join(thread, NULL));
        if (i == 1000)
            kept = bytes_kept();
        if (i > 1000 && walked() > most)
            most = walked();
    }
    cr_assert(bytes_kept() <= kept + MiB, "%zu and then %zu bytes", kept, bytes_kept());
    cr_assert(most < 1000, "%zu", most);
    door_close();
}

static pthread_key_t late_key;

static void use_once_more(void *context) {
    use_own_stream(context);
}

static void *use_in_destructor(void *context) {
    use_own_stream(context);
    pthread_setspecific(late_key, context);
    return NULL;
}

/* Other destructors of the thread may use the stream after ours has run. */
Test(ends, destructors_use_the_stream_again) {
    pthread_t thread;
    CUcontext context = door_open(SIM);
    cr_assert(!pthread_key_create(&late_key, use_once_more));
    for (int i = 0; i < 20; i++)
        cr_assert(!pthread_create(&thread, NULL, use_in_destructor, context) && !pthread_join(thread, NULL));
    cr_assert(length(&vp_state.pools[0]->caches.used) <= 1);
    nothing_is_held_up();
    door_close();
}

/* The destructors of a thread run a few times, and then no more: what is first used in the last round ends with its
 * context. By then the thread is no more, nor its stack. */
static void use_in_the_last_round(void *context) {
    static _Thread_local int rounds;
    if (++rounds == sysconf(_SC_THREAD_DESTRUCTOR_ITERATIONS))
        use_own_stream(context);
    else
        pthread_setspecific(late_key, context);
}

Test(ends, the_last_destructor_uses_the_stream) {
    pthread_t thread;
    pthread_attr_t large;
    CUcontext primary = door_open(SIM), made = door_context(0);
    cr_assert(!pthread_key_create(&late_key, use_in_the_last_round));
    cr_assert(!pthread_attr_init(&large) && !pthread_attr_setstacksize(&large, 128 * MiB),
              "libc keeps no stack as large");
    for (int i = 0; i < 3; i++)
        cr_assert(!pthread_create(&thread, &large, use_in_destructor, made) && !pthread_join(thread, NULL));
    cu_ok(door_context_destroy(made));
    cu_ok(cuCtxSetCurrent(primary));
    nothing_is_held_up();
    door_close();
}

/* What a thread's own stream has still queued at its end goes on: its memory is nobody else's until then. */
static CUdeviceptr left_at_work;

static void *leave_work_behind(void *context) {
    cu_ok(cuCtxSetCurrent(context));
    left_at_work = door_take(2 * MiB, CU_STREAM_PER_THREAD);
    cu_ok(cuStreamWaitValue32(CU_STREAM_PER_THREAD, left_at_work, 1, CU_STREAM_WAIT_VALUE_EQ));
    cu_ok(door_free_async(left_at_work, CU_STREAM_PER_THREAD));
    return NULL;
}

Test(ends, a_dead_threads_work_goes_on) {
    pthread_t thread;
    CUcontext context = door_open("capacity=64M,granularity=64K,lazy=0,timeout=2000");
    cr_assert(!pthread_create(&thread, NULL, leave_work_behind, context) && !pthread_join(thread, NULL));
    CUdeviceptr other[4];
    for (int i = 0; i < 4; i++) {
        other[i] = door_malloc(2 * MiB);
        cr_assert(other[i] + 2 * MiB <= left_at_work || other[i] >= left_at_work + 2 * MiB);
    }
    *(volatile uint32_t *)(uintptr_t)left_at_work = 1;
    cu_ok(cuCtxSynchronize());
    cr_assert(vp_timelines_open(&vp_state.timelines) || !vp_list_empty(&vp_state.timelines.pending));
    vp_timelines_poll_for(&vp_state.timelines, 1000000000);
    for (int i = 0; i < 4; i++)
        cu_ok(door_free(other[i]));
    nothing_is_held_up();
    door_close();
}
