/* What a look-up of one of CUDA's functions is answered. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include "table.h"

/* Our door for the function `real` of libcuda, or `real` itself where we have none. */
void *vp_lookup_exchange(void *real);

/* NCCL's own function that was looked up in a handle, and its door handed out; or NULL. */
void *vp_lookup_handed_out(enum vp_nccl_door door);

/* The answer for a name that is a door's, where libc may be called again. */
void *vp_lookup_ask(void *handle, const char *name, const char *version);

/* The program calls dlsym, or dlvsym (index 1): pass.S. */
void *vp_lookup_pass(unsigned index, uintptr_t *registers, const void *address);
