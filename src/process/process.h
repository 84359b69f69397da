/* What a door calls. A door is an exported CUDA function of the preload library (or a test that plays one).
 *
 * A CUresult is what the door returns, unless it is VP_NOT_OURS: then the door calls the real function with the same
 * arguments, and tells the outcome where a function below asks for it. Outputs of a call that failed or is not ours
 * are untouched. All are thread-safe. None may be called before vp_api_open() succeeded, except vp_api_ready(),
 * vp_api_exit() and vp_api_coupled().
 *
 * Streams are handles as the driver knows them: a door of the per-thread kind (_ptsz) passes CU_STREAM_PER_THREAD. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "order/context.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Opens the library on a driver: `lookup(name, ctx)` gives the real address of a cu* symbol, or NULL. The first call
 * counts, of any thread; others wait for it. Makes no CUDA call. 0; -ENOSYS when the driver lacks what a pool needs,
 * -ENODEV in a forked child whose parent used CUDA: everything is then passed on. -EALREADY: this thread is at it. */
int vp_api_open(void *(*lookup)(const char *name, void *ctx), void *ctx) __attribute__((cold));
bool vp_api_ready(void);

/* cuMemAlloc, cuMemAllocPitch, cuMemFree. */
CUresult vp_api_alloc(CUdeviceptr *out, size_t size);
CUresult vp_api_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned elem);
/* Rows begin at multiples of 512 bytes, by CUDA 12 and 13 on every device so far; and what they take so. */
enum { VP_PITCH = 512 };
static inline size_t vp_pitched(size_t width, size_t height) {
    return (width + VP_PITCH - 1) / VP_PITCH * VP_PITCH * height;
}
CUresult vp_api_free(CUdeviceptr ptr);

/* cuMemAllocAsync (`pool` NULL: the device's current pool), cuMemAllocFromPoolAsync, cuMemFreeAsync. */
CUresult vp_api_alloc_async(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream);
CUresult vp_api_free_async(CUdeviceptr ptr, CUstream stream);

/* The tries of one call; zero at first. */
struct vp_relief {
    uint64_t begin, serial; /* when it first failed, and what was pending when it first waited */
    uint64_t borrows;       /* when it first asked other processes */
    uint64_t gifts;         /* how many there had been before the last try; 0: it is not known */
    CUstreamCaptureMode mode;
};

/* It is memory of the host that a call wants, as far as is known; or managed memory: where the device cannot page, that
 * is the device's. */
#define VP_HOST_MEMORY SIZE_MAX
#define VP_MANAGED_MEMORY (SIZE_MAX - 1)
/* After each failure of a native call with out of memory, which wants so many bytes of the current device (0: it is not
 * known): gives idle memory of every pool back; where there is none, waits for pending work that would free some; then
 * asks the user's other processes. True if any was given back, by whomever: the call is worth another try. */
bool vp_api_relieve_more(struct vp_relief *relief, size_t wanted);
/* Before each such try and after it: another thread's capture that has begun since is not the call's to end. */
void vp_api_again(struct vp_relief *relief);

/* Physical memory that others made, for the statistics: after cuMemCreate on a device, after
 * cuMemRetainAllocationHandle, before cuMemRelease. */
void vp_api_other_created(CUdevice dev, CUmemGenericAllocationHandle handle, size_t size);
void vp_api_other_retained(CUmemGenericAllocationHandle handle);
void vp_api_other_released(CUmemGenericAllocationHandle handle);

/* Does the address lie in a live allocation of the pool, or in memory that vp_api_ipc_open() opened? */
bool vp_api_owns(CUdeviceptr ptr);

/* Legacy IPC (see ipc.h). A handle that a pool made is served here, any other is CUDA's. Opening waits for the
 * exporting process, for some seconds at most. */
CUresult vp_api_ipc_get(CUipcMemHandle *out, CUdeviceptr ptr);
CUresult vp_api_ipc_open(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags);
CUresult vp_api_ipc_close(CUdeviceptr ptr);

/* Counts a call passed on. */
void vp_api_passed(enum vp_passed call);

/* cuMemGetInfo: what the pool of the current device could hand out again counts as free. Makes the real call itself, so
 * that the pool stands still meanwhile. Here and below, either output may be NULL. */
