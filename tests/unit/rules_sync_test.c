/* The rules of who may have which bytes, and when: synchronous calls, captures, unmapping, waits and errors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rules_test.h"

#include "../common/owners.h"

#include "process/state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- cudaMalloc and cudaFree ---- */

/* Memory of cudaMalloc may be used at once on any stream, one not yet born included. */
Test(rules, cudamalloc_gives_nothing_that_is_pending) {
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    CUdeviceptr ptr = door_malloc(SIZE);
    struct holder b = holder_of(ptr, door_stream(CU_STREAM_NON_BLOCKING));
    duel(&a, &b, f);
}

static void *release_soon(void *stream) {
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    vp_sim_release(stream);
    return NULL;
}

/* Also when there is no other memory: the host waits, no stream does. */
Test(rules, cudamalloc_makes_no_stream_wait) {
    pthread_t thread;
    door_open("capacity=3M,granularity=64K,lazy=0");
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    cr_assert(!pthread_create(&thread, NULL, release_soon, f));
    struct holder b = take_sync(s);
    cr_assert(!apart(&a, &b));
    pthread_join(thread, NULL);
    cr_assert_eq(waits(), 0);
    duel(&a, &b, f);
}

Test(rules, cudafree_covers_every_stream_and_does_not_stop_the_host) {
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = take_sync(f);
    give_sync(&a);
    struct holder b = take_sync(s), c = take(s);
    vp_sim_step(1000);
    check(&b);
    check(&c);
    duel(&a, &b, f);
    check_live(&c);
}

/* The same on drivers that cannot record an event over a whole context, by streams of both kinds. */
Test(rules, cudafree_covers_every_stream_of_old_drivers) {
    door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,driver=12000");
    cr_assert(!vp_state.drv.cuCtxRecordEvent);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int blocking = 0; blocking < 2; blocking++) {
        CUstream f = held_stream(blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        struct holder a = take_sync(f);
        give_sync(&a);
        struct holder b = take_sync(s);
        duel(&a, &b, f);
    }
}

/* Of what a destroyed stream has still queued no later event tells there. */
Test(rules, cudafree_covers_a_destroyed_stream_of_old_drivers) {
    uint32_t *flag;
    door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,driver=12000");
    cu_ok(cuMemAllocHost((void **)&flag, sizeof *flag));
    *flag = 0;
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), gone = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(cuStreamWaitValue32(gone, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    struct holder a = take_sync(gone);
    cu_ok(door_stream_destroy(gone));
    give_sync(&a);
    struct holder b = take_sync(s);
    cr_assert(apart(&a, &b));
    vp_sim_step(1000);
    *flag = 1;
    cu_ok(cuCtxSynchronize());
    check(&a);
    check_live(&b);
    /* And then it is nobody's. */
    give_sync(&b);
    cu_ok(door_free(door_malloc(60 << 20)));
    door_close();
}

/* A block of one context, used in another, freed in the first. */
Test(rules, cudafree_covers_every_context_of_the_device) {
    CUcontext one = door_open(SIM), two = door_context(0);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(cuCtxSetCurrent(one));
    CUdeviceptr ptr = door_malloc(SIZE);
    cu_ok(cuCtxSetCurrent(two));
    struct holder a = holder_of(ptr, f);
    cu_ok(cuCtxSetCurrent(one));
    give_sync(&a);
    struct holder b = take_sync(0);
    duel(&a, &b, f);
}

/* A context that the driver refuses to make current is no dead one, and what is asked of its default stream must not go
 * to that of another. */
static void refuse_contexts(bool refuse) {
    vp_sim_fail("cuCtxPushCurrent_v2", refuse ? -1 : 0, CUDA_ERROR_INVALID_VALUE);
}

static void covered_where_no_context_can_be_entered(const char *options) {
    CUcontext one = door_open(options), two = door_context(0), again;
    cu_ok(cuCtxSetCurrent(one));
    CUdeviceptr ptr = door_malloc(SIZE);
    vp_sim_hold(CU_STREAM_LEGACY);
    cu_ok(door_free_async(door_take(SIZE, CU_STREAM_LEGACY), CU_STREAM_LEGACY));
    cu_ok(cuMemsetD8Async(ptr, 1, SIZE, CU_STREAM_LEGACY));
    cu_ok(cuCtxSetCurrent(two));
    refuse_contexts(true);
    cu_ok(door_primary(&again, 0));
    cu_ok(door_free(ptr));
    cr_assert(door_served);
    for (int i = 0; i < 4; i++)
        cr_assert_neq(door_malloc(SIZE), ptr);
    refuse_contexts(false);
    cu_ok(cuCtxSetCurrent(one));
    vp_sim_release(CU_STREAM_LEGACY);
    cu_ok(cuCtxSynchronize());
    cr_assert_eq(vp_sim_violations(), 0);
    door_close();
}

Test(rules, cudafree_covers_a_context_that_cannot_be_entered) {
    covered_where_no_context_can_be_entered("capacity=64M,granularity=64K,lazy=0,timeout=300");
    covered_where_no_context_can_be_entered("capacity=64M,granularity=64K,lazy=0,timeout=300,driver=12040");
}

/* The capture is of a context that is current already, and of which nothing was known. */
Test(rules, a_capture_survives_where_no_context_can_be_entered) {
    CUgraph graph;
    CUstream s;
    CUdeviceptr ptr;
    CUcontext one = door_open(SIM), two;
    CUdeviceptr old = door_malloc(SIZE);
    cu_ok(cuCtxCreate(&two, NULL, 0, 0));
    cu_ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    refuse_contexts(true);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_alloc_async(&ptr, SIZE, NULL, s));
    cu_ok(door_free_async(ptr, s));
    cu_ok(door_end_capture(s, &graph));
    refuse_contexts(false);
    cu_ok(cuGraphDestroy(graph));
    cu_ok(cuCtxSetCurrent(one));
    cu_ok(door_free(old));
    door_close();
}

