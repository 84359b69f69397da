/* Copies and memsets: queueing them, and what any op does when its turn has come. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nodes.h"
#include "pools.h"

#include <stdlib.h>
#include <string.h>

/* ---- running ---- */

static size_t span(size_t width, size_t height, size_t pitch) {
    return height ? (height - 1) * pitch + width : 0;
}

static bool may_by(const struct sim_op *op, const struct sim_context *by, uintptr_t at, size_t bytes, bool write,
                   bool copy, const char *verb) {
    const char *fault = sim_access_fault(at, bytes, by, write, copy, SIM_AT_RUN);
    if (fault)
        sim_violation("work of stream %llu %s %zu bytes at %#lx: %s", (unsigned long long)op->stream->id, verb, bytes,
                      (unsigned long)at, fault);
    return !fault;
}

static bool may(const struct sim_op *op, uintptr_t at, size_t bytes, bool write, const char *verb) {
    return may_by(op, op->stream->context, at, bytes, write, false, verb);
}

static void run_fill(const struct sim_op *op) {
    unsigned element = op->fill.element;
    size_t bytes = span(op->fill.width * element, op->fill.height, op->fill.pitch);
    if (!may_by(op, op->fill.by, op->fill.dst, bytes, true, false, "fills"))
        return;
    if (sim.watch_fills)
        sim.watch_fills(op->fill.dst, bytes, op->fill.value);
    if (sim.options.ledger)
        return;
    for (size_t y = 0; y < op->fill.height; y++) {
        unsigned char *row = (unsigned char *)op->fill.dst + y * op->fill.pitch;
        if (element == 1) {
            memset(row, (int)op->fill.value, op->fill.width);
            continue;
        }
        /* Each copy doubles what is filled: much faster than element by element. */
        size_t width = op->fill.width * element;
        memcpy(row, &op->fill.value, element);
        for (size_t done = element; done < width; done *= 2)
            memcpy(row + done, row, done < width - done ? done : width - done);
    }
}

static void run_kernel(const struct sim_op *op) {
    if (op->kernel.at && may_by(op, op->kernel.by, op->kernel.at, op->kernel.bytes, true, false, "fills by a kernel") &&
        !sim.options.ledger)
        memset((void *)op->kernel.at, (int)op->kernel.value, op->kernel.bytes);
}

static void run_copy(const struct sim_op *op) {
    size_t width = op->copy.width, height = op->copy.height;
    if ((!op->copy.to_host &&
         !may_by(op, op->copy.dst_by, op->copy.dst, span(width, height, op->copy.dst_pitch), true, true, "writes")) ||
        (!op->copy.staged &&
         !may_by(op, op->copy.src_by, op->copy.src, span(width, height, op->copy.src_pitch), false, true, "reads")))
        return;
    if (sim.watch_copies && !op->copy.to_host && !op->copy.staged && height == 1)
        sim.watch_copies(op->copy.dst, op->copy.src, width);
    if (sim.options.ledger)
        return;
    for (size_t y = 0; y < height; y++) {
        const char *from = op->copy.staged ? (char *)op->copy.staged + y * width
                                           : (char *)op->copy.src + y * op->copy.src_pitch;
        memmove((char *)op->copy.dst + y * op->copy.dst_pitch, from, width);
    }
}

static void run_write_value(const struct sim_op *op) {
    size_t size = op->value.wide ? 8 : 4;
    if (may(op, op->value.at, size, true, "writes") && !sim.options.ledger)
        memcpy((void *)op->value.at, &op->value.value, size);
}

void sim_op_execute(struct sim_op *op) {
    switch (op->kind) {
    case SIM_OP_FILL: run_fill(op); break;
    case SIM_OP_COPY: run_copy(op); break;
    case SIM_OP_KERNEL: run_kernel(op); break;
    case SIM_OP_WAIT_VALUE: may(op, op->value.at, op->value.wide ? 8 : 4, false, "waits on"); break;
    case SIM_OP_WRITE_VALUE: run_write_value(op); break;
    case SIM_OP_ALLOC: op->block->dead = false; break;
    case SIM_OP_FREE:
        if (op->block->kind == SIM_BLOCK_GRAPH)
            op->block->dead = true;
        else
            sim_pool_return(op->block, op->stream);
        break;
    case SIM_OP_NOP:
    case SIM_OP_EVENT:
    case SIM_OP_GRAPH:
    case SIM_OP_CONDITIONAL:
    case SIM_OP_HOST: break;
    }
}

