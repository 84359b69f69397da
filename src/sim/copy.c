/* Copies and memsets: queueing them, and what any op does when its turn has come. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"

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
    if (!may(op, op->fill.dst, bytes, true, "fills"))
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
    case SIM_OP_HOST: break;
    }
}

/* ---- queueing ---- */

enum wait { ASYNC, WAIT, LATE }; /* LATE: waits unless the option says that such calls return early */

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

static CUresult fill(CUdeviceptr dst, size_t pitch, uint32_t value, unsigned element, size_t width, size_t height,
                     CUstream handle, enum wait wait) {
    struct sim_stream *stream;
    CUresult result = sim_stream_for_work(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!width || !height)
        return CUDA_SUCCESS;
    if (dst % element || (height > 1 && (pitch % element || pitch < width * element)) ||
        sim_access_fault((uintptr_t)dst, span(width * element, height, pitch), stream->context, true, false,
                         SIM_AT_CALL))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = sim_op_new(SIM_OP_FILL);
    op->fill.dst = (uintptr_t)dst;
    op->fill.pitch = pitch;
    op->fill.value = value;
    op->fill.element = element;
    op->fill.width = width;
    op->fill.height = height;
    return finish(stream, op, wait == WAIT || (wait == LATE && !sim.options.late_memset));
}

struct area {
    uintptr_t at;
    size_t pitch;
    const struct sim_context *by; /* NULL: the stream's own */
};

static CUresult copy(struct area dst, struct area src, size_t width, size_t height, CUstream handle, enum wait wait) {
    struct sim_stream *stream;
    CUresult result = sim_stream_for_work(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!width || !height)
        return CUDA_SUCCESS;
    if (!dst.at || !src.at)
        return CUDA_ERROR_INVALID_VALUE;
    bool from_pageable = sim_is_pageable(src.at), to_pageable = sim_is_pageable(dst.at);
    const struct sim_context *src_by = src.by ? src.by : stream->context;
    const struct sim_context *dst_by = dst.by ? dst.by : stream->context;
    if ((!from_pageable &&
         sim_access_fault(src.at, span(width, height, src.pitch), src_by, false, true, SIM_AT_CALL)) ||
        (!to_pageable && sim_access_fault(dst.at, span(width, height, dst.pitch), dst_by, true, true, SIM_AT_CALL)))
        return CUDA_ERROR_INVALID_VALUE;
    bool device_only = wait == WAIT && !from_pageable && !to_pageable && sim.options.late_memset;
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
    return finish(stream, op, (wait == WAIT && !device_only) || to_pageable);
}

static CUresult copy_1d(uintptr_t dst, uintptr_t src, size_t bytes, CUstream stream, enum wait wait) {
    return copy((struct area){dst, bytes, NULL}, (struct area){src, bytes, NULL}, bytes, 1, stream, wait);
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

#define COPY_API(sync, async, since, dst_type, src_type)                                                               \
    SIM_STREAM_API(_ptds, 0, since, sync, (dst_type dst, src_type src, size_t bytes), (dst, src, bytes)) {             \
        return copy_1d((uintptr_t)dst, (uintptr_t)src, bytes, NULL, WAIT);                                             \
    }                                                                                                                  \
    SIM_STREAM_API(_ptsz, 0, since, async, (dst_type dst, src_type src, size_t bytes, CUstream stream),                \
                   (dst, src, bytes, stream)) {                                                                        \
        return copy_1d((uintptr_t)dst, (uintptr_t)src, bytes, stream, ASYNC);                                          \
    }

COPY_API(cuMemcpy, cuMemcpyAsync, 4000, CUdeviceptr, CUdeviceptr)
COPY_API(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, 3020, CUdeviceptr, const void *)
COPY_API(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, 3020, void *, CUdeviceptr)
COPY_API(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, 3020, CUdeviceptr, CUdeviceptr)

/* Each end is touched in its own context: mapped memory need be open to no other device. */
static CUresult copy_peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
                          CUstream stream, enum wait wait) {
    CUresult why;
    struct area to = {(uintptr_t)dst, bytes, sim_context_of(dst_context, &why)};
    struct area from = {(uintptr_t)src, bytes, to.by ? sim_context_of(src_context, &why) : NULL};
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

/* Where a side of a 2D copy begins; arrays are not modelled. */
static bool side(CUmemorytype type, CUdeviceptr device, const void *host, size_t x, size_t y, size_t pitch,
                 size_t width, struct area *area) {
    area->pitch = pitch ? pitch : width;
    area->at = (type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : (uintptr_t)device) + y * area->pitch + x;
    return type != CU_MEMORYTYPE_ARRAY;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, enum wait wait) {
    struct area dst = {0}, src = {0};
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    if (!side(p->dstMemoryType, p->dstDevice, p->dstHost, p->dstXInBytes, p->dstY, p->dstPitch, p->WidthInBytes,
              &dst) ||
        !side(p->srcMemoryType, p->srcDevice, p->srcHost, p->srcXInBytes, p->srcY, p->srcPitch, p->WidthInBytes, &src))
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

/* Slice by slice. The two kinds of 3D copy have the same members, but for the contexts. */
#define COPY_3D(p, dst_by_, src_by_, stream, wait)                                                                     \
    ({                                                                                                                 \
        CUresult result_ = CUDA_SUCCESS;                                                                               \
        size_t dst_rows_ = (p)->dstHeight ? (p)->dstHeight : (p)->Height;                                              \
        size_t src_rows_ = (p)->srcHeight ? (p)->srcHeight : (p)->Height;                                              \
        for (size_t z_ = 0; z_ < (p)->Depth && !result_; z_++) {                                                       \
            struct area dst_ = {.by = dst_by_}, src_ = {.by = src_by_};                                                \
            if (!side((p)->dstMemoryType, (p)->dstDevice, (p)->dstHost, (p)->dstXInBytes,                              \
                      (p)->dstY + ((p)->dstZ + z_) * dst_rows_, (p)->dstPitch, (p)->WidthInBytes, &dst_) ||            \
                !side((p)->srcMemoryType, (p)->srcDevice, (p)->srcHost, (p)->srcXInBytes,                              \
                      (p)->srcY + ((p)->srcZ + z_) * src_rows_, (p)->srcPitch, (p)->WidthInBytes, &src_))              \
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
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
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