static CUcontext context_of(CUdevice device) {
    CUcontext ctx = NULL;
    cu_ok(cuDevicePrimaryCtxRetain(&ctx, device));
    vp_api_context_created(ctx, true);
    return ctx;
}

/* And of all other devices: a copy needs no leave, and may be queued in a context of a third. */
Test(rules, cudafree_covers_every_device) {
    CUcontext one = door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=3");
    for (CUdevice device = 1; device < 3; device++) {
        CUcontext there = context_of(device);
        cu_ok(cuCtxSetCurrent(one));
        CUdeviceptr ptr = door_malloc(SIZE), source = door_malloc(SIZE);
        cu_ok(cuMemsetD8(source, 77, SIZE));
        cu_ok(cuCtxSynchronize());
        cu_ok(cuCtxSetCurrent(there));
        CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
        struct vp_copy_end to = {.ptr = ptr}, from = {.ptr = source};
        cr_assert_eq(vp_api_copy_way(f, &to, &from), VP_COPY_AS_IT_IS);
        cu_ok(cuMemcpyDtoDAsync(ptr, source, SIZE, f));
        struct holder a = holder_of(ptr, f);
        cu_ok(cuCtxSetCurrent(one));
        give_sync(&a);
        struct holder b = take_sync(0);
        duel(&a, &b, f);
    }
}

/* A copy that names a context for each end needs no access, and may be made by any device. */
Test(rules, cudafree_covers_copies_that_need_no_access) {
    CUcontext one = door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=2"), there = context_of(1);
    cu_ok(cuCtxSetCurrent(one));
    CUdeviceptr ptr = door_malloc(SIZE), source;
    cu_ok(cuMemsetD8(ptr, 55, SIZE));
    cu_ok(cuCtxSynchronize());
    cu_ok(cuCtxSetCurrent(there));
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(cuMemAlloc(&source, SIZE));
    cu_ok(cuMemsetD8(source, 77, SIZE));
    cu_ok(cuCtxSynchronize());
    vp_api_copied_between();
    cu_ok(cuMemcpyPeerAsync(ptr, one, source, there, SIZE, f));
    cu_ok(cuCtxSetCurrent(one));
    cu_ok(door_free(ptr));
    struct holder b = take_sync(0);
    cr_assert_neq(b.ptr, ptr, "the copy is still to come");
    vp_sim_release(f);
    cu_ok(cuStreamSynchronize(f));
    cu_ok(cuMemFree(source));
}

/* A device whose context is lost for good holds up nothing of another's, from then on; and what it answers is no answer
 * of another's. */
