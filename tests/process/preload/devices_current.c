/* Work whose context is not the current one, or not its stream's: that is another device's, or there is none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sys/wait.h>

#include "devices.h"

/* Queues each kind of copy of `there`, in the stream of its own device, and looks at what has come of it. */
static void copy_in(CUstream of, CUdeviceptr there, CUdeviceptr other, unsigned char *host, unsigned char value) {
    CUDA_MEMCPY2D area = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = SIZE / 4,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = there,
                          .dstPitch = SIZE / 4,
                          .WidthInBytes = SIZE / 4,
                          .Height = 4};
    CUDA_MEMCPY3D box = row((CUdeviceptr)(uintptr_t)(host + SIZE), other);

    memset(host, value, SIZE);
    CHECK_OK(cuMemcpyHtoDAsync(there, host, SIZE, of));
    CHECK_OK(cuMemcpyDtoDAsync(other, there, SIZE, of));
    CHECK_OK(cuMemcpyDtoHAsync(host + SIZE, other, SIZE, of));
    CHECK_OK(cuStreamSynchronize(of));
    CHECK(!memcmp(host, host + SIZE, SIZE));
    memset(host, value + 1, SIZE);
    CHECK_OK(cuMemcpy2DAsync(&area, of));
    CHECK_OK(cuMemcpyAsync(other, there, SIZE, of));
    CHECK_OK(cuMemcpy3DAsync(&box, of));
    CHECK_OK(cuStreamSynchronize(of));
    CHECK(!memcmp(host, host + SIZE, SIZE));
}

/* Nor is anything opened by it to a device that has no part in it. */
void copies_do_not_mind_what_is_current(void) {
    unsigned char *host = malloc((size_t)2 * SIZE);

    CHECK(host);
    start();
    for (int device = 0; device < 2; device++) {
        CUdeviceptr there = take(device, device), other = take(device, false);
        const CUcontext currents[] = {context[1 - device], NULL, context[device]};

        for (int i = 0; i < 3; i++) {
            CHECK_OK(cuCtxSetCurrent(currents[i]));
            copy_in(stream[device], there, other, host, (unsigned char)(10 * device + 3 * i));
        }
        CHECK(driver_access(there, 1 - device) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    free(host);
    check_served();
}

/* ---- graphs that are launched on a stream of one device, in whose order stands what another device does ---- */

static CUgraph captured_across(CUdeviceptr there) {
    CUevent forked, joined;
    CUgraph graph;

    CHECK_OK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    enter(0);
    CHECK_OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_OK(cuEventRecord(forked, stream[0]));
    CHECK_OK(cuStreamWaitEvent(stream[1], forked, 0));
    CHECK_OK(cuMemsetD8Async(there, 7, SIZE, stream[1]));
    CHECK_OK(cuEventRecord(joined, stream[1]));
    CHECK_OK(cuStreamWaitEvent(stream[0], joined, 0));
    CHECK_OK(cuStreamEndCapture(stream[0], &graph));
    return graph;
}

static CUgraph captured_there(CUdeviceptr there) {
    CUgraph graph;

    CHECK_OK(cuStreamBeginCapture(stream[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_OK(cuMemsetD8Async(there, 7, SIZE, stream[1]));
    CHECK_OK(cuStreamEndCapture(stream[1], &graph));
    enter(0);
    return graph;
}

static CUgraph with_a_node(CUdeviceptr there) {
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = there, .value = 7, .elementSize = 1, .width = SIZE, .height = 1};
    CUgraphNode node;
    CUgraph graph;

    enter(0);
    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK_OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context[1]));
    return graph;
}

static CUgraph with_a_child(CUdeviceptr there) {
    CUgraph graph, child = captured_there(there);
    CUgraphNode node;

    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK_OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    CHECK_OK(cuGraphDestroy(child));
    return graph;
}

static void wait_for_a_graph(CUgraph (*made)(CUdeviceptr there)) {
    CUgraphExec exec;

    start();
    CUdeviceptr there = take(1, false), next;
    CHECK_OK(cuGraphInstantiate(&exec, made(there), 0));
    hold(stream[0]);
    CHECK_OK(cuGraphLaunch(exec, stream[0]));
    enter(1);
    CHECK_OK(cuMemFree(there));
    CHECK_OK(cuMemAlloc(&next, SIZE));
    CHECK_OK(cuMemsetD8Async(next, 1, SIZE, stream[1]));
    CHECK_OK(cuStreamSynchronize(stream[1]));
    release_later(stream[0]);
    CHECK_OK(cuStreamSynchronize(stream[0]));
    check_bytes(next, 1);
    check_served();
}

void a_graphs_other_device_is_waited_for(void) {
    wait_for_a_graph(captured_across);
}

void so_is_that_of_one_captured_there(void) {
    wait_for_a_graph(captured_there);
}

void so_is_that_of_a_node(void) {
    wait_for_a_graph(with_a_node);
}

void so_is_that_of_a_graph_within(void) {
    wait_for_a_graph(with_a_child);
}

/* VPOOL_POISON=1: what is freed is written to once nobody reads there, as the held stream does. */
static void free_beneath(CUdeviceptr from, CUdeviceptr to, CUstream held) {
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, release_later, held) == 0);
    CHECK_OK(cuMemFree(from));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(cuStreamSynchronize(held));
    check_bytes(to, 7);
    check_served();
}

