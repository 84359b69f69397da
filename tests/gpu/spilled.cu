/* Memory that is spilled to the host (VPOOL_SPILL) must do all that the device's does: kernels, atomics of each width,
 * fills, copies by every call in every direction, and questions. Run bare it tells what is right; under
 * VPOOL_SPILL=8G VPOOL_SPILL_TEST=1M each block here lies in the host's memory, and the answers must be the same.
 *
 * usage: spilled      prints one JSON object */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common.cuh"

#include <cuda_fp16.h>

#include <cstring>
#include <vector>

enum { SIDE = 4096, SIZE = SIDE * SIDE };

static int wrong;
static cudaStream_t stream;
static char answers[1 << 15];
static size_t answered;

static void answer(const char *question, long long value) {
    answered += (size_t)snprintf(answers + answered, sizeof answers - answered, "%s\"%s\": %lld", answered ? ", " : "",
                                 question, value);
}

static void expect(bool right, const char *what) {
    if (!right) {
        fprintf(stderr, "wrong: %s\n", what);
        wrong++;
    }
}

/* ---- atomics: each sum is a whole number that the type holds exactly ---- */

template <typename T> __global__ void add_ones(T *cells, int count, T one) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&cells[i % count], one);
}

template <typename T> static void atomics(const char *what, T one, double (*value)(T)) {
    const int cells = 1024, adds = 512; /* half counts to 2048 exactly */
    T *memory;
    CHECK(cudaMalloc(&memory, SIZE));
    CHECK(cudaMemset(memory, 0, SIZE));
    add_ones<<<cells * adds / 256, 256, 0, stream>>>(memory, cells, one);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    std::vector<T> out(cells);
    CHECK(cudaMemcpy(out.data(), memory, cells * sizeof(T), cudaMemcpyDeviceToHost));
    bool exact = true;
    for (T cell : out)
        exact &= value(cell) == adds;
    expect(exact, what);
    answer(what, exact);
    CHECK(cudaFree(memory));
}

/* ---- copies ---- */

enum kind { DEVICE, OTHER, PINNED, PAGEABLE, KINDS };
static const char *const kind_names[] = {"device", "native", "pinned", "pageable"};

static unsigned char *ends[2][KINDS];

static bool on_host(int kind) {
    return kind == PINNED || kind == PAGEABLE;
}

__global__ void fill(unsigned char *bytes, size_t count, unsigned char value) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x)
        bytes[i] = value;
}

__global__ void count_others(const unsigned char *bytes, size_t count, unsigned char value,
                             unsigned long long *others) {
    unsigned long long own = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x)
        own += bytes[i] != value;
    if (own)
        atomicAdd(others, own);
}

static unsigned long long *others;

static void put(unsigned char *at, int kind, unsigned char value) {
    if (on_host(kind)) {
        memset(at, value, SIZE);
        return;
    }
    fill<<<256, 256, 0, stream>>>(at, SIZE, value);
    CHECK(cudaStreamSynchronize(stream));
}

static bool all_are(const unsigned char *at, int kind, unsigned char value) {
    if (on_host(kind)) {
        for (size_t i = 0; i < SIZE; i++)
            if (at[i] != value)
                return false;
        return true;
    }
    *others = 0;
    count_others<<<256, 256, 0, stream>>>(at, SIZE, value, others);
    CHECK(cudaStreamSynchronize(stream));
    return !*others;
}

struct copy {
    unsigned char *dst, *src;
    int to, from;
};

static cudaMemcpyKind direction(const copy &c) {
    return on_host(c.to) ? cudaMemcpyDeviceToHost : on_host(c.from) ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice;
}

static cudaError_t slices(const copy &c, bool async) {
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(c.src, SIDE, SIDE, SIDE / 4);
    p.dstPtr = make_cudaPitchedPtr(c.dst, SIDE, SIDE, SIDE / 4);
    p.extent = make_cudaExtent(SIDE, SIDE / 4, 4);
    p.kind = direction(c);
    return async ? cudaMemcpy3DAsync(&p, stream) : cudaMemcpy3D(&p);
}

static cudaError_t launch(cudaGraph_t graph) {
    cudaGraphExec_t exec;
    cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
    if (!error)
        error = cudaGraphLaunch(exec, stream);
    if (!error)
        error = cudaStreamSynchronize(stream);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return error;
}

static cudaError_t node(const copy &c) {
    cudaGraph_t graph;
    cudaGraphNode_t made;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaError_t error = cudaGraphAddMemcpyNode1D(&made, graph, nullptr, 0, c.dst, c.src, SIZE, direction(c));
    return error ? error : launch(graph);
}

