/* What ends in the middle: memory beside captures, cancelled threads, and doors that are left without a return. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ends_test.h"

#include "base/cancel.h"
#include "base/log.h"
#include "process/state.h"
#include "pool/stream_cache.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- out of memory beside a capture ---- */

/* Nothing can be recorded over the context; and what is idle comes back all the same, of whichever kind its stream is.
 */
Test(ends, idle_memory_comes_back_beside_a_capture) {
    door_open(SIM);
    CUstream capture = door_stream(CU_STREAM_NON_BLOCKING), one = door_stream(CU_STREAM_NON_BLOCKING),
             two = door_stream(CU_STREAM_DEFAULT);
    cu_ok(cuMemsetD8Async(door_malloc(MiB), 1, MiB, capture));
    cu_ok(door_begin_capture(capture, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 20; i++) {
        CUdeviceptr ptr = door_malloc(20 * MiB);
        cu_ok(cuMemsetD8Async(ptr, 1, 20 * MiB, i % 2 ? one : two));
        cu_ok(door_free(ptr));
    }
    cu_ok(door_end_capture(capture, NULL));
    door_close();
}

/* Has what open barriers wait for come to an end, as far as can be seen beside a capture? */
static bool covered(void) {
    bool moved = false;
    cr_assert(vp_enter());
    for (int i = 0; i < 3; i++) {
        vp_timelines_poll(&vp_state.timelines, true);
        moved |= vp_timelines_cover(&vp_state.timelines);
    }
    vp_leave();
    return moved;
}

/* And what is not idle does not: work on a stream of each kind, and on the one that captures, from before. */
static void busy_memory_stays(unsigned flags, bool captures_itself) {
    CUdeviceptr a, b;
    door_open(SIM);
    CUstream busy = door_stream(flags), capture = captures_itself ? busy : door_stream(CU_STREAM_NON_BLOCKING);
    a = door_malloc(40 * MiB);
    vp_sim_hold(busy);
    cu_ok(cuMemsetD8Async(a, 7, 40 * MiB, busy));
    cu_ok(door_begin_capture(capture, CU_STREAM_CAPTURE_MODE_RELAXED));
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
    cu_ok(door_end_capture(capture, NULL));
    cu_ok(door_free(b));
    door_close();
}

Test(ends, busy_memory_stays_beside_a_capture) {
    busy_memory_stays(CU_STREAM_NON_BLOCKING, false);
}

Test(ends, busy_memory_of_a_blocking_stream_stays_beside_a_capture) {
    busy_memory_stays(CU_STREAM_DEFAULT, false);
}

Test(ends, busy_memory_stays_beside_its_own_streams_capture) {
    busy_memory_stays(CU_STREAM_NON_BLOCKING, true);
}

/* A stream that is destroyed meanwhile leaves an event behind all that it has queued. */
Test(ends, idle_memory_comes_back_beside_a_capture_though_streams_end) {
    door_open(SIM);
    CUstream capture = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_begin_capture(capture, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 20; i++) {
        CUdeviceptr ptr = door_malloc(20 * MiB);
        CUstream ends = door_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        cu_ok(cuMemsetD8Async(ptr, 1, 20 * MiB, ends));
        cu_ok(door_stream_destroy(ends));
        cu_ok(door_free(ptr));
    }
    cu_ok(door_end_capture(capture, NULL));
    door_close();
}

/* Work of the stream on 40 MiB there, which comes when the result is 1. */
static uint32_t *hold_up(CUstream stream, CUdeviceptr at) {
    uint32_t *flag;
    cu_ok(cuMemAllocHost((void **)&flag, sizeof *flag));
    *flag = 0;
    cu_ok(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    cu_ok(cuMemsetD8Async(at, 7, 40 * MiB, stream));
    return flag;
}

static void destroyed_streams_work_is_waited_for(unsigned flags) {
    CUdeviceptr b;
    door_open(SIM);
    CUstream gone = door_stream(flags), capture = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(40 * MiB);
    uint32_t *flag = hold_up(gone, a);
    cu_ok(door_begin_capture(capture, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_stream_destroy(gone));
    cu_ok(door_free(a));
    cr_assert(!covered());
    *flag = 1;
    while (vp_sim_step(100) > 0)
        ;
    cr_assert(covered());
    cu_ok(door_alloc(&b, 40 * MiB));
    cu_ok(door_end_capture(capture, NULL));
    door_close();
}

Test(ends, a_stream_destroyed_beside_a_capture_is_waited_for) {
    destroyed_streams_work_is_waited_for(CU_STREAM_NON_BLOCKING);
}

Test(ends, a_blocking_stream_destroyed_beside_a_capture_is_waited_for) {
    destroyed_streams_work_is_waited_for(CU_STREAM_DEFAULT);
}

/* One that has joined the capture gets none, and what it had queued before only a barrier tells. */
Test(ends, the_work_of_a_stream_destroyed_in_a_capture_is_not_taken_for_over) {
    CUdeviceptr b;
    CUevent event;
    door_open(SIM);
    CUstream gone = door_stream(CU_STREAM_NON_BLOCKING), capture = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(40 * MiB);
    uint32_t *flag = hold_up(gone, a);
    cu_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    cu_ok(door_begin_capture(capture, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(cuEventRecord(event, capture));
    cu_ok(cuStreamWaitEvent(gone, event, 0));
    cu_ok(door_stream_destroy(gone));
    cu_ok(door_free(a));
    cr_assert(!covered());
    *flag = 1;
    cr_assert_eq(door_end_capture(capture, NULL), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    cu_ok(door_alloc(&b, 40 * MiB));
    cu_ok(cuCtxSynchronize());
    door_close();
}

/* Of one that was destroyed before, only a barrier tells. */
Test(ends, a_destroyed_streams_work_is_not_taken_for_over) {
    CUdeviceptr b;
    door_open(SIM);
    CUstream gone = door_stream(CU_STREAM_NON_BLOCKING), capture = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(40 * MiB);
    uint32_t *flag = hold_up(gone, a);
    cu_ok(door_stream_destroy(gone));
    cu_ok(door_begin_capture(capture, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_free(a));
    cr_assert(!covered());
    *flag = 1;
    cu_ok(door_end_capture(capture, NULL));
    cu_ok(door_alloc(&b, 40 * MiB));
    cu_ok(cuCtxSynchronize());
    door_close();
}

/* ---- locks ---- */

/* What unwinds a cancelled thread's stack tells the sanitizer nothing of it. */
#define UNWOUND __attribute__((no_sanitize("address")))

UNWOUND static void *cancelled_inside(void *unused) {
    (void)unused;
    if (!vp_enter())
        abort();
    pthread_cancel(pthread_self());
    pthread_testcancel();
    vp_leave();
    pthread_testcancel();
    return NULL;
}

Test(ends, a_thread_is_not_cancelled_under_the_lock) {
    pthread_t thread;
    void *how;
    door_open(SIM);
    cr_assert(!pthread_create(&thread, NULL, cancelled_inside, NULL) && !pthread_join(thread, &how));
    cr_assert_eq(how, PTHREAD_CANCELED);
    cr_assert(vp_lock_try(&vp_library_lock), "it has taken the lock along");
    vp_lock_release(&vp_library_lock);
    nothing_is_held_up();
    door_close();
}

/* At any instruction: the short way in, too, which leaves the thread's state as it is. */
UNWOUND static void *cancelled_anywhere_inside(void *unused) {
    (void)unused;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    if (!vp_enter_briefly())
        abort();
    pthread_cancel(pthread_self());
    vp_leave();
    for (;;)
        sched_yield(); /* its own type holds again, and no point of cancellation comes */
    return NULL;
}

Test(ends, a_thread_that_is_cancelled_anywhere_is_not_under_the_lock) {
    pthread_t thread;
    void *how;
    door_open(SIM);
    cr_assert(!pthread_create(&thread, NULL, cancelled_anywhere_inside, NULL) && !pthread_join(thread, &how));
    cr_assert_eq(how, PTHREAD_CANCELED);
    cr_assert(vp_lock_try(&vp_library_lock), "it has taken the lock along");
    vp_lock_release(&vp_library_lock);
    nothing_is_held_up();
    door_close();
}

static atomic_int answered;

static void enters(int number) {
    (void)number;
    answered = vp_enter() ? 1 : 2;
}

static void *enters_briefly(void *begun) {
    *(atomic_bool *)begun = true;
    if (vp_enter_briefly())
        vp_leave();
    return NULL;
}

/* It does not take the lock that its thread has, or is about to have. */
Test(ends, a_signals_handler_is_passed_on_under_the_lock) {
    pthread_t thread;
    atomic_bool begun = false;
    door_open(SIM);
    signal(SIGUSR1, enters);
    vp_lock_take(&vp_library_lock);
    cr_assert(!pthread_create(&thread, NULL, enters_briefly, &begun));
    while (!begun)
        sched_yield();
    usleep(20000);
    pthread_kill(thread, SIGUSR1);
    for (int i = 0; i < 200 && !answered; i++)
        usleep(5000);
    vp_lock_release(&vp_library_lock);
    cr_assert_eq(answered, 2, "it waits for the lock");
    cr_assert(!pthread_join(thread, NULL));
    door_close();
}

UNWOUND static void *cancelled_in_a_call(void *context) {
    CUdeviceptr ptr;
    cuCtxSetCurrent(context);
    pthread_cancel(pthread_self());
    door_alloc(&ptr, 40 * MiB);
    door_free(ptr);
    pthread_testcancel();
    return NULL;
}

/* An allocation asks the system to be left alone only when it comes to a call that goes to the kernel. */
Test(ends, a_thread_is_not_cancelled_in_a_driver_call) {
    pthread_t thread;
    void *how;
    door_open(SIM);
    CUcontext made = door_context(0);
    cu_ok(door_free(door_malloc(MiB))); /* what is done once, is done */
    cr_assert(!pthread_create(&thread, NULL, cancelled_in_a_call, made) && !pthread_join(thread, &how));
    cr_assert_eq(how, PTHREAD_CANCELED);
    cr_assert(vp_lock_try(&vp_library_lock), "it has taken the lock along");
    vp_lock_release(&vp_library_lock);
    cr_assert_eq(vp_state.pools[0]->mem.stats.live_bytes, 0, "the call did not come to its end");
    nothing_is_held_up();
    door_context_destroy(made);
    door_close();
}

UNWOUND static void *cancelled_in_a_message(void *ended) {
    vp_cancel_arm(); /* as a short call does, before it takes the lock */
    pthread_cancel(pthread_self());
    vp_log(VP_LOG_WARN, "a message under the lock, by a thread that is to be cancelled");
    *(bool *)ended = true;
    vp_cancel_release();
    pthread_testcancel();
    return NULL;
}

Test(ends, a_thread_is_not_cancelled_in_a_message) {
    pthread_t thread;
    void *how;
    bool ended = false;
    cr_assert(!pthread_create(&thread, NULL, cancelled_in_a_message, &ended) && !pthread_join(thread, &how));
    cr_assert_eq(how, PTHREAD_CANCELED);
    cr_assert(ended);
}

UNWOUND static void *wait_for_memory(void *context) {
    CUdeviceptr ptr;
    cuCtxSetCurrent(context);
    door_alloc(&ptr, 40 * MiB);
    pthread_testcancel();
    return NULL;
}

Test(ends, a_thread_is_not_cancelled_while_it_waits) {
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
    struct vp_context *ctx = vp_context_get(&vp_state.timelines, made);
    while (!*(volatile unsigned *)&ctx->waiters)
        usleep(1000);
    pthread_cancel(thread);
    usleep(20000);
    vp_sim_release(s);
    cr_assert(!pthread_join(thread, &how) && how == PTHREAD_CANCELED);
    cr_assert_eq(ctx->waiters, 0);
    cu_ok(door_context_destroy(made));
    door_close();
}

UNWOUND static void *free_and_wait(void *context) {
    cuCtxSetCurrent(context);
    CUdeviceptr ptr = door_malloc(MiB);
    door_free(ptr);
    pthread_testcancel();
    return NULL;
}

/* The driver's wait is a point of cancellation. Whoever goes there is no longer waited for by those who destroy the
 * context. */
Test(ends, a_thread_is_not_cancelled_while_its_free_waits) {
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
    struct vp_context *ctx = vp_context_get(&vp_state.timelines, made);
    while (!*(volatile unsigned *)&ctx->waiters)
        usleep(1000);
    usleep(20000);
    pthread_cancel(thread);
    usleep(20000);
    vp_sim_release(s);
    cr_assert(!pthread_join(thread, &how) && how == PTHREAD_CANCELED);
    cr_assert_eq(ctx->waiters, 0);
    cu_ok(door_context_destroy(made));
    door_close();
}

static struct vp_stream_cache *cache;
static atomic_bool holds;

static void *hold_the_lane(void *unused) {
    atomic_store(&cache->lock.taken, true);
    holds = true;
    for (volatile int i = 0; i < 20000000; i++)
        ;
    atomic_store(&cache->lock.taken, false);
    return unused;
}

/* A real-time thread that waits for one it keeps from the only processor. Needs the right to be one. */
Test(ends, a_real_time_thread_lets_others_run) {
    pthread_t thread;
    cpu_set_t one;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_free_async(door_take(64 * KiB, s), s));
    cache = vp_container_of(vp_state.pools[0]->caches.used.next, struct vp_stream_cache, link);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    cr_assert(!sched_setaffinity(0, sizeof one, &one));
    cr_assert(!pthread_create(&thread, NULL, hold_the_lane, NULL));
    while (!holds)
        sched_yield();
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}))
        cr_skip("no right to be a real-time thread");
    alarm(20);
    cu_ok(door_free_async(door_take(64 * KiB, s), s));
    sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0});
    pthread_join(thread, NULL);
    door_close();
}

/* ---- doors that are left without a return ---- */

/* It takes names of cuda.h back, which all above needs. */
#include "../../preload/doors.h"

_Thread_local unsigned vp_door_depth;
_Thread_local const char *vp_door_outer;

bool vp_door_open(void) {
    return true;
}

static sigjmp_buf out;

static __attribute__((noinline)) bool door(int then) {
    bool ours = vp_door_enter();
    if (then == 1)
        siglongjmp(out, 1);
    if (then == 2)
        cr_assert(!door(0), "a door inside a door is not the program's call");
    vp_door_leave();
    return ours;
}

Test(ends, a_door_left_by_a_long_jump) {
    cr_assert(door(0) && door(2) && door(0));
    if (!sigsetjmp(out, 1))
        door(1);
    cr_assert_eq(vp_door_depth, 1);
    cr_assert(door(0) && door(2) && vp_door_depth == 0);
}
