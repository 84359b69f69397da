/* What takes device memory without being a block: arrays, whose bytes copies find in ordinary memory of the simulator;
 * the code of modules, whose functions do nothing or one thing; and what a context needs to run them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nodes.h"

#include <stdlib.h>
#include <string.h>

/* The memory that loading a module takes, whatever it contains. */
#define MODULE_BYTES ((size_t)2 << 20)

/* The local memory of a context's threads, which the driver takes when the context runs its first function. */
#define LOCAL_BYTES ((size_t)2 << 20)

struct taken {
    struct sim_context *context;
    enum sim_handle_kind kind;
    void *handle;
    size_t bytes;
    char *data; /* of an array; NULL: it has none */
    size_t row; /* bytes */
};

static CUresult take_in(struct sim_context *context, enum sim_handle_kind kind, size_t bytes, void **out) {
    size_t phys = sim_block_phys(bytes);
    if (!sim_phys_take(context->device, phys))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct taken *taken = malloc(sizeof(*taken));
    if (!taken)
        abort();
    *out = sim_handle_new(kind, taken);
    *taken = (struct taken){.context = context, .kind = kind, .handle = *out, .bytes = phys};
    return CUDA_SUCCESS;
}

static CUresult take(enum sim_handle_kind kind, size_t bytes, void **out) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    if (!context)
        return why;
    CUresult result = sim_capture_unsafe();
    return result == CUDA_SUCCESS ? take_in(context, kind, bytes, out) : result;
}

static void end(struct taken *taken) {
    sim_handle_free(taken->kind, taken->handle);
    sim_phys_give(taken->context->device, taken->bytes);
    free(taken->data);
    free(taken);
}

static CUresult give(enum sim_handle_kind kind, void *handle) {
    struct taken *taken = sim_handle_get(kind, handle);
    if (!taken)
        return CUDA_ERROR_INVALID_HANDLE;
    /* Like the real driver, this waits for the device. */
    CUresult result = sim_op_wait_put(sim_barrier_device(taken->context->device));
    if (result == CUDA_SUCCESS)
        end(taken);
    return result;
}

static void end_of(void *item, void *context) {
    struct taken *taken = item;
    if (taken->context == context)
        end(taken);
}

void sim_code_end(struct sim_context *context) {
    sim_handle_each(SIM_ARRAY, end_of, context)
        ;
    sim_handle_each(SIM_MODULE, end_of, context)
        ;
    context->local = NULL;
}

static size_t element_size(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2;
    default: return 4;
    }
}

uintptr_t sim_array_at(CUarray array, size_t *row) {
    const struct taken *taken = sim_handle_get(SIM_ARRAY, array);
    *row = taken ? taken->row : 0;
    return taken ? (uintptr_t)taken->data : 0;
}

SIM_API(0, 3020, cuArrayCreate_v2, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR *desc), (out, desc)) {
    if (!out || !desc || !desc->Width || !desc->NumChannels)
        return CUDA_ERROR_INVALID_VALUE;
    /* Each element counts as the widest kind. */
    const size_t elements = desc->Width * (desc->Height ? desc->Height : 1) * desc->NumChannels;
    CUresult result = take(SIM_ARRAY, elements * 4, (void **)out);
    struct taken *taken = result == CUDA_SUCCESS ? sim_handle_get(SIM_ARRAY, *out) : NULL;
    if (taken && !sim.options.ledger) {
        taken->row = desc->Width * desc->NumChannels * element_size(desc->Format);
        taken->data = calloc(elements, 4);
    }
    return result;
}

SIM_API(SIM_SURE, 2000, cuArrayDestroy, (CUarray array), (array)) {
    return give(SIM_ARRAY, array);
}

