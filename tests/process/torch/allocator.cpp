/* A stand-in for PyTorch's libc10_cuda.so: blocks in segments, split and joined, in the order of its own calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator.h"

#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <functional>

namespace c10 {
namespace cuda {
namespace CUDACachingAllocator {

void (*in_between)();

enum : size_t { MIB = 1 << 20, SMALL = MIB, LEAST = 512 };

static void check(cudaError_t err) {
    if (err != cudaSuccess)
        abort();
}

/* What is done in another order than PyTorch's: STANDIN_ORDER. */
static bool order_is(const char *word) {
    const char *order = getenv("STANDIN_ORDER");
    return order && !strcmp(order, word);
}

bool Less::operator()(const Block *a, const Block *b) const {
    if (a->stream != b->stream)
        return std::less<cudaStream_t>()(a->stream, b->stream);
    return a->size != b->size ? a->size < b->size : a->ptr < b->ptr;
}

static size_t round_size(size_t size) {
    if (size < LEAST)
        return LEAST;
#if TORCH < 210
    size_t divisions = CUDAAllocatorConfig::roundup_power2_divisions(size);
#else
    size_t divisions = c10::CachingAllocator::AcceleratorAllocatorConfig::roundup_power2_divisions(size);
#endif
    if (divisions > 1 && size > LEAST * divisions) {
        size_t part = LEAST;
        while (part * divisions * 2 <= size)
            part *= 2;
        return (size + part - 1) / part * part;
    }
    return (size + LEAST - 1) / LEAST * LEAST;
}

