/* A device's memory goes to the host and comes back: bytes and addresses, what is refused, what may be done meanwhile,
 * and each driver call failing in turn. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vpool.h>

/* The one for each of many faults: a sixteenth of what the others have, which takes the kernel a third of the time. */
static const char COARSE[] = "capacity=4M,granularity=64K,lazy=30,timeout=300",
                  DEVICE[] = "capacity=64M,granularity=64K,lazy=30,timeout=300,devices=2";

enum { BLOCKS = 12 };

static struct {
    CUdeviceptr addr;
    size_t size;
    CUstream stream; /* NULL: cudaMalloc */
} block[BLOCKS];

static unsigned char pattern(int i, size_t at) {
    return (unsigned char)(i * 31 + at / 4096 + 1);
}

static void fill(int i) {
    for (size_t at = 0; at < block[i].size; at += 512)
        ((unsigned char *)block[i].addr)[at] = pattern(i, at);
    ((unsigned char *)block[i].addr)[block[i].size - 1] = pattern(i, block[i].size - 1);
}

static void check(int i, const char *when) {
    for (size_t at = 0; at < block[i].size - 1; at += 512)
        if (((unsigned char *)block[i].addr)[at] != pattern(i, at))
            cr_assert(false, "%s: block %d has changed at %zu", when, i, at);
    cr_assert_eq(((unsigned char *)block[i].addr)[block[i].size - 1], pattern(i, block[i].size - 1));
}

static void check_all(const char *when) {
    for (int i = 0; i < BLOCKS; i++)
        if (block[i].size)
            check(i, when);
    cr_assert(vp_pool_check(pool_of(0), stderr), "%s", when);
}

static void take(int i, size_t size, CUstream s) {
    block[i].addr = s ? door_take(size, s) : door_malloc(size);
    block[i].size = size;
    block[i].stream = s;
    fill(i);
}

static void give(int i) {
    cu_ok(block[i].stream ? door_free_async(block[i].addr, block[i].stream) : door_free(block[i].addr));
    block[i].size = 0;
}

/* Blocks of all kinds, some freed, ranges stitched: the pool has holes, zombies, and chunks that are shared. */
static void furnish_with(size_t unit) {
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < BLOCKS; i++)
        take(i, i % 4 == 3 ? 300 : (size_t)(i + 1) * unit, i % 2 ? s : NULL);
    for (int i = 0; i < BLOCKS; i += 3)
        give(i);
    cu_ok(door_synchronize());
    take(0, 18 * unit, NULL);
    take(3, unit + unit / 2, s);
    cu_ok(door_synchronize());
}

static void furnish(void) {
    furnish_with(500 * KiB);
}

Test(pause, contents_and_addresses_come_back) {
    door_open(DEVICE);
    furnish();
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(vpool_pause(0), 0);
        cr_assert_eq(vp_sim_used_vmm(0), 0, "the device is empty");
        cr_assert_eq(pool_of(0)->mem.stats.held_bytes, 0);
        cr_assert(vp_pool_check(pool_of(0), stderr));
        cr_assert_eq(vpool_pause(0), -EALREADY);
        cr_assert_eq(vpool_resume(0), 0);
        check_all("after it has resumed");
        cr_assert_eq(vpool_resume(0), -EALREADY);
    }
    door_close();
}

Test(pause, the_device_is_the_others_meanwhile) {
    CUdeviceptr native = 0;
    door_open(DEVICE);
    furnish();
    uint64_t held = pool_of(0)->mem.stats.held_bytes;
    cr_assert_eq(vpool_pause(0), 0);
    cu_ok(cuMemAlloc(&native, 60 * MiB));
    cr_assert_eq(vpool_resume(0), -ENOMEM);
    cr_assert_eq(vp_sim_used_vmm(0), 0, "all of it or nothing");
    cr_assert_eq(vpool_resume(0), -ENOMEM);
    cu_ok(cuMemFree(native));
    cr_assert_eq(vpool_resume(0), 0);
    cr_assert_leq(pool_of(0)->mem.stats.held_bytes, held);
    check_all("after it has found room");
    door_close();
}

