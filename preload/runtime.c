/* Doors of the runtime. Each calls the same function of its caller's own libcudart (the long way), which in turn calls
 * the doors of the driver.
 *
 * So contexts are made, errors are recorded and profilers are informed as always. Only an allocation or free that the
 * pool can serve at once skips the runtime (the short way). NULL pointers, sizes of 0 and failures take the long way.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime.h"

#include "adopt.h"
#include "callers.h"
#include "lookup.h"
#include "make.h"
#include "torch.h"

/* The caller's own function. Use it only in an exported function, because it depends on the return address. */
#define CALLERS_RUNTIME() vp_caller_runtime(__builtin_return_address(0))
#define RUNTIME_REAL(runtime, symbol) ((__typeof__(&symbol))(runtime)->real[VP_RUNTIME_##symbol])

/* A short way bypasses a door of the driver. If other code has patched that door (UCX patches the driver functions that
 * dlsym finds, to be told of memory), it must not be bypassed any more. */
#define MAY_PASS_BY(symbol)                                                                                            \
    (*(const volatile unsigned *)vp_door_table.driver[VP_DOOR_##symbol] == vp_door_begins[VP_DOOR_##symbol] &&         \
     vp_door_has_current())
#define SHORT(entered, symbol, call) ((entered) && MAY_PASS_BY(symbol) ? (call) : VP_NOT_OURS)

/* Ends a short way: leaves the door; sets the pointer on success. Keeps the error of an allocation for the long way. */
static bool short_way(CUresult res, CUdeviceptr found, void **ptr, size_t size) {
    vp_door_leave();
    vp_door_told = (struct vp_door_told){res && res != VP_NOT_OURS ? size : 0, res};
    if (!res && ptr)
        *ptr = (void *)(uintptr_t)found;
    return !res;
}

/* `address`: the return address in the program. */
static bool alloc(void **ptr, size_t size, const void *address) {
    CUdeviceptr found = 0;
    CUresult res = VP_NOT_OURS;
    if (vp_door_enter() && MAY_PASS_BY(cuMemAlloc_v2)) {
        res = vp_torch_segment(&found, size, address);
        if (res == VP_NOT_OURS)
            res = vp_api_alloc(&found, size);
    }
    return short_way(res, found, ptr, size);
}

static bool alloc_pitch(void **ptr, size_t *pitch, size_t width, size_t height) {
    const unsigned int element = 4; /* what the runtime passes; the pitch is the same for 4, 8 and 16 */
    CUdeviceptr found = 0;
    CUresult res = SHORT(vp_door_enter(), cuMemAllocPitch_v2,
                         vp_api_alloc_pitch(&found, pitch, width, height, element));
    return short_way(res, found, ptr, vp_pitched(width, height));
}

static bool alloc_async(void **ptr, size_t size, CUmemoryPool pool, CUstream stream) {
    CUdeviceptr found = 0;
    CUresult res = SHORT(vp_door_enter() && (!pool || MAY_PASS_BY(cuMemAllocFromPoolAsync)), cuMemAllocAsync,
                         vp_api_alloc_async(&found, size, pool, stream));
    return short_way(res, found, ptr, size);
}

static bool free_now(void *ptr) {
    CUresult res = SHORT((vp_door_enter() || vp_api_ready()) && !vp_api_captures(), cuMemFree_v2,
                         vp_api_free((CUdeviceptr)(uintptr_t)ptr));
    return short_way(res, 0, NULL, 0);
}

static bool free_async(void *ptr, CUstream stream) {
    CUresult res = SHORT(vp_door_enter() || vp_api_ready(), cuMemFreeAsync,
                         vp_api_free_async((CUdeviceptr)(uintptr_t)ptr, stream));
    if (short_way(res, 0, NULL, 0))
        return true;
    if (res == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        vp_api_free_async_refused((CUdeviceptr)(uintptr_t)ptr);
    return false;
}

/* The result of a failed free for the program (not of a free of NULL, which makes a context). PyTorch's other backend
 * throws it from a destructor, which ends the process: after a kernel's error that was not reported yet, or after a
 * failed capture, for memory that never existed. PyTorch's cache, used without us, does not call CUDA there. */
static cudaError_t failed_free(cudaError_t err, const void *address) {
    if (!vp_adopt_async || !vp_torch_holds(address))
        return err;
    cudaError_t (*forget)(void) = vp_caller_find(address, "cudaGetLastError", NULL, NULL, "libcudart");
    if (forget)
        forget();
    if (err == cudaErrorInvalidValue)
        vp_adopt_freed();
    return cudaSuccess;
}

#define VP_MAKE_ALLOCATES(symbol, like, allocated, something, ...)                                                     \
    cudaError_t symbol(VP_PARAMS(__VA_ARGS__)) {                                                                       \
        const struct vp_runtime *runtime = CALLERS_RUNTIME();                                                          \
        if (something && runtime->context_is_current && allocated)                                                     \
            return cudaSuccess;                                                                                        \
        return RUNTIME_REAL(runtime, symbol)(VP_NAMES(__VA_ARGS__));                                                   \
    }
#define VP_MAKE_FREES(symbol, like, freed, ...)                                                                        \
    cudaError_t symbol(VP_PARAMS(__VA_ARGS__)) {                                                                       \
        if (freed)                                                                                                     \
            return cudaSuccess;                                                                                        \
        cudaError_t err = RUNTIME_REAL(CALLERS_RUNTIME(), symbol)(VP_NAMES(__VA_ARGS__));                              \
        return __builtin_expect(!err || !a, true) ? err : failed_free(err, __builtin_return_address(0));               \
    }
/* The runtime's resolvers of driver functions. One of CUDA 11 takes no `status`, and does not mind it. */
#define VP_MAKE_RESOLVES(symbol, like, ...)                                                                            \
    cudaError_t symbol(VP_PARAMS(__VA_ARGS__)) {                                                                       \
        cudaError_t err = RUNTIME_REAL(CALLERS_RUNTIME(), symbol)(VP_NAMES(__VA_ARGS__));                              \
        if (err == cudaSuccess && b && vp_resolve())                                                                   \
            *b = vp_lookup_exchange(*b);                                                                               \
        return err;                                                                                                    \
    }
VP_DOORS_RUNTIME(VP_MAKE)

/* The long way leads past what else is told of it: another interposer behind us, or jumps in the driver's functions. */
cudaError_t cudaMalloc(void **ptr, size_t size) {
    const void *address = __builtin_return_address(0);
    const struct vp_runtime *runtime = CALLERS_RUNTIME();
    vp_torch_asks(size, address);
    if (ptr && size && runtime->context_is_current && alloc(ptr, size, address))
        return cudaSuccess;
    cudaError_t err = RUNTIME_REAL(runtime, cudaMalloc)(ptr, size);
    vp_torch_asks(0, NULL);
    return err;
}
