/* Guests of the driver API, linked to libcuda: every call goes through the dynamic linker. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "../../../src/driver/younger.h"
#include "driver.h"
#include "self.h"

static CUcontext context;

void start(void) {
    CUdevice device;

    CHECK_OK(cuInit(0));
    CHECK_OK(cuDeviceGet(&device, 0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_OK(cuCtxSetCurrent(context));
}

/* Fills a range, one value at a time a byte further, and reads it back. */
static void check_data(CUdeviceptr ptr, size_t size, unsigned char value) {
    unsigned char *host = malloc(size);

    CHECK(host);
    CHECK_OK(cuMemsetD8(ptr, value, size));
    CHECK_OK(cuMemsetD8(ptr + size - 1, value + 1, 1));
    CHECK_OK(cuMemcpyDtoH(host, ptr, size));
    for (size_t i = 0; i + 1 < size; i++)
        CHECK(host[i] == value);
    CHECK(host[size - 1] == (unsigned char)(value + 1));
    free(host);
}

static void serves_the_linkers_route(void) {
    CUdeviceptr plain, pitched, ordered, base;
    size_t size = 3 * MIB + 4242, pitch, range;
    CUstream stream;

    start();
    CHECK_OK(cuMemAlloc(&plain, size));
    CHECK_OK(cuMemAllocPitch(&pitched, &pitch, 1000, 700, 4));
    CHECK(pitch >= 1000);
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuMemAllocAsync(&ordered, size, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    check_data(plain, size, 1);
    check_data(pitched, pitch * 700, 2);
    check_data(ordered, size, 3);
    CHECK_OK(cuMemGetAddressRange(&base, &range, plain + 2 * MIB));
    CHECK(base == plain);
    CHECK(range >= size && range < 2 * size);
    CHECK_OK(cuMemFreeAsync(ordered, stream));
    CHECK_OK(cuMemFree(plain));
    CHECK_OK(cuMemFree(pitched));
    CHECK_OK(cuStreamDestroy(stream));
    check_served();
}

static void frees_what_the_other_call_allocated(void) {
    CUdeviceptr plain, ordered;
    CUstream stream;

    start();
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK_OK(cuMemAlloc(&plain, MIB));
    CHECK_OK(cuMemAllocAsync(&ordered, MIB, stream));
    CHECK_OK(cuMemFreeAsync(plain, stream));
    CHECK_OK(cuMemFree(ordered));
    CHECK_OK(cuStreamDestroy(stream));
    check_served();
}

/* Memory from before us, or from a library that found the driver by another way. */
static void frees_foreign_pointers(void) {
    CUresult (*real_alloc)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))self_next("cuMemAlloc_v2");
    CUdeviceptr foreign, managed;

    start();
    CHECK(real_alloc && real_alloc != cuMemAlloc);
    CHECK_OK(real_alloc(&foreign, MIB));
    CHECK(driver_calls("cuMemAlloc_v2") == 1);
    check_data(foreign, MIB, 9);
    CHECK_OK(cuMemFree(foreign));
    CHECK(driver_calls("cuMemFree_v2") == 1);
    CHECK_OK(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK_OK(cuMemFree(managed));
}

