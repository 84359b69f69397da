/* Copies between two GPUs of one process without peer access, which in CUDA need none: each call that can make one,
 * both ways, from each device's context, on memory of cudaMalloc and of cudaMallocAsync. Every copy that succeeds is
 * checked; what each call on cudaMalloc's memory returned is among the answers, to be the same as bare. CUDA's own
 * stream-ordered memory may refuse; with the argument `all` none may. Exits with 77 where there is one GPU alone.
 *
 *     copies [all]         the copies, and their bandwidth
 *     copies churn N       allocations on the first of N devices in use; 3: two, with copies between them
 *
 * No kernel runs, so that it can also be compiled as plain C++ and run on the simulated driver (-DSIMULATED leaves out
 * what that lacks). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_) {                                                                                                  \
            fprintf(stderr, "%s:%d: %s: %s (%d)\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_),             \
                    (int)error_);                                                                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { SKIPPED = 77, SIDE = 1024, SLICE = 32, SIZE = 2 << 20 };

static char answers[1 << 16];
static size_t answered;
static unsigned long long wrong;
static int every, turn;
static unsigned char *host;
static cudaStream_t stream[2];

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void answer(const char *question, const char *where, long long value) {
    answered += (size_t)snprintf(answers + answered, sizeof answers - answered, "%s\"%s%s\": %lld",
                                 answered ? ", " : "", question, where, value);
}

struct copy {
    char *dst, *src;
    int to, from;
    cudaStream_t at;
};

static cudaError_t captured(const struct copy *c) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaError_t error = cudaStreamBeginCapture(c->at, cudaStreamCaptureModeGlobal), copied;
    if (error)
        return error;
    copied = cudaMemcpyAsync(c->dst, c->src, SIZE, cudaMemcpyDefault, c->at);
    error = cudaStreamEndCapture(c->at, &graph);
    if (copied || error)
        return copied ? copied : error;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    error = cudaGraphLaunch(exec, c->at);
    CHECK(cudaStreamSynchronize(c->at));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    return error;
}

#ifndef SIMULATED
static cudaError_t node(const struct copy *c) {
    cudaGraph_t graph;
    cudaGraphNode_t added;
    cudaGraphExec_t exec;
    cudaError_t error;
    CHECK(cudaGraphCreate(&graph, 0));
    error = cudaGraphAddMemcpyNode1D(&added, graph, NULL, 0, c->dst, c->src, SIZE, cudaMemcpyDefault);
    if (!error && !(error = cudaGraphInstantiate(&exec, graph, 0))) {
        error = cudaGraphLaunch(exec, c->at);
        CHECK(cudaStreamSynchronize(c->at));
        CHECK(cudaGraphExecDestroy(exec));
    }
    CHECK(cudaGraphDestroy(graph));
    return error;
}

static const struct cudaExtent extent = {SIDE, SLICE, SIZE / SIDE / SLICE};

static struct cudaPitchedPtr pitched(char *ptr) {
    struct cudaPitchedPtr p = {ptr, SIDE, SIDE, SLICE};
    return p;
}

static cudaError_t slices(const struct copy *c, int async) {
    struct cudaMemcpy3DParms p;
    memset(&p, 0, sizeof p);
    p.srcPtr = pitched(c->src);
    p.dstPtr = pitched(c->dst);
    p.extent = extent;
    p.kind = cudaMemcpyDefault;
    return async ? cudaMemcpy3DAsync(&p, c->at) : cudaMemcpy3D(&p);
}

static cudaError_t slices_peer(const struct copy *c, int async) {
    struct cudaMemcpy3DPeerParms p;
    memset(&p, 0, sizeof p);
    p.srcPtr = pitched(c->src);
    p.dstPtr = pitched(c->dst);
    p.extent = extent;
    p.srcDevice = c->from;
    p.dstDevice = c->to;
    return async ? cudaMemcpy3DPeerAsync(&p, c->at) : cudaMemcpy3DPeer(&p);
}

#if CUDART_VERSION >= 12080
static cudaError_t batch(const struct copy *c) {
    void *dst[2] = {c->dst, c->dst + SIZE / 2}, *src[2] = {c->src, c->src + SIZE / 2};
    size_t sizes[2] = {SIZE / 2, SIZE / 2}, first = 0;
    struct cudaMemcpyAttributes how;
    memset(&how, 0, sizeof how);
    how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync((void *const *)dst, (const void *const *)src, sizes, 2, &how, &first, 1, c->at);
#else
    size_t failed;
    return cudaMemcpyBatchAsync(dst, src, sizes, 2, &how, &first, 1, &failed, c->at);
#endif
}

static struct cudaMemcpy3DOperand operand(char *ptr) {
    struct cudaMemcpy3DOperand o;
    memset(&o, 0, sizeof o);
    o.type = cudaMemcpyOperandTypePointer;
    o.op.ptr.ptr = ptr;
    return o;
}

static cudaError_t batch_of_slices(const struct copy *c) {
    struct cudaMemcpy3DBatchOp op;
    memset(&op, 0, sizeof op);
    op.src = operand(c->src);
    op.dst = operand(c->dst);
    op.extent = extent;
    op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
#if CUDART_VERSION >= 13000
    return cudaMemcpy3DBatchAsync(1, &op, 0, c->at);
#else
    size_t failed;
    return cudaMemcpy3DBatchAsync(1, &op, &failed, 0, c->at);
#endif
}
#endif
#endif

static const char *const ways[] = {"cudaMemcpy, default",
                                   "cudaMemcpy, device to device",
                                   "cudaMemcpyAsync, default",
                                   "cudaMemcpyAsync, device to device",
                                   "cudaMemcpy2D",
                                   "cudaMemcpy2DAsync",
                                   "cudaMemcpyPeer",
                                   "cudaMemcpyPeerAsync",
                                   "captured",
                                   "node of a graph",
                                   "cudaMemcpy3D",
                                   "cudaMemcpy3DAsync",
                                   "cudaMemcpy3DPeer",
                                   "cudaMemcpyBatchAsync",
                                   "cudaMemcpy3DPeerAsync",
                                   "cudaMemcpy3DBatchAsync"};
enum { WAYS = sizeof ways / sizeof *ways };

static cudaError_t run(const struct copy *c, int way) {
    switch (way) {
    case 0: return cudaMemcpy(c->dst, c->src, SIZE, cudaMemcpyDefault);
    case 1: return cudaMemcpy(c->dst, c->src, SIZE, cudaMemcpyDeviceToDevice);
    case 2: return cudaMemcpyAsync(c->dst, c->src, SIZE, cudaMemcpyDefault, c->at);
    case 3: return cudaMemcpyAsync(c->dst, c->src, SIZE, cudaMemcpyDeviceToDevice, c->at);
    case 4: return cudaMemcpy2D(c->dst, SIDE, c->src, SIDE, SIDE, SIZE / SIDE, cudaMemcpyDefault);
    case 5: return cudaMemcpy2DAsync(c->dst, SIDE, c->src, SIDE, SIDE, SIZE / SIDE, cudaMemcpyDefault, c->at);
    case 6: return cudaMemcpyPeer(c->dst, c->to, c->src, c->from, SIZE);
    case 7: return cudaMemcpyPeerAsync(c->dst, c->to, c->src, c->from, SIZE, c->at);
    case 8: return captured(c);
#ifndef SIMULATED
    case 9: return node(c);
    case 10: return slices(c, 0);
    case 11: return slices(c, 1);
    case 12: return slices_peer(c, 0);
    case 14: return slices_peer(c, 1);
#if CUDART_VERSION >= 12080
    case 13: return batch(c);
    case 15: return batch_of_slices(c);
#endif
#endif
    default: return cudaErrorNotSupported;
    }
}

/* The bytes at both ends and in the middle, read in their own device's context. */
static int bytes_are(const char *block, int device, int value) {
    const size_t places[] = {0, SIZE / 2, SIZE - 1};
    unsigned char byte;
    CHECK(cudaSetDevice(device));
    for (int i = 0; i < 3; i++) {
        CHECK(cudaMemcpy(&byte, block + places[i], 1, cudaMemcpyDeviceToHost));
        if (byte != value)
            return 0;
    }
    return 1;
}

