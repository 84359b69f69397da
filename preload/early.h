/* What our dlsym needs before anything else in the process works.
 *
 * It may be called before libc has run its constructors, before a sanitizer has mapped its shadow memory, and by a
 * thread that holds any lock. So these functions call nothing outside this file, and are built without instrumentation.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#if defined(__clang__)
#define VP_EARLY_ALSO , disable_sanitizer_instrumentation
#else
#define VP_EARLY_ALSO
#endif
#define VP_EARLY                                                                                                       \
    __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined"),                            \
                   no_stack_protector VP_EARLY_ALSO))

typedef void *vp_dlsym_fn(void *handle, const char *name);
typedef void *vp_dlvsym_fn(void *handle, const char *name, const char *version);
typedef void *vp_dlopen_fn(const char *file, int mode);
typedef int vp_dlclose_fn(void *handle);

/* The functions of libc itself; our dlsym and dlvsym forward to the first two. Never NULL after vp_early_find().
 * Another library's dlopen() might look up CUDA's functions, and so call us again. */
extern vp_dlsym_fn *vp_real_dlsym;
extern vp_dlvsym_fn *vp_real_dlvsym;
extern vp_dlopen_fn *vp_real_dlopen;
extern vp_dlclose_fn *vp_real_dlclose;

/* Finds these functions. May run any number of times and in several threads at once, with the same result. */
void vp_early_find(void);

/* The function `name` of libc itself, even if other libraries interpose it; NULL: libc has none. It is in libc.so.6
 * from glibc 2.34 on, before that possibly in libdl.so.2; with musl in libc.musl-ARCH.so.1 or libc.so. */
void *vp_early_own(const char *name);

bool vp_early_equal(const char *a, const char *b);
/* Is the handle RTLD_DEFAULT, or that of dlopen(NULL)? */
bool vp_early_is_anywhere(const void *handle);
/* The names of all doors except those of the runtime, each with its terminating zero: first those of the driver, in the
 * order of enum vp_door. An empty name ends the list. */
extern const char vp_early_names[];
/* The same for the doors of the runtime. */
extern const char vp_early_runtime_names[];

/* An answer of vp_early_ask(): there is no such symbol, and the program gets NULL. */
#define VP_EARLY_NOTHING ((void *)1)

/* The answer to a look-up: the door to return, or NULL to go on to libc with the same arguments. `version` is NULL for
 * dlsym. For the name of a door, `lookup` decides. */
void *vp_early_ask(void *handle, const char *name, const char *version, vp_dlvsym_fn *lookup);
