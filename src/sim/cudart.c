/* The runtime's base: finding the driver, contexts, devices, errors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cudart_private.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define MAX_DEVICES 64

/* The version that is requested. From 13 on, the names cuCtxSynchronize and cuCtxGetDevice mean forms with one more
 * argument, which the header declares under other names. */
#define API_VERSION 12000

typedef CUresult (*resolver)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static struct rt_driver tables[2];
static CUresult load_result = CUDA_ERROR_NOT_INITIALIZED;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static __thread struct {
    int device;
    cudaError_t last;
    CUresult pending; /* why rt_enter gave NULL */
} self;

static CUresult missing(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void fill(resolver resolve, int version, cuuint64_t flags, struct rt_driver *table) {
    void *fn;
    CUdriverProcAddressQueryResult status;
#define X(name)                                                                                                        \
    fn = NULL;                                                                                                         \
    if (resolve(#name, &fn, version, flags, &status) != CUDA_SUCCESS || !fn)                                           \
        fn = (void *)missing;                                                                                          \
    memcpy(&table->name, &fn, sizeof(fn));
    RT_DRIVER_FUNCTIONS(X)
#undef X
}

static void load(void) {
    resolver resolve = NULL;
    CUresult (*get_version)(int *) = NULL;
    CUdriverProcAddressQueryResult status;
    int version = API_VERSION, driver_version = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *fn = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (!fn)
        return;
    memcpy(&resolve, &fn, sizeof(fn));
    if (resolve("cuDriverGetVersion", &fn, 2020, CU_GET_PROC_ADDRESS_DEFAULT, &status) == CUDA_SUCCESS && fn) {
        memcpy(&get_version, &fn, sizeof(fn));
        if (get_version(&driver_version) == CUDA_SUCCESS && driver_version < version)
            version = driver_version;
    }
    fill(resolve, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &tables[RT_LEGACY]);
    fill(resolve, version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &tables[RT_PER_THREAD]);
    load_result = CUDA_SUCCESS;
}

const struct rt_driver *rt_enter_bare(void) {
    pthread_once(&loaded, load);
    self.pending = load_result;
    if (load_result != CUDA_SUCCESS)
        return NULL;
    self.pending = tables[RT_LEGACY].cuInit(0);
    return self.pending == CUDA_SUCCESS ? &tables[RT_LEGACY] : NULL;
}

CUresult rt_primary(const struct rt_driver *driver, int device, CUcontext *context) {
    static bool retained[MAX_DEVICES];
    unsigned flags;
    int active;
    CUresult result = driver->cuDevicePrimaryCtxGetState(device, &flags, &active);
    if (result == CUDA_SUCCESS)
        result = driver->cuDevicePrimaryCtxRetain(context, device);
    if (result != CUDA_SUCCESS)
        return result;
    /* One reference for each device is enough, as long as the context lives. */
    if (active && __atomic_exchange_n(&retained[device % MAX_DEVICES], true, __ATOMIC_SEQ_CST))
        driver->cuDevicePrimaryCtxRelease(device);
    __atomic_store_n(&retained[device % MAX_DEVICES], true, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

CUresult rt_use_device(const struct rt_driver *driver, int device) {
    CUcontext context;
    CUresult result = rt_primary(driver, device, &context);
    return result == CUDA_SUCCESS ? driver->cuCtxSetCurrent(context) : result;
}

const struct rt_driver *rt_enter(int kind) {
    const struct rt_driver *driver;
    CUcontext context = NULL;
    pthread_once(&loaded, load);
    self.pending = load_result;
    if (load_result != CUDA_SUCCESS)
        return NULL;
    driver = &tables[kind];
    self.pending = driver->cuCtxGetCurrent(&context);
    if (self.pending == CUDA_ERROR_NOT_INITIALIZED && (self.pending = driver->cuInit(0)) == CUDA_SUCCESS)
        self.pending = driver->cuCtxGetCurrent(&context);
    if (self.pending == CUDA_SUCCESS && !context)
        self.pending = rt_use_device(driver, self.device);
    return self.pending == CUDA_SUCCESS ? driver : NULL;
}

cudaError_t rt_leave(const struct rt_driver *driver, CUresult result) {
    /* The numbers of the two enumerations agree. */
    cudaError_t error = (cudaError_t)(driver ? result : self.pending);
    if (!driver && load_result != CUDA_SUCCESS)
        error = cudaErrorInsufficientDriver;
    if (error != cudaSuccess)
        self.last = error;
    return error;
}

/* ---- errors ---- */

RT_EXPORT cudaError_t CUDARTAPI cudaGetLastError(void) {
    cudaError_t last = self.last;
    self.last = cudaSuccess;
    return last;
}

RT_EXPORT cudaError_t CUDARTAPI cudaPeekAtLastError(void) {
    return self.last;
}

static const struct {
    cudaError_t code;
    const char *name;
} names[] = {
#define NAME(code) {code, #code}
    NAME(cudaSuccess),
    NAME(cudaErrorInvalidValue),
    NAME(cudaErrorMemoryAllocation),
    NAME(cudaErrorInitializationError),
    NAME(cudaErrorCudartUnloading),
    NAME(cudaErrorInsufficientDriver),
    NAME(cudaErrorNoDevice),
    NAME(cudaErrorInvalidDevice),
    NAME(cudaErrorDeviceUninitialized),
    NAME(cudaErrorInvalidResourceHandle),
    NAME(cudaErrorIllegalState),
    NAME(cudaErrorSymbolNotFound),
    NAME(cudaErrorNotReady),
    NAME(cudaErrorIllegalAddress),
    NAME(cudaErrorLaunchTimeout),
    NAME(cudaErrorPeerAccessAlreadyEnabled),
    NAME(cudaErrorPeerAccessNotEnabled),
    NAME(cudaErrorContextIsDestroyed),
    NAME(cudaErrorNotPermitted),
    NAME(cudaErrorNotSupported),
    NAME(cudaErrorStreamCaptureUnsupported),
    NAME(cudaErrorStreamCaptureInvalidated),
    NAME(cudaErrorStreamCaptureMerge),
    NAME(cudaErrorStreamCaptureUnmatched),
    NAME(cudaErrorStreamCaptureUnjoined),
    NAME(cudaErrorStreamCaptureIsolation),
    NAME(cudaErrorStreamCaptureImplicit),
    NAME(cudaErrorCapturedEvent),
    NAME(cudaErrorStreamCaptureWrongThread),
    NAME(cudaErrorUnknown),
#undef NAME
};

RT_EXPORT const char *CUDARTAPI cudaGetErrorName(cudaError_t error) {
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].code == error)
            return names[i].name;
    return "unrecognized error code";
}

RT_EXPORT const char *CUDARTAPI cudaGetErrorString(cudaError_t error) {
    const char *text = NULL;
    pthread_once(&loaded, load);
    if (error == cudaErrorInsufficientDriver)
        return "CUDA driver version is insufficient for CUDA runtime version";
    if (load_result == CUDA_SUCCESS && tables[RT_LEGACY].cuGetErrorString((CUresult)error, &text) == CUDA_SUCCESS)
        return text;
    return "unrecognized error code";
}

/* ---- versions and entry points ---- */

RT_EXPORT cudaError_t CUDARTAPI cudaDriverGetVersion(int *version) {
    pthread_once(&loaded, load);
    if (!version)
        return rt_leave(&tables[0], CUDA_ERROR_INVALID_VALUE);
    *version = 0; /* no driver: zero, and success */
    return load_result == CUDA_SUCCESS ? rt_leave(&tables[0], tables[0].cuDriverGetVersion(version)) : cudaSuccess;
}

RT_EXPORT cudaError_t CUDARTAPI cudaRuntimeGetVersion(int *version) {
    if (!version)
        return rt_leave(&tables[0], CUDA_ERROR_INVALID_VALUE);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

static CUresult entry_point(const struct rt_driver *d, const char *symbol, void **fn, unsigned version,
                            unsigned long long flags, bool per_thread, enum cudaDriverEntryPointQueryResult *status) {
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (!symbol || !fn)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags == cudaEnableDefault)
        flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    *fn = NULL;
    CUresult result = d->cuGetProcAddress(symbol, fn, (int)version, flags, &found);
    if (!status)
        return result;
    *status = (enum cudaDriverEntryPointQueryResult)found;
    return result == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : result;
}

#define ENTRY_POINT(suffix, per_thread)                                                                                \
    RT_EXPORT cudaError_t CUDARTAPI cudaGetDriverEntryPoint##suffix(                                                   \
        const char *symbol, void **fn, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status);        \
    RT_EXPORT cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion##suffix(                                          \
        const char *symbol, void **fn, unsigned int version, unsigned long long flags,                                 \
        enum cudaDriverEntryPointQueryResult *status);                                                                 \
    RT_EXPORT cudaError_t CUDARTAPI cudaGetDriverEntryPoint##suffix(                                                   \
        const char *symbol, void **fn, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {       \
        const struct rt_driver *d = rt_enter_bare();                                                                   \
        return rt_leave(d, d ? entry_point(d, symbol, fn, CUDA_VERSION, flags, per_thread, status) : CUDA_SUCCESS);    \
    }                                                                                                                  \
    RT_EXPORT cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion##suffix(                                          \
        const char *symbol, void **fn, unsigned int version, unsigned long long flags,                                 \
        enum cudaDriverEntryPointQueryResult *status) {                                                                \
        const struct rt_driver *d = rt_enter_bare();                                                                   \
        return rt_leave(d, d ? entry_point(d, symbol, fn, version, flags, per_thread, status) : CUDA_SUCCESS);         \
    }

