/* Serves a trace as CUDA itself would: each block is its own allocation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/replay/native.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

int vp_native_init(struct vp_native *n, void *handle, size_t blocks) {
    CUresult (*default_pool)(CUmemoryPool *, CUdevice);
    uint64_t all = UINT64_MAX, reset = 0;
    *n = (struct vp_native){.blocks = calloc(blocks, sizeof *n->blocks), .sizes = calloc(blocks, sizeof *n->sizes)};
#define SYMBOL(field, name) (*(void **)&field = dlsym(handle, name))
    bool found = SYMBOL(default_pool, "cuDeviceGetDefaultMemPool") && SYMBOL(n->alloc, "cuMemAllocAsync") &&
                 SYMBOL(n->free, "cuMemFreeAsync") && SYMBOL(n->get, "cuMemPoolGetAttribute") &&
                 SYMBOL(n->set, "cuMemPoolSetAttribute") && SYMBOL(n->trim, "cuMemPoolTrimTo");
#undef SYMBOL
    int err = !n->blocks || !n->sizes ? -ENOMEM : 0;
    if (!err && (!found || default_pool(&n->pool, 0) || n->set(n->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all) ||
                 n->trim(n->pool, 0) || n->set(n->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &reset)))
        err = -ENODEV;
    if (err)
        vp_native_finish(n);
    return err;
}

void vp_native_finish(struct vp_native *n) {
    if (n->pool)
        n->trim(n->pool, 0);
    free(n->blocks);
    free(n->sizes);
    *n = (struct vp_native){0};
}

int vp_native_alloc(struct vp_native *n, size_t block, size_t size, CUstream stream) {
    uint64_t begin = vp_clock_ns();
    CUresult res = n->alloc(&n->blocks[block], size, stream);
    n->ns += vp_clock_ns() - begin;
    if (res) {
        n->blocks[block] = 0;
        return res == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
    }
    n->sizes[block] = size;
    n->live_bytes += size;
    return 0;
}

bool vp_native_free(struct vp_native *n, size_t block, CUstream stream, int *err) {
    if (!n->blocks || !n->blocks[block])
        return false;
    uint64_t begin = vp_clock_ns();
    *err = n->free(n->blocks[block], stream) ? -EIO : 0;
    n->ns += vp_clock_ns() - begin;
    n->live_bytes -= n->sizes[block];
    n->blocks[block] = 0;
    return true;
}

size_t vp_native_peak(const struct vp_native *n) {
    uint64_t high = 0;
    return n->pool && !n->get(n->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &high) ? high : 0;
}
