/* Copies from and to what is spilled (src/process/spill.h): such memory is the host's to CUDA, which refuses a copy
 * that calls it the device's. It is made by the call that leaves open what is what, in the same stream; of a batch,
 * each by itself.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "copy.h"

#include <string.h>

void vp_copy_undirect(CUmemorytype *type, const struct vp_copy_end *end) {
    if (end->spilled && *type == CU_MEMORYTYPE_DEVICE)
        *type = CU_MEMORYTYPE_UNIFIED;
}

static bool per_thread(const struct vp_copy *copy) {
    return copy->stream == CU_STREAM_PER_THREAD;
}

static CUresult copy_range(const struct vp_copy *copy) {
    const CUDA_MEMCPY3D_PEER *p = &copy->p;

    if (!copy->sync)
        return VP_REAL(cuMemcpyAsync)(p->dstDevice, p->srcDevice, p->WidthInBytes, copy->stream);
    return per_thread(copy) ? VP_REAL(cuMemcpy_ptds)(p->dstDevice, p->srcDevice, p->WidthInBytes)
                            : VP_REAL(cuMemcpy)(p->dstDevice, p->srcDevice, p->WidthInBytes);
}

/* The form of rows takes pitches that the widest one may not; unaligned ones where the call waits, as it does in CUDA.
 */
static CUresult copy_rows(const struct vp_copy *copy) {
    const CUDA_MEMCPY3D_PEER *p = &copy->p;
    const CUDA_MEMCPY2D rows = {
        .srcXInBytes = p->srcXInBytes,
        .srcY = p->srcY,
        .srcMemoryType = p->srcMemoryType,
        .srcHost = p->srcHost,
        .srcDevice = p->srcDevice,
        .srcArray = p->srcArray,
        .srcPitch = p->srcPitch,
        .dstXInBytes = p->dstXInBytes,
        .dstY = p->dstY,
        .dstMemoryType = p->dstMemoryType,
        .dstHost = p->dstHost,
        .dstDevice = p->dstDevice,
        .dstArray = p->dstArray,
        .dstPitch = p->dstPitch,
        .WidthInBytes = p->WidthInBytes,
        .Height = p->Height,
    };

    if (!copy->sync)
        return VP_REAL(cuMemcpy2DAsync_v2)(&rows, copy->stream);
    return per_thread(copy) ? VP_REAL(cuMemcpy2DUnaligned_v2_ptds)(&rows) : VP_REAL(cuMemcpy2DUnaligned_v2)(&rows);
}

static CUresult copy_slices(const struct vp_copy *copy) {
    CUDA_MEMCPY3D slices;

    memcpy(&slices, &copy->p, sizeof(slices));
    slices.reserved0 = slices.reserved1 = NULL;
    if (!copy->sync)
        return VP_REAL(cuMemcpy3DAsync_v2)(&slices, copy->stream);
    return per_thread(copy) ? VP_REAL(cuMemcpy3D_v2_ptds)(&slices) : VP_REAL(cuMemcpy3D_v2)(&slices);
}

CUresult vp_copy_undirected(struct vp_copy *copy, const struct vp_copy_end *dst, const struct vp_copy_end *src) {
    CUDA_MEMCPY3D_PEER *p = &copy->p;

    vp_copy_undirect(&p->dstMemoryType, dst);
    vp_copy_undirect(&p->srcMemoryType, src);
    if (copy->flat)
        return copy_rows(copy);
    if (vp_copy_is_range(p) && p->dstMemoryType == CU_MEMORYTYPE_UNIFIED && p->srcMemoryType == CU_MEMORYTYPE_UNIFIED &&
        !p->dstXInBytes && !p->srcXInBytes && !p->dstY && !p->srcY && !p->dstZ && !p->srcZ)
        return copy_range(copy);
    return copy_slices(copy);
}

/* ---- batches ---- */

static bool captures(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return VP_REAL(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* What is to be read before the call returns was read by then. */
static CUresult finish_batch(CUresult res, bool at_once, CUstream stream) {
    return res == CUDA_SUCCESS && at_once && !captures(stream) ? VP_REAL(cuStreamSynchronize)(stream) : res;
}

/* Opens what a batch needs, and tells whether any of it is spilled. */
static bool open_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, size_t count, CUstream stream) {
    bool spilled = false;

    for (size_t i = 0; dsts && srcs && i < count; i++) {
        struct vp_copy_end dst = {.ptr = dsts[i]}, src = {.ptr = srcs[i]};

        vp_api_copy_way(stream, &dst, &src);
        spilled |= dst.spilled || src.spilled;
    }
    return spilled;
}

/* The order of access comes first in the attributes, whose size older headers do not know: then it is taken to be the
 * strictest. */
static bool reads_at_once(const struct CUmemcpyAttributes_st *attributes, size_t kinds) {
#if CUDA_VERSION >= 12080
    for (size_t i = 0; attributes && i < kinds; i++)
        if (attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
            return true;
    return false;
#else
    return attributes && kinds;
#endif
}

static CUresult batch_undirected(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                                 bool at_once, size_t *failed, CUstream stream) {
    CUresult res = CUDA_SUCCESS;

    for (size_t i = 0; i < count && res == CUDA_SUCCESS; i++) {
        res = VP_REAL(cuMemcpyAsync)(dsts[i], srcs[i], sizes[i], stream);
        if (res != CUDA_SUCCESS && failed)
            *failed = i;
    }
    return finish_batch(res, at_once, stream);
}

#define VP_MAKE_BATCH(symbol, like, attributes, kinds, failed, stream, ...)                                            \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        if (vp_api_copies_matter()) {                                                                                  \
            bool spilled = vp_door_enter() && open_batch(a, b, d, stream);                                             \
            CUresult res = CUDA_SUCCESS;                                                                               \
            if (spilled && c && stream)                                                                                \
                res = batch_undirected(a, b, c, d, reads_at_once(attributes, kinds), failed, stream);                  \
            vp_door_leave();                                                                                           \
            if (spilled && c && stream)                                                                                \
                return res;                                                                                            \
        }                                                                                                              \
        return VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                                 \
    }

