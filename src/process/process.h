/* What a door calls. A door is an exported CUDA function of the preload library (or a test that plays one).
 *
 * A CUresult is what the door returns, unless it is VP_NOT_OURS: then the door calls the real function with the same
 * arguments, and tells the outcome where a function below asks for it. Outputs of a call that failed or is not ours
 * are untouched. All are thread-safe. None may be called before vp_api_open() succeeded, except vp_api_ready(),
 * vp_api_exit() and vp_api_coupled().
 *
 * Streams are handles as the driver knows them: a door of the per-thread kind (_ptsz) passes CU_STREAM_PER_THREAD for
 * 0.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_PROCESS_H
#define VP_PROCESS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* What CUDA never returns. */
#define VP_NOT_OURS ((CUresult)0x7fffffff)

/* X(name): the door calls that may be passed on to CUDA, counted by name in the statistics. */
#define VP_PASSED_CALLS(X)                                                                                             \
    X(cuMemAlloc) X(cuMemAllocPitch) X(cuMemFree) X(cuMemAllocAsync) X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync)                      \
        X(cuMemPoolCreate)

enum vp_passed {
#define VP_PASSED_ENUM(name) VP_PASSED_##name,
    VP_PASSED_CALLS(VP_PASSED_ENUM)
#undef VP_PASSED_ENUM
        VP_PASSED_COUNT
};

/*
 * Opens the library on a driver: `lookup(name, ctx)` gives the real address of a cu* symbol, or NULL. Called once the
 * program's own libcuda is known (any number of times, by any thread: the first one counts). Makes no CUDA call.
 * Returns 0; -ENOSYS when the driver lacks what a pool needs, -ENODEV in a forked child whose parent used CUDA:
 * everything is then passed on.
 */
int vp_api_open(void *(*lookup)(const char *name, void *ctx), void *ctx) __attribute__((cold));
bool vp_api_ready(void);

/* cuMemAlloc, cuMemAllocPitch, cuMemFree. */
CUresult vp_api_alloc(CUdeviceptr *out, size_t size);
CUresult vp_api_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned elem);
CUresult vp_api_free(CUdeviceptr ptr);

/* cuMemAllocAsync (`pool` NULL: the device's current pool), cuMemAllocFromPoolAsync, cuMemFreeAsync. */
CUresult vp_api_alloc_async(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream);
CUresult vp_api_free_async(CUdeviceptr ptr, CUstream stream);

/* Gives idle memory of every pool back. True if there was any. */
bool vp_api_relieve(void);

/* The tries of one call; zero at first. */
struct vp_relief {
    uint64_t begin, serial; /* when it first failed, and what was pending when it first waited */
    bool waited;
};

/*
 * A native call of anyone failed with out of memory: gives idle memory of every pool back, and where there is none,
 * waits for pending work that would free some. True if anything was given back, so that the call is worth trying once
 * more. The door calls this for calls which it passed on, after each failure.
 */
bool vp_api_relieve_more(struct vp_relief *relief);

/*
 * Physical memory that others made by cuMemCreate, for the statistics: after a creation on a device; after a reference
 * was added by cuMemRetainAllocationHandle; before cuMemRelease. Handles that were not told of are nobody's.
 */
void vp_api_other_created(CUdevice dev, CUmemGenericAllocationHandle handle, size_t size);
void vp_api_other_retained(CUmemGenericAllocationHandle handle);
void vp_api_other_released(CUmemGenericAllocationHandle handle);

/* Does the address lie in a live allocation of the pool, or in memory that vp_api_ipc_open() opened? */
bool vp_api_owns(CUdeviceptr ptr);

/*
 * Legacy IPC: cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcCloseMemHandle (see ipc.h). A handle that a pool made is
 * served here, any other is CUDA's. Opening waits for the exporting process, for some seconds at most.
 */
CUresult vp_api_ipc_get(CUipcMemHandle *out, CUdeviceptr ptr);
CUresult vp_api_ipc_open(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags);
CUresult vp_api_ipc_close(CUdeviceptr ptr);

/* Counts a call passed on. */
void vp_api_passed(enum vp_passed call);

/*
 * cuMemGetInfo: what the pool of the current device could hand out again counts as free. Either output may be NULL.
 * Makes the real call itself, so that the pool stands still meanwhile.
 */
CUresult vp_api_mem_info(size_t *free_bytes, size_t *total);

/* cuMemGetAddressRange: either output may be NULL. */
CUresult vp_api_address_range(CUdeviceptr *base, size_t *size, CUdeviceptr ptr);
/*
 * cuPointerGetAttribute: served for the attributes whose native answer for our memory would show the chunk or the
 * reservation instead of the allocation. For cuPointerGetAttributes the door asks the real function first, then this
 * one for each attribute in turn.
 */
CUresult vp_api_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr);

/*
 * The address to ask the driver about, where the two above do not answer: one in the pool's addresses at which nothing
 * is live becomes one at which nothing ever is. The driver knows chunks there, and would take freed memory for live.
 */
CUdeviceptr vp_api_asked_address(CUdeviceptr ptr);

/* Streams. After a successful creation; before a destruction. */
void vp_api_stream_created(CUstream stream);
void vp_api_stream_destroying(CUstream stream);

