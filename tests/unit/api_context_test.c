/* The api: devices, contexts and streams that come and go, captures, fork, and copies between devices. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api_test.h"

#include "process/state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vpool.h>

/* ---- devices and contexts ---- */

Test(api, the_pool_is_that_of_the_streams_device) {
    CUcontext second;
    CUcontext first = door_open("capacity=64M,granularity=64K,lazy=0,devices=2");
    cu_ok(cuDevicePrimaryCtxRetain(&second, 1));
    cu_ok(cuCtxSetCurrent(second));
    CUstream there = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(MiB);
    cu_ok(cuCtxSetCurrent(first));
    CUdeviceptr b = door_malloc(2 * MiB), c = door_take(4 * MiB, there);
    cr_assert_eq(vp_pool_stats(pool_of(1)).live_bytes, 5 * MiB);
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 2 * MiB);
    cu_ok(cuMemsetD8Async(c, 1, 4 * MiB, there));
    cu_ok(door_free(a));
    cr_assert(door_served, "freed while another device is current");
    cu_ok(door_free_async(c, there));
    cu_ok(door_free(b));
    cr_assert(vp_sim_used_vmm(1) == 5 * MiB && vp_sim_used_vmm(0) == 2 * MiB);
    door_close();
}

Test(api, a_context_takes_its_synchronous_blocks_with_it) {
    CUcontext first = door_open(SIM), second = door_context(0);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr mine = door_malloc(3 * MiB), async = door_take(2 * MiB, s);
    door_malloc(700);
    cu_ok(cuCtxSetCurrent(first));
    CUdeviceptr other = door_malloc(MiB);
    cu_ok(door_context_destroy(second));
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 3 * MiB, "what is stream-ordered lives on");
    cr_assert_neq(door_free(mine), CUDA_SUCCESS);
    cr_assert_eq(door_malloc(3 * MiB), mine, "and may be had again at once");
    cu_ok(door_free(async));
    cr_assert(door_served);
    cu_ok(door_free(other));
    door_close();
}

/* It may still be current, as another thread's is: its handle is no longer the driver's to be asked about. */
Test(api, a_destroyed_context_is_not_named) {
    CUdeviceptr ptr, base;
    CUcontext popped;
    door_open(SIM);
    CUdeviceptr living = door_malloc(512);
    CUcontext made = door_context(0);
    cu_ok(cuCtxPushCurrent(made));
    cu_ok(door_context_destroy(made));
    cr_assert(door_alloc(&ptr, 512) == CUDA_ERROR_CONTEXT_IS_DESTROYED && !door_served);
    cr_assert(door_alloc_async(&ptr, 512, NULL, 0) == CUDA_ERROR_CONTEXT_IS_DESTROYED && !door_served);
    cr_assert_eq(vp_api_address_range(&base, NULL, living), VP_NOT_OURS, "it is CUDA that names the error");
    cr_assert_eq(vp_sim_violations(), 0);
    cu_ok(cuCtxPopCurrent(&popped));
    door_close();
}

/* Nothing of the one before is used, in whose place `again` has come. */
static void begins_anew(CUcontext again) {
    cu_ok(cuCtxSetCurrent(again));
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 0);
    for (int i = 0; i < 4; i++)
        cu_ok(door_free(door_malloc(2 * MiB)));
    cr_assert_eq(vp_sim_violations(), 0);
}

static atomic_bool is_reset;

static void *reset_elsewhere(void *unused) {
    cu_ok(door_primary_reset(0));
    is_reset = true;
    return unused;
}

