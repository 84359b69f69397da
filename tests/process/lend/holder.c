/* A program that allocates and frees as it is told, line by line, and answers each line: ALLOC NAME MIB and FREE NAME
 * by stream, TAKE NAME MIB and DROP NAME by cudaMalloc, RAW NAME MIB by cuMemCreate, MANAGED NAME MIB, MANAGED-POOL,
 * MANAGED-DEFAULT and MANAGED-CURRENT (a pool of such memory), SYNC, CHECK NAME, FREEMEM, STATS, SLEEP, WAKE, CAPTURE
 * and CAPTURED, IPC NAME, EXPORT, POOL (a pointer of one that is exported), UNSHOWN (what cannot be), RANKS, REGISTER
 * NAME, END. After EXEC it begins anew, in the same process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <vpool.h>

/* Of each MiB a block has these bytes written, and looked at. */
enum { STEP = 1 << 20, LOOK = 4096 };
static CUdeviceptr block[256];
static size_t bytes[256];
static CUstream stream;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int allocate(char name, size_t mib, int by_stream) {
    unsigned char *i = (unsigned char *)&name;
    bytes[*i] = mib << 20;
    int res = (int)(by_stream ? cuMemAllocAsync(&block[*i], bytes[*i], stream) : cuMemAlloc(&block[*i], bytes[*i]));
    /* As much of it as compare() looks at: each page takes the kernel its time. */
    if (!res)
        res = (int)cuMemsetD2D8Async(block[*i], STEP, *i, LOOK, mib, stream);
    return res ? res : (int)cuStreamSynchronize(stream);
}

static int compare(char name) {
    unsigned char *i = (unsigned char *)&name, seen[LOOK];
    for (size_t at = 0; at < bytes[*i]; at += STEP) {
        int res = (int)cuMemcpyDtoH(seen, block[*i] + at, sizeof(seen));
        if (res)
            return res;
        for (size_t k = 0; k < sizeof(seen); k++)
            if (seen[k] != *i)
                return -1;
    }
    return 0;
}

static int call(const char *name) {
    int (*function)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, name);
    return function ? function(0) : -1;
}

/* The library's, if it is there. */
__attribute__((weak)) int ncclCommInitAll(void **comms, int devices, const int *list);
__attribute__((weak)) int ncclCommRegister(void *comm, void *at, size_t size, void **handle);

static const CUmemAllocationProp plain = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

