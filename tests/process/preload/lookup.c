/* Guests that link to no CUDA library: they open it, and look its functions up. */
/* SPDX-License-Identifier: Apache-2.0 */
#define CUDA_ENABLE_DEPRECATED /* programs still call what is */
#include <cuda_runtime_api.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>

#include "guest.h"

#undef cuGetProcAddress
#pragma weak cudaMalloc
enum { MIB = 1 << 20 };

static void *cuda;

#define DRIVER(name) ((__typeof__(&name))guest_symbol(cuda, #name))

/* The version to look functions up by: no driver knows those that came after it. */
static int own_version(void) {
    int version = 0;

    CHECK_OK(DRIVER(cuDriverGetVersion)(&version));
    return version < CUDA_VERSION ? version : CUDA_VERSION;
}

static void start(void) {
    CUcontext context;

    cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda);
    CHECK_OK(DRIVER(cuInit)(0));
    CHECK_OK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK_OK(DRIVER(cuCtxSetCurrent)(context));
}

static void check_data(CUdeviceptr ptr, size_t size) {
    unsigned char *host = calloc(1, size);

    CHECK(host);
    CHECK_OK(DRIVER(cuMemsetD8_v2)(ptr, 0x5a, size));
    CHECK_OK(DRIVER(cuMemcpyDtoH_v2)(host, ptr, size));
    for (size_t i = 0; i < size; i++)
        CHECK(host[i] == 0x5a);
    free(host);
}

/* A symbol in an object's own table: what the driver exports, whoever answers for dlsym. */
static void *exported(const char *library, const char *name) {
    struct link_map *map = NULL;
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *hash = NULL;
    uint32_t last = 0;

    CHECK(handle && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0);
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_STRTAB)
            strings = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_GNU_HASH)
            hash = (const void *)d->d_un.d_ptr;
    }
    CHECK(symbols && strings && hash);
    /* Behind the header and the filter: the beginning of each chain, then the chains, which end with an odd word. */
    const uint32_t *buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / 4), *chains = buckets + hash[0];
    for (uint32_t b = 0; b < hash[0]; b++)
        last = buckets[b] > last ? buckets[b] : last;
    while (!(chains[last - hash[1]] & 1))
        last++;
    for (uint32_t i = hash[1]; i <= last; i++)
        if (!strcmp(strings + symbols[i].st_name, name))
            return (char *)map->l_addr + symbols[i].st_value;
    return NULL;
}

/* Allocates, uses and frees by the functions given. */
static void use(CUresult (*alloc)(CUdeviceptr *, size_t), CUresult (*release)(CUdeviceptr)) {
    CUdeviceptr ptr;

    CHECK_OK(alloc(&ptr, 3 * MIB + 5));
    check_data(ptr, 3 * MIB + 5);
    CHECK_OK(release(ptr));
}

static void use_async(CUresult (*alloc)(CUdeviceptr *, size_t, CUstream), CUresult (*release)(CUdeviceptr, CUstream)) {
    CUdeviceptr ptr;

    CHECK_OK(alloc(&ptr, 3 * MIB + 5, NULL));
    CHECK_OK(DRIVER(cuCtxSynchronize)());
    check_data(ptr, 3 * MIB + 5);
    CHECK_OK(release(ptr, NULL));
}

static void serves_dlsym(void) {
    start();
    use(DRIVER(cuMemAlloc_v2), DRIVER(cuMemFree_v2));
    use_async(DRIVER(cuMemAllocAsync), DRIVER(cuMemFreeAsync));
    check_served();
}

static void *ask_v1(const char *name, cuuint64_t flags) {
    CUresult (*get)(const char *, void **, int, cuuint64_t) = guest_symbol(cuda, "cuGetProcAddress");
    void *function = NULL;

    CHECK_OK(get(name, &function, own_version(), flags));
    return function;
}

static void *ask_v2(const char *name, cuuint64_t flags) {
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *function = NULL;

    CHECK_OK(DRIVER(cuGetProcAddress_v2)(name, &function, own_version(), flags, &status));
    CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
    return function;
}

