/* A stand-in for PyTorch's libc10_cuda.so: its streams, settings and pools' names, each called through the dynamic linker. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "c10.h"

#include <cstdlib>
#include <mutex>
#include <vector>

namespace c10 {
namespace cuda {

static std::mutex lock;
static std::vector<cudaStream_t> streams{nullptr}; /* by id; 0 is the default stream */
static thread_local std::vector<int64_t> current(64, 0);

static void check(cudaError_t err) {
    if (err != cudaSuccess)
        abort();
}

cudaStream_t CUDAStream::stream() const {
    std::lock_guard<std::mutex> guard(lock);
    return streams[id_];
}

CUDAStream getCurrentCUDAStream(DeviceIndex device) {
    int now = device;
    if (device < 0)
        check(cudaGetDevice(&now));
    return CUDAStream({DeviceType::CUDA, (DeviceIndex)now}, current[now]);
}

void setCurrentCUDAStream(CUDAStream stream) {
    current[stream.device_index()] = stream.id();
}

CUDAStream makeStream(DeviceIndex device) {
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::lock_guard<std::mutex> guard(lock);
    streams.push_back(stream);
    return CUDAStream({DeviceType::CUDA, device}, (int64_t)streams.size() - 1);
}

#if TORCH < 210
namespace CUDACachingAllocator {

size_t CUDAAllocatorConfig::roundup_power2_divisions(size_t) {
    const char *divisions = getenv("STANDIN_DIVISIONS");
    return divisions ? strtoul(divisions, nullptr, 10) : 0;
}

} // namespace CUDACachingAllocator

MemPool::MemPool(CUDACachingAllocator::CUDAAllocator *, bool) : id(at::cuda::graph_pool_handle()) {}
#endif

namespace CUDACachingAllocator {

#if TORCH < 206
static std::optional<std::string> get_env(const char *name) {
    const char *value = getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
}
#else
using c10::utils::get_env;
#endif

/* Read while the library is loaded. */
struct Backend {
    std::string name;
    Backend() {
        std::optional<std::string> value = get_env("PYTORCH_CUDA_ALLOC_CONF");
        name = value && value->find("backend:cudaMallocAsync") != std::string::npos ? "cudaMallocAsync" : "native";
    }
};
static Backend chosen;

const std::string &backend() {
    return chosen.name;
}

const char *in_use = chosen.name.c_str();

bool parse() {
    return Backend().name == in_use || !get_env("PYTORCH_CUDA_ALLOC_CONF");
}

void snapshot() {
    if (backend() != "native")
        c10::detail::torchCheckFail("snapshot", __FILE__, __LINE__,
                                    "Calling snapshot with backend:cudaMallocAsync is not meaningful.");
}

void recordHistory() {
    if (backend() != "native")
        c10::detail::torchCheckFail("recordHistory", __FILE__, __LINE__,
                                    backend() + " does not yet support recordHistory.");
}

} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10

namespace at {
namespace cuda {

c10::cuda::CUDACachingAllocator::MempoolId graph_pool_handle() {
    static unsigned long long last;
    return {0, ++last};
}

#if TORCH >= 210
MemPool::MemPool(std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>, bool, bool, bool)
    : id(graph_pool_handle()) {}
#endif

void CUDAGraph::capture_begin(std::pair<unsigned long long, unsigned long long> pool, cudaStreamCaptureMode mode) {
    pool_ = pool.second ? pool : graph_pool_handle();
    stream_ = c10::cuda::getCurrentCUDAStream().stream();
    c10::cuda::CUDACachingAllocator::beginAllocateToPool(0, pool_, stream_);
    if (cudaStreamBeginCapture(stream_, mode) != cudaSuccess)
        abort();
}

void CUDAGraph::capture_end() {
    if (cudaStreamEndCapture(stream_, &graph_) != cudaSuccess)
        abort();
    c10::cuda::CUDACachingAllocator::endAllocateToPool(0, pool_);
    if (cudaGraphInstantiate(&exec_, graph_, 0) != cudaSuccess)
        abort();
}

void CUDAGraph::replay() {
    if (cudaGraphLaunch(exec_, c10::cuda::getCurrentCUDAStream().stream()) != cudaSuccess)
        abort();
}

} // namespace cuda
} // namespace at

namespace torch {
namespace cuda {
namespace CUDAPluggableAllocator {

void changeCurrentAllocator(const std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> &) {
    c10::cuda::CUDACachingAllocator::in_use = "pluggable";
}

} // namespace CUDAPluggableAllocator
} // namespace cuda
} // namespace torch
