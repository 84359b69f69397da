/* A program that may have 40 GiB of addresses: once a pool is there, those that it takes itself are to be had as bare.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <sys/mman.h>
#include <sys/resource.h>

int main(void) {
    const struct rlimit most = {(rlim_t)40 << 30, (rlim_t)40 << 30};
    CUdeviceptr p;
    int had = 0;
    NEED(setrlimit(RLIMIT_AS, &most));
    start();
    OK(cuMemAlloc(&p, 8 << 20));
    while (had < 24 &&
           mmap(NULL, (size_t)1 << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
        had++;
    printf("%d GiB\n", had);
}
