/* What the doors share: the real functions behind them, and the way in and out. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include "driver/younger.h"
#include "process/process.h"
#include "table.h"

/* Signatures that only the older variants have. */
typedef CUresult vp_ctx_create_v2(CUcontext *context, unsigned int flags, CUdevice device);
typedef CUresult vp_ctx_create_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags,
                                  CUdevice device);
typedef CUresult vp_stream_begin_capture_v1(CUstream stream);
typedef CUresult vp_graph_instantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size);
typedef CUresult vp_graph_add_node_v1(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                      CUgraphNodeParams *params);
struct CUmemcpyAttributes_st;
typedef CUresult vp_memcpy_batch_v1(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                    struct CUmemcpyAttributes_st *attributes, size_t *indexes, size_t kinds,
                                    size_t *failed, CUstream stream);
typedef CUresult vp_memcpy_batch_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                    struct CUmemcpyAttributes_st *attributes, size_t *indexes, size_t kinds,
                                    CUstream stream);
struct CUDA_MEMCPY3D_BATCH_OP_st;
typedef CUresult vp_memcpy_slices_v1(size_t count, struct CUDA_MEMCPY3D_BATCH_OP_st *ops, size_t *failed,
                                     unsigned long long flags, CUstream stream);
typedef CUresult vp_memcpy_slices_v2(size_t count, struct CUDA_MEMCPY3D_BATCH_OP_st *ops, unsigned long long flags,
                                     CUstream stream);
typedef CUresult vp_mem_prefetch_v1(CUdeviceptr ptr, size_t size, CUdevice device, CUstream stream);
typedef CUresult vp_get_proc_address_v1(const char *symbol, void **function, int version, cuuint64_t flags);

#define VP_DOOR_DECLARE(symbol, like, ...) __attribute__((visibility("default"))) extern __typeof__(like) symbol;
VP_DOORS_DRIVER(VP_DOOR_DECLARE)
#undef VP_DOOR_DECLARE
/* Known by their types alone: never linked to. */
#define VP_ASK_DECLARE(symbol, like) extern __typeof__(like) symbol;
VP_DOORS_ASK(VP_ASK_DECLARE)
#undef VP_ASK_DECLARE

/* The functions of the program's own libcuda, found when a door is first used. Those that it lacks, or all
 * while there is no libcuda, answer CUDA_ERROR_NOT_FOUND. Read and written atomically: several threads may
 * find them at once (always the same ones). */
extern void *vp_real[VP_REAL_COUNT];

/* The real function behind a door, to be called. */
#define VP_REAL(symbol) ((__typeof__(&symbol))__atomic_load_n(&vp_real[VP_DOOR_##symbol], __ATOMIC_RELAXED))

/* Finds the program's libcuda if it has loaded one by now. Takes no lock of ours; nothing is called in
 * libcuda. */
bool vp_resolve(void);

/* How deep this thread is inside doors: 1 in a call of the program's; and the frame of the first of them. A program may
 * leave a door by siglongjmp(), from a signal's handler, or by pthread_exit(): a door whose frame lies outside the
 * first one's is then the first of a new call.
 *
 * vp_thread.inside, below the doors, cannot be had from this, nor this from it. It is true while the library holds its
 * lock or a stream cache's, also in calls that come through no door (vpool_trim(), the thread of the dumps, the end of
 * a thread), and whatever stack a signal's handler runs on. Here counts what a door has passed on: the library is then
 * not inside, yet what the driver or a profiler calls meanwhile is part of that call, and is to be told of once. */
extern _Thread_local unsigned vp_door_depth __attribute__((tls_model("initial-exec")));
extern _Thread_local const char *vp_door_outer __attribute__((tls_model("initial-exec")));

/* The slow way in: finds libcuda and opens the library on it, once. True if the library is then ready. */
bool vp_door_open(void);

/* Each door begins and ends with these two. True: the library may serve the call, or be told of it. False:
 * there is no pool, or the call comes from within a door of the same thread (a profiler's callback, the
 * driver calling itself), and goes to CUDA as it is. */
static inline bool vp_door_enter(void) {
    const char *here = __builtin_frame_address(0);
    if (vp_door_depth && here < vp_door_outer) {
        vp_door_depth++;
        return false;
    }
    vp_door_depth = 1;
    vp_door_outer = here;
    return vp_api_ready() || vp_door_open();
}

static inline void vp_door_leave(void) {
    if (vp_door_depth)
        vp_door_depth--;
}

/* The runtime makes the primary context of its device current in a thread that has none. Its short ways do not, and so
 * wait until the thread has one. `vp_door_ends` grows when a context may have ended: then each thread looks anew. */
extern unsigned vp_door_ends;
bool vp_door_look_current(void);
extern _Thread_local unsigned vp_door_current __attribute__((tls_model("initial-exec")));

static inline bool vp_door_has_current(void) {
    return vp_door_current == __atomic_load_n(&vp_door_ends, __ATOMIC_RELAXED) || vp_door_look_current();
}

static inline void vp_door_leaves_context(void) {
    vp_door_current = __atomic_load_n(&vp_door_ends, __ATOMIC_RELAXED) - 1;
}

static inline void vp_door_context_ends(void) {
    __atomic_fetch_add(&vp_door_ends, 1, __ATOMIC_RELAXED);
}

/* A failed answer of the pool to a short way of the runtime, for the door to which the long way comes next: the pool is
 * not asked twice, and the error still goes through the runtime. Of this thread; `size` 0: none. */
extern _Thread_local struct vp_door_told {
    size_t size;
    CUresult res;
} vp_door_told __attribute__((tls_model("initial-exec")));

/* Takes the answer kept for an allocation of `size` bytes; VP_NOT_OURS: there is none. */
static inline CUresult vp_door_take_told(size_t size) {
    bool told = vp_door_told.size && vp_door_told.size == size;
    vp_door_told.size = 0;
    return told ? vp_door_told.res : VP_NOT_OURS;
}

/* A call of the per-thread kind: there 0 is the calling thread's own default stream. */
static inline CUstream vp_own(CUstream stream) {
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* The result of a native call that may want memory of the device (so many bytes; 0: not known), tried again for as long
 * as that may help: after the pools have given back what lay idle, or what work that has now ended was done with. */
#define VP_TRIED(ours, wanted, call)                                                                                   \
    ({                                                                                                                 \
        bool ours_ = (ours);                                                                                           \
        struct vp_relief relief_ = {0};                                                                                \
        CUresult res_;                                                                                                 \
        do {                                                                                                           \
            vp_api_again(&relief_);                                                                                    \
            res_ = (call);                                                                                             \
            vp_api_again(&relief_);                                                                                    \
        } while (ours_ && res_ == CUDA_ERROR_OUT_OF_MEMORY && vp_api_relieve_more(&relief_, wanted));                  \
        res_;                                                                                                          \
    })
