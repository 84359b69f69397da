/* What dlsym's stand-in needs before anything else in the process works.
 *
 * It may be called before libc has run its constructors, before a sanitizer has mapped its shadow, and by a
 * thread that holds any lock. So the functions here call nothing and are built without instrumentation. */
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

/* libc's own; the doors of the first two go on to them. Never NULL once vp_early_find() has run. Somebody else's
 * dlopen() may look CUDA up, and so come back to where it was called from. */
extern vp_dlsym_fn *vp_real_dlsym;
extern vp_dlvsym_fn *vp_real_dlvsym;
extern vp_dlopen_fn *vp_real_dlopen;
extern vp_dlclose_fn *vp_real_dlclose;

/* Finds libc's own. May run any number of times, in several threads at once: the result is
 * the same. */
void vp_early_find(void);

/* A function of libc's own, whatever stands before it; NULL: it has none. They stand in libc.so.6 from glibc 2.34 on,
 * some in libdl.so.2 before; in musl's libc.musl-ARCH.so.1 or libc.so. */
void *vp_early_own(const char *name);

bool vp_early_equal(const char *a, const char *b);
/* RTLD_DEFAULT, or what dlopen(NULL) gives. */
bool vp_early_is_anywhere(const void *handle);
/* The names of all doors but the runtime's, each with its end: first the driver's, in the order of enum vp_door; an
 * empty one at the end. */
extern const char vp_early_names[];
/* The same of the runtime's. */
extern const char vp_early_runtime_names[];

/* There is no such symbol: the program gets NULL. */
#define VP_EARLY_NOTHING ((void *)1)

/* What a look-up is answered: the door to hand out, or NULL to go on to libc with the arguments untouched.
 * `version` is NULL for dlsym; for a name that is a door's, `lookup` has the answer. */
void *vp_early_ask(void *handle, const char *name, const char *version, vp_dlvsym_fn *lookup);
