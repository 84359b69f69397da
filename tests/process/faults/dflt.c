/* Has this program CUDA? It asks by a weak reference and by RTLD_DEFAULT. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>

extern int cudaMalloc(void **, unsigned long) __attribute__((weak));
extern int ncclCommInitAll(void) __attribute__((weak));

int main(void) {
    printf("weak cudaMalloc %s, weak ncclCommInitAll %s\n", cudaMalloc ? "THERE" : "no",
           ncclCommInitAll ? "THERE" : "no");
    printf("dlsym(DEFAULT,cuMemAlloc_v2) %s, dlsym(DEFAULT,cudaGetDriverEntryPointByVersion) %s\n",
           dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") ? "THERE" : "no",
           dlsym(RTLD_DEFAULT, "cudaGetDriverEntryPointByVersion") ? "THERE" : "no");
    void *p;
    if (cudaMalloc)
        printf("cudaMalloc -> %d\n", cudaMalloc(&p, 1));
}
