/* Guests that share memory by legacy IPC: each case is one process, with the peer of ipc_peer.c beside it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

/* ---- cases ---- */

/* Bytes go both ways; a handle made of an address inside stands for the whole; close takes it away. */
static void shares_memory(void) {
    const size_t sizes[] = {2 * MIB, 1 * MIB, 20 * MIB};
    struct remote remote = start();

    begin();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t size = sizes[i];
        CUdeviceptr mine = allocate(size, 1), theirs;
        struct told told;

        CHECK_OK(cuMemsetD8(mine + size - 100, 2, 100));
        theirs = opened(&remote, exported(mine + size / 2));
        CHECK(value_at(&remote, theirs, size - 100) == 1);
        CHECK(value_at(&remote, theirs + size - 100, 100) == 2);
        told = TELL(&remote, RANGE, .ptr = theirs + size - 1);
        CHECK(told.result == 0 && told.ptr == theirs && told.size == size);
        told = TELL(&remote, CAPABLE, .ptr = theirs);
        CHECK(told.result == 0 && told.value == 0);
        CHECK(TELL(&remote, GET, .ptr = theirs).result == CUDA_ERROR_INVALID_VALUE);
        CHECK(TELL(&remote, FREE, .ptr = theirs).result == CUDA_ERROR_INVALID_VALUE);
        CHECK_OK(TELL(&remote, FILL, .ptr = theirs, .size = 1000, .value = 7).result);
        CHECK(read_value(mine, 1000) == 7 && read_value(mine + 1000, size - 1100) == 1);
        CHECK_OK(TELL(&remote, CLOSE, .ptr = theirs).result);
        CHECK(value_at(&remote, theirs, 1) == -2);
        CHECK_OK(cuMemFree(mine));
    }
    check_served();
    end(&remote);
}

static void shares_memory_through_the_runtime(void) {
    struct remote remote = start();
    cudaIpcMemHandle_t handle;
    struct told told;
    void *mine;
    CUipcMemHandle copy;

    CHECK_OK(cudaMalloc(&mine, 2 * MIB));
    CHECK_OK(cudaMemset(mine, 5, 2 * MIB));
    CHECK_OK(cudaDeviceSynchronize());
    CHECK_OK(cudaIpcGetMemHandle(&handle, (char *)mine + 4096));
    memcpy(&copy, &handle, sizeof(copy));
    told = TELL(&remote, RUNTIME_OPEN, .handle = copy);
    CHECK_OK(told.result);
    CHECK(value_at(&remote, told.ptr, 2 * MIB) == 5);
    CHECK_OK(TELL(&remote, RUNTIME_CLOSE, .ptr = told.ptr).result);
    CHECK(value_at(&remote, told.ptr, 1) == -2);
    CHECK_OK(cudaFree(mine));
    check_served();
    end(&remote);
}

static void counts_references(void) {
    struct remote remote = start();

    begin();
    CUipcMemHandle handle = exported(allocate(2 * MIB, 3));
    CUdeviceptr theirs = opened(&remote, handle);
    CHECK(opened(&remote, handle) == theirs && opened(&remote, handle) == theirs);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(TELL(&remote, CLOSE, .ptr = theirs).result);
        CHECK(value_at(&remote, theirs, 2 * MIB) == 3);
    }
    CHECK_OK(TELL(&remote, CLOSE, .ptr = theirs).result);
    CHECK(value_at(&remote, theirs, 1) == -2);
    CHECK(TELL(&remote, CLOSE, .ptr = theirs).result == CUDA_ERROR_INVALID_VALUE);
    theirs = opened(&remote, handle);
    CHECK(value_at(&remote, theirs, 2 * MIB) == 3);
    end(&remote);
}

