/* A stand-in for PyTorch's libc10.so and libc10_cuda.so: what of their declarations gives its functions the same names.
 *
 * TORCH is the version: 206, 211 or 215. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#define API __attribute__((visibility("default"), noinline))

namespace c10 {

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
using DeviceIndex = int8_t;

struct Device {
    DeviceType type;
    DeviceIndex index;
};

struct SourceLocation {
    const char *function, *file;
    uint32_t line;
};

class API Error : public std::exception {
  public:
    Error(SourceLocation where, std::string text);
    ~Error() override = default;
    const char *what() const noexcept override {
        return text_.c_str();
    }

  private:
    std::string text_, where_;
    std::shared_ptr<int> backtrace_;
};

class API OutOfMemoryError : public Error {
#if TORCH >= 215
  public:
    OutOfMemoryError(SourceLocation where, std::string text);
#else
    using Error::Error;
#endif
};

API void reportMemoryUsageToProfiler(void *ptr, int64_t change, size_t allocated, size_t reserved, Device device);
API void reportOutOfMemoryToProfiler(int64_t size, size_t allocated, size_t reserved, Device device);

namespace detail {
[[noreturn]] API void torchCheckFail(const char *function, const char *file, uint32_t line, const char *text);
[[noreturn]] API void torchCheckFail(const char *function, const char *file, uint32_t line, const std::string &text);
[[noreturn]] API void torchInternalAssertFail(const char *function, const char *file, uint32_t line,
                                              const char *condition, const char *text);
[[noreturn]] API void torchInternalAssertFail(const char *function, const char *file, uint32_t line,
                                              const char *condition, const std::string &text);
} // namespace detail

namespace utils {
API std::optional<std::string> get_env(const char *name) noexcept;
}

namespace CachingAllocator {
struct AcceleratorAllocatorConfig {
    static API size_t roundup_power2_divisions(size_t size);
    API void parseArgs(const std::string &text);
};
} // namespace CachingAllocator

namespace cuda {

/* Two registers, as PyTorch's. */
class CUDAStream {
  public:
    CUDAStream(Device device, int64_t id) : device_(device), id_(id) {
    }
    API cudaStream_t stream() const;
    DeviceIndex device_index() const {
        return device_.index;
    }
    int64_t id() const {
        return id_;
    }

  private:
    Device device_;
    int64_t id_;
};

API CUDAStream getCurrentCUDAStream(DeviceIndex device = -1);
API void setCurrentCUDAStream(CUDAStream stream);
API CUDAStream makeStream(DeviceIndex device);

namespace CUDACachingAllocator {

struct CUDAAllocator;

struct CUDAAllocatorConfig {
    static API size_t roundup_power2_divisions(size_t size);
};

/* The settings from here on; what the text does not name has its default again. Of them max_split_size_mb counts. */
API void setAllocatorSettings(const std::string &text);
API void parse(const std::string &text);
/* Called as a segment is about to be made, while the lock is released: release_lock_on_cudamalloc. */
extern API void (*in_between)();
/* What PyTorch's CUDAAllocator has as virtual functions. */
API void *allocate(size_t size);
API void *raw_alloc(size_t size);
API void *raw_alloc_with_stream(size_t size, cudaStream_t stream);
API void *allocateWithAddress(size_t size, void *address);
API void raw_delete(void *ptr);
API void recordStream(void *ptr, CUDAStream stream);
API void emptyCache();
API void *getBaseAllocation(void *ptr);
API size_t memoryAllocated(DeviceIndex device);
API size_t memoryReserved(DeviceIndex device);
/* Does each allocation go past the cache? */
API void setUncached(bool uncached);
/* Are new segments expandable? In the manner of _set_allocator_settings("expandable_segments:True"). */
API void setExpandable(bool expandable);
/* From here on the calling thread's allocations (or those of a stream) are of a pool of their own. */
using MempoolId = std::pair<unsigned long long, unsigned long long>;
API void beginAllocateToPool(DeviceIndex device, MempoolId id, cudaStream_t stream);
API void endAllocateToPool(DeviceIndex device, MempoolId id);
API void releasePool(DeviceIndex device, MempoolId id);
/* What a pool's segments look like, and back to it. */
struct Checkpoint;
API std::shared_ptr<Checkpoint> getCheckpointState(DeviceIndex device, MempoolId id);
API void setCheckpointPoolState(DeviceIndex device, std::shared_ptr<Checkpoint> state);
/* Which backend the environment has chosen. */
API const std::string &backend();
/* The name of the allocator in use; what the environment says, once more, and whether that agrees with it. */
extern API const char *in_use;
API bool parse();
/* What the other one refuses, with a text that is given, and with one that is put together. */
API void snapshot();
/* Its memory, and what it says where there is none; and whether a free of it would throw, out of a destructor. */
API void *mallocAsync(size_t size);
API void outOfMemory(DeviceIndex device);
API bool freeAsync(void *ptr);
/* Whether what else PyTorch asks of the runtime would throw: for a context, what is free, and about a pointer. */
API bool beginContext();
API bool memGetInfo();
API bool pointerAttributes(const void *ptr);
API void recordHistory();

} // namespace CUDACachingAllocator

#if TORCH < 210
class API MemPool {
  public:
    MemPool(CUDACachingAllocator::CUDAAllocator *allocator, bool user);
    CUDACachingAllocator::MempoolId id;
};
#endif

} // namespace cuda
} // namespace c10

namespace at {
namespace cuda {

API c10::cuda::CUDACachingAllocator::MempoolId graph_pool_handle();

class API CUDAGraph {
  public:
    void capture_begin(std::pair<unsigned long long, unsigned long long> pool, cudaStreamCaptureMode mode);
    void capture_end();

  private:
    c10::cuda::CUDACachingAllocator::MempoolId pool_;
    cudaStream_t stream_ = nullptr;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t exec_ = nullptr;

  public:
    void replay();
};

#if TORCH >= 210
class API MemPool {
  public:
    MemPool(std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> allocator, bool user, bool oom, bool split);
    c10::cuda::CUDACachingAllocator::MempoolId id;
};
#endif

} // namespace cuda
} // namespace at

namespace torch {
namespace cuda {
namespace CUDAPluggableAllocator {
API void changeCurrentAllocator(const std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> &allocator);
}
} // namespace cuda
} // namespace torch
