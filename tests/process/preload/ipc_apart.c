/* Guests that share memory by legacy IPC: what may lie beside it (VPOOL_IPC), and which devices reach it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>

/* Only the block itself can be seen from outside. VPOOL_IPC tells what becomes of one that shares its handles. */
void stands_alone(void) {
    struct remote remote = start();

    begin();
    CUdeviceptr before = allocate(3 * MIB, 8), mine = allocate(2 * MIB, 1), behind = allocate(3 * MIB, 9);
    CUdeviceptr theirs = opened(&remote, exported(mine));
    CHECK(value_at(&remote, theirs, 2 * MIB) == 1);
    CHECK(value_at(&remote, theirs + 2 * MIB, 1) == -2 && value_at(&remote, theirs - 1, 1) == -2);
    CHECK(value_at(&remote, theirs + 2 * MIB - 1, 2) == -2);
    CHECK_OK(cuMemFree(before));
    CHECK_OK(cuMemFree(behind));
    end(&remote);
}

void takes_out_of_use_what_is_free_beside(void) {
    begin();
    CUdeviceptr mine = allocate(1000, 1), other = allocate(1000, 2);
    CHECK(mine / GRANULE == other / GRANULE);
    CHECK_OK(cuMemFree(other));
    exported(mine);
    for (int i = 0; i < 100; i++)
        CHECK(allocate(512, 3) / GRANULE != mine / GRANULE);
}

void keeps_all_apart_when_told(void) {
    struct remote remote = start();

    begin();
    CUdeviceptr mine = allocate(1000, 1), other = allocate(1000, 2);
    CUdeviceptr theirs = opened(&remote, exported(mine)), too = opened(&remote, exported(other));
    CHECK(value_at(&remote, theirs, 1000) == 1 && value_at(&remote, too, 1000) == 2);
    CHECK(mine / GRANULE != other / GRANULE);
    end(&remote);
}

/* As CUDA does, of which a program counts on being served. */
void shows_what_lies_beside(void) {
    struct remote remote = start();

    begin();
    CUdeviceptr mine = allocate(1000, 1), other = allocate(1000, 2);
    CHECK(mine / GRANULE == other / GRANULE);
    CUdeviceptr theirs = opened(&remote, exported(other));
    CHECK(value_at(&remote, theirs, 1000) == 2);
    CHECK(value_at(&remote, theirs + mine - other, 1000) == 1);
    /* Its bytes are nobody's as long as the other block holds them back. */
    CHECK_OK(cuMemFree(other));
    for (int i = 0; i < 100; i++)
        allocate(1000, 3);
    CHECK(value_at(&remote, theirs, 1000) == 2);
    CHECK_OK(TELL(&remote, CLOSE, .ptr = theirs).result);
    CHECK_OK(cuMemFree(mine));
    end(&remote);
}

static void export_large(size_t granule) {
    CUdeviceptr mine = allocate(MIB + 1000, 1), other = allocate(MIB + 1000, 2);
    CHECK(mine % granule == 0 && other % granule == 0);
    exported(mine);
    exported(other);
    CHECK_OK(cuMemFree(mine));
    CHECK_OK(cuMemFree(other));
}

/* Where IPC or a communicator is at work, blocks from 1 MiB on are apart, of whatever size. */
void keeps_large_blocks_apart_once_coupled(void) {
    begin();
    exported(allocate(2 * MIB, 1));
    export_large(GRANULE);
}

/* Buffers of signals, and what is shared by Triton's clients: the handle is asked for as soon as there is memory. */
void keeps_apart_what_is_shown_at_once(void) {
    CUdeviceptr one, next;
    begin();
    allocate(20, 1);
    exported(allocate(3 * MIB + 1000, 2));
    for (int i = 0; i < 20; i++)
        exported(allocate(64 << i % 10, 3));
    /* Others lie beside each other as before. */
    allocate(1000, 4);
    one = allocate(1000, 4);
    next = allocate(1000, 4);
    CHECK(one / GRANULE == next / GRANULE);
    exported(one);
    one = allocate(1000, 4);
    CHECK(allocate(1000, 4) / GRANULE == one / GRANULE);
}

