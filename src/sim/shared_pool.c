/* Memory pools that are shared with other processes. The blocks of such a pool lie in a file of its own, and its handle
 * is a descriptor of that file; an importer maps the parts that it is told of. The pool gives no memory back to the
 * device before it ends, as CUDA's programming guide says. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pools.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The header before the blocks. */
struct label {
    char magic[16];
    int device;
};
static const char label_magic[16] = "vpool-sim-pool1";
#define FIRST 4096

/* The exported form of a block: its file, and its place there. */
struct pointer {
    dev_t device;
    ino_t file;
    off_t offset;
    uint64_t bytes, id;
};

static struct sim_pool *pool_of(CUmemoryPool handle) {
    return handle ? sim_handle_get(SIM_POOL, handle) : NULL;
}

static bool make_file(struct sim_pool *pool) {
    struct label label = {.device = sim.devices[pool->device].physical};
    memcpy(label.magic, label_magic, sizeof(label_magic));
    int memfd = pool->memfd ? 0 : memfd_create("vpool-sim-pool", MFD_CLOEXEC);
    if (memfd > 0 && pwrite(memfd, &label, sizeof(label), 0) == sizeof(label)) {
        pool->memfd = memfd;
        pool->next = FIRST;
    }
    return pool->memfd > 0;
}

static bool map(const struct sim_block *block, off_t offset) {
    return sim.options.ledger || mmap((void *)block->range.start, block->space, PROT_READ | PROT_WRITE,
                                      MAP_FIXED | MAP_SHARED, block->pool->memfd, offset) != MAP_FAILED;
}

void sim_shared_pool_back(struct sim_block *block) {
    struct sim_pool *pool = block->pool;
    if (!pool->exportable || !make_file(pool))
        return;
    block->offset = pool->next;
    pool->next += (off_t)block->space;
    if (ftruncate(pool->memfd, pool->next) || !map(block, block->offset))
        perror("[sim] a pool that can be exported");
}

void sim_shared_pool_close(struct sim_pool *pool) {
    if (pool->memfd > 0)
        close(pool->memfd);
}

SIM_API(SIM_SURE, 11020, cuMemPoolExportToShareableHandle,
        (void *out, CUmemoryPool handle, CUmemAllocationHandleType type, unsigned long long flags),
        (out, handle, type, flags)) {
    struct sim_pool *pool = pool_of(handle);
    if (!out || !pool || !pool->exportable || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = make_file(pool) ? fcntl(pool->memfd, F_DUPFD, 0) : -1;
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    pool->exported = true;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11020, cuMemPoolImportFromShareableHandle,
        (CUmemoryPool * out, void *handle, CUmemAllocationHandleType type, unsigned long long flags),
        (out, handle, type, flags)) {
    int fd = (int)(intptr_t)handle;
    struct label label;
    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags ||
        pread(fd, &label, sizeof(label), 0) != sizeof(label) ||
        memcmp(label.magic, label_magic, sizeof(label_magic)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    label.device = sim_device_at(label.device);
    if (!sim_device_ok(label.device))
        return CUDA_ERROR_INVALID_DEVICE;
    int memfd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (memfd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    struct sim_pool *pool = sim_pool_new(label.device, false);
    pool->imported = true;
    pool->memfd = memfd;
    *out = pool->handle;
    return CUDA_SUCCESS;
}

SIM_API(SIM_SURE, 11020, cuMemPoolExportPointer, (CUmemPoolPtrExportData * out, CUdeviceptr at), (out, at)) {
    const struct sim_block *block = sim_block_find((uintptr_t)at);
    struct stat file;
    if (!out || !block || block->kind != SIM_BLOCK_POOL || block->range.start != at || block->freeing ||
        !block->pool->exported || fstat(block->pool->memfd, &file))
        return CUDA_ERROR_INVALID_VALUE;
    struct pointer pointer = {file.st_dev, file.st_ino, block->offset, block->range.end - block->range.start,
                              block->id};
    memset(out, 0, sizeof(*out));
    memcpy(out, &pointer, sizeof(pointer));
    return CUDA_SUCCESS;
}

SIM_API(0, 11020, cuMemPoolImportPointer, (CUdeviceptr * out, CUmemoryPool handle, CUmemPoolPtrExportData *data),
        (out, handle, data)) {
    struct sim_pool *pool = pool_of(handle);
    struct sim_block *block;
    struct pointer pointer;
    struct stat file;
    if (!out || !data || !pool || !pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&pointer, data, sizeof(pointer));
    if (fstat(pool->memfd, &file) || file.st_dev != pointer.device || file.st_ino != pointer.file ||
        pointer.offset + (off_t)pointer.bytes > file.st_size)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_block_new(SIM_BLOCK_POOL, NULL, pool->device, pointer.bytes, &block);
    if (result != CUDA_SUCCESS)
        return result;
    /* The memory belongs to the exporter. */
    sim_phys_give(pool->device, block->phys);
    block->phys = 0;
    block->pool = pool;
    pool->live++;
    pool->used += pointer.bytes;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (!map(block, pointer.offset))
        perror("[sim] memory of an imported pool");
    *out = block->range.start;
    return CUDA_SUCCESS;
}
