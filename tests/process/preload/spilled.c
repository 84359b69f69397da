/* Guests whose blocks of a MiB and more lie in the host's memory (VPOOL_SPILL_TEST=1M): what CUDA would refuse to copy
 * is copied by every call, in every direction, and every question is answered as for the device's memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "../../../src/driver/younger.h"
#include "guest.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

enum { SIDE = 1024, SIZE = SIDE * SIDE };

static CUcontext context;
static CUstream stream;

enum kind { SPILLED, DEVICE, PINNED, PAGEABLE, KINDS };

/* One of each kind for each end. */
static unsigned char *ends[2][KINDS];

static bool on_host(enum kind kind) {
    return kind == PINNED || kind == PAGEABLE;
}

static void start(void) {
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int end = 0; end < 2; end++) {
        CHECK_OK(cuMemAlloc((CUdeviceptr *)&ends[end][SPILLED], SIZE));
        CHECK_OK(cuMemAllocManaged((CUdeviceptr *)&ends[end][DEVICE], SIZE, CU_MEM_ATTACH_GLOBAL));
        CHECK_OK(cuMemHostAlloc((void **)&ends[end][PINNED], SIZE, 0));
        CHECK((ends[end][PAGEABLE] = malloc(SIZE)));
    }
}

static CUdeviceptr ptr(const void *at) {
    return (CUdeviceptr)(uintptr_t)at;
}

/* The driver makes no file of what is not the device's. */
static void is_spilled(CUdeviceptr at) {
    int fd;

    CHECK(cuMemGetHandleForAddressRange(&fd, at / 65536 * 65536, 65536, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) ==
          CUDA_ERROR_INVALID_VALUE);
}

/* ---- copies ---- */

struct copy {
    unsigned char *dst, *src;
    enum kind to, from;
};

static CUDA_MEMCPY2D rows(const struct copy *c) {
    return (CUDA_MEMCPY2D){.srcMemoryType = on_host(c->from) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                           .srcDevice = ptr(c->src),
                           .srcHost = c->src,
                           .srcPitch = SIDE,
                           .dstMemoryType = on_host(c->to) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                           .dstDevice = ptr(c->dst),
                           .dstHost = c->dst,
                           .dstPitch = SIDE,
                           .WidthInBytes = SIDE,
                           .Height = SIDE};
}

static CUDA_MEMCPY3D slices(const struct copy *c) {
    CUDA_MEMCPY2D r = rows(c);

    return (CUDA_MEMCPY3D){.srcMemoryType = r.srcMemoryType,
                           .srcDevice = r.srcDevice,
                           .srcHost = r.srcHost,
                           .srcPitch = SIDE,
                           .srcHeight = SIDE / 4,
                           .dstMemoryType = r.dstMemoryType,
                           .dstDevice = r.dstDevice,
                           .dstHost = r.dstHost,
                           .dstPitch = SIDE,
                           .dstHeight = SIDE / 4,
                           .WidthInBytes = SIDE,
                           .Height = SIDE / 4,
                           .Depth = 4};
}

static CUresult peer_slices(const struct copy *c, bool async, CUcontext from) {
    CUDA_MEMCPY3D s = slices(c);
    CUDA_MEMCPY3D_PEER p;

    memcpy(&p, &s, sizeof(p));
    p.srcContext = from;
    p.dstContext = context;
    return async ? cuMemcpy3DPeerAsync(&p, stream) : cuMemcpy3DPeer(&p);
}

static CUresult batch(const struct copy *c) {
    CUdeviceptr dsts[2] = {ptr(c->dst), ptr(c->dst) + SIZE / 2}, srcs[2] = {ptr(c->src), ptr(c->src) + SIZE / 2};
    size_t sizes[2] = {SIZE / 2, SIZE / 2}, index = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};

    return cuMemcpyBatchAsync(dsts, srcs, sizes, 2, &attributes, &index, 1, stream);
}

static CUmemcpy3DOperand operand(const void *at) {
    return (CUmemcpy3DOperand){.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = ptr(at)}};
}

static CUresult batch_of_slices(const struct copy *c) {
    CUDA_MEMCPY3D_BATCH_OP ops[2] = {
        {.src = operand(c->src), .dst = operand(c->dst), .extent = {SIDE, SIDE / 4, 2}},
        {.src = operand(c->src + SIZE / 2), .dst = operand(c->dst + SIZE / 2), .extent = {SIDE, SIDE / 2, 1}},
    };
    ops[0].srcAccessOrder = ops[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    return cuMemcpy3DBatchAsync(2, ops, 0, stream);
}

static CUresult with_attributes(const struct copy *c, bool slices) {
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};
    CUDA_MEMCPY3D_BATCH_OP op = {.src = operand(c->src), .dst = operand(c->dst), .extent = {SIDE, SIDE, 1}};

    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    return slices ? cuMemcpy3DWithAttributesAsync(&op, 0, stream)
                  : cuMemcpyWithAttributesAsync(ptr(c->dst), ptr(c->src), SIZE, &attributes, stream);
}

