/* Uses cuBLAS, cuFFT, cuSOLVER and cuRAND as programs do, with workspaces of all sizes that the libraries take for
 * themselves and blocks that are handed from stream to stream, and checks what comes out.
 *
 * usage: libraries [ROUNDS]      prints one JSON object */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common.cuh"

#include <cublas_v2.h>
#include <cufft.h>
#include <curand.h>
#include <cusolverDn.h>

#include <cmath>
#include <vector>

#define CHECK_STATUS(call) check_status((int)(call), #call, __FILE__, __LINE__)

static void check_status(int status, const char *call, const char *file, int line) {
    if (!status) /* success in each of these libraries */
        return;
    fprintf(stderr, "%s:%d: %s: status %d\n", file, line, call, status);
    exit(1);
}

static cudaStream_t stream;
static struct random_numbers numbers = {11};
static int wrong;

static void expect(bool right, const char *what, double got, double wanted) {
    if (right)
        return;
    fprintf(stderr, "%s: %.9g instead of %.9g\n", what, got, wanted);
    wrong++;
}

/* Device memory by either call, freed by either. */
template <typename T> struct buffer {
    T *data = nullptr;
    bool async;

    explicit buffer(size_t count) : async(numbers.chance(50)) {
        if (async)
            CHECK(cudaMallocAsync((void **)&data, count * sizeof(T), stream));
        else
            CHECK(cudaMalloc((void **)&data, count * sizeof(T)));
    }
    ~buffer() {
        if (async)
            CHECK(cudaFreeAsync(data, stream));
        else
            CHECK(cudaFree(data));
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
};

template <typename T> static std::vector<T> read_back(const buffer<T> &from, size_t count) {
    std::vector<T> out(count);
    CHECK(cudaMemcpyAsync(out.data(), from.data, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return out;
}

template <typename T> static void write(const buffer<T> &to, const std::vector<T> &from) {
    CHECK(cudaMemcpyAsync(to.data, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
}

/* A product of whole numbers is exact; one entry of it is computed again on the host. */
static double multiply(cublasHandle_t blas) {
    int n = 64 + (int)numbers.below(1500);
    std::vector<double> a((size_t)n * n), b((size_t)n * n);
    for (double &x : a)
        x = (double)numbers.below(17) - 8;
    for (double &x : b)
        x = (double)numbers.below(17) - 8;
    buffer<double> left(a.size()), right(b.size()), product(a.size());
    write(left, a);
    write(right, b);
    const double one = 1, zero = 0;
    CHECK_STATUS(cublasDgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, left.data, n, right.data, n, &zero,
                             product.data, n));
    std::vector<double> c = read_back(product, a.size());
    size_t row = numbers.below((uint64_t)n), column = numbers.below((uint64_t)n);
    double wanted = 0, sum = 0;
    for (size_t k = 0; k < (size_t)n; k++)
        wanted += a[row + k * (size_t)n] * b[k + column * (size_t)n];
    expect(c[row + column * (size_t)n] == wanted, "cuBLAS", c[row + column * (size_t)n], wanted);
    for (double x : c)
        sum += x;
    return sum;
}

/* There and back again gives the signal, times its length. */
static double transform(void) {
    int n = 1000 + (int)numbers.below(1 << 20);
    std::vector<double> signal(2 * (size_t)n);
    for (double &x : signal)
        x = (double)numbers.below(1000) / 500 - 1;
    buffer<double> data(signal.size());
    write(data, signal);
    cufftHandle plan; /* takes a work area with cudaMalloc, prime lengths a large one */
    CHECK_STATUS(cufftPlan1d(&plan, n, CUFFT_Z2Z, 1));
    CHECK_STATUS(cufftSetStream(plan, stream));
    auto *complex = (cufftDoubleComplex *)data.data;
    CHECK_STATUS(cufftExecZ2Z(plan, complex, complex, CUFFT_FORWARD));
    CHECK_STATUS(cufftExecZ2Z(plan, complex, complex, CUFFT_INVERSE));
    std::vector<double> out = read_back(data, signal.size());
    CHECK_STATUS(cufftDestroy(plan));
    double worst = 0;
    for (size_t i = 0; i < out.size(); i++)
        worst = fmax(worst, fabs(out[i] / n - signal[i]));
    expect(worst < 1e-9, "cuFFT: error", worst, 0);
    return n;
}

/* A system whose solution is all ones. */
static double solve(cusolverDnHandle_t solver) {
    int n = 32 + (int)numbers.below(700), room = 0;
    std::vector<double> a((size_t)n * n), b((size_t)n, 0);
    for (size_t i = 0; i < a.size(); i++)
        a[i] = (double)numbers.below(1000) / 1000 + (i % ((size_t)n + 1) == 0 ? n : 0);
    for (size_t i = 0; i < a.size(); i++)
        b[i % (size_t)n] += a[i];
    buffer<double> matrix(a.size()), right(b.size());
    buffer<int> pivots((size_t)n), info(1);
    write(matrix, a);
    write(right, b);
    CHECK_STATUS(cusolverDnDgetrf_bufferSize(solver, n, n, matrix.data, n, &room));
    {
        buffer<double> work((size_t)room + 1); /* goes back while the factorisation may still run */
        CHECK_STATUS(cusolverDnDgetrf(solver, n, n, matrix.data, n, work.data, pivots.data, info.data));
        CHECK_STATUS(
            cusolverDnDgetrs(solver, CUBLAS_OP_N, n, 1, matrix.data, n, pivots.data, right.data, n, info.data));
    }
    std::vector<double> x = read_back(right, b.size());
    double worst = 0;
    for (double one : x)
        worst = fmax(worst, fabs(one - 1));
    expect(worst < 1e-9, "cuSOLVER: error", worst, 0);
    return n;
}

static double draw(curandGenerator_t generator) {
    size_t n = 2 * (1000 + numbers.below(1 << 21));
    buffer<double> data(n);
    CHECK_STATUS(curandGenerateNormalDouble(generator, data.data, n, 0, 1));
    std::vector<double> out = read_back(data, n);
    double sum = 0, squares = 0;
    for (double x : out)
        sum += x, squares += x * x;
    expect(fabs(sum / (double)n) < 0.15 && fabs(squares / (double)n - 1) < 0.2, "cuRAND: variance", squares / (double)n,
           1);
    return sum;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 40;
    cublasHandle_t blas;
    cusolverDnHandle_t solver;
    curandGenerator_t generator;
    double checksum = 0, start = now_s();

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_STATUS(cublasCreate(&blas));
    CHECK_STATUS(cublasSetStream(blas, stream));
    CHECK_STATUS(cusolverDnCreate(&solver));
    CHECK_STATUS(cusolverDnSetStream(solver, stream));
    CHECK_STATUS(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10));
    CHECK_STATUS(curandSetStream(generator, stream));
    for (int i = 0; i < rounds; i++)
        checksum += multiply(blas) + transform() + solve(solver) + draw(generator);
    CHECK_STATUS(curandDestroyGenerator(generator));
    CHECK_STATUS(cusolverDnDestroy(solver));
    CHECK_STATUS(cublasDestroy(blas));
    CHECK(cudaStreamDestroy(stream));
    printf("{\"ok\": %s, \"rounds\": %d, \"checksum\": %.17g, \"seconds\": %.3f}\n", wrong ? "false" : "true", rounds,
           checksum, now_s() - start);
    return wrong != 0;
}