static void one(const struct copy *c, int way, int current, int async) {
    char where[96];
    int value = ++turn % 251 + 1;
    CHECK(cudaSetDevice(c->to));
    CHECK(cudaMemset(c->dst, 0, SIZE));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(c->from));
    CHECK(cudaMemset(c->src, value, SIZE));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(current));
    cudaError_t error = run(c, way);
    cudaGetLastError();
    CHECK(cudaDeviceSynchronize());
    snprintf(where, sizeof where, ", %d to %d, in %d", c->from, c->to, current);
    if (!async)
        answer(ways[way], where, error);
    if (error ? every && error != cudaErrorNotSupported : !bytes_are(c->dst, c->to, value)) {
        fprintf(stderr, "%s%s%s: %s\n", ways[way], where, async ? ", stream-ordered memory" : "",
                error ? cudaGetErrorString(error) : "wrong bytes");
        wrong++;
    }
}

/* From the host and to it, while another device is current. */
static void host_copies(char *block, int owner, int current, int async) {
    char where[96];
    cudaError_t error[4];
    snprintf(where, sizeof where, ", device %d, in %d", owner, current);
    CHECK(cudaSetDevice(current));
    memset(host, ++turn % 251 + 1, SIZE);
    error[0] = cudaMemcpy(block, host, SIZE, cudaMemcpyHostToDevice);
    CHECK(cudaDeviceSynchronize());
    if (!error[0] && !bytes_are(block, owner, turn % 251 + 1))
        wrong++;
    CHECK(cudaSetDevice(current));
    memset(host, 0, SIZE);
    error[1] = cudaMemcpy(host, block, SIZE, cudaMemcpyDefault);
    if (!error[0] && !error[1] && (host[0] != turn % 251 + 1 || host[SIZE - 1] != turn % 251 + 1))
        wrong++;
    error[2] = cudaMemcpyAsync(block, host, SIZE, cudaMemcpyHostToDevice, stream[current]);
    error[3] = cudaMemcpyAsync(host, block, SIZE, cudaMemcpyDeviceToHost, stream[current]);
    CHECK(cudaStreamSynchronize(stream[current]));
    cudaGetLastError();
    const char *const names[] = {"to a device", "to the host", "to a device, async", "to the host, async"};
    for (int i = 0; i < 4; i++)
        if (!async)
            answer(names[i], where, error[i]);
        else
            wrong += error[i] && every;
}

