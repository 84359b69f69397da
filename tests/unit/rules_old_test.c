/* The rules of who may have which bytes, and when, with drivers that have no barriers: each stream is asked by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rules_test.h"

#include "process/state.h"

#include <stdlib.h>

static const char OLD[] = "capacity=64M,granularity=64K,lazy=0,timeout=300,driver=12000";

/* The library asks what is over, at a time of its own. */
static void ask(void) {
    cr_assert(vp_enter());
    vp_timelines_poll(&vp_state.timelines, true);
    vp_leave();
}

static bool open_still(void) {
    return vp_timelines_open(&vp_state.timelines);
}

/* What was held is over, and that is known. */
static void ends(CUstream held) {
    vp_sim_release(held);
    cu_ok(cuCtxSynchronize());
    ask();
    ask();
    cr_assert(!open_still());
}

static uint32_t *flags_of_host(size_t count) {
    uint32_t *flags;
    cu_ok(cuMemAllocHost((void **)&flags, count * sizeof *flags));
    for (size_t i = 0; i < count; i++)
        flags[i] = 0;
    return flags;
}

static void work_until(CUstream stream, uint32_t *flag) {
    cu_ok(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
}

/* Streams that come and go, each made before the last has done its work: those that were made after a free are not
 * waited for, destroyed or not. */
static void tasks(bool destroyed) {
    enum { TASKS = 8 };
    door_open(OLD);
    uint32_t *flag = flags_of_host(TASKS);
    CUdeviceptr freed = door_malloc(512);
    for (int i = 0; i < TASKS; i++) {
        CUstream task = door_stream(CU_STREAM_DEFAULT);
        work_until(task, &flag[i]);
        if (destroyed)
            cu_ok(door_stream_destroy(task));
        if (!i)
            cu_ok(door_free(freed));
        ask();
        if (i)
            flag[i - 1] = 1;
        vp_sim_step(1000);
        ask();
        cr_expect(i || open_still(), "the work before it is under way");
    }
    const bool kept = open_still();
    flag[TASKS - 1] = 1;
    cu_ok(cuCtxSynchronize());
    cr_assert(!kept);
    door_close();
}

Test(rules, streams_made_later_keep_no_memory_of_old_drivers) {
    tasks(false);
}

Test(rules, destroyed_streams_made_later_keep_no_memory_of_old_drivers) {
    tasks(true);
}

static unsigned long asked(void) {
    return vp_sim_calls("cuEventRecord") + vp_sim_calls("cuEventQuery") + vp_sim_calls("cuStreamQuery");
}

Test(rules, a_free_asks_no_stream_of_an_idle_device_of_old_drivers) {
    enum { STREAMS = 100, FREES = 10 };
    door_open(OLD);
    for (int i = 0; i < STREAMS; i++)
        cu_ok(door_free_async(door_take(512, door_stream(CU_STREAM_DEFAULT)), CU_STREAM_LEGACY));
    cu_ok(cuCtxSynchronize());
    ask();
    ask();
    cr_assert(!open_still());
    const unsigned long before = asked();
    for (int i = 0; i < FREES; i++) {
        cu_ok(door_free(door_malloc(512)));
        ask();
        ask();
        cr_assert(!open_still());
    }
    cr_assert_leq(asked() - before, 10 * FREES, "%lu", asked() - before);
    door_close();
}

/* Any blocking stream's event tells of it: without them that of ours, made as it is needed. */
Test(rules, the_legacy_stream_is_waited_for_on_old_drivers) {
    door_open(OLD);
    CUdeviceptr work = door_take(512, CU_STREAM_LEGACY), freed = door_malloc(512);
    cu_ok(door_stream_destroy(door_stream(CU_STREAM_DEFAULT)));
    cu_ok(cuCtxSynchronize());
    vp_sim_hold(CU_STREAM_LEGACY);
    cu_ok(cuMemsetD8Async(work, 1, 512, CU_STREAM_LEGACY));
    cu_ok(door_free(freed));
    ask();
    ask();
    cr_assert(open_still());
    ends(CU_STREAM_LEGACY);
    door_close();
}

/* Each has left an event, which somebody must ask. */
Test(rules, destroyed_streams_of_old_drivers_do_not_pile_up) {
    enum { STREAMS = 3000, MOST = 200 };
    door_open(OLD);
    uint32_t *flag = flags_of_host(1);
    size_t most = 0;
    for (int i = 0; i < STREAMS; i++) {
        CUstream stream = door_stream(CU_STREAM_DEFAULT);
        *flag = 0;
        work_until(stream, flag);
        cu_ok(door_stream_destroy(stream));
        *flag = 1;
        cu_ok(cuCtxSynchronize());
        most = vp_state.timelines.lingering > most ? vp_state.timelines.lingering : most;
    }
    cr_assert_leq(most, MOST, "%zu", most);
    door_close();
}

/* Where no stream of ours is to be had. */
Test(rules, memory_comes_back_where_old_drivers_make_no_stream) {
    door_open(OLD);
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT);
    CUdeviceptr freed = door_malloc(512);
    cu_ok(cuMemsetD8Async(door_take(512, b), 1, 512, a));
    vp_sim_fail("cuStreamCreate", -1, CUDA_ERROR_OUT_OF_MEMORY);
    cu_ok(door_stream_destroy(a));
    cu_ok(door_free(freed));
    cu_ok(cuCtxSynchronize());
    ask();
    ask();
    cr_assert(!open_still());
    door_close();
}

