/* The memory of a device as a whole: opened and closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/chunk.h"

#include "base/cancel.h"

#include <errno.h>

int vp_memory_attribute(const struct vp_memory *mem, CUdevice_attribute which) {
    int value = 0;
    return mem->drv->cuDeviceGetAttribute(&value, which, mem->device) ? 0 : value;
}

int vp_memory_init(struct vp_memory *mem) {
    mem->peers &= ~(UINT64_C(1) << mem->device);
    if (!vp_memory_attribute(mem, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return -EOPNOTSUPP;
    mem->prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = mem->device}};
    if (vp_memory_attribute(mem, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        mem->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (vp_memory_attribute(mem, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
        mem->prop.allocFlags.gpuDirectRDMACapable = mem->rdma;
        mem->no_rdma = !mem->rdma;
    }
    if ((mem->engine = vp_memory_attribute(mem, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK)))
        mem->prop.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
    if (mem->drv->cuMemGetAllocationGranularity(&mem->granularity, &mem->prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ||
        !mem->granularity || mem->granularity & (mem->granularity - 1))
        return -EOPNOTSUPP;
    mem->granularity_shift = (unsigned)__builtin_ctzl(mem->granularity);
    vp_list_init(&mem->spaces);
    vp_list_init(&mem->chunks);
    vp_list_init(&mem->spares);
    vp_list_init(&mem->zombies);
    vp_list_init(&mem->indexes);
    vp_slab_init(&mem->region_slab, sizeof(struct vp_region));
    vp_slab_init(&mem->piece_slab, sizeof(struct vp_piece));
    mem->region_slab.many = mem->piece_slab.many = true;
    vp_slab_init(&mem->chunk_slab, sizeof(struct vp_chunk));
    vp_slab_init(&mem->mapping_slab, sizeof(struct vp_mapping));
    vp_slab_init(&mem->store_slab, sizeof(struct vp_stream_store));
    vp_slab_init(&mem->bins_slab, sizeof(struct vp_bins));
    int err = 0;
    for (int z = 0; z < VP_ZONES && !err; z++)
        err = vp_index_init(mem, &mem->met[z], NULL, z);
    for (int z = 0; z < VP_ZONES && !err; z++)
        err = vp_index_init(mem, &mem->mixed[z], NULL, z);
    if (err)
        vp_memory_finish(mem);
    return err;
}

static void give_back_all(struct vp_memory *mem) {
    struct vp_chunk *chunk, *next;
    struct vp_mapping *m, *next_m;
    struct vp_space *s;
    vp_list_each_safe(chunk, next, &mem->chunks, link) {
        for (m = chunk->mappings; m; m = next_m) {
            next_m = m->next;
            vp_chunk_unmap(mem, m);
        }
        if (!chunk->mappings)
            vp_chunk_destroy(mem, chunk);
    }
    vp_list_each_safe(chunk, next, &mem->spares, link)
        vp_chunk_destroy(mem, chunk);
    vp_list_each(s, &mem->spaces, link)
        if (s->reserved)
            mem->drv->cuMemAddressFree(s->base, s->reserved_size);
}

#define SLABS(mem)                                                                                                     \
    {&(mem)->region_slab,  &(mem)->piece_slab, &(mem)->chunk_slab,                                                     \
     &(mem)->mapping_slab, &(mem)->store_slab, &(mem)->bins_slab}

void vp_memory_finish(struct vp_memory *mem) {
    const struct vp_context *ctx;
    struct vp_timeline *timeline;
    struct vp_slab *slabs[] = SLABS(mem);
    give_back_all(mem);
    vp_list_each(ctx, &mem->timelines->contexts, link)
        vp_list_each(timeline, &ctx->timelines, of_context)
            if (ctx->device == mem->device)
                timeline->store = NULL;
    vp_spaces_free(mem);
    vp_table_finish(&mem->live);
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++)
        vp_slab_finish(slabs[i]);
}

size_t vp_memory_metadata(const struct vp_memory *mem) {
    const struct vp_slab *slabs[] = SLABS(mem);
    size_t bytes = vp_table_bytes(&mem->live);
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++)
        bytes += slabs[i]->bytes;
    return bytes;
}

bool vp_memory_ask_device(const struct vp_memory *mem, size_t *free_bytes, size_t *total) {
    const struct vp_driver *drv = mem->drv;
    CUdevice current;
    vp_cancel_hold();
    const bool other = drv->cuCtxGetDevice(&current) || current != mem->device;
    const struct vp_context *ctx = other ? vp_context_on(mem->timelines, mem->device) : NULL;
    const struct vp_entered entered = vp_context_enter(drv, ctx ? ctx->handle : NULL);
    const bool told = (ctx || !other) && !entered.refused && !drv->cuMemGetInfo_v2(free_bytes, total);
    vp_context_leave(drv, entered);
    return told;
}

size_t vp_memory_device_free(const struct vp_memory *mem) {
    const size_t held = mem->stats.held_bytes, most = mem->limit > held ? mem->limit - held : 0;
    size_t free_bytes, total;
    if (!vp_memory_ask_device(mem, &free_bytes, &total))
        return 0;
    return mem->limit && free_bytes > most ? most : free_bytes;
}

bool vp_memory_possible(struct vp_memory *mem, size_t bytes) {
    const size_t peak = mem->stats.peak_held_bytes, largest = mem->largest;
    struct vp_chunk *all;
    if (vp_memory_device_free(mem) >= bytes)
        return true;
    int err = vp_chunk_create(mem, bytes, false, &all);
    if (err) /* other errors are reported by whoever creates the chunks */
        return err != -ENOMEM;
    vp_chunk_destroy(mem, all);
    mem->stats.peak_held_bytes = peak;
    mem->largest = largest;
    return true;
}
