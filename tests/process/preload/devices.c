/* Guests of two devices (VPOOL_SIM=devices=2, with peers=0: that cannot reach each other): copies between them, which
 * need no leave, and what one device's trouble is to the other. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/wait.h>

#include "../../../src/driver/younger.h"
#include "devices.h"

enum { MIB = 1 << 20, SIDE = 1024, SLICE = 32 };

CUcontext context[2];
CUstream stream[2];

void enter(int device) {
    CHECK_OK(cuCtxSetCurrent(context[device]));
}

void start(void) {
    CHECK_OK(cuInit(0));
    for (int device = 0; device < 2; device++) {
        CHECK_OK(cuDevicePrimaryCtxRetain(&context[device], device));
        enter(device);
        CHECK_OK(cuStreamCreate(&stream[device], CU_STREAM_NON_BLOCKING));
    }
}

bool can_reach(void) {
    int can = 0;

    CHECK_OK(cuDeviceCanAccessPeer(&can, 1, 0));
    return can;
}

void *sim(const char *name) {
    return guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), name);
}

static unsigned access_flags(CUdeviceptr ptr) {
    unsigned flags = 99;

    CHECK_OK(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, ptr));
    return flags;
}

/* Does the current context see it, by what the program has allowed? */
static bool sees(CUdeviceptr ptr) {
    CUdeviceptr there, base;
    size_t size;
    const bool seen = cuPointerGetAttribute(&there, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr) == CUDA_SUCCESS;

    CHECK(cuMemGetAddressRange(&base, &size, ptr) == (seen ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND));
    return seen;
}

CUdeviceptr take(int device, bool async) {
    CUdeviceptr ptr;

    enter(device);
    CHECK_OK(async ? cuMemAllocAsync(&ptr, SIZE, stream[device]) : cuMemAlloc(&ptr, SIZE));
    CHECK_OK(cuStreamSynchronize(stream[device]));
    return ptr;
}

/* ---- copies ---- */

/* The form of a call that means the per-thread stream. */
#define PER_THREAD(call, suffix) ((__typeof__(&call))sim(#call suffix))

/* One copy of SIZE bytes, by each call that can make it. `at`: the stream to use. */
struct copy {
    CUdeviceptr dst, src;
    int to, from;
    CUstream at;
};

static CUDA_MEMCPY2D rows(const struct copy *c) {
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = c->src,
                           .srcPitch = SIDE,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = c->dst,
                           .dstPitch = SIDE,
                           .WidthInBytes = SIDE,
                           .Height = SIZE / SIDE};
}

static CUDA_MEMCPY3D slices(const struct copy *c) {
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = c->src,
                           .srcPitch = SIDE,
                           .srcHeight = SLICE,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = c->dst,
                           .dstPitch = SIDE,
                           .dstHeight = SLICE,
                           .WidthInBytes = SIDE,
                           .Height = SLICE,
                           .Depth = SIZE / SIDE / SLICE};
}

static CUresult batch(const struct copy *c) {
    CUdeviceptr dsts[2] = {c->dst, c->dst + SIZE / 2}, srcs[2] = {c->src, c->src + SIZE / 2};
    size_t sizes[2] = {SIZE / 2, SIZE / 2}, index = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

    return cuMemcpyBatchAsync(dsts, srcs, sizes, 2, &attributes, &index, 1, c->at);
}

static CUDA_MEMCPY3D_BATCH_OP batch_op(const struct copy *c) {
    return (CUDA_MEMCPY3D_BATCH_OP){
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = c->src},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = c->dst},
        .extent = {SIDE, SLICE, SIZE / SIDE / SLICE},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
    };
}

static CUresult batch_of_slices(const struct copy *c) {
    CUDA_MEMCPY3D_BATCH_OP op = batch_op(c);

    return cuMemcpy3DBatchAsync(1, &op, 0, c->at);
}

static CUresult with_attributes(const struct copy *c) {
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};
    CUresult res = cuMemcpyWithAttributesAsync(c->dst, c->src, SIZE / 2, &attributes, c->at);

    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    return res ? res : cuMemcpyWithAttributesAsync(c->dst + SIZE / 2, c->src + SIZE / 2, SIZE / 2, &attributes, NULL);
}

