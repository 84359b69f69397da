/* Lines, points and conditions: what has to be over before memory changes hands, asked of the simulated
 * driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline_test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

/* ---- points ---- */

Test(timeline, memory_returns_to_its_own_stream_at_once) {
    fx_open(SIM);
    fx_busy(1);
    struct vp_fence c = freed(timeline(1), false);
    cr_assert(vp_fence_ready(&c, timeline(1)));
    cr_assert(!vp_fence_ready(&c, timeline(2)) && !vp_fence_ready(&c, NULL));
    vp_timelines_poll(&fx.timelines, false);
    cr_assert_eq(records(), 0, "as long as nobody else asks there is no event");
    vp_fence_clear(&fx.timelines, &c);
    fx_close();
}

Test(timeline, an_own_point_may_be_waited_for) {
    fx_open(SIM);
    fx_busy(1);
    struct vp_fence c = freed(timeline(1), true);
    cr_assert(c.first.waitable && records() == 1);
    cr_assert(!vp_fence_ready(&c, timeline(2)) && vp_fence_waitable(&c, timeline(2), true));
    cr_assert(!vp_fence_waitable(&c, NULL, false), "cudaMalloc makes no stream wait");
    cr_assert(!over(&c));
    fx_idle(1);
    cr_assert(over(&c) && vp_fence_ready(&c, NULL));
    fx_close();
}

Test(timeline, a_late_point_may_only_be_asked) {
    fx_open(SIM);
    fx_busy(1);
    struct vp_fence c = freed(timeline(1), false);
    cr_assert(!c.first.waitable && !vp_fence_waitable(&c, timeline(2), false));
    cr_assert(!over(&c) && records() == 1);
    cr_assert(!vp_fence_waitable(&c, timeline(2), false), "the event that came later covers it, and is no target");
    cr_assert_eq(vp_fence_wait(&fx.timelines, &c, timeline(2)), -EBUSY);
    cr_assert_eq(vp_sim_calls("cuStreamWaitEvent"), 0);
    cr_assert_null(vp_fence_event(&c));
    fx_idle(1);
    cr_assert(over(&c));
    fx_close();
}

Test(timeline, late_points_share_an_event) {
    struct vp_fence c[5];
    fx_open(SIM);
    fx_busy(1);
    for (int i = 0; i < 5; i++)
        c[i] = freed(timeline(1), false);
    vp_timelines_poll(&fx.timelines, true);
    vp_timelines_poll(&fx.timelines, true);
    cr_assert_eq(records(), 1);
    fx_idle(1);
    for (int i = 0; i < 5; i++)
        cr_assert(over(&c[i]));
    fx_close();
}

/* An event that cannot be had makes the point a late one, never a met one. */
Test(timeline, a_refused_event_leaves_the_point_open) {
    const char *const calls[] = {"cuEventCreate", "cuEventRecord"};
    for (int i = 0; i < 2; i++) {
        fx_open(SIM);
        fx_busy(1);
        vp_sim_fail(calls[i], 1, CUDA_ERROR_OUT_OF_MEMORY);
        struct vp_fence c = freed(timeline(1), true);
        cr_assert(!c.first.waitable && !over(&c));
        fx_idle(1);
        cr_assert(over(&c));
        fx_close();
    }
}

Test(timeline, a_failed_query_is_an_error_and_not_done) {
    fx_open(SIM);
    fx_busy(1);
    struct vp_fence c = freed(timeline(1), true);
    vp_sim_fail("cuEventQuery", 1, CUDA_ERROR_LAUNCH_FAILED);
    cr_assert(!over(&c));
    cr_assert_eq(fx.context->error, CUDA_ERROR_LAUNCH_FAILED);
    fx_idle(1);
    cr_assert(over(&c));
    fx_close();
}

Test(timeline, events_are_used_again) {
    fx_open(SIM);
    for (int i = 0; i < 1000; i++) {
        struct vp_fence c = freed(timeline(1 + i % 2), true);
        cr_assert(over(&c));
    }
    cr_assert_leq(vp_sim_calls("cuEventCreate"), 4);
    fx_close();
}

/* ---- conditions ---- */

