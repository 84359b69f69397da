/* Doors of the driver: copies. While only one device is in use and nothing is spilled (copy_spilled.c), they go to CUDA
 * unchanged after one flag is tested. With several devices, the memory that a copy needs is opened to the device that
 * makes the copy; if that is impossible, another driver call makes the copy, which names a context for each end and
 * keeps its place in its stream.
 *
 * Graphs have no such form: no node names two contexts, and CUDA does not capture such a copy but ends the capture
 * (900, seen on an H200). So copies that are captured or added to a graph (graph.c) are left to CUDA. Batches that need
 * another way are made copy by copy (copy_batch.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"
#include "process/bare.h"

#include <stddef.h>
#include <string.h>

/* Both structs have the same fields at the same offsets, except that the simpler one has none for contexts. */
_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER) &&
                   offsetof(CUDA_MEMCPY3D, reserved0) == offsetof(CUDA_MEMCPY3D_PEER, srcContext) &&
                   offsetof(CUDA_MEMCPY3D, reserved1) == offsetof(CUDA_MEMCPY3D_PEER, dstContext) &&
                   offsetof(CUDA_MEMCPY3D, Depth) == offsetof(CUDA_MEMCPY3D_PEER, Depth),
               "a copy between contexts is a copy with two more fields");

/* Queues the copy on a stream of the current context. */
static CUresult queue_plain(const CUDA_MEMCPY3D_PEER *p, CUstream stream) {
    CUDA_MEMCPY3D plain;
    memcpy(&plain, p, sizeof(plain));
    plain.reserved0 = plain.reserved1 = NULL;
    if (vp_copy_is_range(p) && p->srcMemoryType == CU_MEMORYTYPE_UNIFIED && p->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
        return VP_REAL(cuMemcpyAsync)(p->dstDevice, p->srcDevice, p->WidthInBytes, stream);
    return VP_REAL(cuMemcpy3DAsync_v2)(&plain, stream);
}

/* Queues the copy on a new stream of that context, between two events. The driver keeps what is destroyed until done.
 */
static CUresult queue_there(const struct vp_copy *copy, CUevent before, CUevent *after) {
    CUstream there;
    CUresult res = VP_REAL(cuStreamCreate)(&there, CU_STREAM_NON_BLOCKING);
    if (res != CUDA_SUCCESS)
        return res;
    res = VP_REAL(cuStreamWaitEvent)(there, before, 0);
    if (res == CUDA_SUCCESS)
        res = VP_REAL(cuEventCreate)(after, CU_EVENT_DISABLE_TIMING);
    if (res == CUDA_SUCCESS)
        res = queue_plain(&copy->p, there);
    if (res == CUDA_SUCCESS)
        res = VP_REAL(cuEventRecord)(*after, there);
    VP_REAL(cuStreamDestroy_v2)(there);
    return res;
}

CUresult vp_copy_wait(CUstream stream) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    VP_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    CUresult res = VP_REAL(cuStreamSynchronize)(stream);
    VP_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return res;
}

/* Keeps the copy's place in the program's stream, of the current context: an event is recorded where it is made. */
static CUresult queue_elsewhere(const struct vp_copy *copy, CUcontext context) {
    CUevent before, after = NULL;
    CUresult res = VP_REAL(cuEventCreate)(&before, CU_EVENT_DISABLE_TIMING);
    if (res != CUDA_SUCCESS)
        return res;
    res = VP_REAL(cuEventRecord)(before, copy->stream);
    if (res == CUDA_SUCCESS) {
        struct vp_entered entered = vp_api_context_enter(context);
        res = entered.refused != CUDA_SUCCESS ? entered.refused : queue_there(copy, before, &after);
        vp_api_context_leave(entered);
    }
    if (res == CUDA_SUCCESS)
        res = VP_REAL(cuStreamWaitEvent)(copy->stream, after, 0);
    if (res == CUDA_SUCCESS && copy->sync)
        res = vp_copy_wait(copy->stream);
    if (after)
        VP_REAL(cuEventDestroy_v2)(after);
    VP_REAL(cuEventDestroy_v2)(before);
    return res;
}