static void *take(int device, size_t bytes, int async) {
    void *ptr;
    CHECK(cudaSetDevice(device));
    if (async)
        CHECK(cudaMallocAsync(&ptr, bytes, stream[device]));
    else
        CHECK(cudaMalloc(&ptr, bytes));
    CHECK(cudaStreamSynchronize(stream[device]));
    return ptr;
}

/* What the program is told of its access, before there were copies and after them. */
static void ask_access(const void *block, const char *when) {
    typedef int get_attribute(void *, int, unsigned long long);
    enum { ACCESS_FLAGS = 16 }; /* CU_POINTER_ATTRIBUTE_ACCESS_FLAGS */
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuPointerGetAttribute", &function, 12000, cudaEnableDefault, &found) ||
        !function)
        return;
    for (int current = 0; current < 2; current++) {
        unsigned flags = 99;
        CHECK(cudaSetDevice(current));
        int error = ((get_attribute *)function)(&flags, ACCESS_FLAGS, (unsigned long long)(uintptr_t)block);
        answer(current ? "access flags, in 1, " : "access flags, in 0, ", when, error ? -error : (int)flags);
    }
}

static double bandwidth(int peer) {
    const size_t bytes = (size_t)256 << 20;
    void *here = take(0, bytes, 0), *there = take(1, bytes, 0);
    double best = 0;
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < 8; i++) {
        double start = now_s();
        if (peer ? cudaMemcpyPeerAsync(there, 1, here, 0, bytes, stream[0])
                 : cudaMemcpyAsync(there, here, bytes, cudaMemcpyDefault, stream[0]))
            break;
        CHECK(cudaStreamSynchronize(stream[0]));
        double gb_s = (double)bytes / (now_s() - start) / 1e9;
        best = gb_s > best ? gb_s : best;
    }
    cudaGetLastError();
    CHECK(cudaFree(here));
    CHECK(cudaFree(there));
    return best;
}