/* ---- queueing ---- */

/* LATE: waits, unless the option makes such calls return early; BATCHED: does not wait, and needs no current context.
 */
enum wait { ASYNC, WAIT, LATE, BATCHED };

static CUresult finish(struct sim_stream *stream, struct sim_op *op, bool wait) {
    /* A capture holds the op as a node that never runs. */
    if (!wait || stream->capture) {
        sim_op_enqueue(stream, op);
        return CUDA_SUCCESS;
    }
    sim_op_get(op);
    sim_op_enqueue(stream, op);
    return sim_op_wait_put(op);
}

/* Are calls that touch this memory finished when they return, whatever the option says? */
static bool is_synced(const struct sim_context *context, uintptr_t at) {
    const struct sim_block *block = sim_block_find(at);
    return !sim.options.late_memset || context->flags & CU_CTX_SYNC_MEMOPS || (block && block->sync_memops);
}

static CUresult fill_op(const struct sim_context *context, CUdeviceptr dst, size_t pitch, uint32_t value,
                        unsigned element, size_t width, size_t height, struct sim_op **out) {
    if ((element != 1 && element != 2 && element != 4) || !width || !height || dst % element ||
        (height > 1 && (pitch % element || pitch < width * element)) ||
        sim_access_fault((uintptr_t)dst, span(width * element, height, pitch), context, true, false, SIM_AT_CALL))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = *out = sim_op_new(SIM_OP_FILL);
    op->fill.by = context;
    op->fill.dst = (uintptr_t)dst;
    op->fill.pitch = pitch;
    op->fill.value = value;
    op->fill.element = element;
    op->fill.width = width;
    op->fill.height = height;
    return CUDA_SUCCESS;
}

static CUresult fill(CUdeviceptr dst, size_t pitch, uint32_t value, unsigned element, size_t width, size_t height,
                     CUstream handle, enum wait wait) {
    struct sim_stream *stream;
    struct sim_op *op;
    CUresult result = sim_stream_for_work(handle, &stream);
    if (result != CUDA_SUCCESS || !width || !height)
        return result;
    result = fill_op(stream->context, dst, pitch, value, element, width, height, &op);
    if (result != CUDA_SUCCESS)
        return result;
    return finish(stream, op, wait == WAIT || (wait == LATE && is_synced(stream->context, (uintptr_t)dst)));
}

struct area {
    uintptr_t at;
    size_t pitch;
    const struct sim_context *by; /* the context that touches it; NULL: the stream's own */
    bool directed;                /* the call says that it is device memory */
};

/* Does a call name memory as the device's that the driver counts as the host's? */
static bool misdirected(const struct area *area, size_t width, size_t height) {
    return area->directed && sim_is_host_vmm(area->at, span(width, height, area->pitch));
}

static CUresult copy_op(const struct sim_context *context, struct area dst, struct area src, size_t width,
                        size_t height, struct sim_op **out) {
    if (!dst.at || !src.at || misdirected(&dst, width, height) || misdirected(&src, width, height))
        return CUDA_ERROR_INVALID_VALUE;
    bool from_pageable = sim_is_pageable(src.at), to_pageable = sim_is_pageable(dst.at);
    const struct sim_context *src_by = src.by ? src.by : context;
    const struct sim_context *dst_by = dst.by ? dst.by : context;
    if ((!from_pageable &&
         sim_access_fault(src.at, span(width, height, src.pitch), src_by, false, true, SIM_AT_CALL)) ||
        (!to_pageable && sim_access_fault(dst.at, span(width, height, dst.pitch), dst_by, true, true, SIM_AT_CALL)))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = sim_op_new(SIM_OP_COPY);
    op->copy.dst = dst.at;
    op->copy.src = src.at;
    op->copy.dst_pitch = dst.pitch;
    op->copy.src_pitch = src.pitch;
    op->copy.dst_by = dst_by;
    op->copy.src_by = src_by;
    op->copy.width = width;
    op->copy.height = height;
    op->copy.to_host = to_pageable;
    /* The driver stages ordinary host memory: the caller may change it as soon as the call returns. */
    if (from_pageable) {
        op->copy.staged = malloc(width * height);
        if (!op->copy.staged)
            abort();
        for (size_t y = 0; y < height; y++)
            memcpy((char *)op->copy.staged + y * width, (char *)src.at + y * src.pitch, width);
    }
    *out = op;
    return CUDA_SUCCESS;
}