struct vp_entered vp_copy_enter(CUstream stream) {
    CUcontext own = NULL;
    if ((uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD)
        VP_REAL(cuStreamGetCtx)(stream, &own);
    return vp_api_context_enter(own);
}

/* Makes the copy in a context that can access both ends. */
static CUresult copy_elsewhere(const struct vp_copy *copy, CUcontext context) {
    struct vp_entered entered = vp_copy_enter(copy->stream);
    CUresult res = queue_elsewhere(copy, context);
    vp_api_context_leave(entered);
    return res;
}

/* Copies between contexts. An end that any context can access keeps its kind, and gets the context of the other end. */
static CUresult copy_between(struct vp_copy *copy, const struct vp_copy_end *dst, const struct vp_copy_end *src) {
    CUDA_MEMCPY3D_PEER *p = &copy->p;
    bool per_thread = copy->stream == CU_STREAM_PER_THREAD;
    __typeof__(&cuMemcpyPeer) range = per_thread ? VP_REAL(cuMemcpyPeer_ptds) : VP_REAL(cuMemcpyPeer);
    __typeof__(&cuMemcpy3DPeer) area = per_thread ? VP_REAL(cuMemcpy3DPeer_ptds) : VP_REAL(cuMemcpy3DPeer);
    vp_api_copied_between();
    if (vp_copy_is_range(p) && dst->ptr && src->ptr && !dst->anywhere && !src->anywhere)
        return copy->sync ? range(dst->ptr, dst->context, src->ptr, src->context, p->WidthInBytes)
                          : VP_REAL(cuMemcpyPeerAsync)(dst->ptr, dst->context, src->ptr, src->context, p->WidthInBytes,
                                                       copy->stream);
    p->dstContext = dst->anywhere ? src->context : dst->context;
    p->srcContext = src->anywhere ? dst->context : src->context;
    if (dst->ptr && !dst->anywhere)
        p->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    if (src->ptr && !src->anywhere)
        p->srcMemoryType = CU_MEMORYTYPE_DEVICE;
    return copy->sync ? area(p) : VP_REAL(cuMemcpy3DPeerAsync)(p, copy->stream);
}

bool vp_copy_captured(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return VP_REAL(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool vp_copy_is_left(enum vp_copy_way way, CUstream stream) {
    return (way == VP_COPY_BETWEEN || way == VP_COPY_ELSEWHERE) && vp_copy_captured(stream);
}

void vp_copy_ends(const CUDA_MEMCPY3D_PEER *p, struct vp_copy_end *dst, struct vp_copy_end *src) {
    *dst = vp_copy_end_of(p->dstMemoryType, p->dstDevice,
                          p->dstXInBytes + (p->dstY + p->dstZ * p->dstHeight) * p->dstPitch);
    *src = vp_copy_end_of(p->srcMemoryType, p->srcDevice,
                          p->srcXInBytes + (p->srcY + p->srcZ * p->srcHeight) * p->srcPitch);
}

bool vp_copy_translated(struct vp_copy *copy, CUresult *res) {
    const CUDA_MEMCPY3D_PEER *p = &copy->p;
    enum vp_copy_way way = VP_COPY_AS_IT_IS;
    struct vp_copy_end dst, src;
    vp_copy_ends(p, &dst, &src);
    if (vp_door_enter() && p->WidthInBytes && p->Height && p->Depth)
        way = vp_api_copy_way(copy->stream, &dst, &src);
    if (vp_copy_is_left(way, copy->stream))
        way = VP_COPY_AS_IT_IS;
    if (way == VP_COPY_BETWEEN)
        *res = copy_between(copy, &dst, &src);
    else if (way == VP_COPY_ELSEWHERE)
        *res = copy_elsewhere(copy, dst.anywhere ? src.context : dst.context);
    else if (way == VP_COPY_UNDIRECTED) {
        const struct vp_entered entered = vp_copy_enter(copy->stream);
        *res = vp_copy_undirected(copy, &dst, &src);
        vp_api_context_leave(entered);
    }
    vp_door_leave();
    return way != VP_COPY_AS_IT_IS;
}

/* Makes a copy unchanged unless it was `translated`; repeats it if it failed and `again` holds. */
#define VP_MAKE_COPY(symbol, stream, translated, again, ...)                                                           \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        CUresult res;                                                                                                  \
        VP_WORKS(stream);                                                                                              \
        if (vp_api_copies_matter() && translated)                                                                      \
            return res;                                                                                                \
        res = VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                                  \
        if (again)                                                                                                     \
            res = VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                              \
        VP_COPY_AGAIN(stream, VP_REAL(symbol)(VP_NAMES(__VA_ARGS__)));                                                 \
        return res;                                                                                                    \
    }

/* ---- ranges ---- */

static bool translated_range(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream, bool sync,
                             CUresult *res) {
    struct vp_copy copy = vp_copy_of_range(dst, src, bytes, stream);
    copy.sync = sync;
    return vp_copy_translated(&copy, res);
}

/* CUDA refused a copy, perhaps because it includes bytes of a bare segment outside any block: gives them memory.
 * Returns true if there were any; then the copy is worth repeating. */
static bool backed(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    bool any = vp_bare_pin(dst, bytes) == CUDA_SUCCESS;
    return vp_bare_pin(src, bytes) == CUDA_SUCCESS || any;
}

#define VP_MAKE_RANGE(symbol, like, sync, stream, ...)                                                                 \
    VP_MAKE_COPY(symbol, stream,                                                                                       \
                 translated_range((CUdeviceptr)(uintptr_t)a, (CUdeviceptr)(uintptr_t)b, c, stream, sync, &res),        \
                 __builtin_expect(res == CUDA_ERROR_INVALID_VALUE, false) &&                                           \
                     backed((CUdeviceptr)(uintptr_t)a, (CUdeviceptr)(uintptr_t)b, c),                                  \
                 __VA_ARGS__)

/* ---- rows and slices ---- */

#define FLAT_END(p, end) VP_COPY_END(p, end), .end##Height = (p)->end##Y + (p)->Height

static bool translated_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool sync, CUresult *res) {
    struct vp_copy copy = {.stream = stream, .sync = sync, .flat = true};
    if (!p)
        return false;
    copy.p = (CUDA_MEMCPY3D_PEER){FLAT_END(p, src), FLAT_END(p, dst), .WidthInBytes = p->WidthInBytes,
                                  .Height = p->Height, .Depth = 1};
    return vp_copy_translated(&copy, res);
}

struct vp_copy vp_copy_of_slices(const CUDA_MEMCPY3D *p, CUstream stream) {
    struct vp_copy copy = {.stream = stream};
    memcpy(&copy.p, p, sizeof(copy.p));
    copy.p.srcContext = copy.p.dstContext = NULL;
    return copy;
}

static bool translated_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool sync, CUresult *res) {
    if (!p)
        return false;
    struct vp_copy copy = vp_copy_of_slices(p, stream);
    copy.sync = sync;
    return vp_copy_translated(&copy, res);
}

