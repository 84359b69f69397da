/* Doors of the driver: copies with attributes, and batches of copies. If one copy of a batch cannot be made unchanged,
 * as devices cannot access each other or an end is spilled, all are made one by one in the same stream. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

/* Sources that must be read before the call returns have been read by then. */
static CUresult finish_batch(CUresult res, bool at_once, CUstream stream) {
    return res == CUDA_SUCCESS && at_once && !vp_copy_captured(stream) ? vp_copy_wait(stream) : res;
}

/* CUDA refuses a batch on the legacy stream, in a thread without a live context, and in a capture. */
static bool takes_batches(CUstream stream) {
    unsigned version;
    return stream && stream != CU_STREAM_LEGACY && VP_REAL(cuCtxGetApiVersion)(NULL, &version) == CUDA_SUCCESS &&
           !vp_copy_captured(stream);
}

/* Opens the memory that one copy of a batch needs, and returns whether it must be made in another way. */
static bool goes_apart(CUdeviceptr to, CUdeviceptr from, CUstream stream) {
    struct vp_copy_end dst = {.ptr = to}, src = {.ptr = from};
    const enum vp_copy_way way = vp_api_copy_way(stream, &dst, &src);
    return way != VP_COPY_AS_IT_IS && !vp_copy_is_left(way, stream);
}

/* Copies that are made one by one, `made`, if they have to go `apart`. */
#define VP_MAKE_APART(symbol, stream, apart, made, ...)                                                                \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        VP_WORKS(stream);                                                                                              \
        return vp_api_copies_matter() && apart ? made : VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                        \
    }

/* ---- ranges ---- */

/* Checks all copies: each opens the memory that it needs. */
static bool ranges_go_apart(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                            CUstream stream) {
    bool apart = false, ours = vp_door_enter();
    for (size_t i = 0; ours && dsts && srcs && sizes && i < count; i++)
        apart |= goes_apart(dsts[i], srcs[i], stream);
    vp_door_leave();
    return apart;
}

/* Is any of it to be read before the call returns? */
static bool reads_at_once(const struct CUmemcpyAttributes_st *attributes, size_t kinds) {
    for (size_t i = 0; attributes && i < kinds; i++)
        if (attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
            return true;
    return false;
}

static CUresult copy_range(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    struct vp_copy copy = vp_copy_of_range(dst, src, bytes, stream);
    CUresult res;
    return vp_copy_translated(&copy, &res) ? res : VP_REAL(cuMemcpyAsync)(dst, src, bytes, stream);
}

static CUresult copy_ranges(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                            bool at_once, size_t *failed, CUstream stream) {
    const struct vp_entered entered = vp_copy_enter(stream); /* a batch does not mind what is current */
    CUresult res = entered.refused;
    for (size_t i = 0; i < count && res == CUDA_SUCCESS; i++) {
        res = copy_range(dsts[i], srcs[i], sizes[i], stream);
        if (res != CUDA_SUCCESS && failed)
            *failed = i;
    }
    vp_api_context_leave(entered);
    return finish_batch(res, at_once, stream);
}

#define VP_MAKE_BATCH(symbol, like, attributes, kinds, failed, stream, ...)                                            \
    VP_MAKE_APART(symbol, stream, takes_batches(stream) && ranges_go_apart(a, b, c, d, stream),                        \
                  copy_ranges(a, b, c, d, reads_at_once(attributes, kinds), failed, stream), __VA_ARGS__)

/* A single copy may be queued on the legacy stream, under either name. */
static CUstream legacy(CUstream stream) {
    return stream ? stream : CU_STREAM_LEGACY;
}

#define VP_MAKE_ONE_RANGE(symbol, like, stream, ...)                                                                   \
    VP_MAKE_APART(symbol, stream, d != NULL && ranges_go_apart(&a, &b, &c, 1, legacy(stream)),                         \
                  copy_ranges(&a, &b, &c, 1, reads_at_once(d, 1), NULL, legacy(stream)), __VA_ARGS__)

/* ---- slices ---- */

static CUdeviceptr slice_end(const CUmemcpy3DOperand *operand) {
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER ? operand->op.ptr.ptr : 0;
}

static bool slices_go_apart(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count, CUstream stream) {
    bool apart = false, ours = vp_door_enter();
    for (size_t i = 0; ours && ops && i < count; i++)
        apart |= goes_apart(slice_end(&ops[i].dst), slice_end(&ops[i].src), stream);
    vp_door_leave();
    return apart;
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

static CUresult queue_slice(const CUDA_MEMCPY3D *p, CUstream stream) {
    struct vp_copy copy = vp_copy_of_slices(p, stream);
    CUresult res;
    return vp_copy_translated(&copy, &res) ? res : VP_REAL(cuMemcpy3DAsync_v2)(p, stream);
}

/* An array whose elements are not known cannot be copied so. */
static CUresult copy_slice(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream) {
    const CUmemcpy3DOperand *dst = &op->dst, *src = &op->src;
    const size_t to = element_of(dst), from = element_of(src), element = to > from ? to : from;
    const size_t width = op->extent.width * element;
    CUDA_MEMCPY3D p = {.WidthInBytes = width, .Height = op->extent.height, .Depth = op->extent.depth};
    if (!to || !from)
        return CUDA_ERROR_NOT_SUPPORTED;
#define SIDE(side)                                                                                                     \
    if (side->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {                                                                \
        p.side##MemoryType = CU_MEMORYTYPE_UNIFIED;                                                                    \
        p.side##Device = side->op.ptr.ptr;                                                                             \
        p.side##Pitch = side->op.ptr.rowLength ? side->op.ptr.rowLength * element : width;                             \
        p.side##Height = side->op.ptr.layerHeight ? side->op.ptr.layerHeight : op->extent.height;                      \
    } else {                                                                                                           \
        p.side##MemoryType = CU_MEMORYTYPE_ARRAY;                                                                      \
        p.side##Array = side->op.array.array;                                                                          \
        p.side##XInBytes = side->op.array.offset.x * element;                                                          \
        p.side##Y = side->op.array.offset.y;                                                                           \
        p.side##Z = side->op.array.offset.z;                                                                           \
    }
    SIDE(dst)
    SIDE(src)
#undef SIDE
    return queue_slice(&p, stream);
}

static CUresult copy_slices(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count, size_t *failed, CUstream stream) {
    const struct vp_entered entered = vp_copy_enter(stream);
    CUresult res = entered.refused;
    bool at_once = false;
    for (size_t i = 0; i < count && res == CUDA_SUCCESS; i++) {
        at_once |= ops[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
        res = copy_slice(&ops[i], stream);
        if (res != CUDA_SUCCESS && failed)
            *failed = i;
    }
    vp_api_context_leave(entered);
    return finish_batch(res, at_once, stream);
}

#define VP_MAKE_SLICES(symbol, like, failed, stream, ...)                                                              \
    VP_MAKE_APART(symbol, stream, takes_batches(stream) && slices_go_apart(b, a, stream),                              \
                  copy_slices(b, a, failed, stream), __VA_ARGS__)

#define VP_MAKE_ONE_SLICE(symbol, like, stream, ...)                                                                   \
    VP_MAKE_APART(symbol, stream, a && !b && slices_go_apart(a, 1, legacy(stream)),                                    \
                  copy_slices(a, 1, NULL, legacy(stream)), __VA_ARGS__)

VP_DOORS_BATCH(VP_MAKE)
