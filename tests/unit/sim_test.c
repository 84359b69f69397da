/* The simulated driver: that it is late, that it orders what CUDA orders and nothing else, that it refuses.
 * What the real driver answers call by call is in driver_answers.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_test.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- order ---- */

Test(sim, nothing_runs_when_it_is_queued, .init = late) {
    OK(cuMemsetD8Async(memory, 1, 10, blocking));
    OK(cuEventRecord(event, blocking));
    cr_expect_eq(byte(0), 0);
    cr_expect_eq(vp_sim_pending(), 2u);
    OK(cuStreamSynchronize(blocking));
    cr_expect_eq(byte(0), 1);
    cr_expect(READY(event));
}

Test(sim, a_free_is_behind_its_stream_on_another_device) {
    CUcontext second;
    CUstream reader;
    void *host;
    start("granularity=64K,lazy=100,devices=2");
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(second));
    OK(cuStreamCreate(&reader, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocHost(&host, 1));
    OK(cuMemcpyDtoHAsync(host, memory, 1, reader));
    OK(cuMemFreeAsync(memory, reader));
    cr_expect_eq(vp_sim_violations(), 0u);
}

Test(sim, a_query_is_not_ready_at_first_and_ready_at_last, .init = late) {
    int queries = 0;
    OK(cuMemsetD8Async(memory, 1, 10, blocking));
    OK(cuEventRecord(event, blocking));
    IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    while (!READY(event))
        cr_assert_lt(++queries, 100000);
}

