/* Guests of what comes and goes around memory: captures and the graphs that they make, contexts; state_devices.c has
 * others. SPDX-License-Identifier: Apache-2.0 */
#include <sys/wait.h>

#include "../../../src/driver/younger.h"
#include "state.h"

/* ---- captures ---- */

/* What one thread does beside another's capture, or beside its own. */
struct beside {
    CUstream stream;
    CUdeviceptr old, kept;
    CUstreamCaptureMode mode; /* of the thread */
};

/* As CUDA allows it beside a capture. */
#define RELAXED(call)                                                                                                  \
    do {                                                                                                               \
        CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;                                                    \
        CHECK_OK(cuThreadExchangeStreamCaptureMode(&mode_));                                                           \
        CHECK_OK(call);                                                                                                \
        CHECK_OK(cuThreadExchangeStreamCaptureMode(&mode_));                                                           \
    } while (0)

/* Is JAX's plug-in loaded, which makes stream-ordered calls because of the library? Then no capture forbids them. */
static bool adopted;

#define ORDERED(call)                                                                                                  \
    do {                                                                                                               \
        if (adopted)                                                                                                   \
            CHECK_OK(call);                                                                                            \
        else                                                                                                           \
            RELAXED(call);                                                                                             \
    } while (0)

static void *work_beside(void *arg) {
    struct beside *b = arg;
    CUdeviceptr sync, async;
    CUmemoryPool pool;
    size_t unused, total;

    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuThreadExchangeStreamCaptureMode(&b->mode));
    RELAXED(cuMemAlloc(&sync, 5 * MIB));
    ORDERED(cuMemAllocAsync(&async, 3 * MIB, b->stream));
    CHECK_OK(cuMemsetD8Async(async, 9, 3 * MIB, b->stream));
    ORDERED(cuMemFreeAsync(async, b->stream));
    RELAXED(cuMemFree(b->old));
    CHECK_OK(cuMemGetInfo(&unused, &total));
    CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    ORDERED(cuMemPoolTrimTo(pool, 0));
    RELAXED(cuMemFree(sync));
    RELAXED(cuMemAlloc(&b->kept, 2 * MIB));
    CHECK_OK(cuThreadExchangeStreamCaptureMode(&b->mode));
    return NULL;
}

/* A capture in each mode, begun in each way, of a stream of each kind; beside it a thread of each mode, or the
 * capturing one itself, allocates and frees in every way. The capture lives, its graph does what it should, and what
 * was freed comes back. */
enum { BEGUN, INTO_A_GRAPH, ONCE_MORE, BEGINNINGS };

static CUresult begin(CUstream stream, CUstreamCaptureMode mode, CUgraph *graph, int how) {
    if (how == BEGUN)
        return cuStreamBeginCapture(stream, mode);
    CHECK_OK(cuGraphCreate(graph, 0));
    return how == INTO_A_GRAPH ? cuStreamBeginCaptureToGraph(stream, *graph, NULL, NULL, 0, mode)
                               : cuStreamBeginRecaptureToGraph(stream, mode, *graph, NULL, NULL);
}

static int beginnings(void) {
    int version;
    CHECK_OK(cuDriverGetVersion(&version));
    return version >= 13030 ? BEGINNINGS : version >= 12030 ? ONCE_MORE : INTO_A_GRAPH;
}

