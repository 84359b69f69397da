/* The functions that a door calls. A door is an exported CUDA function of the preload library (or a test in its place).
 *
 * A door returns the CUresult that it gets, unless that is VP_NOT_OURS: then it calls the real function with the same
 * arguments, and reports the result if a function below asks for it. A call that fails or is not ours leaves its
 * outputs untouched. All functions are thread-safe. None may be called before vp_api_open() has succeeded, except
 * vp_api_ready(), vp_api_exit() and vp_api_coupled().
 *
 * Stream handles are the driver's: a per-thread door (_ptsz) passes CU_STREAM_PER_THREAD. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "order/context.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value that CUDA never returns. */
#define VP_NOT_OURS ((CUresult)0x7fffffff)

/* X(name): the calls that may be passed on to CUDA, as the statistics count them. */
#define VP_PASSED_CALLS(X)                                                                                             \
    X(cuMemAlloc) X(cuMemAllocPitch) X(cuMemFree) X(cuMemAllocAsync) X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync)                      \
        X(cuMemPoolCreate)

enum vp_passed {
#define VP_PASSED_ENUM(name) VP_PASSED_##name,
    VP_PASSED_CALLS(VP_PASSED_ENUM)
#undef VP_PASSED_ENUM
        VP_PASSED_COUNT
};

/* Opens the library on a driver: `lookup(name, ctx)` returns the real address of a cu* symbol, or NULL. Only the first
 * call of any thread counts; others wait for it. Makes no CUDA call. Returns 0; -ENOSYS: the driver lacks what a pool
 * needs, -ENODEV: a forked child whose parent used CUDA: everything is passed on. -EALREADY: this thread is opening it.
 */
int vp_api_open(void *(*lookup)(const char *name, void *ctx), void *ctx) __attribute__((cold));
bool vp_api_ready(void);

/* cuMemAlloc, cuMemAllocPitch, cuMemFree. */
CUresult vp_api_alloc(CUdeviceptr *out, size_t size);
CUresult vp_api_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned elem);
/* Rows begin at multiples of 512 bytes, in CUDA 12 and 13 on every device so far. vp_pitched(): the bytes of such rows.
 */
enum { VP_PITCH = 512 };
static inline size_t vp_pitched(size_t width, size_t height) {
    return (width + VP_PITCH - 1) / VP_PITCH * VP_PITCH * height;
}
CUresult vp_api_free(CUdeviceptr ptr);

/* cuMemAllocAsync (`pool` NULL: the device's current pool), cuMemAllocFromPoolAsync, cuMemFreeAsync. */
CUresult vp_api_alloc_async(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream);
CUresult vp_api_free_async(CUdeviceptr ptr, CUstream stream);
/* This thread was just told that captures forbid this free, and comes by once more: the driver is not asked again. */
void vp_api_free_async_refused(CUdeviceptr ptr) __attribute__((cold));

/* The attempts of one call; zero at first. */
struct vp_relief {
    uint64_t begin, serial; /* when it first failed; what was pending at its first wait */
    uint64_t borrows;       /* when it first asked other processes */
    uint64_t gifts;         /* gifts that there had been before the last attempt; 0: not known */
    CUstreamCaptureMode mode;
};

/* For `wanted`: the call needs host memory, as far as is known; or managed memory, on the device if that cannot page.
 */
#define VP_HOST_MEMORY SIZE_MAX
#define VP_MANAGED_MEMORY (SIZE_MAX - 1)
/* Called after a CUDA call has failed for lack of memory; it needs `wanted` bytes of the current device (0: not known).
 * Gives back the idle memory of every pool; if there is none, waits for pending work that will free some; then asks the
 * user's other processes. True if anyone gave memory back: the call is worth another attempt. */
bool vp_api_relieve_more(struct vp_relief *relief, size_t wanted);
/* Before and after each such attempt: the call must not end a capture that another thread has begun since. */
void vp_api_again(struct vp_relief *relief);

/* Physical memory that other code made, for the statistics: called after cuMemCreate on a device, after
 * cuMemRetainAllocationHandle, and before cuMemRelease. */
void vp_api_other_created(CUdevice dev, CUmemGenericAllocationHandle handle, size_t size);
void vp_api_other_retained(CUmemGenericAllocationHandle handle);
void vp_api_other_released(CUmemGenericAllocationHandle handle);

/* Is the address in a live allocation of the pool, or in memory that vp_api_ipc_open() opened? */
bool vp_api_owns(CUdeviceptr ptr);

/* Legacy IPC (see ipc.h). Handles made by a pool are served here, all others by CUDA. Opening waits for the exporting
 * process, a few seconds at most. */
CUresult vp_api_ipc_get(CUipcMemHandle *out, CUdeviceptr ptr);
CUresult vp_api_ipc_open(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags);
CUresult vp_api_ipc_close(CUdeviceptr ptr);

/* Counts a call passed on. */
void vp_api_passed(enum vp_passed call);

/* cuMemGetInfo: memory that the pool of the current device could hand out again counts as free. Makes the real call
 * itself, so that the pool does not change meanwhile. Here and below, either output may be NULL. */