static int copies(void) {
    for (int async = 0; async < 2; async++) {
        char *block[2] = {(char *)take(0, SIZE, async), (char *)take(1, SIZE, async)};
        if (!async)
            ask_access(block[0], "before");
        /* First those that name both devices: nothing has opened the memory yet. */
        for (int from = 0; from < 2; from++)
            for (int current = 0; current < 2; current++) {
                struct copy c = {block[!from], block[from], !from, from, stream[current]};
                one(&c, 6, current, async);
                one(&c, 7, current, async);
            }
        for (int from = 0; from < 2; from++)
            for (int current = 0; current < 2; current++) {
                struct copy c = {block[!from], block[from], !from, from, stream[current]};
                for (int way = 0; way < WAYS; way++)
                    one(&c, way, current, async);
                host_copies(block[from], from, current, async);
            }
        if (!async)
            ask_access(block[0], "after");
        for (int device = 0; device < 2; device++) {
            CHECK(cudaSetDevice(device));
            CHECK(async ? cudaFreeAsync(block[device], stream[device]) : cudaFree(block[device]));
        }
    }
    double plain = bandwidth(0), peer = bandwidth(1);
    CHECK(cudaSetDevice(0));
    answer("enable", "", cudaDeviceEnablePeerAccess(1, 0));
    answer("enable again", "", cudaDeviceEnablePeerAccess(1, 0));
    answer("disable", "", cudaDeviceDisablePeerAccess(1));
    answer("disable again", "", cudaDeviceDisablePeerAccess(1));
    cudaGetLastError();
    double later = bandwidth(0);
    printf(
        "{\"ok\": %s, \"mismatches\": %llu, \"plain_gb_s\": %.2f, \"peer_gb_s\": %.2f, \"again_gb_s\": %.2f, \"answers\": {%s}}\n",
        wrong ? "false" : "true", wrong, plain, peer, later, answers);
    return wrong != 0;
}

/* As a training program allocates: the same sizes again, some of them grown, so that ranges are built anew for a while.
 */
static int churn(int devices) {
    enum { BLOCKS = 64, ROUNDS = 24 };
    void *block[BLOCKS] = {NULL};
    uint64_t random = 1;
    if (devices > 1) {
        void *there = take(1, SIZE, 1), *here = take(0, SIZE, 1);
        if (devices > 2) {
            CHECK(cudaMemcpy(here, there, SIZE, cudaMemcpyDefault));
            CHECK(cudaSetDevice(1));
            CHECK(cudaMemcpy(there, here, SIZE, cudaMemcpyDefault));
        }
    }
    CHECK(cudaSetDevice(0));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t bytes = ((size_t)1 << 20) * (1 + (random >> 33) % 48);
            CHECK(cudaMallocAsync(&block[i], bytes, stream[0]));
            CHECK(cudaMemsetAsync(block[i], i, 4096, stream[0]));
        }
        for (int i = 0; i < BLOCKS; i++)
            CHECK(cudaFreeAsync(block[i], stream[0]));
        CHECK(cudaStreamSynchronize(stream[0]));
    }
    printf("{\"ok\": true, \"mismatches\": 0}\n");
    return 0;
}

int main(int argc, char **argv) {
    int count = 0, devices = argc > 2 ? atoi(argv[2]) : 2;
    CHECK(cudaGetDeviceCount(&count));
    if (count < 2) {
        printf("{\"skipped\": \"one GPU alone\"}\n");
        return SKIPPED;
    }
    every = argc > 1 && strcmp(argv[1], "all") == 0;
    for (int device = 0; device < 2 && device < devices; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&stream[device], cudaStreamNonBlocking));
    }
    if (argc > 2)
        return churn(devices);
    CHECK(cudaSetDevice(0));
    CHECK(cudaMallocHost((void **)&host, SIZE));
    return copies();
}