Test(pause, it_may_allocate_and_free_while_it_sleeps) {
    size_t unused = 0, total = 0;
    door_open(DEVICE);
    furnish();
    CUstream s = block[1].stream;
    cr_assert_eq(vpool_pause(0), 0);
    give(1);
    give(4);
    give(5);
    cr_assert(!door_mem_info(&unused, &total));
    cr_assert_leq(unused, total);
    /* The sizes and the stream of what has just been freed: its bytes are not there. */
    take(1, 2 * 500 * KiB, s);
    take(5, 6 * 500 * KiB, s);
    take(4, 5 * 500 * KiB, NULL);
    check(1, "asleep");
    check(4, "asleep");
    check(5, "asleep");
    cr_assert(vp_pool_check(pool_of(0), stderr));
    give(5);
    cu_ok(door_pool_trim(default_pool(0), 0));
    cr_assert_eq(vpool_resume(0), 0);
    check_all("awake");
    for (int i = 0; i < BLOCKS; i++)
        if (block[i].size)
            give(i);
    cu_ok(door_synchronize());
    vpool_trim(0, 0);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    door_close();
}

/* What sleeps may have free bytes beside it, and more since it was put to sleep. */
Test(pause, what_is_alive_meanwhile_is_not_called_free) {
    size_t unused = 0, total = 0;
    door_open(DEVICE);
    furnish();
    CUstream s = block[1].stream;
    cr_assert_eq(vpool_pause(0), 0);
    take(0, 8 * MiB, s);
    cr_assert(!door_mem_info(&unused, &total));
    cr_assert_leq(unused, total - 8 * MiB, "%zu are free", unused);
    for (int i = 1; i < BLOCKS; i++)
        if (block[i].size)
            give(i);
    take(1, 20 * MiB, s);
    cr_assert(!door_mem_info(&unused, &total));
    cr_assert_leq(unused, total - 28 * MiB, "%zu are free", unused);
    take(2, 6 * MiB, s);
    give(2);
    cu_ok(cuStreamSynchronize(s));
    cu_ok(door_pool_trim(default_pool(0), 34 * MiB));
    cr_assert_geq(pool_of(0)->mem.stats.held_bytes, 34 * MiB, "it was to keep as much");
    cr_assert_eq(vpool_resume(0), 0);
    check_all("awake");
    door_close();
}

/* The cache would park it, as it has served the size again and again. */
Test(pause, a_streams_cache_hands_out_nothing_that_sleeps) {
    door_open(DEVICE);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 50; i++)
        cu_ok(door_free_async(door_take(2 * MiB, s), s));
    take(0, 2 * MiB, s);
    cr_assert_eq(vpool_pause(0), 0);
    give(0);
    take(1, 2 * MiB, s);
    check_all("asleep");
    cr_assert_eq(vpool_resume(0), 0);
    check_all("awake");
    door_close();
}

/* A chunk of which all was freed meanwhile is not made again, and its addresses are others'. */
Test(pause, what_was_freed_does_not_come_back) {
    door_open(DEVICE);
    take(0, 8 * MiB, NULL);
    take(1, 8 * MiB, NULL);
    cr_assert_eq(vpool_pause(0), 0);
    give(0);
    cr_assert_eq(vpool_resume(0), 0);
    cr_assert_leq(vp_sim_used_vmm(0), 8 * MiB);
    check_all("awake");
    take(2, 20 * MiB, NULL);
    cr_assert_eq(vpool_pause(0), 0);
    cr_assert_eq(vpool_resume(0), 0);
    check_all("after the second time");
    door_close();
}

Test(pause, dropped_contents_are_not_copied) {
    struct vpool_pause how = {.size = sizeof how, .contents = VPOOL_DROP};
    door_open(DEVICE);
    furnish();
    unsigned long copies = vp_sim_calls("cuMemcpyDtoHAsync");
    cr_assert_eq(vpool_pause_with(0, &how), 0);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    cr_assert_eq(vpool_resume(0), 0);
    cr_assert_eq(vp_sim_calls("cuMemcpyDtoHAsync"), copies);
    for (int i = 0; i < BLOCKS; i++)
        if (block[i].size)
            fill(i);
    check_all("written anew");
    door_close();
}

Test(pause, contents_may_go_to_a_file) {
    char name[] = "/tmp/vpool-pause-XXXXXX";
    door_open(DEVICE);
    furnish();
    int fd = mkstemp(name);
    struct vpool_pause how = {.size = sizeof how, .contents = VPOOL_FILE, .file = name};
    cr_assert_eq(vpool_pause_with(0, &how), -EEXIST, "it is not written over");
    check_all("refused");
    unlink(name);
    close(fd);
    cr_assert_eq(vpool_pause_with(0, &how), 0);
    cr_assert(access(name, F_OK), "it has no name");
    cr_assert_eq(vpool_resume(0), 0);
    check_all("from a file");
    cr_assert_eq(vpool_pause(0), 0);
    cr_assert_eq(vpool_resume(0), 0);
    check_all("from memory");
    door_close();
}

/* ---- refused ---- */

