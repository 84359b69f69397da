/* One thread gathers and releases layers on a second stream, far ahead of the device: each is filled on the one stream,
 * read on the other, which takes long, and freed behind that. Another thread allocates and frees on a stream of its own
 * meanwhile, and looks how long its calls take. Every layer is checked on the device.
 *
 * usage: gather [--rounds N]      prints one JSON object: the first thread's time, the longest and the median of the
 * second one's calls */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common.cuh"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

enum { LAYERS = 24, READS = 6 };
static const size_t LAYER = (size_t)96 << 20;

static std::atomic<bool> over;

__global__ static void fill(unsigned *words, size_t count, unsigned value) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        words[i] = value;
}

__global__ static void count_wrong(const unsigned *words, size_t count, unsigned value, unsigned long long *wrong) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        if (words[i] != value)
            atomicAdd_system(wrong, 1);
}

static void look(std::vector<double> *us) {
    cudaStream_t stream;
    random_numbers numbers = {3};
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    while (!over) {
        void *block;
        double start = now_s();
        CHECK(cudaMallocAsync(&block, numbers.size_between(9, 20), stream));
        CHECK(cudaFreeAsync(block, stream));
        us->push_back(1e6 * (now_s() - start));
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    int rounds = argc == 3 ? atoi(argv[2]) : 40;
    unsigned long long *wrong;
    cudaStream_t gathers, computes;
    cudaEvent_t there[LAYERS], used[LAYERS];
    CHECK(cudaMallocHost(&wrong, sizeof *wrong));
    *wrong = 0;
    CHECK(cudaStreamCreateWithFlags(&gathers, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&computes, cudaStreamNonBlocking));
    for (int i = 0; i < LAYERS; i++) {
        CHECK(cudaEventCreateWithFlags(&there[i], cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&used[i], cudaEventDisableTiming));
    }
    CHECK(cudaDeviceSynchronize());
    std::vector<double> us;
    std::thread watcher(look, &us);
    double start = now_s();
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < LAYERS; i++) {
            unsigned *layer, value = (unsigned)(round * LAYERS + i + 1);
            CHECK(cudaMallocAsync((void **)&layer, LAYER, gathers));
            fill<<<256, 256, 0, gathers>>>(layer, LAYER / 4, value);
            CHECK(cudaEventRecord(there[i], gathers));
            CHECK(cudaStreamWaitEvent(computes, there[i], 0));
            for (int k = 0; k < READS; k++)
                count_wrong<<<32, 256, 0, computes>>>(layer, LAYER / 4, value, wrong);
            CHECK(cudaFreeAsync(layer, computes));
        }
        if (round % 4 == 3)
            CHECK(cudaStreamSynchronize(computes));
    }
    CHECK(cudaDeviceSynchronize());
    double seconds = now_s() - start;
    over = true;
    watcher.join();
    std::sort(us.begin(), us.end());
    printf(
        "{\"ok\": %s, \"checksum\": %llu, \"seconds\": %.4f, \"calls\": %zu, \"median_us\": %.2f, \"worst_us\": %.1f, "
        "\"p999_us\": %.1f}\n",
        *wrong ? "false" : "true", *wrong, seconds, us.size(), us[us.size() / 2], us.back(),
        us[us.size() * 999 / 1000]);
    return *wrong != 0;
}