Test(sim, held_work_stays, .init = late) {
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

Test(sim, legacy_waits_for_blocking_streams_and_they_for_it, .init = late) {
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

Test(sim, query_of_legacy_sees_blocking_work_only, .init = late) {
    vp_sim_hold(free_stream);
    OK(cuMemsetD8Async(memory, 1, 1, free_stream));
    OK(cuStreamQuery(NULL));
    vp_sim_hold(blocking);
    OK(cuMemsetD8Async(memory, 1, 1, blocking));
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
}

Test(sim, a_wait_keeps_the_record_of_its_time, .init = late) {
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

Test(sim, a_wait_orders_two_streams, .init = late) {
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

Test(sim, a_context_barrier_covers_every_stream_and_holds_none, .init = late) {
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

static void *ask_id(void *id) {
    OK(cuCtxSetCurrent(context));
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, id));
    return NULL;
}

Test(sim, identities, .init = late) {
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

Test(sim, a_destroyed_stream_finishes_its_work, .init = late) {
    OK(cuMemsetD8Async(memory, 1, 1, free_stream));
    OK(cuStreamDestroy(free_stream));
    cr_expect_eq(byte(0), 0);
    OK(cuCtxSynchronize());
    cr_expect_eq(byte(0), 1);
}

static void note(void *flag) {
    __atomic_store_n((int *)flag, 1, __ATOMIC_SEQ_CST);
}

Test(sim, host_functions_run_without_further_calls, .init = late, .timeout = 10) {
    int flag = 0;
    OK(cuMemsetD8Async(memory, 1, 1, blocking));
    OK(cuLaunchHostFunc(blocking, note, &flag));
    while (!__atomic_load_n(&flag, __ATOMIC_SEQ_CST))
        usleep(1000);
    cr_expect_eq(byte(0), 1);
    OK(cuStreamSynchronize(blocking));
}

Test(sim, values_are_waited_for, .init = late) {
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

Test(sim, a_wait_for_bits_that_are_0_looks_at_its_own_alone, .init = late) {
    CUdeviceptr flag = memory + 4096;
    OK(cuMemsetD32(flag, 0xf0f0f0f0, 1));
    OK(cuMemsetD32(flag + 4, 0, 1));
    OK(cuStreamWaitValue32(blocking, flag, 0x0f0f0f0f, CU_STREAM_WAIT_VALUE_NOR));
    IS(cuStreamSynchronize(blocking), CUDA_ERROR_LAUNCH_TIMEOUT);
    OK(cuStreamWriteValue32(free_stream, flag, 0xf0f0f0e0, 0));
    OK(cuStreamSynchronize(blocking));
}

Test(sim, plain_calls_wait_unless_told_otherwise) {
    start("lazy=100");
    OK(cuMemsetD8(memory, 1, 1));
    cr_expect_eq(byte(0), 1);
    vp_sim_reset();
    start("lazy=100,memset=late");
    OK(cuMemsetD8(memory, 1, 1));
    cr_expect_eq(byte(0), 0);
}

/* ---- memory ---- */

Test(sim, aliases_alias, .init = late) {
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

Test(sim, work_on_missing_memory_is_a_violation, .init = late) {
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

Test(sim, stream_ordered_memory_has_a_beginning_and_an_end, .init = late) {
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

Test(sim, freeing_native_memory_waits_for_the_device, .init = late) {
    CUdeviceptr at;
    OK(cuMemAlloc(&at, 100));
    OK(cuMemsetD8Async(at, 1, 100, free_stream));
    OK(cuMemsetD8Async(memory, 1, 100, other));
    OK(cuMemFree(at));
    cr_expect_eq(byte(0), 1);
    cr_expect_eq(vp_sim_violations(), 0u);
}

Test(sim, pageable_sources_are_staged, .init = late) {
    char text[] = "first";
    OK(cuMemcpyHtoDAsync(memory, text, sizeof(text), blocking));
    strcpy(text, "after");
    OK(cuStreamSynchronize(blocking));
    cr_expect_str_eq((char *)memory, "first");
}

/* FFmpeg rounds its lines by the alignment of textures: by nought to nothing. XLA's allocator wants what is written to
 * memory by streams. */
Test(sim, a_device_has_what_programs_ask_for_first) {
    static const struct {
        CUdevice_attribute which;
        int value;
    } known[] = {{CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
                 {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
                 {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
                 {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
                 {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1}};
    start("");
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        int value = -1;
        OK(cuDeviceGetAttribute(&value, known[i].which, 0));
        cr_expect_eq(value, known[i].value, "attribute %d", known[i].which);
    }
}

Test(sim, capacity_is_shared_by_all_kinds) {
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

Test(sim, a_ledger_has_any_capacity_and_counts_costs) {
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

Test(sim, contexts_take_their_own_with_them, .init = late) {
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

Test(sim, peer_access_ends_with_the_peers_context) {
    CUcontext second;
    start("devices=2,granularity=64K");
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxEnablePeerAccess(second, 0));
    IS(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    OK(cuDevicePrimaryCtxReset(1));
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    IS(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    OK(cuCtxEnablePeerAccess(second, 0));
}

Test(sim, peers_need_access) {
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

/* Seen on an H200: the capture is over, and a graph that was there before it is broken. */
Test(sim, copies_that_name_contexts_are_not_captured) {
    start("");
    CUDA_MEMCPY3D_PEER space = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = memory,
                                .srcContext = context,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = memory + 64,
                                .dstContext = context,
                                .WidthInBytes = 64,
                                .Height = 1,
                                .Depth = 1};
    CUstream stream;
    CUgraph graph, same;
    size_t count;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int rows = 0; rows < 2; rows++) {
        OK(cuGraphCreate(&graph, 0));
        OK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
        IS(rows ? cuMemcpy3DPeerAsync(&space, stream)
                : cuMemcpyPeerAsync(memory + 64, context, memory, context, 64, stream),
           CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        IS(cuStreamEndCapture(stream, &same), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        IS(cuGraphGetNodes(graph, NULL, &count), CUDA_ERROR_INVALID_VALUE);
    }
}

/* Copies of plain memory are staged; one that names its contexts needs mapped memory to be open to its own device
 * alone. */
Test(sim, devices_apart_copy_in_stages) {
    start("devices=2,peers=0,granularity=64K");
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUmemAccessDesc here = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                    there = here;
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
    CUDA_MEMCPY3D_PEER space = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = mapped,
                                .srcContext = second,
                                .srcPitch = 64,
                                .srcHeight = 4,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = plain,
                                .dstContext = second,
                                .dstPitch = 64,
                                .dstHeight = 4,
                                .WidthInBytes = 64,
                                .Height = 4,
                                .Depth = G / 256};
    OK(cuMemcpy3DPeer(&space));
    OK(cuMemcpyDtoH(&byte, plain + G - 1, 1));
    cr_expect_eq(byte, 7);
    cr_expect_eq(vp_sim_violations(), 0u);
}

/* ---- threads ---- */

/* What unwinds a cancelled thread's stack tells the sanitizer nothing of it. */
__attribute__((no_sanitize("address"))) static void *wait_for_stream(void *stream) {
    cuStreamSynchronize(stream);
    return NULL;
}

/* The lock of the simulator is nobody's afterwards. */
Test(sim, a_thread_may_be_cancelled_while_it_waits) {
    pthread_t thread;
    void *how;
    start("granularity=64K,lazy=100,timeout=10000");
    vp_sim_hold(free_stream);
    OK(cuMemsetD8Async(memory, 1, 1, free_stream));
    pthread_create(&thread, NULL, wait_for_stream, free_stream);
    usleep(20000);
    pthread_cancel(thread);
    cr_assert(!pthread_join(thread, &how) && how == PTHREAD_CANCELED);
    vp_sim_release(free_stream);
    OK(cuStreamSynchronize(free_stream));
}
