/* The peer of guests that share memory by legacy IPC: a process of its own, by fork and exec, and how a case talks to
 * it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc.h"

#include <cuda_runtime_api.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- the peer ---- */

void begin(void) {
    CUcontext context;

    CHECK_OK(cuInit(0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_OK(cuCtxSetCurrent(context));
}

/* Sockets among the open files. */
int sockets(void) {
    DIR *files = opendir("/proc/self/fd");
    int count = 0;

    CHECK(files);
    for (struct dirent *entry; (entry = readdir(files)) != NULL;) {
        char name[64] = "", target[64] = "";

        snprintf(name, sizeof(name), "/proc/self/fd/%.16s", entry->d_name);
        if (readlink(name, target, sizeof(target) - 1) > 0)
            count += strncmp(target, "socket:", 7) == 0;
    }
    closedir(files);
    return count;
}

/* Does CUDA know the address? */
static bool is_known(CUdeviceptr ptr) {
    unsigned type;

    return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr) == CUDA_SUCCESS;
}

/* The one value that all bytes have; -1: they differ; -2: they are not there. */
int read_value(CUdeviceptr ptr, size_t size) {
    unsigned char *bytes;
    int value = -2;

    if (!is_known(ptr) || !is_known(ptr + size - 1))
        return -2;
    bytes = malloc(size);

    if (cuMemcpyDtoH(bytes, ptr, size) == CUDA_SUCCESS) {
        value = bytes[0];
        for (size_t i = 1; i < size; i++)
            value = bytes[i] == bytes[0] ? value : -1;
    }
    free(bytes);
    return value;
}

rlim_t limit_files(rlim_t to) {
    struct rlimit limit;
    rlim_t before;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    before = limit.rlim_cur;
    limit.rlim_cur = to < limit.rlim_max ? to : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return before;
}

/* From here on no file can be opened. */
rlim_t no_more_files(void) {
    int next = dup(0);

    CHECK(next >= 0);
    close(next);
    return limit_files((rlim_t)next);
}

/* What lives in the simulated driver. */
static size_t driver_leaks(void) {
    size_t (*leaks)(FILE *) = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_leaks");

    return leaks(stderr);
}

static int runtime_open(CUdeviceptr *ptr, const CUipcMemHandle *theirs) {
    cudaIpcMemHandle_t handle;
    void *opened = NULL;

    memcpy(&handle, theirs, sizeof(handle));
    int result = (int)cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
    *ptr = (CUdeviceptr)(uintptr_t)opened;
    return result;
}

static const CUpointer_attribute capabilities[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                                   CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                                                   CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE};

static struct told doing(const struct ask *ask) {
    struct told told = {0};
    static rlim_t files;

    switch (ask->op) {
    case ALLOC: told.result = cuMemAlloc(&told.ptr, ask->size); break;
    case ALLOC_ASYNC: told.result = cuMemAllocAsync(&told.ptr, ask->size, 0); break;
    case FREE: told.result = cuMemFree(ask->ptr); break;
    case GET: told.result = cuIpcGetMemHandle(&told.handle, ask->ptr); break;
    case OPEN: told.result = cuIpcOpenMemHandle(&told.ptr, ask->handle, ask->flags); break;
    case CLOSE: told.result = cuIpcCloseMemHandle(ask->ptr); break;
    case FILL:
        told.result = cuMemsetD8(ask->ptr, ask->value, ask->size);
        if (told.result == CUDA_SUCCESS)
            told.result = cuCtxSynchronize();
        break;
    case READ: told.value = read_value(ask->ptr, ask->size); break;
    case RANGE: told.result = cuMemGetAddressRange(&told.ptr, &told.size, ask->ptr); break;
    case CAPABLE:
        /* The first that says otherwise than an H200 of what was opened: no. */
        for (size_t i = 0; i < sizeof(capabilities) / sizeof(*capabilities) && !told.result && !told.value; i++)
            told.result = cuPointerGetAttribute(&told.value, capabilities[i], ask->ptr);
        break;
    case SOCKETS: told.value = sockets(); break;
    case RUNTIME_OPEN: told.result = runtime_open(&told.ptr, &ask->handle); break;
    case RUNTIME_CLOSE: told.result = (int)cudaIpcCloseMemHandle((void *)(uintptr_t)ask->ptr); break;
    case LEFT: told.value = (int)driver_leaks(); break;
    case FEW_FILES:
        if (ask->value)
            files = no_more_files();
        else
            limit_files(files);
        break;
    }
    return told;
}

void peer(void) {
    struct ask ask;

    begin();
    while (read(STDIN_FILENO, &ask, sizeof(ask)) == (ssize_t)sizeof(ask)) {
        struct told told = doing(&ask);

        CHECK(write(STDOUT_FILENO, &told, sizeof(told)) == (ssize_t)sizeof(told));
    }
}

/* ---- how a case talks to it ---- */

/* Starts a peer; `variable` is set for it, or unset where it is empty. */
struct remote start_with(const char *variable, const char *value) {
    struct remote remote;
    int down[2], up[2];

    CHECK(pipe(down) == 0 && pipe(up) == 0);
    remote.pid = fork();
    CHECK(remote.pid >= 0);
    if (remote.pid == 0) {
        dup2(down[0], STDIN_FILENO);
        dup2(up[1], STDOUT_FILENO);
        close(down[0]);
        close(down[1]);
        close(up[0]);
        close(up[1]);
        if (variable && *value)
            setenv(variable, value, 1);
        else if (variable)
            unsetenv(variable);
        execl("/proc/self/exe", "ipc", "peer", NULL);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    remote.to = down[1];
    remote.from = up[0];
    return remote;
}

struct remote start(void) {
    return start_with(NULL, NULL);
}

struct told tell(const struct remote *remote, struct ask ask) {
    struct told told;

    CHECK(write(remote->to, &ask, sizeof(ask)) == (ssize_t)sizeof(ask));
    CHECK(read(remote->from, &told, sizeof(told)) == (ssize_t)sizeof(told));
    return told;
}

CUdeviceptr opened(const struct remote *remote, CUipcMemHandle handle) {
    struct told told = TELL(remote, OPEN, .flags = FLAG, .handle = handle);

    CHECK_OK(told.result);
    return told.ptr;
}

int value_at(const struct remote *remote, CUdeviceptr ptr, size_t size) {
    return TELL(remote, READ, .ptr = ptr, .size = size).value;
}

/* The peer ends by itself, with all well. */
void end(struct remote *remote) {
    int status;

    close(remote->to);
    close(remote->from);
    CHECK(waitpid(remote->pid, &status, 0) == remote->pid && status == 0);
}

void kill_peer(struct remote *remote) {
    CHECK(kill(remote->pid, SIGKILL) == 0);
    CHECK(waitpid(remote->pid, NULL, 0) == remote->pid);
    close(remote->to);
    close(remote->from);
}

CUdeviceptr allocate(size_t size, unsigned char value) {
    CUdeviceptr ptr;

    CHECK_OK(cuMemAlloc(&ptr, size));
    CHECK_OK(cuMemsetD8(ptr, value, size));
    CHECK_OK(cuCtxSynchronize());
    return ptr;
}

CUipcMemHandle exported(CUdeviceptr ptr) {
    CUipcMemHandle handle;
    int capable = 0;

    CHECK_OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr));
    CHECK(capable == 1);
    CHECK_OK(cuIpcGetMemHandle(&handle, ptr));
    return handle;
}

/* What is announced and what the call does must agree. */
void check_refused(CUdeviceptr ptr) {
    CUipcMemHandle handle;
    int capable = 1;

    CHECK_OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr));
    CHECK(capable == 0);
    CHECK(cuIpcGetMemHandle(&handle, ptr) == CUDA_ERROR_INVALID_VALUE);
}

bool same(const CUipcMemHandle *a, const CUipcMemHandle *b) {
    return memcmp(a, b, sizeof(*a)) == 0;
}
