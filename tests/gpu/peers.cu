/* Two GPUs of one process: each reads and writes the other's memory, by copies and by kernels, in blocks that
 * were there before access was enabled and in those that came after. Every byte is checked; then the bandwidth
 * is measured. Exits with 77 where there is one GPU alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common.cuh"

#include <vector>

enum { SKIPPED = 77, BLOCKS = 24 };
static const size_t COPIED = (size_t)1 << 30;

struct block {
    unsigned char *ptr;
    size_t bytes;
    bool async;
};

static unsigned long long *wrong;

__global__ static void count_wrong(const unsigned char *block, size_t bytes, unsigned char value,
                                   unsigned long long *count) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes; i += (size_t)gridDim.x * blockDim.x)
        if (block[i] != value)
            atomicAdd_system(count, 1);
}

__global__ static void fill(unsigned char *block, size_t bytes, unsigned char value) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes; i += (size_t)gridDim.x * blockDim.x)
        block[i] = value;
}

static block allocate(random_numbers &numbers, cudaStream_t stream, bool async) {
    block b = {nullptr, numbers.size_between(12, 25), async};
    if (async)
        CHECK(cudaMallocAsync(&b.ptr, b.bytes, stream));
    else
        CHECK(cudaMalloc(&b.ptr, b.bytes));
    return b;
}

/* `from` writes into `to`'s memory by a kernel, `to` looks; and the other way round by a copy. */
static void check_blocks(const std::vector<block> &blocks, int from, int to, unsigned char value) {
    for (size_t i = 0; i < blocks.size(); i++) {
        unsigned char its = (unsigned char)(value + i);
        CHECK(cudaSetDevice(from));
        fill<<<64, 256>>>(blocks[i].ptr, blocks[i].bytes, its);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaSetDevice(to));
        count_wrong<<<64, 256>>>(blocks[i].ptr, blocks[i].bytes, its, wrong);
        CHECK(cudaDeviceSynchronize());

        unsigned char *mine;
        CHECK(cudaSetDevice(from));
        CHECK(cudaMalloc(&mine, blocks[i].bytes));
        CHECK(cudaMemcpyPeer(mine, from, blocks[i].ptr, to, blocks[i].bytes));
        count_wrong<<<64, 256>>>(mine, blocks[i].bytes, its, wrong);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaFree(mine));
    }
}

static double copy_gb_s(void) {
    unsigned char *there, *here;
    double best = 0;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&there, COPIED));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&here, COPIED));
    for (int turn = 0; turn < 12; turn++) {
        double start = now_s();
        CHECK(cudaMemcpyPeer(here, 0, there, 1, COPIED));
        CHECK(cudaDeviceSynchronize());
        double gb_s = (double)COPIED / (now_s() - start) / 1e9;
        best = gb_s > best ? gb_s : best;
    }
    CHECK(cudaFree(here));
    CHECK(cudaFree(there));
    return best;
}

static double kernel_gb_s(void) {
    unsigned char *there;
    double best = 0;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&there, COPIED));
    CHECK(cudaMemset(there, 3, COPIED));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(0));
    for (int turn = 0; turn < 12; turn++) {
        double start = now_s();
        count_wrong<<<1024, 256>>>(there, COPIED, 3, wrong);
        CHECK(cudaDeviceSynchronize());
        double gb_s = (double)COPIED / (now_s() - start) / 1e9;
        best = gb_s > best ? gb_s : best;
    }
    CHECK(cudaFree(there));
    return best;
}

int main() {
    int count = 0, can = 0, back = 0;
    CHECK(cudaGetDeviceCount(&count));
    if (count >= 2) {
        CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
        CHECK(cudaDeviceCanAccessPeer(&back, 1, 0));
    }
    if (!can || !back) {
        printf("{\"skipped\": \"%s\"}\n", count < 2 ? "one GPU alone" : "no access between the GPUs");
        return SKIPPED;
    }
    random_numbers numbers = {7};
    cudaStream_t stream[2];
    std::vector<block> blocks[2];
    CHECK(cudaMallocHost(&wrong, sizeof *wrong));
    *wrong = 0;
    for (int device = 0; device < 2; device++) {
        /* Stream-ordered memory is open to a peer by its pool. */
        cudaMemPool_t pool;
        cudaMemAccessDesc desc = {};
        desc.location.type = cudaMemLocationTypeDevice;
        desc.location.id = !device;
        desc.flags = cudaMemAccessFlagsProtReadWrite;
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&stream[device], cudaStreamNonBlocking));
        for (int i = 0; i < BLOCKS; i++)
            blocks[device].push_back(allocate(numbers, stream[device], i % 2));
        CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
        CHECK(cudaMemPoolSetAccess(pool, &desc, 1));
        CHECK(cudaStreamSynchronize(stream[device]));
    }
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceEnablePeerAccess(!device, 0));
    }
    for (int turn = 0; turn < 3; turn++)
        for (int device = 0; device < 2; device++) {
            check_blocks(blocks[device], !device, device, (unsigned char)(31 * turn + 7 * device));
            CHECK(cudaSetDevice(device));
            for (int i = turn; i < BLOCKS; i += 3) {
                block &b = blocks[device][i];
                CHECK(b.async ? cudaFreeAsync(b.ptr, stream[device]) : cudaFree(b.ptr));
                b = allocate(numbers, stream[device], b.async);
            }
            CHECK(cudaStreamSynchronize(stream[device]));
        }
    double copied = copy_gb_s(), read = kernel_gb_s();
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceDisablePeerAccess(!device));
        for (const block &b : blocks[device])
            CHECK(b.async ? cudaFreeAsync(b.ptr, stream[device]) : cudaFree(b.ptr));
        CHECK(cudaDeviceSynchronize());
    }
    printf("{\"ok\": %s, \"mismatches\": %llu, \"checksum\": %llu, \"copy_gb_s\": %.2f, \"kernel_gb_s\": %.2f}\n",
           *wrong ? "false" : "true", *wrong, *wrong, copied, read);
    return *wrong != 0;
}