/* A release that is not the driver's last one, and a reset. */
Test(api, two_threads_end_a_primary_context_at_once) {
    pthread_t thread;
    CUcontext ctx = door_open(SIM), again;
    door_malloc(8 * MiB);
    cu_ok(door_free(door_malloc(2 * MiB)));
    cr_assert_eq(vp_api_primary(0, true), ctx);
    vp_api_context_destroying(ctx);
    cr_assert(!pthread_create(&thread, NULL, reset_elsewhere, NULL));
    usleep(20000);
    cr_assert(!is_reset);
    vp_api_context_destroyed(ctx, false);
    cr_assert(!pthread_join(thread, NULL));
    cu_ok(door_primary(&again, 0));
    begins_anew(again);
    door_close();
}

static CUstream busy_stream;

static void *goes_on(void *ctx) {
    usleep(400000);
    vp_api_context_destroyed(ctx, false);
    vp_sim_release(busy_stream);
    return NULL;
}

/* Nothing of the context is asked for until its end is known, which may take its thread some time slices. */
Test(api, what_was_freed_is_had_once_a_release_was_not_the_last) {
    pthread_t thread;
    CUdeviceptr again;
    CUcontext ctx = door_open(SIM);
    CUdeviceptr freed = door_malloc(48 * MiB);
    busy_stream = door_stream(CU_STREAM_NON_BLOCKING);
    vp_sim_hold(busy_stream);
    cu_ok(cuMemsetD8Async(freed, 1, MiB, busy_stream));
    cr_assert_eq(vp_api_primary(0, true), ctx);
    vp_api_context_destroying(ctx);
    cu_ok(door_free(freed));
    cr_assert(!pthread_create(&thread, NULL, goes_on, ctx));
    cu_ok(door_alloc(&again, 40 * MiB));
    cr_assert(door_served);
    cr_assert(!pthread_join(thread, NULL));
    cu_ok(door_free(again));
    door_close();
}

static void *gives_up(void *ctx) {
    usleep(1500000);
    vp_api_context_destroyed(ctx, false);
    return NULL;
}

/* What waits for the end of a capture, which may be the thread's own, does not wait longer for that. */
Test(api, the_end_of_another_context_puts_off_no_answer_in_a_capture) {
    pthread_t thread;
    CUdeviceptr again;
    struct timespec begin, end;
    CUcontext ctx = door_open("capacity=64M,granularity=64K,lazy=0,devices=2"), other = door_context(1);
    cu_ok(cuCtxSetCurrent(ctx));
    CUdeviceptr freed = door_malloc(48 * MiB);
    CUstream s = door_stream(CU_STREAM_DEFAULT);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_free(freed));
    vp_api_context_destroying(other);
    cr_assert(!pthread_create(&thread, NULL, gives_up, other));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    cr_assert_eq(door_alloc(&again, 40 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    cr_assert(seconds < 1, "%f s", seconds);
    cu_ok(door_end_capture(s, NULL));
    cr_assert(!pthread_join(thread, NULL));
    door_close();
}

/* It was the last one, and the context is another's by the time that the driver is asked. */
Test(api, a_released_context_is_not_the_one_that_has_begun_since) {
    CUcontext ctx = door_open(SIM), again;
    door_malloc(8 * MiB);
    cu_ok(door_free(door_malloc(2 * MiB)));
    cr_assert_eq(vp_api_primary(0, true), ctx);
    vp_api_context_destroying(ctx);
    cu_ok(cuDevicePrimaryCtxReset(0));
    cu_ok(door_primary(&again, 0));
    vp_api_context_destroyed(ctx, false);
    begins_anew(again);
    door_close();
}

Test(api, a_reset_device_starts_again) {
    CUcontext ctx = door_open(SIM), again;
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    door_malloc(8 * MiB);
    cu_ok(door_free_async(door_take(MiB, s), s));
    cr_assert_eq(vp_api_primary(0, false), ctx);
    vp_api_context_destroying(ctx);
    cu_ok(cuDevicePrimaryCtxReset(0));
    vp_api_context_destroyed(ctx, true);
    cr_assert_null(vp_api_primary(0, false));
    cu_ok(cuDevicePrimaryCtxRetain(&again, 0));
    cu_ok(cuCtxSetCurrent(again));
    vp_api_context_created(again, true);
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 0);
    CUdeviceptr ptr = door_malloc(8 * MiB);
    cr_assert_eq(vp_sim_used_vmm(0), 9 * MiB, "idle memory outlives the context");
    cu_ok(cuMemsetD8(ptr, 1, 8 * MiB));
    door_close();
}

