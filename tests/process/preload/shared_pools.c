/* Memory pools that two processes share: what either is answered must be the same bare and under libvpool.so, whatever
 * the other one is under. They take turns.
 *
 * usage: shared_pools [alone]
 * alone: the one that imports is not under the library. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 4, SIZE = 1 << 20, PARTNER = 3 };
#define POSIX cudaMemHandleTypePosixFileDescriptor

/* What the exporter tells. */
static struct cudaMemPoolPtrExportData told[BLOCKS];
static const char *who = "exporter";
static cudaStream_t stream;
static int partner;

static void say(const char *what, long answer) {
    printf("%s: %s: %ld\n", who, what, answer);
}
#define SAY(call) say(#call, (long)(call))

static void let(void) {
    if (write(partner, "", 1) != 1)
        say("the other one is gone", 0);
}

static void wait_for_it(void) {
    char c;
    if (read(partner, &c, 1) != 1)
        say("the other one is gone", 0);
}

static void pass(int *fd, int send) {
    char c = 0, space[CMSG_SPACE(sizeof(int))] = "";
    struct iovec part = {&c, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), fd, sizeof(int));
    if ((send ? sendmsg(partner, &message, 0) : recvmsg(partner, &message, 0)) != 1)
        say("no descriptor passed", 0);
    memcpy(fd, CMSG_DATA(head), sizeof(int));
}

static cudaMemPool_t create(int device, enum cudaMemAllocationHandleType types) {
    const struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                           .handleTypes = types,
                                           .location = {cudaMemLocationTypeDevice, device}};
    cudaMemPool_t pool = NULL;
    SAY(cudaMemPoolCreate(&pool, &props));
    return pool;
}

static void used(cudaMemPool_t pool) {
    unsigned long long bytes = 0;
    SAY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &bytes));
    say("used", (long)bytes);
}

static void look(const void *at) {
    struct cudaPointerAttributes attributes;
    unsigned char byte = 0;
    SAY(cudaMemcpy(&byte, at, 1, cudaMemcpyDefault));
    say("byte", byte);
    SAY(cudaPointerGetAttributes(&attributes, at));
    say("of a device", attributes.type == cudaMemoryTypeDevice && attributes.devicePointer == at);
}

static void begin(void **plain, void **async) {
    SAY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    SAY(cudaMalloc(plain, 3 * SIZE));
    SAY(cudaMallocAsync(async, 2 * SIZE, stream));
    SAY(cudaMemsetAsync(*async, 9, SIZE, stream));
}

static void end(void *plain, void *async) {
    SAY(cudaFree(plain));
    SAY(cudaFreeAsync(async, stream));
    SAY(cudaDeviceSynchronize());
    SAY(cudaMalloc(&plain, 100 << 20));
    SAY(cudaFree(plain));
    SAY(cudaGetLastError());
}

/* An imported pool hands nothing out, and what it shows is another's. */
static void refused(cudaMemPool_t pool, void *shown, void *plain, void *async) {
    struct cudaMemPoolPtrExportData data;
    cudaMemPool_t own;
    void *at = NULL;
    int fd;
    SAY(cudaMallocFromPoolAsync(&at, SIZE, pool, stream));
    SAY(cudaDeviceSetMemPool(0, pool));
    SAY(cudaDeviceGetDefaultMemPool(&own, 0));
    SAY(cudaMemPoolImportPointer(&at, own, &told[0]));
    SAY(cudaMemPoolExportToShareableHandle(&fd, own, POSIX, 0));
    SAY(cudaMemPoolExportPointer(&data, plain));
    SAY(cudaMemPoolExportPointer(&data, async));
    SAY(cudaMemPoolExportPointer(&data, (char *)shown + 1));
    SAY(cudaGetLastError());
}

static void open_to_another(cudaMemPool_t pool, void *at) {
    const struct cudaMemAccessDesc other = {{cudaMemLocationTypeDevice, 1}, cudaMemAccessFlagsProtReadWrite};
    void *copy;
    SAY(cudaMemPoolSetAccess(pool, &other, 1));
    SAY(cudaSetDevice(1));
    SAY(cudaMalloc(&copy, SIZE));
    SAY(cudaMemset(at, 8, SIZE / 2));
    SAY(cudaMemcpy(copy, at, SIZE, cudaMemcpyDefault));
    look(copy);
    SAY(cudaFree(copy));
    SAY(cudaSetDevice(0));
}