/*
 * Contexts. `created` after cuCtxCreate*, cuDevicePrimaryCtxRetain and cuCtxFromGreenCtx: from then on cudaFree waits
 * for its work too. `destroying` before cuCtxDestroy, cuGreenCtxDestroy (with the context of cuCtxFromGreenCtx),
 * cuDevicePrimaryCtxReset and the cuDevicePrimaryCtxRelease that will end it (the door cannot know: it calls
 * `destroying` with the primary context before, and `destroyed` with whether cuDevicePrimaryCtxGetState says inactive
 * after). `destroyed(…, ended)`: whether the context really ended: its synchronous blocks, streams and events are then
 * dropped; else everything goes on.
 */
void vp_api_context_created(CUcontext ctx, bool primary);
void vp_api_context_destroying(CUcontext ctx);
void vp_api_context_destroyed(CUcontext ctx, bool ended);
/*
 * The primary context of a device if this library has seen it, else NULL (then there is nothing to tell). With
 * `releasing`: and if the release that is about to be made may be its last; of the earlier ones nobody need be told.
 */
CUcontext vp_api_primary(CUdevice dev, bool releasing);

/*
 * Captures. `beginning` before cuStreamBeginCapture* (from then on no barrier is taken), and in any case `began` after
 * it with its success, by the same thread: until then the others wait, if they need more than the fast path; `ended`
 * after cuStreamEndCapture, whatever it returned for a stream that had begun one.
 */
void vp_api_capture_beginning(CUstream stream);
void vp_api_capture_began(CUstream stream, bool ok);
void vp_api_capture_ended(CUstream stream);

/*
 * After a successful cuCtxEnablePeerAccess / cuCtxDisablePeerAccess of the calling thread's context. If `enabled` does
 * not answer success, what there is could not be opened to the peer: the door takes the access back and returns that
 * error.
 */
CUresult vp_api_peer_enabled(CUcontext peer);
void vp_api_peer_disabled(CUcontext peer);

/*
 * Copies between devices, which in CUDA need no leave. Of mapped memory they need access, which is given when the first
 * of them is about to be made: so the door asks before each. While vp_api_copies_matter() is false (one load), as with
 * one device in use, it need not. `way` opens what can be opened, and tells how a copy in that stream is to be made:
 *   VP_COPY_AS_IT_IS    there is nothing about it
 *   VP_COPY_BETWEEN     by cuMemcpyPeer or cuMemcpy3DPeer and their like, between the contexts that it finds for the
 * two ends VP_COPY_ELSEWHERE   one end can be reached from anywhere: in the other one's context, in the order of the
 * stream
 */
struct vp_copy_end {
    CUdeviceptr ptr;   /* 0: no address of CUDA's, as that of an array, or of host memory by its kind */
    bool anywhere;     /* may be reached from any context; asked for if it has an address */
    CUcontext context; /* out: that it belongs to; of an array, the current one */
};
enum vp_copy_way { VP_COPY_AS_IT_IS, VP_COPY_BETWEEN, VP_COPY_ELSEWHERE };
extern atomic_bool vp_copies_matter;
/* The program copies by cuMemcpyPeer and its like: told before each. From then on work of any device may touch any
 * memory. */
extern atomic_bool vp_copies_between;
void vp_api_copied_between(void);
static inline bool vp_api_copies_matter(void) {
    return atomic_load_explicit(&vp_copies_matter, memory_order_relaxed);
}
enum vp_copy_way vp_api_copy_way(CUstream stream, struct vp_copy_end *dst, struct vp_copy_end *src);
/* The same for a node of a graph that runs in `ctx` (NULL: not known). It has the one form only. */
void vp_api_copy_node(CUcontext ctx, struct vp_copy_end *dst, struct vp_copy_end *src);

/*
 * Memory pools. Call `created` after a successful cuMemPoolCreate: it answers whether the pool is ours to serve.
 * `destroying` before cuMemPoolDestroy, `destroyed` after it with its
 * success. `set_current` after a successful cuDeviceSetMemPool.
 */
bool vp_api_pool_created(CUmemoryPool pool, const CUmemPoolProps *props);
void vp_api_pool_destroying(CUmemoryPool pool);
void vp_api_pool_destroyed(CUmemoryPool pool, bool ended);
void vp_api_pool_set_current(CUdevice dev, CUmemoryPool pool);
CUresult vp_api_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
CUresult vp_api_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
CUresult vp_api_pool_trim_to(CUmemoryPool pool, size_t keep);
CUresult vp_api_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count);

/*
 * After the program has waited on the host: for a stream; for its current context; or for an event. Memory above a
 * release threshold that the program has set goes back then, and pools without opportunistic reuse may use what that
 * has freed. Only to be called if vp_api_sync_matters().
 */
bool vp_api_sync_matters(void);
void vp_api_stream_synchronized(CUstream stream);
void vp_api_context_synchronized(void);
void vp_api_event_synchronized(void);

/*
 * The process is now coupled with others (communicator of more than one rank, imported memory, event or semaphore,
 * stream-memory wait): policies that let streams wait early do so no more. `why` is a string constant for the log. A
 * host function was queued on `stream`.
 */
void vp_api_coupled(const char *why);
void vp_api_host_function(CUstream stream);

/* pthread_atfork handlers, and the end of the process (statistics; makes no CUDA call; may be called twice). */
void vp_api_fork_prepare(void);
void vp_api_fork_parent(void);
void vp_api_fork_child(void);
void vp_api_exit(void);

#endif
