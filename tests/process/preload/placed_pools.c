/* Memory pools of the host's memory and of managed memory, beside those of devices: what is answered must be the same
 * bare and under libvpool.so. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 3 << 20 };
#define PINNED CU_MEM_ALLOCATION_TYPE_PINNED
#define MANAGED CU_MEM_ALLOCATION_TYPE_MANAGED

#define SAY(call) printf("%s: %s: %d\n", what, #call, (int)(call))

static const struct kind {
    const char *name;
    CUmemAllocationType type;
    CUmemLocation location;
} kinds[] = {
    {"a device", PINNED, {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
    {"another device", PINNED, {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}},
    {"the host", PINNED, {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0}},
    {"a node of the host", PINNED, {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}},
    {"the current node", PINNED, {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, .id = 0}},
    {"managed", MANAGED, {.type = CU_MEM_LOCATION_TYPE_NONE, .id = 0}},
    {"managed, on a device", MANAGED, {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
    {"managed, on another", MANAGED, {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}},
    {"managed, on the host", MANAGED, {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0}},
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

static CUstream stream;

static void used(const char *what, CUmemoryPool pool) {
    cuuint64_t bytes = 77;
    SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
    printf("used: %d\n", (int)bytes);
}

static void look(const char *what, CUdeviceptr at, CUmemoryPool pool) {
    unsigned type = 77, managed = 77, capable = 77;
    int ordinal = 77;
    CUmemoryPool whose = NULL;
    CUcontext context = (CUcontext)1;
    CUdeviceptr base = 0;
    void *host = NULL;
    size_t size = 0;
    unsigned char byte = 0;
    CUmemPoolPtrExportData data;
    CUipcMemHandle handle;
    SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 5));
    SAY(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at + 5));
    SAY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at + 5));
    SAY(cuPointerGetAttribute(&whose, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at + 5));
    SAY(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at + 5));
    SAY(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
    SAY(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
    SAY(cuMemGetAddressRange(&base, &size, at + 5));
    printf("%u %u %d %u %d %d %d %d\n", type, managed, ordinal, capable, whose == pool, context == NULL, host != NULL,
           base == at ? (int)size : -1);
    SAY(cuMemPoolExportPointer(&data, at));
    SAY(cuIpcGetMemHandle(&handle, at));
    SAY(cuMemcpyDtoH(&byte, at + SIZE - 1, 1));
    printf("byte %u\n", byte);
}

static void by_place(const char *what, const struct kind *kind, CUmemoryPool pool) {
    CUmemoryPool now = NULL, first = NULL;
    for (const struct kind *to = kinds; to < kinds + KINDS; to++) {
        CUmemLocation location = to->location;
        int set = cuMemSetMemPool(&location, to->type, pool);
        int got = cuMemGetMemPool(&now, &location, to->type);
        int def = cuMemGetDefaultMemPool(&first, &location, to->type);
        printf("%s as that of %s: %d, then %d %d, %d %d\n", what, to->name, set, got, got == 0 && now == pool, def,
               def == 0 && now == first);
    }
    SAY(cuDeviceSetMemPool(kind->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? kind->location.id : 0, pool));
}

static void from_current(const char *what) {
    CUmemoryPool now = NULL, whose = NULL;
    CUdeviceptr at = 0;
    SAY(cuDeviceGetMemPool(&now, 0));
    SAY(cuMemAllocAsync(&at, SIZE, stream));
    SAY(cuPointerGetAttribute(&whose, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
    printf("from the current one: %d\n", whose == now);
    SAY(cuMemFreeAsync(at, stream));
}

static CUmemoryPool create(const char *what, const struct kind *kind) {
    CUmemPoolProps props = {.allocType = kind->type, .location = kind->location};
    CUmemoryPool pool = NULL;
    SAY(cuMemPoolCreate(&pool, &props));
    return pool;
}

static void access(const char *what, CUmemoryPool pool) {
    CUmemAccessDesc desc = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags = (CUmemAccess_flags)0;
    SAY(cuMemPoolGetAccess(&flags, pool, &desc.location));
    SAY(flags);
    SAY(cuMemPoolSetAccess(pool, &desc, 1));
    SAY(cuMemPoolGetAccess(&flags, pool, &desc.location));
    SAY(flags);
}

static void blocks(const char *what, CUmemoryPool pool) {
    CUdeviceptr at[4] = {0}, ours = 0;
    for (int i = 0; i < 4; i++) {
        SAY(cuMemAllocFromPoolAsync(&at[i], SIZE, pool, stream));
        SAY(cuMemsetD8Async(at[i], (unsigned char)(i + 1), SIZE, stream));
    }
    SAY(cuMemAllocAsync(&ours, SIZE, stream));
    SAY(cuMemcpyAsync(ours, at[1], SIZE, stream));
    SAY(cuStreamSynchronize(stream));
    used(what, pool);
    look(what, at[0], pool);
    SAY(cuMemcpyDtoD(at[2], ours, SIZE));
    look(what, at[2], pool);
    SAY(cuMemFreeAsync(at[0], stream));
    SAY(cuMemFreeAsync(at[1] + 1, stream));
    SAY(cuMemFree(at[1]));
    SAY(cuMemFree(at[1]));
    SAY(cuMemFreeHost((void *)at[2]));
    SAY(cuMemFreeAsync(ours, stream));
    SAY(cuStreamSynchronize(stream));
    used(what, pool);
    SAY(cuMemPoolTrimTo(pool, 0));
    SAY(cuMemFreeAsync(at[2], stream));
    SAY(cuMemPoolDestroy(pool));
    SAY(cuMemsetD8Async(at[3], 9, SIZE, stream));
    SAY(cuMemFreeAsync(at[3], stream));
    SAY(cuStreamSynchronize(stream));
}

int main(void) {
    const char *what = "start";
    CUcontext context;
    CUmemoryPool pools[KINDS];
    setvbuf(stdout, NULL, _IOLBF, 0);
    SAY(cuInit(0));
    SAY(cuDevicePrimaryCtxRetain(&context, 0));
    SAY(cuCtxSetCurrent(context));
    SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < KINDS; i++)
            pools[i] = create(kinds[i].name, &kinds[i]);
        for (int i = 0; i < KINDS; i++) {
            what = kinds[i].name;
            if (!pools[i])
                continue;
            by_place(what, &kinds[i], pools[i]);
            from_current(what);
            access(what, pools[i]);
        }
        for (int i = KINDS; i-- > 0;) {
            if (pools[i])
                blocks(kinds[i].name, pools[i]);
            from_current(kinds[i].name);
        }
    }
    for (int i = 0; i < KINDS; i++) {
        CUmemLocation location = kinds[i].location;
        CUmemoryPool pool = NULL;
        CUdeviceptr at = 0;
        what = kinds[i].name;
        SAY(cuMemGetDefaultMemPool(&pool, &location, kinds[i].type));
        if (!pool)
            continue;
        access(what, pool);
        SAY(cuMemAllocFromPoolAsync(&at, SIZE, pool, stream));
        SAY(cuMemsetD8Async(at, 7, SIZE, stream));
        SAY(cuStreamSynchronize(stream));
        look(what, at, pool);
        SAY(cuMemFreeAsync(at, stream));
        SAY(cuMemPoolDestroy(pool));
    }
    SAY(cuCtxSynchronize());
    return 0;
}
