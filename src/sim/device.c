/* Devices, their attributes, and the list of what is still alive. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"
#include "sim.h"

#include <string.h>
#include <unistd.h>

SIM_API(SIM_EARLY | SIM_SURE, 2020, cuDriverGetVersion, (int *version), (version)) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sim.options.driver;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 2000, cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal)) {
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 2000, cuDeviceGetCount, (int *count), (count)) {
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sim.device_count;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 2000, cuDeviceGetName, (char *name, int size, CUdevice device), (name, size, device)) {
    if (!name || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)size, "vpool simulated GPU");
    return CUDA_SUCCESS;
}

static CUresult uuid_of(CUuuid *uuid, CUdevice device) {
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    /* Devices of processes that share them have the same identity; so have those of processes that were started
     * together. Others' devices with the same numbers differ. */
    uint64_t whose = 14695981039346656037u;
    for (const char *at = sim.options.shared; *at; at++)
        whose = (whose ^ (unsigned char)*at) * 1099511628211u;
    if (!sim.options.shared[0])
        whose = (uint64_t)getsid(0);
    memcpy(uuid->bytes, "sim gpu", 7);
    memcpy(uuid->bytes + 7, &whose, sizeof(whose));
    uuid->bytes[15] = (char)('0' + sim.devices[device].physical);
    return CUDA_SUCCESS;
}

#undef cuDeviceGetUuid
SIM_API(SIM_SURE, 9020, cuDeviceGetUuid, (CUuuid * uuid, CUdevice device), (uuid, device)) {
    return uuid_of(uuid, device);
}

SIM_API(SIM_SURE, 11040, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device), (uuid, device)) {
    return uuid_of(uuid, device);
}

SIM_API(SIM_SURE, 3020, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device), (bytes, device)) {
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sim_capacity(device);
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 4010, cuDeviceGetPCIBusId, (char *id, int size, CUdevice device), (id, size, device)) {
    if (!id || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(id, (size_t)size, "0000:%02x:00.0", sim.devices[device].physical + 1);
    return CUDA_SUCCESS;
}

/* Attributes that are not listed answer 0. */
static int attribute(CUdevice_attribute which, CUdevice device) {
    bool vmm = sim_has_vmm(device);
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: /* pools need this attribute */
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: return vmm;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return vmm && sim.options.host;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: return SIM_HOST_NODE;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: return 0;
    case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK:
        return sim.options.decompress ? CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY : CU_MEM_DECOMPRESS_UNSUPPORTED;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 132;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: return 32;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: return 512;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return sim.devices[device].physical + 1;
    default: return 0;
    }
}

SIM_API(SIM_SURE, 2000, cuDeviceGetAttribute, (int *value, CUdevice_attribute which, CUdevice device),
        (value, which, device)) {
    if (!value || which <= 0 || which >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute(which, device);
    return CUDA_SUCCESS;
}

/* ---- what still lives ---- */

struct report {
    FILE *out;
    size_t count;
};

static void report(struct report *report, const char *what, unsigned long at, unsigned long bytes) {
    report->count++;
    if (report->out)
        fprintf(report->out, "[sim] alive: %s %#lx, %lu bytes\n", what, at, bytes);
}

static void report_range(const struct sim_range *range, void *arg, const char *what) {
    report(arg, what, range->start, range->end - range->start);
}

static void report_reservation(void *item, void *arg) {
    report_range(item, arg, "reservation");
}

static void report_mapping(void *item, void *arg) {
    report_range(item, arg, "mapping");
}

static void report_block(void *item, void *arg) {
    static const char *const names[] = {"device allocation",  "stream-ordered allocation", "graph memory",
                                        "managed allocation", "host allocation",           "registered host memory"};
    report_range(item, arg, names[((const struct sim_block *)item)->kind]);
}

static void report_handle(void *item, void *arg) {
    const struct sim_vmm_handle *handle = item;
    report(arg, "memory handle", (unsigned long)handle->value, handle->size);
}

static void report_stream(void *item, void *arg) {
    report(arg, "stream", (unsigned long)((struct sim_stream *)item)->handle, 0);
}

static void report_event(void *item, void *arg) {
    report(arg, "event", (unsigned long)((struct sim_event *)item)->handle, 0);
}

static void report_graph(void *item, void *arg) {
    report(arg, "graph", (unsigned long)((struct sim_graph *)item)->handle, 0);
}

static void report_exec(void *item, void *arg) {
    (void)item;
    report(arg, "executable graph", 0, 0);
}

SIM_EXPORT size_t vp_sim_leaks(FILE *out) {
    struct report list = {out, 0};
    pthread_mutex_lock(&sim.lock);
    sim_range_each(sim.mappings, report_mapping, &list);
    sim_range_each(sim.reservations, report_reservation, &list);
    sim_range_each(sim.blocks, report_block, &list);
    sim_handle_each(SIM_HANDLE, report_handle, &list)
        ;
    sim_handle_each(SIM_STREAM, report_stream, &list)
        ;
    sim_handle_each(SIM_EVENT, report_event, &list)
        ;
    sim_handle_each(SIM_GRAPH, report_graph, &list)
        ;
    sim_handle_each(SIM_EXEC, report_exec, &list)
        ;
    pthread_mutex_unlock(&sim.lock);
    return list.count;
}