#define VP_MAKE_AREA(symbol, stream, translated, ...) VP_MAKE_COPY(symbol, stream, translated, false, __VA_ARGS__)
#define VP_MAKE_AREA_2D(symbol, like, sync, stream, ...)                                                               \
    VP_MAKE_AREA(symbol, stream, translated_2d(a, stream, sync, &res), __VA_ARGS__)
#define VP_MAKE_AREA_3D(symbol, like, sync, stream, ...)                                                               \
    VP_MAKE_AREA(symbol, stream, translated_3d(a, stream, sync, &res), __VA_ARGS__)

/* ---- a line of an array, which is a row ---- */

#define LINE_ENDS(line, other)                                                                                         \
    .line##MemoryType = CU_MEMORYTYPE_ARRAY, .line##Array = array, .line##XInBytes = offset,                           \
    .other##MemoryType = CU_MEMORYTYPE_DEVICE, .other##Device = ptr, .WidthInBytes = bytes, .Height = 1

static bool translated_line(CUarray array, size_t offset, CUdeviceptr ptr, size_t bytes, bool to_array, CUstream stream,
                            CUresult *res) {
    const CUDA_MEMCPY2D from = {LINE_ENDS(src, dst)}, to = {LINE_ENDS(dst, src)};
    return translated_2d(to_array ? &to : &from, stream, true, res);
}

#define VP_MAKE_FROM_ARRAY(symbol, like, sync, stream, ...)                                                            \
    VP_MAKE_AREA(symbol, stream, translated_line(b, c, a, d, false, stream, &res), __VA_ARGS__)
#define VP_MAKE_TO_ARRAY(symbol, like, sync, stream, ...)                                                              \
    VP_MAKE_AREA(symbol, stream, translated_line(a, b, c, d, true, stream, &res), __VA_ARGS__)

/* ---- copies that name a context for each end: they need nothing, but are to be known ---- */

static bool spilled_range(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes, CUstream stream,
                          bool sync, CUresult *res) {
    return vp_api_copy_spilled(dst, to, src, from) && translated_range(dst, src, bytes, stream, sync, res);
}

static bool spilled_area(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool sync, CUresult *res) {
    struct vp_copy copy = {.stream = stream, .sync = sync};
    if (!p || !vp_api_copy_spilled(p->dstMemoryType == CU_MEMORYTYPE_ARRAY ? 0 : p->dstDevice, p->dstContext,
                                   p->srcMemoryType == CU_MEMORYTYPE_ARRAY ? 0 : p->srcDevice, p->srcContext))
        return false;
    copy.p = *p;
    copy.p.srcContext = copy.p.dstContext = NULL;
    return vp_copy_translated(&copy, res);
}

#define VP_MAKE_PEER(symbol, stream, spilled, ...)                                                                     \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        CUresult res;                                                                                                  \
        VP_WORKS(stream);                                                                                              \
        vp_api_copied_between();                                                                                       \
        if (spilled)                                                                                                   \
            return res;                                                                                                \
        return VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                                 \
    }
#define VP_MAKE_PEER_RANGE(symbol, like, sync, stream, ...)                                                            \
    VP_MAKE_PEER(symbol, stream, spilled_range(a, b, c, d, e, stream, sync, &res), __VA_ARGS__)
#define VP_MAKE_PEER_AREA(symbol, like, sync, stream, ...)                                                             \
    VP_MAKE_PEER(symbol, stream, spilled_area(a, stream, sync, &res), __VA_ARGS__)

VP_DOORS_COPY(VP_MAKE)