static void captures_in_every_mode(void) {
    start();
    CUstream side = stream_new(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 3 * 2 * 4 * beginnings(); i++) {
        CUstreamCaptureMode mode = (CUstreamCaptureMode)(i % 3);
        CUstream stream = stream_new(i / 3 % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        int who = i / 6 % 4; /* a thread in mode 0, 1 or 2; 3: this one */
        struct beside b = {.stream = side, .mode = (CUstreamCaptureMode)(who < 3 ? who : 0)};
        CUdeviceptr in, out;
        CUgraph graph = NULL;
        CUgraphExec exec;
        CUstreamCaptureStatus status;

        CHECK_OK(cuMemAlloc(&in, 3 * MIB));
        CHECK_OK(cuMemAlloc(&out, 3 * MIB));
        CHECK_OK(cuMemAlloc(&b.old, 4 * MIB));
        CHECK_OK(begin(stream, mode, &graph, i / 24));
        CHECK_OK(cuMemcpyDtoDAsync(out, in, 3 * MIB, stream));
        on_thread(who < 3, work_beside, &b);
        CHECK_OK(cuStreamIsCapturing(stream, &status));
        CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
        CHECK_OK(cuStreamEndCapture(stream, &graph));
        CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
        for (int round = 0; round < 2; round++) {
            CHECK_OK(cuMemsetD8(in, (unsigned char)(i + round), 3 * MIB));
            CHECK_OK(cuGraphLaunch(exec, stream));
            CHECK_OK(cuStreamSynchronize(stream));
            check_bytes(out, 3 * MIB, (unsigned char)(i + round));
        }
        CHECK_OK(cuGraphExecDestroy(exec));
        CHECK_OK(cuGraphDestroy(graph));
        CHECK_OK(cuMemFree(in));
        CHECK_OK(cuMemFree(out));
        CHECK_OK(cuMemFree(b.kept));
        CHECK_OK(cuStreamDestroy(stream));
    }
    CHECK_OK(cuCtxSynchronize());
    trim();
    CHECK(driver_calls("cuMemCreate") == driver_calls("cuMemRelease"));
    check_served();
}

static void captures_in_every_mode_beside_a_framework(void) {
    CHECK(dlopen("xla_cuda_plugin.so", RTLD_NOW));
    adopted = true;
    captures_in_every_mode();
}

/* A graph knows addresses. Around the blocks that it uses all else is freed, asked for in other sizes, built of
 * the pieces and given back: they stay where they are, with what is in them. */
static void a_graph_keeps_its_memory(void) {
    enum { BLOCKS = 24 };
    CUdeviceptr block[BLOCKS], large;
    CUgraph graph;
    CUgraphExec exec;

    start();
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < BLOCKS; i++)
        CHECK_OK(cuMemAllocAsync(&block[i], 2 * MIB + 4096, stream));
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 2; i < BLOCKS; i += 2)
        CHECK_OK(cuMemcpyDtoDAsync(block[i], block[i - 2], 2 * MIB + 4096, stream));
    CHECK_OK(cuStreamEndCapture(stream, &graph));
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 6; round++) {
        if (round % 2)
            for (int i = 1; i < BLOCKS; i += 2)
                CHECK_OK(cuMemAllocAsync(&block[i], 2 * MIB + 4096, stream));
        else
            for (int i = 1; i < BLOCKS; i += 2)
                CHECK_OK(cuMemFreeAsync(block[i], stream));
        CHECK_OK(cuMemAllocAsync(&large, (size_t)(5 + round) * MIB, stream));
        CHECK_OK(cuMemsetD8Async(large, 200, (size_t)(5 + round) * MIB, stream));
        CHECK_OK(cuMemFreeAsync(large, stream));
        CHECK_OK(cuStreamSynchronize(stream));
        trim();
        CHECK_OK(cuMemsetD8Async(block[0], (unsigned char)round, 2 * MIB + 4096, stream));
        CHECK_OK(cuGraphLaunch(exec, stream));
        CHECK_OK(cuStreamSynchronize(stream));
        for (int i = 0; i < BLOCKS; i += 2)
            check_bytes(block[i], 2 * MIB + 4096, (unsigned char)round);
    }
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(graph));
    check_served();
}

/* Memory that a capture allocates is the graph's own; a launch later it is freed outside, by either call. */
static void memory_of_a_graph_is_cudas(void) {
    start();
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    for (int how = 0; how < 2; how++) {
        CUdeviceptr ptr, ours;
        CUgraph graph;
        CUgraphExec exec;

        CHECK_OK(cuMemAllocAsync(&ours, MIB, stream));
        CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK_OK(cuMemAllocAsync(&ptr, MIB, stream));
        CHECK_OK(cuMemsetD8Async(ptr, 5, MIB, stream));
        CHECK_OK(cuMemcpyDtoDAsync(ours, ptr, MIB, stream));
        CHECK_OK(cuStreamEndCapture(stream, &graph));
        CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
        CHECK_OK(cuGraphLaunch(exec, stream));
        CHECK_OK(cuStreamSynchronize(stream));
        check_bytes(ours, MIB, 5);
        SHOW(how ? cuMemFree(ptr) : cuMemFreeAsync(ptr, stream));
        SHOW(cuStreamSynchronize(stream));
        SHOW(cuMemFreeAsync(ours, stream));
        CHECK_OK(cuGraphExecDestroy(exec));
        CHECK_OK(cuGraphDestroy(graph));
    }
}

