/* What the guests share: programs that run under libvpool.so on the simulated driver, each with cases by
 * name. A case returns if all is well. What it prints may be compared with a run without libvpool.so. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../../common/check.h"
#include "../../common/forked.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct guest_case {
    const char *name;
    void (*run)(void);
};

/* Prints what a call returns, for the comparison. */
#define SHOW(call) printf("%s: %d\n", #call, (int)(call))

static inline void *guest_symbol(void *handle, const char *name) {
    void *symbol = dlsym(handle, name);

    if (!symbol) {
        fprintf(stderr, "no symbol %s\n", name);
        _exit(1);
    }
    return symbol;
}

/* How often the driver itself was called by this name. */
static inline unsigned long driver_calls(const char *name) {
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY);
    unsigned long (*calls)(const char *) = guest_symbol(cuda, "vp_sim_calls");

    return calls(name);
}

/* What a device may do at an address of the pool's. cuMemGetAccess says that nobody has mapped anything there. */
static inline unsigned long long driver_access(CUdeviceptr ptr, int device) {
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*access)(CUdeviceptr, int) = guest_symbol(cuda, "vp_sim_access");
    int flags = access(ptr, device);

    CHECK(flags >= 0);
    return (unsigned long long)flags;
}

/* The driver has made pool memory, and was asked for none of the plain kind. */
static inline void check_served(void) {
    CHECK(driver_calls("cuMemCreate") > 0);
    CHECK(driver_calls("cuMemAlloc_v2") == 0);
    CHECK(driver_calls("cuMemAllocPitch_v2") == 0);
    CHECK(driver_calls("cuMemAllocAsync") == 0);
    CHECK(driver_calls("cuMemAllocAsync_ptsz") == 0);
    CHECK(driver_calls("cuMemAllocFromPoolAsync") == 0);
}

static inline int guest_main(int argc, char **argv, const struct guest_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: %s CASE, one of:\n", argv[0]);
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "  %s\n", cases[i].name);
    return 2;
}

#define GUEST(name_) {#name_, name_}

#define GUEST_MAIN(...)                                                                                                \
    static const struct guest_case guest_cases[] = {__VA_ARGS__};                                                      \
    int main(int argc, char **argv) {                                                                                  \
        return guest_main(argc, argv, guest_cases, sizeof(guest_cases) / sizeof(guest_cases[0]));                      \
    }
