/* The simulated driver: that it is late, that it orders what CUDA orders and nothing else, that it refuses.
 * What the real driver answers call by call is in driver_answers.c. */
#include "sim.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define G ((size_t)64 << 10)
#define OK(call) cr_assert_eq(call, CUDA_SUCCESS, "%s failed", #call)
/* The rest of the arguments, if any, say why. */
#define IS(call, code, ...) \
    do { \
        int got_ = (int)(call); \
        cr_assert_eq(got_, (int)(code), "%s gave %d and not %d", #call, got_, (int)(code)); \
    } while (0)
#define READY(event) (cuEventQuery(event) == CUDA_SUCCESS)

static CUcontext context;
static CUdeviceptr memory;          /* 1 MiB, all zero */
static CUstream blocking, other, free_stream;
static CUevent event;

static void start(const char *options)
{
    vp_sim_configure(options);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&memory, 1 << 20));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
}

/* Held streams stay where they are; everything else runs. */
static void late(void)
{
    start("granularity=64K,lazy=100,timeout=200");
}

static int byte(size_t at)
{
    return ((volatile unsigned char *)memory)[at];
}

static void drain(void)
{
    while (vp_sim_step(1000) > 0)
        continue;
}

static CUmemGenericAllocationHandle create(size_t size)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static void allow(CUdeviceptr at, size_t size)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(at, size, &access, 1));
}

/* ---- order ---- */

Test(sim, nothing_runs_when_it_is_queued, .init = late)
{
    OK(cuMemsetD8Async(memory, 1, 10, blocking));
    OK(cuEventRecord(event, blocking));
    cr_expect_eq(byte(0), 0);
    cr_expect_eq(vp_sim_pending(), 2u);
    OK(cuStreamSynchronize(blocking));
    cr_expect_eq(byte(0), 1);
    cr_expect(READY(event));
}

Test(sim, a_query_is_not_ready_at_first_and_ready_at_last, .init = late)
{
    int queries = 0;
    OK(cuMemsetD8Async(memory, 1, 10, blocking));
    OK(cuEventRecord(event, blocking));
    IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    while (!READY(event))
        cr_assert_lt(++queries, 100000);
}

Test(sim, held_work_stays, .init = late)
{
    vp_sim_hold(free_stream);
    OK(cuMemsetD8Async(memory, 1, 1, free_stream));
    OK(cuMemsetD8Async(memory + 1, 1, 1, blocking));
    drain();
    cr_expect_eq(byte(0), 0);
    cr_expect_eq(byte(1), 1);
    IS(cuStreamSynchronize(free_stream), CUDA_ERROR_LAUNCH_TIMEOUT);
    vp_sim_release(free_stream);
    OK(cuStreamSynchronize(free_stream));
    cr_expect_eq(byte(0), 1);
}

Test(sim, legacy_waits_for_blocking_streams_and_they_for_it, .init = late)
{
    vp_sim_hold(blocking);
    OK(cuMemsetD8Async(memory, 1, 1, blocking));
    OK(cuMemsetD8Async(memory + 1, 1, 1, NULL));
    OK(cuMemsetD8Async(memory + 2, 1, 1, other));
    OK(cuMemsetD8Async(memory + 3, 1, 1, free_stream));
    drain();
    cr_expect_eq(byte(1), 0, "the legacy stream is behind the blocking one");
    cr_expect_eq(byte(2), 0, "the other blocking stream is behind the legacy one");
    cr_expect_eq(byte(3), 1, "a non-blocking stream is free");
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    vp_sim_release(blocking);
    drain();
    cr_expect_eq(byte(2), 1);
}

Test(sim, query_of_legacy_sees_blocking_work_only, .init = late)
{
    vp_sim_hold(free_stream);
    OK(cuMemsetD8Async(memory, 1, 1, free_stream));
    OK(cuStreamQuery(NULL));
    vp_sim_hold(blocking);
    OK(cuMemsetD8Async(memory, 1, 1, blocking));
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
}