Test(rules, a_sick_device_leaves_the_others_alone) {
    CUcontext one = door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=2"), two = context_of(1);
    CUdeviceptr ptr, mine = door_malloc(SIZE);
    cu_ok(cuCtxSetCurrent(two));
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr theirs = door_malloc(SIZE);
    cu_ok(cuMemsetD8Async(theirs, 1, SIZE, f));
    cu_ok(door_free(theirs));
    cu_ok(cuCtxSetCurrent(one));
    vp_sim_step(1000);
    /* What is pending on device 0 is seen over first: the failure is of any query. */
    vp_timelines_poll(&vp_state.timelines, true);
    vp_sim_fail("cuEventQuery", -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(door_alloc(&ptr, (i + 2) * SIZE), CUDA_SUCCESS, "a healthy device fails with another");
        cr_assert(door_served);
    }
    vp_sim_fail("cuMemAlloc", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    cu_ok(cuCtxSetCurrent(two));
    cr_assert_eq(door_alloc(&ptr, 2 * SIZE), CUDA_ERROR_ILLEGAL_ADDRESS, "its own device tells the error");
    vp_sim_fail("cuEventQuery", 0, CUDA_SUCCESS);
    vp_sim_fail("cuCtxRecordEvent", -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    cu_ok(cuCtxSetCurrent(one));
    /* No barrier is asked of the lost one: this would stay open for good. Its own device's context answers. */
    vp_sim_fail("cuCtxRecordEvent", 0, CUDA_SUCCESS);
    vp_api_copied_between(); /* so that it could have touched the bytes */
    unsigned long before = vp_sim_calls("cuCtxRecordEvent");
    cu_ok(door_free(mine));
    cr_assert_eq(vp_sim_calls("cuCtxRecordEvent"), before + 1);
    vp_sim_release(f);
}

/* Whatever it is lost by: all that CUDA's header says so of, and what stands beside it. */
Test(rules, a_context_is_lost_by_any_error_that_stays) {
    /* From CUDA_ERROR_ECC_UNCORRECTABLE to CUDA_ERROR_EXTERNAL_DEVICE. */
    static const CUresult errors[] = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911};
    CUcontext one = door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=2");
    CUdeviceptr ptr;
    vp_api_copied_between(); /* any context could have touched the bytes */
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        door_context(1);
        CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
        CUdeviceptr theirs = door_malloc(SIZE);
        cu_ok(cuMemsetD8Async(theirs, 1, SIZE, f));
        cu_ok(door_free(theirs));
        /* The failure is of the other device's queries alone. */
        vp_sim_step(1000);
        vp_timelines_poll(&vp_state.timelines, true);
        vp_sim_fail("cuEventQuery", -1, errors[i]);
        cr_assert_eq(door_alloc(&ptr, 2 * SIZE), errors[i]);
        vp_sim_fail("cuEventQuery", 0, CUDA_SUCCESS);
        cu_ok(cuCtxSetCurrent(one));
        CUdeviceptr mine = door_malloc(SIZE);
        unsigned long before = vp_sim_calls("cuCtxRecordEvent");
        cu_ok(door_free(mine));
        cr_assert_eq(vp_sim_calls("cuCtxRecordEvent"), before + 1, "a barrier is asked of one lost by %d", errors[i]);
        vp_sim_release(f);
    }
}

/* Stream-ordered: freed on a stream of one context, taken on a stream of another. */
Test(rules, a_block_freed_in_one_context_is_taken_in_another) {
    CUcontext one = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    door_context(0);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    cu_ok(cuCtxSetCurrent(one));
    struct holder b = take(s);
    duel(&a, &b, f);
}

/* ---- captures ---- */

static void still_capturing(CUstream stream) {
    CUstreamCaptureStatus status;
    cu_ok(cuStreamIsCapturing(stream, &status));
    cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE, "the capture was destroyed");
}

static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                            CU_STREAM_CAPTURE_MODE_RELAXED};

static atomic_bool trimmed;

static void *trim(void *context) {
    cu_ok(cuCtxSetCurrent(context));
    door_relieve();
    trimmed = true;
    return NULL;
}

/* Who has asked whether a stream captures may rely on the answer until its event is recorded: no capture begins
 * meanwhile. */
Test(rules, a_capture_begins_alone) {
    CUcontext context = door_open(SIM);
    CUstream capture = door_stream(CU_STREAM_DEFAULT);
    pthread_t other;
    cu_ok(door_free(door_malloc(SIZE)));
    vp_api_capture_beginning(capture, false);
    cr_assert(!pthread_create(&other, NULL, trim, context));
    usleep(50000);
    cr_assert(!trimmed, "another thread was let in");
    cu_ok(cuStreamBeginCapture(capture, CU_STREAM_CAPTURE_MODE_RELAXED));
    vp_api_capture_began(capture, true);
    cr_assert(!pthread_join(other, NULL) && trimmed);
    still_capturing(capture);
    cu_ok(door_end_capture(capture, NULL));
    door_close();
}

/* Everything that may be called beside a capture leaves it whole; what was freed meanwhile is not reused
 * before its work is over. */