static void answers_errors_as_cuda_does(void) {
    CUdeviceptr ptr = 0, base;
    size_t total = 0, pitch = 0;
    CUcontext popped;
    CUmemoryPool pool;
    CUdevice device;

    SHOW(cuMemAlloc(&ptr, 1));
    SHOW(cuMemFree(0));
    CHECK_OK(cuInit(0));
    SHOW(cuMemAlloc(&ptr, 1));
    SHOW(cuMemAllocAsync(&ptr, 1, NULL));
    SHOW(cuMemFree(0));
    SHOW(cuMemFree(4096));
    SHOW(cuMemGetInfo(NULL, &total));
    SHOW(cuStreamCreate(NULL, 0));
    start();
    SHOW(cuMemAlloc(NULL, 1));
    SHOW(cuMemAlloc(&ptr, 0));
    SHOW(cuMemAllocAsync(NULL, 1, NULL));
    SHOW(cuMemAllocAsync(&ptr, 0, NULL));
    SHOW(cuMemAllocFromPoolAsync(&ptr, 1, NULL, NULL));
    SHOW(cuMemAllocPitch(&ptr, &pitch, 0, 1, 4));
    SHOW(cuMemAllocPitch(&ptr, &pitch, 1, 0, 4));
    SHOW(cuMemAllocPitch(&ptr, &pitch, 1, 1, 3));
    SHOW(cuMemAllocPitch(&ptr, NULL, 1, 1, 4));
    SHOW(cuMemAlloc(&ptr, (size_t)1 << 50));
    SHOW(cuMemAllocAsync(&ptr, (size_t)1 << 50, NULL));
    SHOW(ptr == 0);
    SHOW(cuMemFree(0));
    SHOW(cuMemFreeAsync(0, NULL));
    SHOW(cuMemFree(4096));
    SHOW(cuMemFreeAsync(4096, NULL));
    SHOW(cuMemAlloc(&ptr, 4 * MIB));
    SHOW(cuMemFree(ptr + 512));
    SHOW(cuMemFreeAsync(ptr + 512, NULL));
    SHOW(cuCtxPopCurrent(&popped));
    SHOW(cuMemGetAddressRange(&base, &total, ptr));
    SHOW(cuCtxPushCurrent(popped));
    SHOW(cuMemGetAddressRange(&base, &total, ptr));
    SHOW(cuMemFree(ptr));
    SHOW(cuMemFree(ptr));
    SHOW(cuMemFreeAsync(ptr, NULL));
    SHOW(cuMemGetInfo(NULL, &total));
    SHOW(cuMemGetInfo(&total, NULL));
    CHECK_OK(cuDeviceGet(&device, 0));
    SHOW(cuDeviceGetDefaultMemPool(NULL, device));
    SHOW(cuDeviceGetDefaultMemPool(&pool, device));
    SHOW(cuMemPoolDestroy(pool));
    SHOW(cuMemPoolCreate(&pool, NULL));
    SHOW(cuStreamDestroy(NULL));
    SHOW(cuCtxDestroy(NULL));
}

/* The driver's own memory too: what we keep idle is given back when another's allocation fails. */
static void gives_way_to_the_programs_own_handles(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr ptr;

    start();
    CHECK_OK(cuMemAlloc(&ptr, 200 * MIB));
    CHECK_OK(cuMemFree(ptr));
    CHECK_OK(cuMemCreate(&handle, 200 * MIB, &prop, 0));
    CHECK_OK(cuMemRelease(handle));
}

static void captures_are_left_to_cuda(void) {
    CUdeviceptr ptr;
    CUstream stream;
    CUgraph graph;
    size_t nodes = 0;

    start();
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_OK(cuMemAllocAsync(&ptr, MIB, stream));
    CHECK_OK(cuMemFreeAsync(ptr, stream));
    CHECK_OK(cuStreamEndCapture(stream, &graph));
    CHECK_OK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 2);
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_OK(cuStreamDestroy(stream));
    CHECK(driver_calls("cuMemCreate") == 0);
}