static CUresult slices_with_attributes(const struct copy *c) {
    CUDA_MEMCPY3D_BATCH_OP op = batch_op(c);

    return PER_THREAD(cuMemcpy3DWithAttributesAsync, "_ptsz")(&op, 0, c->at);
}

/* The calls that add a node: the one for copies, that for nodes of every kind, and the one of a younger driver, for one
 * copy and for many. */
enum call { COPIES, GENERAL, YOUNGER, BATCH };

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, enum call call, const CUDA_MEMCPY3D *p,
                    CUcontext in) {
    CUdeviceptr dst = p->dstDevice, src = p->srcDevice;
    size_t size = p->WidthInBytes * p->Height, index = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    const CUDA_MEMCPY_BATCH_NODE_PARAMS many = {.count = 1,
                                                .dsts = &dst,
                                                .srcs = &src,
                                                .sizes = &size,
                                                .attrs = &attributes,
                                                .attrsIdxs = &index,
                                                .numAttrs = 1,
                                                .ctx = in};
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy.copyParams = *p};

    if (call == COPIES)
        return cuGraphAddMemcpyNode(node, graph, after, 2, p, in);
    if (call == GENERAL)
        return cuGraphAddNode(node, graph, after, NULL, 2, &params);
    if (call == BATCH) {
        params = (CUgraphNodeParams){.type = (CUgraphNodeType)CU_GRAPH_NODE_TYPE_MEMCPY_BATCH};
        memcpy(&params.memcpy, &many, sizeof many);
    }
    return cuGraphAddNode_v3(node, graph, after, NULL, 2, &params);
}

/* A node that is added to a graph, behind nodes that are there: a row or rows. */
static CUresult node(const struct copy *c, bool row, enum call call) {
    CUDA_MEMCPY3D p = slices(c);
    CUgraphNodeType type;
    CUgraphNode first[2], made = NULL;
    CUgraph graph;
    CUgraphExec exec;
    size_t count = 0;

    p.WidthInBytes = row ? SIZE : SIDE;
    p.Height = SIZE / p.WidthInBytes;
    p.Depth = 1;
    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK_OK(cuGraphAddEmptyNode(&first[0], graph, NULL, 0));
    CHECK_OK(cuGraphAddEmptyNode(&first[1], graph, NULL, 0));
    CUresult res = add(&made, graph, first, call, &p, row ? context[c->from] : context[c->to]);
    CHECK(res || made);
    if (!res) {
        CHECK_OK(cuGraphNodeGetType(made, &type));
        CHECK(type == CU_GRAPH_NODE_TYPE_MEMCPY);
        CHECK_OK(cuGraphGetNodes(graph, NULL, &count));
        CHECK(count == 3);
        CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
        CHECK_OK(cuGraphLaunch(exec, c->at));
        CHECK_OK(cuStreamSynchronize(c->at));
        CHECK_OK(cuGraphExecDestroy(exec));
    }
    CHECK_OK(cuGraphDestroy(graph));
    return res;
}

enum { WAYS = 25, NODES = 5 };