void poison_waits_for_another_devices_graphs(void) {
    CUgraphExec exec;
    CUgraph graph;

    start();
    CUdeviceptr there = take(1, false), copy = take(1, false);
    CHECK_OK(cuMemsetD8Async(there, 7, SIZE, stream[1]));
    CHECK_OK(cuStreamSynchronize(stream[1]));
    CHECK_OK(cuStreamBeginCapture(stream[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_OK(cuMemcpyAsync(copy, there, SIZE, stream[1]));
    CHECK_OK(cuStreamEndCapture(stream[1], &graph));
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    hold(stream[0]);
    CHECK_OK(cuGraphLaunch(exec, stream[0]));
    free_beneath(there, copy, stream[0]);
}

void poison_waits_for_another_devices_copies(void) {
    start();
    CUdeviceptr here = take(0, false), there = take(1, false);
    CHECK_OK(cuMemsetD8Async(here, 7, SIZE, stream[0]));
    CHECK_OK(cuStreamSynchronize(stream[0]));
    hold(stream[1]);
    CHECK_OK(cuMemcpyAsync(there, here, SIZE, stream[1]));
    free_beneath(here, there, stream[1]);
}

/* A batch that is made copy by copy, and whose sources are the program's again when the call returns. */
void batches_leave_captures_alone(void) {
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};
    size_t size = SIZE, index = 0;
    CUstream other;
    CUgraph graph;

    start();
    CUdeviceptr there = take(1, false), here = take(0, false);
    CHECK_OK(cuMemsetD8Async(there, 7, SIZE, stream[1]));
    CHECK_OK(cuStreamSynchronize(stream[1]));
    CHECK_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_OK(cuMemcpyBatchAsync(&here, &there, &size, 1, &attributes, &index, 1, stream[0]));
    CHECK_OK(cuStreamEndCapture(other, &graph));
    CHECK_OK(cuStreamSynchronize(stream[0]));
    check_bytes(here, 7);
    check_served();
}

/* Random sizes, up to nine tenths of the device; returns how many were not to be had. */
static int roam(void) {
    enum { BLOCKS = 400, STEPS = 20000, MOST = 6000, LARGEST = 64 };
    static CUdeviceptr block[BLOCKS];
    static size_t size[BLOCKS];
    uint64_t random = 1, live = 0;
    int refused = 0;

    for (int i = 0; i < STEPS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int k = (int)((random >> 33) % BLOCKS);
        if (block[k]) {
            CHECK_OK(cuMemFreeAsync(block[k], stream[0]));
            live -= size[k];
            block[k] = 0;
            continue;
        }
        random = random * 6364136223846793005u + 1442695040888963407u;
        size[k] = 1 + (random >> 30) % ((size_t)LARGEST * SIZE);
        if (live + size[k] > (size_t)MOST * SIZE)
            continue;
        if (cuMemAllocAsync(&block[k], size[k], stream[0]) == CUDA_SUCCESS)
            live += size[k];
        else
            refused++;
    }
    return refused;
}

/* Near its end a pool is more careful: whether that is near is its own device's to tell. */
void room_is_the_pools_own_devices(void) {
    int status[2];

    for (int current = 0; current < 2; current++) {
        pid_t child = fork();

        CHECK(child >= 0);
        if (!child) {
            start();
            enter(current);
            const int refused = roam();
            _exit(refused < 100 ? refused : 100);
        }
        CHECK(waitpid(child, &status[current], 0) == child);
    }
    CHECK(status[0] == 0 && status[1] == 0);
}