Test(rules, a_capture_survives) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 6; i++) {
        CUstream capture = door_stream(i % 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
        two_streams_free(s, f);
        struct holder a = take_sync(f), c = take(f);
        cu_ok(door_begin_capture(capture, modes[i / 2]));
        give_sync(&a);
        give(&c, f);
        CUdeviceptr b = door_malloc(SIZE), d = door_take(SIZE, s);
        door_relieve();
        CUdeviceptr e = door_malloc(3 * SIZE);
        still_capturing(capture);
        cr_assert(b + SIZE <= a.ptr || b >= a.ptr + SIZE);
        cu_ok(door_end_capture(capture, NULL));
        struct holder late = holder_of(d, s), now = holder_of(b, s);
        vp_sim_step(1000);
        vp_sim_release(f);
        cu_ok(cuCtxSynchronize());
        check(&c);
        check_live(&late);
        duel(&a, &now, f);
        cu_ok(door_free(e));
        cu_ok(door_free(b));
        cu_ok(door_free(d));
    }
}

/* What was freed during a capture comes back after it. */
Test(rules, quarantine_ends_with_the_capture) {
    door_open(SIM);
    CUstream capture = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(SIZE);
    cu_ok(door_begin_capture(capture, CU_STREAM_CAPTURE_MODE_GLOBAL));
    cu_ok(door_free(a));
    cr_assert_neq(door_malloc(SIZE), a);
    cu_ok(door_end_capture(capture, NULL));
    cr_assert_eq(door_malloc(SIZE), a);
    door_close();
}

Test(rules, freeing_our_pointer_on_a_capturing_stream_leaves_it_live) {
    struct vp_pool *pool;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = take(s);
    cu_ok(cuStreamSynchronize(s));
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    cr_assert_neq(door_free_async(a.ptr, s), CUDA_SUCCESS);
    cr_assert(!door_served && vp_state_find(a.ptr, &pool));
    door_end_capture(s, NULL);
    struct holder b = take(s);
    cr_assert(apart(&a, &b));
    give(&a, s);
    duel(&a, &b, s);
}

/* ---- no byte twice ---- */

/* The old range of a chunk is wanted again while the chunk is live in a newer one. */
Test(rules, a_live_chunk_is_not_taken_back) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = take(s);
    CUdeviceptr wall = door_take(SIZE, s);
    struct holder c = take(s);
    door_take(SIZE, s);
    give(&a, s);
    give(&c, s);
    CUdeviceptr both = door_take(2 * SIZE, s);
    cr_assert(both > wall, "stitched of a and c");
    cu_ok(cuMemsetD8Async(both, 77, 2 * SIZE, s));
    struct holder d = take(s), e = take(s);
    unsigned char *seen;
    cu_ok(cuMemAllocHost((void **)&seen, 2 * SIZE));
    cu_ok(cuMemcpyDtoH(seen, both, 2 * SIZE));
    for (size_t i = 0; i < 2 * SIZE; i++)
        cr_assert_eq(seen[i], 77, "byte %zu was written through another address", i);
    duel(&d, &e, s);
}

/* An old mapping stays while work queued before the free may use it. */
Test(rules, nothing_is_unmapped_under_queued_work) {
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = take(f);
    CUdeviceptr wall = door_take(SIZE, s), c = door_take(SIZE, f);
    give(&a, f);
    cu_ok(door_free_async(c, f));
    CUdeviceptr both = door_take(2 * SIZE, f);
    cu_ok(door_free_async(both, f));
    door_relieve();
    cr_assert_eq(vp_sim_violations(), 0);
    struct holder b = holder_of(wall, s);
    duel(&a, &b, f);
}

/* ---- what may hold a stream up ---- */

/* What holds a stream up cannot always be seen, and a wait that is queued cannot be withdrawn: by default none is. */
Test(rules, by_default_no_stream_waits) {
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    struct holder b = take(s);
    cr_assert(apart(&a, &b) && waits() == 0);
    cr_assert_eq(vp_sim_calls("cuStreamWaitEvent"), 0);
    duel(&a, &b, f);
}

Test(rules, streams_wait_when_growing_fails) {
    setenv("VPOOL_WAIT", "late", 1);
    door_open("capacity=3M,granularity=64K,lazy=0,timeout=300");
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    struct holder b = take(s);
    cr_assert(!apart(&a, &b) && waits() > 0);
    duel(&a, &b, f);
}

/* Under a published policy, which waits early, what ties the process to others still delays that. */
Test(rules, coupled_processes_grow_before_they_wait) {
    setenv("VPOOL_POLICY", "vpmm", 1);
    door_open(SIM);
    vp_api_coupled("a test");
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    struct holder b = take(s);
    cr_assert(apart(&a, &b) && waits() == 0);
    duel(&a, &b, f);
}

