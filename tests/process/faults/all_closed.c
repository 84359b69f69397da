/* The program closes all descriptors but its own, and has files and a connection of its own under their numbers then.
 * What it writes there stays as it is. With argv[1], another process opens two blocks of its memory meanwhile. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { FILES = 40, MOST = 256, PAIRS = 100000 };

/* Those of the simulated driver stay: it would miss them, as a real one would miss the device's. */
static void close_all_but(int own) {
    for (int fd = 3; fd < MOST; fd++) {
        char link[32], to[64] = "";
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        if (fd != own && (readlink(link, to, sizeof(to) - 1) < 0 || strncmp(to, "/memfd:", 7)))
            close(fd);
    }
}

/* In a process of its own, which knows of the blocks by a socket alone. */
static void open_them(int from) {
    CUipcMemHandle handle;
    start();
    for (int i = 0; read(from, &handle, sizeof(handle)) == sizeof(handle); i++) {
        CUdeviceptr p;
        const CUresult res = cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        printf("block %d -> %d\n", i, (int)res);
        fflush(stdout);
        if (write(from, "", 1) != 1)
            exit(1);
    }
    exit(0);
}

static void show(int other, int blocks) {
    for (int i = 0; i < blocks; i++) {
        CUipcMemHandle handle;
        CUdeviceptr p;
        char done;
        NEED(cuMemAlloc(&p, 4 << 20));
        OK(cuIpcGetMemHandle(&handle, p));
        if (write(other, &handle, sizeof(handle)) != sizeof(handle) || read(other, &done, 1) != 1)
            puts("no answer");
    }
}

int main(int argc, char **argv) {
    int both[2], files[FILES], changed = 0;
    char name[] = "all_closed.XXXXXX";

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, both))
        return 1;
    if (argc > 1 && !fork()) {
        close(both[0]);
        open_them(both[1]);
    }
    close(both[1]);
    start();
    CUdeviceptr p;
    NEED(cuMemAlloc(&p, 4 << 20));
    /* The first one is shown, and its door is open. */
    CUipcMemHandle handle;
    if (argc > 1)
        OK(cuIpcGetMemHandle(&handle, p));
    usleep(100000);
    close_all_but(both[0]);
    for (int i = 0; i < FILES; i++) {
        strcpy(name + 11, "XXXXXX");
        files[i] = mkstemp(name);
        unlink(name);
        if (write(files[i], "mine", 4) != 4)
            return 2;
    }
    if (argc > 1)
        show(both[0], 3);
    for (int i = 0; i < PAIRS; i++) {
        OK(cuMemAlloc(&p, (size_t)(i % 50 + 1) << 12));
        OK(cuMemFree(p));
    }
    for (int i = 0; i < FILES; i++) {
        struct stat about;
        changed += fstat(files[i], &about) || about.st_size != 4;
    }
    printf("files changed: %d\n", changed);
    fflush(stdout);
    /* At the end, too: it is looked at in another process, which has the same files. */
    const pid_t me = getpid();
    if (!fork()) {
        while (getppid() == me)
            usleep(1000);
        for (int i = changed = 0; i < FILES; i++) {
            struct stat about;
            changed += fstat(files[i], &about) || about.st_size != 4;
        }
        printf("files changed at the end: %d\n", changed);
        fflush(stdout);
        _exit(0);
    }
    return 0;
}