static void serves_cuGetProcAddress(void) {
    const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

    start();
    use(ask_v1("cuMemAlloc", 0), ask_v1("cuMemFree", 0));
    use(ask_v2("cuMemAlloc", 0), ask_v2("cuMemFree", 0));
    use(ask_v2("cuMemAlloc", per_thread), ask_v2("cuMemFree", per_thread));
    use_async(ask_v2("cuMemAllocAsync", 0), ask_v2("cuMemFreeAsync", 0));
    use_async(ask_v2("cuMemAllocAsync", per_thread), ask_v2("cuMemFreeAsync", per_thread));
    CHECK(ask_v2("cuMemAllocAsync", 0) == guest_symbol(cuda, "cuMemAllocAsync"));
    CHECK(ask_v2("cuMemAllocAsync", per_thread) == guest_symbol(cuda, "cuMemAllocAsync_ptsz"));
    CHECK(ask_v2("cuDeviceGet", 0) == guest_symbol(cuda, "cuDeviceGet"));
    check_served();
}

/* 1 if what a program gets for a name lies in that library; 0 if this driver lacks it. */
static int found_in(const char *name, const char *library) {
    CUdriverProcAddressQueryResult status;
    void *function = NULL;
    Dl_info where;

    if (DRIVER(cuGetProcAddress_v2)(name, &function, own_version(), 0, &status) || !function)
        return 0;
    CHECK(dladdr(function, &where));
    if (!strstr(where.dli_fname, library)) {
        fprintf(stderr, "%s is in %s\n", name, where.dli_fname);
        _exit(1);
    }
    return 1;
}

/* Each memory call of the driver as the table of them says: through a door of ours, or straight to CUDA. */
static void leads_the_surface_to_its_doors(void) {
    int doors = 0, passed = 0;

    start();
    use(DRIVER(cuMemAlloc_v2), DRIVER(cuMemFree_v2));
#define SERVED(name, door, test) doors += found_in(#name, "libvpool");
#define TRANSLATED(name, door, test) doors += found_in(#name, "libvpool");
#define PASSED(name, door, test) passed += found_in(#name, "libcuda");
#include "../../../preload/surface.def"
    CHECK(doors > 30 && passed > 10);
}

/* Whatever version a program was built for, it gets the variant that the driver chooses for that version: our door
 * for it, where there is one, else the driver's own, untouched (HAMi-core #57, #320). The driver is asked behind
 * our back: by the door that its own symbol table names. */