/* What the bytes wait for goes where they go, or they wait for more. */
Test(timeline, a_union_waits_for_all_though_memory_ran_out) {
    struct rlimit limit, none;
    struct vp_fence both = {0}, copy = {0};
    fx_open(SIM);
    for (int s = 1; s <= 2; s++) {
        fx_busy(s);
        cr_assert(!vp_fence_add_free(&fx.timelines, &both, timeline(s), true));
    }
    while (fx.timelines.point_slab.spare)
        vp_slab_alloc(&fx.timelines.point_slab);
    cr_assert(!getrlimit(RLIMIT_AS, &limit));
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    cr_assert(!setrlimit(RLIMIT_AS, &none));
    vp_fence_unite(&fx.timelines, &copy, &both);
    setrlimit(RLIMIT_AS, &limit);
    cr_assert(!vp_fence_ready(&copy, timeline(1)) && !vp_fence_ready(&copy, timeline(2)));
    fx_idle(1);
    cr_assert(!over(&copy));
    fx_idle(2);
    cr_assert(over(&both));
    vp_fence_clear(&fx.timelines, &copy);
    fx_close();
}

Test(timeline, the_union_of_a_line_is_its_later_point) {
    fx_open(SIM);
    fx_busy(1);
    struct vp_fence first = freed(timeline(1), true), second = freed(timeline(1), true), both = {0};
    cr_assert(!vp_fence_same(&first, &second));
    vp_fence_unite(&fx.timelines, &both, &first);
    cr_assert(vp_fence_same(&both, &first) && both.first.waitable);
    vp_fence_unite(&fx.timelines, &both, &first);
    cr_assert(vp_fence_same(&both, &first), "the same point twice is itself");
    vp_fence_unite(&fx.timelines, &both, &second);
    cr_assert(both.first.seq == second.first.seq && !both.first.next);
    cr_assert(!vp_fence_waitable(&both, timeline(2), false), "for the bytes of the first, the second's event is late");
    vp_fence_clear(&fx.timelines, &both);
    vp_fence_unite(&fx.timelines, &both, &second);
    vp_fence_unite(&fx.timelines, &both, &first);
    cr_assert(both.first.seq == second.first.seq && !vp_fence_waitable(&both, timeline(2), false),
              "whatever the order");
    fx_idle(1);
    cr_assert(over(&both) && over(&first) && over(&second));
    fx_close();
}

Test(timeline, the_union_of_lines_needs_them_all) {
    fx_open(SIM);
    struct vp_fence c = {0};
    for (int i = 1; i <= 3; i++) {
        fx_busy(i);
        cr_assert(!vp_fence_add_free(&fx.timelines, &c, timeline(i), true));
    }
    cr_assert(vp_fence_waitable(&c, timeline(4), true) && !vp_fence_ready(&c, timeline(1)));
    fx_idle(2);
    cr_assert(!over(&c));
    fx_idle(1);
    cr_assert(!over(&c) && vp_fence_ready(&c, timeline(3)), "the third alone is left");
    fx_idle(3);
    cr_assert(over(&c) && !c.first.timeline);
    cr_assert_eq(fx.timelines.point_slab.spare, fx.timelines.point_slab.total, "no point is lost");
    fx_close();
}

Test(timeline, a_wait_orders_the_streams_and_is_remembered) {
    fx_open(SIM);
    cu_ok(cuMemsetD8(fx.scratch, 0, 2));
    vp_sim_hold(fx.stream[1]);
    cu_ok(cuMemsetD8Async(fx.scratch, 1, 1, fx.stream[1]));
    struct vp_fence c = freed(timeline(1), true);
    cr_assert(!vp_fence_wait(&fx.timelines, &c, timeline(2)));
    cr_assert(!vp_fence_ready(&c, timeline(2)), "what a cache remembers is no promise to build on");
    cr_assert(!vp_fence_wait(&fx.timelines, &c, timeline(2)));
    cr_assert_eq(vp_sim_calls("cuStreamWaitEvent"), 1);
    struct vp_fence later = freed(timeline(1), true);
    cr_assert(!vp_fence_ready(&later, timeline(2)), "a later point is another");
    cu_ok(cuMemcpyDtoDAsync(fx.scratch + 1, fx.scratch, 1, fx.stream[2]));
    vp_sim_step(100);
    vp_sim_release(fx.stream[1]);
    cu_ok(cuStreamSynchronize(fx.stream[2]));
    unsigned char bytes[2];
    cu_ok(cuMemcpyDtoH(bytes, fx.scratch, 2));
    cr_assert_eq(bytes[1], 1, "the copy came after the memset");
    vp_fence_clear(&fx.timelines, &c);
    vp_fence_clear(&fx.timelines, &later);
    fx_close();
}