ENTRY_POINT(, false)
ENTRY_POINT(_ptsz, true)

/* ---- devices ---- */

RT_EXPORT cudaError_t CUDARTAPI cudaGetDeviceCount(int *count) {
    const struct rt_driver *d = rt_enter_bare();
    return rt_leave(d, d ? d->cuDeviceGetCount(count) : CUDA_SUCCESS);
}

RT_EXPORT cudaError_t CUDARTAPI cudaSetDevice(int device) {
    const struct rt_driver *d = rt_enter_bare();
    CUdevice found;
    CUresult result = d ? d->cuDeviceGet(&found, device) : CUDA_SUCCESS;
    if (d && result == CUDA_SUCCESS && (result = rt_use_device(d, device)) == CUDA_SUCCESS)
        self.device = device;
    return rt_leave(d, result);
}

RT_EXPORT cudaError_t CUDARTAPI cudaGetDevice(int *device) {
    const struct rt_driver *d = rt_enter_bare();
    if (d && !device)
        return rt_leave(d, CUDA_ERROR_INVALID_VALUE);
    if (d && d->cuCtxGetDevice(device) != CUDA_SUCCESS)
        *device = self.device;
    return rt_leave(d, CUDA_SUCCESS);
}

static CUresult properties(const struct rt_driver *d, struct cudaDeviceProp *out, int device) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, sizeof(*out));
    CUresult result = d->cuDeviceGetName(out->name, (int)sizeof(out->name), device);
    if (result == CUDA_SUCCESS)
        result = d->cuDeviceTotalMem(&out->totalGlobalMem, device);
    d->cuDeviceGetAttribute(&out->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    d->cuDeviceGetAttribute(&out->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    d->cuDeviceGetAttribute(&out->multiProcessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    d->cuDeviceGetAttribute(&out->warpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
    d->cuDeviceGetAttribute(&out->unifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device);
    d->cuDeviceGetAttribute(&out->memoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device);
    return result;
}

RT_EXPORT cudaError_t CUDARTAPI cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    const struct rt_driver *d = rt_enter_bare();
    return rt_leave(d, d ? properties(d, out, device) : CUDA_SUCCESS);
}

RT_EXPORT cudaError_t CUDARTAPI cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device) {
    const struct rt_driver *d = rt_enter_bare();
    return rt_leave(d, d ? d->cuDeviceGetAttribute(value, (CUdevice_attribute)which, device) : CUDA_SUCCESS);
}

RT_EXPORT cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char *id, int size, int device) {
    const struct rt_driver *d = rt_enter_bare();
    return rt_leave(d, d ? d->cuDeviceGetPCIBusId(id, size, device) : CUDA_SUCCESS);
}

