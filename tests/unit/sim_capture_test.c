/* The simulated driver: green contexts, captures, and how it is set up. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_test.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- green contexts ---- */

Test(sim, a_primary_barrier_covers_green_contexts, .init = late) {
    CUdevResource all, part;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUstream stream;
    unsigned groups = 1;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
    OK(cuDevResourceGenerateDesc(&desc, &part, 1));
    OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    vp_sim_hold(stream);
    OK(cuMemsetD8Async(memory, 1, 1, stream));
    OK(cuCtxRecordEvent(context, event));
    drain();
    IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    vp_sim_release(stream);
    OK(cuEventSynchronize(event));
    OK(cuGreenCtxDestroy(green));
}

/* ---- devices ---- */

Test(sim, devices_have_sizes_of_their_own_and_are_shown_in_any_order) {
    size_t total[2];
    CUuuid shown, there;
    int count;
    char id[16];
    cr_assert_eq(vp_sim_configure("devices=3,capacity=64M:32M:16M,visible=2:0:7:1"), 0);
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    cr_assert_eq(count, 2, "what comes behind one that does not exist is not shown");
    OK(cuDeviceTotalMem(&total[0], 0));
    OK(cuDeviceTotalMem(&total[1], 1));
    cr_expect(total[0] == 16 << 20 && total[1] == 64 << 20);
    IS(cuDeviceTotalMem(&total[0], 2), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetPCIBusId(id, sizeof(id), 0));
    cr_expect_str_eq(id, "0000:03:00.0");
    OK(cuDeviceGetUuid(&shown, 1));
    vp_sim_reset();
    cr_assert_eq(vp_sim_configure("devices=3,capacity=64M:32M"), 0);
    OK(cuInit(0));
    OK(cuDeviceGetUuid(&there, 0));
    cr_expect_arr_eq(shown.bytes, there.bytes, sizeof(shown.bytes));
    OK(cuDeviceTotalMem(&total[0], 2));
    cr_expect_eq(total[0], 32 << 20);
    vp_sim_reset();
    cr_assert_eq(vp_sim_configure("visible=1"), 0);
    IS(cuInit(0), CUDA_ERROR_NO_DEVICE);
    IS(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    vp_sim_reset();
    cr_assert_lt(vp_sim_configure("capacity=64M:x"), 0);
    cr_assert_lt(vp_sim_configure("visible="), 0);
}

/* ---- capture ---- */

Test(sim, a_graph_replays_its_work, .init = late) {
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD8Async(memory, 1, 1, blocking));
    OK(cuEventRecord(event, blocking));
    OK(cuStreamWaitEvent(free_stream, event, 0));
    OK(cuMemsetD8Async(memory + 1, 2, 1, free_stream));
    OK(cuEventRecord(event, free_stream));
    OK(cuStreamWaitEvent(blocking, event, 0));
    OK(cuStreamEndCapture(blocking, &graph));
    drain();
    cr_expect_eq(byte(0), 0, "capturing runs nothing");
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, other));
    OK(cuStreamSynchronize(other));
    cr_expect_eq(byte(0), 1);
    cr_expect_eq(byte(1), 2);
    OK(cuGraphExecDestroy(exec));
}

/* NVIDIA's graphMemoryNodes destroys the second stream before the capture is over, and its graphConditionalNodes asks
 * for no graph where it has captured into one: both end well on a GPU. */
Test(sim, a_stream_that_was_joined_back_may_go_in_a_capture, .init = late) {
    CUgraph graph;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    OK(cuStreamBeginCaptureToGraph(blocking, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(event, blocking));
    OK(cuStreamWaitEvent(free_stream, event, 0));
    OK(cuMemsetD8Async(memory, 3, 1, free_stream));
    OK(cuEventRecord(event, free_stream));
    OK(cuStreamWaitEvent(blocking, event, 0));
    OK(cuStreamDestroy(free_stream));
    OK(cuStreamEndCapture(blocking, NULL));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, other));
    OK(cuStreamSynchronize(other));
    cr_expect_eq(byte(0), 3);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

