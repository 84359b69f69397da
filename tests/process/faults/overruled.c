/* Plug-ins have functions of CUDA's of their own, or those of a libcudart of their own, and the program's overrule
 * them: so they do for us. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include "fault.h"

int main(void) {
    void *block = NULL, *late = dlopen("liblate.so", RTLD_NOW | RTLD_LOCAL),
         *wheel = dlopen("libwheel.so", RTLD_NOW | RTLD_LOCAL);
    cudaError_t (*late_call)(void) = (__typeof__(late_call))dlsym(late, "late_call");
    cudaError_t (*wheel_call)(void) = (__typeof__(wheel_call))dlsym(wheel, "wheel_call");
    NEED(cudaMalloc(&block, 1 << 20));
    SHOW(late_call());
    SHOW(wheel_call());
    OK(cudaFree(block));
    return 0;
}
