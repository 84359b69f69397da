/* CUDA's own stream-ordered pool, for what a policy leaves to CUDA: under `native`, everything. Only on a real device:
 * the simulated driver's pool reuses a freed block only for exactly its own size, so what it would hold says nothing
 * about CUDA's pool. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "driver/driver.h"

struct vp_native {
    CUmemoryPool pool;
    CUdeviceptr *blocks; /* by number; 0: not live here */
    size_t *sizes;
    size_t live_bytes;
    uint64_t ns; /* time spent in its calls */
    CUresult (*alloc)(CUdeviceptr *, size_t, CUstream);
    CUresult (*free)(CUdeviceptr, CUstream);
    CUresult (*get)(CUmemoryPool, CUmemPool_attribute, void *);
    CUresult (*set)(CUmemoryPool, CUmemPool_attribute, void *);
    CUresult (*trim)(CUmemoryPool, size_t);
};

/* Empties the default pool of device 0, and lets it keep all memory that it will get. `handle` is the driver library.
 * Block numbers are below `blocks`. 0, -ENOMEM or -ENODEV. */
int vp_native_init(struct vp_native *n, void *handle, size_t blocks);
void vp_native_finish(struct vp_native *n);

/* 0, -ENOMEM or -EIO. */
int vp_native_alloc(struct vp_native *n, size_t block, size_t size, CUstream stream);
/* False: the block is not of this pool. Otherwise `*err` is the error. */
bool vp_native_free(struct vp_native *n, size_t block, CUstream stream, int *err);
/* Returns the most bytes that the pool has held. */
size_t vp_native_peak(const struct vp_native *n);