/* A release that does not end the primary context ends nothing. */
Test(api, a_context_that_did_not_end_goes_on) {
    CUcontext ctx = door_open(SIM);
    CUdeviceptr ptr = door_malloc(MiB);
    vp_api_context_destroying(ctx);
    vp_api_context_destroyed(ctx, false);
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, MiB);
    cu_ok(door_free(ptr));
    cr_assert(door_served);
    door_close();
}

/* What a stream freed, parked or not, outlives it and serves the next. */
Test(api, streams_come_and_go) {
    door_open(SIM);
    for (int i = 0; i < 500; i++) {
        CUstream s = door_stream(i % 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        CUdeviceptr large = door_take(4 * MiB, s), small = door_take(512, s);
        cu_ok(cuMemsetD8Async(large, i, 4 * MiB, s));
        cu_ok(door_free_async(large, s));
        cu_ok(door_free_async(small, s));
        cu_ok(door_stream_destroy(s));
    }
    cr_assert_leq(vp_pool_stats(pool_of(0)).held_bytes, 9 * MiB);
    cr_assert_lt(vp_state.timelines.timeline_slab.total, 2000);
    door_close();
}

/* ---- captures ---- */

Test(api, captures) {
    CUdeviceptr node;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr before = door_malloc(MiB);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_free(before));
    CUdeviceptr during = door_malloc(MiB);
    cu_ok(door_free_async(door_take(MiB, other), other));
    cu_ok(door_alloc_async(&node, MiB, NULL, s));
    cr_assert(!door_served, "an allocation on the capturing stream is a node of the graph");
    cu_ok(door_free_async(node, s));
    cr_assert(!door_served);
    cu_ok(door_end_capture(s, NULL));
    cr_assert_eq(atomic_load(&vp_state.timelines.captures), 0);
    cu_ok(door_free(during));
    door_close();
}