CUresult vp_api_mem_info(size_t *free_bytes, size_t *total);
CUresult vp_api_address_range(CUdeviceptr *base, size_t *size, CUdeviceptr ptr);
/* cuPointerGetAttribute, for attributes whose real answer would describe the chunk or the reservation instead of the
 * allocation. For cuPointerGetAttributes the door calls the real function first, then this one for each attribute. */
CUresult vp_api_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr);
/* cuPointerSetAttribute of SYNC_MEMOPS: calls on the block return only when they are complete. The driver does not
 * support that for mapped memory, but for contexts (from 12.1 on): there, all such calls wait, on any memory. */
CUresult vp_api_sync_memops(const void *on, CUpointer_attribute attribute, CUdeviceptr ptr);
/* CU_CTX_SYNC_MEMOPS, once a block has that attribute: contexts keep the flag, whatever flags the program gives them.
 */
extern atomic_uint vp_sync_flag;
/* The address to ask the driver about, if these functions have no answer: an address of the pool where nothing is live
 * is replaced by one where nothing ever is, since the driver knows chunks there and would take freed memory for live.
 */
CUdeviceptr vp_api_asked_address(CUdeviceptr ptr);
/* The address to pass to virtual-memory calls: if any of the range is the pool's, an address where nothing ever is. The
 * driver would let the program unmap or close memory that it did not map itself, even beyond its own range. It refuses
 * memory of cuMemAlloc, but accepts that of cuMemAllocAsync (`ordered`). */
CUdeviceptr vp_api_mapped_address(CUdeviceptr ptr, size_t size, bool ordered);
/* The address of a range that is shared with others: as above, if it has freed memory of the pool beyond its rounding.
 */
CUdeviceptr vp_api_shown_address(CUdeviceptr ptr, size_t size);

/* Streams: called after a successful creation, and before a destruction. */
void vp_api_stream_created(CUstream stream);
void vp_api_stream_destroying(CUstream stream);

/* Contexts. `created` after one was created or retained: from then on cudaFree waits for its work, too. `destroying`
 * before a call that may end it, and `destroyed` after that: if it has `ended`, its synchronous blocks, streams and
 * events are dropped, else nothing changes. */
void vp_api_context_created(CUcontext ctx, bool primary);
void vp_api_context_destroying(CUcontext ctx);
/* May a green context be destroyed? Waits for its work, for two seconds at most. Also true for NULL. */
bool vp_api_green_is_over(CUcontext ctx);
void vp_api_context_destroyed(CUcontext ctx, bool ended);
/* The primary context of a device, which counts as ending from here on; waits while another thread ends it. NULL: it
 * was never seen or, with `releasing`, the coming release is not its last. Then nothing needs to be reported. */
CUcontext vp_api_primary(CUdevice dev, bool releasing);

/* Captures. `beginning` before one begins: from then on no barrier is recorded. `adopted`: a framework makes
 * stream-ordered calls because of us, and captures are not to forbid them. `began` after it in any case, by the
 * same thread, with the success: until then other threads wait, unless the fast path serves them. `ended` after
 * cuStreamEndCapture, whatever it returned. */
void vp_api_capture_beginning(CUstream stream, bool adopted);
void vp_api_capture_began(CUstream stream, bool ok);
void vp_api_capture_ended(CUstream stream);
/* Do captures run? Then the driver may be asked what they forbid, which must be once a call: it ends them. */
bool vp_api_captures(void);

/* Called after a successful cuCtxEnablePeerAccess or cuCtxDisablePeerAccess. If existing memory could not be opened to
 * the peer, `enabled` returns an error: the door revokes the access and returns that error. */
CUresult vp_api_peer_enabled(CUcontext peer);
void vp_api_peer_disabled(CUcontext peer);

/* Copies between devices, and from and to what is spilled (see copies.c): the door asks before each, unless
 * vp_api_copies_matter() is false, as with one device in use and nothing spilled. `way` opens what can be opened, and
 * tells how a copy in that stream is to be made:
 *
 * - `VP_COPY_AS_IT_IS`: there is nothing about it.
 * - `VP_COPY_BETWEEN`: by cuMemcpyPeer and its like, between the contexts that it finds for the two ends.
 * - `VP_COPY_ELSEWHERE`: one end can be reached from anywhere: in the other's context, in the order of the stream.
 * - `VP_COPY_UNDIRECTED`: an end is spilled: by a call that does not say whether it is the device's memory or the
 *   host's. */
struct vp_copy_end {
    CUdeviceptr ptr;   /* 0: no address of CUDA's, as that of an array, or of host memory by its kind */
    bool anywhere;     /* may be reached from any context; asked for if it has an address */
    CUcontext context; /* out: that it belongs to; of an array, the current one */
    bool spilled; /* out: it is of a block that is, in part, the host's memory, which is no device memory to CUDA */
};
enum vp_copy_way { VP_COPY_AS_IT_IS, VP_COPY_BETWEEN, VP_COPY_ELSEWHERE, VP_COPY_UNDIRECTED };
/* As vp_context_enter() and vp_context_leave(), around the calls that a door makes in another context. */
struct vp_entered vp_api_context_enter(CUcontext handle);
void vp_api_context_leave(struct vp_entered entered);
extern atomic_bool vp_copies_matter;
/* The program copies by cuMemcpyPeer and the like, or launches graphs and has several devices: from now on the work of
 * any device may touch the memory of all. */