/* Whoever opens memory of a device that the current one cannot reach is told so, as TensorRT-LLM's users are. */
void says_where_no_peer_reaches(void) {
    struct remote remote = start();
    CUcontext other;
    begin();
    CHECK_OK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK_OK(cuCtxSetCurrent(other));
    CUdeviceptr mine = allocate(MIB, 1);
    CHECK(TELL(&remote, OPEN, .handle = exported(mine), .flags = FLAG).result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    CHECK_OK(cuMemFree(mine));
    end(&remote);
}

struct opened_soon {
    CUcontext context;
    CUipcMemHandle handle;
};

static void *open_soon(void *what) {
    const struct opened_soon *soon = what;
    CUdeviceptr ptr = 0;

    CHECK_OK(cuCtxSetCurrent(soon->context));
    CHECK_OK(cuIpcOpenMemHandle(&ptr, soon->handle, FLAG));
    return (void *)(uintptr_t)ptr;
}

/* A peer that is let in, or shut out, while the exporter has not answered yet. */
void follows_peers_while_it_opens(void) {
    struct remote remote = start();
    struct opened_soon soon;
    CUcontext other;
    pthread_t thread;
    void *ptr;
    int status;

    begin();
    CHECK_OK(cuCtxGetCurrent(&soon.context));
    CHECK_OK(cuDevicePrimaryCtxRetain(&other, 1));
    for (int allowed = 1; allowed >= 0; allowed--) {
        soon.handle = TELL(&remote, GET, .ptr = TELL(&remote, ALLOC, .size = 2 * MIB).ptr).handle;
        CHECK(kill(remote.pid, SIGSTOP) == 0 && waitpid(remote.pid, &status, WUNTRACED) == remote.pid);
        CHECK(pthread_create(&thread, NULL, open_soon, &soon) == 0);
        usleep(100000);
        CHECK_OK(cuCtxSetCurrent(other));
        CHECK_OK(allowed ? cuCtxEnablePeerAccess(soon.context, 0) : cuCtxDisablePeerAccess(soon.context));
        CHECK_OK(cuCtxSetCurrent(soon.context));
        CHECK(kill(remote.pid, SIGCONT) == 0);
        CHECK(pthread_join(thread, &ptr) == 0);
        CHECK(driver_access((uintptr_t)ptr, 1) ==
              (allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE));
    }
    end(&remote);
}

/* MPICH ends where memory cannot be shared; it asks for what a program sends, whatever else that has. */
void shares_whatever_is_sent_in_a_rank(void) {
    struct remote remote = start();

    begin();
    CUdeviceptr small = allocate(1000, 3), other = allocate(1000, 4);
    CHECK(small / GRANULE == other / GRANULE);
    export_large(2 * MIB);
    CUdeviceptr theirs = opened(&remote, exported(small));
    CHECK(value_at(&remote, theirs, 1000) == 3);
    CHECK_OK(TELL(&remote, CLOSE, .ptr = theirs).result);
    end(&remote);
}

/* nvidia-peermem, GDRCopy and GPUDirect Storage tell nobody here what they register, and take what lies in one handle.
 */
void lies_in_one_handle(void) {
    begin();
    for (size_t size = 5 * MIB + 1000; size < 80 * MIB; size *= 2) {
        const unsigned long before = driver_calls("cuMemCreate");
        allocate(size, 1);
        CHECK(driver_calls("cuMemCreate") == before + 1);
    }
}

void keeps_large_blocks_apart_after_one_was_shown(void) {
    begin();
    CUdeviceptr first = allocate(MIB + 1000, 1), beside = allocate(MIB + 1000, 2);
    CHECK(beside % (2 * MIB));
    exported(first);
    exported(beside);
    export_large(2 * MIB);
}

static void *sim(const char *name) {
    return guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), name);
}

static void *release_later(void *which) {
    usleep(100000);
    ((void (*)(CUstream))sim("vp_sim_release"))(which);
    return NULL;
}

static void *close_there(void *ptr) {
    CUcontext there;

    CHECK_OK(cuDevicePrimaryCtxRetain(&there, 1));
    CHECK_OK(cuCtxSetCurrent(there));
    CHECK_OK(cuIpcCloseMemHandle((CUdeviceptr)ptr));
    return NULL;
}

/* Memory of the other process, and a stream to write to it. */
static CUdeviceptr open_theirs(struct remote *remote, CUdeviceptr *mine, CUstream *stream) {
    begin();
    CUdeviceptr theirs = TELL(remote, ALLOC, .size = 2 * MIB).ptr;
    CHECK_OK(cuIpcOpenMemHandle(mine, TELL(remote, GET, .ptr = theirs).handle, FLAG));
    CHECK_OK(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    return theirs;
}

/* A thread of another device closes it, and waits meanwhile. */
void captures_may_begin_while_it_is_closed(void) {
    struct remote remote = start();
    CUstream stream, capturing;
    CUcontext there;
    pthread_t thread;
    CUdeviceptr mine;
    CUgraph graph;

    CUdeviceptr theirs = open_theirs(&remote, &mine, &stream);
    ((void (*)(CUstream))sim("vp_sim_hold"))(stream);
    CHECK_OK(cuMemsetD8Async(mine, 7, 2 * MIB, stream));
    CHECK_OK(cuDevicePrimaryCtxRetain(&there, 1));
    CHECK_OK(cuCtxSetCurrent(there));
    CHECK_OK(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    CHECK(pthread_create(&thread, NULL, close_there, (void *)mine) == 0);
    usleep(100000);
    CHECK_OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    release_later(stream);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(cuStreamEndCapture(capturing, &graph));
    CHECK(value_at(&remote, theirs, 2 * MIB) == 7);
    end(&remote);
}

/* The graph is launched on a stream of another device than the memory's. */
void a_close_waits_for_graphs(void) {
    struct remote remote = start();
    CUstream stream, other;
    CUcontext here, there;
    pthread_t thread;
    CUdeviceptr mine;
    CUgraphExec exec;
    CUgraph graph;

    CUdeviceptr theirs = open_theirs(&remote, &mine, &stream);
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_OK(cuMemsetD8Async(mine, 7, 2 * MIB, stream));
    CHECK_OK(cuStreamEndCapture(stream, &graph));
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    CHECK_OK(cuCtxGetCurrent(&here));
    CHECK_OK(cuDevicePrimaryCtxRetain(&there, 1));
    CHECK_OK(cuCtxSetCurrent(there));
    CHECK_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    ((void (*)(CUstream))sim("vp_sim_hold"))(other);
    CHECK_OK(cuGraphLaunch(exec, other));
    CHECK_OK(cuCtxSetCurrent(here));
    CHECK(pthread_create(&thread, NULL, release_later, other) == 0);
    CHECK_OK(cuIpcCloseMemHandle(mine));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(cuStreamSynchronize(other));
    CHECK(value_at(&remote, theirs, 2 * MIB) == 7);
    end(&remote);
}
