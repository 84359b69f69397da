/* A child that no handler of pthread_atfork() hears of, as _Fork() and clone() make it, exits as programs
 * do: what is its parent's stays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/syscall.h>

#include "fault.h"

int main(void) {
    CUdeviceptr p;
    char page[64];

    start();
    OK(cuMemAlloc(&p, 1 << 20));
    snprintf(page, sizeof(page), "/dev/shm/vpool-%u-%d", (unsigned)geteuid(), (int)getpid());
    if (access(page, F_OK))
        puts("there is no page");
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!child) {
        cuMemFree(p);
        cuMemAlloc(&p, 1 << 20);
        exit(0);
    }
    waitpid(child, NULL, 0);
    OK(cuMemFree(p));
    OK(cuMemAlloc(&p, 1 << 20));
    printf("its page is %s, its memory is %s\n", access(page, F_OK) ? "gone" : "there",
           stats(0).allocs == 2 ? "served" : "not served");
}