CUresult vp_api_mem_info(size_t *free_bytes, size_t *total);
CUresult vp_api_address_range(CUdeviceptr *base, size_t *size, CUdeviceptr ptr);
/* cuPointerGetAttribute, for the attributes whose native answer would show the chunk or the reservation instead of the
 * allocation. For cuPointerGetAttributes the door asks the real function first, then this one for each. */
CUresult vp_api_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr);
/* cuPointerSetAttribute of SYNC_MEMOPS: calls on the block that are to be over when they return are. Of mapped memory
 * the driver does not know that, but of contexts it does (from 12.1 on): there all such calls wait, on any memory. */
CUresult vp_api_sync_memops(const void *on, CUpointer_attribute attribute, CUdeviceptr ptr);
/* CU_CTX_SYNC_MEMOPS, once some block has that: contexts keep it, whatever flags the program gives them. */
extern atomic_uint vp_sync_flag;
/* The address to ask the driver about, where those do not answer: one of the pool's at which nothing is live becomes
 * one at which nothing ever is. The driver knows chunks there, and would take freed memory for live. */
CUdeviceptr vp_api_asked_address(CUdeviceptr ptr);
/* The address for calls of virtual memory management: that of a range any of which is the pool's becomes one at which
 * nothing ever is. The driver would let the program unmap or close what it did not map itself, also behind what it did;
 * cuMemAlloc's memory it refuses. `ordered`: cuMemAllocAsync's it takes. */
CUdeviceptr vp_api_mapped_address(CUdeviceptr ptr, size_t size, bool ordered);
/* The address of a range that is shown to others: as above where freed memory of the pool is in it, beyond what
 * rounding takes in. */
CUdeviceptr vp_api_shown_address(CUdeviceptr ptr, size_t size);

/* Streams. After a successful creation; before a destruction. */
void vp_api_stream_created(CUstream stream);
void vp_api_stream_destroying(CUstream stream);

/* Contexts. After one was created or retained: from then on cudaFree waits for its work too. Before a call that may end
 * it, and after: if it has `ended`, its synchronous blocks, streams and events are dropped, else everything goes on. */
void vp_api_context_created(CUcontext ctx, bool primary);
void vp_api_context_destroying(CUcontext ctx);
/* May a green one be destroyed? Waits for its work, for two seconds at most. NULL: yes. */
bool vp_api_green_is_over(CUcontext ctx);
void vp_api_context_destroyed(CUcontext ctx, bool ended);
/* The primary context of a device, which is taken for ending from here on; waits for another thread that ends it. NULL:
 * it was never seen, or, with `releasing`, the release that is about to be made is not its last. Then there is nothing
 * to tell. */
CUcontext vp_api_primary(CUdevice dev, bool releasing);

/* Captures. `beginning` before one begins (from then on no barrier is taken), and in any case `began` with the success,
 * by the same thread: until then the others wait, if they need more than the fast path; `ended` after
 * cuStreamEndCapture, whatever it returned. */
void vp_api_capture_beginning(CUstream stream);
void vp_api_capture_began(CUstream stream, bool ok);
void vp_api_capture_ended(CUstream stream);

/* After a successful cuCtxEnablePeerAccess or cuCtxDisablePeerAccess. If what there is could not be opened to the peer,
 * `enabled` is an error: the door takes the access back and returns it. */
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
/* As vp_context_enter(), around what a door calls in another context. */
struct vp_entered vp_api_context_enter(CUcontext handle);
void vp_api_context_leave(struct vp_entered entered);
extern atomic_bool vp_copies_matter;
/* The program copies by cuMemcpyPeer and its like, or launches graphs and has several devices: work of any may touch
 * all from now on. */
