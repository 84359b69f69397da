/* xla_cuda_plugin.so: what XLA's allocator of cuda_async does as it begins, and later. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "xla_plugin.h"

unsigned long long xla_preallocates(CUmemoryPool pool, unsigned long long threshold) {
    cuuint64_t asked = threshold;

    if (cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &asked) || asked != threshold ||
        cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &asked))
        return 1;
    return asked;
}

CUresult xla_allocates(CUmemoryPool pool, CUstream stream, CUdeviceptr *ptr) {
    return cuMemAllocFromPoolAsync(ptr, 1 << 20, pool, stream);
}

CUresult xla_frees(CUdeviceptr ptr, CUstream stream) {
    return cuMemFreeAsync(ptr, stream);
}