/* B has something to do while A is held, and need not wait for it. */
static void goes_on_beside(CUstream a, CUstream b, CUdeviceptr work) {
    vp_sim_hold(a);
    cu_ok(cuMemsetD8Async(work, 1, 1, a));
    cu_ok(door_free(door_malloc(512)));
    ask();
    ask();
    cu_ok(cuMemsetD8Async(work + 1, 1, 1, b));
    if (a != b)
        cu_ok(cuStreamSynchronize(b));
    ends(a);
}

/* It got no last event: only one of the legacy stream would tell of it, which is had once that has nothing to do. */
Test(rules, what_a_destroyed_stream_lacks_holds_nobody_up_with_old_drivers) {
    door_open(OLD);
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT),
             ends = door_stream(CU_STREAM_DEFAULT);
    CUdeviceptr work = door_take(512, a);
    cu_ok(cuCtxSynchronize());
    vp_sim_fail("cuEventRecord", 1, CUDA_ERROR_OUT_OF_MEMORY);
    cu_ok(door_stream_destroy(ends));
    vp_sim_fail("cuEventRecord", 0, CUDA_SUCCESS);
    cr_assert(open_still());
    goes_on_beside(a, b, work);
    door_close();
}

/* And until then what it has queued counts as under way: of that our own stream does not tell. */
Test(rules, what_a_destroyed_stream_lacks_is_waited_for_with_old_drivers) {
    door_open(OLD);
    CUstream a = door_stream(CU_STREAM_DEFAULT), ends = door_stream(CU_STREAM_DEFAULT);
    uint32_t *flag = flags_of_host(1);
    goes_on_beside(a, a, door_take(512, a));
    work_until(ends, flag);
    vp_sim_fail("cuEventRecord", 1, CUDA_ERROR_OUT_OF_MEMORY);
    cu_ok(door_stream_destroy(ends));
    vp_sim_fail("cuEventRecord", 0, CUDA_SUCCESS);
    cu_ok(door_free(door_malloc(512)));
    for (int i = 0; i < 4; i++)
        ask();
    cr_assert(open_still());
    *flag = 1;
    cu_ok(cuCtxSynchronize());
    ask();
    ask();
    cr_assert(!open_still());
    door_close();
}