/* Mapped memory and memory of pools must be accessible to the current context, whatever the stream's context is.
 * Without a current context, nothing is found in more than one handle (two H200s). */
static bool out_of_reach(const struct area *area, size_t bytes, const struct sim_context *now) {
    const struct sim_block *block = sim_block_find(area->at);
    const struct sim_mapping *mapping = block ? NULL : sim_range_find(&sim.mappings, area->at, area->at + 1);
    if (area->by)
        return false;
    if (mapping && !now)
        return area->at + bytes > mapping->range.end;
    return now && (mapping ? sim_access_fault(area->at, bytes, now, false, true, SIM_AT_CALL) != NULL
                           : block && block->kind == SIM_BLOCK_POOL && !sim_pool_is_hosts(block->pool) &&
                                 !(block->pool->access & 1u << now->device));
}

static CUresult copy(struct area dst, struct area src, size_t width, size_t height, CUstream handle, enum wait wait) {
    struct sim_stream *stream;
    struct sim_op *op;
    CUresult why, result = sim_stream_for_work(handle, &stream);
    if (result != CUDA_SUCCESS || !width || !height)
        return result;
    const struct sim_context *now = wait == BATCHED ? stream->context : sim_current(&why);
    if (out_of_reach(&dst, span(width, height, dst.pitch), now) ||
        out_of_reach(&src, span(width, height, src.pitch), now))
        return CUDA_ERROR_INVALID_VALUE;
    result = copy_op(now && !stream->capture ? now : stream->context, dst, src, width, height, &op);
    if (result != CUDA_SUCCESS)
        return result;
    bool to_pageable = op->copy.to_host;
    bool device_only = wait == WAIT && !op->copy.staged && !to_pageable && !is_synced(stream->context, dst.at) &&
                       !is_synced(stream->context, src.at);
    return finish(stream, op, (wait == WAIT && !device_only) || to_pageable);
}

/* Which ends of a copy the call's name says are device memory. */
enum directed { TO_DEVICE = 1, FROM_DEVICE = 2 };

static CUresult copy_1d(uintptr_t dst, uintptr_t src, size_t bytes, CUstream stream, enum wait wait, int directed) {
    return copy((struct area){dst, bytes, NULL, directed & TO_DEVICE},
                (struct area){src, bytes, NULL, directed & FROM_DEVICE}, bytes, 1, stream, wait);
}

/* ---- the exported family ---- */

#define MEMSET_API(bits, element, type)                                                                                \
    SIM_STREAM_API(_ptds, 0, 3020, cuMemsetD##bits##_v2, (CUdeviceptr dst, type value, size_t count),                  \
                   (dst, value, count)) {                                                                              \
        return fill(dst, 0, value, element, count, 1, NULL, LATE);                                                     \
    }                                                                                                                  \
    SIM_STREAM_API(_ptsz, 0, 3020, cuMemsetD##bits##Async,                                                             \
                   (CUdeviceptr dst, type value, size_t count, CUstream stream), (dst, value, count, stream)) {        \
        return fill(dst, 0, value, element, count, 1, stream, ASYNC);                                                  \
    }                                                                                                                  \
    SIM_STREAM_API(_ptds, 0, 3020, cuMemsetD2D##bits##_v2,                                                             \
                   (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),                           \
                   (dst, pitch, value, width, height)) {                                                               \
        return fill(dst, pitch, value, element, width, height, NULL, LATE);                                            \
    }                                                                                                                  \
    SIM_STREAM_API(_ptsz, 0, 3020, cuMemsetD2D##bits##Async,                                                           \
                   (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream),          \
                   (dst, pitch, value, width, height, stream)) {                                                       \
        return fill(dst, pitch, value, element, width, height, stream, ASYNC);                                         \
    }

MEMSET_API(8, 1, unsigned char)
MEMSET_API(16, 2, unsigned short)
MEMSET_API(32, 4, unsigned int)

#define COPY_API(sync, async, since, dst_type, src_type, directed)                                                     \
    SIM_STREAM_API(_ptds, 0, since, sync, (dst_type dst, src_type src, size_t bytes), (dst, src, bytes)) {             \
        return copy_1d((uintptr_t)dst, (uintptr_t)src, bytes, NULL, WAIT, directed);                                   \
    }                                                                                                                  \
    SIM_STREAM_API(_ptsz, 0, since, async, (dst_type dst, src_type src, size_t bytes, CUstream stream),                \
                   (dst, src, bytes, stream)) {                                                                        \
        return copy_1d((uintptr_t)dst, (uintptr_t)src, bytes, stream, ASYNC, directed);                                \
    }

