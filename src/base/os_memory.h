/* Anonymous memory of our own, straight from the system. Thread-safe. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* What is as large as this, and a multiple of it, lies in huge pages where the system has them: a table that is looked
 * up at random then costs one miss a look-up, not two or three. */
enum { VP_HUGE = 2 << 20 };

/* `bytes` of zeroed memory, or NULL; given back by vp_os_give(). */
void *vp_os_take(size_t bytes);
/* The same for a table of which most may never be used: the system keeps no memory back for it. */
void *vp_os_take_sparse(size_t bytes);
/* munmap() and mremap() (NULL: there is no memory), by the system call itself. Libraries write into libc's functions to
 * be told of memory that goes, as libfabric does, and take locks there under which they ask CUDA. Ours is none of
 * theirs, and goes while a lock is held for which they wait then. */
int vp_os_give(void *mem, size_t bytes);
void *vp_os_lengthen(void *mem, size_t bytes, size_t longer);
