/* Frees all it has, and looks what the device has left. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    start();
    size_t (*used)(int) = sym("vp_sim_used");
    CUdeviceptr p[40];
    size_t fr, tot;
    for (int i = 0; i < 40; i++)
        NEED(cuMemAlloc(&p[i], 256 << 20));
    printf("40 blocks of 256 MiB: device used %zu MiB\n", used(0) >> 20);
    for (int i = 0; i < 40; i++)
        NEED(cuMemFree(p[i]));
    NEED(cuCtxSynchronize());
    NEED(cuMemGetInfo(&fr, &tot));
    printf("all freed, synchronised: device used %zu MiB, cuMemGetInfo says %zu MiB are used\n", used(0) >> 20,
           (tot - fr) >> 20);
}
