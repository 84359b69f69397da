/* Two processes share memory, each from several threads: this one opens, the other (this program again)
 * allocates, exports and frees, and answers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include "process/process.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHARED = 4, ROUNDS = 40, BLOCK = 2 << 20 };

static CUipcMemHandle shared[SHARED];

static void get(CUipcMemHandle *handle, CUdeviceptr ptr) {
    CUresult res;
    CHECK((res = vp_api_ipc_get(handle, ptr)) != VP_NOT_OURS);
    CU(res);
}

/* ---- the exporter ---- */

static int parent;

/* While the other process opens the shared blocks, others come and go. */
static void come_and_go(int index) {
    (void)index;
    for (int i = 0; i < ROUNDS; i++) {
        CUipcMemHandle handle;
        CUdeviceptr ptr;
        CU(door_alloc(&ptr, BLOCK));
        get(&handle, ptr);
        CU(door_free(ptr));
    }
}

static int exporter(void) {
    char byte;
    race_open("granularity=64K");
    for (int i = 0; i < SHARED; i++) {
        CUdeviceptr ptr;
        CU(door_alloc(&ptr, BLOCK));
        CU(cuMemsetD8(ptr, (unsigned char)i, BLOCK));
        get(&shared[i], ptr);
    }
    CU(cuCtxSynchronize());
    CHECK(write(parent, shared, sizeof shared) == (ssize_t)sizeof shared);
    race_run(come_and_go);
    CHECK(read(STDIN_FILENO, &byte, 1) == 0);
    race_close();
    return 0;
}

/* ---- the importer ---- */

static void open_and_close(int index) {
    for (int i = 0; i < ROUNDS; i++) {
        int which = (index + i) % SHARED;
        unsigned char bytes[64];
        size_t size = 0;
        CUdeviceptr ptr;
        CUresult res;
        CHECK((res = vp_api_ipc_open(&ptr, &shared[which], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) != VP_NOT_OURS);
        CU(res);
        CHECK(!vp_api_address_range(NULL, &size, ptr) && size == BLOCK);
        CU(cuMemcpyDtoH(bytes, ptr + BLOCK - sizeof bytes, sizeof bytes));
        CHECK(bytes[0] == which && bytes[sizeof bytes - 1] == which);
        CHECK((res = vp_api_ipc_close(ptr)) != VP_NOT_OURS);
        CU(res);
    }
}

int main(int argc, char **argv) {
    int down[2], up[2], status;
    if (argc > 1 && !strcmp(argv[1], "exporter")) {
        parent = STDOUT_FILENO;
        return exporter();
    }
    CHECK(!pipe(down) && !pipe(up));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        dup2(down[0], STDIN_FILENO);
        dup2(up[1], STDOUT_FILENO);
        close(down[0]);
        close(down[1]);
        close(up[0]);
        close(up[1]);
        execl("/proc/self/exe", argv[0], "exporter", NULL);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    CHECK(read(up[0], shared, sizeof shared) == (ssize_t)sizeof shared);
    race_open("granularity=64K");
    race_run(open_and_close);
    close(down[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    race_close();
    return 0;
}