Test(pause, a_file_beyond_the_limit_is_refused) {
    char name[] = "/tmp/vpool-pause-XXXXXX";
    struct rlimit before, small;
    door_open(DEVICE);
    furnish();
    close(mkstemp(name));
    unlink(name);
    struct vpool_pause how = {.size = sizeof how, .contents = VPOOL_FILE, .file = name};
    cr_assert(!getrlimit(RLIMIT_FSIZE, &before));
    small = (struct rlimit){.rlim_cur = MiB, .rlim_max = before.rlim_max};
    cr_assert(!setrlimit(RLIMIT_FSIZE, &small));
    cr_assert_eq(vpool_pause_with(0, &how), -EFBIG, "and no SIGXFSZ ends the program");
    cr_assert(!setrlimit(RLIMIT_FSIZE, &before));
    cr_assert(access(name, F_OK), "nothing is left");
    check_all("refused");
    door_close();
}

static void refused(int err) {
    struct vpool_pause how = {.size = sizeof how};
    unsigned long unmaps = vp_sim_calls("cuMemUnmap");
    cr_assert_eq(vpool_pause_with(0, &how), err);
    cr_assert(how.reason && *how.reason);
    cr_assert_eq(vp_sim_calls("cuMemUnmap"), unmaps);
    check_all("refused");
}

Test(pause, refused_while_a_stream_captures) {
    door_open(DEVICE);
    furnish();
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    refused(-EBUSY);
    cu_ok(door_end_capture(s, NULL));
    cr_assert_eq(vpool_pause(0), 0);
    cr_assert_eq(vpool_resume(0), 0);
    check_all("after the capture");
    door_close();
}

Test(pause, resumed_while_a_stream_captures) {
    door_open(DEVICE);
    furnish();
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cr_assert_eq(vpool_pause(0), 0);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    cr_assert_eq(vpool_resume(0), 0);
    cu_ok(door_end_capture(s, NULL));
    check_all("after the capture");
    door_close();
}

