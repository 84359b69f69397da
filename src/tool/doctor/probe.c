/* Loads the driver, real or simulated, and queries its abilities. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/doctor/probe.h"

#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* By dlsym(), which the library intercepts here as in any program. */
#define FIND(function, symbol) (__typeof__(function))dlsym(driver, symbol)

static void *open_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        printf("missing %s\n", dlerror());
    return driver;
}

/* Prints a failure with the driver's message. */
static int failed(void *driver, const char *call, CUresult res) {
    CUresult (*string)(CUresult, const char **) = FIND(string, "cuGetErrorString");
    const char *words = NULL;
    if (!string || string(res, &words) || !words)
        words = "unknown error";
    printf("failed %d %s: %s\n", (int)res, call, words);
    return 1;
}

int vp_probe_driver(void) {
    static const struct {
        CUdevice_attribute attribute;
        const char *name;
    } abilities[] = {
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "vmm"},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "fd"},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, "rdma"},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "pools"},
        {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, "ipc"},
    };
    void *driver = open_driver();
    if (!driver)
        return 1;
    CUresult (*init)(unsigned) = FIND(init, "cuInit");
    CUresult (*version)(int *) = FIND(version, "cuDriverGetVersion");
    CUresult (*count)(int *) = FIND(count, "cuDeviceGetCount");
    CUresult (*get)(CUdevice *, int) = FIND(get, "cuDeviceGet");
    CUresult (*name)(char *, int, CUdevice) = FIND(name, "cuDeviceGetName");
    CUresult (*total)(size_t *, CUdevice) = FIND(total, "cuDeviceTotalMem_v2");
    CUresult (*attribute)(int *, CUdevice_attribute, CUdevice) = FIND(attribute, "cuDeviceGetAttribute");
    struct link_map *map;
    int number = 0, devices = 0;
    if (!init || !version || !count || !get || !attribute) {
        puts("missing libcuda.so.1 lacks functions that every driver has");
        return 1;
    }
    if (!dlinfo(driver, RTLD_DI_LINKMAP, &map))
        printf("file %s\n", map->l_name);
    if (!version(&number))
        printf("version %d\n", number);
    CUresult res = init(0);
    if (res)
        return failed(driver, "cuInit", res);
    if ((res = count(&devices)))
        return failed(driver, "cuDeviceGetCount", res);
    printf("devices %d\n", devices);
    for (int i = 0; i < devices; i++) {
        CUdevice device;
        char text[128] = "?";
        size_t bytes = 0;
        if ((res = get(&device, i)))
            return failed(driver, "cuDeviceGet", res);
        if (name)
            name(text, sizeof text - 1, device);
        if (total)
            total(&bytes, device);
        printf("device %d %zu", i, bytes);
        for (size_t k = 0; k < sizeof abilities / sizeof *abilities; k++) {
            int has = 0;
            printf(" %s%s", !attribute(&has, abilities[k].attribute, device) && has ? "" : "no-", abilities[k].name);
        }
        printf(" %s\n", text);
    }
    return 0;
}

int vp_probe_pool(void) {
    for (char **variable = environ; *variable; variable++)
        if (!strchr(*variable, '\n'))
            printf("variable %s\n", *variable);
    void *driver = open_driver();
    if (!driver)
        return 1;
    CUresult (*init)(unsigned) = FIND(init, "cuInit");
    CUresult (*retain)(CUcontext *, CUdevice) = FIND(retain, "cuDevicePrimaryCtxRetain");
    CUresult (*current)(CUcontext) = FIND(current, "cuCtxSetCurrent");
    CUresult (*alloc)(CUdeviceptr *, size_t) = FIND(alloc, "cuMemAlloc_v2");
    CUresult (*release)(CUdeviceptr) = FIND(release, "cuMemFree_v2");
    CUresult (*alloc_async)(CUdeviceptr *, size_t, CUstream) = FIND(alloc_async, "cuMemAllocAsync");
    CUresult (*release_async)(CUdeviceptr, CUstream) = FIND(release_async, "cuMemFreeAsync");
    CUresult (*handle_of)(CUipcMemHandle *, CUdeviceptr) = FIND(handle_of, "cuIpcGetMemHandle");
    CUcontext context;
    CUdeviceptr plain, ordered;
    CUipcMemHandle handle;
    CUresult res;
    if (!init || !retain || !current || !alloc || !release || !alloc_async || !release_async) {
        puts("missing libcuda.so.1 lacks functions that every driver has");
        return 1;
    }
    if ((res = init(0)) || (res = retain(&context, 0)) || (res = current(context)))
        return failed(driver, "making a context", res);
    if ((res = alloc(&plain, 2 << 20)))
        return failed(driver, "cuMemAlloc", res);
    if ((res = alloc_async(&ordered, 1 << 20, NULL)))
        return failed(driver, "cuMemAllocAsync", res);
    printf("ipc %d\n", handle_of ? (int)handle_of(&handle, plain) : -1);
    if ((res = release_async(ordered, NULL)) || (res = release(plain)))
        return failed(driver, "freeing", res);
    return 0;
}