static void importer(void) {
    cudaMemPool_t pool = NULL, twice = NULL;
    void *plain, *async, *at[BLOCKS] = {0}, *again = NULL;
    int fd = -1;
    pass(&fd, 0);
    if (read(partner, told, sizeof(told)) != sizeof(told))
        say("nothing is told", 0);
    begin(&plain, &async);
    SAY(cudaMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0));
    SAY(cudaMemPoolImportFromShareableHandle(&twice, (void *)(intptr_t)fd, POSIX, 0));
    for (int i = 0; i < BLOCKS; i++)
        SAY(cudaMemPoolImportPointer(&at[i], pool, &told[i]));
    SAY(cudaMemPoolImportPointer(&again, twice, &told[0]));
    for (int i = 0; i < BLOCKS; i++)
        look(at[i]);
    used(pool);
    refused(pool, at[0], plain, async);
    SAY(cudaMemPoolTrimTo(pool, 0));
    open_to_another(pool, at[1]);
    SAY(cudaMemcpyAsync(plain, at[2], SIZE, cudaMemcpyDefault, stream));
    SAY(cudaMemsetAsync(at[3], 77, SIZE, stream));
    SAY(cudaFreeAsync(again, stream));
    SAY(cudaFree(at[2]));
    SAY(cudaFree(at[2]));
    SAY(cudaStreamSynchronize(stream));
    look(plain);
    SAY(cudaGetLastError());
    used(pool);
    let();
    wait_for_it();
    SAY(cudaMemPoolDestroy(twice));
    SAY(cudaFreeAsync(at[3], stream));
    SAY(cudaMemPoolDestroy(pool));
    look(at[0]);
    SAY(cudaFree(at[0]));
    SAY(cudaFree(at[1]));
    end(plain, async);
}

static void exporter(void) {
    cudaMemPool_t pool = create(0, POSIX), none = create(0, cudaMemHandleTypeNone);
    void *plain, *async, *at[BLOCKS], *at_none = NULL;
    struct cudaMemPoolPtrExportData data;
    int fd = -1;
    begin(&plain, &async);
    SAY(cudaMemPoolExportToShareableHandle(&fd, none, POSIX, 0));
    SAY(cudaMemPoolExportToShareableHandle(&fd, pool, POSIX, 0));
    pass(&fd, 1);
    for (int i = 0; i < BLOCKS; i++) {
        SAY(cudaMallocFromPoolAsync(&at[i], SIZE + 512 * (size_t)i, pool, stream));
        SAY(cudaMemPoolExportPointer(&told[i], at[i]));
        SAY(cudaMemsetAsync(at[i], 40 + i, SIZE, stream));
    }
    SAY(cudaMallocFromPoolAsync(&at_none, SIZE, none, stream));
    SAY(cudaMemPoolExportPointer(&data, at_none));
    SAY(cudaFreeAsync(at_none, stream));
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaGetLastError());
    used(pool);
    if (write(partner, told, sizeof(told)) != sizeof(told))
        say("cannot tell", 0);
    wait_for_it();
    look(at[1]);
    look(at[3]);
    for (int i = 1; i < BLOCKS; i++)
        SAY(cudaFreeAsync(at[i], stream));
    SAY(cudaFree(at[0]));
    used(pool);
    SAY(cudaMemPoolDestroy(pool));
    SAY(cudaMemPoolDestroy(none));
    end(plain, async);
}

int main(int argc, char **argv) {
    int sockets[2], status = 1;
    pid_t child;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !strcmp(argv[1], "imports")) {
        who = "importer";
        partner = PARTNER;
        importer();
        return 0;
    }
    char *words[] = {argv[0], "imports", NULL};
    posix_spawn_file_actions_t actions;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) || posix_spawn_file_actions_init(&actions) ||
        posix_spawn_file_actions_adddup2(&actions, sockets[1], PARTNER))
        return 1;
    if (argc > 1)
        unsetenv("LD_PRELOAD");
    if (posix_spawn(&child, argv[0], &actions, NULL, words, environ))
        return 1;
    posix_spawn_file_actions_destroy(&actions);
    close(sockets[1]);
    partner = sockets[0];
    exporter();
    let();
    if (waitpid(child, &status, 0) != child)
        return 1;
    return status != 0;
}
