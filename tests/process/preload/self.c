/* A library that looks CUDA's calls up by itself: behind itself, by version, and among all. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "self.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Each keeps its answer in memory first: a tail call would make its own caller the one who asks. */

void *self_next(const char *name) {
    void *volatile found = dlsym(RTLD_NEXT, name);

    return found;
}

void *self_next_version(const char *name, const char *version) {
    void *volatile found = dlvsym(RTLD_NEXT, name, version);

    return found;
}

void *self_default(const char *name) {
    void *volatile found = dlsym(RTLD_DEFAULT, name);

    return found;
}

int self_answer(void) {
    return 1;
}

/* So that libnext.so is needed, and lies in this library's scope. */
int next_only(void);
int self_uses_next(void);

int self_uses_next(void) {
    return next_only();
}

static CUresult (*at_end_free)(CUdeviceptr);
static CUresult (*at_end_alloc)(CUdeviceptr *, size_t);
static CUdeviceptr at_end;

void self_free_in_destructor(CUresult (*free_function)(CUdeviceptr), CUresult (*alloc)(CUdeviceptr *, size_t)) {
    at_end_free = free_function;
    at_end_alloc = alloc;
    if (alloc(&at_end, 1 << 20) != CUDA_SUCCESS)
        abort();
}

__attribute__((destructor)) static void end(void) {
    if (at_end && at_end_free(at_end) != CUDA_SUCCESS)
        abort();
    if (at_end && at_end_alloc(&at_end, 1 << 20) != CUDA_SUCCESS)
        abort();
}