static void imports_physical_memory(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle, imported;
    int fd;

    start();
    CHECK_OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    CHECK_OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK_OK(
        cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK_OK(cuMemRelease(imported));
    CHECK_OK(cuMemRelease(handle));
}

/* A context ends and begins again: what it held is gone, what comes after is served. */
static void survives_a_reset(void) {
    CUdeviceptr ptr;

    for (int round = 0; round < 3; round++) {
        start();
        CHECK_OK(cuMemAlloc(&ptr, 3 * MIB));
        check_data(ptr, 3 * MIB, round);
        CHECK_OK(cuDevicePrimaryCtxReset(0));
    }
    for (int round = 0; round < 3; round++) {
        start();
        CHECK_OK(cuMemAlloc(&ptr, 3 * MIB));
        check_data(ptr, 3 * MIB, round);
        CHECK_OK(cuMemFree(ptr));
        CHECK_OK(cuDevicePrimaryCtxRelease(0));
    }
    check_served();
}

/* Ends a child and tells whether it ended well, within ten seconds. */
static void check_child(pid_t child) {
    int status = -1;

    for (int i = 0; i < 1000 && waitpid(child, &status, WNOHANG) == 0; i++)
        usleep(10000);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void fork_before_cuda_is_used(void) {
    CUdeviceptr ptr;
    pid_t child = fork();

    start();
    CHECK_OK(cuMemAlloc(&ptr, 3 * MIB));
    check_data(ptr, 3 * MIB, 5);
    CHECK_OK(cuMemFree(ptr));
    check_served();
    if (child)
        check_child(child);
}

/* The child may not use CUDA; but it must be able to fail, to exit by any way, and to run another program. */
static void fork_after_cuda_was_used(void) {
    CUdeviceptr ptr, other;
    pid_t child;

    start();
    CHECK_OK(cuMemAlloc(&ptr, 3 * MIB));
    child = fork();
    if (child == 0) {
        cuMemAlloc(&other, MIB);
        cuMemFree(ptr);
        exit(0);
    }
    check_child(child);
    child = fork();
    if (child == 0)
        execl("/bin/true", "true", (char *)NULL);
    check_child(child);
    check_data(ptr, 3 * MIB, 7);
    CHECK_OK(cuMemFree(ptr));
    CHECK_OK(cuMemAlloc(&ptr, 3 * MIB));
    check_served();
}

static volatile int stop;

static void *allocate_until_stopped(void *arg) {
    CHECK_OK(cuCtxSetCurrent(context));
    while (!stop) {
        CUdeviceptr ptr;

        CHECK_OK(cuMemAlloc(&ptr, MIB));
        CHECK_OK(cuMemFree(ptr));
    }
    return NULL;
}

static void fork_while_threads_allocate(void) {
    pthread_t threads[3];

    start();
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, allocate_until_stopped, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();

        if (child == 0) {
            CUdeviceptr ptr;

            cuMemAlloc(&ptr, MIB);
            _exit(0);
        }
        check_child(child);
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

/* Physical memory of the program's own is counted as such; a block of the pool has no handle to be had. */
static void others_memory(void) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle four, two, again = 0;
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAllocationProp part = prop;
    CUdeviceptr ptr, at;
    int version = 0;

    start();
    CHECK_OK(cuDriverGetVersion(&version));
    if (version >= 13040)
        part.location.type = (CUmemLocationType)CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN;
    CHECK_OK(cuMemAlloc(&ptr, 3 * MIB));
    CHECK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(ptr + MIB)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(!again);
    CHECK_OK(cuMemCreate(&four, 4 * MIB, &prop, 0));
    CHECK_OK(cuMemCreate(&two, 2 * MIB, &part, 0));
    CHECK_OK(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    CHECK_OK(cuMemMap(at, 4 * MIB, 0, four, 0));
    CHECK_OK(cuMemSetAccess(at, 4 * MIB, &access, 1));
    CHECK_OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
    CHECK_OK(cuMemRelease(again));
    CHECK_OK(cuMemRelease(two));
    CHECK_OK(cuMemFree(ptr));
}

/* What the pool has mapped is to the program cuMemAlloc's memory, which is no mapping. */
static void no_call_reaches_the_pools_mappings(void) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc none = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUmemGenericAllocationHandle handle;
    unsigned char byte = 0;
    CUdeviceptr ptrs[2];

    start();
    CHECK_OK(cuMemAlloc(&ptrs[0], 64 * MIB));
    CHECK_OK(cuMemAllocAsync(&ptrs[1], 64 * MIB, NULL));
    CHECK_OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(cuMemsetD8(ptrs[i], 5, 64 * MIB));
        CHECK_OK(cuCtxSynchronize());
        SHOW(cuMemSetAccess(ptrs[i], 64 * MIB, &none, 1));
        SHOW(cuMemUnmap(ptrs[i], 64 * MIB));
        SHOW(cuMemMap(ptrs[i], 2 * MIB, 0, handle, 0));
        SHOW(cuMemAddressFree(ptrs[i], 64 * MIB));
        CHECK_OK(cuMemcpyDtoH(&byte, ptrs[i] + 5 * MIB, 1));
        SHOW(byte);
        CHECK_OK(cuMemFree(ptrs[i]));
        SHOW(cuMemUnmap(ptrs[i], 64 * MIB));
    }
    CHECK_OK(cuMemRelease(handle));
}

/* Nor does mapped memory, which the driver takes for the host's, too, answer otherwise than its own. */
static void pooled_memory_is_not_the_hosts(void) {
    const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    unsigned long long access = 77;
    CUdeviceptr ptr, there;
    unsigned flags;

    start();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(i ? cuMemAllocAsync(&ptr, 64 * MIB, NULL) : cuMemAlloc(&ptr, 64 * MIB));
        SHOW(cuMemHostGetDevicePointer(&there, (void *)ptr, 0));
        SHOW(cuMemHostGetFlags(&flags, (void *)(ptr + 512)));
        SHOW(cuMemGetAccess(&access, &device, ptr + 512));
        SHOW(access);
        CHECK_OK(cuMemFree(ptr));
        SHOW(cuMemGetAccess(&access, &device, ptr + 512));
    }
}