COPY_API(cuMemcpy, cuMemcpyAsync, 4000, CUdeviceptr, CUdeviceptr, 0)
COPY_API(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, 3020, CUdeviceptr, const void *, TO_DEVICE)
COPY_API(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, 3020, void *, CUdeviceptr, FROM_DEVICE)
COPY_API(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, 3020, CUdeviceptr, CUdeviceptr, TO_DEVICE | FROM_DEVICE)

/* A copy that names its contexts cannot be captured: the capture becomes invalid (seen on an H200, of
 * cuMemcpyPeerAsync). */
static CUresult refuse_captured(CUstream handle, enum wait wait) {
    struct sim_stream *stream;
    CUresult result = wait == ASYNC ? sim_stream_of(handle, &stream) : CUDA_SUCCESS;
    if (wait != ASYNC || result != CUDA_SUCCESS || !stream->capture)
        return result;
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* Copies between contexts. Each end is accessed in its own context, so mapped memory need not be open to the other
 * device. */
static CUresult copy_peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
                          CUstream stream, enum wait wait) {
    CUresult why, refused = refuse_captured(stream, wait);
    if (refused != CUDA_SUCCESS)
        return refused;
    struct area to = {(uintptr_t)dst, bytes, sim_context_of(dst_context, &why), true};
    struct area from = {(uintptr_t)src, bytes, to.by ? sim_context_of(src_context, &why) : NULL, true};
    return to.by && from.by ? copy(to, from, bytes, 1, stream, wait) : why;
}

SIM_STREAM_API(_ptds, 0, 4000, cuMemcpyPeer,
               (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes),
               (dst, dst_context, src, src_context, bytes)) {
    return copy_peer(dst, dst_context, src, src_context, bytes, NULL, WAIT);
}

SIM_STREAM_API(_ptsz, 0, 4000, cuMemcpyPeerAsync,
               (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
                CUstream stream),
               (dst, dst_context, src, src_context, bytes, stream)) {
    return copy_peer(dst, dst_context, src, src_context, bytes, stream, ASYNC);
}

/* Where a side of a 2D copy begins. An array's bytes are the simulator's own memory, which is copied like the host's.
 */
#define SIDE(p, which, row, area)                                                                                      \
    side_at(&(struct side){(p)->which##MemoryType, (p)->which##Device, (p)->which##Host, (p)->which##Array,            \
                           (p)->which##XInBytes, (row), (p)->which##Pitch},                                            \
            (p)->WidthInBytes, (area))

struct side {
    CUmemorytype type;
    CUdeviceptr device;
    const void *host;
    CUarray array;
    size_t x, y, pitch;
};

static bool side_at(const struct side *s, size_t width, struct area *area) {
    uintptr_t base = s->type == CU_MEMORYTYPE_HOST ? (uintptr_t)s->host : (uintptr_t)s->device;
    area->directed = s->type == CU_MEMORYTYPE_DEVICE;
    area->pitch = s->pitch ? s->pitch : width;
    if (s->type == CU_MEMORYTYPE_ARRAY && !(base = sim_array_at(s->array, &area->pitch)))
        return false;
    area->at = base + s->y * area->pitch + s->x;
    return true;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, enum wait wait) {
    struct area dst = {0}, src = {0};
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    if (!SIDE(p, dst, p->dstY, &dst) || !SIDE(p, src, p->srcY, &src))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (p->Height > 1 && (dst.pitch < p->WidthInBytes || src.pitch < p->WidthInBytes))
        return CUDA_ERROR_INVALID_VALUE;
    return copy(dst, src, p->WidthInBytes, p->Height, stream, wait);
}

SIM_STREAM_API(_ptds, 0, 3020, cuMemcpy2D_v2, (const CUDA_MEMCPY2D *params), (params)) {
    return copy_2d(params, NULL, WAIT);
}

SIM_STREAM_API(_ptds, 0, 3020, cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *params), (params)) {
    return copy_2d(params, NULL, WAIT);
}

SIM_STREAM_API(_ptsz, 0, 3020, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *params, CUstream stream), (params, stream)) {
    return copy_2d(params, stream, ASYNC);
}

static CUresult copy_array(CUDA_MEMCPY2D p, CUstream stream) {
    p.Height = 1;
    return copy_2d(&p, stream, WAIT);
}