Test(sim, an_executables_launches_follow_each_other, .init = late) {
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD8Async(memory, 1, 1, blocking));
    OK(cuStreamEndCapture(blocking, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    vp_sim_hold(other);
    OK(cuGraphLaunch(exec, other));
    OK(cuGraphLaunch(exec, free_stream));
    while (vp_sim_step(100))
        ;
    cr_expect_eq(vp_sim_pending(), 2);
    cr_expect_eq(cuStreamQuery(free_stream), CUDA_ERROR_NOT_READY, "it is behind the launch on the other stream");
    vp_sim_release(other);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamSynchronize(free_stream));
    OK(cuStreamQuery(other));
    cr_expect_eq(byte(0), 1);
}

static CUresult query(void) {
    return cuEventQuery(event);
}

static CUresult query_relaxed(void) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CUresult result = cuEventQuery(event);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    return result;
}

static CUresult barrier(void) {
    return cuCtxRecordEvent(context, event);
}

static CUresult record_legacy(void) {
    return cuEventRecord(event, NULL);
}

static CUresult record_other(void) {
    return cuEventRecord(event, other);
}

static CUresult probe_legacy(void) {
    CUstreamCaptureStatus status;
    return cuStreamIsCapturing(NULL, &status);
}

static CUresult allocate(void) {
    CUdeviceptr at;
    return cuMemAlloc(&at, 100);
}

static CUresult allocate_async_elsewhere(void) {
    CUdeviceptr at;
    return cuMemAllocAsync(&at, 100, other);
}

Test(sim, what_a_capture_bears, .init = late) {
    const CUstreamCaptureMode GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL, LOCAL = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED;
    const struct {
        const char *name;
        CUstreamCaptureMode mode;
        bool blocking;
        CUresult (*call)(void);
        int result, end;
    } cases[] = {
        {"query, global", GLOBAL, false, query, 900, 901},
        {"query, thread-local", LOCAL, false, query, 900, 901},
        {"query, relaxed", RELAXED, false, query, 0, 0},
        {"query of a relaxed thread", GLOBAL, false, query_relaxed, 0, 0},
        {"barrier, global", GLOBAL, false, barrier, 900, 901},
        {"barrier, relaxed", RELAXED, false, barrier, 900, 901},
        {"record on legacy, blocking", RELAXED, true, record_legacy, 906, 901},
        {"record on legacy, non-blocking", GLOBAL, false, record_legacy, 0, 0},
        {"record elsewhere", GLOBAL, true, record_other, 0, 0},
        {"probe of legacy, blocking", GLOBAL, true, probe_legacy, 906, 0},
        {"probe of legacy, non-blocking", GLOBAL, false, probe_legacy, 0, 0},
        {"native allocation, global", GLOBAL, false, allocate, 900, 901},
        {"native allocation, relaxed", RELAXED, false, allocate, 0, 0},
        {"stream-ordered allocation elsewhere, global", GLOBAL, true, allocate_async_elsewhere, 900, 901},
        {"stream-ordered allocation elsewhere, relaxed", RELAXED, true, allocate_async_elsewhere, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CUgraph graph = NULL;
        CUstream stream = cases[i].blocking ? blocking : free_stream;
        OK(cuStreamBeginCapture(stream, cases[i].mode));
        CUresult result = cases[i].call(), end = cuStreamEndCapture(stream, &graph);
        cr_expect_eq((int)result, cases[i].result, "%s: %d", cases[i].name, result);
        cr_expect_eq((int)end, cases[i].end, "%s: end %d", cases[i].name, end);
        if (graph)
            OK(cuGraphDestroy(graph));
    }
}

/* ---- the simulator itself ---- */

Test(sim, calls_can_be_made_to_fail) {
    CUdeviceptr at;
    start("fail=cuMemAlloc:3");
    OK(cuMemAlloc(&at, 100));
    IS(cuMemAlloc(&at, 100), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&at, 100));
    cr_expect_eq(vp_sim_calls("cuMemAlloc"), 4u);
    vp_sim_fail("cuMemFree", -2, CUDA_ERROR_UNKNOWN);
    OK(cuMemFree(at));
    IS(cuMemFree(memory), CUDA_ERROR_UNKNOWN);
    IS(cuMemFree(memory), CUDA_ERROR_UNKNOWN);
    vp_sim_fail("cuMemFree", 0, 0);
    OK(cuMemFree(memory));
    vp_sim_fail(NULL, 2, CUDA_ERROR_NOT_PERMITTED);
    OK(cuMemAlloc(&at, 100));
    IS(cuEventRecord(event, NULL), CUDA_ERROR_NOT_PERMITTED);
    OK(cuEventRecord(event, NULL));
}