/* Memory of the host, and no context: there is no device to ask after (HAMi-core #169, #187, #333). */
static void host_memory_without_a_context(void) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
    CUmemGenericAllocationHandle handle = 0;
    size_t free_bytes, total;

    SHOW(cuInit(0));
    SHOW(cuMemGetInfo(&free_bytes, &total));
    SHOW(cuMemGetInfo(NULL, NULL));
    SHOW(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    SHOW(cuMemRelease(handle));
    SHOW(cuMemCreate(&handle, 2 * MIB, NULL, 0));
}

/* Whoever runs out of memory in this process gets what the pool keeps idle. */
static void others_failures_are_retried(void) {
    static char host[1 << 16] __attribute__((aligned(4096)));
    void (*fail)(const char *, long, CUresult);
    const CUDA_ARRAY_DESCRIPTOR desc = {1024, 0, CU_AD_FORMAT_FLOAT, 1};
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUdeviceptr ptr;
    CUarray array;
    CUmodule module;
    CUstream stream;
    CUmemoryPool pool;
    void *pinned;

    start();
    fail = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_fail");
#define RETRIED(name, call)                                                                                            \
    do {                                                                                                               \
        CHECK_OK(cuMemAlloc(&ptr, 3 * MIB));                                                                           \
        CHECK_OK(cuMemFree(ptr));                                                                                      \
        CHECK_OK(cuCtxSynchronize());                                                                                  \
        fail(name, 1, CUDA_ERROR_OUT_OF_MEMORY);                                                                       \
        CHECK_OK(call);                                                                                                \
        CHECK(driver_calls(name) == 2);                                                                                \
    } while (0)
    RETRIED("cuMemAllocManaged", cuMemAllocManaged(&ptr, MIB, CU_MEM_ATTACH_GLOBAL));
    RETRIED("cuMemAllocHost_v2", cuMemAllocHost(&pinned, MIB));
    RETRIED("cuMemHostAlloc", cuMemHostAlloc(&pinned, MIB, 0));
    RETRIED("cuMemHostRegister_v2", cuMemHostRegister(host, sizeof host, 0));
    RETRIED("cuArrayCreate_v2", cuArrayCreate(&array, &desc));
    RETRIED("cuModuleLoadData", cuModuleLoadData(&module, "code"));
    RETRIED("cuCtxSetLimit", cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, MIB));
    RETRIED("cuStreamCreate", cuStreamCreate(&stream, 0));
    RETRIED("cuStreamCreateWithPriority", cuStreamCreateWithPriority(&stream, 0, 0));
    RETRIED("cuMemPoolCreate", cuMemPoolCreate(&pool, &props));
}

/* To map what it has made a program may need memory, too: pages of the device's tables. PyTorch's cache is in disorder
 * for good once one of the two has failed (pytorch #188008). */
