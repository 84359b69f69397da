/* Doors of the driver: code, and what a context sets aside. Modules and libraries take memory of the device
 * when they are loaded, or lazily, when a function or a variable of theirs is first asked for; a context, when a
 * limit of its heaps and stacks is raised. Nothing here is ours but that it may be tried again: doors_others.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doors.h"

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuModuleLoad)(module, path));

    vp_door_leave();
    return res;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuModuleLoadData)(module, image));

    vp_door_leave();
    return res;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                            void **values) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuModuleLoadDataEx)(module, image, count, options, values));

    vp_door_leave();
    return res;
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuModuleLoadFatBinary)(module, image));

    vp_door_leave();
    return res;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuModuleGetFunction)(function, module, name));

    vp_door_leave();
    return res;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *size, CUmodule module, const char *name) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuModuleGetGlobal_v2)(ptr, size, module, name));

    vp_door_leave();
    return res;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values,
                           unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(
        ours, VP_REAL(cuLibraryLoadData)(library, code, jit, jit_values, jit_count, options, values, count));

    vp_door_leave();
    return res;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit, void **jit_values,
                               unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(
        ours, VP_REAL(cuLibraryLoadFromFile)(library, path, jit, jit_values, jit_count, options, values, count));

    vp_door_leave();
    return res;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuLibraryGetModule)(module, library));

    vp_door_leave();
    return res;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *ptr, size_t *size, CUlibrary library, const char *name) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuLibraryGetGlobal)(ptr, size, library, name));

    vp_door_leave();
    return res;
}

CUresult cuLibraryGetManaged(CUdeviceptr *ptr, size_t *size, CUlibrary library, const char *name) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuLibraryGetManaged)(ptr, size, library, name));

    vp_door_leave();
    return res;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuKernelGetFunction)(function, kernel));

    vp_door_leave();
    return res;
}

CUresult cuFuncLoad(CUfunction function) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuFuncLoad)(function));

    vp_door_leave();
    return res;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuCtxSetLimit)(limit, value));

    vp_door_leave();
    return res;
}

CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice device, unsigned int flags) {
    bool ours = vp_door_enter();
    CUresult res = VP_TRIED(ours, VP_REAL(cuGreenCtxCreate)(context, desc, device, flags));

    vp_door_leave();
    return res;
}
