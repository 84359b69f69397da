/* The simulated driver with a modelled clock: when work is over, and what moves the clock. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <criterion/criterion.h>
#include <string.h>

#define OK(call) cr_assert_eq(call, CUDA_SUCCESS, "%s failed", #call)
#define DONE(event) (cuEventQuery(event) == CUDA_SUCCESS)

/* Longer than the driver calls of a test together: 140 ns for a query, 170 for a record. */
enum { MS = 1000000 };

static CUcontext context;
static CUstream a, b, blocking;
static CUevent first, second;

static void start(void) {
    vp_sim_configure("backing=ledger,lazy=100,seed=7");
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&first, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&second, CU_EVENT_DEFAULT));
    vp_sim_time_start();
}

Test(sim_clock, a_kernel_is_over_at_its_time, .init = start) {
    OK(vp_sim_kernel(a, 10 * MS));
    OK(cuEventRecord(first, a));
    OK(vp_sim_kernel(a, 10 * MS));
    OK(cuEventRecord(second, a));
    cr_expect(!DONE(first));
    vp_sim_advance(10 * MS);
    cr_expect(DONE(first));
    cr_expect(!DONE(second));
    vp_sim_advance(10 * MS);
    cr_expect(DONE(second));
    cr_expect_eq(cuStreamQuery(a), CUDA_SUCCESS);
    float ms = 0;
    OK(cuEventElapsedTime(&ms, first, second));
    cr_expect_float_eq(ms, 10, 0.001f);
}