Test(sim, a_wait_keeps_the_record_of_its_time, .init = late)
{
    vp_sim_hold(blocking);
    OK(cuMemsetD8Async(memory, 1, 1, free_stream));
    OK(cuEventRecord(event, free_stream));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(cuMemsetD8Async(memory + 1, 1, 1, other));
    OK(cuEventRecord(event, blocking));
    drain();
    cr_expect_eq(byte(1), 1, "the second record does not matter to an earlier wait");
    cr_expect(!READY(event));
}

Test(sim, a_wait_orders_two_streams, .init = late)
{
    vp_sim_hold(free_stream);
    OK(cuMemsetD8Async(memory, 1, 1, free_stream));
    OK(cuEventRecord(event, free_stream));
    OK(cuMemsetD8Async(memory + 1, 1, 1, other));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(cuMemsetD8Async(memory + 2, 1, 1, other));
    drain();
    cr_expect_eq(byte(1), 1);
    cr_expect_eq(byte(2), 0);
    vp_sim_release(free_stream);
    OK(cuStreamSynchronize(other));
    cr_expect_eq(byte(2), 1);
}

Test(sim, a_context_barrier_covers_every_stream_and_holds_none, .init = late)
{
    CUevent barrier;
    OK(cuEventCreate(&barrier, CU_EVENT_DISABLE_TIMING));
    vp_sim_hold(free_stream);
    OK(cuMemsetD8Async(memory, 1, 1, free_stream));
    OK(cuCtxRecordEvent(context, barrier));
    OK(cuMemsetD8Async(memory + 1, 1, 1, other));
    drain();
    cr_expect_eq(byte(1), 1, "later work does not wait for the barrier");
    cr_expect(!READY(barrier));
    OK(cuEventRecord(event, NULL));
    drain();
    cr_expect(READY(event), "an event of the legacy stream does not cover a non-blocking stream");
    vp_sim_release(free_stream);
    OK(cuEventSynchronize(barrier));
    cr_expect_eq(byte(0), 1);
}

static void *ask_id(void *id)
{
    OK(cuCtxSetCurrent(context));
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, id));
    return NULL;
}

Test(sim, identities, .init = late)
{
    CUcontext second;
    CUstream again;
    pthread_t thread;
    unsigned long long legacy, per_thread, theirs, ordinary, later;
    OK(cuStreamGetId(NULL, &legacy));
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &per_thread));
    cr_expect_neq(legacy, per_thread);
    pthread_create(&thread, NULL, ask_id, &theirs);
    pthread_join(thread, NULL);
    cr_expect_neq(per_thread, theirs);
    OK(cuStreamGetId(other, &ordinary));
    OK(cuStreamDestroy(other));
    OK(cuStreamCreate(&again, 0));
    cr_expect_eq(again, other, "a handle comes back");
    OK(cuStreamGetId(again, &later));
    cr_expect_neq(ordinary, later, "an id does not");
    OK(cuCtxCreate(&second, NULL, 0, 0));
    OK(cuStreamGetId(NULL, &later));
    cr_expect_neq(legacy, later);
}

Test(sim, a_destroyed_stream_finishes_its_work, .init = late)
{
    OK(cuMemsetD8Async(memory, 1, 1, free_stream));
    OK(cuStreamDestroy(free_stream));
    cr_expect_eq(byte(0), 0);
    OK(cuCtxSynchronize());
    cr_expect_eq(byte(0), 1);
}

static void note(void *flag)
{
    __atomic_store_n((int *)flag, 1, __ATOMIC_SEQ_CST);
}

Test(sim, host_functions_run_without_further_calls, .init = late, .timeout = 10)
{
    int flag = 0;
    OK(cuMemsetD8Async(memory, 1, 1, blocking));
    OK(cuLaunchHostFunc(blocking, note, &flag));
    while (!__atomic_load_n(&flag, __ATOMIC_SEQ_CST))
        usleep(1000);
    cr_expect_eq(byte(0), 1);
    OK(cuStreamSynchronize(blocking));
}

