/* Anonymous memory directly from the system. Thread-safe. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Sizes that are multiples of this lie in huge pages where the system has them: a table with random access then costs
 * one miss a look-up, not two or three. */
enum { VP_HUGE = 2 << 20 };

/* `bytes` of zeroed memory, or NULL. The caller releases it by vp_os_give(). */
void *vp_os_take(size_t bytes);
/* The same for a table of which most may stay unused: the system reserves no memory for it. */
void *vp_os_take_sparse(size_t bytes);
/* munmap() and mremap() (NULL: out of memory) by direct system calls. Libraries such as libfabric patch libc's
 * functions to learn of unmapped memory, and take locks there under which they call CUDA. Our memory does not concern
 * them, and is unmapped while we hold a lock that they would then wait for. */
int vp_os_give(void *mem, size_t bytes);
void *vp_os_lengthen(void *mem, size_t bytes, size_t longer);