static CUresult node(const struct copy *c) {
    CUDA_MEMCPY2D r = rows(c);
    CUDA_MEMCPY3D p = {.srcMemoryType = r.srcMemoryType,
                       .srcDevice = r.srcDevice,
                       .srcHost = r.srcHost,
                       .srcPitch = SIDE,
                       .dstMemoryType = r.dstMemoryType,
                       .dstDevice = r.dstDevice,
                       .dstHost = r.dstHost,
                       .dstPitch = SIDE,
                       .WidthInBytes = SIDE,
                       .Height = SIDE,
                       .Depth = 1};
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode made;

    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK_OK(cuGraphAddMemcpyNode(&made, graph, NULL, 0, &p, context));
    CHECK(p.srcMemoryType == r.srcMemoryType && p.dstMemoryType == r.dstMemoryType);
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    CUresult res = cuGraphLaunch(exec, stream);
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(graph));
    return res;
}

/* What the names of directions say, in the form that a stream captures. */
static CUresult directed(const struct copy *c) {
    if (on_host(c->to))
        return cuMemcpyDtoHAsync(c->dst, ptr(c->src), SIZE, stream);
    return on_host(c->from) ? cuMemcpyHtoDAsync(ptr(c->dst), c->src, SIZE, stream)
                            : cuMemcpyDtoDAsync(ptr(c->dst), ptr(c->src), SIZE, stream);
}

static CUresult captured(const struct copy *c) {
    CUgraph graph;
    CUgraphExec exec;

    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUresult res = directed(c);
    CHECK_OK(cuStreamEndCapture(stream, &graph));
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(graph));
    return res;
}

static CUresult directed_now(const struct copy *c, bool per_thread) {
    CUresult (*to_host)(void *, CUdeviceptr, size_t) = cuMemcpyDtoH;
    CUresult (*to_device)(CUdeviceptr, const void *, size_t) = cuMemcpyHtoD;
    CUresult (*within)(CUdeviceptr, CUdeviceptr, size_t) = cuMemcpyDtoD;
    if (per_thread) {
        to_host = guest_symbol(NULL, "cuMemcpyDtoH_v2_ptds");
        to_device = guest_symbol(NULL, "cuMemcpyHtoD_v2_ptds");
        within = guest_symbol(NULL, "cuMemcpyDtoD_v2_ptds");
    }
    if (on_host(c->to))
        return to_host(c->dst, ptr(c->src), SIZE);
    return on_host(c->from) ? to_device(ptr(c->dst), c->src, SIZE) : within(ptr(c->dst), ptr(c->src), SIZE);
}

/* 0 to 3 for peers: the ends must be of contexts. */
enum { WAYS = 21, PEERS = 4 };

static CUresult run(const struct copy *c, int way) {
    CUDA_MEMCPY2D r = rows(c);
    CUDA_MEMCPY3D s = slices(c);

    switch (way) {
    case 0: return cuMemcpyPeer(ptr(c->dst), context, ptr(c->src), context, SIZE);
    case 1: return cuMemcpyPeerAsync(ptr(c->dst), context, ptr(c->src), context, SIZE, stream);
    case 2: return peer_slices(c, false, context);
    case 3: return peer_slices(c, true, context);
    case 4: return cuMemcpy(ptr(c->dst), ptr(c->src), SIZE);
    case 5: return cuMemcpyAsync(ptr(c->dst), ptr(c->src), SIZE, stream);
    case 6: return directed_now(c, false);
    case 7: return directed_now(c, true);
    case 8: return directed(c);
    case 9: return captured(c);
    case 10: return cuMemcpy2D(&r);
    case 11: return cuMemcpy2DUnaligned(&r);
    case 12: return cuMemcpy2DAsync(&r, stream);
    case 13: return cuMemcpy3D(&s);
    case 14: return cuMemcpy3DAsync(&s, stream);
    case 15: return batch(c);
    case 16: return batch_of_slices(c);
    case 17: return node(c);
    case 18: return with_attributes(c, false);
    case 19: return with_attributes(c, true);
    default: return cuMemcpyAsync(ptr(c->dst), ptr(c->src), SIZE, CU_STREAM_PER_THREAD);
    }
}

static bool all_are(const unsigned char *at, unsigned char value) {
    for (size_t i = 0; i < SIZE; i++)
        if (at[i] != value)
            return false;
    return true;
}

