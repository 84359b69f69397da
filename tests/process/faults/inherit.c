/* Exports memory to another process. A child made meanwhile would keep what stays open on exec. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "fault.h"

static _Atomic int passed, open_on_exec;

/* Stands before libc's. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    struct msghdr copy = *message;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&copy); c; c = CMSG_NXTHDR(&copy, c)) {
        int fds[64];
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(c), n * sizeof(int));
        for (size_t i = 0; i < n; i++) {
            passed++;
            open_on_exec += !(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        }
    }
    return syscall(SYS_sendmsg, fd, message, flags);
}

int main(void) {
    CUipcMemHandle h;
    CUdeviceptr p;
    int to[2], status;
    if (pipe(to))
        return 1;
    pid_t child = fork();
    if (!child) {
        if (read(to[0], &h, sizeof(h)) != sizeof(h))
            return 1;
        start();
        NEED(cuIpcOpenMemHandle(&p, h, 1));
        NEED(cuIpcCloseMemHandle(p));
        return 0;
    }
    start();
    OK(cuMemAlloc(&p, 4 << 20));
    OK(cuIpcGetMemHandle(&h, p));
    if (write(to[1], &h, sizeof(h)) != sizeof(h))
        return 1;
    waitpid(child, &status, 0);
    printf("descriptors passed on: %d stay open on exec\n", passed ? open_on_exec : -1);
    return status != 0;
}
