/* What the doors call: which requests are served, which are left to CUDA, and what the answers are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api_test.h"

#include "process/state.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- what is CUDA's to answer ---- */

Test(api, zero_and_null_go_to_cuda) {
    CUdeviceptr ptr = 1, none = 0;
    door_open(SIM);
    CUstream s = door_stream(0);
    cr_assert(door_alloc(&ptr, 0) == CUDA_ERROR_INVALID_VALUE && !door_served);
    cr_assert(door_alloc(NULL, 512) == CUDA_ERROR_INVALID_VALUE && !door_served);
    CUresult plain = cuMemAllocAsync(&none, 0, s);
    cr_assert(door_alloc_async(&none, 0, NULL, s) == plain && !door_served);
    cr_assert(door_alloc_async(NULL, 512, NULL, s) == CUDA_ERROR_INVALID_VALUE && !door_served);
    cr_assert(door_free(0) == CUDA_SUCCESS && !door_served);
    cr_assert(door_free_async(0, s) == cuMemFreeAsync(0, s) && !door_served);
    cr_assert_eq(ptr, 0);
    door_close();
}

Test(api, foreign_pointers_go_to_cuda) {
    CUdeviceptr plain, async;
    door_open(SIM);
    CUstream s = door_stream(0);
    door_malloc(512);
    cu_ok(cuMemAlloc(&plain, 4 * KiB));
    cu_ok(cuMemAllocAsync(&async, 4 * KiB, s));
    cr_assert(door_free(async) == CUDA_SUCCESS && !door_served);
    cr_assert(door_free_async(plain, s) == CUDA_SUCCESS && !door_served);
    cr_assert(door_free(0x1000) == CUDA_ERROR_INVALID_VALUE && !door_served);
    door_close();
}

Test(api, a_second_free_and_an_interior_one_are_errors) {
    door_open(SIM);
    CUstream s = door_stream(0);
    CUdeviceptr a = door_malloc(MiB), b = door_take(3000, s);
    cr_assert_eq(door_free(a + 512), CUDA_ERROR_INVALID_VALUE);
    cr_assert_neq(door_free_async(b + 8, s), CUDA_SUCCESS);
    cu_ok(door_free(a));
    cr_assert_eq(door_free(a), CUDA_ERROR_INVALID_VALUE);
    cu_ok(door_free_async(b, s));
    cr_assert_neq(door_free_async(b, s), CUDA_SUCCESS);
    cr_assert_eq(vp_pool_stats(pool_of(0)).frees, 2);
    door_close();
}