static size_t segment_size(size_t size) {
    return size <= SMALL ? 2 * MIB : size < 10 * MIB ? 20 * MIB : (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

/* Blocks from that on are not split: STANDIN_UNSPLIT, in MiB. */
static size_t unsplit() {
    const char *least = getenv("STANDIN_UNSPLIT");
    return least ? strtoul(least, nullptr, 10) * MIB : SIZE_MAX;
}

Pool *DeviceCache::pool_of(size_t size, cudaStream_t stream) {
    for (auto &[id, only] : captures_)
        if (!only || only == stream)
            return size <= SMALL ? &pools_.at(id)->small : &pools_.at(id)->large;
    return size <= SMALL ? &small_ : &large_;
}

bool DeviceCache::find(Params &params) {
    Block key{params.stream, params.size, nullptr, nullptr};
    auto at = params.pool->blocks.lower_bound(&key);
    while (!expandable && at != params.pool->blocks.end() && (*at)->stream == params.stream && (*at)->expandable)
        ++at;
    if (at == params.pool->blocks.end() || (*at)->stream != params.stream)
        return false;
    if ((*at)->size >= unsplit() && (params.size < unsplit() || (*at)->size >= params.size + 20 * MIB))
        return false;
    params.block = *at;
    params.pool->blocks.erase(at);
    return true;
}

/* Is the calling thread's stream being captured? Asked as PyTorch does, right before each segment. */
API cudaError_t cudaMallocMaybeCapturing(void **ptr, size_t size) {
    cudaStreamCaptureStatus status;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    check(cudaStreamIsCapturing(getCurrentCUDAStream().stream(), &status));
    if (status == cudaStreamCaptureStatusNone)
        return cudaMalloc(ptr, size);
    check(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaError_t err = cudaMalloc(ptr, size);
    check(cudaThreadExchangeStreamCaptureMode(&mode));
    return err;
}

#define DRIVER(name) ((decltype(&name))dlsym(dlopen("libcuda.so.1", RTLD_LAZY), #name))

/* Expandable ones are as large as their first block here. */
static bool map(void **ptr, size_t size, int device) {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAllocationProp prop = {};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = access.location;
    if (DRIVER(cuMemCreate)(&handle, size, &prop, 0))
        return false;
    if (DRIVER(cuMemAddressReserve)(&at, size, 0, 0, 0) || DRIVER(cuMemMap)(at, size, 0, handle, 0) ||
        DRIVER(cuMemSetAccess)(at, size, &access, 1) || DRIVER(cuMemRelease)(handle))
        abort();
    *ptr = (void *)at;
    return true;
}

static void unmap(const Block *block) {
    if (DRIVER(cuMemUnmap)((CUdeviceptr)block->ptr, block->size) ||
        DRIVER(cuMemAddressFree)((CUdeviceptr)block->ptr, block->size))
        abort();
}

/* It may have so much in segments: STANDIN_FRACTION, in MiB. */
bool DeviceCache::make(Params &params) {
    void *ptr;
    if (in_between) {
        lock_.unlock();
        in_between();
        lock_.lock();
    }
    const char *most = getenv("STANDIN_FRACTION");
    if (most && reserved + params.segment > strtoul(most, nullptr, 10) * MIB)
        return false;
    if (expandable && !map(&ptr, params.segment, device_))
        return false;
    if (!expandable) {
        cudaError_t err = cudaMallocMaybeCapturing(&ptr, params.segment);
        if (err != cudaSuccess)
            cudaGetLastError();
        if (err == cudaErrorMemoryAllocation)
            return false;
        if (err != cudaSuccess)
            throw c10::Error({__func__, __FILE__, __LINE__}, cudaGetErrorString(err));
    }
    reserved += params.segment;
    params.block = new Block{params.stream, params.segment, params.pool, (char *)ptr};
    params.block->expandable = expandable;
    return true;
}

Block *DeviceCache::found(Params &params, size_t size) {
    Block *block = params.block;
    const bool whole = params.pool->owner && getenv("STANDIN_NO_SPLIT");
    if (!whole && size < unsplit() && block->size - size >= LEAST && (params.pool == &small_ || block->size - size > SMALL || params.pool->owner)) {
        Block *rest = new Block{block->stream, block->size - size, block->pool, block->ptr + size};
        rest->expandable = block->expandable;
        rest->prev = block;
        rest->next = block->next;
        if (rest->next)
            rest->next->prev = rest;
        block->next = rest;
        block->size = size;
        rest->pool->blocks.insert(rest);
    }
    block->allocated = true;
    live_[block->ptr] = block;
    allocated += block->size;
    if (!order_is("silent"))
        c10::reportMemoryUsageToProfiler(order_is("moved") ? block->ptr + 64 * MIB : block->ptr, (int64_t)block->size,
                                         allocated, reserved, {DeviceType::CUDA, device_});
    return block;
}

/* From 2.13 on the current stream is asked for here, too. */
void DeviceCache::say_capturing() {
#if TORCH >= 213
    cudaStreamCaptureStatus status;
    if (!captures_.empty())
        check(cudaStreamIsCapturing(getCurrentCUDAStream(device_).stream(), &status));
#endif
}

char *DeviceCache::malloc(size_t asked, cudaStream_t stream) {
    std::unique_lock<std::recursive_mutex> guard(lock_);
    if (captures_.empty())
        process_events();
    say_capturing();
    bool late = order_is("late");
    size_t size = late ? (asked + LEAST - 1) / LEAST * LEAST : round_size(asked);
    Params params{size, segment_size(size), stream, pool_of(size, stream), nullptr};
    bool ok = find(params) || make(params);
    if (late)
        round_size(asked);
    if (!ok) {
        emptyCache();
        ok = make(params);
    }
    if (!ok) {
        c10::reportOutOfMemoryToProfiler((int64_t)size, allocated, reserved, {DeviceType::CUDA, device_});
        throw OutOfMemoryError({"malloc", __FILE__, (uint32_t)__LINE__}, "CUDA out of memory. Tried to allocate");
    }
    return found(params, size)->ptr;
}

char *DeviceCache::mallocWithAddress(size_t asked, cudaStream_t stream, void *address) {
    std::unique_lock<std::recursive_mutex> guard(lock_);
    size_t size = round_size(asked);
    Pool *pool = pool_of(size, stream);
    for (Block *block : pool->blocks) {
        size_t before = (char *)address - block->ptr;
        if (block->stream != stream || (char *)address < block->ptr || before + size > block->size)
            continue;
        pool->blocks.erase(block);
        Params params{before, 0, stream, pool, block};
        Block *first = before ? found(params, before) : nullptr;
        params.block = first ? first->next : block;
        if (first)
            pool->blocks.erase(params.block);
        char *ptr = found(params, size)->ptr;
        if (first)
            free_locked(first);
        return ptr;
    }
    return nullptr;
}

bool DeviceCache::join(Block *block, Block *other) {
    if (!other || other->allocated || other->events || !other->uses.empty())
        return false;
    if (other == block->prev) {
        block->ptr = other->ptr;
        block->prev = other->prev;
        if (block->prev)
            block->prev->next = block;
    } else {
        block->next = other->next;
        if (block->next)
            block->next->prev = block;
    }
    block->size += other->size;
    other->pool->blocks.erase(other);
    delete other;
    return true;
}

void DeviceCache::free_block(Block *block) {
    join(block, block->prev);
    join(block, block->next);
    block->pool->blocks.insert(block);
}

void DeviceCache::insert_events(Block *block) {
    std::map<int64_t, CUDAStream> uses = std::move(block->uses);
    block->uses.clear();
    for (auto &[id, use] : uses) {
        cudaEvent_t event;
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        check(cudaEventRecord(event, use.stream()));
        block->events++;
        events_.emplace_back(event, block);
    }
}

void DeviceCache::process_events() {
    for (Block *block : deferred_)
        insert_events(block);
    deferred_.clear();
    for (auto at = events_.begin(); at != events_.end();) {
        if (cudaEventQuery(at->first) != cudaSuccess) {
            cudaGetLastError();
            ++at;
            continue;
        }
        check(cudaEventDestroy(at->first));
        if (!--at->second->events)
            free_block(at->second);
        at = events_.erase(at);
    }
}

void DeviceCache::free_locked(Block *block) {
    char *ptr = block->ptr;
    size_t size = block->size;
    block->allocated = false;
    live_.erase(ptr);
    allocated -= size;
    if (block->uses.empty())
        free_block(block);
    else if (captures_.empty())
        insert_events(block);
    else
        deferred_.push_back(block);
    c10::reportMemoryUsageToProfiler(ptr, -(int64_t)size, allocated, reserved, {DeviceType::CUDA, device_});
}

void DeviceCache::free(char *ptr) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    free_locked(live_.at(ptr));
}

void DeviceCache::recordStream(char *ptr, CUDAStream stream) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    Block *block = live_.at(ptr);
    if (stream.stream() != block->stream)
        block->uses.emplace(stream.id(), stream);
    say_capturing();
}

void DeviceCache::drop(Pool &pool) {
    for (auto at = pool.blocks.begin(); at != pool.blocks.end();) {
        Block *block = *at;
        if (block->prev || block->next) {
            ++at;
            continue;
        }
        if (block->expandable)
            unmap(block);
        else
            check(cudaFree(block->ptr));
        reserved -= block->size;
        at = pool.blocks.erase(at);
        delete block;
    }
}

void DeviceCache::emptyCache() {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    if (captures_.empty()) {
        check(cudaDeviceSynchronize());
        process_events();
    }
    drop(small_);
    drop(large_);
}

void *DeviceCache::base(char *ptr) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    Block *block = live_.at(ptr);
    while (block->prev)
        block = block->prev;
    return block->ptr;
}

