/* The simulated driver with a modelled clock: when work is over, and what moves the clock. */
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

static void start(void)
{
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

Test(sim_clock, a_kernel_is_over_at_its_time, .init = start)
{
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

Test(sim_clock, streams_run_beside_each_other, .init = start)
{
    OK(vp_sim_kernel(a, 10 * MS));
    OK(vp_sim_kernel(b, 15 * MS));
    OK(cuEventRecord(first, b));
    cr_expect_eq(vp_sim_next_completion(), 10 * MS);
    cr_expect_eq(vp_sim_idle_at(), 15 * MS);
    vp_sim_advance(11 * MS);
    cr_expect_eq(cuStreamQuery(a), CUDA_SUCCESS);
    cr_expect_eq(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    /* What is queued on an idle stream begins now. */
    uint64_t now = vp_sim_now();
    OK(vp_sim_kernel(a, 20 * MS));
    cr_expect_eq(vp_sim_idle_at(), now + 20 * MS);
}

Test(sim_clock, a_stream_waits_for_an_event, .init = start)
{
    OK(vp_sim_kernel(a, 10 * MS));
    OK(cuEventRecord(first, a));
    OK(vp_sim_kernel(a, 90 * MS));
    OK(cuStreamWaitEvent(b, first, 0));
    OK(vp_sim_kernel(b, 5 * MS));
    OK(cuEventRecord(second, b));
    OK(cuEventSynchronize(second));
    cr_expect_eq(vp_sim_now(), 15 * MS, "%llu", (unsigned long long)vp_sim_now());
    cr_expect_eq(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
}

Test(sim_clock, a_barrier_is_behind_every_stream, .init = start)
{
    OK(vp_sim_kernel(a, 10 * MS));
    OK(vp_sim_kernel(b, 20 * MS));
    OK(cuCtxRecordEvent(context, first));
    OK(vp_sim_kernel(a, 30 * MS));
    vp_sim_advance(19 * MS);
    cr_expect(!DONE(first));
    vp_sim_advance(MS);
    cr_expect(DONE(first), "what came later is not waited for");
}

Test(sim_clock, the_legacy_stream_is_behind_blocking_ones_alone, .init = start)
{
    OK(vp_sim_kernel(a, 50 * MS));
    OK(vp_sim_kernel(blocking, 10 * MS));
    OK(vp_sim_kernel(NULL, 10 * MS));
    OK(cuEventRecord(first, NULL));
    OK(vp_sim_kernel(blocking, 10 * MS));
    OK(cuEventRecord(second, blocking));
    OK(cuEventSynchronize(first));
    cr_expect_eq(vp_sim_now(), 20 * MS);
    OK(cuStreamSynchronize(blocking));
    cr_expect_eq(vp_sim_now(), 30 * MS);
    OK(cuCtxSynchronize());
    cr_expect_eq(vp_sim_now(), 50 * MS);
    cr_expect_eq(vp_sim_next_completion(), UINT64_MAX);
}

Test(sim_clock, driver_calls_take_what_they_cost, .init = start)
{
    uint64_t cost = vp_sim_cost_ns();
    OK(cuEventRecord(first, a));
    cr_expect(DONE(first));
    cr_expect_gt(vp_sim_now(), 0u);
    cr_expect_eq(vp_sim_now(), vp_sim_cost_ns() - cost);
}

Test(sim_clock, a_held_stream_is_late_for_all_that, .init = start)
{
    vp_sim_hold(a);
    OK(vp_sim_kernel(a, 10 * MS));
    OK(cuEventRecord(first, a));
    vp_sim_advance(20 * MS);
    cr_expect(!DONE(first));
    vp_sim_release(a);
    cr_expect(DONE(first));
}

Test(sim_clock, it_ends_with_a_reset, .init = start)
{
    vp_sim_advance(MS);
    vp_sim_reset();
    cr_expect_eq(vp_sim_now(), 0u);
    cr_expect_eq(vp_sim_kernel(a, MS), CUDA_ERROR_NOT_INITIALIZED);
}