Test(pause, refused_for_what_others_can_reach) {
    CUipcMemHandle handle;
    door_open(DEVICE);
    furnish();
    const CUdeviceptr freed = door_malloc(MiB);
    cu_ok(door_free(freed));
    vp_api_registered(0x1000);
    cr_assert_eq(vpool_pause(0), 0, "that is nothing of the pool's");
    cr_assert_eq(vpool_resume(0), 0);
    for (size_t i = 0; i < 2; i++) {
        /* Inside; and where nothing is live, as pages may begin that are rounded down. */
        vp_api_registered(i ? freed : block[0].addr + 100);
        refused(-ENOTSUP);
        vp_state.registered = 0;
    }
    vp_api_multicast(block[0].addr);
    refused(-ENOTSUP);
    vp_state.multicast = 0;
    vp_api_ranks();
    refused(-ENOTSUP);
    vp_state.ranks = false;
    take(2, 4 * MiB, NULL);
    cu_ok(vp_api_ipc_get(&handle, block[2].addr));
    refused(-ENOTSUP);
    give(2);
    cu_ok(door_synchronize());
    vp_exports_settle(pool_of(0));
    cr_assert_eq(vpool_pause(0), 0, "it is exported no more");
    cr_assert_eq(vp_api_ipc_get(&handle, block[0].addr), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(vpool_resume(0), 0);
    door_close();
}

Test(pause, a_device_that_is_not_done_is_not_paused) {
    struct vpool_pause how = {.size = sizeof how, .wait_ms = 30};
    door_open(DEVICE);
    furnish();
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    vp_sim_hold(s);
    cu_ok(cuMemsetD8Async(block[0].addr, 7, 100, s));
    cr_assert_eq(vpool_pause_with(0, &how), -ETIMEDOUT);
    cr_assert(how.reason && *how.reason);
    check(1, "not paused");
    vp_sim_release(s);
    cr_assert_eq(vpool_pause_with(0, &how), 0);
    cr_assert_eq(vpool_resume(0), 0);
    cr_assert_eq(*(unsigned char *)block[0].addr, 7);
    door_close();
}

static unsigned builds;
static CUresult(CUDAAPI *real_query)(CUevent event);
static CUresult(CUDAAPI *real_unmap)(CUdeviceptr addr, size_t size);

/* Another thread begins to build a range in parts, while this one waits for the device without the lock. */
static CUresult CUDAAPI begin_build(CUevent event) {
    if (builds == 3 || pool_of(0)->bound.under_way)
        return real_query(event);
    builds++;
    pool_of(0)->bound.under_way = true;
    return CUDA_ERROR_NOT_READY;
}

static void end_build(uint64_t waited_ns) {
    vp_wait_pause(waited_ns);
    pool_of(0)->bound.under_way = false;
}

static CUresult CUDAAPI no_build(CUdeviceptr addr, size_t size) {
    cr_assert(!pool_of(0)->bound.under_way);
    return real_unmap(addr, size);
}

/* What is half built is nobody's yet, and would be handed out without memory. */
Test(pause, no_range_is_half_built_when_the_device_sleeps) {
    door_open(DEVICE);
    furnish();
    real_query = vp_state.drv.cuEventQuery;
    real_unmap = vp_state.drv.cuMemUnmap;
    vp_state.drv.cuEventQuery = begin_build;
    vp_state.drv.cuMemUnmap = no_build;
    pool_of(0)->config.pause = end_build;
    cr_assert_eq(vpool_pause(0), 0);
    cr_assert(builds == 3 && !pool_of(0)->bound.under_way);
    cr_assert_eq(vpool_resume(0), 0);
    check_all("after it has resumed");
    door_close();
}

static CUdeviceptr others;
static unsigned looks;
static CUresult(CUDAAPI *real_info)(size_t *left, size_t *total);

static void *resume(void *unused) {
    (void)unused;
    cu_ok(cuMemFree(others));
    cr_assert_eq(vpool_resume(0), 0);
    return NULL;
}

/* The lock is let go to ask other processes, and another thread resumes meanwhile. */
static CUresult CUDAAPI let_another_resume(size_t *left, size_t *total) {
    pthread_t thread;
    if (++looks == 3) {
        vp_step_out();
        cr_assert(!pthread_create(&thread, NULL, resume, NULL));
        pthread_join(thread, NULL);
        vp_step_in();
    }
    return real_info(left, total);
}

Test(pause, of_two_threads_one_resumes) {
    static struct vp_ahead plan = {.ended = true};
    size_t left, total;
    door_open(DEVICE);
    furnish();
    pool_of(0)->ahead = &plan;
    cr_assert_eq(vpool_pause(0), 0);
    cr_assert_eq(plan.held_back, 1);
    cu_ok(cuMemGetInfo(&left, &total));
    cu_ok(cuMemAlloc(&others, left));
    real_info = vp_state.drv.cuMemGetInfo_v2;
    vp_state.drv.cuMemGetInfo_v2 = let_another_resume;
    cr_assert_eq(vpool_resume(0), -EALREADY);
    cr_assert(looks > 3 && plan.held_back == 0);
    check_all("after it has resumed");
    pool_of(0)->ahead = NULL;
    door_close();
}

Test(pause, wrong_arguments) {
    struct vpool_pause how = {.size = 8};
    cr_assert_eq(vpool_pause(0), -ENODEV);
    door_open(DEVICE);
    cr_assert_eq(vpool_pause(0), -ENODEV, "it has no pool yet");
    furnish();
    cr_assert_eq(vpool_pause(-1), -EINVAL);
    cr_assert_eq(vpool_resume(64), -EINVAL);
    cr_assert_eq(vpool_pause_with(0, NULL), -EINVAL);
    cr_assert_eq(vpool_pause_with(0, &how), -EINVAL);
    how = (struct vpool_pause){.size = sizeof how, .contents = 3};
    cr_assert_eq(vpool_pause_with(0, &how), -EINVAL);
    how.contents = VPOOL_FILE;
    cr_assert_eq(vpool_pause_with(0, &how), -EINVAL, "which file?");
    cr_assert_eq(vpool_resume(0), -EALREADY);
    check_all("as before");
    door_close();
}

/* ---- graphs, peers, contexts ---- */

Test(pause, a_graph_replays_afterwards) {
    CUgraph graph;
    CUgraphExec exec;
    door_open(DEVICE);
    furnish();
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    cu_ok(cuMemsetD8Async(block[0].addr, 99, block[0].size, s));
    cu_ok(door_end_capture(s, &graph));
    cu_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    cr_assert_eq(vpool_pause(0), 0);
    cr_assert_eq(vpool_resume(0), 0);
    check_all("awake");
    cu_ok(cuGraphLaunch(exec, s));
    cu_ok(cuStreamSynchronize(s));
    for (size_t at = 0; at < block[0].size; at++)
        if (((unsigned char *)block[0].addr)[at] != 99)
            cr_assert(false, "at %zu", at);
    cu_ok(cuGraphExecDestroy(exec));
    cu_ok(cuGraphDestroy(graph));
    door_close();
}

Test(pause, peers_that_come_while_it_sleeps_have_access) {
    unsigned long long flags = 0;
    const CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    CUcontext first = door_open(DEVICE);
    furnish();
    cr_assert_eq(vpool_pause(0), 0);
    CUcontext second = NULL;
    cu_ok(door_primary(&second, 1));
    cu_ok(cuCtxSetCurrent(second));
    cu_ok(door_enable_peer(first));
    cu_ok(cuCtxSetCurrent(first));
    cr_assert_eq(vpool_resume(0), 0);
    cu_ok(cuMemGetAccess(&flags, &there, block[0].addr));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    check_all("awake");
    door_close();
}

/* ---- faults ---- */

static const char *const calls[] = {"cuMemUnmap",        "cuMemRelease",      "cuMemCreate",     "cuMemMap",
                                    "cuMemSetAccess",    "cuStreamCreate",    "cuEventCreate",   "cuMemHostAlloc",
                                    "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuEventRecord",   "cuEventQuery",
                                    "cuCtxRecordEvent",  "cuCtxPushCurrent",  "cuCtxPopCurrent", "cuMemFreeHost",
                                    "cuStreamDestroy",   "cuEventDestroy"};

/* What has slept before gets larger chunks when it wakes. */
static void furnish_for_faults(void) {
    door_open(COARSE);
    furnish_with(125 * KiB / 4);
    cr_assert_eq(vpool_pause(0), 0);
    cr_assert_eq(vpool_resume(0), 0);
}

/* In a thread that has to enter a context. */
static int pause_from_outside(void) {
    CUcontext own;
    struct vpool_pause how = {.size = sizeof how, .wait_ms = 100};
    cu_ok(cuCtxGetCurrent(&own));
    cu_ok(cuCtxSetCurrent(NULL));
    int err = vpool_pause_with(0, &how);
    cu_ok(cuCtxSetCurrent(own));
    return err;
}

/* Sleeps and wakes, with one call failing, or that and all later ones for a while. */
static void with_fault(const char *call, long nth) {
    furnish_for_faults();
    vp_sim_fail(call, nth, CUDA_ERROR_UNKNOWN);
    int err = pause_from_outside();
    bool asleep = !err || err == -ENOTRECOVERABLE;
    if (!asleep) {
        cr_assert(vp_pool_check(pool_of(0), stderr), "%s %ld", call, nth);
        check_all(call);
        vp_sim_fail(call, 0, CUDA_SUCCESS);
        cr_assert_eq(vpool_pause(0), 0, "%s %ld: not even now", call, nth);
    }
    cr_assert(vp_pool_check(pool_of(0), stderr), "%s %ld", call, nth);
    err = vpool_resume(0);
    if (err) {
        cr_assert(vp_pool_check(pool_of(0), stderr), "%s %ld", call, nth);
        vp_sim_fail(call, 0, CUDA_SUCCESS);
        cr_assert_eq(vpool_resume(0), 0, "%s %ld: not even now", call, nth);
    }
    vp_sim_fail(call, 0, CUDA_SUCCESS);
    check_all(call);
    for (int i = 0; i < BLOCKS; i++)
        if (block[i].size)
            give(i);
    cu_ok(door_synchronize());
    door_close();
}

static unsigned long times(const char *call) {
    furnish_for_faults();
    unsigned long before = vp_sim_calls(call);
    cr_assert_eq(pause_from_outside(), 0);
    cr_assert_eq(vpool_resume(0), 0);
    unsigned long made = vp_sim_calls(call) - before;
    for (int i = 0; i < BLOCKS; i++)
        block[i].size = 0;
    return made;
}

/* The library's state is the process's: each run has one of its own. */
static int in_child(void (*run)(const char *, long), const char *call, long nth) {
    int status = 0;
    pid_t child = fork();
    if (!child) {
        run(call, nth);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void count(const char *call, long unused) {
    (void)unused;
    unsigned long n = times(call);
    _exit((int)(n < 200 ? n : 200));
}

Test(pause, each_call_fails, .timeout = 120) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        int n = in_child(count, calls[i], 0);
        cr_assert(n > 0 && n <= 200, "%s: %d times", calls[i], n);
        cr_log_info("%s: %d times", calls[i], n);
        for (int k = 0; k < 4; k++) {
            const long nth = (const long[]){1, 2, n / 2, n}[k];
            if (nth > 0 && nth <= n)
                cr_assert_eq(in_child(with_fault, calls[i], nth), 0, "%s %ld", calls[i], nth);
        }
        cr_assert_eq(in_child(with_fault, calls[i], -1), 0, "%s from the first on", calls[i]);
    }
}