static CUresult run(const struct copy *c, int way) {
    CUDA_MEMCPY2D area = rows(c);
    CUDA_MEMCPY3D space = slices(c);

    switch (way) {
    case 0: return cuMemcpy(c->dst, c->src, SIZE);
    case 1: return cuMemcpyAsync(c->dst, c->src, SIZE, c->at);
    case 2: return cuMemcpyDtoD(c->dst, c->src, SIZE);
    case 3: return cuMemcpyDtoDAsync(c->dst, c->src, SIZE, c->at);
    case 4: return cuMemcpyPeer(c->dst, context[c->to], c->src, context[c->from], SIZE);
    case 5: return cuMemcpyPeerAsync(c->dst, context[c->to], c->src, context[c->from], SIZE, c->at);
    case 6: return cuMemcpy2D(&area);
    case 7: return cuMemcpy2DUnaligned(&area);
    case 8: return cuMemcpy2DAsync(&area, c->at);
    case 9: return cuMemcpy3D(&space);
    case 10: return cuMemcpy3DAsync(&space, c->at);
    case 11: return PER_THREAD(cuMemcpy, "_ptds")(c->dst, c->src, SIZE);
    case 12: return PER_THREAD(cuMemcpyAsync, "_ptsz")(c->dst, c->src, SIZE, c->at);
    case 13: return ((__typeof__(&cuMemcpyDtoDAsync))sim("cuMemcpyDtoDAsync_v2_ptsz"))(c->dst, c->src, SIZE, NULL);
    case 14: return ((__typeof__(&cuMemcpy2DAsync))sim("cuMemcpy2DAsync_v2_ptsz"))(&area, c->at);
    case 15: return ((__typeof__(&cuMemcpy3D))sim("cuMemcpy3D_v2_ptds"))(&space);
    case 16: return batch(c);
    case 17: return batch_of_slices(c);
    case 18: return with_attributes(c);
    case 19: return slices_with_attributes(c);
    case 20: return node(c, true, COPIES);
    case 21: return node(c, false, COPIES);
    case 22: return node(c, false, GENERAL);
    case 23: return node(c, false, YOUNGER);
    case 24: return node(c, true, BATCH);
    default: return CUDA_ERROR_NOT_FOUND;
    }
}

/* The last ones put it into a graph, as which no copy is made between devices apart. */
static int ways(void) {
    return can_reach() ? WAYS : WAYS - NODES;
}

void check_bytes(CUdeviceptr ptr, unsigned char value) {
    const size_t places[] = {0, SIZE / 2, SIZE - 1};
    unsigned char byte;

    for (int i = 0; i < 3; i++) {
        CHECK_OK(cuMemcpyDtoH(&byte, ptr + places[i], 1));
        CHECK(byte == value);
    }
}

/* By every call, both ways, with either context current, on memory of both kinds. */
static void copies_need_no_leave(void) {
    unsigned char value = 0;

    start();
    for (int async = 0; async < 2; async++) {
        CUdeviceptr ptr[2] = {take(0, async), take(1, async)};

        for (int from = 0; from < 2; from++)
            for (int current = 0; current < 2; current++)
                for (int way = 0; way < ways(); way++) {
                    struct copy c = {
                        .dst = ptr[!from], .src = ptr[from], .to = !from, .from = from, .at = stream[current]};

                    enter(from);
                    CHECK_OK(cuMemsetD8(c.src, ++value, SIZE));
                    CHECK_OK(cuCtxSynchronize());
                    enter(current);
                    CHECK_OK(run(&c, way));
                    CHECK_OK(cuCtxSynchronize());
                    check_bytes(c.dst, value);
                }
        for (int device = 0; device < 2; device++)
            CHECK_OK(cuMemFree(ptr[device]));
    }
    check_served();
}

static void copy_once(int way, int current) {
    start();
    if (way >= ways())
        return;
    CUdeviceptr src = take(0, false), dst = take(1, false);
    struct copy c = {.dst = dst, .src = src, .to = 1, .from = 0, .at = stream[current]};

    enter(0);
    CHECK_OK(cuMemsetD8(src, 7, SIZE));
    CHECK_OK(cuCtxSynchronize());
    enter(current);
    CHECK_OK(run(&c, way));
    CHECK_OK(cuCtxSynchronize());
    check_bytes(dst, 7);
    check_served();
}

/* What one copy has opened stays open: so each is the first of a process. */
static void every_copy_may_be_the_first(void) {
    for (int way = 0; way < WAYS; way++)
        for (int current = 0; current < 2; current++) {
            int status = 1;
            pid_t child = fork();

            CHECK(child >= 0);
            if (!child) {
                copy_once(way, current);
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child);
            if (status)
                fprintf(stderr, "way %d, in %d\n", way, current);
            CHECK(!status);
        }
}

