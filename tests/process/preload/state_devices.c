/* Guests of what comes and goes around memory: devices and peers, threads without a context, ranks that talk to each
 * other. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>

/* ---- devices and peers ---- */

/* As the program is told, for the current context. */
static bool may_touch(CUdeviceptr ptr) {
    unsigned int flags = 99;
    CUdeviceptr there = 0, base = 0;
    size_t size = 99;

    CHECK_OK(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, ptr));
    CHECK(flags == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE); /* CUDA says so to every device */
    const bool may = cuPointerGetAttribute(&there, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr) == CUDA_SUCCESS;
    CHECK(there == (may ? ptr : 0));
    CHECK(cuMemGetAddressRange(&base, &size, ptr) == (may ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND));
    CHECK(base == (may ? ptr : 0) && (size == 0) == !may);
    return may;
}

/* Two devices (VPOOL_SIM=devices=2), and a second context on the peer's. */
void peers_reach_what_they_may(void) {
    enum { BLOCKS = 6 };
    CUdeviceptr block[BLOCKS], later;
    CUcontext there, second;

    start();
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < BLOCKS; i++)
        CHECK_OK(i % 2 ? cuMemAlloc(&block[i], 3 * MIB) : cuMemAllocAsync(&block[i], 3 * MIB, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuMemFreeAsync(block[0], stream)); /* parked, and taken again below */
    there = retain(1);
    CHECK_OK(cuCtxCreate(&second, NULL, 0, 1));

    CHECK(cuMemsetD8(block[1], 1, MIB) != CUDA_SUCCESS);
    CHECK_OK(cuCtxEnablePeerAccess(context, 0));
    CHECK(cuCtxEnablePeerAccess(context, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    CHECK_OK(cuCtxSetCurrent(there));
    CHECK_OK(cuCtxEnablePeerAccess(context, 0));
    for (int i = 1; i < BLOCKS; i++)
        CHECK_OK(cuMemsetD8(block[i], (unsigned char)i, 3 * MIB));

    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuMemAllocAsync(&block[0], 3 * MIB, stream));
    CHECK_OK(cuMemAlloc(&later, 9 * MIB));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuCtxSetCurrent(there));
    CHECK_OK(cuMemsetD8(block[0], 0, 3 * MIB));
    CHECK_OK(cuMemsetD8(later, 77, 9 * MIB));
    CHECK_OK(cuCtxSynchronize());
    for (int i = 0; i < BLOCKS; i++)
        check_bytes(block[i], 3 * MIB, (unsigned char)i);

    CHECK(may_touch(later));
    CHECK_OK(cuCtxDisablePeerAccess(context));
    CHECK(!may_touch(later));
    CHECK_OK(cuCtxSetCurrent(second));
    CHECK(may_touch(later)); /* the other context still may */
    CHECK_OK(cuCtxDisablePeerAccess(context));
    CHECK(cuCtxDisablePeerAccess(context) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    for (int i = 0; i < BLOCKS; i++)
        CHECK(!may_touch(block[i]));

    /* A context that ends takes its access with it. */
    CHECK_OK(cuCtxEnablePeerAccess(context, 0));
    CHECK(may_touch(later));
    CHECK_OK(cuCtxDestroy(second));
    CHECK_OK(cuCtxSetCurrent(there));
    CHECK(driver_access(later, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE); /* there were copies, which need no leave */
    check_served();
}

/* Access that was given before there was any memory. VPOOL_SIM=devices=2 */
void peers_come_before_memory(void) {
    CUdeviceptr sync, async;

    start();
    retain(1);
    CHECK_OK(cuCtxEnablePeerAccess(context, 0));
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuMemAlloc(&sync, 3 * MIB));
    CHECK_OK(cuMemAllocAsync(&async, 3 * MIB, NULL));
    CHECK(driver_access(sync, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(driver_access(async, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_OK(cuDevicePrimaryCtxReset(1));
    CHECK(driver_access(sync, 1) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    check_served();
}

/* The enabling call fails if what there is cannot be opened, and is undone. VPOOL_SIM=devices=2 */
void enabling_a_peer_may_fail(void) {
    CUdeviceptr a, b;
    void (*fail)(const char *, long, CUresult);

    start();
    fail = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_fail");
    CHECK_OK(cuMemAlloc(&a, 9 * MIB));
    CHECK_OK(cuMemAlloc(&b, 9 * MIB));
    retain(1);
    fail("cuMemSetAccess", 2, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuCtxEnablePeerAccess(context, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(driver_access(a, 1) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK(driver_access(b, 1) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_OK(cuCtxEnablePeerAccess(context, 0));
    CHECK(driver_access(a, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(driver_access(b, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    check_served();
}

/* Each device has its own pool, and a thread that changes between them gets each one's memory. */
void devices_have_pools_of_their_own(void) {
    CUdeviceptr ptr[2][8];
    size_t (*used)(int);
    int64_t (*vpool_trim)(int, uint64_t) = guest_symbol(RTLD_DEFAULT, "vpool_trim");

    CHECK_OK(cuInit(0));
    used = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_used_vmm");
    for (int i = 0; i < 8; i++)
        for (int device = 0; device < 2; device++) {
            int which = -1;

            retain(device);
            CHECK_OK(cuMemAlloc(&ptr[device][i], MIB << device));
            CHECK_OK(cuPointerGetAttribute(&which, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr[device][i]));
            CHECK(which == device);
        }
    CHECK(used(0) >= 8 * MIB && used(0) <= 16 * MIB);
    CHECK(used(1) >= 16 * MIB && used(1) <= 24 * MIB);
    for (int i = 0; i < 8; i++)
        CHECK_OK(cuMemFree(ptr[0][i])); /* device 1 is current: as in CUDA, no matter */
    CHECK_OK(cuCtxSynchronize());
    retain(0);
    CHECK_OK(cuCtxSynchronize());
    CHECK(vpool_trim(0, 0) > 0);
    CHECK(used(0) == 0 && used(1) >= 16 * MIB);
    check_served();
}

/* ---- threads without a current context ---- */

static void *without_a_context(void *arg) {
    CUdeviceptr *ptr = arg, other = 1;

    SHOW(cuMemAlloc(&other, MIB));
    SHOW(cuMemAllocAsync(&other, MIB, NULL));
    SHOW(other == 1);
    SHOW(cuMemFree(*ptr));
    return NULL;
}

void threads_without_a_context(void) {
    CUdeviceptr ptr;

    start();
    CHECK_OK(cuMemAlloc(&ptr, 2 * MIB));
    on_thread(true, without_a_context, &ptr);
    CHECK_OK(cuMemAlloc(&ptr, 2 * MIB));
    CHECK_OK(cuMemFree(ptr));
}

/* ---- ranks ---- */

struct unique_id {
    char internal[128];
};

/* Work that waits for the other rank's message: the stream goes on when that has come. */
static void *receive(void *arg) {
    void (*release)(CUstream) = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_release");
    const int *from = *(int **)arg;
    char message;

    CHECK_OK(cuCtxSetCurrent(context));
    if (read(*from, &message, 1) == 1)
        release(((CUstream *)arg)[1]);
    return NULL;
}

/* One of two ranks. Each posts a receive on one stream, frees a buffer behind it, and on another stream, in
 * memory that it then asks for, makes what the other waits for. A stream that waited for the buffer would wait
 * for the other rank, and that one for this: for ever. */
static void run_rank(int from, int to) {
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL), *comm;
    int (*init)(void **, int, struct unique_id, int) = guest_symbol(nccl, "ncclCommInitRank");
    void (*hold)(CUstream);
    CUdeviceptr a, b, buffer;
    pthread_t thread;

    start();
    hold = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_hold");
    init(&comm, 2, (struct unique_id){"two"}, 0);
    CUstream receiving = stream_new(CU_STREAM_NON_BLOCKING), sending = stream_new(CU_STREAM_NON_BLOCKING);
    /* Both streams use the pool, so that frees of this size record their events. */
    CHECK_OK(cuMemAllocAsync(&a, 2 * MIB, receiving));
    CHECK_OK(cuMemAllocAsync(&b, 2 * MIB, sending));
    CHECK_OK(cuMemAllocAsync(&buffer, 8 * MIB, receiving));
    CHECK_OK(cuMemFreeAsync(a, receiving));
    CHECK_OK(cuMemFreeAsync(b, sending));
    CHECK_OK(cuCtxSynchronize());

    void *posted[2] = {&from, receiving};
    hold(receiving);
    CHECK(pthread_create(&thread, NULL, receive, posted) == 0);
    CHECK_OK(cuMemsetD8Async(buffer, 1, 8 * MIB, receiving));
    CHECK_OK(cuMemFreeAsync(buffer, receiving));

    CHECK_OK(cuMemAllocAsync(&b, 8 * MIB, sending));
    CHECK_OK(cuMemsetD8Async(b, 2, 8 * MIB, sending));
    CHECK_OK(cuStreamSynchronize(sending));
    CHECK(write(to, "x", 1) == 1);

    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(cuStreamSynchronize(receiving));
    check_bytes(b, 8 * MIB, 2);
}

void ranks_that_wait_for_each_other(void) {
    int there[2], back[2], status = -1;
    pid_t other;

    CHECK(pipe(there) == 0 && pipe(back) == 0);
    other = fork();
    if (other == 0) {
        close(there[1]);
        close(back[0]);
        run_rank(there[0], back[1]);
        exit(0);
    }
    close(there[0]);
    close(back[1]);
    run_rank(back[0], there[1]);
    CHECK(waitpid(other, &status, 0) == other && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