/* What was allocated before a capture cannot be freed in it. The error is CUDA's, and the block lives on. */
static void a_free_in_a_capture_is_refused(void) {
    CUdeviceptr ptr;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;

    start();
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    CHECK_OK(cuMemAllocAsync(&ptr, 2 * MIB, stream));
    CHECK_OK(cuMemsetD8Async(ptr, 7, 2 * MIB, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SHOW(cuMemFreeAsync(ptr, stream));
    SHOW(cuStreamIsCapturing(stream, &status));
    printf("status %d\n", (int)status);
    SHOW(cuStreamEndCapture(stream, &graph));
    check_bytes(ptr, 2 * MIB, 7);
    SHOW(cuMemFreeAsync(ptr, stream));
    SHOW(cuMemFreeAsync(ptr, stream));
    SHOW(cuStreamSynchronize(stream));
}

/* A graph that lacks memory gets what lies idle, and is made or launched once more. */
static void graphs_get_idle_memory(void) {
    static const char *const names[] = {"cuGraphInstantiateWithFlags", "cuGraphUpload", "cuGraphLaunch",
                                        "cuGraphInstantiate", "cuGraphInstantiate_v2"};
    void (*fail)(const char *, long, CUresult);
    CUdeviceptr ptr, idle;

    start();
    void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY);
    fail = guest_symbol(libcuda, "vp_sim_fail");
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    CHECK_OK(cuMemAlloc(&ptr, MIB));
    for (int lacking = 0; lacking < 2; lacking++)
        for (int which = 0; which < 5; which++) {
            CUgraph graph;
            CUgraphExec exec;
            CUresult wanted = lacking ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;

            CHECK_OK(cuMemAlloc(&idle, 9 * MIB));
            CHECK_OK(cuMemFree(idle));
            CHECK_OK(cuCtxSynchronize());
            if (lacking)
                trim();
            CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
            CHECK_OK(cuMemsetD8Async(ptr, (unsigned char)which, MIB, stream));
            CHECK_OK(cuStreamEndCapture(stream, &graph));
            fail(names[which], 1, CUDA_ERROR_OUT_OF_MEMORY);
            /* Runtimes before CUDA 12 make them by calls of their own. */
            CUresult (*older)(CUgraphExec *, CUgraph, CUgraphNode *, char *,
                              size_t) = which < 3 ? NULL : guest_symbol(libcuda, names[which]);
            CUresult made = older ? older(&exec, graph, NULL, NULL, 0) : cuGraphInstantiate(&exec, graph, 0);
            CHECK(made == (which == 0 || older ? wanted : CUDA_SUCCESS));
            if ((which == 0 || older) && lacking) {
                CHECK_OK(cuGraphDestroy(graph));
                continue;
            }
            CHECK(cuGraphUpload(exec, stream) == (which == 1 ? wanted : CUDA_SUCCESS));
            CHECK(cuGraphLaunch(exec, stream) == (which == 2 ? wanted : CUDA_SUCCESS));
            CHECK_OK(cuStreamSynchronize(stream));
            if (!lacking)
                check_bytes(ptr, MIB, (unsigned char)which);
            CHECK_OK(cuGraphExecDestroy(exec));
            CHECK_OK(cuGraphDestroy(graph));
        }
}

static CUresult add_memory(CUgraph graph, bool typed) {
    const CUmemPoolProps device = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = device, .bytesize = MIB};
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    CUgraphNode node;

    /* That it is refused is all that matters where it gets that far: there is no kernel. */
    return typed ? cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params)
                 : cuGraphAddMemAllocNode(&node, graph, NULL, 0, &p);
}

/* So does a node that lacks some, of whatever kind: memory, or a kernel that has yet to be loaded. */
static void nodes_get_idle_memory(void) {
    void (*fail)(const char *, long, CUresult);
    CUdeviceptr ptr, idle;
    CUgraph graph;

    start();
    fail = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_fail");
    CHECK_OK(cuMemAlloc(&ptr, MIB));
    CHECK_OK(cuGraphCreate(&graph, 0));
    for (int lacking = 0; lacking < 2; lacking++)
        for (int typed = 0; typed < 2; typed++) {
            CHECK_OK(cuMemAlloc(&idle, 9 * MIB));
            CHECK_OK(cuMemFree(idle));
            CHECK_OK(cuCtxSynchronize());
            if (lacking)
                trim();
            fail(typed ? "cuGraphAddNode_v2" : "cuGraphAddMemAllocNode", 1, CUDA_ERROR_OUT_OF_MEMORY);
            const CUresult then = typed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
            CHECK(add_memory(graph, typed) == (lacking ? CUDA_ERROR_OUT_OF_MEMORY : then));
        }
    CHECK_OK(cuGraphDestroy(graph));
}