/* As by CUDA, which two H200s were asked; another device's context that does not know of it yet goes on. */
Test(api, an_error_that_stays_is_told_by_each_call) {
    static const char *const calls[] = {"cuCtxSynchronize", "cuMemAlloc", "cuMemAllocAsync"};
    CUdeviceptr ptr;
    CUcontext two;
    door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=2");
    CUdeviceptr mine = door_malloc(MiB);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        vp_sim_fail(calls[i], -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(door_synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(door_alloc(&ptr, MiB), CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(door_alloc_async(&ptr, MiB, NULL, s), CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(door_free(mine), CUDA_ERROR_ILLEGAL_ADDRESS);
    cu_ok(door_primary(&two, 1));
    cu_ok(cuCtxSetCurrent(two));
    CUdeviceptr theirs = door_malloc(MiB);
    /* Any other error is over with its call. */
    vp_sim_fail("cuCtxSynchronize", 1, CUDA_ERROR_NOT_PERMITTED);
    cr_assert_eq(door_synchronize(), CUDA_ERROR_NOT_PERMITTED);
    cu_ok(door_free(theirs));
    cu_ok(door_free(door_malloc(MiB)));
    door_close();
}

/* Though another is current: that goes on, unless it answers so, too. */
Test(api, an_error_that_stays_is_of_the_context_waited_for) {
    CUdeviceptr ptr;
    CUcontext two, one = door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=2");
    CUdeviceptr mine = door_malloc(MiB), other = door_malloc(MiB), last = door_malloc(MiB);
    cu_ok(door_primary(&two, 1));
    cu_ok(cuCtxSetCurrent(two));
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(cuCtxSetCurrent(one));
    vp_sim_fail("cuStreamSynchronize", -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(door_stream_synchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    cu_ok(door_free(mine));
    vp_api_failed(VP_WAITED_CONTEXT, two, CUDA_ERROR_ILLEGAL_ADDRESS);
    vp_api_failed(VP_WAITED_EVENT, NULL, CUDA_ERROR_ILLEGAL_ADDRESS);
    cu_ok(door_free(other));
    cu_ok(door_free(door_malloc(MiB)));
    vp_sim_fail("cuMemAlloc", -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    cu_ok(cuCtxSetCurrent(two));
    cr_assert_eq(door_alloc(&ptr, MiB), CUDA_ERROR_ILLEGAL_ADDRESS);
    cu_ok(cuCtxSetCurrent(one));
    vp_sim_fail("cuStreamQuery", -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    vp_api_failed(VP_WAITED_EVENT, NULL, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(door_free(last), CUDA_ERROR_ILLEGAL_ADDRESS);
    door_close();
}

/* Either free takes memory of either kind, as in CUDA. */
Test(api, either_free_will_do) {
    door_open(SIM);
    CUstream s = door_stream(0);
    CUdeviceptr a = door_malloc(MiB), b = door_take(MiB, s);
    cr_assert(door_free_async(a, s) == CUDA_SUCCESS && door_served);
    cr_assert(door_free(b) == CUDA_SUCCESS && door_served);
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 0);
    door_close();
}

Test(api, without_a_context_cuda_answers) {
    CUdeviceptr ptr, ours;
    door_open(SIM);
    ours = door_malloc(MiB);
    cu_ok(cuCtxSetCurrent(NULL));
    cr_assert(door_alloc(&ptr, 512) == CUDA_ERROR_INVALID_CONTEXT && !door_served);
    cr_assert(door_alloc_async(&ptr, 512, NULL, 0) == CUDA_ERROR_INVALID_CONTEXT && !door_served);
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, MiB);
    cr_assert(vp_pool_find(pool_of(0), ours));
    door_close();
}

Test(api, nothing_is_served_before_it_is_open) {
    CUdeviceptr ptr;
    size_t free_bytes = 5;
    cr_assert(!vp_api_ready() && vp_api_alloc(&ptr, 512) == VP_NOT_OURS && vp_api_free(512) == VP_NOT_OURS &&
              !door_relieve());
    cr_assert(vp_api_mem_info(&free_bytes, NULL) == VP_NOT_OURS);
    vp_api_exit();
    cr_assert_eq(free_bytes, 5);
}

static void *lacking(const char *name, void *which) {
    return strcmp(name, which) ? doors_lookup(name, NULL) : NULL;
}

Test(api, a_driver_that_lacks_a_call_is_left_alone) {
    CUdeviceptr ptr;
    cr_assert_eq(vp_api_open(lacking, (char *)"cuMemMap"), -ENOSYS);
    cr_assert(!vp_api_ready() && vp_api_alloc(&ptr, 512) == VP_NOT_OURS);
    cr_assert_eq(vp_api_open(doors_lookup, NULL), -ENODEV, "and it stays so");
}

Test(api, without_memory_pools_synchronous_calls_are_served) {
    CUdeviceptr ptr;
    CUcontext ctx;
    cr_assert(!vp_sim_configure(SIM));
    cu_ok(cuInit(0));
    vp_sim_fail("cuDeviceGetDefaultMemPool", -1, CUDA_ERROR_NOT_SUPPORTED);
    cr_assert(!vp_api_open(doors_lookup, NULL));
    cu_ok(cuDevicePrimaryCtxRetain(&ctx, 0));
    cu_ok(cuCtxSetCurrent(ctx));
    cu_ok(door_free(door_malloc(MiB)));
    cu_ok(door_alloc_async(&ptr, MiB, NULL, 0));
    cr_assert(!door_served);
    door_close();
}

Test(api, the_native_policy_passes_everything_on) {
    CUdeviceptr a, b;
    setenv("VPOOL_POLICY", "native", 1);
    door_open(SIM);
    cu_ok(door_alloc(&a, MiB));
    cr_assert(!door_served);
    cu_ok(door_alloc_async(&b, MiB, NULL, 0));
    cr_assert(!door_served);
    cu_ok(door_free(a));
    cu_ok(door_free_async(b, 0));
    cr_assert_null(vp_state.pools[0]);
    door_close();
}

Test(api, the_vpmm_policy_leaves_small_blocks_to_cuda) {
    CUdeviceptr small;
    setenv("VPOOL_POLICY", "vpmm", 1);
    door_open(SIM);
    cu_ok(door_alloc(&small, 4 * KiB));
    cr_assert(!door_served);
    CUdeviceptr large = door_malloc(MiB);
    cu_ok(door_free(large));
    cu_ok(door_free(small));
    door_close();
}

Test(api, a_device_without_virtual_memory_is_left_to_cuda) {
    CUdeviceptr ptr;
    door_open("capacity=64M,granularity=64K,vmm=0");
    for (int i = 0; i < 3; i++) {
        cu_ok(door_alloc(&ptr, MiB));
        cr_assert(!door_served);
        cu_ok(door_free(ptr));
    }
    door_close();
}

/* ---- errors ---- */

Test(api, errors_are_those_of_the_call_that_failed) {
    const struct {
        const char *call;
        CUresult injected;
    } cases[] = {
        {"cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY},    {"cuMemCreate", CUDA_ERROR_LAUNCH_FAILED},
        {"cuMemMap", CUDA_ERROR_LAUNCH_FAILED},       {"cuMemSetAccess", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"cuMemSetAccess", CUDA_ERROR_OUT_OF_MEMORY},
    };
    door_open(SIM);
    CUstream s = door_stream(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int async = 0; async < 2; async++) {
            CUdeviceptr ptr = 1;
            size_t size = (2 * i + (size_t)async + 1) * MiB,
                   held = vp_state.pools[0] ? vp_pool_stats(pool_of(0)).held_bytes : 0;
            vp_sim_fail(cases[i].call, -1, cases[i].injected);
            CUresult res = async ? door_alloc_async(&ptr, size, NULL, s) : door_alloc(&ptr, size);
            vp_sim_fail(cases[i].call, 0, CUDA_SUCCESS);
            cr_assert(res == cases[i].injected && door_served, "%s %d: %d", cases[i].call, cases[i].injected, res);
            cr_assert_eq(ptr, 1);
            cr_assert_eq(vp_pool_stats(pool_of(0)).held_bytes, held);
            cr_assert(vp_pool_check(pool_of(0), stderr));
            cu_ok(door_free(door_malloc(size)));
            cu_ok(cuCtxSynchronize());
        }
    door_close();
}

/* ---- out of memory ---- */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What can never be had is refused at once, whatever is pending. */
Test(api, impossible_sizes_are_refused_at_once) {
    CUdeviceptr ptr = 0;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    vp_sim_hold(s);
    CUdeviceptr a = door_take(8 * MiB, s);
    cu_ok(cuMemsetD8Async(a, 1, MiB, s));
    cu_ok(door_free_async(a, s));
    double begin = seconds();
    const size_t sizes[] = {100 * MiB, (size_t)1 << 45, SIZE_MAX / 2, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cr_assert(door_alloc(&ptr, sizes[i]) == CUDA_ERROR_OUT_OF_MEMORY && door_served);
        cr_assert(door_alloc_async(&ptr, sizes[i], NULL, s) == CUDA_ERROR_OUT_OF_MEMORY && door_served);
    }
    cr_assert_lt(seconds() - begin, 1);
    cr_assert_eq(vp_pool_stats(pool_of(0)).ooms, 8);
    vp_sim_release(s);
    door_close();
}

static void *release_soon(void *stream) {
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    vp_sim_release(stream);
    return NULL;
}

/* So many bytes, of which some are free only once held-up work is over. */
static void served_after_pending_work(size_t pending, size_t wanted, bool sync) {
    pthread_t thread;
    CUdeviceptr b;
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    vp_sim_hold(f);
    CUdeviceptr a = door_take(pending, f);
    cu_ok(cuMemsetD8Async(a, 1, MiB, f));
    cu_ok(door_free_async(a, f));
    cr_assert(!pthread_create(&thread, NULL, release_soon, f));
    cu_ok(sync ? door_alloc(&b, wanted) : door_alloc_async(&b, wanted, NULL, s));
    pthread_join(thread, NULL);
    cu_ok(door_free_async(b, s));
    cu_ok(cuCtxSynchronize());
}

/* Pending work will free what is asked for: the host waits for it rather than fail. */
Test(api, out_of_memory_comes_after_pending_work) {
    door_open("capacity=16M,granularity=64K,lazy=0");
    for (int sync = 0; sync < 2; sync++)
        served_after_pending_work(12 * MiB, 12 * MiB, sync);
    door_close();
}

/* Then CUDA would move managed memory to the host for the rest, which is not called free. */
Test(api, managed_memory_makes_way_once_pending_work_is_over) {
    for (int sync = 0; sync < 2; sync++) {
        CUdeviceptr managed;
        door_open("backing=ledger,capacity=10G,lazy=0,managed=moves");
        cu_ok(cuMemAllocManaged(&managed, 6 * GiB, CU_MEM_ATTACH_GLOBAL));
        served_after_pending_work(3 * GiB, 9 * GiB, sync);
        door_close();
    }
}

/* Memory freed as small blocks serves large ones, and the reverse. */
Test(api, all_idle_memory_serves_any_size) {
    enum { BLOCKS = 400 };
    static CUdeviceptr block[BLOCKS];
    door_open("capacity=16M,granularity=64K,lazy=0");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BLOCKS; i++)
            block[i] = door_take(36 * KiB, 0);
        for (int i = 0; i < BLOCKS; i++)
            cu_ok(door_free_async(block[i], 0));
        cu_ok(cuCtxSynchronize());
        CUdeviceptr all = door_take(14 * MiB, 0);
        cu_ok(door_free_async(all, 0));
        cu_ok(cuCtxSynchronize());
    }
    door_close();
}

/* Somebody else's allocation fails while the pool holds idle memory. */
Test(api, relieve_gives_idle_memory_to_others) {
    CUdeviceptr native;
    door_open(SIM);
    /* Not so much that it goes back by itself. */
    CUdeviceptr a = door_malloc(30 * MiB), b = door_malloc(20 * MiB);
    cu_ok(door_free(a));
    cr_assert_eq(cuMemAlloc(&native, 40 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert(door_relieve());
    cu_ok(cuMemAlloc(&native, 40 * MiB));
    cr_assert(!door_relieve(), "nothing more is idle");
    cu_ok(cuMemFree(native));
    cu_ok(door_free(b));
    door_close();
}

/* The host's memory is what is missing, unless the device has not even enough for its tables of that; and where the
 * device has enough, a pool of CUDA's that may be no larger. */
Test(api, relieve_keeps_idle_memory_that_is_not_lacking) {
    struct vp_relief relief = {0}, of_a_pool = {0};
    door_open("backing=ledger,capacity=4G");
    cu_ok(door_free(door_malloc(30 * MiB)));
    cr_assert(!vp_api_relieve_more(&relief, VP_HOST_MEMORY));
    while (vp_api_relieve_more(&of_a_pool, 100 * MiB))
        continue;
    cr_assert_eq(vp_sim_used_vmm(0), 30 * MiB);
    vp_sim_others(0, 4000 * MiB);
    cr_assert(vp_api_relieve_more(&relief, VP_HOST_MEMORY));
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    door_close();
}

static void *release_later(void *stream) {
    /* The pool asks what has completed: it waits. */
    for (unsigned long asked = vp_sim_calls("cuEventQuery"); vp_sim_calls("cuEventQuery") < asked + 20;)
        sched_yield();
    vp_sim_release(stream);
    return NULL;
}

/* What is pending is waited for when nothing is idle, each time for what is missing, and not after it is gone. */
Test(api, relieve_waits_for_what_is_pending) {
    struct vp_relief relief = {0};
    pthread_t thread;

    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(8 * MiB), b = door_malloc(20 * MiB);
    cu_ok(door_free(a));
    vp_sim_hold(s);
    cu_ok(cuMemsetD8Async(b, 1, MiB, s));
    cu_ok(door_free(b));
    cr_assert(vp_api_relieve_more(&relief, 0), "8 MiB are idle");
    cr_assert_eq(vp_sim_used_vmm(0), 20 * MiB);
    cr_assert(!pthread_create(&thread, NULL, release_later, s));
    cr_assert(vp_api_relieve_more(&relief, 0), "20 MiB are, after a wait");
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    cr_assert(!vp_api_relieve_more(&relief, 0));
    pthread_join(thread, NULL);
    door_close();
}

/* The calling thread may be the one that captures: it does not wait for the end of that for long, and takes no barrier.
 * Beside a blocking stream that captures nobody knows whether work is over; beside another each stream is asked. */
Test(api, relieve_outlives_no_capture) {
    door_open(SIM);
    for (int blocking = 0; blocking < 2; blocking++) {
        struct vp_relief relief = {0};
        CUstream s = door_stream(blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        CUdeviceptr a = door_malloc(8 * MiB);
        cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        cu_ok(door_free(a));
        cr_assert_eq(vp_api_relieve_more(&relief, 0), !blocking);
        cu_ok(door_end_capture(s, NULL));
        relief = (struct vp_relief){0};
        cr_assert_eq(vp_api_relieve_more(&relief, 0), blocking);
        cr_assert_eq(vp_sim_used_vmm(0), 0);
    }
    door_close();
}

/* ---- questions ---- */

Test(api, free_memory_counts_what_the_pool_holds_idle) {
    size_t before, now, total;
    door_open(SIM);
    cu_ok(cuMemGetInfo(&before, &total));
    CUdeviceptr a = door_malloc(8 * MiB), b = door_malloc(4 * MiB);
    const size_t live[] = {12 * MiB, 4 * MiB, 0};
    for (int i = 0; i < 3; i++) {
        if (i)
            cu_ok(door_free(i == 1 ? a : b));
        cr_assert(!vp_api_mem_info(&now, &total));
        cr_assert_eq(now, before - live[i]);
    }
    cr_assert_eq(total, 64 * MiB);
    cr_assert(!vp_api_mem_info(NULL, NULL));
    door_close();
}

Test(api, the_range_of_an_address_is_the_allocation) {
    CUdeviceptr base = 0;
    size_t size = 0;
    door_open(SIM);
    CUdeviceptr a = door_malloc(5 * MiB + 100), b = door_take(700, 0);
    cr_assert(!vp_api_address_range(&base, &size, a + 3 * MiB) && base == a && size == 5 * MiB + 100);
    cr_assert(!vp_api_address_range(&base, NULL, b) && base == b);
    cr_assert(!vp_api_address_range(NULL, &size, b + 699) && size == 700);
    cr_assert(vp_api_address_range(NULL, NULL, b) == VP_NOT_OURS);
    cr_assert(vp_api_address_range(&base, &size, 0x1000) == VP_NOT_OURS);
    cu_ok(door_free(a));
    cr_assert(vp_api_address_range(&base, &size, a) == VP_NOT_OURS);
    door_close();
}

static uint64_t attribute(CUpointer_attribute which, CUdeviceptr ptr) {
    uint64_t value = 0;
    cr_assert(!vp_api_pointer_attribute(&value, which, ptr));
    return value;
}

Test(api, attributes_show_the_allocation) {
    uint64_t value;
    CUcontext ctx = door_open(SIM);
    CUdeviceptr a = door_malloc(MiB + 1), b = door_take(3000, 0);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a + 5), a);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, a), MiB + 1);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, a), (uintptr_t)ctx);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, b), 0);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a), 0);
    cr_assert_eq(attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, b), (uintptr_t)default_pool(0));
    cr_assert(vp_api_pointer_attribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a) == VP_NOT_OURS);
    cr_assert(vp_api_pointer_attribute(&value, CU_POINTER_ATTRIBUTE_RANGE_SIZE, 0x1000) == VP_NOT_OURS);
    uint64_t id = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, a);
    cr_assert_neq(id, attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, b));
    cr_assert_eq(id, attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, a + MiB));
    cu_ok(door_free(a));
    cr_assert_eq(door_malloc(MiB + 1), a);
    cr_assert_neq(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, a), id, "registration caches tell a reused address by it");
    door_close();
}