extern atomic_bool vp_copies_between;
void vp_api_copied_between(void);
/* The devices whose work may touch memory that is open to `open`, one bit each. */
static inline uint64_t vp_devices_touching(uint64_t open) {
    return atomic_load_explicit(&vp_copies_between, memory_order_acquire) ? UINT64_MAX : open;
}
static inline bool vp_api_copies_matter(void) {
    return atomic_load_explicit(&vp_copies_matter, memory_order_relaxed);
}
enum vp_copy_way vp_api_copy_way(CUstream stream, struct vp_copy_end *dst, struct vp_copy_end *src);
/* Called after work was queued on the stream, in whatever way. */
void vp_api_note_work(unsigned kind) __attribute__((cold));
static inline void vp_api_worked(CUstream stream) {
    const unsigned kind = stream == CU_STREAM_PER_THREAD                     ? VP_WORK_OWN
                          : (uintptr_t)stream <= (uintptr_t)CU_STREAM_LEGACY ? VP_WORK_LEGACY
                                                                             : VP_WORK_NAMED;
    if (!(atomic_load_explicit(&vp_worked, memory_order_acquire) & kind))
        vp_api_note_work(kind);
}
/* Is either end of a copy between two contexts spilled? Both contexts must be live, else CUDA refuses the copy. Costs
 * nothing while nothing is spilled. */
bool vp_api_copy_spilled(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from);
/* As vp_api_copy_way() for a graph node that runs in `ctx` (NULL: not known). `VP_COPY_BETWEEN`: it must run in the
 * context of both ends, if they share one; `VP_COPY_ELSEWHERE`: in the context of the one end. */
enum vp_copy_way vp_api_copy_node(CUcontext ctx, struct vp_copy_end *dst, struct vp_copy_end *src);

/* Memory pools. `created` after a successful cuMemPoolCreate: does the library serve it? `destroying` before
 * cuMemPoolDestroy, and `destroyed` after it; `set_current` after a successful cuDeviceSetMemPool. */
bool vp_api_pool_created(CUmemoryPool pool, const CUmemPoolProps *props);
void vp_api_pool_destroying(CUmemoryPool pool);
void vp_api_pool_destroyed(CUmemoryPool pool, bool ended);
void vp_api_pool_set_current(CUdevice dev, CUmemoryPool pool);
CUresult vp_api_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
CUresult vp_api_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
CUresult vp_api_pool_trim_to(CUmemoryPool pool, size_t keep);
CUresult vp_api_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count);

/* Called after the program has waited on the host for a context, a stream or an event. Memory above a release threshold
 * that the program has set then goes back, and pools without opportunistic reuse may use what became ready. */
enum vp_waited { VP_WAITED_CONTEXT, VP_WAITED_STREAM, VP_WAITED_EVENT };
void vp_api_synchronized(enum vp_waited what, void *which); /* the stream, or the context; NULL: the current one */
/* Called after such a wait has failed. If the context waited for, or the current one, does not recover from the error,
 * allocations there and frees without a stream return it from now on, as in CUDA. */
void vp_api_failed(enum vp_waited what, void *which, CUresult res);

/* The process is now coupled with others (a communicator of several ranks; imported memory, events or semaphores; a
 * stream-memory wait): policies no longer let streams wait early. `why` is a string constant for the log. */
void vp_api_coupled(const char *why);
/* The same, and the process may share memory by legacy IPC: large blocks are kept apart. vp_api_ranks(): an NCCL
 * communicator of several ranks was made. */
void vp_api_shares(const char *why);
void vp_api_ranks(void);
/* What the driver's checkpoint cannot take, and no query can find: managed memory, memory shared with or by other
 * processes, memory registered with networks or other libraries, multicast objects. */
enum vp_tie { VP_TIE_MANAGED, VP_TIE_EXPORT, VP_TIE_IMPORT, VP_TIE_REGISTERED, VP_TIE_MULTICAST, VP_TIES };
/* There is one more of this kind. */
void vp_api_tied(enum vp_tie tie);
/* Managed memory was allocated. */
void vp_api_managed(CUdeviceptr ptr);
/* From now on others can reach this memory in ways that no call reports: it was exported as a file, registered with a
 * network or otherwise; or it was bound to a multicast object. */
void vp_api_registered(CUdeviceptr ptr);
void vp_api_multicast(CUdeviceptr ptr);
/* A host function was queued on the stream. */
void vp_api_host_function(CUstream stream);

/* The pthread_atfork handlers; and the end of the process (writes statistics; makes no CUDA call; may be called twice).
 */
void vp_api_fork_prepare(void);
void vp_api_fork_parent(void);
void vp_api_fork_child(void);
void vp_api_exit(void);
