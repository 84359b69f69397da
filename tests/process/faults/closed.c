/* Standard output and error are closed when it begins; it writes to them all the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

/* What is written there would be in the page. */
__attribute__((visibility("default"))) int posix_fallocate(int fd, off_t offset, off_t size) {
    if (fd <= STDERR_FILENO)
        _exit(9);
    return syscall(SYS_fallocate, fd, 0, offset, size) ? errno : 0;
}

int main(void) {
    CUdeviceptr p;

    start();
    OK(cuMemAlloc(&p, 1 << 20));
    for (int fd = 0; fd < 3; fd++)
        if (write(fd, "not a trace\n", 12) < 0)
            continue;
    OK(cuMemFree(p));
}
