/* Two processes share device memory by CUDA's legacy IPC.
 *
 * usage: ipc [--json]
 *
 * The first allocates blocks, fills them, and starts this program once more with the blocks' handles on a pipe;
 * the second opens them, checks what is in them, changes it, and answers. Under libvpool.so both processes must be. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 4, MIB = 1 << 20 };

static const size_t sizes[BLOCKS] = {2 * MIB, 6 * MIB, 20 * MIB, 2 * MIB};

#define CHECK(call) check(call, #call)

static void check(CUresult result, const char *call) {
    if (result != CUDA_SUCCESS) {
        const char *text = NULL;
        cuGetErrorString(result, &text);
        fprintf(stderr, "%s: %s\n", call, text ? text : "unknown error");
        exit(1);
    }
}

static void gpu_open(void) {
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
}

/* The sum of all bytes of a block. */
static unsigned long long sum(CUdeviceptr block, size_t size) {
    unsigned char *bytes = malloc(size);
    unsigned long long total = 0;
    if (!bytes)
        exit(1);
    CHECK(cuMemcpyDtoH(bytes, block, size));
    for (size_t i = 0; i < size; i++)
        total += bytes[i];
    free(bytes);
    return total;
}

/* The second process: handles on its standard input. */
static int importer(void) {
    for (int i = 0; i < BLOCKS; i++) {
        CUipcMemHandle handle;
        CUdeviceptr block;
        if (fread(&handle, sizeof(handle), 1, stdin) != 1)
            return 1;
        if (!i)
            gpu_open();
        CHECK(cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        if (sum(block, sizes[i]) != sizes[i] * (unsigned)(i + 1))
            return 1;
        CHECK(cuMemsetD8(block + sizes[i] / 2, 100, sizes[i] / 2));
        CHECK(cuCtxSynchronize());
        CHECK(cuIpcCloseMemHandle(block));
    }
    return 0;
}

int main(int argc, char **argv) {
    CUdeviceptr blocks[BLOCKS];
    unsigned long long checksum = 0, expected = 0;
    int down[2], status = 1;
    if (argc > 1 && !strcmp(argv[1], "--importer"))
        return importer();
    gpu_open();
    if (pipe(down) < 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        dup2(down[0], STDIN_FILENO);
        close(down[0]);
        close(down[1]);
        execl("/proc/self/exe", argv[0], "--importer", NULL);
        _exit(127);
    }
    close(down[0]);
    for (int i = 0; i < BLOCKS; i++) {
        CUipcMemHandle handle;
        CHECK(cuMemAlloc(&blocks[i], sizes[i]));
        CHECK(cuMemsetD8(blocks[i], (unsigned char)(i + 1), sizes[i]));
        CHECK(cuCtxSynchronize());
        CHECK(cuIpcGetMemHandle(&handle, blocks[i]));
        if (write(down[1], &handle, sizeof(handle)) != (ssize_t)sizeof(handle))
            return 1;
    }
    close(down[1]);
    if (child < 0 || waitpid(child, &status, 0) != child || status) {
        fprintf(stderr, "the other process failed\n");
        return 1;
    }
    for (int i = 0; i < BLOCKS; i++) {
        checksum += sum(blocks[i], sizes[i]);
        expected += sizes[i] / 2 * (unsigned)(i + 1 + 100);
        CHECK(cuMemFree(blocks[i]));
    }
    int ok = checksum == expected;
    printf(argc > 1 ? "{\"ok\": %s, \"checksum\": %llu}\n" : "shared memory: %s, checksum %llu\n",
           argc > 1 ? (ok ? "true" : "false") : (ok ? "right" : "WRONG"), checksum);
    return !ok;
}