SIM_STREAM_API(_ptds, 0, 3020, cuMemcpyAtoD_v2, (CUdeviceptr dst, CUarray src, size_t offset, size_t bytes),
               (dst, src, offset, bytes)) {
    return copy_array((CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                                      .srcArray = src,
                                      .srcXInBytes = offset,
                                      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                      .dstDevice = dst,
                                      .WidthInBytes = bytes},
                      NULL);
}

SIM_STREAM_API(_ptds, 0, 3020, cuMemcpyDtoA_v2, (CUarray dst, size_t offset, CUdeviceptr src, size_t bytes),
               (dst, offset, src, bytes)) {
    return copy_array((CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                      .srcDevice = src,
                                      .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                                      .dstArray = dst,
                                      .dstXInBytes = offset,
                                      .WidthInBytes = bytes},
                      NULL);
}

/* Copies slice by slice. The two kinds of 3D copy have the same members, except for the contexts. */
#define COPY_3D(p, dst_by_, src_by_, stream, wait)                                                                     \
    ({                                                                                                                 \
        CUresult result_ = CUDA_SUCCESS;                                                                               \
        size_t dst_rows_ = (p)->dstHeight ? (p)->dstHeight : (p)->Height;                                              \
        size_t src_rows_ = (p)->srcHeight ? (p)->srcHeight : (p)->Height;                                              \
        for (size_t z_ = 0; z_ < (p)->Depth && !result_; z_++) {                                                       \
            struct area dst_ = {.by = dst_by_}, src_ = {.by = src_by_};                                                \
            if (!SIDE(p, dst, (p)->dstY + ((p)->dstZ + z_) * dst_rows_, &dst_) ||                                      \
                !SIDE(p, src, (p)->srcY + ((p)->srcZ + z_) * src_rows_, &src_))                                        \
                result_ = CUDA_ERROR_NOT_SUPPORTED;                                                                    \
            else                                                                                                       \
                result_ = copy(dst_, src_, (p)->WidthInBytes, (p)->Height, stream, wait);                              \
        }                                                                                                              \
        result_;                                                                                                       \
    })

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, enum wait wait) {
    CUresult why;
    const struct sim_context *dst = p ? sim_context_of(p->dstContext, &why) : NULL;
    const struct sim_context *src = dst ? sim_context_of(p->srcContext, &why) : NULL;
    CUresult refused = refuse_captured(stream, wait);
    if (!p || refused != CUDA_SUCCESS)
        return p ? refused : CUDA_ERROR_INVALID_VALUE;
    return src ? COPY_3D(p, dst, src, stream, wait) : why;
}

SIM_STREAM_API(_ptds, 0, 3020, cuMemcpy3D_v2, (const CUDA_MEMCPY3D *params), (params)) {
    return params ? COPY_3D(params, NULL, NULL, NULL, WAIT) : CUDA_ERROR_INVALID_VALUE;
}

SIM_STREAM_API(_ptsz, 0, 3020, cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *params, CUstream stream), (params, stream)) {
    return params ? COPY_3D(params, NULL, NULL, stream, ASYNC) : CUDA_ERROR_INVALID_VALUE;
}

SIM_STREAM_API(_ptds, 0, 4000, cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *params), (params)) {
    return copy_3d_peer(params, NULL, WAIT);
}

SIM_STREAM_API(_ptsz, 0, 4000, cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *params, CUstream stream),
               (params, stream)) {
    return copy_3d_peer(params, stream, ASYNC);
}

/* ---- batches. Seen to be refused is the memory of the host in other directed calls; here it is refused, too ---- */

/* Batches are refused on the legacy stream, in a thread without a context, and in a capture. */
static CUresult takes_batches(CUstream handle) {
    struct sim_stream *stream;
    CUresult why, result = handle ? sim_stream_of(handle, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->kind == SIM_STREAM_LEGACY || !sim_current(&why))
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream->capture || stream->capture->invalid)
        return CUDA_SUCCESS;
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult copy_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                           size_t *failed, CUstream stream) {
    CUresult result = dsts && srcs && sizes && count ? takes_batches(stream) : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = copy_1d((uintptr_t)dsts[i], (uintptr_t)srcs[i], sizes[i], stream, BATCHED, TO_DEVICE | FROM_DEVICE);
        if (result != CUDA_SUCCESS && failed)
            *failed = i;
    }
    return result;
}

#if CUDA_VERSION >= 12080
#undef cuMemcpyBatchAsync
#undef cuMemcpy3DBatchAsync

