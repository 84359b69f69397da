/* What calls answer once a kernel has failed, on its device and on another one. Prints, last, all answers as a JSON
 * object. After each kind of failure the process is of no more use: each has one of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common.cuh"

#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

static char json[16 << 10];
static size_t length;
static const char *failure;

static void say(const char *where, const char *question, long long answer) {
    length += (size_t)snprintf(json + length, sizeof(json) - length, "%s\"%s, %s: %s\": %lld", length ? ", " : "",
                               failure, where, question, answer);
    cudaGetLastError();
}

#define ASK(call) say(where, #call, call)

enum { MIB = 1 << 20 };

__global__ static void fail(int how) {
    if (how == 0)
        *(volatile int *)16 = 1;
    else if (how == 1)
        asm("trap;");
    else
        *(volatile int *)((uintptr_t)&how + 1) = 1;
}

static const char *const FAILURES[] = {"illegal address", "trap", "misaligned address"};
enum { KINDS = sizeof(FAILURES) / sizeof(FAILURES[0]) };

struct used {
    char *sync, *other, *async;
    cudaStream_t stream;
};

static void use(struct used *u, int device) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaStreamCreateWithFlags(&u->stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&u->sync, MIB));
    CHECK(cudaMalloc(&u->other, MIB));
    CHECK(cudaMallocAsync(&u->async, MIB, u->stream));
    CHECK(cudaMemset(u->sync, 0, MIB));
    CHECK(cudaDeviceSynchronize());
}

static void ask(struct used *u, const char *where) {
    static char host[4096];
    char *made;
    size_t room, total;
    cudaPointerAttributes attributes;
    ASK(cudaDeviceSynchronize()); /* first: until then it may not have failed */
    ASK(cudaStreamSynchronize(u->stream));
    ASK(cudaStreamQuery(u->stream));
    ASK(cudaMemGetInfo(&room, &total));
    ASK(cudaMalloc(&made, MIB));
    ASK(cudaMalloc(&made, 64 * MIB));
    ASK(cudaMallocAsync(&made, MIB, u->stream));
    ASK(cudaMemset(u->sync, 0, 4096));
    ASK(cudaMemcpy(host, u->sync, sizeof(host), cudaMemcpyDefault));
    ASK(cudaPointerGetAttributes(&attributes, u->sync));
    ASK(cudaFreeAsync(u->async, u->stream));
    ASK(cudaFree(u->sync));
    ASK(cudaFree(u->sync));
    ASK(cudaMalloc(&made, MIB));
    ASK(cudaStreamDestroy(u->stream));
}

static void run(int how, int devices) {
    struct used first = {}, last = {};
    failure = FAILURES[how];
    use(&first, 0);
    if (devices > 1)
        use(&last, devices - 1);
    CHECK(cudaSetDevice(devices - 1));
    fail<<<1, 1>>>(how);
    ask(devices > 1 ? &last : &first, "its device");
    if (devices > 1) {
        cudaSetDevice(0);
        ask(&first, "another device");
    }
}

int main() {
    int pipes[2], devices = 0;
    /* The last kind is this process's own; before it, nobody here has called CUDA. */
    for (int how = 0; how < KINDS - 1; how++) {
        if (pipe(pipes))
            return 1;
        pid_t child = fork();
        if (!child) {
            length = 0;
            CHECK(cudaGetDeviceCount(&devices));
            run(how, devices > 1 ? 2 : 1);
            _exit(write(pipes[1], json, length) != (ssize_t)length);
        }
        close(pipes[1]);
        char part[sizeof(json)];
        ssize_t got, all = 0;
        while ((got = read(pipes[0], part + all, sizeof(part) - (size_t)all)) > 0)
            all += got;
        close(pipes[0]);
        int status = 0;
        if (waitpid(child, &status, 0) != child || status || length + (size_t)all + 2 > sizeof(json))
            return 1;
        memcpy(json + length, ", ", length ? 2 : 0);
        memcpy(json + length + (length ? 2 : 0), part, (size_t)all);
        length += (size_t)all + (length ? 2 : 0);
    }
    CHECK(cudaGetDeviceCount(&devices));
    run(KINDS - 1, devices > 1 ? 2 : 1);
    printf("{\"ok\": true, \"answers\": {%s}}\n", json);
    fflush(stdout);
    return 0;
}
