/* A stand-in for PyTorch's libc10.so: reports, settings and errors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "c10.h"

#include <cstdlib>

namespace c10 {

Error::Error(SourceLocation where, std::string text) : text_(std::move(text)), where_(where.function) {}

#if TORCH >= 215
OutOfMemoryError::OutOfMemoryError(SourceLocation where, std::string text) : Error(where, std::move(text)) {}
#endif

/* What the profiler was told, to be looked at. */
extern "C" {
API long standin_reports, standin_reported, standin_refusals;
}

void reportMemoryUsageToProfiler(void *, int64_t change, size_t, size_t, Device) {
    __atomic_fetch_add(&standin_reports, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&standin_reported, change, __ATOMIC_RELAXED);
}

void reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device) {
    __atomic_fetch_add(&standin_refusals, 1, __ATOMIC_RELAXED);
}

namespace detail {

void torchCheckFail(const char *function, const char *file, uint32_t line, const char *text) {
    throw Error({function, file, line}, text);
}

void torchCheckFail(const char *function, const char *file, uint32_t line, const std::string &text) {
    throw Error({function, file, line}, text);
}

void torchInternalAssertFail(const char *function, const char *file, uint32_t line, const char *condition,
                             const char *text) {
    throw Error({function, file, line}, std::string(condition) + text);
}

void torchInternalAssertFail(const char *function, const char *file, uint32_t line, const char *condition,
                             const std::string &text) {
    throw Error({function, file, line}, condition + text);
}

} // namespace detail

#if TORCH >= 206
namespace utils {

std::optional<std::string> get_env(const char *name) noexcept {
    const char *value = getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
}

} // namespace utils
#endif

namespace cuda {
namespace CUDACachingAllocator {

void parse(const std::string &text) {
    static const char name[] = "max_split_size_mb:";
    const size_t at = text.rfind(name);
    at == text.npos ? unsetenv("STANDIN_UNSPLIT") : setenv("STANDIN_UNSPLIT", text.c_str() + at + sizeof(name) - 1, 1);
}

} // namespace CUDACachingAllocator
} // namespace cuda

#if TORCH >= 210
namespace CachingAllocator {

size_t AcceleratorAllocatorConfig::roundup_power2_divisions(size_t) {
    const char *divisions = getenv("STANDIN_DIVISIONS");
    return divisions ? strtoul(divisions, nullptr, 10) : 0;
}

void AcceleratorAllocatorConfig::parseArgs(const std::string &text) {
    cuda::CUDACachingAllocator::parse(text);
}

} // namespace CachingAllocator
#endif

} // namespace c10
