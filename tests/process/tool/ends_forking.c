/* Ends its process by SIGTERM as soon as that has a child to be told of by a pipe: preloaded into the command. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

static bool told;

int pipe2(int ends[2], int flags) {
    told = true;
    return ((int (*)(int *, int))dlsym(RTLD_NEXT, "pipe2"))(ends, flags);
}

pid_t fork(void) {
    pid_t child = ((pid_t(*)(void))dlsym(RTLD_NEXT, "fork"))();
    if (told && child > 0)
        kill(getpid(), SIGTERM);
    return child;
}