void DeviceCache::beginPool(MempoolId id, cudaStream_t stream) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    if (!pools_.count(id))
        pools_[id] = std::make_unique<Private>();
    captures_.emplace_back(id, stream);
}

void DeviceCache::endPool(MempoolId id) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    for (auto at = captures_.begin(); at != captures_.end(); ++at)
        if (at->first == id) {
            captures_.erase(at);
            return;
        }
}

void DeviceCache::releasePool(MempoolId id) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    check(cudaDeviceSynchronize());
    drop(pools_.at(id)->small);
    drop(pools_.at(id)->large);
}

std::shared_ptr<Checkpoint> DeviceCache::checkpoint(MempoolId id) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    auto state = std::make_shared<Checkpoint>();
    auto note = [&](Block *block) {
        while (block->prev)
            block = block->prev;
        auto &pieces = state->segments[block->ptr];
        for (pieces.clear(); block; block = block->next)
            pieces.push_back({block->size, block->allocated});
    };
    state->id = id;
    for (Pool *pool : {&pools_.at(id)->small, &pools_.at(id)->large}) {
        for (Block *block : pool->blocks)
            note(block);
        for (auto &[ptr, block] : live_)
            if (block->pool == pool)
                note(block);
    }
    return state;
}

/* All blocks are freed. Then every block of a segment is made, one after the other, and those that were free are freed
 * again, before the next segment. */
void DeviceCache::restore(const Checkpoint &state) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    Private &own = *pools_.at(state.id);
    for (Pool *pool : {&own.small, &own.large})
        for (auto &[ptr, block] : std::map<char *, Block *>(live_))
            if (block->pool == pool)
                free_locked(block);
    for (auto &[start, pieces] : state.segments)
        for (Pool *pool : {&own.small, &own.large})
            for (Block *block : std::set<Block *, Less>(pool->blocks)) {
                std::vector<Block *> lie;
                if (block->ptr != start)
                    continue;
                for (auto &piece : pieces) {
                    pool->blocks.erase(block);
                    Params params{piece.size, 0, block->stream, pool, block};
                    block = found(params, piece.size);
                    if (!piece.allocated)
                        lie.push_back(block);
                    block = block->next;
                }
                for (Block *one : lie)
                    free_locked(one);
                break;
            }
}

} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10
