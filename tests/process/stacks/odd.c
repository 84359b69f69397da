/* A program that exports what CPython does, but is none whose stacks can be read: `odd WHICH`, on the simulated driver.
 * Nothing of it may be taken for an interpreter's memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "../../common/check.h"

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* A pointer that faults. */
static void *const nowhere = (void *)(uintptr_t)0xdead0000dead0000;

/* As 3.13 and later describe themselves: a cookie, the version, whether threads are free, then offsets. */
uint64_t _PyRuntime[128];
void *PyType_Type[64], *PyCode_Type[64];
static const char *version;

void *PyGILState_GetThisThreadState(void);
int Py_IsInitialized(void), Py_IsFinalizing(void), PyCode_Addr2Line(void *code, int bytes);
const char *Py_GetVersion(void);

void *PyGILState_GetThisThreadState(void) {
    return nowhere;
}

int Py_IsInitialized(void) {
    return 1;
}

const char *Py_GetVersion(void) {
    return version;
}

int PyCode_Addr2Line(void *code, int bytes) {
    (void)code;
    return bytes;
}

int Py_IsFinalizing(void) {
    return 0;
}

static void describe(uint64_t free_threaded) {
    memcpy(_PyRuntime, "xdebugpy", 8);
    _PyRuntime[1] = 0x030e08f0;
    _PyRuntime[2] = free_threaded;
}

int main(int argc, char **argv) {
    CUdevice device;
    CUcontext context;
    CUdeviceptr p;
    CHECK(argc == 2);
    for (int i = 0; i < 64; i++)
        PyType_Type[i] = PyCode_Type[i] = nowhere;
    version = "3.14.8 (main)";
    if (!strcmp(argv[1], "free-threaded")) {
        describe(1);
    } else if (!strcmp(argv[1], "later")) {
        version = "3.99.0 (main)";
    } else if (!strcmp(argv[1], "other-objects")) {
        describe(0);
        /* From 1: a row of offsets that is no thread's state, then one that is. */
        _PyRuntime[6] = 200, _PyRuntime[8] = 8, _PyRuntime[9] = 16, _PyRuntime[10] = 72;
    } else if (!strcmp(argv[1], "another-table")) {
        describe(0);
        memset(_PyRuntime + 3, 0x11, sizeof _PyRuntime - 3 * sizeof *_PyRuntime);
    } else {
        CHECK(!strcmp(argv[1], "undescribed"));
    }
    CHECK(!cuInit(0) && !cuDeviceGet(&device, 0) && !cuDevicePrimaryCtxRetain(&context, device));
    CHECK(!cuCtxSetCurrent(context) && !cuMemAlloc(&p, 3 * MIB) && !cuMemFree(p));
    return 0;
}