static void copies_go_every_way(void) {
    unsigned char value = 0;

    start();
    is_spilled(ptr(ends[0][SPILLED]));
    for (int to = 0; to < KINDS; to++)
        for (int from = 0; from < KINDS; from++)
            for (int way = 0; way < WAYS && (to == SPILLED || from == SPILLED); way++) {
                const struct copy c = {ends[0][to], ends[1][from], to, from};

                if (way < PEERS && (on_host(to) || on_host(from)))
                    continue;
                memset(c.src, ++value, SIZE);
                CUresult res = run(&c, way);
                if (res != CUDA_SUCCESS)
                    fprintf(stderr, "%d to %d by way %d: %d\n", from, to, way, res);
                CHECK(res == CUDA_SUCCESS);
                CHECK_OK(cuCtxSynchronize());
                CHECK(all_are(c.dst, value));
            }
}

static void no_copy_names_a_context_that_has_ended(void) {
    CUcontext ended;
    struct copy c = {.to = SPILLED, .from = SPILLED};

    start();
    ended = context;
    CHECK_OK(cuCtxCreate(&context, NULL, 0, 0));
    CHECK_OK(cuDevicePrimaryCtxReset(0));
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuMemAlloc((CUdeviceptr *)&c.dst, SIZE));
    CHECK_OK(cuMemAlloc((CUdeviceptr *)&c.src, SIZE));
    is_spilled(ptr(c.src));
    CHECK(cuMemcpyPeer(ptr(c.dst), ended, ptr(c.src), context, SIZE) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuMemcpyPeerAsync(ptr(c.dst), context, ptr(c.src), ended, SIZE, stream) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(peer_slices(&c, false, ended) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(peer_slices(&c, true, ended) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_OK(cuCtxSetCurrent(ended));
    CHECK(batch(&c) == CUDA_ERROR_INVALID_VALUE);
}

static void arrays_are_copied_too(void) {
    const CUDA_ARRAY_DESCRIPTOR line = {.Width = SIZE, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUarray array;

    start();
    is_spilled(ptr(ends[0][SPILLED]));
    CHECK_OK(cuArrayCreate(&array, &line));
    CHECK_OK(cuMemsetD8(ptr(ends[0][SPILLED]), 9, SIZE));
    CHECK_OK(cuMemcpyDtoA(array, 0, ptr(ends[0][SPILLED]), SIZE));
    CHECK_OK(cuMemcpyAtoD(ptr(ends[1][SPILLED]), array, 0, SIZE));
    CHECK_OK(cuCtxSynchronize());
    CHECK(all_are(ends[1][SPILLED], 9));
    CHECK_OK(cuArrayDestroy(array));
}

/* The beginning is the device's memory, the end the host's. */
static void copies_cross_the_border(void) {
    CUdeviceptr first, second;
    static unsigned char host[4096];

    start();
    CHECK_OK(cuMemAlloc(&first, 40 << 20));
    CHECK_OK(cuMemAlloc(&second, 40 << 20));
    is_spilled(second + (40 << 20) - 1);
    CHECK_OK(cuMemsetD8(second, 7, 40 << 20));
    for (size_t at = 0; at < 40 << 20; at += 1 << 20) {
        CHECK_OK(cuMemcpyDtoH(host, second + at, sizeof(host)));
        CHECK(host[0] == 7 && host[sizeof(host) - 1] == 7);
    }
    CHECK_OK(cuMemcpyDtoD(first, second, 40 << 20));
    CHECK_OK(cuMemcpyDtoH(host, first + (40 << 20) - sizeof(host), sizeof(host)));
    CHECK(host[sizeof(host) - 1] == 7);
}

/* ---- questions ---- */

static void the_runtime_takes_it_for_device_memory(void) {
    struct cudaPointerAttributes is;
    void *at, *host;

    CHECK_OK(cudaMalloc(&at, SIZE));
    is_spilled(ptr(at));
    CHECK_OK(cudaPointerGetAttributes(&is, at));
    CHECK(is.type == cudaMemoryTypeDevice && is.device == 0 && is.devicePointer == at && !is.hostPointer);
    CHECK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr(at)) == CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cudaMemset(at, 3, SIZE));
    CHECK((host = malloc(SIZE)));
    CHECK_OK(cudaMemcpy(host, at, SIZE, cudaMemcpyDeviceToHost));
    CHECK(all_are(host, 3));
    CHECK_OK(cudaMemcpy2D(at, SIDE, host, SIDE, SIDE, SIDE, cudaMemcpyHostToDevice));
    free(host);
    CHECK_OK(cudaFree(at));
}

GUEST_MAIN(GUEST(copies_go_every_way), GUEST(no_copy_names_a_context_that_has_ended), GUEST(arrays_are_copied_too),
           GUEST(copies_cross_the_border), GUEST(the_runtime_takes_it_for_device_memory))