static void until(void *flag) {
    while (!atomic_load((atomic_bool *)flag))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* F's host function waits for what the program does after S is done: were S behind F, that would be for ever. */
Test(rules, nobody_waits_early_behind_a_host_function) {
    static atomic_bool go;
    setenv("VPOOL_WAIT", "early", 1);
    door_open(SIM);
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    vp_api_host_function(f);
    cu_ok(cuLaunchHostFunc(f, until, &go));
    give(&a, f);
    struct holder b = take(s);
    cu_ok(cuStreamSynchronize(s));
    atomic_store(&go, true);
    cu_ok(cuStreamSynchronize(f));
    duel(&a, &b, f);
}

Test(rules, a_pool_without_internal_dependencies_never_waits) {
    pthread_t thread;
    CUmemoryPool mempool;
    int no = 0;
    setenv("VPOOL_WAIT", "early", 1); /* by default no stream waits anyway */
    door_open("capacity=3M,granularity=64K,lazy=0");
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    cu_ok(cuDeviceGetDefaultMemPool(&mempool, 0));
    cr_assert(!vp_api_pool_set_attribute(mempool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no));
    struct holder a = take(f);
    give(&a, f);
    cr_assert(!pthread_create(&thread, NULL, release_soon, f));
    struct holder b = take(s);
    pthread_join(thread, NULL);
    cr_assert(!apart(&a, &b) && waits() == 0, "the host waited");
    duel(&a, &b, f);
}

/* ---- errors ---- */

/* With VPOOL_SYNC_FREE a cudaFree waits for the device, unless a stream captures: one may begin to after it was asked.
 */
Test(rules, a_capture_that_begins_meanwhile_fails_no_free) {
    setenv("VPOOL_SYNC_FREE", "1", 1);
    door_open(SIM);
    CUdeviceptr ptr = door_malloc(SIZE);
    vp_sim_fail("cuEventSynchronize", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    cu_ok(door_free(ptr));
    door_close();
}

/* To synchronise the context would end that capture. */
Test(rules, a_free_that_waits_ends_no_capture_that_begins_meanwhile) {
    setenv("VPOOL_SYNC_FREE", "1", 1);
    door_open(SIM);
    CUdeviceptr ptr = door_malloc(SIZE);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(cuMemsetD8Async(ptr, 1, SIZE, s));
    cu_ok(door_free(ptr));
    cr_assert_eq(vp_sim_pending(), 0);
    cr_assert_eq(vp_sim_calls("cuCtxSynchronize"), 0);
    door_close();
}

static struct {
    CUcontext context;
    CUstream held, captured;
    atomic_bool tried;
} others;

static void *capture_meanwhile(void *unused) {
    CUgraph graph;
    usleep(20000);
    cu_ok(cuCtxSetCurrent(others.context));
    cu_ok(door_begin_capture(others.captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    vp_sim_release(others.held);
    until(&others.tried);
    cu_ok(door_end_capture(others.captured, &graph));
    cu_ok(cuGraphDestroy(graph));
    return unused;
}

/* CUDA's own memory is out, and tried for again once what is freed is done with: another thread's capture that has
 * begun by then would end by it. */
Test(rules, another_try_ends_no_capture_that_has_begun_meanwhile) {
    pthread_t thread;
    struct door_other array;
    CUdeviceptr ptr;
    others.context = door_open("capacity=8M,granularity=64K,lazy=0");
    others.held = held_stream(CU_STREAM_NON_BLOCKING);
    others.captured = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_alloc_async(&ptr, 6 * MiB, NULL, others.held));
    cu_ok(door_free_async(ptr, others.held));
    cr_assert(!pthread_create(&thread, NULL, capture_meanwhile, NULL));
    cu_ok(door_other_take(&array, DOOR_ARRAY, 0, 4 * MiB));
    atomic_store(&others.tried, true);
    pthread_join(thread, NULL);
    cu_ok(door_other_give(&array));
    door_close();
}

Test(rules, a_query_that_fails_is_an_error_and_not_done) {
    CUdeviceptr ptr = 0;
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    vp_sim_fail("cuEventQuery", -1, CUDA_ERROR_UNKNOWN);
    cr_assert_eq(door_alloc(&ptr, SIZE), CUDA_ERROR_UNKNOWN);
    cr_assert(door_served && !ptr);
    vp_sim_fail("cuEventQuery", 0, CUDA_SUCCESS);
    struct holder b = take_sync(s);
    duel(&a, &b, f);
}