/* What a graph has left when it is gone CUDA keeps for the next one. It gives that back once memory is refused, and an
 * allocation has it then (H200). */
static void what_graphs_have_left_is_had(void) {
    CUdeviceptr ptr;
    CUgraph graph;
    CUgraphExec exec;

    start();
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    for (int async = 0; async < 2; async++) {
        CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK_OK(cuMemAllocAsync(&ptr, 40 * MIB, stream));
        CHECK_OK(cuMemFreeAsync(ptr, stream));
        CHECK_OK(cuStreamEndCapture(stream, &graph));
        CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
        CHECK_OK(cuGraphLaunch(exec, stream));
        CHECK_OK(cuStreamSynchronize(stream));
        CHECK_OK(cuGraphExecDestroy(exec));
        CHECK_OK(cuGraphDestroy(graph));
        CHECK_OK(async ? cuMemAllocAsync(&ptr, 50 * MIB, stream) : cuMemAlloc(&ptr, 50 * MIB));
        CHECK_OK(cuMemFree(ptr));
        trim();
    }
}

/* The first function that a context runs takes memory, when it is launched: what was freed before must be there. The
 * simulated device has 64 MiB. */
static CUresult launch_one(int which, CUfunction function) {
    const CUlaunchConfig config = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY);
    __typeof__(&cuLaunchKernel) own = guest_symbol(libcuda, "cuLaunchKernel_ptsz");
    __typeof__(&cuLaunchKernelEx) own_ex = guest_symbol(libcuda, "cuLaunchKernelEx_ptsz");
    __typeof__(&cuLaunchCooperativeKernel) own_cooperative = guest_symbol(libcuda, "cuLaunchCooperativeKernel_ptsz");
    switch (which) {
    case 0: return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    case 1: return own(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    case 2: return cuLaunchKernelEx(&config, function, NULL, NULL);
    case 3: return own_ex(&config, function, NULL, NULL);
    case 4: return cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL);
    default: return own_cooperative(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL);
    }
}

static void launches_get_idle_memory(void) {
    for (int which = 0; which < 6; which++) {
        CUdeviceptr held[64];
        CUmodule module;
        CUfunction function;
        int n = 0;

        start();
        CHECK_OK(cuModuleLoadData(&module, "code"));
        CHECK_OK(cuModuleGetFunction(&function, module, "kernel"));
        while (n < 64 && cuMemAlloc(&held[n], MIB) == CUDA_SUCCESS)
            n++;
        CHECK(launch_one(which, function) == CUDA_ERROR_OUT_OF_MEMORY);
        while (n > 4)
            CHECK_OK(cuMemFree(held[--n]));
        CHECK_OK(launch_one(which, function));
        CHECK_OK(cuCtxSynchronize());
        CHECK_OK(cuDevicePrimaryCtxReset(0));
    }
}

static void leave_2000_mib_idle(void) {
    CUdeviceptr block[20];
    CUstream stream;

    start();
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 20; i++)
        CHECK_OK(cuMemAllocAsync(&block[i], 100 * MIB, stream));
    for (int i = 0; i < 20; i++)
        CHECK_OK(cuMemFreeAsync(block[i], stream));
    CHECK_OK(cuCtxSynchronize());
}

/* Where a device cannot page, as on some systems, managed memory is its own from the start. */
static void managed_memory_gets_idle_memory(void) {
    CUdeviceptr managed;

    leave_2000_mib_idle();
    CHECK_OK(cuMemAllocManaged(&managed, (size_t)3000 * MIB, CU_MEM_ATTACH_GLOBAL));
}

/* Narrow rows take many times their bytes. */
static void rows_get_idle_memory(void) {
    CUdeviceptr rows;
    size_t pitch;

    leave_2000_mib_idle();
    CHECK_OK(cuMemAllocPitch(&rows, &pitch, 16, 6 * MIB, 16));
}

/* ---- contexts ---- */

/* Nothing of ours outlives a context, but for what is free to all; and nothing is lost. */
static void check_nothing_left(unsigned long reservations) {
    trim();
    CHECK(driver_calls("cuMemCreate") == driver_calls("cuMemRelease"));
    CHECK(driver_calls("cuMemAddressReserve") == reservations);
}

