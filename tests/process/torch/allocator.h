/* A stand-in for PyTorch's libc10_cuda.so: the cache of one device, in the manner of its DeviceCachingAllocator. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "c10.h"

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace c10 {
namespace cuda {
namespace CUDACachingAllocator {

struct Pool;

struct Block {
    cudaStream_t stream;
    size_t size;
    Pool *pool;
    char *ptr;
    Block *prev = nullptr, *next = nullptr;     /* in its segment */
    bool allocated = false, expandable = false; /* its segment is the program's own mapping */
    int events = 0;
    std::map<int64_t, CUDAStream> uses; /* by the stream's id */
};

struct Less {
    bool operator()(const Block *a, const Block *b) const;
};

struct Private;

struct Pool {
    std::set<Block *, Less> blocks; /* unallocated ones */
    Private *owner = nullptr;       /* NULL: the cache's own */
};

struct Private {
    Pool small, large;
    Private() {
        small.owner = large.owner = this;
    }
};

/* Each segment of a pool, as its blocks lay. */
struct Checkpoint {
    struct Piece {
        size_t size;
        bool allocated;
    };
    MempoolId id;
    std::map<char *, std::vector<Piece>> segments;
};

class DeviceCache {
  public:
    explicit DeviceCache(DeviceIndex device) : device_(device) {
    }
    API char *malloc(size_t size, cudaStream_t stream);
    API char *mallocWithAddress(size_t size, cudaStream_t stream, void *address);
    API void free(char *ptr);
    API void recordStream(char *ptr, CUDAStream stream);
    API void emptyCache();
    void *base(char *ptr);
    void beginPool(MempoolId id, cudaStream_t stream);
    void endPool(MempoolId id);
    void releasePool(MempoolId id);
    std::shared_ptr<Checkpoint> checkpoint(MempoolId id);
    API void restore(const Checkpoint &state);
    size_t allocated = 0, reserved = 0;
    bool expandable = false;

  private:
    struct Params {
        size_t size, segment;
        cudaStream_t stream;
        Pool *pool;
        Block *block;
    };
    Pool *pool_of(size_t size, cudaStream_t stream);
    bool find(Params &params);
    API bool make(Params &params);
    API Block *found(Params &params, size_t size);
    API void free_locked(Block *block);
    void free_block(Block *block);
    bool join(Block *block, Block *other);
    API void insert_events(Block *block);
    API void process_events();
    void drop(Pool &pool);
    void say_capturing();

    const DeviceIndex device_;
    std::recursive_mutex lock_;
    Pool small_, large_;
    std::map<MempoolId, std::unique_ptr<Private>> pools_;
    std::vector<std::pair<MempoolId, cudaStream_t>> captures_; /* underway: a stream's, or (NULL) the thread's own */
    std::map<char *, Block *> live_;
    std::vector<Block *> deferred_; /* freed with other streams' uses while captures are underway */
    std::deque<std::pair<cudaEvent_t, Block *>> events_;
};

} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10
