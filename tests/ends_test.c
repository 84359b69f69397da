/*
 * What ends in the middle, and lists that must not grow: contexts, threads and streams that end while something of theirs is under way, told or untold. Counts go back,
 * locks come free, and what is kept of the dead is bounded. Work is counted, not timed.
 */
#include "fixture.h"

#include "api/api_private.h"
#include "pool/lane.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0,timeout=300";

static int captures(void)
{
    return atomic_load(&vp_state.lines.captures);
}

static size_t length(const struct vp_list *list)
{
    size_t n = 0;
    for (const struct vp_list *at = list->next; at != list; at = at->next)
        n++;
    return n;
}

/* Synchronous memory comes back: twice what the device has is allocated and freed. */
static void nothing_is_held_up(void)
{
    for (int i = 0; i < 16; i++)
        cu_ok(door_free(door_malloc(8 * MiB)));
    cr_assert(vp_state.pools[0]->stats.held_bytes <= 64 * MiB);
}

/* ---- captures ---- */

Test(ends, a_capture_ends_with_its_context)
{
    CUcontext primary = door_open(SIM), made = door_context(0);
    cu_ok(door_capture_begin(door_stream(CU_STREAM_NON_BLOCKING), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    cu_ok(door_capture_begin(door_stream(CU_STREAM_NON_BLOCKING), CU_STREAM_CAPTURE_MODE_RELAXED));
    cr_assert_eq(captures(), 2);
    door_context_destroy(made);
    cr_assert_eq(captures(), 0);
    cu_ok(cuCtxSetCurrent(primary));
    nothing_is_held_up();
    door_close();
}

/* Before we hear that it has ended, another stream has the handle of the one that captured: it is that one which is destroyed. */
Test(ends, a_capturing_streams_handle_is_given_out_again)
{
    CUcontext primary = door_open(SIM), made = door_context(0);
    CUstream captures_there = door_stream(CU_STREAM_NON_BLOCKING), s;
    cu_ok(door_capture_begin(captures_there, CU_STREAM_CAPTURE_MODE_RELAXED));
    vp_api_context_destroying(made);
    cu_ok(cuCtxDestroy(made));
    cu_ok(cuCtxSetCurrent(primary));
    cr_assert_eq(s = door_stream(CU_STREAM_NON_BLOCKING), captures_there);
    cu_ok(door_free_async(door_take(2 * MiB, s), s));
    door_stream_destroy(s);
    vp_api_context_destroyed(made, true);
    nothing_is_held_up();
    cr_assert_eq(vp_sim_violations(), 0);
    cr_assert_eq(captures(), 0);
    door_close();
}

static void *capture_own_stream(void *context)
{
    cu_ok(cuCtxSetCurrent(context));
    cu_ok(door_capture_begin(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    return NULL;
}

Test(ends, a_capture_ends_with_its_thread)
{
    pthread_t thread;
    CUcontext context = door_open(SIM);
    cr_assert(!pthread_create(&thread, NULL, capture_own_stream, context) && !pthread_join(thread, NULL));
    cr_assert_eq(captures(), 0);
    nothing_is_held_up();
    door_close();
}

/* By a route that leads through no door. */
Test(ends, a_capture_ends_unseen)
{
    CUgraph graph;
    CUcontext primary = door_open(SIM), made = door_context(0);
    cu_ok(door_capture_begin(door_stream(CU_STREAM_NON_BLOCKING), CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(cuCtxDestroy(made));
    cu_ok(cuCtxSetCurrent(primary));
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_capture_begin(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(cuStreamEndCapture(s, &graph));
    nothing_is_held_up();
    cr_assert_eq(captures(), 0);
}

/* ---- contexts ---- */

Test(ends, a_context_ends_unseen)
{
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
    vp_list_each(ctx, &vp_state.lines.contexts, link)
        cr_assert_eq(ctx->error, 0);
}

/* What it had pending will never be over: who is out of memory does not wait for it. */
Test(ends, nobody_waits_for_a_context_that_ended_unseen)
{
    CUcontext primary = door_open("capacity=64M,granularity=64K,lazy=100,timeout=300"), made = door_context(0);
    cu_ok(cuMemsetD8Async(door_malloc(MiB), 1, MiB, door_stream(CU_STREAM_NON_BLOCKING)));
    cu_ok(door_free(door_malloc(2 * MiB)));
    cr_assert(vp_lines_waiting(&vp_state.lines, UINT64_MAX));
    cu_ok(cuCtxDestroy(made));
    cu_ok(cuCtxSetCurrent(primary));
    cr_assert(vp_enter());
    vp_lines_poll(&vp_state.lines, true);
    for (int i = 0; i < 100; i++)
        vp_lines_poll(&vp_state.lines, false);
    cr_assert(!vp_lines_waiting(&vp_state.lines, UINT64_MAX));
    vp_leave();
    nothing_is_held_up();
}

/* The primary context is reset unseen, and another begins under its handle. What is allocated there is its own; and so might be what was allocated before, which therefore stays. */
Test(ends, another_context_has_the_handle)
{
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
Test(ends, a_context_that_lives_on_stays_one)
{
    CUcontext context = door_open(SIM);
    struct vp_context *ctx = vp_context_get(&vp_state.lines, context);
    vp_api_context_destroying(context);
    CUdeviceptr ptr = door_malloc(MiB);
    vp_api_context_destroyed(context, false);
    cr_assert_eq(vp_context_get(&vp_state.lines, context), ctx);
    cr_assert_eq(length(&vp_state.lines.contexts), 1);
    cu_ok(door_free(ptr));
    nothing_is_held_up();
    door_close();
}

Test(ends, contexts_are_forgotten)
{
    CUcontext primary = door_open(SIM);
    uint64_t barriers = 0;
    for (int i = 0; i < 500; i++) {
        CUcontext made = door_context(0);
        cu_ok(door_free(door_malloc(MiB)));
        door_context_destroy(made);
        cu_ok(cuCtxSetCurrent(primary));
        cr_assert(length(&vp_state.lines.contexts) <= 8, "%zu", length(&vp_state.lines.contexts));
        struct vp_line_stats stats = vp_lines_stats(&vp_state.lines, 0);
        cr_assert(stats.barriers >= barriers, "counts never go back");
        barriers = stats.barriers;
    }
    cr_assert(barriers >= 500);
    door_close();
}

/* ---- lists ---- */

static size_t bytes_kept(void)
{
    return vp_pool_metadata(vp_state.pools[0]) + vp_state.lines.line_slab.bytes + vp_state.lines.event_slab.bytes +
           vp_state.lines.point_slab.bytes + vp_state.lines.context_slab.bytes + vp_table_bytes(&vp_state.lines.by_id);
}

/* What is looked at, one after another, by calls that find nothing at once. */
static size_t walked(void)
{
    struct vp_context *ctx;
    size_t lines = 0;
    vp_list_each(ctx, &vp_state.lines.contexts, link)
        lines += length(&ctx->lines);
    return lines + length(&vp_state.lines.pending) + length(&vp_state.lines.ended) + length(&vp_state.pools[0]->line_indexes) +
           length(&vp_state.pools[0]->lanes);
}

Test(ends, a_hundred_thousand_streams)
{
    size_t kept = 0, most = 0;
    setenv("VPOOL_CHECK", "0", 1);
    door_open(SIM);
    for (int i = 0; i < 100000; i++) {
        CUstream s = door_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        cu_ok(door_free_async(door_take(64 * KiB, s), s));
        door_stream_destroy(s);
        if (i == 2000)
            kept = bytes_kept();
        if (i > 2000 && i % 100 == 0 && walked() > most)
            most = walked();
    }
    cr_assert(bytes_kept() <= kept + MiB, "%zu and then %zu bytes", kept, bytes_kept());
    cr_assert(most < 1000, "%zu", most);
    door_close();
}

static void *use_own_stream(void *context)
{
    cu_ok(cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++)
        cu_ok(door_free_async(door_take(64 * KiB << i, CU_STREAM_PER_THREAD), CU_STREAM_PER_THREAD));
    return NULL;
}

Test(ends, threads_leave_nothing_behind)
{
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

static void use_once_more(void *context)
{
    use_own_stream(context);
}

static void *use_in_destructor(void *context)
{
    use_own_stream(context);
    pthread_setspecific(late_key, context);
    return NULL;
}

/* Other destructors of the thread may use the stream after ours has run. */
Test(ends, destructors_use_the_stream_again)
{
    pthread_t thread;
    CUcontext context = door_open(SIM);
    cr_assert(!pthread_key_create(&late_key, use_once_more));
    for (int i = 0; i < 20; i++)
        cr_assert(!pthread_create(&thread, NULL, use_in_destructor, context) && !pthread_join(thread, NULL));
    cr_assert(length(&vp_state.pools[0]->lanes) <= 1);
    nothing_is_held_up();
    door_close();
}

/* The destructors of a thread run a few times, and then no more: what is first used in the last round ends with its context. By then the thread is no more, nor its stack. */
static void use_in_the_last_round(void *context)
{
    static _Thread_local int rounds;
    if (++rounds == sysconf(_SC_THREAD_DESTRUCTOR_ITERATIONS))
        use_own_stream(context);
    else
        pthread_setspecific(late_key, context);
}

Test(ends, the_last_destructor_uses_the_stream)
{
    pthread_t thread;
    pthread_attr_t large;
    CUcontext primary = door_open(SIM), made = door_context(0);
    cr_assert(!pthread_key_create(&late_key, use_in_the_last_round));
    cr_assert(!pthread_attr_init(&large) && !pthread_attr_setstacksize(&large, 128 * MiB), "libc keeps no stack as large");
    for (int i = 0; i < 3; i++)
        cr_assert(!pthread_create(&thread, &large, use_in_destructor, made) && !pthread_join(thread, NULL));
    door_context_destroy(made);
    cu_ok(cuCtxSetCurrent(primary));
    nothing_is_held_up();
    door_close();
}

/* What a thread's own stream has still queued at its end goes on: its memory is nobody else's until then. */
static CUdeviceptr left_at_work;

static void *leave_work_behind(void *context)
{
    cu_ok(cuCtxSetCurrent(context));
    left_at_work = door_take(2 * MiB, CU_STREAM_PER_THREAD);
    cu_ok(cuStreamWaitValue32(CU_STREAM_PER_THREAD, left_at_work, 1, CU_STREAM_WAIT_VALUE_EQ));
    cu_ok(door_free_async(left_at_work, CU_STREAM_PER_THREAD));
    return NULL;
}

Test(ends, a_dead_threads_work_goes_on)
{
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
    cr_assert(vp_lines_open(&vp_state.lines) || !vp_list_empty(&vp_state.lines.pending));
    vp_lines_settle(&vp_state.lines, 1000000000);
    for (int i = 0; i < 4; i++)
        cu_ok(door_free(other[i]));
    nothing_is_held_up();
    door_close();
}

/* ---- out of memory beside a capture ---- */

/* Nothing can be recorded over the context; and what is idle comes back all the same, of whichever kind its stream is. */
Test(ends, idle_memory_comes_back_beside_a_capture)
{
    door_open(SIM);
    CUstream capture = door_stream(CU_STREAM_NON_BLOCKING), one = door_stream(CU_STREAM_NON_BLOCKING),
             two = door_stream(CU_STREAM_DEFAULT);
    cu_ok(cuMemsetD8Async(door_malloc(MiB), 1, MiB, capture));
    cu_ok(door_capture_begin(capture, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 20; i++) {
        CUdeviceptr ptr = door_malloc(20 * MiB);
        cu_ok(cuMemsetD8Async(ptr, 1, 20 * MiB, i % 2 ? one : two));
        cu_ok(door_free(ptr));
    }
    cu_ok(door_capture_end(capture));
    door_close();
}

/* Has what open barriers wait for come to an end, as far as can be seen beside a capture? */
static bool covered(void)
{
    bool moved = false;
    cr_assert(vp_enter());
    for (int i = 0; i < 3; i++) {
        vp_lines_poll(&vp_state.lines, true);
        moved |= vp_lines_cover(&vp_state.lines);
    }
    vp_leave();
    return moved;
}

/* And what is not idle does not: work on a stream of each kind, and on the one that captures, from before. */
static void busy_memory_stays(unsigned flags, bool captures_itself)
{
    CUdeviceptr a, b;
    door_open(SIM);
    CUstream busy = door_stream(flags), capture = captures_itself ? busy : door_stream(CU_STREAM_NON_BLOCKING);
    a = door_malloc(40 * MiB);
    vp_sim_hold(busy);
    cu_ok(cuMemsetD8Async(a, 7, 40 * MiB, busy));
    cu_ok(door_capture_begin(capture, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_free(a));
    cr_assert(!covered());
    vp_sim_release(busy);
    while (vp_sim_step(100) > 0)
        ;
    cr_assert(covered());
    cu_ok(door_alloc(&b, 40 * MiB));
    CUstreamCaptureStatus status;
    cu_ok(cuStreamIsCapturing(capture, &status));
    cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    cu_ok(door_capture_end(capture));
    cu_ok(door_free(b));
    door_close();
}

Test(ends, busy_memory_stays_beside_a_capture)
{
    busy_memory_stays(CU_STREAM_NON_BLOCKING, false);
}

Test(ends, busy_memory_of_a_blocking_stream_stays_beside_a_capture)
{
    busy_memory_stays(CU_STREAM_DEFAULT, false);
}

Test(ends, busy_memory_stays_beside_its_own_streams_capture)
{
    busy_memory_stays(CU_STREAM_NON_BLOCKING, true);
}

/* Of a destroyed stream only a barrier tells. */
Test(ends, a_destroyed_streams_work_is_not_taken_for_over)
{
    CUdeviceptr b;
    door_open(SIM);
    CUstream gone = door_stream(CU_STREAM_NON_BLOCKING), capture = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(40 * MiB);
    uint32_t *flag;
    cu_ok(cuMemAllocHost((void **)&flag, sizeof *flag));
    *flag = 0;
    cu_ok(cuStreamWaitValue32(gone, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    cu_ok(cuMemsetD8Async(a, 7, 40 * MiB, gone));
    door_stream_destroy(gone);
    cu_ok(door_capture_begin(capture, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_free(a));
    cr_assert(!covered());
    *flag = 1;
    cu_ok(door_capture_end(capture));
    cu_ok(door_alloc(&b, 40 * MiB));
    cu_ok(cuCtxSynchronize());
    door_close();
}

/* ---- locks ---- */

/* What unwinds a cancelled thread's stack tells the sanitizer nothing of it. */
#define UNWOUND __attribute__((no_sanitize("address")))

UNWOUND static void *cancelled_inside(void *unused)
{
    (void)unused;
    if (!vp_enter())
        abort();
    pthread_cancel(pthread_self());
    pthread_testcancel();
    vp_leave();
    pthread_testcancel();
    return NULL;
}

Test(ends, a_thread_is_not_cancelled_under_the_lock)
{
    pthread_t thread;
    void *how;
    door_open(SIM);
    cr_assert(!pthread_create(&thread, NULL, cancelled_inside, NULL) && !pthread_join(thread, &how));
    cr_assert_eq(how, PTHREAD_CANCELED);
    cr_assert(!pthread_mutex_trylock(&vp_state.lock), "it has taken the lock along");
    pthread_mutex_unlock(&vp_state.lock);
    nothing_is_held_up();
    door_close();
}

UNWOUND static void *cancelled_in_a_call(void *context)
{
    CUdeviceptr ptr;
    cuCtxSetCurrent(context);
    pthread_cancel(pthread_self());
    door_alloc(&ptr, 40 * MiB);
    door_free(ptr);
    pthread_testcancel();
    return NULL;
}

/* An allocation asks the system to be left alone only when it comes to a call that goes to the kernel. */
Test(ends, a_thread_is_not_cancelled_in_a_driver_call)
{
    pthread_t thread;
    void *how;
    door_open(SIM);
    CUcontext made = door_context(0);
    cu_ok(door_free(door_malloc(MiB)));     /* what is done once, is done */
    cr_assert(!pthread_create(&thread, NULL, cancelled_in_a_call, made) && !pthread_join(thread, &how));
    cr_assert_eq(how, PTHREAD_CANCELED);
    cr_assert(!pthread_mutex_trylock(&vp_state.lock), "it has taken the lock along");
    pthread_mutex_unlock(&vp_state.lock);
    cr_assert_eq(vp_state.pools[0]->stats.live_bytes, 0, "the call did not come to its end");
    nothing_is_held_up();
    door_context_destroy(made);
    door_close();
}

UNWOUND static void *wait_for_memory(void *context)
{
    CUdeviceptr ptr;
    cuCtxSetCurrent(context);
    door_alloc(&ptr, 40 * MiB);
    pthread_testcancel();
    return NULL;
}

Test(ends, a_thread_is_not_cancelled_while_it_waits)
{
    pthread_t thread;
    void *how;
    door_open(SIM);
    CUcontext made = door_context(0);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ptr = door_malloc(40 * MiB);
    vp_sim_hold(s);
    cu_ok(cuMemsetD8Async(ptr, 1, MiB, s));
    cu_ok(door_free(ptr));
    cr_assert(!pthread_create(&thread, NULL, wait_for_memory, made));
    struct vp_context *ctx = vp_context_get(&vp_state.lines, made);
    while (!*(volatile unsigned *)&ctx->waiters)
        usleep(1000);
    pthread_cancel(thread);
    usleep(20000);
    vp_sim_release(s);
    cr_assert(!pthread_join(thread, &how) && how == PTHREAD_CANCELED);
    cr_assert_eq(ctx->waiters, 0);
    door_context_destroy(made);
    door_close();
}

UNWOUND static void *free_and_wait(void *context)
{
    cuCtxSetCurrent(context);
    CUdeviceptr ptr = door_malloc(MiB);
    door_free(ptr);
    pthread_testcancel();
    return NULL;
}

/* The driver's wait is a point of cancellation. Whoever goes there is no longer waited for by those who destroy the context. */
Test(ends, a_thread_is_not_cancelled_while_its_free_waits)
{
    pthread_t thread;
    void *how;
    setenv("VPOOL_SYNC_FREE", "1", 1);
    door_open("capacity=64M,granularity=64K,lazy=0,timeout=10000");
    CUcontext made = door_context(0);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ptr = door_malloc(MiB);
    vp_sim_hold(s);
    cu_ok(cuMemsetD8Async(ptr, 1, MiB, s));
    cr_assert(!pthread_create(&thread, NULL, free_and_wait, made));
    struct vp_context *ctx = vp_context_get(&vp_state.lines, made);
    while (!*(volatile unsigned *)&ctx->waiters)
        usleep(1000);
    usleep(20000);
    pthread_cancel(thread);
    usleep(20000);
    vp_sim_release(s);
    cr_assert(!pthread_join(thread, &how) && how == PTHREAD_CANCELED);
    cr_assert_eq(ctx->waiters, 0);
    door_context_destroy(made);
    door_close();
}

static struct vp_lane *lane;
static atomic_bool holds;

static void *hold_the_lane(void *unused)
{
    atomic_store(&lane->locked, true);
    holds = true;
    for (volatile int i = 0; i < 20000000; i++)
        ;
    atomic_store(&lane->locked, false);
    return unused;
}

/* A real-time thread that waits for one it keeps from the only processor. Needs the right to be one. */
Test(ends, a_real_time_thread_lets_others_run)
{
    pthread_t thread;
    cpu_set_t one;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_free_async(door_take(64 * KiB, s), s));
    lane = vp_container_of(vp_state.pools[0]->lanes.next, struct vp_lane, link);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    cr_assert(!sched_setaffinity(0, sizeof one, &one));
    cr_assert(!pthread_create(&thread, NULL, hold_the_lane, NULL));
    while (!holds)
        sched_yield();
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 1 }))
        cr_skip("no right to be a real-time thread");
    alarm(20);
    cu_ok(door_free_async(door_take(64 * KiB, s), s));
    sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
    pthread_join(thread, NULL);
    door_close();
}

/* ---- doors that are left without a return ---- */

/* It takes names of cuda.h back, which all above needs. */
#include "../preload/doors.h"

_Thread_local unsigned vp_door_depth;
_Thread_local const char *vp_door_outer;

bool vp_door_open(void)
{
    return true;
}

static sigjmp_buf out;

static __attribute__((noinline)) bool door(int then)
{
    bool ours = vp_door_enter();
    if (then == 1)
        siglongjmp(out, 1);
    if (then == 2)
        cr_assert(!door(0), "a door inside a door is not the program's call");
    vp_door_leave();
    return ours;
}

Test(ends, a_door_left_by_a_long_jump)
{
    cr_assert(door(0) && door(2) && door(0));
    if (!sigsetjmp(out, 1))
        door(1);
    cr_assert_eq(vp_door_depth, 1);
    cr_assert(door(0) && door(2) && vp_door_depth == 0);
}