/* What ties the program to others. */
static int tie(const char *word, char name, size_t mib) {
    CUdeviceptr *at = &block[(unsigned char)name];
    CUmemGenericAllocationHandle handle;
    CUmemPoolPtrExportData pointer;
    CUmemoryPool pool;
    CUipcMemHandle shown;
    CUgraph graph;
    int fd = -1, res;
    void *comm[2];
    if (!strcmp(word, "RAW"))
        return (int)cuMemCreate((CUmemGenericAllocationHandle *)at, mib << 20, &plain, 0);
    if (!strcmp(word, "MANAGED"))
        return (int)cuMemAllocManaged(at, mib << 20, CU_MEM_ATTACH_GLOBAL);
    if (!strcmp(word, "CAPTURE"))
        return (int)cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (!strcmp(word, "CAPTURED"))
        return (int)cuStreamEndCapture(stream, &graph);
    if (!strcmp(word, "IPC"))
        return (int)cuIpcGetMemHandle(&shown, *at);
    if (!strcmp(word, "EVENT")) {
        CUevent event;
        CUipcEventHandle told;
        res = (int)cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
        return res ? res : (int)cuIpcGetEventHandle(&told, event);
    }
    if (!strcmp(word, "EXPORT")) {
        CUmemAllocationProp prop = plain;
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        res = (int)cuMemCreate(&handle, 2 << 20, &prop, 0);
        return res ? res : (int)cuMemExportToShareableHandle(&fd, handle, prop.requestedHandleTypes, 0);
    }
    if (!strcmp(word, "POOL")) {
        const CUmemPoolProps prop = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                     .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
        res = (int)cuMemPoolCreate(&pool, &prop);
        res = res ? res : (int)cuMemAllocFromPoolAsync(at, 2 << 20, pool, stream);
        res = res ? res : (int)cuMemPoolExportToShareableHandle(&fd, pool, prop.handleTypes, 0);
        return res ? res : (int)cuMemPoolExportPointer(&pointer, *at);
    }
    if (!strcmp(word, "MANAGED-POOL")) {
        const CUmemPoolProps prop = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED};
        return (int)cuMemPoolCreate(&pool, &prop);
    }
    if (!strcmp(word, "MANAGED-DEFAULT"))
        return (int)cuMemGetDefaultMemPool(&pool, &(CUmemLocation){0}, CU_MEM_ALLOCATION_TYPE_MANAGED);
    if (!strcmp(word, "MANAGED-CURRENT"))
        return (int)cuMemGetMemPool(&pool, &(CUmemLocation){0}, CU_MEM_ALLOCATION_TYPE_MANAGED);
    if (!strcmp(word, "UNSHOWN"))
        return !cuIpcGetMemHandle(&shown, (CUdeviceptr)&fd) || !cuMemPoolExportPointer(&pointer, (CUdeviceptr)&fd);
    /* There is no NCCL: the answers do not matter. */
    if (!strcmp(word, "RANKS") && ncclCommInitAll)
        return ncclCommInitAll(comm, 2, (const int[]){0, 0}) * 0;
    if (!strcmp(word, "REGISTER") && ncclCommRegister)
        return ncclCommRegister(comm, (void *)*at, 1 << 20, comm) * 0;
    return -2;
}

static int obey(const char *word, char name, size_t mib, unsigned long long *value) {
    struct vpool_stats stats = {.size = sizeof(stats)};
    size_t total, unused = 0;
    int res = 0;
    if (!strcmp(word, "ALLOC") || !strcmp(word, "TAKE"))
        return allocate(name, mib, *word == 'A');
    if (!strcmp(word, "FREE"))
        return (int)cuMemFreeAsync(block[(unsigned char)name], stream);
    if (!strcmp(word, "DROP"))
        return (int)cuMemFree(block[(unsigned char)name]);
    if (!strcmp(word, "SYNC"))
        return (int)cuStreamSynchronize(stream);
    if (!strcmp(word, "CHECK"))
        return compare(name);
    if (!strcmp(word, "SLEEP") || !strcmp(word, "WAKE"))
        return call(*word == 'S' ? "vpool_pause" : "vpool_resume");
    if (!strcmp(word, "FREEMEM")) {
        res = (int)cuMemGetInfo(&unused, &total);
        *value = unused >> 20;
        return res;
    }
    if (!strcmp(word, "STATS")) {
        int (*stats_of)(int, struct vpool_stats *) = (int (*)(int, struct vpool_stats *))dlsym(RTLD_DEFAULT,
                                                                                               "vpool_stats");
        res = stats_of ? stats_of(0, &stats) : -1;
        *value = stats.held_bytes >> 20;
        return res;
    }
    return tie(word, name, mib);
}

int main(void) {
    char line[128], word[16], name;
    CUcontext context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
        return 1;
    while (fgets(line, sizeof(line), stdin)) {
        size_t mib = 0;
        unsigned long long value = 0;
        name = 0;
        if (sscanf(line, "%15s %c %zu", word, &name, &mib) < 1 || !strcmp(word, "END"))
            break;
        double begin = now();
        int res = obey(word, name, mib, &value);
        printf("%d %llu %.3f\n", res, value, now() - begin);
        fflush(stdout);
        if (!strcmp(word, "EXEC"))
            execl("/proc/self/exe", "holder", NULL);
    }
    return 0;
}