/* An array of one device, and memory of the other. */
static void arrays_need_no_leave(void) {
    const CUDA_ARRAY_DESCRIPTOR line = {.Width = SIZE, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUresult (*to_array)(CUarray, size_t, CUdeviceptr, size_t) = sim("cuMemcpyDtoA_v2_ptds");
    CUresult (*from_array)(CUdeviceptr, CUarray, size_t, size_t) = sim("cuMemcpyAtoD_v2_ptds");
    CUarray array;

    start();
    enter(0);
    CHECK_OK(cuArrayCreate(&array, &line));
    CUdeviceptr src = take(1, false), dst = take(1, true);
    for (unsigned char value = 1; value < 5; value++) {
        enter(1);
        CHECK_OK(cuMemsetD8(src, value, SIZE));
        CHECK_OK(cuMemsetD8(dst, 0, SIZE));
        CHECK_OK(cuCtxSynchronize());
        enter(0);
        CHECK_OK(value % 2 ? cuMemcpyDtoA(array, 16, src, SIZE - 16) : to_array(array, 16, src, SIZE - 16));
        CHECK_OK(value % 2 ? cuMemcpyAtoD(dst, array, 16, SIZE - 16) : from_array(dst, array, 16, SIZE - 16));
        CHECK_OK(cuMemcpyAtoD(dst + SIZE - 16, array, 16, 16));
        CHECK_OK(cuCtxSynchronize());
        check_bytes(dst, value);
    }
    check_served();
}

/* The other device's context is current while one's memory goes to the host, or comes from there. */
static void the_host_is_reached_from_any_context(void) {
    static unsigned char plain[SIZE];
    unsigned char *pinned;

    start();
    CHECK_OK(cuMemHostAlloc((void **)&pinned, SIZE, 0));
    for (int async = 0; async < 2; async++) {
        CUdeviceptr ptr = take(0, async);

        enter(1);
        memset(plain, 3, SIZE);
        CHECK_OK(cuMemcpyHtoD(ptr, plain, SIZE));
        check_bytes(ptr, 3);
        memset(pinned, 4, SIZE);
        CHECK_OK(cuMemcpyHtoDAsync(ptr, pinned, SIZE, stream[1]));
        CHECK_OK(cuMemcpyDtoHAsync(plain, ptr, SIZE, stream[1]));
        CHECK_OK(cuStreamSynchronize(stream[1]));
        CHECK(plain[0] == 4 && plain[SIZE - 1] == 4);
        CUDA_MEMCPY2D area = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                              .srcHost = plain,
                              .srcPitch = SIDE,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = ptr,
                              .dstPitch = SIDE,
                              .WidthInBytes = SIDE,
                              .Height = SIZE / SIDE};
        memset(plain, 5, SIZE);
        CHECK_OK(cuMemcpy2D(&area));
        check_bytes(ptr, 5);
        CHECK_OK(cuMemFree(ptr));
    }
    check_served();
}

/* In its stream's order: behind what comes before it, and before what comes behind. */
static void copies_keep_their_order(void) {
    start();
    CUdeviceptr there = take(1, false), here = take(0, false), back = take(0, false);

    enter(0);
    for (int i = 1; i < 40; i++) {
        CHECK_OK(cuMemsetD8Async(here, (unsigned char)i, SIZE, stream[0]));
        CHECK_OK(cuMemcpyAsync(there, here, SIZE, stream[0]));
        CHECK_OK(cuMemsetD8Async(here, 0, SIZE, stream[0]));
        CHECK_OK(cuMemcpyAsync(back, there, SIZE, stream[0]));
        if (i % 8 == 0) {
            CHECK_OK(cuStreamSynchronize(stream[0]));
            check_bytes(back, (unsigned char)i);
        }
    }
    check_served();
}

static void copies_can_be_captured(void) {
    CUgraph graph;
    CUgraphExec exec;

    start();
    CUdeviceptr here = take(0, false), there = take(1, false);

    enter(0);
    CHECK_OK(cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_OK(cuMemcpyAsync(there, here, SIZE, stream[0]));
    CHECK_OK(cuStreamEndCapture(stream[0], &graph));
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 1; i < 4; i++) {
        CHECK_OK(cuMemsetD8Async(here, (unsigned char)i, SIZE, stream[0]));
        CHECK_OK(cuGraphLaunch(exec, stream[0]));
        CHECK_OK(cuStreamSynchronize(stream[0]));
        check_bytes(there, (unsigned char)i);
    }
    check_served();
}

