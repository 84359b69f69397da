/* Anonymous memory from the system, in huge pages where that pays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os_memory.h"

#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int vp_os_give(void *mem, size_t bytes) {
    return (int)syscall(SYS_munmap, mem, bytes);
}

void *vp_os_lengthen(void *mem, size_t bytes, size_t longer) {
    mem = (void *)syscall(SYS_mremap, mem, bytes, longer, MREMAP_MAYMOVE);
    return mem == MAP_FAILED ? NULL : mem;
}

static void *map_with(size_t bytes, int flags) {
    void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return mem == MAP_FAILED ? NULL : mem;
}

void *vp_os_take_sparse(size_t bytes) {
    return map_with(bytes, MAP_NORESERVE);
}

void *vp_os_take(size_t bytes) {
    if (bytes < VP_HUGE || bytes % VP_HUGE)
        return map_with(bytes, 0);
    char *mem = map_with(bytes + VP_HUGE, 0);
    if (!mem)
        return map_with(bytes, 0);
    size_t before = -(uintptr_t)mem % VP_HUGE;
    if (before)
        vp_os_give(mem, before);
    vp_os_give(mem + before + bytes, VP_HUGE - before);
    madvise(mem + before, bytes, MADV_HUGEPAGE); /* only advice: nothing is lost if it is refused */
    return mem + before;
}