static void contexts_come_and_go(void) {
    unsigned long reservations = 0;

    start();
    for (int round = 0; round < 12; round++) {
        CUcontext made;
        CUdeviceptr sync, async, ours;

        CHECK_OK(cuMemAlloc(&ours, 2 * MIB));
        CHECK_OK(cuMemsetD8(ours, (unsigned char)round, 2 * MIB));
        CHECK_OK(cuCtxCreate(&made, NULL, 0, 0));
        CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
        CHECK_OK(cuMemAlloc(&sync, 5 * MIB));
        CHECK_OK(cuMemAllocAsync(&async, 3 * MIB, stream));
        CHECK_OK(cuMemsetD8Async(async, 1, 3 * MIB, stream));
        if (round % 2)
            CHECK_OK(cuStreamDestroy(stream));
        CHECK_OK(cuCtxDestroy(made));
        CHECK_OK(cuCtxSetCurrent(context));
        CHECK(cuMemFree(sync) != CUDA_SUCCESS); /* it went with its context */
        CHECK_OK(cuMemFree(async));             /* this one has none */
        check_bytes(ours, 2 * MIB, (unsigned char)round);
        CHECK_OK(cuMemFree(ours));
        CHECK_OK(cuCtxSynchronize());
        if (!round)
            reservations = driver_calls("cuMemAddressReserve");
        check_nothing_left(reservations);
    }
    check_served();
}

static void green_contexts_come_and_go(void) {
    unsigned long reservations = 0;

    start();
    for (int round = 0; round < 6; round++) {
        CUdevResource all, part;
        CUdevResourceDesc desc;
        unsigned int parts = 1;
        CUgreenCtx green;
        CUstream stream;
        CUdeviceptr a, b;

        CHECK_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
        CHECK_OK(cuDevSmResourceSplitByCount(&part, &parts, &all, NULL, 0, 8));
        CHECK_OK(cuDevResourceGenerateDesc(&desc, &part, 1));
        CHECK_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        CHECK_OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
        CHECK_OK(cuMemAllocAsync(&a, 3 * MIB, stream));
        CHECK_OK(cuMemsetD8Async(a, 4, 3 * MIB, stream));
        CHECK_OK(cuMemFree(a)); /* while the stream may be at work there: the next owner is behind it */
        CHECK_OK(cuMemAlloc(&b, 3 * MIB));
        CHECK_OK(cuMemsetD8(b, 6, 3 * MIB));
        CHECK_OK(cuStreamSynchronize(stream));
        check_bytes(b, 3 * MIB, 6);
        CHECK_OK(cuMemAllocAsync(&a, 3 * MIB, stream));
        CHECK_OK(cuStreamDestroy(stream));
        CHECK_OK(cuGreenCtxDestroy(green));
        CHECK_OK(cuMemFree(a));
        CHECK_OK(cuMemFree(b));
        CHECK_OK(cuCtxSynchronize());
        if (!round)
            reservations = driver_calls("cuMemAddressReserve");
        check_nothing_left(reservations);
    }
    check_served();
}

/* By way of cuCtxFromGreenCtx: no stream of such a context was made, nor memory asked for there. That of the primary
 * context, which it is a part of, is not in use. */
static void green_contexts_run_work_without_streams(void) {
    CUdevResource all;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUcontext made, green_context;
    CUdeviceptr a, b;
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY);
    void (*hold)(CUstream) = guest_symbol(cuda, "vp_sim_hold"),
         (*release)(CUstream) = guest_symbol(cuda, "vp_sim_release");

    CHECK_OK(cuInit(0));
    CHECK_OK(cuCtxCreate(&made, NULL, 0, 0));
    CHECK_OK(cuMemAlloc(&a, 3 * MIB));
    CHECK_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_OK(cuDevResourceGenerateDesc(&desc, &all, 1));
    CHECK_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK_OK(cuCtxFromGreenCtx(&green_context, green));
    CHECK_OK(cuCtxPushCurrent(green_context));
    hold(NULL);
    CHECK_OK(cuMemsetD8Async(a, 4, 3 * MIB, NULL));
    CHECK_OK(cuCtxPopCurrent(NULL));
    CHECK_OK(cuMemFree(a)); /* while the context is at work there: no next owner before it is done */
    CHECK_OK(cuMemAlloc(&b, 3 * MIB));
    CHECK_OK(cuMemsetD8(b, 6, 3 * MIB));
    CHECK_OK(cuCtxPushCurrent(green_context));
    release(NULL);
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuCtxPopCurrent(NULL));
    check_bytes(b, 3 * MIB, 6);
    CHECK_OK(cuMemFree(b));
    CHECK_OK(cuGreenCtxDestroy(green));
    check_served();
}