static void others_maps_are_retried(void) {
    void (*fail)(const char *, long, CUresult);
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = access.location};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at, ptr;

    start();
    fail = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_fail");
    CHECK_OK(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    CHECK_OK(cuMemCreate(&handle, 4 * MIB, &prop, 0));
    CHECK_OK(cuMemAlloc(&ptr, 3 * MIB));
    CHECK_OK(cuMemFree(ptr));
    CHECK_OK(cuCtxSynchronize());
    fail("cuMemMap", 1, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_OK(cuMemMap(at, 4 * MIB, 0, handle, 0));
    CHECK_OK(cuMemAlloc(&ptr, 3 * MIB));
    CHECK_OK(cuMemFree(ptr));
    CHECK_OK(cuCtxSynchronize());
    fail("cuMemSetAccess", 1, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_OK(cuMemSetAccess(at, 4 * MIB, &access, 1));
}

/* Memory that a held stream's work is not over with yet, and who lets it go on once a call has failed twice. */

static CUstream held;
static const char *wanted;
static unsigned long wanted_calls;

static void *let_go(void *unused) {
    void (*release)(CUstream) = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_release");

    while (driver_calls(wanted) < wanted_calls + 2)
        usleep(100);
    release(held);
    return unused;
}

static CUresult create_40(void) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUresult res = cuMemCreate(&handle, 40 * MIB, &prop, 0);

    return res ? res : cuMemRelease(handle);
}

static CUresult managed_40(void) {
    CUdeviceptr ptr;
    CUresult res = cuMemAllocManaged(&ptr, 40 * MIB, CU_MEM_ATTACH_GLOBAL);

    return res ? res : cuMemFree(ptr);
}

static CUresult array_40(void) {
    const CUDA_ARRAY_DESCRIPTOR desc = {40 * MIB / 16, 0, CU_AD_FORMAT_FLOAT, 4};
    CUarray array;
    CUresult res = cuArrayCreate(&array, &desc);

    return res ? res : cuArrayDestroy(array);
}

/* What CUDA allocates itself is there once the work is over that a cudaFree of ours did not wait for. The call is made
 * three times: what was idle is given back first, and is not enough. The simulated device has 64 MiB. */
static void others_failures_wait_for_work_that_ends(void) {
    static const struct {
        const char *name;
        CUresult (*call)(void);
    } cases[] = {{"cuMemCreate", create_40}, {"cuMemAllocManaged", managed_40}, {"cuArrayCreate_v2", array_40}};
    void (*hold)(CUstream);
    CUdeviceptr kept, busy, idle;
    pthread_t thread;

    start();
    hold = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_hold");
    CHECK_OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    /* So little is idle that it does not go back by itself. */
    CHECK_OK(cuMemAlloc(&kept, 20 * MIB));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(cuMemAlloc(&idle, 6 * MIB));
        CHECK_OK(cuMemAlloc(&busy, 25 * MIB));
        CHECK_OK(cuMemFree(idle));
        CHECK_OK(cuCtxSynchronize());
        hold(held);
        CHECK_OK(cuMemsetD8Async(busy, 1, MIB, held));
        CHECK_OK(cuMemFree(busy));
        wanted = cases[i].name;
        wanted_calls = driver_calls(wanted);
        CHECK(!pthread_create(&thread, NULL, let_go, NULL));
        CHECK_OK(cases[i].call());
        CHECK(!pthread_join(thread, NULL));
        CHECK(driver_calls(wanted) == wanted_calls + 3);
        CHECK_OK(cuStreamSynchronize(held));
    }
}

/* And where all that we have is in use, nobody waits for work in vain. */
static void others_failures_wait_for_nothing_in_vain(void) {
    void (*hold)(CUstream), (*release)(CUstream);
    struct timespec begin, end;
    CUdeviceptr live, busy;

    start();
    hold = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_hold");
    release = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_release");
    CHECK_OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuMemAlloc(&live, 48 * MIB));
    CHECK_OK(cuMemAlloc(&busy, 4096));
    hold(held);
    CHECK_OK(cuMemsetD8Async(busy, 1, 4096, held));
    CHECK_OK(cuMemAlloc(&live, 4096));
    CHECK_OK(cuMemFree(busy));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    CHECK(create_40() == CUDA_ERROR_OUT_OF_MEMORY);
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK(end.tv_sec - begin.tv_sec < 3);
    release(held);
}

static CUdeviceptr kept_to_the_end;

static void free_at_exit(void) {
    CUdeviceptr ptr;

    CHECK_OK(cuMemFree(kept_to_the_end));
    CHECK_OK(cuMemAlloc(&ptr, MIB));
    CHECK_OK(cuMemFree(ptr));
}

/* Handlers of the program run before our end, destructors of libraries loaded before us run after it. */
static void cuda_calls_at_exit(void) {
    start();
    CHECK_OK(cuMemAlloc(&kept_to_the_end, 3 * MIB));
    atexit(free_at_exit);
    self_free_in_destructor(cuMemFree, cuMemAlloc);
}

GUEST_MAIN(GUEST(serves_the_linkers_route), GUEST(frees_what_the_other_call_allocated), GUEST(frees_foreign_pointers),
           GUEST(answers_errors_as_cuda_does), GUEST(gives_way_to_the_programs_own_handles),
           GUEST(captures_are_left_to_cuda), GUEST(imports_physical_memory), GUEST(others_memory),
           GUEST(no_call_reaches_the_pools_mappings), GUEST(pooled_memory_is_not_the_hosts),
           GUEST(freed_memory_is_not_shown), GUEST(what_is_mapped_can_be_shown), GUEST(host_memory_without_a_context),
           GUEST(others_failures_are_retried), GUEST(others_maps_are_retried),
           GUEST(others_failures_wait_for_work_that_ends), GUEST(others_failures_wait_for_nothing_in_vain),
           GUEST(survives_a_reset), GUEST(fork_before_cuda_is_used), GUEST(fork_after_cuda_was_used),
           GUEST(fork_while_threads_allocate), GUEST(cuda_calls_at_exit))