/* One that the library could not note as it was made is waited for, too. */
Test(rules, a_stream_that_is_not_known_is_waited_for_with_old_drivers) {
    door_open(OLD);
    CUstream known = door_stream(CU_STREAM_DEFAULT);
    vp_sim_fail("cuStreamGetId", 1, CUDA_ERROR_OUT_OF_MEMORY);
    CUstream unknown = door_stream(CU_STREAM_DEFAULT);
    vp_sim_fail("cuStreamGetId", 0, CUDA_SUCCESS);
    CUdeviceptr work = door_take(512, known), freed = door_malloc(512);
    cu_ok(cuCtxSynchronize());
    vp_sim_hold(unknown);
    cu_ok(cuMemsetD8Async(work, 1, 512, unknown));
    cu_ok(door_free(freed));
    ask();
    ask();
    cr_assert(open_still() || vp_timelines_waiting(&vp_state.timelines, UINT64_MAX));
    ends(unknown);
    door_close();
}

/* The same of one whose end no call told of: the driver says that its handle is none. */
Test(rules, a_stream_that_ends_unseen_holds_nobody_up_with_old_drivers) {
    door_open(OLD);
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT),
             ends = door_stream(CU_STREAM_DEFAULT);
    CUdeviceptr work = door_take(512, a);
    goes_on_beside(a, b, work); /* ours is made, which would have its handle */
    cu_ok(cuStreamDestroy(ends));
    goes_on_beside(a, b, work);
    goes_on_beside(a, b, work);
}

/* CUDA's cudaFree waits for the device that the memory is of. Streams of another, which may reach it, may be about to
 * wait for each other. */
static void other_devices_streams_go_on(size_t size) {
    door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,driver=12000,devices=2");
    CUcontext own = door_context(0), other = door_context(1);
    cu_ok(cuCtxSetCurrent(other));
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT);
    CUdeviceptr work = door_take(512, a);
    cu_ok(door_enable_peer(own));
    cu_ok(cuCtxSynchronize());
    cu_ok(cuCtxSetCurrent(own));
    CUdeviceptr freed = door_malloc(size);
    cu_ok(cuCtxSetCurrent(other));
    vp_sim_hold(a);
    cu_ok(cuMemsetD8Async(work, 1, 1, a));
    cu_ok(cuCtxSetCurrent(own));
    cu_ok(door_free(freed));
    ask();
    cu_ok(cuCtxSetCurrent(other));
    cu_ok(cuMemsetD8Async(work + 1, 1, 1, b));
    cu_ok(cuStreamSynchronize(b));
    cr_assert(open_still(), "what may still reach it is waited for");
    ends(a);
    door_close();
}

Test(rules, a_small_cudafree_holds_no_other_device_up_with_old_drivers) {
    other_devices_streams_go_on(512);
}

Test(rules, a_large_cudafree_holds_no_other_device_up_with_old_drivers) {
    other_devices_streams_go_on(2 * MiB);
}

/* The context ends unseen, and another begins under its handle, as a cover makes a stream. */
Test(rules, a_stream_of_ours_is_of_the_context_that_lives_with_old_drivers) {
    CUcontext old = door_open(OLD), new;
    CUstream a = door_stream(CU_STREAM_DEFAULT);
    cu_ok(cuMemsetD8Async(door_take(512, a), 1, 512, a));
    cu_ok(door_free(door_malloc(512)));
    cu_ok(cuDevicePrimaryCtxReset(0));
    cu_ok(cuDevicePrimaryCtxRetain(&new, 0));
    cr_assert_eq(new, old);
    vp_sim_hold(CU_STREAM_LEGACY);
    CUdeviceptr work;
    cu_ok(cuMemAlloc(&work, 512));
    cu_ok(cuMemsetD8Async(work, 1, 512, CU_STREAM_LEGACY));
    ask();
    CUstream b = door_stream(CU_STREAM_DEFAULT);
    cu_ok(door_free(door_malloc(512)));
    ask();
    cu_ok(door_stream_destroy(b));
    cu_ok(door_free(door_malloc(512)));
    ask();
    cr_assert(open_still());
    vp_sim_release(CU_STREAM_LEGACY);
    cu_ok(cuCtxSynchronize());
    while (open_still())
        ask();
    vp_sim_hold(CU_STREAM_LEGACY);
    cu_ok(cuMemsetD8Async(work, 1, 512, CU_STREAM_LEGACY));
    cu_ok(door_free(door_malloc(512)));
    ask();
    ends(CU_STREAM_LEGACY);
    door_close();
}