Test(api, a_capture_that_does_not_begin_is_not_counted) {
    door_open(SIM);
    CUstream s = door_stream(0);
    cr_assert_neq(door_begin_capture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    cr_assert_eq(atomic_load(&vp_state.timelines.captures), 0);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    cr_assert_eq(atomic_load(&vp_state.timelines.captures), 1);
    cr_assert_neq(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS, "it runs already");
    cr_assert_eq(atomic_load(&vp_state.timelines.captures), 1);
    cu_ok(door_end_capture(s, NULL));
    cr_assert_eq(atomic_load(&vp_state.timelines.captures), 0);
    door_close();
}

struct asked {
    CUcontext context;
    CUstream stream; /* for stream-ordered calls; NULL: they are synchronous */
    CUdeviceptr to_free, allocated;
    CUresult alloc, free;
};

static void *ask_beside(void *arg) {
    struct asked *asked = arg;
    CUstream s = asked->stream;
    cu_ok(cuCtxSetCurrent(asked->context));
    asked->alloc = s ? vp_api_alloc_async(&asked->allocated, MiB, NULL, s) : vp_api_alloc(&asked->allocated, MiB);
    asked->free = s ? vp_api_free_async(asked->to_free, s) : vp_api_free(asked->to_free);
    return NULL;
}

/* Beside a capture CUDA refuses allocations and frees, and the capture is over with the first of them; but none that
 * the modes of the capture and of the thread allow. What the stream has just freed is not had past that. */
Test(api, captures_forbid_what_they_do_with_cuda) {
    static const CUresult refused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct asked asked = {.context = door_open(SIM)};
    CUstream side = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 12; i++) {
        const CUstreamCaptureMode mode = (CUstreamCaptureMode)(i / 2 % 3);
        const bool other = i % 2, forbidden = mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
                                              (mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !other);
        CUstream s = door_stream(other ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        pthread_t thread;
        asked.stream = i < 6 ? NULL : side;
        asked.to_free = i < 6 ? door_malloc(MiB) : door_take(MiB, side);
        for (int warm = 0; warm < 3; warm++)
            cu_ok(door_free_async(door_take(MiB, side), side));
        cu_ok(door_begin_capture(s, mode));
        if (other)
            cr_assert(!pthread_create(&thread, NULL, ask_beside, &asked) && !pthread_join(thread, NULL));
        else
            ask_beside(&asked);
        cr_assert_eq(asked.alloc, forbidden ? refused : CUDA_SUCCESS);
        cr_assert_eq(asked.free, asked.alloc);
        cr_assert_eq(door_end_capture(s, NULL), forbidden ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
        cr_assert_eq(vp_api_owns(asked.to_free), forbidden, "a free that was refused has freed nothing");
    }
    door_close();
}

/* But a framework that makes stream-ordered calls because of the library has a cache of its own without it. */
Test(api, captures_forbid_no_framework_what_its_own_cache_would_serve) {
    struct asked asked = {.context = door_open(SIM), .stream = door_stream(CU_STREAM_NON_BLOCKING)};
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    asked.to_free = door_take(MiB, asked.stream);
    vp_api_capture_beginning(s, true);
    cu_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    vp_api_capture_began(s, true);
    ask_beside(&asked);
    cu_ok(asked.alloc);
    cu_ok(asked.free);
    cu_ok(door_end_capture(s, NULL));
    cr_assert(!vp_api_owns(asked.to_free));
    asked.to_free = asked.allocated;
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ask_beside(&asked);
    cr_assert_eq(asked.free, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "none is there any more");
    cr_assert_eq(door_end_capture(s, NULL), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    door_close();
}

/* Nor what they allow anybody else. Meanwhile the events that were had before the capture are recorded again behind
 * work that takes its time. */
Test(api, captures_forbid_it_whatever_events_are_in_use) {
    struct asked asked = {.context = door_open("capacity=256M,lazy=0")};
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), busy[2];
    for (int i = 0; i < 2; i++)
        busy[i] = door_stream(CU_STREAM_NON_BLOCKING);
    asked.to_free = door_malloc(MiB);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < 2; i++)
        vp_sim_hold(busy[i]);
    for (int i = 0; i < 16; i++)
        cu_ok(door_free_async(door_take(2 * MiB, busy[i % 2]), busy[i % 2]));
    ask_beside(&asked);
    cr_assert_eq(asked.alloc, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    cr_assert_eq(asked.free, asked.alloc);
    for (int i = 0; i < 2; i++)
        vp_sim_release(busy[i]);
    cr_assert_eq(door_end_capture(s, NULL), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    door_close();
}

Test(api, captures_forbid_attributes_to_be_set) {
    static const CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    const unsigned on = 1;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ptr = door_malloc(MiB);
    for (int i = 0; i < 2; i++) {
        cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        cr_assert_eq(vp_api_sync_memops(&on, which[i], ptr), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        cr_assert_eq(door_end_capture(s, NULL), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        cr_assert_eq(vp_api_sync_memops(&on, which[i], ptr), i ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
        cu_ok(door_end_capture(s, NULL));
    }
    door_close();
}

/* This thread's call comes by a second time: what it was told is not asked again, since that might end another capture;
 * but only of that call, and only while a capture runs. */
Test(api, a_refused_free_is_asked_about_once) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ptr = door_take(MiB, side), more = door_take(2 * MiB, side);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    vp_api_free_async_refused(ptr);
    cr_assert_eq(vp_api_free_async(ptr, side), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    cu_ok(vp_api_free_async(ptr, side));
    cu_ok(door_end_capture(s, NULL));
    vp_api_free_async_refused(more);
    cu_ok(vp_api_free_async(more, side));
    door_close();
}

/* ---- the one departure, and its option ---- */

Test(api, sync_free_waits_for_the_device) {
    setenv("VPOOL_SYNC_FREE", "1", 1);
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(MiB);
    vp_sim_hold(s);
    cu_ok(cuMemsetD8Async(a, 1, MiB, s));
    cr_assert_neq(door_free(a), CUDA_SUCCESS, "the device does not come to an end here");
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, MiB);
    vp_sim_release(s);
    cu_ok(door_free(a));
    cr_assert_eq(vp_sim_pending(), 0);
    door_close();
}

/* ---- fork ---- */

static int in_child(bool used) {
    CUdeviceptr ptr;
    CUresult res;
    size_t free_bytes = 7;
    vp_api_fork_prepare();
    pid_t pid = fork();
    if (pid == 0) {
        vp_api_fork_child();
        bool ready = vp_api_ready();
        bool served = used && ((res = vp_api_alloc(&ptr, 512)) != VP_NOT_OURS || door_relieve());
        bool told = used && (res = vp_api_mem_info(&free_bytes, NULL)) != VP_NOT_OURS;
        _exit(ready != !used || served || told || free_bytes != 7);
    }
    vp_api_fork_parent();
    int status = -1;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return status;
}

Test(api, fork) {
    door_open(SIM);
    cr_assert_eq(in_child(false), 0, "a child whose parent used no memory starts afresh");
    CUdeviceptr a = door_malloc(MiB);
    cr_assert_eq(in_child(true), 0, "the parent's CUDA does not exist in the child");
    cu_ok(door_free(a));
    cu_ok(door_free(door_malloc(MiB)));
    door_close();
}

static atomic_bool is_midway, may_go_on;

static void *stay_midway(void *unused) {
    cr_assert(vp_enter());
    is_midway = true;
    while (!may_go_on)
        usleep(1000);
    vp_leave();
    return unused;
}

/* It may wait for what this thread has of the driver, and is waited for for a second alone. */
Test(api, a_child_that_is_forked_midway_through_another_threads_call_is_left_to_cuda) {
    pthread_t thread;
    int status = -1;
    door_open(SIM);
    cr_assert(!pthread_create(&thread, NULL, stay_midway, NULL));
    while (!is_midway)
        usleep(1000);
    vp_api_fork_prepare();
    pid_t pid = fork();
    if (pid == 0) {
        vp_api_fork_child();
        _exit(vp_api_ready());
    }
    vp_api_fork_parent();
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    may_go_on = true;
    cr_assert(!pthread_join(thread, NULL));
    cr_assert_eq(in_child(false), 0);
    door_close();
}

/* ---- copies between devices ---- */

static unsigned long long access_of(CUdeviceptr ptr, int device) {
    const CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = 99;
    cu_ok(cuMemGetAccess(&flags, &where, ptr));
    return flags;
}

/* A node of a graph: who will make the copy is not known, so each end is opened to the other's device and to the
 * node's. */
Test(api, a_node_that_copies_finds_its_memory_open) {
    CUcontext one = door_open("capacity=64M,granularity=64K,devices=3"), two = NULL, three = NULL;
    CUdeviceptr here = door_malloc(1 << 20);
    CUstream stream = door_stream(CU_STREAM_NON_BLOCKING);
    cr_assert(!vp_api_copies_matter());
    cu_ok(cuDevicePrimaryCtxRetain(&two, 1));
    vp_api_context_created(two, true);
    cr_assert(vp_api_copies_matter());
    cu_ok(cuDevicePrimaryCtxRetain(&three, 2));
    vp_api_context_created(three, true);
    cu_ok(cuCtxSetCurrent(two));
    CUdeviceptr there = door_malloc(1 << 20);
    cu_ok(cuCtxSetCurrent(one));
    cr_assert_eq(access_of(here, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);

    /* While a stream captures, too, and that goes on. */
    CUstreamCaptureStatus status;
    cu_ok(door_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    struct vp_copy_end dst = {.ptr = there}, src = {.ptr = here};
    cr_assert_eq(vp_api_copy_node(one, &dst, &src), VP_COPY_AS_IT_IS);
    cr_assert_eq(access_of(here, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(access_of(there, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(access_of(here, 2), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    /* Of a node that is there it is not known in whose context it runs. */
    cr_assert_eq(vp_api_copy_node(NULL, &dst, &dst), VP_COPY_AS_IT_IS);
    cr_assert_eq(access_of(here, 2), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    cr_assert_eq(access_of(there, 2), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(vp_api_copy_node(three, &dst, &src), VP_COPY_AS_IT_IS);
    cr_assert_eq(access_of(here, 2), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cr_assert_eq(access_of(there, 2), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cu_ok(cuStreamIsCapturing(stream, &status));
    cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    cu_ok(door_end_capture(stream, NULL));
    door_close();
}

/* Also of a range that begins in the program's own mappings, beside the pool's: the driver would unmap all of it. */
Test(api, no_range_reaches_the_pools_mappings) {
    door_open("capacity=64M,granularity=64K");
    const CUdeviceptr block = door_malloc(1 << 20);
    const struct vp_memory *mem = &vp_state.pools[0]->mem;
    const struct vp_space *space;
    CUdeviceptr low = UINTPTR_MAX, high = 0;
    vp_list_each(space, &mem->spaces, link) {
        low = space->base < low ? space->base : low;
        high = space->base + space->size > high ? space->base + space->size : high;
    }
    cr_assert_eq(vp_api_mapped_address(low - 65536, 65536, false), low - 65536);
    cr_assert_neq(vp_api_mapped_address(low - 65536, 65537, false), low - 65536);
    cr_assert_neq(vp_api_mapped_address(low - 65536, high - low + 131072, false), low - 65536);
    cr_assert_neq(vp_api_mapped_address(low - 65536, SIZE_MAX, false), low - 65536);
    cr_assert_neq(vp_api_mapped_address(block, 0, false), block);
    cr_assert_neq(vp_api_mapped_address(high - 1, 65536, false), high - 1);
    cr_assert_eq(vp_api_mapped_address(high, 65536, false), high);
    cr_assert_neq(vp_api_mapped_address(0, SIZE_MAX, false), 0);
    cr_assert_eq(vp_api_mapped_address(0, 0, false), 0);
    cu_ok(door_free(block));
    door_close();
}

/* Nor is the pool's memory bound to what several devices write at once, but for what CUDA would bind. */
Test(api, only_memory_in_a_streams_order_is_bound) {
    door_open("capacity=64M,granularity=64K");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr plain = door_malloc(1 << 20), ordered = door_take(1 << 20, s);
    cr_assert_neq(vp_api_mapped_address(plain, 65536, true), plain);
    cr_assert_eq(vp_api_mapped_address(ordered, 65536, true), ordered);
    cr_assert_neq(vp_api_mapped_address(ordered, 65536, false), ordered);
    cr_assert_eq(vp_api_mapped_address(ordered, 1 << 20, true), ordered);
    cr_assert_neq(vp_api_mapped_address(ordered, (1 << 20) + 65536, true), ordered, "what lies behind is another's");
    cr_assert_neq(vp_api_mapped_address(ordered + 65536, 1 << 20, true), ordered + 65536);
    cu_ok(door_free(plain));
    cu_ok(door_free_async(ordered, s));
    cr_assert_neq(vp_api_mapped_address(plain, 65536, true), plain);
    cr_assert_neq(vp_api_mapped_address(ordered, 65536, true), ordered);
    door_close();
}