Test(sim_clock, a_stream_follows_another, .init = start) {
    OK(vp_sim_kernel(a, 10 * MS));
    OK(vp_sim_follow(b, a));
    OK(vp_sim_kernel(b, 10 * MS));
    vp_sim_advance(15 * MS);
    cr_expect_eq(cuStreamQuery(a), CUDA_SUCCESS);
    cr_expect_eq(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    vp_sim_advance(5 * MS);
    cr_expect_eq(cuStreamQuery(b), CUDA_SUCCESS);
    OK(vp_sim_follow(b, a));
    cr_expect_eq(cuStreamQuery(b), CUDA_SUCCESS);
}

Test(sim_clock, streams_share_the_device, .init = start) {
    OK(vp_sim_kernel(a, 10 * MS));
    OK(vp_sim_kernel(b, 15 * MS));
    OK(cuEventRecord(first, a));
    OK(cuEventRecord(second, b));
    uint64_t began = vp_sim_now();
    cr_expect(began < MS);
    /* Half of it each until the first is through; what the calls took is gone already. */
    cr_expect_eq(vp_sim_next_completion(), 20 * MS);
    cr_expect_eq(vp_sim_idle_at(), 25 * MS);
    vp_sim_advance(20 * MS);
    cr_expect_eq(cuStreamQuery(a), CUDA_SUCCESS);
    cr_expect_eq(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    cr_expect_eq(vp_sim_next_completion(), 25 * MS);
    /* What is queued on an idle stream begins now, and slows the other down. */
    uint64_t now = vp_sim_now();
    OK(vp_sim_kernel(a, 20 * MS));
    cr_expect_eq(vp_sim_idle_at(), 45 * MS);
    cr_expect_eq(vp_sim_next_completion(), now + 2 * (25 * MS - now));
    OK(cuEventSynchronize(second));
    cr_expect_eq(vp_sim_now(), now + 2 * (25 * MS - now));
    float ms = 0;
    OK(cuEventElapsedTime(&ms, first, second));
    cr_expect_float_eq(ms, 10, 0.01f);
}

/* Streams and times that divide by nothing: no time of the device is lost or made. */
Test(sim_clock, the_device_is_never_idle_while_a_stream_can_run, .init = start) {
    CUstream streams[7];
    uint64_t all = 0;
    for (int i = 0; i < 7; i++) {
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        for (int j = 0; j <= i; j++) {
            OK(vp_sim_kernel(streams[i], 1000003u * (unsigned)(i + j + 1) + 7));
            all += 1000003u * (unsigned)(i + j + 1) + 7;
        }
    }
    OK(cuEventRecord(first, streams[6]));
    for (int i = 0; i < 6; i += 2)
        OK(cuStreamWaitEvent(streams[i], first, 0));
    for (int i = 0; i < 6; i += 2) {
        OK(vp_sim_kernel(streams[i], 999983));
        all += 999983;
    }
    for (int i = 0; i < 100; i++)
        vp_sim_advance(10007);
    cr_expect_eq(vp_sim_idle_at(), all);
    OK(cuCtxSynchronize());
    cr_expect_eq(vp_sim_now(), all, "%llu, not %llu", (unsigned long long)vp_sim_now(), (unsigned long long)all);
    cr_expect_eq(vp_sim_pending(), 0u);
}

Test(sim_clock, a_stream_waits_for_an_event, .init = start) {
    OK(vp_sim_kernel(a, 10 * MS));
    OK(cuEventRecord(first, a));
    OK(vp_sim_kernel(a, 90 * MS));
    OK(cuStreamWaitEvent(b, first, 0));
    OK(vp_sim_kernel(b, 5 * MS));
    OK(cuEventRecord(second, b));
    OK(cuEventSynchronize(first));
    cr_expect_eq(vp_sim_now(), 10 * MS, "alone until then");
    OK(cuEventSynchronize(second));
    cr_expect_eq(vp_sim_now(), 20 * MS, "and then with half of it: %llu", (unsigned long long)vp_sim_now());
    cr_expect_eq(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(a));
    cr_expect_eq(vp_sim_now(), 105 * MS);
}

/* A wait is for the record that was the last when it was queued. */
Test(sim_clock, a_later_record_is_not_waited_for, .init = start) {
    OK(vp_sim_kernel(a, 10 * MS));
    OK(cuEventRecord(first, a));
    OK(cuStreamWaitEvent(b, first, 0));
    OK(vp_sim_kernel(a, 10 * MS));
    OK(cuEventRecord(first, a));
    vp_sim_advance(10 * MS);
    cr_expect_eq(cuStreamQuery(b), CUDA_SUCCESS);
    cr_expect(!DONE(first));
    vp_sim_advance(10 * MS);
    cr_expect(DONE(first));
}

Test(sim_clock, a_barrier_is_behind_every_stream, .init = start) {
    OK(vp_sim_kernel(a, 10 * MS));
    OK(vp_sim_kernel(b, 20 * MS));
    OK(cuCtxRecordEvent(context, first));
    OK(vp_sim_kernel(a, 30 * MS));
    OK(cuStreamWaitEvent(blocking, first, 0));
    OK(vp_sim_kernel(blocking, 10 * MS));
    OK(cuEventRecord(second, blocking));
    /* The first kernel of one is over at 20 ms; its second then has half of the device until the other's is, at 40. */
    vp_sim_advance(39 * MS);
    cr_expect(!DONE(first));
    vp_sim_advance(MS);
    cr_expect(DONE(first), "what came later is not waited for");
    /* Then the last one has half of it for its 10 ms. */
    OK(cuEventSynchronize(second));
    cr_expect_eq(vp_sim_now(), 60 * MS);
}

Test(sim_clock, the_legacy_stream_is_behind_blocking_ones_alone, .init = start) {
    OK(vp_sim_kernel(a, 50 * MS));
    OK(vp_sim_kernel(blocking, 10 * MS));
    OK(vp_sim_kernel(NULL, 10 * MS));
    OK(cuEventRecord(first, NULL));
    OK(vp_sim_kernel(blocking, 10 * MS));
    OK(cuEventRecord(second, blocking));
    /* One of them at a time beside the first, with half of the device each. */
    OK(cuEventSynchronize(first));
    cr_expect_eq(vp_sim_now(), 40 * MS);
    OK(cuStreamSynchronize(blocking));
    cr_expect_eq(vp_sim_now(), 60 * MS);
    OK(cuCtxSynchronize());
    cr_expect_eq(vp_sim_now(), 80 * MS);
    cr_expect_eq(vp_sim_next_completion(), UINT64_MAX);
}

Test(sim_clock, driver_calls_take_what_they_cost, .init = start) {
    uint64_t cost = vp_sim_cost_ns();
    OK(cuEventRecord(first, a));
    cr_expect(DONE(first));
    cr_expect_gt(vp_sim_now(), 0u);
    cr_expect_eq(vp_sim_now(), vp_sim_cost_ns() - cost);
}

Test(sim_clock, a_held_stream_stands_still, .init = start) {
    OK(vp_sim_kernel(a, 10 * MS));
    OK(vp_sim_kernel(b, 40 * MS));
    OK(cuEventRecord(first, a));
    vp_sim_advance(10 * MS);
    uint64_t left = 10 * MS - vp_sim_now() / 2;
    vp_sim_hold(a);
    vp_sim_advance(20 * MS);
    cr_expect(!DONE(first));
    vp_sim_release(a);
    uint64_t released = vp_sim_now();
    OK(cuEventSynchronize(first));
    cr_expect_leq(vp_sim_now() - (released + 2 * left - 1), 1u, "half of the device, as before");
    OK(cuStreamSynchronize(b));
    cr_expect_eq(vp_sim_now(), 50 * MS);
}

Test(sim_clock, it_ends_with_a_reset, .init = start) {
    vp_sim_advance(MS);
    vp_sim_reset();
    cr_expect_eq(vp_sim_now(), 0u);
    cr_expect_eq(vp_sim_kernel(a, MS), CUDA_ERROR_NOT_INITIALIZED);
}
