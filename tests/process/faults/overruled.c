/* A plug-in defines functions of CUDA's that it calls, and the program's libcudart overrules it: so it does for us. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include "fault.h"

int main(void) {
    void *block = NULL, *plug = dlopen("liblate.so", RTLD_NOW | RTLD_LOCAL);
    cudaError_t (*late_call)(void) = (__typeof__(late_call))dlsym(plug, "late_call");
    NEED(cudaMalloc(&block, 1 << 20));
    SHOW(late_call());
    OK(cudaFree(block));
    return 0;
}
