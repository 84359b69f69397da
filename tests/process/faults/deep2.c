/* A plug-in that resolves the driver by itself; with an argument it is opened with RTLD_DEEPBIND. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include "fault.h"

int main(int argc, char **argv) {
    void *p, *q;
    int deep = argc > 1;
    void *h = dlopen("libplug2.so", RTLD_NOW | (deep ? RTLD_DEEPBIND : 0));
    if (!h) {
        puts(dlerror());
        return 1;
    }
    int (*pf)(void *) = dlsym(h, "plug_free"), (*pa)(void **, size_t) = dlsym(h, "plug_alloc");
    OK(cudaMalloc(&p, 1 << 20));
    printf("deepbind %d: plugin frees main's pointer -> %d\n", deep, pf(p));
    OK(pa(&q, 1 << 20));
    printf("main frees the plugin's pointer -> %d\n", cudaFree(q));
}
