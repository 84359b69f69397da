/* A parent that marks its trace and never allocates, and two children that do the work. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    int v;
    int (*mark)(const char *) = dlsym(RTLD_DEFAULT, "vpool_mark");
    OK(cuDriverGetVersion(&v));
    void *f;
    CUdriverProcAddressQueryResult q;
    OK(((CUresult(*)(const char *, void **, int, cuuint64_t, void *))sym("cuGetProcAddress_v2"))("cuMemAlloc", &f,
                                                                                                 12000, 0, &q));
    printf("mark -> %d\n", mark ? mark("start") : -1);
    for (int k = 0; k < 2; k++)
        if (!fork()) {
            CUdevice d;
            CUcontext c;
            CUdeviceptr p;
            OK(cuInit(0));
            OK(cuDeviceGet(&d, 0));
            OK(cuDevicePrimaryCtxRetain(&c, d));
            OK(cuCtxSetCurrent(c));
            for (int i = 0; i < 5; i++) {
                OK(cuMemAlloc(&p, (k + 1) * 1000));
                OK(cuMemFree(p));
                usleep(1000);
            }
            exit(0);
        }
    while (wait(NULL) > 0)
        ;
    return 0;
}
