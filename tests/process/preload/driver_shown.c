/* Guests that show memory to other devices. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

static CUresult shown(CUdeviceptr ptr, size_t size) {
    int fd = -1;
    CUresult res = cuMemGetHandleForAddressRange(&fd, ptr, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

    CHECK(res != CUDA_SUCCESS || close(fd) == 0);
    return res;
}

/* Nor is freed memory shown to others, or set; a live block is, of any part. */
void freed_memory_is_not_shown(void) {
    const unsigned on = 1;
    CUdeviceptr small, large;

    start();
    CHECK_OK(cuMemAlloc(&small, 256 << 10));
    CHECK_OK(cuMemAlloc(&large, 64 * MIB));
    SHOW(shown(large, 64 * MIB));
    SHOW(shown(large + 2 * MIB, 4096));
    SHOW(shown(small, 256 << 10));
    SHOW(shown(small, 4096));
    CHECK_OK(cuMemFree(large));
    CHECK_OK(cuMemFree(small));
    SHOW(shown(large, 64 * MIB));
    SHOW(shown(large + 2 * MIB, 4096));
    SHOW(shown(small, 256 << 10));
    SHOW(shown(small, 4096));
    SHOW(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, large));
    SHOW(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, small));
}

/* xNVMe shows what is mapped where a block is, not the block. */
void what_is_mapped_can_be_shown(void) {
    static const size_t sizes[] = {1000, 1000, 100000, 3 * MIB, 3 * MIB + 5, 1000, 40 * MIB};
    CUdeviceptr ptr, base = 0;

    start();
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t size = 0;
        CHECK_OK(cuMemAlloc(&ptr, sizes[i]));
        CHECK_OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, ptr));
        CHECK_OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, ptr));
        SHOW(base <= ptr && ptr + sizes[i] <= base + size);
        SHOW(size);
        SHOW(shown(base, size));
    }
}
