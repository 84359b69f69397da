/* Where a descriptor lacks for a moment as the pages of others are looked at, theirs stay. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>

static char about[32]; /* what cannot be opened */

__attribute__((visibility("default"))) int open(const char *path, int flags, ...) {
    va_list more;

    va_start(more, flags);
    const int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    if (*about && !strcmp(path, about)) {
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int main(void) {
    int ready[2];
    char page[64], word;
    CUdeviceptr p;

    NEED(pipe(ready));
    const pid_t other = fork();
    if (!other) {
        start();
        OK(cuMemAlloc(&p, 1 << 20));
        NEED(write(ready[1], "r", 1) != 1);
        pause();
    }
    NEED(read(ready[0], &word, 1) != 1);
    snprintf(about, sizeof(about), "/proc/%d/stat", (int)other);
    start();
    OK(cuMemAlloc(&p, 1 << 20));
    snprintf(page, sizeof(page), "/dev/shm/vpool-%u-%d", (unsigned)geteuid(), (int)other);
    printf("the other's page %d\n", access(page, F_OK));
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}