/* ---- batches of slices ---- */

#if CUDA_VERSION >= 12080
static CUdeviceptr slice_end(const CUmemcpy3DOperand *operand) {
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER ? operand->op.ptr.ptr : 0;
}

static bool slice_spilled(const CUDA_MEMCPY3D_BATCH_OP *op) {
    return vp_api_copy_spilled(slice_end(&op->dst), slice_end(&op->src));
}

static bool slices_spilled(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count) {
    for (size_t i = 0; ops && i < count; i++)
        if (slice_spilled(&ops[i]))
            return true;
    return false;
}

/* Between two pointers an element is a byte. With an array it is as large as the array's. */
static size_t element_of(const CUmemcpy3DOperand *operand) {
    static const struct {
        CUarray_format format;
        size_t bytes;
    } sizes[] = {
        {CU_AD_FORMAT_UNSIGNED_INT8, 1}, {CU_AD_FORMAT_SIGNED_INT8, 1}, {CU_AD_FORMAT_UNSIGNED_INT16, 2},
        {CU_AD_FORMAT_SIGNED_INT16, 2},  {CU_AD_FORMAT_HALF, 2},        {CU_AD_FORMAT_UNSIGNED_INT32, 4},
        {CU_AD_FORMAT_SIGNED_INT32, 4},  {CU_AD_FORMAT_FLOAT, 4},
    };
    CUDA_ARRAY3D_DESCRIPTOR is;

    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
        return 1;
    if (VP_REAL(cuArray3DGetDescriptor_v2)(&is, operand->op.array.array) != CUDA_SUCCESS)
        return 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (sizes[i].format == is.Format)
            return sizes[i].bytes * is.NumChannels;
    return 0;
}

/* 0: of an array whose elements are not known. */
static CUresult copy_slice(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream) {
    const CUmemcpy3DOperand *dst = &op->dst, *src = &op->src;
    const size_t to = element_of(dst), from = element_of(src), element = to > from ? to : from;
    const size_t width = op->extent.width * element;
    CUDA_MEMCPY3D p = {.WidthInBytes = width, .Height = op->extent.height, .Depth = op->extent.depth};

    if (!to || !from)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (dst->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
        p.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        p.dstDevice = dst->op.ptr.ptr;
        p.dstPitch = dst->op.ptr.rowLength ? dst->op.ptr.rowLength * element : width;
        p.dstHeight = dst->op.ptr.layerHeight ? dst->op.ptr.layerHeight : op->extent.height;
    } else {
        p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        p.dstArray = dst->op.array.array;
        p.dstXInBytes = dst->op.array.offset.x * element;
        p.dstY = dst->op.array.offset.y;
        p.dstZ = dst->op.array.offset.z;
    }
    if (src->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
        p.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        p.srcDevice = src->op.ptr.ptr;
        p.srcPitch = src->op.ptr.rowLength ? src->op.ptr.rowLength * element : width;
        p.srcHeight = src->op.ptr.layerHeight ? src->op.ptr.layerHeight : op->extent.height;
    } else {
        p.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        p.srcArray = src->op.array.array;
        p.srcXInBytes = src->op.array.offset.x * element;
        p.srcY = src->op.array.offset.y;
        p.srcZ = src->op.array.offset.z;
    }
    return VP_REAL(cuMemcpy3DAsync_v2)(&p, stream);
}

static CUresult slices_undirected(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count, size_t *failed, CUstream stream) {
    CUresult res = CUDA_SUCCESS;
    bool at_once = false;

    for (size_t i = 0; i < count && res == CUDA_SUCCESS; i++) {
        at_once |= ops[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
        res = copy_slice(&ops[i], stream);
        if (res != CUDA_SUCCESS && failed)
            *failed = i;
    }
    return finish_batch(res, at_once, stream);
}
#else
struct CUDA_MEMCPY3D_BATCH_OP_st;
static bool slices_spilled(const struct CUDA_MEMCPY3D_BATCH_OP_st *ops, size_t count) {
    (void)ops, (void)count;
    return false;
}
static CUresult slices_undirected(const struct CUDA_MEMCPY3D_BATCH_OP_st *ops, size_t count, size_t *failed,
                                  CUstream stream) {
    (void)ops, (void)count, (void)failed, (void)stream;
    return CUDA_ERROR_NOT_SUPPORTED;
}
#endif

#define VP_MAKE_SLICES(symbol, like, failed, stream, ...)                                                              \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        if (vp_api_copies_matter()) {                                                                                  \
            bool spilled = vp_door_enter() && stream && slices_spilled(b, a);                                          \
            CUresult res = spilled ? slices_undirected(b, a, failed, stream) : CUDA_SUCCESS;                           \
            vp_door_leave();                                                                                           \
            if (spilled)                                                                                               \
                return res;                                                                                            \
        }                                                                                                              \
        return VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                                 \
    }

VP_DOORS_BATCH(VP_MAKE)
