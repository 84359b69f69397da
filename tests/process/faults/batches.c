/* Batches of memory operations that CUDA refuses for their number or their flags, without a look at what they hold. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <sys/mman.h>

int main(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    CUstreamBatchMemOpParams *last, *nowhere = (CUstreamBatchMemOpParams *)1;
    CUstream s;
    char *two;

    start();
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(munmap(two + page, page));
    last = (CUstreamBatchMemOpParams *)(two + page) - 1;
    SHOW(cuStreamBatchMemOp(s, 1000, last, 0));
    SHOW(cuStreamBatchMemOp(s, 1, nowhere, 1));
    return 0;
}
