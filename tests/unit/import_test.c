/* Memory of another process: what is opened of one that says what is not so, and what comes in between. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api_test.h"

#include "process/ipc.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, PATIENCE = 1000 };

/* A process that shows memory of `chunks` chunks, and sends one with the first message. In the messages that follow are
 * none, though it says that more are to come. */
static struct exporter {
    struct vp_channel_name name;
    pthread_t thread;
    int listener, shown, number; /* the connection's, that a file of the program's has instead, once it was asked */
    unsigned chunks, sent;
    bool reuses;
} other;

/* The one whose other end has the listener's name. */
static int connection(void) {
    struct sockaddr_un own, peer;
    socklen_t size = sizeof own;
    cr_assert(!getsockname(other.listener, (struct sockaddr *)&own, &size));
    for (int fd = 0; fd < 256; fd++) {
        socklen_t length = sizeof peer;
        if (!getpeername(fd, (struct sockaddr *)&peer, &length) && length == size && !memcmp(&own, &peer, size))
            return fd;
    }
    return -1;
}

static void *answer(void *unused) {
    const int client = vp_channel_accept(other.listener);
    struct vp_ipc_request ask;
    struct vp_ipc_reply reply = {
        .count = 1, .left = other.chunks - 1, .bytes = other.chunks * CHUNK, .asked = CHUNK, .size = {CHUNK}};
    int err = vp_channel_receive(client, &ask, sizeof ask, NULL, NULL);
    if (other.reuses) {
        usleep(100000); /* it waits for the answer */
        cr_assert_geq(other.number = connection(), 0);
        cr_assert_eq(dup2(other.shown, other.number), other.number);
    }
    while (!err && other.sent++ < PATIENCE) {
        err = vp_channel_send(client, &reply, sizeof reply, &other.shown, reply.count);
        if (!reply.left)
            break;
        reply.count = 0;
    }
    close(client);
    return NULL;
}

static void (*while_open)(CUdeviceptr ptr);

static CUresult open_of_other(unsigned chunks, bool reuses) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr ptr = 0;
    cu_ok(cuMemCreate(&chunk, CHUNK, &prop, 0));
    cu_ok(cuMemExportToShareableHandle(&other.shown, chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    other = (struct exporter){.shown = other.shown, .chunks = chunks, .reuses = reuses};
    cr_assert_geq(other.listener = vp_channel_listen(&other.name, false), 0);
    cr_assert(!pthread_create(&other.thread, NULL, answer, NULL));
    struct vp_ipc_handle handle = {.version = 1, .in_file = other.name.in_file};
    CUipcMemHandle from;
    memcpy(handle.magic, "VPoolIPC", sizeof handle.magic);
    memcpy(handle.key.id, other.name.id, sizeof other.name.id);
    memcpy(&from, &handle, sizeof from);
    const CUresult res = vp_api_ipc_open(&ptr, &from, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    cr_assert(!pthread_join(other.thread, NULL));
    cr_assert((res == CUDA_SUCCESS) == (ptr != 0));
    if (ptr && while_open)
        while_open(ptr);
    if (ptr)
        cu_ok(vp_api_ipc_close(ptr));
    close(other.listener);
    close(other.shown);
    cu_ok(cuMemRelease(chunk));
    return res;
}

Test(import, who_sends_nothing_is_not_listened_to_for_long, .timeout = 60) {
    door_open(SIM);
    cr_assert_eq(open_of_other(2, false), CUDA_ERROR_INVALID_HANDLE);
    cr_assert_lt(other.sent, 8 + PATIENCE / 4, "%u messages", other.sent);
    door_close();
}

static __typeof__(&cuMemImportFromShareableHandle) real_import;

static CUresult import_and_fork(CUmemGenericAllocationHandle *out, void *from, CUmemAllocationHandleType type) {
    vp_api_fork_prepare();
    vp_api_fork_parent();
    return real_import(out, from, type);
}

/* In a signal's handler, or a tool's callback. */
Test(import, a_fork_in_between_does_not_wait_for_itself, .timeout = 60) {
    door_open(SIM);
    real_import = vp_state.drv.cuMemImportFromShareableHandle;
    vp_state.drv.cuMemImportFromShareableHandle = import_and_fork;
    cu_ok(open_of_other(1, false));
    door_close();
}

/* A thread closes all descriptors but its own, and has a file under the connection's number since. */
Test(import, leaves_a_file_of_the_programs_alone, .timeout = 60) {
    door_open(SIM);
    cr_assert_eq(open_of_other(1, true), CUDA_ERROR_INVALID_HANDLE);
    cr_assert_eq(close(other.number), 0);
    door_close();
}

static void close_in_a_child(CUdeviceptr ptr) {
    int status;
    const pid_t child = fork();
    if (!child) {
        vp_api_fork_child();
        _exit(vp_api_ipc_close(ptr) == VP_NOT_OURS ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}

/* Of a parent that has no pool: CUDA answers there that it is not initialised. */
Test(import, a_forked_child_has_nothing_open, .timeout = 60) {
    door_open(SIM);
    while_open = close_in_a_child;
    cu_ok(open_of_other(1, false));
    door_close();
}
