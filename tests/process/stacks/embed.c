/* A program that embeds Python, as a plug-in does: `embed LIBPYTHON`, on the simulated driver. Memory is asked for from
 * within Python code, with no interpreter yet, in one that has ended, and in the next. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "../../common/check.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static int done;

static int ask(void *size) {
    CUdeviceptr p;
    CHECK(!cuMemAlloc(&p, (size_t)size));
    done++;
    return 0;
}

int main(int argc, char **argv) {
    CUdevice device;
    CUcontext context;
    CHECK(argc == 2 && !cuInit(0) && !cuDeviceGet(&device, 0) && !cuDevicePrimaryCtxRetain(&context, device));
    CHECK(!cuCtxSetCurrent(context));
    ask((void *)(size_t)(2 * MIB));
    void *python = dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL);
    CHECK(python);
    void (*begin)(int) = (void (*)(int))dlsym(python, "Py_InitializeEx");
    int (*run)(const char *, void *) = (int (*)(const char *, void *))dlsym(python, "PyRun_SimpleStringFlags");
    int (*pending)(int (*)(void *), void *) = (int (*)(int (*)(void *), void *))dlsym(python, "Py_AddPendingCall");
    int (*end)(void) = (int (*)(void))dlsym(python, "Py_FinalizeEx");
    CHECK(begin && run && pending && end);
    for (size_t i = 0; i < 2; i++) {
        begin(0);
        CHECK(!pending(ask, (void *)((3 + i) * MIB)));
        /* The interpreter calls it back in the middle of this. */
        CHECK(!run("def spin():\n"
                   "    for i in range(100000):\n"
                   "        len('')\n"
                   "spin()\n",
                   NULL));
        end();
        ask((void *)((5 + i) * MIB));
    }
    CHECK(done == 5);
    return 0;
}