Test(api, pitch) {
    CUdeviceptr ptr = 0;
    size_t pitch = 0, size = 0;
    door_open(SIM);
    cr_assert(!vp_api_alloc_pitch(&ptr, &pitch, 1000, 33, 4));
    cr_assert_eq(pitch, 1024);
    cr_assert(!vp_api_address_range(NULL, &size, ptr) && size == 33 * 1024);
    pitch = 7;
    cr_assert(vp_api_alloc_pitch(&ptr, &pitch, 1 * MiB, 1000, 16) == CUDA_ERROR_OUT_OF_MEMORY && pitch == 1 * MiB);
    cr_assert(vp_api_alloc_pitch(&ptr, &pitch, 1000, 33, 5) == VP_NOT_OURS);
    cr_assert(vp_api_alloc_pitch(&ptr, &pitch, 0, 33, 4) == VP_NOT_OURS);
    cr_assert(vp_api_alloc_pitch(&ptr, NULL, 1000, 33, 4) == VP_NOT_OURS);
    cr_assert(vp_api_alloc_pitch(&ptr, &pitch, SIZE_MAX / 2, SIZE_MAX / 2, 4) == VP_NOT_OURS);
    door_close();
}

/* Whoever asks the environment while another thread changes it may read what is gone. */
Test(api, the_rank_is_the_one_of_the_first_use) {
    char rank[16];
    setenv("RANK", "3", true);
    setenv("WORLD_SIZE", "8", true);
    door_open("capacity=64M");
    unsetenv("RANK");
    cr_assert(vp_process_rank(rank, sizeof rank));
    cr_assert_str_eq(rank, "3");
    door_close();
}