static void primary_contexts_are_reset(void) {
    unsigned long reservations = 0;

    for (int round = 0; round < 8; round++) {
        CUdeviceptr sync, async, freed;

        start();
        if (round % 4 == 3)
            CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
        CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
        CHECK_OK(cuMemAlloc(&sync, 5 * MIB));
        CHECK_OK(cuMemAllocAsync(&freed, 4 * MIB, stream));
        CHECK_OK(cuMemFreeAsync(freed, stream));
        CHECK_OK(cuMemAllocAsync(&async, 3 * MIB, stream));
        CHECK_OK(cuMemFreeAsync(async, stream));
        if (round % 2) {
            CHECK_OK(cuDevicePrimaryCtxRelease(0));
            if (round % 4 == 3) {
                check_bytes(sync, 5 * MIB, 0); /* still retained: nothing has ended */
                CHECK_OK(cuDevicePrimaryCtxRelease(0));
            }
        } else {
            CHECK_OK(cuDevicePrimaryCtxReset(0));
            CHECK_OK(cuDevicePrimaryCtxRelease(0));
        }
        if (!round)
            reservations = driver_calls("cuMemAddressReserve");
        context = retain(0);
        check_nothing_left(reservations);
        CHECK_OK(cuDevicePrimaryCtxRelease(0));
    }
    check_served();
}

/* Of a context that waits for calls on a block, as those of all memory then. */
static void flags_leave_sync_memops(void) {
    CUresult (*set_flags)(unsigned) = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuCtxSetFlags");
    const unsigned on = 1;
    unsigned flags = 0;
    CUdeviceptr ptr;

    CHECK_OK(cuInit(0));
    context = retain(0);
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(set_flags(CU_CTX_SCHED_YIELD));
    CHECK_OK(cuCtxGetFlags(&flags));
    CHECK(flags == CU_CTX_SCHED_YIELD);
    CHECK_OK(cuMemAlloc(&ptr, MIB));
    CHECK_OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
    CHECK_OK(set_flags(CU_CTX_SCHED_SPIN));
    CHECK_OK(cuCtxGetFlags(&flags));
    CHECK(flags == (CU_CTX_SCHED_SPIN | CU_CTX_SYNC_MEMOPS));
    CHECK_OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD));
    CHECK_OK(cuCtxGetFlags(&flags));
    CHECK(flags == (CU_CTX_SCHED_YIELD | CU_CTX_SYNC_MEMOPS));
}

/* A pool that may hand on what another stream has freed only once the program has waited for that. */
static void a_context_can_be_waited_for_by_name(void) {
    size_t (*used)(int) = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_used");
    cuuint64_t all = UINT64_MAX;
    CUstream streams[2];
    CUmemoryPool pool;
    CUdeviceptr ptr;
    int no = 0;

    start();
    CHECK_OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &no));
    CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no));
    CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(cuMemAllocAsync(&ptr, 32 * MIB, streams[i % 2]));
        SHOW(used(0) / MIB);
        CHECK_OK(cuMemFreeAsync(ptr, streams[i % 2]));
        CHECK_OK(i == 0 ? cuCtxSynchronize() : cuCtxSynchronize_v2(i == 1 ? NULL : context));
    }
}

GUEST_MAIN(GUEST(captures_in_every_mode), GUEST(captures_in_every_mode_beside_a_framework),
           GUEST(a_graph_keeps_its_memory), GUEST(memory_of_a_graph_is_cudas), GUEST(a_free_in_a_capture_is_refused),
           GUEST(graphs_get_idle_memory), GUEST(nodes_get_idle_memory), GUEST(what_graphs_have_left_is_had),
           GUEST(launches_get_idle_memory), GUEST(managed_memory_gets_idle_memory), GUEST(rows_get_idle_memory),
           GUEST(contexts_come_and_go), GUEST(green_contexts_come_and_go),
           GUEST(green_contexts_run_work_without_streams), GUEST(primary_contexts_are_reset),
           GUEST(peers_reach_what_they_may), GUEST(peers_come_before_memory), GUEST(enabling_a_peer_may_fail),
           GUEST(devices_have_pools_of_their_own), GUEST(threads_without_a_context),
           GUEST(ranks_that_wait_for_each_other), GUEST(flags_leave_sync_memops),
           GUEST(a_context_can_be_waited_for_by_name))
