/* A timer of the program's ticks: what reserves room in a file is told so (EINTR) at first, and always where it takes
 * longer than from tick to tick, as a tmpfs does before Linux 6.11. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

enum { BYTES = 32 << 20, BETWEEN_TICKS = 16 << 20 };

__attribute__((visibility("default"))) int posix_fallocate(int fd, off_t offset, off_t size) {
    static off_t last;

    if (size > BETWEEN_TICKS || size != last) {
        last = size;
        return EINTR;
    }
    return syscall(SYS_fallocate, fd, 0, offset, size) ? errno : 0;
}

int main(void) {
    struct vpool_pause how = {.size = sizeof(how), .contents = VPOOL_FILE, .file = "ticks.contents"};
    int (*pause)(int, struct vpool_pause *) = (__typeof__(pause))dlsym(RTLD_DEFAULT, "vpool_pause_with"),
                                         (*resume)(int) = (__typeof__(resume))dlsym(RTLD_DEFAULT, "vpool_resume");
    CUdeviceptr p;
    char page[64], byte = 0;

    start();
    OK(cuMemAlloc(&p, BYTES));
    OK(cuMemsetD8(p, 7, BYTES));
    snprintf(page, sizeof(page), "/dev/shm/vpool-%u-%d", (unsigned)geteuid(), (int)getpid());
    printf("page %d, ", access(page, F_OK));
    printf("paused %d, ", pause(0, &how));
    printf("resumed %d, ", resume(0));
    OK(cuMemcpyDtoH(&byte, p + BYTES - 1, 1));
    printf("byte %d\n", byte);
    OK(cuMemFree(p));
}
