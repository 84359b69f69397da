/* Questions about memory pools that other processes can be shown. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "driver_answers.h"

#include <stdint.h>

static void imported(CUmemoryPool pool, CUmemPoolPtrExportData *told) {
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemAccess_flags flags = (CUmemAccess_flags)0;
    cuuint64_t value = 0;
    CUdeviceptr p = 0;
    puts("# an imported pool");
    SAY(cuMemPoolImportPointer(&p, pool, told));
    SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    SAY(cuMemPoolTrimTo(pool, 0));
    SAY(cuMemAllocFromPoolAsync(&p, 512, pool, NULL));
    SAY(cuMemPoolGetAccess(&flags, pool, &location));
    printf("access: %d\n", flags);
    SAY(cuMemPoolDestroy(pool));
}

void shared(void) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemPoolPtrExportData told;
    CUmemoryPool made, other;
    CUdeviceptr p;
    int fd = -1;
    puts("# a pool to export");
    NEED(cuMemPoolCreate(&made, &props));
    NEED(cuMemAllocFromPoolAsync(&p, 512, made, NULL));
    SAY(cuMemPoolExportPointer(&told, p));
    SAY(cuMemPoolExportPointer(NULL, p));
    SAY(cuMemPoolExportToShareableHandle(&fd, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    SAY(cuMemPoolExportPointer(&told, p));
    NEED(cuCtxSynchronize());
    SAY(cuMemPoolImportFromShareableHandle(&other, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    imported(other, &told);
}