extern atomic_bool vp_copies_between;
void vp_api_copied_between(void);
/* Those whose work may touch what is open to these. */
static inline uint64_t vp_devices_touching(uint64_t open) {
    return atomic_load_explicit(&vp_copies_between, memory_order_acquire) ? UINT64_MAX : open;
}
static inline bool vp_api_copies_matter(void) {
    return atomic_load_explicit(&vp_copies_matter, memory_order_relaxed);
}
enum vp_copy_way vp_api_copy_way(CUstream stream, struct vp_copy_end *dst, struct vp_copy_end *src);
/* Work was queued on that stream, in whatever way: told after the call of CUDA's. */
void vp_api_note_work(unsigned kind) __attribute__((cold));
static inline void vp_api_worked(CUstream stream) {
    const unsigned kind = stream == CU_STREAM_PER_THREAD                     ? VP_WORK_OWN
                          : (uintptr_t)stream <= (uintptr_t)CU_STREAM_LEGACY ? VP_WORK_LEGACY
                                                                             : VP_WORK_NAMED;
    if (!(atomic_load_explicit(&vp_worked, memory_order_acquire) & kind))
        vp_api_note_work(kind);
}
/* Is an end spilled of a copy between contexts, which both live (else CUDA refuses it)? Of no cost while nothing is. */
bool vp_api_copy_spilled(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from);
/* The same for a node of a graph that runs in `ctx` (NULL: not known). `VP_COPY_BETWEEN`: it is to run in the
 * context of both ends, if they have one; `VP_COPY_ELSEWHERE`: in that of the one end. */
enum vp_copy_way vp_api_copy_node(CUcontext ctx, struct vp_copy_end *dst, struct vp_copy_end *src);

/* Memory pools. `created` after a successful cuMemPoolCreate: is it ours to serve? `destroying` before
 * cuMemPoolDestroy, `destroyed` after it; `set_current` after a successful cuDeviceSetMemPool. */
bool vp_api_pool_created(CUmemoryPool pool, const CUmemPoolProps *props);
void vp_api_pool_destroying(CUmemoryPool pool);
void vp_api_pool_destroyed(CUmemoryPool pool, bool ended);
void vp_api_pool_set_current(CUdevice dev, CUmemoryPool pool);
CUresult vp_api_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
CUresult vp_api_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
CUresult vp_api_pool_trim_to(CUmemoryPool pool, size_t keep);
CUresult vp_api_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count);

/* After the program has waited on the host, for a context, a stream or an event. Memory above a release threshold that
 * the program has set goes back then, and pools without opportunistic reuse may use what that has freed. */
enum vp_waited { VP_WAITED_CONTEXT, VP_WAITED_STREAM, VP_WAITED_EVENT };
void vp_api_synchronized(enum vp_waited what, void *which); /* the stream, or the context; NULL: the current one */
/* After it has waited in vain. Where the current context does not recover from the error, what is allocated and freed
 * there is answered with it from now on, as by CUDA. */
void vp_api_failed(CUresult res);

/* The process is now coupled with others (communicator of more than one rank, imported memory, event or semaphore,
 * stream-memory wait): policies that let streams wait early do so no more. `why` is a string constant for the log. */
void vp_api_coupled(const char *why);
/* The same, and it may share memory with them by legacy IPC: large blocks are kept apart. Then, for several ranks. */
void vp_api_shares(const char *why);
void vp_api_ranks(void);
/* What a checkpoint by the driver cannot take, and is not found out otherwise: managed memory, what was shown to other
 * processes or is theirs, memory that networks or other libraries know, multicast objects. */
enum vp_tie { VP_TIE_MANAGED, VP_TIE_EXPORT, VP_TIE_IMPORT, VP_TIE_REGISTERED, VP_TIE_MULTICAST, VP_TIES };
/* There is one more of the kind. */
void vp_api_tied(enum vp_tie tie);
/* Managed memory was allocated. */
void vp_api_managed(CUdeviceptr ptr);
/* Memory at an address can from now on be reached by others in ways that no call tells of: it was shown to them as a
 * file, for a network or otherwise; it was bound to a multicast object. */
void vp_api_registered(CUdeviceptr ptr);
void vp_api_multicast(CUdeviceptr ptr);
/* A host function was queued on the stream. */
void vp_api_host_function(CUstream stream);

/* pthread_atfork handlers, and the end of the process (statistics; makes no CUDA call; may be called twice). */
void vp_api_fork_prepare(void);
void vp_api_fork_parent(void);
void vp_api_fork_child(void);
void vp_api_exit(void);