static void gives_the_variant_of_each_version(void) {
    static const char *const symbols[] = {
        "cuMemAlloc",
        "cuMemFree",
        "cuMemGetInfo",
        "cuMemAllocAsync",
        "cuMemFreeAsync",
        "cuCtxCreate",
        "cuCtxDestroy",
        "cuCtxGetDevice",
        "cuCtxSynchronize",
        "cuStreamGetCtx",
        "cuStreamDestroy",
        "cuDevicePrimaryCtxRelease",
        "cuStreamGetCaptureInfo",
        "cuGetProcAddress",
        "cuMemGetAddressRange",
        "cuStreamBeginCapture",
        "cuEventElapsedTime",
        "cuIpcOpenMemHandle",
        "cuGraphInstantiate",
        "cuMemCreate",
        "cuMemHostRegister",
        "cuArrayCreate",
    };
    static const int versions[] = {2000,  3020,  4000,  6050,  11020, 11040, 12000,
                                   12010, 12020, 12040, 12050, 12080, 13000};
    const cuuint64_t flags[] = {CU_GET_PROC_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
    __typeof__(&cuGetProcAddress_v2) real;
    int compared = 0, ours = 0;

    start();
    real = exported("libcuda.so.1", "cuGetProcAddress_v2");
    CHECK(real && (void *)real != dlsym(cuda, "cuGetProcAddress_v2"));
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
            for (size_t f = 0; f < 2; f++) {
                CUdriverProcAddressQueryResult status = 0, own_status = 0;
                void *own = NULL, *found = NULL;
                CUresult res = real(symbols[i], &own, versions[v], flags[f], &own_status);
                Dl_info is, should;

                CHECK(DRIVER(cuGetProcAddress_v2)(symbols[i], &found, versions[v], flags[f], &status) == res);
                CHECK(status == own_status && !found == !own);
                if (!found)
                    continue;
                CHECK(dladdr(found, &is) && dladdr(own, &should) && is.dli_sname && should.dli_sname);
                if (found != own && strcmp(is.dli_sname, should.dli_sname) != 0) {
                    fprintf(stderr, "%s of %d: %s instead of %s\n", symbols[i], versions[v], is.dli_sname,
                            should.dli_sname);
                    _exit(1);
                }
                compared++;
                ours += found != own;
            }
    CHECK(compared > 150 && ours > 50);
}

/* PyTorch asks the resolver for the resolver, and goes on with what it gets. */
static void serves_what_cuGetProcAddress_gives_for_itself(void) {
    __typeof__(&cuGetProcAddress_v2) get;
    void *function = NULL;

    start();
    get = ask_v2("cuGetProcAddress", 0);
    CHECK_OK(get("cuMemAlloc", &function, own_version(), 0, NULL));
    CHECK(function == guest_symbol(cuda, "cuMemAlloc_v2"));
    use(function, ask_v2("cuMemFree", 0));
    check_served();
}

static void serves_the_runtimes_entry_points(void) {
    void *runtime;
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    CUresult (*release)(CUdeviceptr) = NULL;
    CUresult (*alloc_async)(CUdeviceptr *, size_t, CUstream) = NULL;
    __typeof__(&cudaGetDriverEntryPoint) get;
    __typeof__(&cudaGetDriverEntryPointByVersion) get_version;
    enum cudaDriverEntryPointQueryResult status;

    start();
    runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    CHECK(runtime);
    get = guest_symbol(runtime, "cudaGetDriverEntryPoint");
    get_version = guest_symbol(runtime, "cudaGetDriverEntryPointByVersion");
    /* Asks by the runtime's own version, which an older driver does not know. */
    if (own_version() == CUDA_VERSION)
        CHECK_OK(get("cuMemAlloc", (void **)&alloc, cudaEnableDefault, &status));
    else
        CHECK_OK(get_version("cuMemAlloc", (void **)&alloc, own_version(), cudaEnableDefault, &status));
    CHECK(status == cudaDriverEntryPointSuccess);
    CHECK_OK(get_version("cuMemFree", (void **)&release, own_version(), cudaEnableDefault, &status));
    CHECK(status == cudaDriverEntryPointSuccess);
    use(alloc, release);
    CHECK_OK(get_version("cuMemAllocAsync", (void **)&alloc_async, own_version(), cudaEnablePerThreadDefaultStream,
                         &status));
    CHECK((void *)alloc_async == guest_symbol(cuda, "cuMemAllocAsync_ptsz"));
    check_served();
}

/* The runtime's functions in a handle are the library's own, and still lead here. */
static void serves_a_runtime_looked_up_in_a_handle(void) {
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    cudaError_t (*runtime_malloc)(void **, size_t);
    cudaError_t (*runtime_free)(void *);
    void *ptr;
    Dl_info info;

    CHECK(runtime);
    cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    runtime_malloc = guest_symbol(runtime, "cudaMalloc");
    runtime_free = guest_symbol(runtime, "cudaFree");
    CHECK(dladdr((void *)runtime_malloc, &info) && strstr(info.dli_fname, "libcudart"));
    CHECK_OK(runtime_malloc(&ptr, 3 * MIB));
    check_data((CUdeviceptr)ptr, 3 * MIB);
    CHECK_OK(runtime_free(ptr));
    check_served();
}

static int call(void *library, const char *name) {
    return ((int (*)(void))guest_symbol(library, name))();
}

static void matches_whole_names_of_the_drivers_own(void) {
    void *names = dlopen("libnames.so", RTLD_NOW | RTLD_LOCAL);

    CHECK(names);
    for (int round = 0; round < 2; round++) {
        CHECK(call(names, "cudnnCreate") == 101);
        CHECK(call(names, "cuMemAllocFoo") == 102);
        CHECK(call(names, "cuMemAlloc") == 103);
        CHECK(call(names, "cuMemAlloc_v2") == 104);
        CHECK(call(names, "cudaMalloc") == 105);
        CHECK(call(names, "ncclCommInitRankOther") == 106);
        start();
    }
    CHECK(!dlsym(cuda, "cuMemAlloc_v"));
    CHECK(!dlsym(cuda, "cuMemAlloc_v22"));
    CHECK(!dlsym(cuda, ""));
}

/* An OpenMP runtime resolves itself; the answer depends on who asks, every time. */
static void keeps_the_caller_of_RTLD_NEXT(void) {
    void *self = dlopen("libself.so", RTLD_NOW | RTLD_GLOBAL);
    void *(*next)(const char *), *(*next_version)(const char *, const char *);

    CHECK(self);
    next = guest_symbol(self, "self_next");
    next_version = guest_symbol(self, "self_next_version");
    CHECK(call(self, "self_answer") == 1);
    for (int i = 0; i < 1000; i++) {
        int (*answer)(void) = next("self_answer");

        CHECK(answer && answer() == 2);
        CHECK(next("self_uses_next") == NULL);
    }
    CHECK(next("malloc") != NULL);
    CHECK(next_version("malloc", "NO_SUCH_VERSION") == NULL);
}

static void keeps_the_caller_of_RTLD_DEFAULT(void) {
    void *self = dlopen("libself.so", RTLD_NOW | RTLD_LOCAL);
    void *(*own)(const char *);
    int (*answer)(void);

    CHECK(self);
    own = guest_symbol(self, "self_default");
    answer = own("next_only");
    CHECK(answer && answer() == 3);
    CHECK(dlsym(RTLD_DEFAULT, "next_only") == NULL);
}

/* libc's dlsym, looked up in its handle, is ours again: whoever goes on with it does not pass us by. */
static void stays_in_when_dlsym_is_looked_up(void) {
    void *libc = dlopen("libc.so.6", RTLD_LAZY);
    void *(*symbol)(void *, const char *);

    start();
    symbol = dlsym(libc, "dlsym");
    if (!symbol)
        symbol = guest_symbol(dlopen("libdl.so.2", RTLD_LAZY), "dlsym");
    CHECK(symbol == dlsym);
    CHECK(symbol(cuda, "cuMemAlloc_v2") == dlsym(cuda, "cuMemAlloc_v2"));
    CHECK(dlvsym(libc, "dlvsym", "NO_SUCH_VERSION") == NULL);
}

static void show_dlerror(const char *after) {
    const char *error = dlerror();

    printf("%s: %s\n", after, error ? error : "none");
}

static void keeps_dlerror(void) {
    void *self = dlopen("libself.so", RTLD_NOW | RTLD_LOCAL);

    start();
    show_dlerror("at first");
    dlsym(cuda, "cuNoSuchFunction");
    show_dlerror("after an unknown name");
    show_dlerror("once more");
    dlsym(self, "cuMemAlloc_v2");
    show_dlerror("after a name of the driver's in another library");
    dlsym(self, "cuMemAlloc_v2");
    dlsym(cuda, "cuMemAlloc_v2");
    show_dlerror("after a success");
    dlvsym(cuda, "cuMemAlloc_v2", "NO_SUCH_VERSION");
    show_dlerror("after an unknown version");
    dlsym(self, "ncclCommInitRank");
    show_dlerror("after a name of NCCL's");
    dlsym(RTLD_NEXT, "no_such_function");
    show_dlerror("after the next of nothing");
}

static void doors_without_a_driver_fail(void) {
    void *vpool = dlopen(getenv("GUEST_LIBVPOOL"), RTLD_LAZY);
    CUresult (*alloc)(CUdeviceptr *, size_t) = dlsym(vpool, "cuMemAlloc_v2");
    cudaError_t (*runtime_malloc)(void **, size_t) = dlsym(vpool, "cudaMalloc");
    CUdeviceptr ptr;
    void *memory;

    CHECK(alloc && alloc(&ptr, 1) == CUDA_ERROR_NOT_FOUND);
    CHECK(runtime_malloc && runtime_malloc(&memory, 1) == cudaErrorSymbolNotFound);
    start();
    CHECK_OK(alloc(&ptr, 1));
    CHECK(dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL));
    CHECK_OK(runtime_malloc(&memory, 1));
    check_served();
}