/* As CUDA has it: a wrong pointer, wrong flags, one's own handle, no context. */
static void answers_errors_as_cuda_does(void) {
    struct remote remote = start();
    CUdeviceptr ptr = 1;

    begin();
    CUdeviceptr mine = allocate(2 * MIB, 3);
    CUipcMemHandle handle = exported(mine);
    CHECK(cuIpcOpenMemHandle(&ptr, handle, FLAG) == CUDA_ERROR_INVALID_CONTEXT && ptr == 1);
    CHECK(TELL(&remote, OPEN, .flags = 0, .handle = handle).result == CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr theirs = opened(&remote, handle);
    CHECK(TELL(&remote, CLOSE, .ptr = theirs + 512).result == CUDA_ERROR_INVALID_VALUE);
    CHECK(TELL(&remote, CLOSE, .ptr = 4096).result == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuIpcGetMemHandle(&handle, 4096) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuIpcGetMemHandle(NULL, mine) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuIpcCloseMemHandle(mine) == CUDA_ERROR_INVALID_VALUE || driver_calls("cuIpcCloseMemHandle") > 0);
    CHECK_OK(TELL(&remote, CLOSE, .ptr = theirs).result);
    CHECK_OK(cuMemAllocAsync(&ptr, 2 * MIB, 0));
    check_refused(ptr);
    end(&remote);
}

/* A handle for each allocation, and for no other at the same address. */
static void gives_each_allocation_its_handle(void) {
    struct remote remote = start();

    begin();
    CUdeviceptr mine = allocate(2 * MIB, 1);
    CUipcMemHandle first = exported(mine), again = exported(mine + MIB), second;
    CHECK(same(&first, &again));
    CHECK_OK(cuMemFree(mine));
    CHECK(TELL(&remote, OPEN, .flags = FLAG, .handle = first).result == CUDA_ERROR_INVALID_HANDLE);
    for (int i = 0; i < 4; i++) {
        mine = allocate(2 * MIB, 2);
        second = exported(mine);
        CHECK(!same(&first, &second));
        CHECK(TELL(&remote, OPEN, .flags = FLAG, .handle = first).result == CUDA_ERROR_INVALID_HANDLE);
        CUdeviceptr theirs = opened(&remote, second);
        CHECK(value_at(&remote, theirs, 2 * MIB) == 2);
        CHECK_OK(TELL(&remote, CLOSE, .ptr = theirs).result);
        CHECK_OK(cuMemFree(mine));
    }
    end(&remote);
}

/* The other process keeps what it has opened, whatever the exporter does; nobody else is given those bytes. */
static void never_reuses_what_was_exported(void) {
    struct remote remote = start();
    size_t (*used)(int) = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_used");

    begin();
    CUdeviceptr other = allocate(2 * MIB, 9), mine = allocate(2 * MIB, 1);
    CUdeviceptr theirs = opened(&remote, exported(mine));
    size_t before = used(0);
    CHECK_OK(cuMemFree(mine));
    CHECK_OK(cuCtxSynchronize());
    for (int i = 0; i < 8; i++) {
        CUdeviceptr next = allocate(2 * MIB, (unsigned char)(100 + i));

        CHECK(value_at(&remote, theirs, 2 * MIB) == 1);
        CHECK_OK(TELL(&remote, FILL, .ptr = theirs, .size = 2 * MIB, .value = 1).result);
        CHECK(read_value(next, 2 * MIB) == 100 + i);
        CHECK_OK(cuMemFree(next));
    }
    CHECK(used(0) <= before);
    CHECK(read_value(other, 2 * MIB) == 9);
    CHECK_OK(TELL(&remote, CLOSE, .ptr = theirs).result);
    end(&remote);
}

static void survives_the_exporters_death(void) {
    struct remote remote = start();

    begin();
    CUdeviceptr first = TELL(&remote, ALLOC, .size = 2 * MIB).ptr, second = TELL(&remote, ALLOC, .size = 2 * MIB).ptr,
                mine, none = 1;
    CHECK_OK(TELL(&remote, FILL, .ptr = first, .size = 2 * MIB, .value = 4).result);
    CUipcMemHandle handle = TELL(&remote, GET, .ptr = first).handle, late = TELL(&remote, GET, .ptr = second).handle;
    CHECK_OK(cuIpcOpenMemHandle(&mine, handle, FLAG));
    kill_peer(&remote);
    CHECK(read_value(mine, 2 * MIB) == 4);
    CHECK(cuIpcOpenMemHandle(&none, late, FLAG) == CUDA_ERROR_INVALID_HANDLE && none == 1);
    CHECK_OK(cuIpcOpenMemHandle(&none, handle, FLAG));
    CHECK(none == mine);
    CHECK_OK(cuIpcCloseMemHandle(mine));
    CHECK_OK(cuIpcCloseMemHandle(mine));
    CHECK(cuIpcOpenMemHandle(&none, handle, FLAG) == CUDA_ERROR_INVALID_HANDLE);
}

static void leaves_cudaMalloc_to_cuda_when_native(void) {
    CUipcMemHandle handle;
    CUdeviceptr theirs;

    begin();
    CUdeviceptr mine = allocate(2 * MIB, 1);
    CHECK(driver_calls("cuMemAlloc_v2") == 1 && driver_calls("cuMemCreate") == 0);
    CHECK_OK(cuIpcGetMemHandle(&handle, mine));
    CHECK_OK(cuIpcOpenMemHandle(&theirs, handle, FLAG));
    CHECK(driver_calls("cuIpcOpenMemHandle_v2") == 1);
    CHECK_OK(cuIpcCloseMemHandle(theirs));
    CHECK(driver_calls("cuIpcCloseMemHandle") == 1);
    CHECK_OK(cuMemFree(mine));
}

static void means_nothing_without_the_library(void) {
    struct remote remote = start_with("LD_PRELOAD", "");

    begin();
    CUipcMemHandle handle = exported(allocate(2 * MIB, 1));
    CHECK(TELL(&remote, OPEN, .flags = FLAG, .handle = handle).result == CUDA_ERROR_INVALID_VALUE);
    end(&remote);
}

/* Handles that hold anything at all. */
static void bears_garbage(void) {
    struct remote remote = start();
    uint64_t random = 1;

    begin();
    CUdeviceptr mine = allocate(2 * MIB, 1);
    CUipcMemHandle good = exported(mine);
    for (int i = 0; i < 300; i++) {
        CUipcMemHandle handle = good;
        size_t at, first = i < 150 ? 8 : 24;

        for (at = first; at < sizeof(handle); at++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            if (i % 3 == 0 || (random >> 40) % 16 == 0)
                ((unsigned char *)&handle)[at] = (unsigned char)(random >> 56);
        }
        struct told told = TELL(&remote, OPEN, .flags = FLAG, .handle = handle);
        if (told.result == CUDA_SUCCESS) {
            CHECK(value_at(&remote, told.ptr, 2 * MIB) == 1);
            CHECK_OK(TELL(&remote, CLOSE, .ptr = told.ptr).result);
        }
    }
    CHECK(value_at(&remote, opened(&remote, good), 2 * MIB) == 1);
    end(&remote);
}

/* VPOOL_IPC=alone. The simulated driver keeps a file for each handle; a real one does not. */
static void opens_a_thousand_handles(void) {
    enum { MANY = 1000 };
    static CUdeviceptr mine[MANY], theirs[MANY];

    limit_files(4 * MANY);
    struct remote remote = start();
    begin();
    for (int i = 0; i < MANY; i++) {
        mine[i] = allocate(1000, (unsigned char)i);
        theirs[i] = opened(&remote, exported(mine[i]));
    }
    for (int i = 0; i < MANY; i++) {
        CHECK(value_at(&remote, theirs[i], 1000) == i % 256);
        CHECK_OK(TELL(&remote, CLOSE, .ptr = theirs[i]).result);
        CHECK_OK(cuMemFree(mine[i]));
    }
    end(&remote);
}

/* Without a file descriptor left it is an error, on either side, and no more than that. */
static void bears_the_limit_of_descriptors(void) {
    struct remote remote = start();
    CUipcMemHandle handle;

    begin();
    CUdeviceptr mine = allocate(2 * MIB, 1);
    rlim_t files = no_more_files();
    CHECK(cuIpcGetMemHandle(&handle, mine) == CUDA_ERROR_OUT_OF_MEMORY);
    limit_files(files);
    handle = exported(mine);
    TELL(&remote, FEW_FILES, .value = 1);
    CHECK(TELL(&remote, OPEN, .flags = FLAG, .handle = handle).result == CUDA_ERROR_OUT_OF_MEMORY);
    TELL(&remote, FEW_FILES, .value = 0);
    CUdeviceptr theirs = opened(&remote, handle);
    CHECK(value_at(&remote, theirs, 2 * MIB) == 1);
    end(&remote);
}

/* A forked child holds neither the socket nor memory: with the exporter goes what it alone had. */
static void leaves_no_socket_to_children(void) {
    struct remote remote = start(), later;
    int status;

    begin();
    opened(&remote, exported(allocate(2 * MIB, 1)));
    CHECK(sockets() >= 1);
    later = start();
    CHECK(TELL(&later, SOCKETS).value == 0);
    end(&later);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(sockets());
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    end(&remote);
}

static void *open_what_does_not_answer(void *handle) {
    CUdeviceptr ptr;

    begin();
    CHECK_OK(cuIpcOpenMemHandle(&ptr, *(CUipcMemHandle *)handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return NULL;
}

/* The exporter is stopped, and a thread waits for its answer: that is no reason for others to wait. */
static void a_fork_does_not_wait_for_an_opening(void) {
    struct remote remote = start();
    pthread_t thread;
    int status;
    time_t before;

    begin();
    CUdeviceptr theirs = TELL(&remote, ALLOC, .size = 2 * MIB).ptr;
    CUipcMemHandle handle = TELL(&remote, GET, .ptr = theirs).handle;
    CHECK(kill(remote.pid, SIGSTOP) == 0 && waitpid(remote.pid, &status, WUNTRACED) == remote.pid);
    CHECK(pthread_create(&thread, NULL, open_what_does_not_answer, &handle) == 0);
    usleep(100000);
    before = time(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(0);
    CHECK(time(NULL) - before < 3); /* an opening gives up after five seconds */
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(kill(remote.pid, SIGCONT) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    end(&remote);
}

static void *open_in_vain(void *handle) {
    CUdeviceptr ptr;

    begin();
    CHECK(cuIpcOpenMemHandle(&ptr, *(CUipcMemHandle *)handle, FLAG) == CUDA_ERROR_INVALID_HANDLE);
    return NULL;
}

static void tick(int number) {
}

/* Each tick of the program's timer, or of a language's scheduler, interrupts the wait, and none begins it anew. */
static void ticks_do_not_prolong_an_opening(void) {
    struct remote remote = start();
    pthread_t thread;
    int status, ticks = 0;

    begin();
    CUdeviceptr theirs = TELL(&remote, ALLOC, .size = 2 * MIB).ptr;
    CUipcMemHandle handle = TELL(&remote, GET, .ptr = theirs).handle;
    CHECK(sigaction(SIGALRM, &(struct sigaction){.sa_handler = tick, .sa_flags = SA_RESTART}, NULL) == 0);
    CHECK(kill(remote.pid, SIGSTOP) == 0 && waitpid(remote.pid, &status, WUNTRACED) == remote.pid);
    CHECK(pthread_create(&thread, NULL, open_in_vain, &handle) == 0);
    for (; pthread_tryjoin_np(thread, NULL) == EBUSY; ticks++) {
        CHECK(ticks < 1500); /* an opening gives up after five seconds */
        CHECK(pthread_kill(thread, SIGALRM) == 0);
        usleep(10000);
    }
    CHECK(ticks > 100);
    CHECK(kill(remote.pid, SIGCONT) == 0);
    end(&remote);
}

/* An opening that fails half-way leaves nothing behind. */
static void bears_failing_calls(void) {
    const char *calls[] = {"cuMemAddressReserve:1", "cuMemImportFromShareableHandle:2", "cuMemMap:2",
                           "cuMemSetAccess:1"};

    begin();
    CUipcMemHandle handle = exported(allocate(24 * MIB, 1));
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
        char sim[128];

        snprintf(sim, sizeof(sim), "granularity=64K,fail=%s", calls[i]);
        struct remote remote = start_with("VPOOL_SIM", sim);
        CHECK(TELL(&remote, OPEN, .flags = FLAG, .handle = handle).result == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(TELL(&remote, LEFT).value == 0);
        CUdeviceptr theirs = opened(&remote, handle);
        CHECK(value_at(&remote, theirs, 24 * MIB) == 1);
        CHECK_OK(TELL(&remote, CLOSE, .ptr = theirs).result);
        CHECK(TELL(&remote, LEFT).value <= 1); /* the event by which the close has waited stays for the next one */
        end(&remote);
    }
}

static struct {
    pthread_mutex_t lock;
    CUipcMemHandle handle;
    bool some;
} latest = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *free_and_export(void *rounds) {
    begin();
    for (int i = 0; i < *(int *)rounds; i++) {
        CUdeviceptr mine = allocate(2 * MIB, 6);
        CUipcMemHandle handle = exported(mine);

        pthread_mutex_lock(&latest.lock);
        latest.handle = handle;
        latest.some = true;
        pthread_mutex_unlock(&latest.lock);
        CHECK_OK(cuMemsetD8(mine, 6, 2 * MIB));
        CHECK_OK(cuMemFree(mine));
    }
    return NULL;
}

/* What is opened while it is freed is there whole, or not at all. */
static void opens_while_it_is_freed(void) {
    struct remote remote = start();
    pthread_t threads[2];
    int rounds = 100;

    begin();
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, free_and_export, &rounds) == 0);
    for (int i = 0; i < 100; i++) {
        CUipcMemHandle handle;
        bool some;

        pthread_mutex_lock(&latest.lock);
        handle = latest.handle;
        some = latest.some;
        pthread_mutex_unlock(&latest.lock);
        if (!some)
            continue;
        struct told told = TELL(&remote, OPEN, .flags = FLAG, .handle = handle);
        CHECK(told.result == CUDA_SUCCESS || told.result == CUDA_ERROR_INVALID_HANDLE);
        if (told.result == CUDA_SUCCESS) {
            CHECK(value_at(&remote, told.ptr, 2 * MIB) == 6);
            CHECK_OK(TELL(&remote, CLOSE, .ptr = told.ptr).result);
        }
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    end(&remote);
}

static void *open_theirs(void *handle) {
    for (int i = 0; i < 50; i++) {
        CUdeviceptr ptr;

        CHECK_OK(cuIpcOpenMemHandle(&ptr, *(CUipcMemHandle *)handle, FLAG));
        CHECK(read_value(ptr, 4096) == 2);
        CHECK_OK(cuIpcCloseMemHandle(ptr));
    }
    return NULL;
}

static void *open_theirs_with_a_context(void *handle) {
    begin();
    return open_theirs(handle);
}

/* Two processes open each other's memory at the same time, from several threads. */
static void opens_each_others(void) {
    struct remote remote = start();
    pthread_t threads[3];

    begin();
    CUipcMemHandle mine = exported(allocate(2 * MIB, 1));
    CUdeviceptr theirs = TELL(&remote, ALLOC, .size = 2 * MIB).ptr;
    CHECK_OK(TELL(&remote, FILL, .ptr = theirs, .size = 2 * MIB, .value = 2).result);
    CUipcMemHandle handle = TELL(&remote, GET, .ptr = theirs).handle;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, open_theirs_with_a_context, &handle) == 0);
    for (int i = 0; i < 100; i++) {
        CUdeviceptr ptr = opened(&remote, mine);

        CHECK(value_at(&remote, ptr, 4096) == 1);
        CHECK_OK(TELL(&remote, CLOSE, .ptr = ptr).result);
    }
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    end(&remote);
}

/* Queued work on the memory runs before it is unmapped. */
static void closes_after_the_work_on_it(void) {
    struct remote remote = start();
    CUstream stream;
    CUdeviceptr mine;

    begin();
    CUdeviceptr theirs = TELL(&remote, ALLOC, .size = 2 * MIB).ptr;
    CUipcMemHandle handle = TELL(&remote, GET, .ptr = theirs).handle;
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuIpcOpenMemHandle(&mine, handle, FLAG));
    CHECK_OK(cuMemsetD8Async(mine, 5, 2 * MIB, stream));
    CHECK_OK(cuIpcCloseMemHandle(mine));
    CHECK(value_at(&remote, theirs, 2 * MIB) == 5);
    CHECK(((unsigned long (*)(void))guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_violations"))() == 0);
    CHECK_OK(cuStreamDestroy(stream));
    end(&remote);
}

/* A context takes along what was opened in it, as it does natively. */
static void ends_with_its_context(void) {
    struct remote remote = start();
    CUdeviceptr mine;
    CUcontext context;

    begin();
    CUdeviceptr theirs = TELL(&remote, ALLOC, .size = 2 * MIB).ptr;
    CUipcMemHandle handle = TELL(&remote, GET, .ptr = theirs).handle;
    CHECK_OK(cuIpcOpenMemHandle(&mine, handle, FLAG));
    CHECK_OK(cuDevicePrimaryCtxReset(0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK(read_value(mine, 1) == -2);
    CHECK_OK(cuIpcOpenMemHandle(&mine, handle, FLAG));
    CHECK_OK(cuIpcCloseMemHandle(mine));
    end(&remote);
}

/* What another context has opened, too, stays, and is another mapping. */
static void each_context_opens_for_itself(void) {
    struct remote remote = start();
    CUdeviceptr first, again, second, closed, base;
    CUcontext owner, other;
    size_t size;

    begin();
    CUdeviceptr theirs = TELL(&remote, ALLOC, .size = 2 * MIB).ptr;
    CHECK_OK(TELL(&remote, FILL, .ptr = theirs, .size = 2 * MIB, .value = 7).result);
    CUipcMemHandle handle = TELL(&remote, GET, .ptr = theirs).handle;
    CHECK_OK(cuIpcOpenMemHandle(&first, handle, FLAG));
    CHECK_OK(cuIpcOpenMemHandle(&again, handle, FLAG));
    CHECK_OK(cuCtxGetCurrent(&owner));
    CHECK_OK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK_OK(cuCtxSetCurrent(other));
    CHECK_OK(cuIpcOpenMemHandle(&second, handle, FLAG));
    CHECK(again == first && second != first);
    /* An H200 knows only what the current context may reach. */
    CHECK(cuMemGetAddressRange(&base, &size, first + 5) == CUDA_ERROR_NOT_FOUND && !size);
    CHECK_OK(cuCtxEnablePeerAccess(owner, 0));
    CHECK_OK(cuMemGetAddressRange(&base, &size, first + 5));
    CHECK(base == first && size == 2 * MIB);
    CHECK_OK(cuCtxDisablePeerAccess(owner));
    CHECK_OK(cuIpcOpenMemHandle(&closed, handle, FLAG));
    CHECK_OK(cuIpcCloseMemHandle(closed));
    CHECK(closed == second && read_value(first, 2 * MIB) == 7);
    CHECK_OK(cuDevicePrimaryCtxReset(0));
    CHECK(read_value(first, 1) == -2 && read_value(second, 2 * MIB) == 7);
    CHECK_OK(cuIpcCloseMemHandle(second));
    CHECK(read_value(second, 1) == -2);
    end(&remote);
}

/* At a process's end, CUDA may be gone before what asks whether a context lives. */
static void outlives_cuda_with_what_is_open(void) {
    void (*fail)(const char *, long, CUresult) = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_fail");
    struct remote remote = start();
    CUdeviceptr opened;

    begin();
    CUdeviceptr theirs = TELL(&remote, ALLOC, .size = 2 * MIB).ptr;
    CHECK_OK(cuIpcOpenMemHandle(&opened, TELL(&remote, GET, .ptr = theirs).handle, FLAG));
    fail("cuMemUnmap", 1, CUDA_ERROR_DEINITIALIZED);
    CHECK_OK(cuDevicePrimaryCtxReset(0));
    end(&remote);
}

/* A capture in any mode lives on, and what was closed beside it goes with the next close: as an H200's driver does. */
static void a_close_leaves_captures_alone(void) {
    struct remote remote = start();
    CUstream stream;
    CUgraph graph = NULL;

    begin();
    CUdeviceptr first, second, theirs = TELL(&remote, ALLOC, .size = 2 * MIB).ptr;
    CUipcMemHandle handle = TELL(&remote, GET, .ptr = theirs).handle;
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        CUdeviceptr other = TELL(&remote, ALLOC, .size = 2 * MIB).ptr;
        CUipcMemHandle others = TELL(&remote, GET, .ptr = other).handle;
        CHECK_OK(cuIpcOpenMemHandle(&first, handle, FLAG));
        CHECK_OK(cuMemsetD8Async(first, 5 + mode, 2 * MIB, stream));
        CHECK_OK(cuStreamBeginCapture(stream, mode));
        CHECK_OK(cuIpcOpenMemHandle(&other, others, FLAG));
        CHECK_OK(cuIpcCloseMemHandle(first));
        CHECK(cuIpcCloseMemHandle(first) == CUDA_ERROR_INVALID_VALUE);
        CHECK_OK(cuIpcOpenMemHandle(&second, handle, FLAG));
        CHECK(second == first);
        CHECK_OK(cuIpcCloseMemHandle(second));
        CHECK_OK(cuStreamEndCapture(stream, &graph));
        CHECK_OK(cuIpcCloseMemHandle(other));
        CHECK(cuIpcCloseMemHandle(4096) == CUDA_ERROR_INVALID_VALUE);
        CHECK(read_value(first, 1) == -2);
        CHECK(value_at(&remote, theirs, 2 * MIB) == 5 + mode);
    }
    end(&remote);
}

GUEST_MAIN(GUEST(peer), GUEST(a_fork_does_not_wait_for_an_opening), GUEST(ticks_do_not_prolong_an_opening),
           GUEST(shares_memory), GUEST(shares_memory_through_the_runtime), GUEST(counts_references),
           GUEST(answers_errors_as_cuda_does), GUEST(gives_each_allocation_its_handle),
           GUEST(never_reuses_what_was_exported), GUEST(survives_the_exporters_death), GUEST(stands_alone),
           GUEST(takes_out_of_use_what_is_free_beside), GUEST(keeps_all_apart_when_told), GUEST(shows_what_lies_beside),
           GUEST(keeps_large_blocks_apart_once_coupled), GUEST(keeps_apart_what_is_shown_at_once),
           GUEST(shares_whatever_is_sent_in_a_rank), GUEST(lies_in_one_handle), GUEST(says_where_no_peer_reaches),
           GUEST(keeps_large_blocks_apart_after_one_was_shown), GUEST(leaves_cudaMalloc_to_cuda_when_native),
           GUEST(means_nothing_without_the_library), GUEST(bears_garbage), GUEST(bears_failing_calls),
           GUEST(opens_a_thousand_handles), GUEST(bears_the_limit_of_descriptors), GUEST(leaves_no_socket_to_children),
           GUEST(opens_while_it_is_freed), GUEST(opens_each_others), GUEST(closes_after_the_work_on_it),
           GUEST(ends_with_its_context), GUEST(each_context_opens_for_itself), GUEST(follows_peers_while_it_opens),
           GUEST(captures_may_begin_while_it_is_closed), GUEST(a_close_waits_for_graphs),
           GUEST(a_close_leaves_captures_alone), GUEST(outlives_cuda_with_what_is_open),
           GUEST(closes_nothing_of_the_programs), GUEST(leaves_nobody_who_is_answered_to_children),
           GUEST(rests_while_nobody_may_be_accepted), GUEST(finds_its_way_among_many))
