/* As daemons begin: the parent ends at once, and its child works on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static void on_bus_error(int number) {
    if (write(1, "child: SIGBUS\n", 14) < 0)
        _exit(2);
    _exit(1);
}

int main(void) {
    int v;
    int (*mark)(const char *) = dlsym(RTLD_DEFAULT, "vpool_mark");
    OK(cuDriverGetVersion(&v));
    void *f;
    CUdriverProcAddressQueryResult q;
    OK(((CUresult(*)(const char *, void **, int, cuuint64_t, void *))sym("cuGetProcAddress_v2"))("cuMemAlloc", &f,
                                                                                                 12000, 0, &q));
    if (mark)
        mark("start");
    fflush(stdout);
    if (fork())
        exit(0);
    setsid();
    usleep(300000);
    CUdevice d;
    CUcontext c;
    CUdeviceptr p;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    signal(SIGBUS, on_bus_error);
    for (int i = 0; i < 1000; i++) {
        OK(cuMemAlloc(&p, 1000 + i));
        OK(cuMemFree(p));
    }
    puts("child: ended well");
    return 0;
}