/* ---- what the program may see of it ---- */

/* Memory that is open for copies is not the peer's, whatever is asked; and none is before there was a copy. */
static void openness_is_not_told(void) {
    CUmemoryPool pool;
    CUmemLocation peer = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    CUmemAccess_flags flags;

    start();
    CUdeviceptr sync = take(0, false), async = take(0, true), there = take(1, false);
    enter(0);
    CHECK_OK(cuMemcpyDtoD(async, sync, SIZE));
    CHECK(driver_access(sync, 1) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_OK(cuMemcpyDtoD(there, sync, SIZE));
    CHECK(driver_access(there, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(driver_access(sync, 1) == CU_MEM_ACCESS_FLAGS_PROT_NONE); /* device 0 makes the copy */
    enter(1);
    CHECK_OK(cuMemcpyDtoD(there, sync, SIZE));
    CHECK(driver_access(sync, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(driver_access(take(0, false), 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK_OK(cuMemPoolGetAccess(&flags, pool, &peer));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    enter(0);
    CHECK(access_flags(sync) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    enter(1);
    CHECK(access_flags(sync) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    CHECK(access_flags(async) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE); /* CUDA says so to every device */
    CHECK(!sees(sync) && !sees(async));

    unsigned long before = driver_calls("cuMemSetAccess");
    CHECK(cuCtxDisablePeerAccess(context[0]) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    CHECK_OK(cuCtxEnablePeerAccess(context[0], 0));
    CHECK(cuCtxEnablePeerAccess(context[0], 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    CHECK(sees(sync) && !sees(async));
    CHECK_OK(cuCtxDisablePeerAccess(context[0]));
    CHECK(!sees(sync));
    CHECK(driver_access(sync, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(driver_calls("cuMemSetAccess") == before);
    check_served();
}

/* The driver refuses to open some of the memory: that is nobody's error, and copies find their way. */
static void what_cannot_be_opened_is_copied_nevertheless(void) {
    void (*fail)(const char *, long, CUresult);

    start();
    fail = sim("vp_sim_fail");
    CUdeviceptr there = take(1, false), one = take(0, false), two;
    CHECK_OK(cuMemAlloc(&two, 40 * MIB));
    enter(1);
    CHECK_OK(cuMemsetD8(there, 5, SIZE));
    fail("cuMemSetAccess", 2, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_OK(cuMemcpyDtoD(two, there, SIZE));
    CHECK(driver_access(one, 1) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_OK(cuMemcpyDtoD(one, two, SIZE));
    check_bytes(one, 5);

    /* And of what comes after it was opened. */
    enter(0);
    CHECK_OK(cuMemcpyDtoD(there, one, SIZE));
    CHECK(driver_access(there, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    enter(1);
    fail("cuMemSetAccess", 1, CUDA_ERROR_NOT_SUPPORTED);
    CHECK_OK(cuMemAlloc(&two, 40 * MIB));
    CHECK(driver_access(two, 0) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    enter(0);
    CHECK_OK(cuMemcpyDtoD(two, one, SIZE));
    check_bytes(two, 5);
    check_served();
}

/* ---- one device's trouble ---- */

void hold(CUstream which) {
    ((void (*)(CUstream))sim("vp_sim_hold"))(which);
}

void *release_later(void *which) {
    usleep(100000);
    ((void (*)(CUstream))sim("vp_sim_release"))(which);
    return NULL;
}

/* An allocation that waits for its own device's memory, while another device is current, and full. */
static void waits_for_the_pools_own_device(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    size_t unused, total;
    pthread_t thread;
    CUdeviceptr ptr;
    CUstream other;

    start();
    enter(0);
    CHECK_OK(cuMemGetInfo(&unused, &total));
    CHECK_OK(cuMemCreate(&handle, unused / (2 * MIB) * (2 * MIB), &prop, 0));
    enter(1);
    CHECK_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuMemAllocAsync(&ptr, 32 * MIB, stream[1]));
    CHECK_OK(cuMemsetD8Async(ptr, 1, 32 * MIB, stream[1]));
    hold(stream[1]);
    CHECK_OK(cuMemsetD8Async(ptr, 1, 32 * MIB, stream[1]));
    CHECK_OK(cuMemFreeAsync(ptr, stream[1]));
    enter(0);
    CHECK(pthread_create(&thread, NULL, release_later, stream[1]) == 0);
    CHECK_OK(cuMemAllocAsync(&ptr, 56 * MIB, other));
    CHECK(pthread_join(thread, NULL) == 0);
    check_served();
}

/* VPOOL_SYNC_FREE=1: the host waits for the block's device, whichever is current, or none. */
static void a_stopping_free_waits_for_the_blocks_device(void) {
    start();
    for (int current = 0; current < 3; current++) {
        CUdeviceptr ptr = take(1, false);
        pthread_t thread;

        hold(stream[1]);
        CHECK_OK(cuMemsetD8Async(ptr, 1, SIZE, stream[1]));
        CHECK_OK(cuCtxSetCurrent(current < 2 ? context[current] : NULL));
        CHECK(pthread_create(&thread, NULL, release_later, stream[1]) == 0);
        CHECK_OK(cuMemFree(ptr));
        CHECK_OK(cuStreamQuery(stream[1]));
        CHECK(pthread_join(thread, NULL) == 0);
    }
    /* Not while a stream captures, which that would destroy; nor in a context that is gone. */
    CUgraph graph;
    CUdeviceptr ptr = take(0, false);
    enter(1);
    CHECK_OK(cuStreamBeginCapture(stream[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_OK(cuMemFree(ptr));
    CHECK_OK(cuStreamEndCapture(stream[1], &graph));
    ptr = take(0, false);
    CHECK_OK(cuDevicePrimaryCtxReset(1));
    CHECK_OK(cuMemFree(ptr));
    check_served();
}

/* A copy that the host waits for is made in another stream and waited for, where devices cannot reach each other. */
static void a_copy_leaves_captures_alone(void) {
    CUdeviceptr there;
    unsigned char byte = 0;
    CUgraph graph = NULL;

    start();
    there = take(1, true);
    CHECK_OK(cuMemsetD8Async(there, 7, SIZE, stream[1]));
    CHECK_OK(cuStreamSynchronize(stream[1]));
    enter(0);
    CHECK_OK(cuMemcpyDtoH(&byte, there, 1));
    CHECK_OK(cuStreamBeginCapture(stream[1], CU_STREAM_CAPTURE_MODE_GLOBAL));
    byte = 0;
    CHECK_OK(cuMemcpyDtoH(&byte, there + SIZE - 1, 1));
    CHECK(byte == 7);
    CHECK_OK(cuStreamEndCapture(stream[1], &graph));
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_OK(cuMemFree(there));
}

GUEST_MAIN(GUEST(copies_need_no_leave), GUEST(a_copy_leaves_captures_alone), GUEST(every_copy_may_be_the_first),
           GUEST(arrays_need_no_leave), GUEST(the_host_is_reached_from_any_context), GUEST(copies_keep_their_order),
           GUEST(copies_can_be_captured), GUEST(nodes_are_as_others), GUEST(nodes_run_where_their_memory_is),
           GUEST(graphs_have_no_copies_between_devices_apart), GUEST(openness_is_not_told),
           GUEST(copies_do_not_mind_what_is_current), GUEST(a_graphs_other_device_is_waited_for),
           GUEST(so_is_that_of_one_captured_there), GUEST(so_is_that_of_a_node), GUEST(so_is_that_of_a_graph_within),
           GUEST(poison_waits_for_another_devices_graphs), GUEST(poison_waits_for_another_devices_copies),
           GUEST(batches_leave_captures_alone), GUEST(room_is_the_pools_own_devices),
           GUEST(what_cannot_be_opened_is_copied_nevertheless), GUEST(waits_for_the_pools_own_device),
           GUEST(a_stopping_free_waits_for_the_blocks_device))
