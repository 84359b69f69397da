/* What takes memory of the device without being a block of it: arrays, whose bytes copies find in ordinary memory of
 * the simulator, and the code of modules, with which nothing can be done but to give it back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"

#include <stdlib.h>

/* What loading a module takes, whatever lies in it. */
#define MODULE_BYTES ((size_t)2 << 20)

struct taken {
    struct sim_context *context;
    enum sim_handle_kind kind;
    void *handle;
    size_t bytes;
    char *data; /* of an array; NULL: there is none */
    size_t row; /* bytes */
};

static CUresult take(enum sim_handle_kind kind, size_t bytes, void **out) {
    CUresult why;
    struct sim_context *context = sim_current(&why);
    if (!context)
        return why;
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
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
    /* As the real one, it waits for the device. */
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
    /* Each element as the widest that there are. */
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

SIM_API(SIM_SURE, 2000, cuModuleUnload, (CUmodule module), (module)) {
    return give(SIM_MODULE, module);
}