SIM_STREAM_API(_ptsz, 0, 13000, cuMemcpyBatchAsync_v2,
               (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
                size_t *indexes, size_t kinds, CUstream stream),
               (dsts, srcs, sizes, count, attributes, indexes, kinds, stream)) {
    (void)indexes;
    return attributes && kinds ? copy_batch(dsts, srcs, sizes, count, NULL, stream) : CUDA_ERROR_INVALID_VALUE;
}

SIM_STREAM_API(_ptsz, 0, 12080, cuMemcpyBatchAsync,
               (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
                size_t *indexes, size_t kinds, size_t *failed, CUstream stream),
               (dsts, srcs, sizes, count, attributes, indexes, kinds, failed, stream)) {
    (void)indexes;
    return attributes && kinds ? copy_batch(dsts, srcs, sizes, count, failed, stream) : CUDA_ERROR_INVALID_VALUE;
}

static struct area slice(const CUmemcpy3DOperand *operand, const CUextent3D *extent, size_t z) {
    const size_t pitch = operand->op.ptr.rowLength ? operand->op.ptr.rowLength : extent->width,
                 rows = operand->op.ptr.layerHeight ? operand->op.ptr.layerHeight : extent->height;
    return (struct area){.at = (uintptr_t)operand->op.ptr.ptr + z * rows * pitch, .pitch = pitch, .directed = true};
}

static CUresult copy_slices(size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, CUstream stream) {
    CUresult result = ops && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUDA_MEMCPY3D_BATCH_OP *op = &ops[i];
        if (op->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER || op->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
            result = CUDA_ERROR_NOT_SUPPORTED;
        for (size_t z = 0; z < op->extent.depth && result == CUDA_SUCCESS; z++)
            result = copy(slice(&op->dst, &op->extent, z), slice(&op->src, &op->extent, z), op->extent.width,
                          op->extent.height, stream, BATCHED);
        if (result != CUDA_SUCCESS && failed)
            *failed = i;
    }
    return result;
}

SIM_STREAM_API(_ptsz, 0, 13000, cuMemcpy3DBatchAsync_v2,
               (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream),
               (count, ops, flags, stream)) {
    CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : takes_batches(stream);
    return result == CUDA_SUCCESS ? copy_slices(count, ops, NULL, stream) : result;
}

SIM_STREAM_API(_ptsz, 0, 12080, cuMemcpy3DBatchAsync,
               (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags, CUstream stream),
               (count, ops, failed, flags, stream)) {
    CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : takes_batches(stream);
    return result == CUDA_SUCCESS ? copy_slices(count, ops, failed, stream) : result;
}

/* One copy, which may be on the legacy stream. */
SIM_STREAM_API(_ptsz, 0, 13020, cuMemcpyWithAttributesAsync,
               (CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attributes, CUstream stream),
               (dst, src, size, attributes, stream)) {
    return attributes ? copy_1d((uintptr_t)dst, (uintptr_t)src, size, stream, ASYNC, TO_DEVICE | FROM_DEVICE)
                      : CUDA_ERROR_INVALID_VALUE;
}

SIM_STREAM_API(_ptsz, 0, 13020, cuMemcpy3DWithAttributesAsync,
               (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream stream), (op, flags, stream)) {
    return flags ? CUDA_ERROR_INVALID_VALUE : copy_slices(1, op, NULL, stream ? stream : CU_STREAM_LEGACY);
}
#endif

/* ---- the work of nodes: one slice each ---- */

CUresult sim_copy_of(const CUDA_MEMCPY3D *p, const struct sim_context *context, struct sim_op **op) {
    struct area dst = {0}, src = {0};
    if (!p || !p->WidthInBytes || !p->Height)
        return CUDA_ERROR_INVALID_VALUE;
    /* The contents of an array when a graph runs are not modelled. */
    if (p->Depth != 1 || p->dstMemoryType == CU_MEMORYTYPE_ARRAY || p->srcMemoryType == CU_MEMORYTYPE_ARRAY ||
        !SIDE(p, dst, p->dstY, &dst) || !SIDE(p, src, p->srcY, &src))
        return CUDA_ERROR_NOT_SUPPORTED;
    return copy_op(context, dst, src, p->WidthInBytes, p->Height, op);
}

CUresult sim_fill_of(const CUDA_MEMSET_NODE_PARAMS *p, const struct sim_context *context, struct sim_op **op) {
    return p ? fill_op(context, p->dst, p->pitch, p->value, p->elementSize, p->width, p->height, op)
             : CUDA_ERROR_INVALID_VALUE;
}
