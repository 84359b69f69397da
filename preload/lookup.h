/* How look-ups of CUDA's functions are answered. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include "table.h"

/* Returns our door for the function `real` of libcuda, or `real` if there is no door for it. */
void *vp_lookup_exchange(void *real);

/* The real NCCL function that was looked up through a handle when we returned its door instead; NULL: none. */
void *vp_lookup_handed_out(enum vp_nccl_door door);

/* Answers a look-up of the name of a door, at a time when libc may be called again. */
void *vp_lookup_ask(void *handle, const char *name, const char *version);

/* Called by pass.S when the program calls dlsym (index 0) or dlvsym (1). */
void *vp_lookup_pass(unsigned index, uintptr_t *registers, const void *address);