static cudaError_t captured(const copy &c) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    cudaError_t error = cudaMemcpyAsync(c.dst, c.src, SIZE, direction(c), stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    return error ? error : launch(graph);
}

static cudaError_t batch(const copy &c) {
#if CUDART_VERSION >= 13000
    const void *srcs[2] = {c.src, c.src + SIZE / 2};
    void *dsts[2] = {c.dst, c.dst + SIZE / 2};
    size_t sizes[2] = {SIZE / 2, SIZE / 2}, first = 0;
    cudaMemcpyAttributes how = {};
    how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    return cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, &how, &first, 1, stream);
#else
    return cudaMemcpyAsync(c.dst, c.src, SIZE, cudaMemcpyDefault, stream);
#endif
}

enum { WAYS = 10 };
static const char *const way_names[] = {"cudaMemcpy", "default",  "async",      "2D",       "2D async",
                                        "3D",         "3D async", "graph node", "captured", "batch"};

static cudaError_t run(const copy &c, int way) {
    switch (way) {
    case 0: return cudaMemcpy(c.dst, c.src, SIZE, direction(c));
    case 1: return cudaMemcpy(c.dst, c.src, SIZE, cudaMemcpyDefault);
    case 2: return cudaMemcpyAsync(c.dst, c.src, SIZE, direction(c), stream);
    case 3: return cudaMemcpy2D(c.dst, SIDE, c.src, SIDE, SIDE, SIDE, direction(c));
    case 4: return cudaMemcpy2DAsync(c.dst, SIDE, c.src, SIDE, SIDE, SIDE, direction(c), stream);
    case 5: return slices(c, false);
    case 6: return slices(c, true);
    case 7: return node(c);
    case 8: return captured(c);
    default: return batch(c);
    }
}

static void copies() {
    unsigned char value = 0;
    for (int end = 0; end < 2; end++) {
        CHECK(cudaMalloc(&ends[end][DEVICE], SIZE));
        CHECK(cudaMallocManaged(&ends[end][OTHER], SIZE));
        CHECK(cudaMallocHost(&ends[end][PINNED], SIZE));
        ends[end][PAGEABLE] = (unsigned char *)malloc(SIZE);
    }
    for (int to = 0; to < KINDS; to++)
        for (int from = 0; from < KINDS; from++)
            for (int way = 0; way < WAYS && (to == DEVICE || from == DEVICE); way++) {
                const copy c = {ends[0][to], ends[1][from], to, from};
                char what[96];
                if (way > 6 && (to == PAGEABLE || from == PAGEABLE)) /* not every driver takes it there */
                    continue;
                snprintf(what, sizeof what, "%s: %s to %s", way_names[way], kind_names[from], kind_names[to]);
                put(c.src, from, ++value);
                cudaError_t error = run(c, way);
                CHECK(cudaDeviceSynchronize());
                bool right = !error && all_are(c.dst, to, value);
                if (error)
                    cudaGetLastError();
                expect(right, what);
                answer(what, error);
            }
}

/* ---- fills and questions ---- */

static void fills() {
    unsigned char *at = ends[0][DEVICE];
    CHECK(cudaMemset(at, 17, SIZE));
    CHECK(cudaDeviceSynchronize());
    expect(all_are(at, DEVICE, 17), "cudaMemset");
    CHECK(cudaMemsetAsync(at, 18, SIZE, stream));
    CHECK(cudaStreamSynchronize(stream));
    expect(all_are(at, DEVICE, 18), "cudaMemsetAsync");
    CHECK(cudaMemset2D(at, SIDE, 19, SIDE, SIDE));
    CHECK(cudaDeviceSynchronize());
    expect(all_are(at, DEVICE, 19), "cudaMemset2D");
}

static void questions() {
    cudaPointerAttributes is;
    CHECK(cudaPointerGetAttributes(&is, ends[0][DEVICE] + SIZE / 2));
    answer("type", is.type);
    answer("device", is.device);
    answer("device pointer", is.devicePointer == ends[0][DEVICE] + SIZE / 2);
    answer("host pointer", is.hostPointer != nullptr);
}

static double of_half(__half x) {
    return __half2float(x);
}
static double of_float(float x) {
    return x;
}
static double of_double(double x) {
    return x;
}
static double of_int(int x) {
    return x;
}

int main() {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocManaged(&others, sizeof *others));
    atomics<int>("int atomics", 1, of_int);
    atomics<__half>("half atomics", __float2half(1), of_half);
    atomics<float>("float atomics", 1, of_float);
    atomics<double>("double atomics", 1, of_double);
    copies();
    fills();
    questions();
    printf("{\"ok\": %s, \"answers\": {%s}}\n", wrong ? "false" : "true", answers);
    return wrong != 0;
}