/* A program may ask whether it has CUDA: by RTLD_DEFAULT, by its own handle, or by references that need not be met. */
static void finds_nothing_without_cuda(void) {
    static const char *const names[] = {"cuMemAlloc_v2", "cuGetProcAddress_v2", "cudaMalloc",
                                        "cudaGetDriverEntryPointByVersion", "ncclCommInitAll"};
    cudaError_t (*weak)(void **, size_t) = cudaMalloc;
    void *memory, *all = dlopen(NULL, RTLD_LAZY);

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        dlerror();
        CHECK(!dlsym(RTLD_DEFAULT, names[i]));
        CHECK(strstr(dlerror(), names[i]));
        CHECK(!dlsym(all, names[i]));
        CHECK(strstr(dlerror(), names[i]));
    }
    CHECK(!weak || weak(&memory, 1) == cudaErrorSymbolNotFound);
    start();
    CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == DRIVER(cuMemAlloc_v2));
    CHECK(!dlsym(RTLD_DEFAULT, "cudaMalloc") && !dlsym(RTLD_DEFAULT, "ncclCommInitAll"));
    CHECK(dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL));
    CHECK(dlsym(RTLD_DEFAULT, "cudaMalloc"));
    CHECK(!dlsym(all, "cudaMalloc") && !dlsym(all, "cuMemAlloc_v2"));
    CHECK(dlopen("libcudart.so.13", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD));
    CHECK(dlsym(all, "cudaMalloc") == (void *)weak);
}