Test(sim, values_are_waited_for, .init = late)
{
    CUdeviceptr flag = memory + 4096;
    OK(cuStreamWaitValue32(blocking, flag, 5, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD8Async(memory, 1, 1, blocking));
    drain();
    cr_expect_eq(byte(0), 0);
    IS(cuStreamSynchronize(blocking), CUDA_ERROR_LAUNCH_TIMEOUT);
    OK(cuStreamWriteValue32(free_stream, flag, 5, 0));
    OK(cuStreamSynchronize(blocking));
    cr_expect_eq(byte(0), 1);
}

Test(sim, plain_calls_wait_unless_told_otherwise)
{
    start("lazy=100");
    OK(cuMemsetD8(memory, 1, 1));
    cr_expect_eq(byte(0), 1);
    vp_sim_reset();
    start("lazy=100,memset=late");
    OK(cuMemsetD8(memory, 1, 1));
    cr_expect_eq(byte(0), 0);
}

/* ---- memory ---- */

Test(sim, aliases_alias, .init = late)
{
    CUdeviceptr at;
    CUmemGenericAllocationHandle handle = create(2 * G);
    OK(cuMemAddressReserve(&at, 8 * G, 0, 0, 0));
    OK(cuMemMap(at, 2 * G, 0, handle, 0));
    OK(cuMemMap(at + 4 * G, 2 * G, 0, handle, 0));
    allow(at, 2 * G);
    allow(at + 4 * G, 2 * G);
    OK(cuMemsetD8(at + G, 7, 1));
    cr_expect_eq(*(char *)(at + 5 * G), 7);
    OK(cuMemRelease(handle));
    cr_expect_eq(vp_sim_used_vmm(0), 2 * G, "mappings keep memory");
    OK(cuMemUnmap(at, 2 * G));
    OK(cuMemUnmap(at + 4 * G, 2 * G));
    cr_expect_eq(vp_sim_used_vmm(0), 0u);
    OK(cuMemAddressFree(at, 8 * G));
    cr_expect_eq(vp_sim_violations(), 0u);
}

Test(sim, work_on_missing_memory_is_a_violation, .init = late)
{
    CUdeviceptr at, native;
    CUmemGenericAllocationHandle handle = create(G);
    OK(cuMemAddressReserve(&at, 4 * G, 0, 0, 0));
    OK(cuMemMap(at, G, 0, handle, 0));
    IS(cuMemsetD8(at, 1, 1), CUDA_ERROR_INVALID_VALUE, "no access yet");
    allow(at, G);
    IS(cuMemsetD8(at + G - 1, 1, 2), CUDA_ERROR_INVALID_VALUE, "across the end");
    OK(cuMemAlloc(&native, 100));
    OK(cuMemFree(native));
    IS(cuMemsetD8(native, 1, 1), CUDA_ERROR_INVALID_VALUE, "freed memory");
    cr_expect_eq(vp_sim_violations(), 0u, "what is refused at once is not punished");
    OK(cuMemsetD8Async(at, 1, 1, blocking));
    OK(cuMemUnmap(at, G));
    cr_expect_eq(vp_sim_violations(), 1u, "unmapped under queued work");
    OK(cuStreamSynchronize(blocking));
    cr_expect_eq(vp_sim_violations(), 2u, "and the work itself");
    OK(cuStreamDestroy(other));
    IS(cuStreamQuery(other), CUDA_ERROR_INVALID_HANDLE);
    cr_expect_eq(vp_sim_violations(), 3u, "a destroyed handle");
}

Test(sim, stream_ordered_memory_has_a_beginning_and_an_end, .init = late)
{
    CUdeviceptr at;
    vp_sim_hold(blocking);
    OK(cuMemAllocAsync(&at, 100, blocking));
    OK(cuMemsetD8Async(at, 1, 100, free_stream));
    drain();
    cr_expect_eq(vp_sim_violations(), 1u, "used on a stream that did not wait for the allocation");
    vp_sim_release(blocking);
    OK(cuMemFreeAsync(at, blocking));
    OK(cuStreamSynchronize(blocking));
    IS(cuMemsetD8Async(at, 1, 100, blocking), CUDA_ERROR_INVALID_VALUE);
}

Test(sim, freeing_native_memory_waits_for_the_device, .init = late)
{
    CUdeviceptr at;
    OK(cuMemAlloc(&at, 100));
    OK(cuMemsetD8Async(at, 1, 100, free_stream));
    OK(cuMemsetD8Async(memory, 1, 100, other));
    OK(cuMemFree(at));
    cr_expect_eq(byte(0), 1);
    cr_expect_eq(vp_sim_violations(), 0u);
}

Test(sim, pageable_sources_are_staged, .init = late)
{
    char text[] = "first";
    OK(cuMemcpyHtoDAsync(memory, text, sizeof(text), blocking));
    strcpy(text, "after");
    OK(cuStreamSynchronize(blocking));
    cr_expect_str_eq((char *)memory, "first");
}

Test(sim, capacity_is_shared_by_all_kinds)
{
    start("capacity=4M,granularity=64K");
    CUdeviceptr at;
    size_t unused, total;
    CUmemGenericAllocationHandle handle = create(2 << 20);
    IS(cuMemAlloc(&at, 2 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemGetInfo(&unused, &total));
    cr_expect_eq(unused, 1u << 20);
    cr_expect_eq(total, 4u << 20);
    OK(cuMemRelease(handle));
    OK(cuMemAllocAsync(&at, 2 << 20, NULL));
    OK(cuMemFreeAsync(at, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemAlloc(&at, 2 << 20));
}

Test(sim, a_ledger_has_any_capacity_and_counts_costs)
{
    start("backing=ledger,capacity=2T");
    CUdeviceptr at;
    uint64_t before = vp_sim_cost_ns();
    CUmemGenericAllocationHandle handle = create((size_t)1 << 40);
    OK(cuMemAddressReserve(&at, (size_t)1 << 42, 0, 0, 0));
    OK(cuMemMap(at, (size_t)1 << 40, 0, handle, 0));
    allow(at, (size_t)1 << 40);
    OK(cuMemsetD8(at, 1, (size_t)1 << 40));
    cr_expect_gt(vp_sim_cost_ns(), before + 22000);
    cr_expect_eq(vp_sim_violations(), 0u);
}

Test(sim, contexts_take_their_own_with_them, .init = late)
{
    CUcontext second;
    CUstream stream;
    CUevent theirs;
    CUdeviceptr native, ordered, at;
    CUarray array;
    const CUDA_ARRAY_DESCRIPTOR desc = {1 << 20, 0, CU_AD_FORMAT_FLOAT, 1};
    size_t before = vp_sim_leaks(NULL), used = vp_sim_used(0);
    OK(cuCtxCreate(&second, NULL, 0, 0));
    OK(cuArrayCreate(&array, &desc));
    cr_expect_gt(vp_sim_used(0), used);
    OK(cuStreamCreate(&stream, 0));
    OK(cuEventCreate(&theirs, 0));
    OK(cuMemAlloc(&native, 100));
    OK(cuMemAllocAsync(&ordered, 100, stream));
    OK(cuMemAddressReserve(&at, G, 0, 0, 0));
    cr_expect_eq(vp_sim_leaks(NULL), before + 5);
    OK(cuCtxDestroy(second));
    OK(cuCtxSetCurrent(context));
    IS(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    cr_expect_eq(vp_sim_leaks(NULL), before + 2, "stream-ordered and virtual memory live on");
    OK(cuMemFreeAsync(ordered, NULL));
    OK(cuMemAddressFree(at, G));
    OK(cuCtxSynchronize());
    cr_expect_eq(vp_sim_leaks(NULL), before);
}

Test(sim, peers_need_access)
{
    start("devices=2");
    CUcontext second;
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(second));
    OK(cuMemsetD8(memory, 1, 1));
    cr_expect_eq(vp_sim_violations(), 1u);
    OK(cuCtxEnablePeerAccess(context, 0));
    IS(cuCtxEnablePeerAccess(context, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    OK(cuMemsetD8(memory, 1, 1));
    cr_expect_eq(vp_sim_violations(), 1u);
}

/* Copies of plain memory are staged; one that names its contexts needs mapped memory to be open to its own device alone. */
Test(sim, devices_apart_copy_in_stages)
{
    start("devices=2,peers=0,granularity=64K");
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUmemAccessDesc here = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, there = here;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr plain, mapped;
    CUcontext second;
    unsigned char byte = 0;
    int can = 1;
    there.location.id = 1;
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    cr_expect(!can);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    IS(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    OK(cuMemsetD8(memory, 7, G));
    OK(cuCtxSetCurrent(second));
    OK(cuMemAlloc(&plain, G));
    OK(cuMemAddressReserve(&mapped, G, 0, 0, 0));
    OK(cuMemCreate(&handle, G, &prop, 0));
    OK(cuMemMap(mapped, G, 0, handle, 0));
    IS(cuMemSetAccess(mapped, G, &here, 1), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemSetAccess(mapped, G, &there, 1));
    OK(cuCtxSetCurrent(context));
    OK(cuMemcpyDtoD(plain, memory, G));
    IS(cuMemcpyDtoD(mapped, memory, G), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyPeer(mapped, second, memory, context, G));
    CUDA_MEMCPY3D_PEER space = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = mapped, .srcContext = second,
                                .srcPitch = 64, .srcHeight = 4, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = plain, .dstContext = second, .dstPitch = 64, .dstHeight = 4,
                                .WidthInBytes = 64, .Height = 4, .Depth = G / 256};
    OK(cuMemcpy3DPeer(&space));
    OK(cuMemcpyDtoH(&byte, plain + G - 1, 1));
    cr_expect_eq(byte, 7);
    cr_expect_eq(vp_sim_violations(), 0u);
}

/* ---- green contexts ---- */

Test(sim, a_primary_barrier_covers_green_contexts, .init = late)
{
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

/* ---- capture ---- */

Test(sim, a_graph_replays_its_work, .init = late)
{
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

static CUresult query(void)
{
    return cuEventQuery(event);
}

static CUresult query_relaxed(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CUresult result = cuEventQuery(event);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    return result;
}

static CUresult barrier(void)
{
    return cuCtxRecordEvent(context, event);
}

static CUresult record_legacy(void)
{
    return cuEventRecord(event, NULL);
}

static CUresult record_other(void)
{
    return cuEventRecord(event, other);
}

static CUresult probe_legacy(void)
{
    CUstreamCaptureStatus status;
    return cuStreamIsCapturing(NULL, &status);
}

static CUresult allocate(void)
{
    CUdeviceptr at;
    return cuMemAlloc(&at, 100);
}

static CUresult allocate_async_elsewhere(void)
{
    CUdeviceptr at;
    return cuMemAllocAsync(&at, 100, other);
}

Test(sim, what_a_capture_bears, .init = late)
{
    const CUstreamCaptureMode GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL,
                              LOCAL = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
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

Test(sim, calls_can_be_made_to_fail)
{
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

Test(sim, wrong_options_are_named_and_ignored)
{
    const char *wrong[] = {"capacity=lots", "granularity=3M", "devices=0",    "lazy=101",
                           "nothing=1",     "backing",        "fail=cuMemMap"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect_lt(vp_sim_configure(wrong[i]), 0, "%s", wrong[i]);
    cr_expect_eq(vp_sim_configure("capacity=1G,lazy=0,,seed=7"), 0);
}

Test(sim, old_drivers_lack_young_functions)
{
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

Test(sim, devices_may_lack_virtual_memory)
{
    int has = 1;
    CUdeviceptr at;
    start("vmm=0");
    OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    cr_expect_eq(has, 0);
    IS(cuMemAddressReserve(&at, 2 << 20, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
}

Test(sim, a_forked_child_has_no_driver, .init = late)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr at;
        _exit(cuMemAlloc(&at, 1) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    }
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0);
    OK(cuCtxSynchronize());
}

Test(sim, a_reset_forgets_everything)
{
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
