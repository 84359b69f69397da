/* Finds the driver's checkpoint functions, and the free memory of the devices. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/pause/checkpoint.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The first version that has checkpoints: CUDA 12.8, driver 570. */
enum { FIRST = 12080 };

static bool find(struct vp_checkpoint *c, void *driver) {
    bool all = true;
#define FIND(name, args)                                                                                               \
    c->name = (__typeof__(c->name))dlsym(driver, #name);                                                               \
    all &= c->name != NULL;
    VP_CHECKPOINT_CALLS(FIND)
#undef FIND
    return all;
}

const char *vp_checkpoint_words(const struct vp_checkpoint *c, CUresult res) {
    const char *words = NULL;
    if (!c->cuGetErrorString || c->cuGetErrorString(res, &words) || !words)
        words = "an unnamed error";
    return words;
}

bool vp_checkpoint_open(struct vp_checkpoint *c, const char *library, char why[256]) {
    int version = 0;
    *c = (struct vp_checkpoint){0};
    void *driver = library ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!driver && !(driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))) {
        snprintf(why, 256, "no driver: %s", dlerror());
        return false;
    }
    const bool all = find(c, driver);
    if (c->cuDriverGetVersion)
        c->cuDriverGetVersion(&version);
    if (!all || version < FIRST) {
        snprintf(why, 256, "the driver (CUDA %d.%d) cannot checkpoint a process: driver 570 (CUDA 12.8) or later can",
                 version / 1000, version % 1000 / 10);
        return false;
    }
    CUresult res = c->cuInit(0);
    if (!res)
        res = c->cuDeviceGetCount(&c->devices);
    for (int i = 0; i < c->devices && !res; i++) {
        CUdevice device;
        if (i < VP_CHECKPOINT_DEVICES && !(res = c->cuDeviceGet(&device, i)))
            res = c->cuDeviceGetUuid_v2(&c->uuid[i], device);
    }
    if (c->devices > VP_CHECKPOINT_DEVICES)
        c->devices = VP_CHECKPOINT_DEVICES;
    if (res)
        snprintf(why, 256, "the driver does not start: %s", vp_checkpoint_words(c, res));
    return !res;
}

int vp_checkpoint_device(const struct vp_checkpoint *c, const void *uuid) {
    for (int i = 0; i < c->devices; i++)
        if (!memcmp(&c->uuid[i], uuid, sizeof c->uuid[i]))
            return i;
    return -1;
}

/* ---- what is free ---- */

/* NVML's struct: NVML needs no context. */
struct nvml_memory {
    unsigned long long total, free, used;
};

static bool by_nvml(const CUuuid *uuid, size_t *free_bytes, size_t *total) {
    static int (*by_uuid)(const char *, void **);
    static int (*memory_of)(void *, struct nvml_memory *);
    static bool tried;
    if (!tried) {
        tried = true;
        void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        int (*init)(void) = nvml ? (int (*)(void))dlsym(nvml, "nvmlInit_v2") : NULL;
        if (init && !init()) {
            by_uuid = (__typeof__(by_uuid))dlsym(nvml, "nvmlDeviceGetHandleByUUID");
            memory_of = (__typeof__(memory_of))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
        }
    }
    char name[48] = "GPU-";
    for (int i = 0; i < 16; i++)
        sprintf(name + strlen(name), "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                (unsigned char)uuid->bytes[i]);
    void *device;
    struct nvml_memory memory;
    if (!by_uuid || !memory_of || by_uuid(name, &device) || memory_of(device, &memory))
        return false;
    *free_bytes = memory.free;
    *total = memory.total;
    return true;
}

bool vp_checkpoint_free(struct vp_checkpoint *c, int device, size_t *free_bytes, size_t *total) {
    if (by_nvml(&c->uuid[device], free_bytes, total))
        return true;
    CUdevice number;
    if (!c->context[device] &&
        (c->cuDeviceGet(&number, device) || c->cuDevicePrimaryCtxRetain(&c->context[device], number)))
        return false;
    return !c->cuCtxSetCurrent(c->context[device]) && !c->cuMemGetInfo_v2(free_bytes, total);
}
