/* libself.so: a library that looks up symbols by itself and for itself, as OpenMP runtimes and other
 * interposers do. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>

/* The next definition after this library's: dlsym(RTLD_NEXT) called from here. */
void *self_next(const char *name);
/* dlvsym(RTLD_NEXT), as well. */
void *self_next_version(const char *name, const char *version);
/* What this library's own scope holds: dlsym(RTLD_DEFAULT) called from here. */
void *self_default(const char *name);

/* Defined here and in libnext.so, which this library depends on: 1 and 2. */
int self_answer(void);

/* Calls these in the library's destructor. */
void self_free_in_destructor(CUresult (*free_function)(CUdeviceptr), CUresult (*alloc)(CUdeviceptr *, size_t));