Test(sim, what_has_no_place_for_its_answer_is_refused) {
    start("");
    OK(cuEventRecord(event, NULL));
    OK(cuCtxSynchronize());
    IS(cuEventElapsedTime(NULL, event, event), CUDA_ERROR_INVALID_VALUE);
    IS(cuStreamGetFlags(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    IS(cuStreamGetPriority(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    IS(cuCtxGetApiVersion(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    IS(cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE), CUDA_ERROR_INVALID_VALUE);
    IS(cuStreamBatchMemOp(NULL, 1, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

Test(sim, wrong_options_are_named_and_ignored) {
    const char *wrong[] = {"capacity=lots", "granularity=3M", "devices=0",     "lazy=101",
                           "nothing=1",     "backing",        "fail=cuMemMap", "capacity=17179869185G"};
    char text[400];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect_lt(vp_sim_configure(wrong[i]), 0, "%s", wrong[i]);
    cr_expect_eq(vp_sim_configure("capacity=1G,lazy=0,,seed=7"), 0);
    snprintf(text, sizeof text, "shared=/tmp/%0300d", 0);
    cr_expect_lt(vp_sim_configure(text), 0, "another file's name would be used");
}

Test(sim, old_drivers_lack_young_functions) {
    void *fn;
    CUdriverProcAddressQueryResult status;
    start("driver=12040");
    IS(cuGetProcAddress("cuCtxRecordEvent", &fn, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE,
       "younger than the driver");
    OK(cuGetProcAddress("cuCtxRecordEvent", &fn, 12040, 0, &status));
    cr_expect_null(fn);
    cr_expect_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    IS(cuCtxRecordEvent(context, event), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGetProcAddress("cuMemAlloc", &fn, 12040, 0, &status));
    cr_expect_eq(fn, (void *)cuMemAlloc_v2);
}

Test(sim, devices_may_lack_virtual_memory) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    int has = 1;
    start("vmm=0");
    OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    cr_expect_eq(has, 0);
    IS(cuMemAddressReserve(&at, 2 << 20, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
    vp_sim_reset();
    start("devices=2,vmm=1:0");
    OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1));
    cr_expect_eq(has, 0);
    prop.location.id = 1;
    IS(cuMemCreate(&handle, 2 << 20, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    prop.location.id = 0;
    OK(cuMemCreate(&handle, 2 << 20, &prop, 0));
    OK(cuMemRelease(handle));
}

Test(sim, a_forked_child_has_no_driver, .init = late) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr at;
        _exit(cuMemAlloc(&at, 1) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0);
    OK(cuCtxSynchronize());
}

static void *ask_slowly(void *version) {
    cuDriverGetVersion(version);
    return NULL;
}

Test(sim, a_fork_may_meet_a_thread_in_the_first_call) {
    pthread_t thread;
    int version, status;
    vp_sim_configure("delay=cuDriverGetVersion:300+");
    pthread_create(&thread, NULL, ask_slowly, &version);
    usleep(100000);
    pid_t child = fork();
    if (child == 0) {
        alarm(5);
        _exit(cuInit(0) == CUDA_SUCCESS ? 0 : 1);
    }
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0);
    pthread_join(thread, NULL);
}

Test(sim, a_reset_forgets_everything) {
    for (int round = 0; round < 3; round++) {
        CUdeviceptr at;
        late();
        OK(cuMemAddressReserve(&at, 4 * G, 0, 0, 0));
        OK(cuMemMap(at, 2 * G, 0, create(2 * G), 0));
        OK(cuMemAllocAsync(&at, 100, other));
        OK(cuMemsetD8Async(at, 1, 100, other));
        OK(cuMemFreeAsync(at, other));
        OK(cuStreamBeginCapture(free_stream, 0));
        vp_sim_reset();
        cr_expect_eq(vp_sim_leaks(NULL), 0u);
        cr_expect_eq(vp_sim_used(0), 0u);
        IS(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    }
}

/* What was launched goes on, with the graph's memory. */
Test(sim, a_graph_may_be_destroyed_while_it_runs, .init = late) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr ptr;
    OK(cuStreamBeginCapture(free_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&ptr, 1000, free_stream));
    OK(cuMemsetD8Async(ptr, 5, 1000, free_stream));
    OK(cuMemcpyAsync(memory, ptr, 1000, free_stream));
    OK(cuMemFreeAsync(ptr, free_stream));
    OK(cuStreamEndCapture(free_stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    vp_sim_hold(free_stream);
    OK(cuGraphLaunch(exec, free_stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    vp_sim_release(free_stream);
    OK(cuStreamSynchronize(free_stream));
    cr_expect_eq(byte(999), 5);
    cr_expect_eq(vp_sim_violations(), 0u);
}

static CUgraphExec graph_of(CUdeviceptr *allocated, CUdeviceptr freed, unsigned long long flags) {
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture(free_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (allocated) {
        OK(cuMemAllocAsync(allocated, 1000, free_stream));
        OK(cuMemsetD8Async(*allocated, 5, 1000, free_stream));
    }
    if (freed)
        OK(cuMemFreeAsync(freed, free_stream));
    OK(cuStreamEndCapture(free_stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, flags));
    OK(cuGraphDestroy(graph));
    return exec;
}

/* As CUDA documents it: by a stream, at once, by another graph, or by the next launch. */
Test(sim, graph_memory_is_the_programs_until_it_is_freed, .init = late) {
    const size_t used = vp_sim_used(0);
    CUdeviceptr ptr;
    CUgraphExec exec = graph_of(&ptr, 0, 0);
    IS(cuMemFreeAsync(ptr, free_stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, free_stream));
    IS(cuGraphLaunch(exec, free_stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyAsync(memory, ptr, 1000, free_stream));
    OK(cuMemFreeAsync(ptr, free_stream));
    IS(cuMemFreeAsync(ptr, free_stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, free_stream));
    OK(cuMemFree(ptr));
    cr_expect_eq(byte(999), 5);

    CUgraphExec freeing = graph_of(NULL, ptr, 0);
    IS(cuGraphLaunch(freeing, free_stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, free_stream));
    OK(cuGraphLaunch(freeing, free_stream));
    IS(cuMemFree(ptr), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphExecDestroy(freeing));
    OK(cuGraphLaunch(exec, free_stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuMemsetD8Async(ptr, 6, 1000, free_stream));
    OK(cuMemFreeAsync(ptr, free_stream));

    exec = graph_of(&ptr, 0, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    OK(cuGraphLaunch(exec, free_stream));
    OK(cuGraphLaunch(exec, other));
    OK(cuGraphExecDestroy(exec));
    OK(cuMemFreeAsync(ptr, other));
    OK(cuCtxSynchronize());
    cr_expect_eq(vp_sim_violations(), 0u);
    /* What graphs leave is kept for the next one, until it is asked back. */
    cr_expect_gt(vp_sim_used(0), used);
    OK(cuDeviceGraphMemTrim(0));
    cr_expect_eq(vp_sim_used(0), used);
}