/* What falls out of the small cache is waited for once more: never taken for granted. */
Test(timeline, forgotten_waits_are_repeated) {
    enum { MANY = 2 * VP_SEEN };
    CUstream stream[MANY];
    struct vp_fence c[MANY];
    fx_open(SIM);
    for (int i = 0; i < MANY; i++) {
        cu_ok(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        vp_sim_hold(stream[i]);
        c[i] = freed(timeline_of(stream[i]), true);
        cr_assert(!vp_fence_wait(&fx.timelines, &c[i], timeline(2)));
    }
    cr_assert(!vp_fence_wait(&fx.timelines, &c[MANY - 1], timeline(2)));
    cr_assert_eq(vp_sim_calls("cuStreamWaitEvent"), MANY);
    cr_assert(!vp_fence_wait(&fx.timelines, &c[0], timeline(2)));
    cr_assert_eq(vp_sim_calls("cuStreamWaitEvent"), MANY + 1);
    for (int i = 0; i < MANY; i++) {
        vp_fence_clear(&fx.timelines, &c[i]);
        vp_sim_release(stream[i]);
        cu_ok(cuStreamDestroy(stream[i]));
    }
    fx_close();
}

Test(timeline, behind_a_host_function_nobody_waits_early) {
    fx_open(SIM);
    fx_busy(1);
    struct vp_fence before = freed(timeline(1), true);
    vp_timeline_host_func(&fx.timelines, timeline(1));
    struct vp_fence behind = freed(timeline(1), true);
    cr_assert(vp_fence_waitable(&before, timeline(2), true));
    cr_assert(!vp_fence_waitable(&behind, timeline(2), true));
    cr_assert(vp_fence_waitable(&behind, timeline(2), false), "only when growing has failed");
    vp_timeline_host_func(&fx.timelines, timeline(1));
    cr_assert(!vp_fence_waitable(&behind, timeline(2), true), "the first one is not over");
    fx_idle(1);
    cr_assert(over(&before) && over(&behind));
    fx_busy(1);
    struct vp_fence later = freed(timeline(1), true);
    fx_idle(1);
    cr_assert(over(&later));
    fx_close();
}

/* F waits for an event behind a host function of H: what is freed on F, or by a cudaFree, hangs on it just as well. */
Test(timeline, behind_a_host_function_of_another_stream_nobody_waits_early) {
    fx_open(SIM);
    fx_busy(1);
    vp_timeline_host_func(&fx.timelines, timeline(3));
    struct vp_fence behind = freed(timeline(1), true), barrier = freed_by_all(true);
    cr_assert(!vp_fence_waitable(&behind, timeline(2), true) && !vp_fence_waitable(&barrier, timeline(2), true));
    cr_assert(vp_fence_waitable(&behind, timeline(2), false));
    vp_timelines_poll(&fx.timelines, true);
    struct vp_fence later = freed(timeline(1), true);
    cr_assert(vp_fence_waitable(&later, timeline(2), true), "it is over");
    fx_idle(1);
    cr_assert(over(&behind) && over(&barrier) && over(&later));
    fx_close();
}

/* ---- barriers ---- */

Test(timeline, a_barrier_covers_every_stream_and_holds_none_up) {
    CUstream blocking;
    fx_open(SIM);
    cu_ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    fx_busy(1);
    vp_sim_hold(blocking);
    cu_ok(cuMemsetD8Async(fx.scratch, 0, 1, blocking));
    struct vp_fence c = freed_by_all(true);
    cr_assert(c.first.waitable && barriers() == 1 && records() == 0);
    cr_assert(vp_fence_host_waitable(&c));
    cu_ok(cuMemsetD8Async(fx.scratch + 1, 0, 1, fx.stream[2]));
    cu_ok(cuStreamSynchronize(fx.stream[2]));
    fx_idle(1);
    cr_assert(!over(&c));
    vp_sim_release(blocking);
    cu_ok(cuStreamSynchronize(blocking));
    cr_assert(over(&c));
    cu_ok(cuStreamDestroy(blocking));
    fx_close();
}

Test(timeline, the_host_waits_for_own_barriers_alone) {
    fx_open(SIM);
    fx_busy(1);
    struct vp_fence own = freed_by_all(true), late = freed_by_all(false), stream = freed(timeline(1), true);
    cr_assert(vp_fence_host_waitable(&own) && vp_fence_event(&own));
    cr_assert(!vp_fence_host_waitable(&late) && !vp_fence_host_waitable(&stream));
    fx_idle(1);
    cr_assert(over(&own) && over(&late) && over(&stream));
    fx_close();
}

/* ---- which stream ---- */

Test(timeline, zero_is_the_legacy_stream) {
    fx_open(SIM);
    cr_assert_eq(timeline_of(0), timeline_of(CU_STREAM_LEGACY));
    cr_assert_neq(timeline_of(0), timeline_of(CU_STREAM_PER_THREAD));
    cr_assert_eq(timeline_of(CU_STREAM_PER_THREAD), timeline_of(CU_STREAM_PER_THREAD));
    fx_close();
}

struct other {
    pthread_barrier_t step;
    struct vp_fence fence;
    struct vp_timeline *timeline;
};

static void *free_on_own_stream(void *arg) {
    struct other *o = arg;
    cu_ok(cuCtxSetCurrent(fx.handle));
    vp_sim_hold(CU_STREAM_PER_THREAD);
    cu_ok(cuMemsetD8Async(fx.scratch, 0, 1, CU_STREAM_PER_THREAD));
    o->timeline = timeline_of(CU_STREAM_PER_THREAD);
    o->fence = freed(o->timeline, false);
    pthread_barrier_wait(&o->step);
    pthread_barrier_wait(&o->step);
    vp_sim_release(CU_STREAM_PER_THREAD);
    cu_ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

/* CU_STREAM_PER_THREAD names another stream in each thread: an event recorded by it here would tell of this
 * thread's work. */
Test(timeline, another_threads_default_stream_is_reached_by_a_barrier) {
    struct other o;
    pthread_t thread;
    fx_open(SIM);
    pthread_barrier_init(&o.step, NULL, 2);
    cr_assert(!pthread_create(&thread, NULL, free_on_own_stream, &o));
    pthread_barrier_wait(&o.step);
    cr_assert_neq(timeline_of(CU_STREAM_PER_THREAD), o.timeline);
    cr_assert(!vp_fence_ready(&o.fence, timeline_of(CU_STREAM_PER_THREAD)));
    cr_assert(!over(&o.fence));
    cr_assert(barriers() == 1 && records() == 0);
    pthread_barrier_wait(&o.step);
    pthread_join(thread, NULL);
    cr_assert(over(&o.fence));
    pthread_barrier_destroy(&o.step);
    fx_close();
}

/* Work of stream `a` that waits for the held stream `b`: pending even after `a` is destroyed. */
static void pending_behind(CUstream a, int b) {
    CUevent event;
    cu_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    fx_busy(b);
    cu_ok(cuEventRecord(event, fx.stream[b]));
    cu_ok(cuStreamWaitEvent(a, event, 0));
    cu_ok(cuMemsetD8Async(fx.scratch, 0, 1, a));
    cu_ok(cuEventDestroy(event));
}

Test(timeline, a_destroyed_streams_open_points_get_their_event) {
    CUstream a, again;
    fx_open(SIM);
    cu_ok(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    struct vp_timeline *old = timeline_of(a);
    pending_behind(a, 2);
    struct vp_fence c = freed(old, false);
    vp_timeline_destroying(&fx.timelines, old);
    cr_assert_eq(records(), 2, "the test's own, and that of the open point");
    cu_ok(cuStreamDestroy(a));
    cu_ok(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    cr_assert_eq(again, a, "the handle is given out again");
    struct vp_timeline *fresh = timeline_of(again);
    cr_assert(fresh != old && fresh->id != old->id && !vp_fence_ready(&c, fresh));
    cr_assert(!over(&c));
    fx_idle(2);
    cr_assert(over(&c));
    vp_timeline_destroying(&fx.timelines, fresh);
    cu_ok(cuStreamDestroy(again));
    fx_close();
}

static int forgotten;

static void count_forgotten(void *user, struct vp_timeline *gone) {
    (void)user;
    (void)gone;
    forgotten++;
}

Test(timeline, lines_of_ended_streams_are_used_again) {
    enum { MANY = 5000 };
    CUstream stream;
    fx_open(SIM);
    fx.timelines.forget = count_forgotten;
    for (int i = 0; i < MANY; i++) {
        cu_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        struct vp_fence c = freed(timeline_of(stream), i % 2);
        vp_timeline_destroying(&fx.timelines, timeline_of(stream));
        cu_ok(cuStreamDestroy(stream));
        cr_assert(over(&c));
    }
    vp_timelines_poll(&fx.timelines, true);
    cr_assert_eq(forgotten, MANY);
    cr_assert_lt(fx.timelines.timeline_slab.total, 2000);
    fx_close();
}
