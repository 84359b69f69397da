/* Virtual memory management: reservations, physical handles, mappings.
 *
 * With the bytes backing a handle is a range of its device's memfd and a mapping is an mmap of it, so that
 * two mappings of one handle alias, and so that a touch before set-access or after unmap faults in the host
 * process as well. An exported handle moves to a memfd of its own, which other processes can map. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"
#include "sim.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* How much a process can reserve in all. Under a sanitizer the host has less room; callers halve the size and try
 * again. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define SPACE_LIMIT ((size_t)1 << 36)
#elif defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define SPACE_LIMIT ((size_t)1 << 43)
#else
#define SPACE_LIMIT ((size_t)1 << 46)
#endif

#define MIB (1024.0 * 1024.0)

static bool aligned(uint64_t value) {
    return value % sim.options.granularity == 0;
}

static struct sim_vmm_handle *handle_of(CUmemGenericAllocationHandle value) {
    return sim_handle_get(SIM_HANDLE, (void *)value);
}

/* ---- reservations ---- */

SIM_API(SIM_VMM, 10020, cuMemAddressReserve,
        (CUdeviceptr * out, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags),
        (out, size, alignment, hint, flags)) {
    if (!out || !size || !aligned(size) || flags || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (size > SPACE_LIMIT - sim.reserved_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (alignment < sim.options.granularity)
        alignment = sim.options.granularity;
    uintptr_t at = sim_space_reserve(size, alignment, (uintptr_t)hint);
    struct sim_reservation *reservation = at ? calloc(1, sizeof(*reservation)) : NULL;
    if (!reservation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    reservation->range = (struct sim_range){at, at + size};
    sim_range_insert(&sim.reservations, &reservation->range);
    sim.reserved_bytes += size;
    sim_cost(2000);
    *out = at;
    return CUDA_SUCCESS;
}

static void reservation_destroy(struct sim_reservation *reservation) {
    size_t size = reservation->range.end - reservation->range.start;
    munmap((void *)reservation->range.start, size);
    sim.reserved_bytes -= size;
    sim_range_remove(&sim.reservations, &reservation->range);
    free(reservation);
}

SIM_API(SIM_VMM | SIM_SURE, 10020, cuMemAddressFree, (CUdeviceptr at, size_t size), (at, size)) {
    struct sim_reservation *reservation = sim_range_find(&sim.reservations, (uintptr_t)at, (uintptr_t)at + 1);
    if (!reservation || reservation->range.start != at || reservation->range.end != at + size || reservation->maps)
        return CUDA_ERROR_INVALID_VALUE;
    reservation_destroy(reservation);
    sim_cost(2000);
    return CUDA_SUCCESS;
}

/* ---- handles ---- */

/* Only the form with a node is valid (seen on an H200: HOST itself is refused). */
static CUresult check_host(const CUmemAllocationProp *prop) {
    if (!sim.options.host)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && prop->location.id != SIM_HOST_NODE)
        return CUDA_ERROR_INVALID_DEVICE;
    return prop->requestedHandleTypes ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* A part of a device is the device where it is the only one (by the header of CUDA 13.4). */
static const CUmemAllocationProp *undivided(const CUmemAllocationProp *prop, CUmemAllocationProp *own) {
    if (!prop || sim.options.driver < 13040 || (int)prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
        return prop;
    *own = *prop;
    own->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return own;
}

static CUresult check_prop(const CUmemAllocationProp *prop) {
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
        prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
        return check_host(prop);
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return prop->location.type == CU_MEM_LOCATION_TYPE_HOST ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    if (!sim_device_ok(prop->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sim_has_vmm(prop->location.id))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

SIM_API(SIM_VMM, 10020, cuMemGetAllocationGranularity,
        (size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
        (granularity, prop, option)) {
    CUmemAllocationProp own;
    CUresult result = check_prop(undivided(prop, &own));
    if (!granularity || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_ERROR_INVALID_DEVICE) /* the result is the same for all devices */
        result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        *granularity = sim.options.granularity;
    return result;
}

/* Takes physical memory of the device, or of the host, which pins it. False: there is not that much left. */
static bool take(struct sim_device *dev, size_t size, bool host) {
    if (host) {
        if (size > sim.options.host - sim.host_bytes)
            return false;
        sim.host_bytes += size;
        return true;
    }
    if (!sim_phys_take(dev->ordinal, size)) {
        const bool late = sim_graph_memory_trim(dev->ordinal, SIZE_MAX);
        sim_pools_trim(dev->ordinal);
        if (late || !sim_phys_take(dev->ordinal, size))
            return false;
    }
    dev->used_vmm += size;
    return true;
}

static void give(const struct sim_vmm_handle *handle) {
    if (handle->host) {
        sim.host_bytes -= handle->size;
    } else if (!handle->imported) {
        sim_phys_give(handle->device, handle->size);
        sim.devices[handle->device].used_vmm -= handle->size;
    }
}

SIM_API(SIM_VMM, 10020, cuMemCreate,
        (CUmemGenericAllocationHandle * out, size_t size, const CUmemAllocationProp *prop, unsigned long long flags),
        (out, size, prop, flags)) {
    CUmemAllocationProp own;
    prop = undivided(prop, &own);
    CUresult result = check_prop(prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !size || !aligned(size) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    const bool host = prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    struct sim_device *dev = &sim.devices[host ? 0 : prop->location.id];
    sim_cost(host ? 200000 + (uint64_t)((double)size / MIB * 160000) : 7000 + (uint64_t)((double)size / MIB * 7));
    if (!take(dev, size, host))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_vmm_handle *handle = calloc(1, sizeof(*handle));
    if (!handle)
        abort();
    handle->host = host;
    handle->refs = 1;
    handle->device = dev->ordinal;
    handle->size = size;
    handle->prop = *prop;
    handle->memfd = -1;
    handle->offset = dev->next_offset;
    dev->next_offset += (off_t)size;
    *out = handle->value = (CUmemGenericAllocationHandle)sim_handle_new(SIM_HANDLE, handle);
    return CUDA_SUCCESS;
}

static void drop_range(const struct sim_vmm_handle *handle) {
    int memfd = sim.devices[handle->device].memfd;
    if (memfd >= 0 &&
        fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, handle->offset, (off_t)handle->size) < 0)
        perror("[sim] fallocate");
}

/* Releases physical memory when no reference and no mapping is left. */
static void handle_settle(struct sim_vmm_handle *handle) {
    if (handle->refs || handle->maps)
        return;
    if (handle->memfd >= 0)
        close(handle->memfd);
    else
        drop_range(handle);
    give(handle);
    free(handle);
}

static void handle_release(struct sim_vmm_handle *handle) {
    if (--handle->refs == 0)
        sim_handle_free(SIM_HANDLE, (void *)handle->value);
    handle_settle(handle);
}

SIM_API(SIM_VMM | SIM_SURE, 10020, cuMemRelease, (CUmemGenericAllocationHandle value), (value)) {
    struct sim_vmm_handle *handle = handle_of(value);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    sim_cost(handle->host ? 40000 + (uint64_t)((double)handle->size / MIB * 15000)
                          : 10000 + (uint64_t)((double)handle->size / MIB * 225));
    handle_release(handle);
    return CUDA_SUCCESS;
}

SIM_API(SIM_VMM, 11000, cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * out, void *at), (out, at)) {
    struct sim_mapping *mapping = sim_range_find(&sim.mappings, (uintptr_t)at, (uintptr_t)at + 1);
    if (!out || !mapping)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_vmm_handle *handle = mapping->handle;
    if (handle->refs++ == 0)
        handle->value = (CUmemGenericAllocationHandle)sim_handle_new(SIM_HANDLE, handle);
    *out = handle->value;
    return CUDA_SUCCESS;
}

SIM_API(SIM_VMM, 10020, cuMemGetAllocationPropertiesFromHandle,
        (CUmemAllocationProp * prop, CUmemGenericAllocationHandle value), (prop, value)) {
    struct sim_vmm_handle *handle = handle_of(value);
    if (!handle || !prop)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = handle->prop;
    return CUDA_SUCCESS;
}

/* ---- mappings ---- */

/* Puts the bytes of a handle behind an address. */
static bool back(uintptr_t start, const struct sim_vmm_handle *handle, int access) {
    bool own = handle->memfd >= 0;
    return mmap((void *)start, handle->size, access, MAP_SHARED | MAP_FIXED,
                own ? handle->memfd : sim.devices[handle->device].memfd, own ? 0 : handle->offset) != MAP_FAILED;
}

static int host_access(const struct sim_mapping *mapping) {
    return mapping->writable ? PROT_READ | PROT_WRITE : mapping->readable ? PROT_READ : PROT_NONE;
}

SIM_API(SIM_VMM, 10020, cuMemMap,
        (CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle value, unsigned long long flags),
        (at, size, offset, value, flags)) {
    uintptr_t start = (uintptr_t)at, end = start + size;
    struct sim_vmm_handle *handle = handle_of(value);
    if (!handle || !size || flags || !aligned(at) || !aligned(size))
        return CUDA_ERROR_INVALID_VALUE;
    if (offset || size != handle->size)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_reservation *reservation = sim_range_find(&sim.reservations, start, start + 1);
    if (!reservation || end > reservation->range.end || sim_range_find(&sim.mappings, start, end))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_mapping *mapping = calloc(1, sizeof(*mapping));
    if (!mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* The host's limit on mappings has the same effect here as a lack of page tables on the device. */
    if (!sim.options.ledger && !back(start, handle, PROT_NONE)) {
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mapping->range = (struct sim_range){start, end};
    mapping->handle = handle;
    mapping->reservation = reservation;
    mapping->id = ++sim.next_id;
    handle->maps++;
    LIST_INSERT_HEAD(&handle->mappings, mapping, link);
    reservation->maps++;
    sim_range_insert(&sim.mappings, &mapping->range);
    sim_cost(handle->prop.allocFlags.gpuDirectRDMACapable ? 4500 : 500);
    return CUDA_SUCCESS;
}

static void mapping_destroy(struct sim_mapping *mapping) {
    uintptr_t start = mapping->range.start, end = mapping->range.end;
    if (!sim.options.ledger && mmap((void *)start, end - start, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        perror("[sim] unmap");
    sim_range_remove(&sim.mappings, &mapping->range);
    LIST_REMOVE(mapping, link);
    mapping->reservation->maps--;
    mapping->handle->maps--;
    handle_settle(mapping->handle);
    free(mapping);
}

/* True when whole mappings cover exactly [start, end). The real cuMemUnmap cuts no mapping either, but passes
 * over holes; here a hole is refused, since an allocator that unmaps one has lost count of its mappings. */
static bool covered_exactly(uintptr_t start, uintptr_t end) {
    while (start < end) {
        struct sim_mapping *mapping = sim_range_find(&sim.mappings, start, start + 1);
        if (!mapping || mapping->range.start != start || mapping->range.end > end)
            return false;
        start = mapping->range.end;
    }
    return start == end;
}

SIM_API(SIM_VMM | SIM_SURE, 10020, cuMemUnmap, (CUdeviceptr at, size_t size), (at, size)) {
    uintptr_t start = (uintptr_t)at, end = start + size;
    if (!size || !covered_exactly(start, end))
        return CUDA_ERROR_INVALID_VALUE;
    sim_check_unused(start, end, "unmap");
    while (start < end) {
        struct sim_mapping *mapping = sim_range_find(&sim.mappings, start, start + 1);
        start = mapping->range.end;
        mapping_destroy(mapping);
        sim_cost(15000);
    }
    return CUDA_SUCCESS;
}

bool sim_is_host_vmm(uintptr_t start, size_t bytes) {
    for (uintptr_t end = start + bytes; start < end;) {
        const struct sim_mapping *mapping = sim_range_find(&sim.mappings, start, start + 1);
        if (!mapping)
            return false;
        if (mapping->handle->host)
            return true;
        start = mapping->range.end;
    }
    return false;
}

/* May this location be given access to mapped memory? The host itself may only access its own. */
static CUresult check_access(const CUmemAccessDesc *desc, uintptr_t start, uintptr_t end) {
    const bool device = desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (!device && desc->location.type != CU_MEM_LOCATION_TYPE_HOST &&
        desc->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (device && !sim_device_ok(desc->location.id))
        return CUDA_ERROR_INVALID_VALUE;
    while (start < end) {
        const struct sim_mapping *mapping = sim_range_find(&sim.mappings, start, start + 1);
        if (!device && !mapping->handle->host)
            return CUDA_ERROR_NOT_SUPPORTED;
        if (device && (!sim_has_vmm(desc->location.id) ||
                       (!mapping->handle->host && !sim_device_reaches(desc->location.id, mapping->handle->device))))
            return CUDA_ERROR_INVALID_DEVICE;
        start = mapping->range.end;
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_VMM, 10020, cuMemSetAccess, (CUdeviceptr at, size_t size, const CUmemAccessDesc *desc, size_t count),
        (at, size, desc, count)) {
    uintptr_t start = (uintptr_t)at, end = start + size;
    if (!size || !desc || !count || !covered_exactly(start, end))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult result = check_access(&desc[i], start, end);
        if (result != CUDA_SUCCESS)
            return result;
    }
    while (start < end) {
        struct sim_mapping *mapping = sim_range_find(&sim.mappings, start, start + 1);
        for (size_t i = 0; i < count; i++) {
            unsigned bit = desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE ? 1u << desc[i].location.id
                                                                                : 1u << SIM_MAX_DEVICES;
            mapping->readable &= ~bit;
            mapping->writable &= ~bit;
            if (desc[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
                mapping->readable |= bit;
            if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                mapping->writable |= bit;
        }
        size_t bytes = mapping->range.end - start;
        if (!sim.options.ledger && mprotect((void *)start, bytes, host_access(mapping)) < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        start = mapping->range.end;
        sim_cost(22000 + (uint64_t)((double)bytes / MIB * (mapping->handle->host ? 7000 : 40)));
    }
    return CUDA_SUCCESS;
}

SIM_API(SIM_VMM | SIM_SURE, 10020, cuMemGetAccess,
        (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr at), (flags, location, at)) {
    struct sim_mapping *mapping = sim_range_find(&sim.mappings, (uintptr_t)at, (uintptr_t)at + 1);
    const struct sim_block *block = mapping ? NULL : sim_block_find((uintptr_t)at);
    if (flags && location && block && block->kind < SIM_BLOCK_HOST && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
        location->id == block->device) {
        *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE; /* no access was set */
        return CUDA_SUCCESS;
    }
    if (!flags || !location || !mapping || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !sim_device_ok(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned bit = 1u << location->id;
    *flags = mapping->writable & bit   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : mapping->readable & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                       : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

SIM_EXPORT int vp_sim_access(CUdeviceptr at, int device) {
    pthread_mutex_lock(&sim.lock);
    const struct sim_mapping *mapping = sim_range_find(&sim.mappings, (uintptr_t)at, (uintptr_t)at + 1);
    const unsigned bit = 1u << device;
    const int access = !mapping ? -1 : mapping->writable & bit ? 3 : mapping->readable & bit ? 1 : 0;
    pthread_mutex_unlock(&sim.lock);
    return access;
}

/* ---- sharing ---- */

/* The label at the end of an exported handle's file: what the importing process must know of it. */
struct label {
    char magic[8];
    size_t size;
    CUmemAllocationProp prop;
};

static const char label_magic[8] = "simchunk";

/* Copies between files. Where the source has holes, the target keeps its own. */
static bool copy_file(int to, int from, off_t offset, size_t size) {
    static char buffer[1 << 16];
    for (size_t done = 0; done < size;) {
        off_t data = lseek(from, offset + (off_t)done, SEEK_DATA);
        if (data < 0 || data >= offset + (off_t)size)
            return true;
        done = (size_t)(data - offset);
        size_t bytes = size - done < sizeof(buffer) ? size - done : sizeof(buffer);
        if (pread(from, buffer, bytes, data) != (ssize_t)bytes ||
            pwrite(to, buffer, bytes, (off_t)done) != (ssize_t)bytes)
            return false;
        done += bytes;
    }
    return true;
}

/* Gives the handle a file of its own, which all its mappings show from now on. */
static bool move_out(struct sim_vmm_handle *handle) {
    struct label label = {.size = handle->size, .prop = handle->prop};
    label.prop.location.id = sim.devices[handle->device].physical;
    struct sim_mapping *mapping;
    memcpy(label.magic, label_magic, sizeof(label_magic));
    int memfd = memfd_create("vpool-sim-handle", MFD_CLOEXEC);
    if (memfd < 0)
        return false;
    if (pwrite(memfd, &label, sizeof(label), (off_t)handle->size) != (ssize_t)sizeof(label) ||
        (!sim.options.ledger && !copy_file(memfd, sim.devices[handle->device].memfd, handle->offset, handle->size))) {
        close(memfd);
        return false;
    }
    handle->memfd = memfd;
    drop_range(handle);
    LIST_FOREACH(mapping, &handle->mappings, link)
    if (!sim.options.ledger && !back(mapping->range.start, handle, host_access(mapping)))
        perror("[sim] export");
    return true;
}

SIM_API(SIM_VMM, 10020, cuMemExportToShareableHandle,
        (void *out, CUmemGenericAllocationHandle value, CUmemAllocationHandleType type, unsigned long long flags),
        (out, value, type, flags)) {
    struct sim_vmm_handle *handle = handle_of(value);
    if (!out || !handle || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(handle->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_INVALID_VALUE;
    if (handle->memfd < 0 && !move_out(handle))
        return CUDA_ERROR_OPERATING_SYSTEM;
    /* No driver promises that the descriptor is closed on exec. */
    int fd = fcntl(handle->memfd, F_DUPFD, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

struct by_file {
    struct stat file;
    struct sim_vmm_handle *found;
};

static void match_file(void *item, void *arg) {
    struct by_file *by = arg;
    struct sim_vmm_handle *handle = item;
    struct stat file;
    if (handle->memfd >= 0 && fstat(handle->memfd, &file) == 0 && file.st_dev == by->file.st_dev &&
        file.st_ino == by->file.st_ino)
        by->found = handle;
}

SIM_API(SIM_VMM, 10020, cuMemImportFromShareableHandle,
        (CUmemGenericAllocationHandle * out, void *os_handle, CUmemAllocationHandleType type), (out, os_handle, type)) {
    int fd = (int)(intptr_t)os_handle;
    struct by_file by = {0};
    struct label label;
    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &by.file) < 0 ||
        by.file.st_size <= (off_t)sizeof(label) ||
        pread(fd, &label, sizeof(label), by.file.st_size - (off_t)sizeof(label)) != (ssize_t)sizeof(label) ||
        memcmp(label.magic, label_magic, sizeof(label_magic)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    label.prop.location.id = sim_device_at(label.prop.location.id);
    if (!sim_device_ok(label.prop.location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_handle_each(SIM_HANDLE, match_file, &by)
        ;
    if (by.found) {
        by.found->refs++;
        *out = by.found->value;
        return CUDA_SUCCESS;
    }
    int memfd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    struct sim_vmm_handle *handle = memfd >= 0 ? calloc(1, sizeof(*handle)) : NULL;
    if (!handle)
        return CUDA_ERROR_OPERATING_SYSTEM;
    handle->refs = 1;
    handle->device = label.prop.location.id;
    handle->size = label.size;
    handle->prop = label.prop;
    handle->memfd = memfd;
    handle->imported = true;
    *out = handle->value = (CUmemGenericAllocationHandle)sim_handle_new(SIM_HANDLE, handle);
    return CUDA_SUCCESS;
}

static void forget(void *item, void *arg) {
    struct sim_vmm_handle *handle = item;
    (void)arg;
    handle->refs = 1;
    handle_release(handle);
}

void sim_vmm_reset(void) {
    struct sim_mapping *mapping;
    struct sim_reservation *reservation;
    while ((mapping = sim_range_any(&sim.mappings)) != NULL)
        mapping_destroy(mapping);
    while ((reservation = sim_range_any(&sim.reservations)) != NULL)
        reservation_destroy(reservation);
    sim_handle_each(SIM_HANDLE, forget, NULL)
        ;
}