/* Wheels have a runtime of their own, whose name has a hash in it. */
static void finds_a_renamed_runtime(void) {
    void *runtime = dlopen("libcudart-1a2b3c4d.so", RTLD_NOW | RTLD_LOCAL);
    void *(*ask)(const char *) = guest_symbol(runtime, "fake_default");

    CHECK(ask("cudaMalloc"));
}

static void survives_dlclose(void) {
    CUresult (*release)(CUdeviceptr);
    CUdeviceptr ptr;
    void *vpool;

    for (int round = 0; round < 3; round++) {
        start();
        CHECK_OK(DRIVER(cuMemAlloc_v2)(&ptr, MIB));
        release = DRIVER(cuMemFree_v2);
        dlclose(cuda);
        CHECK_OK(release(ptr));
        vpool = dlopen(getenv("GUEST_LIBVPOOL"), RTLD_LAZY);
        CHECK(vpool);
        dlclose(vpool);
        dlclose(vpool);
    }
    start();
    check_served();
}

/* Not preloaded, but opened by the program later: only what is looked up in its handle leads in. */
static void may_be_opened_late(void) {
    void *vpool = dlopen(getenv("GUEST_LIBVPOOL"), RTLD_NOW | RTLD_GLOBAL);
    CUresult (*alloc)(CUdeviceptr *, size_t), (*release)(CUdeviceptr);

    CHECK(vpool);
    start();
    alloc = guest_symbol(vpool, "cuMemAlloc_v2");
    release = guest_symbol(vpool, "cuMemFree_v2");
    use(alloc, release);
    dlclose(vpool);
    use(alloc, release);
}

/* Two copies of libcudart, each private to the library that depends on it: errors stay with their own. */
static void keeps_two_runtimes_apart(void) {
    void *user12 = dlopen("libuser12.so", RTLD_NOW | RTLD_LOCAL);
    void *user13 = dlopen("libuser13.so", RTLD_NOW | RTLD_LOCAL);
    int (*fail12)(void), (*fail13)(void), (*last12)(void), (*last13)(void), (*use12)(void), (*use13)(void);
    int (*mallocs12)(void);

    CHECK(user12 && user13);
    fail12 = guest_symbol(user12, "user_fails");
    fail13 = guest_symbol(user13, "user_fails");
    last12 = guest_symbol(user12, "user_last_error");
    last13 = guest_symbol(user13, "user_last_error");
    use12 = guest_symbol(user12, "user_uses");
    use13 = guest_symbol(user13, "user_uses");
    mallocs12 = guest_symbol(dlopen("libcudart.so.12", RTLD_LAZY), "fake_mallocs");

    for (int round = 0; round < 3; round++) {
        CHECK_OK(use13());
        CHECK_OK(use12());
        CHECK(fail12() == cudaErrorMemoryAllocation);
        CHECK(last13() == cudaSuccess);
        CHECK(last12() == cudaErrorMemoryAllocation);
        CHECK(fail13() == cudaErrorMemoryAllocation);
        CHECK(last12() == cudaSuccess);
        CHECK(last13() == cudaErrorMemoryAllocation);
    }
    /* The one of CUDA 11 is asked every time: only it knows its device (see vp_runtime). */
    CHECK(mallocs12() == 6);
    check_served();
}