SIM_API(0, 2000, cuModuleLoadData, (CUmodule * out, const void *image), (out, image)) {
    return out && image ? take(SIM_MODULE, MODULE_BYTES, (void **)out) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(0, 2000, cuModuleLoadFatBinary, (CUmodule * out, const void *image), (out, image)) {
    return out && image ? take(SIM_MODULE, MODULE_BYTES, (void **)out) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(0, 2010, cuModuleLoadDataEx,
        (CUmodule * out, const void *image, unsigned int count, CUjit_option *options, void **values),
        (out, image, count, options, values)) {
    if (!out || !image || (count && (!options || !values)))
        return CUDA_ERROR_INVALID_VALUE;
    return take(SIM_MODULE, MODULE_BYTES, (void **)out);
}

SIM_API(SIM_SURE, 2000, cuModuleUnload, (CUmodule module), (module)) {
    return give(SIM_MODULE, module);
}

/* Functions do nothing, except one of this name: it writes its third parameter, a byte, to as many bytes as the second
 * says, from the address in the first on. */
#define FILLS "vp_fill"
enum { FILL_FUNCTION = 8 }; /* beside the module's handle */

static struct taken *module_of(CUfunction function) {
    return sim_handle_get(SIM_MODULE, (void *)((uintptr_t)function & ~(uintptr_t)FILL_FUNCTION));
}

SIM_API(SIM_SURE, 2000, cuModuleGetFunction, (CUfunction * out, CUmodule module, const char *name),
        (out, module, name)) {
    if (!out || !name)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUfunction)((uintptr_t)module | (strcmp(name, FILLS) ? 0 : FILL_FUNCTION));
    return sim_handle_get(SIM_MODULE, module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_kernel_of(CUfunction function, const unsigned *shape, void **params, struct sim_op **out) {
    const struct taken *module = module_of(function);
    const bool fills = (uintptr_t)function & FILL_FUNCTION;
    for (int i = 0; i < 6; i++)
        if (!shape[i])
            return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    if (fills && !params)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = *out = sim_op_new(SIM_OP_KERNEL);
    op->kernel.function = function;
    memcpy(op->kernel.grid, shape, sizeof(op->kernel.grid));
    memcpy(op->kernel.threads, shape + 3, sizeof(op->kernel.threads));
    op->kernel.by = module->context;
    if (fills) {
        op->kernel.at = *(const CUdeviceptr *)params[0];
        op->kernel.bytes = *(const uint64_t *)params[1];
        op->kernel.value = *(const uint32_t *)params[2];
    }
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, const unsigned *shape, CUstream handle, void **params) {
    struct sim_stream *stream;
    struct sim_op *op;
    CUresult result = sim_stream_for_work(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_kernel_of(function, shape, params, &op);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_context *context = stream->context;
    if (!stream->capture && !context->local)
        result = take_in(context, SIM_MODULE, LOCAL_BYTES, &context->local);
    if (result == CUDA_SUCCESS)
        sim_op_enqueue(stream, op);
    else
        sim_op_put(op);
    return result;
}

SIM_STREAM_API(_ptsz, 0, 4000, cuLaunchKernel,
               (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params, void **extra),
               (function, gx, gy, gz, bx, by, bz, shared, stream, params, extra)) {
    return launch(function, (unsigned[]){gx, gy, gz, bx, by, bz}, stream, params);
}

SIM_STREAM_API(_ptsz, 0, 9000, cuLaunchCooperativeKernel,
               (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params),
               (function, gx, gy, gz, bx, by, bz, shared, stream, params)) {
    return launch(function, (unsigned[]){gx, gy, gz, bx, by, bz}, stream, params);
}

SIM_STREAM_API(_ptsz, 0, 11060, cuLaunchKernelEx,
               (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
               (config, function, params, extra)) {
    return config ? launch(function,
                           (unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                                        config->blockDimY, config->blockDimZ},
                           config->hStream, params)
                  : CUDA_ERROR_INVALID_VALUE;
}

/* Functions do nothing, so no bit of the map is ever read. */
SIM_API(SIM_SURE, 12000, cuTensorMapEncodeTiled,
        (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *at, const cuuint64_t *sizes,
         const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave,
         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill),
        (map, type, rank, at, sizes, strides, box, steps, interleave, swizzle, l2, fill)) {
    if (!map || !at || (uintptr_t)at % 16 || !rank || rank > 5 || !sizes || (rank > 1 && !strides) || !box || !steps)
        return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof(*map));
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 2020, cuFuncGetAttribute, (int *value, CUfunction_attribute which, CUfunction function),
        (value, which, function)) {
    if (!value || which < 0 || which >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return module_of(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API(SIM_SURE, 9000, cuFuncSetAttribute, (CUfunction function, CUfunction_attribute which, int value),
        (function, which, value)) {
    if (which < 0 || which >= CU_FUNC_ATTRIBUTE_MAX || value < 0)
        return CUDA_ERROR_INVALID_VALUE;
    return module_of(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API(SIM_SURE, 3000, cuFuncSetCacheConfig, (CUfunction function, CUfunc_cache config), (function, config)) {
    (void)config;
    return module_of(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