RT_CALL(cudaDeviceSynchronize, (void), d->cuCtxSynchronize())
RT_CALL(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), d->cuCtxGetStreamPriorityRange(least, greatest))

RT_EXPORT cudaError_t CUDARTAPI cudaDeviceReset(void) {
    const struct rt_driver *d = rt_enter_bare();
    CUdevice device = self.device;
    if (!d)
        return rt_leave(d, CUDA_SUCCESS);
    d->cuCtxGetDevice(&device);
    d->cuCtxSetCurrent(NULL);
    return rt_leave(d, d->cuDevicePrimaryCtxReset(device));
}

RT_CALL(cudaDeviceCanAccessPeer, (int *can, int device, int peer), d->cuDeviceCanAccessPeer(can, device, peer))
RT_CALL(cudaDeviceGetP2PAttribute, (int *value, enum cudaDeviceP2PAttr which, int device, int peer),
        d->cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)which, device, peer))

static CUresult set_peer(const struct rt_driver *d, int peer, bool enable, unsigned flags) {
    CUcontext context;
    CUresult result = rt_primary(d, peer, &context);
    if (result != CUDA_SUCCESS)
        return result;
    return enable ? d->cuCtxEnablePeerAccess(context, flags) : d->cuCtxDisablePeerAccess(context);
}

RT_CALL(cudaDeviceEnablePeerAccess, (int peer, unsigned int flags), set_peer(d, peer, true, flags))
RT_CALL(cudaDeviceDisablePeerAccess, (int peer), set_peer(d, peer, false, 0))