struct unique_id {
    char internal[128];
};

static void passes_nccl_on(void) {
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    int (*init)(void **, int, struct unique_id, int), (*init_all)(void **, int, const int *);
    struct unique_id id = {"the very id"};
    void *comm = NULL;
    int devices[2] = {4, 5};

    CHECK(nccl);
    start();
    init = guest_symbol(nccl, "ncclCommInitRank");
    init_all = guest_symbol(nccl, "ncclCommInitAll");
    CHECK(init == dlsym(RTLD_DEFAULT, "ncclCommInitRank")); /* ours */
    CHECK(init(&comm, 7, id, 3) == 73);
    CHECK(strcmp(comm, "the very id") == 0);
    CHECK(init_all(&comm, 2, devices) == 245);
}

/* The same with one rank, which ties the process to nobody. */
static void makes_a_lone_communicator(void) {
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    int (*init)(void **, int, struct unique_id, int);
    struct unique_id id = {"alone"};
    void *comm = NULL;

    CHECK(nccl);
    start();
    init = guest_symbol(nccl, "ncclCommInitRank");
    CHECK(init(&comm, 1, id, 0) == 10);
}

/* And to which others come later. */
static void a_communicator_grows(void) {
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL), *comm = NULL;
    int (*grow)(void *, int, const struct unique_id *, int, void **, void *);
    struct unique_id id = {"together"};

    CHECK(nccl);
    start();
    grow = guest_symbol(nccl, "ncclCommGrow");
    CHECK(grow(NULL, 2, &id, 1, &comm, NULL) == 21);
    CHECK(strcmp(comm, "together") == 0);
}

/* A driver that looks up and calls its own functions gets no deeper than the door. */
static void passes_on_to_a_driver_that_calls_itself(void) {
    CUdeviceptr ptr;
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    int (*loops)(void);

    cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda);
    loops = guest_symbol(cuda, "loops_so_far");
    CHECK_OK(DRIVER(cuInit)(0));
    CHECK_OK(DRIVER(cuMemAlloc_v2)(&ptr, MIB));
    CHECK(loops() == 1);
    CHECK_OK(DRIVER(cuGetProcAddress_v2)("cuMemAlloc", (void **)&alloc, CUDA_VERSION, 0, NULL));
    CHECK_OK(alloc(&ptr, MIB));
    CHECK(loops() == 2);
}

static void *look_up(void *arg) {
    for (int i = 0; i < 2000; i++) {
        void *handle = dlopen("libcuda.so.1", RTLD_LAZY);

        CHECK(dlsym(handle, "cuMemAlloc_v2") == arg);
        CHECK(dlsym(handle, "cuDeviceGet") != NULL);
        CHECK(dlsym(handle, "cuNoSuch") == NULL);
        dlclose(handle);
    }
    return NULL;
}

static void looks_up_in_many_threads(void) {
    void *ours = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuMemAlloc_v2");
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, look_up, ours) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

GUEST_MAIN(GUEST(serves_dlsym), GUEST(serves_cuGetProcAddress), GUEST(leads_the_surface_to_its_doors),
           GUEST(gives_the_variant_of_each_version), GUEST(serves_what_cuGetProcAddress_gives_for_itself),
           GUEST(serves_the_runtimes_entry_points), GUEST(serves_a_runtime_looked_up_in_a_handle),
           GUEST(matches_whole_names_of_the_drivers_own), GUEST(keeps_the_caller_of_RTLD_NEXT),
           GUEST(keeps_the_caller_of_RTLD_DEFAULT), GUEST(stays_in_when_dlsym_is_looked_up), GUEST(keeps_dlerror),
           GUEST(doors_without_a_driver_fail), GUEST(finds_nothing_without_cuda), GUEST(finds_a_renamed_runtime),
           GUEST(survives_dlclose), GUEST(may_be_opened_late), GUEST(keeps_two_runtimes_apart), GUEST(passes_nccl_on),
           GUEST(makes_a_lone_communicator), GUEST(a_communicator_grows),
           GUEST(passes_on_to_a_driver_that_calls_itself), GUEST(looks_up_in_many_threads))
