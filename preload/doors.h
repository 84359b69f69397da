/* Shared by all doors: the real functions behind them, and how a call enters and leaves. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include "driver/younger.h"
#include "process/process.h"
#include "table.h"

/* Signatures of older variants. */
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
/* Declared for their types only: never linked to. */
#define VP_ASK_DECLARE(symbol, like) extern __typeof__(like) symbol;
VP_DOORS_ASK(VP_ASK_DECLARE)
#undef VP_ASK_DECLARE

/* The functions of the program's libcuda, found when a door is first used. A function that is missing, as all are
 * without libcuda, returns CUDA_ERROR_NOT_FOUND. Accessed atomically: threads may fill in the same values at once. */
extern void *vp_real[VP_REAL_COUNT];

/* The real function behind a door, to be called. */
#define VP_REAL(symbol) ((__typeof__(&symbol))__atomic_load_n(&vp_real[VP_DOOR_##symbol], __ATOMIC_RELAXED))

/* Finds the program's libcuda if it is loaded by now. Takes no lock of the library, and calls nothing in libcuda. */
bool vp_resolve(void);

/* How many doors this thread is inside: 1 in a call by the program; and the stack frame of the outermost of them. A
 * program may leave a door by siglongjmp(), from a signal handler, or by pthread_exit(): a door whose frame lies
 * outside the outermost one's therefore begins a new call.
 *
 * Neither this nor vp_thread.inside, of the layer below, can be derived from the other. vp_thread.inside is true while
 * the library holds its own lock or that of a stream cache: also in calls that come through no door (vpool_trim(), the
 * dump thread, the end of a thread), and on the stack of a signal handler. This counts calls that a door has passed on:
 * the library is not inside then, but what the driver or a profiler calls meanwhile belongs to the same call, and must
 * be counted once only. */
extern _Thread_local unsigned vp_door_depth __attribute__((tls_model("initial-exec")));
extern _Thread_local const char *vp_door_outer __attribute__((tls_model("initial-exec")));

/* Finds libcuda and opens the library on it, once. Returns whether the library is ready. */
bool vp_door_open(void);

/* Each door begins with vp_door_enter() and ends with vp_door_leave(). True: the library may serve the call or note it.
 * False: there is no pool, or the call comes from within a door of the same thread (a profiler's callback, or the
 * driver calling itself); it goes to CUDA unchanged. */
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

/* In a thread without a context, the runtime makes the primary context of its device current. Our short ways past the
 * runtime do not, so they are taken only once the thread has a context. `vp_door_ends` grows whenever a context may
 * have ended: each thread then checks again. */
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

/* When a short way past the runtime fails, the long way through the runtime follows, and records the error. This keeps
 * the pool's answer for the driver's door on that way: the pool is not asked twice. Per thread; `size` 0: none. */
extern _Thread_local struct vp_door_told {
    size_t size;
    CUresult res;
} vp_door_told __attribute__((tls_model("initial-exec")));

/* Takes the answer that was kept for an allocation of `size` bytes; VP_NOT_OURS: there is none. */
static inline CUresult vp_door_take_told(size_t size) {
    bool told = vp_door_told.size && vp_door_told.size == size;
    vp_door_told.size = 0;
    return told ? vp_door_told.res : VP_NOT_OURS;
}

/* For functions with per-thread default streams, where 0 means the calling thread's own stream. */
static inline CUstream vp_own(CUstream stream) {
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* The result of a CUDA call that may need device memory (`wanted` bytes; 0: not known). If memory is lacking, it is
 * repeated as long as that may help: after the pools gave back idle memory, or memory whose pending work ended. */
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
