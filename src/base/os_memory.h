/* Anonymous memory of our own, straight from the system. Thread-safe. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* What is as large as this, and a multiple of it, lies in huge pages where the system has them: a table that is looked
 * up at random then costs one miss a look-up, not two or three. */
enum { VP_HUGE = 2 << 20 };

/* `bytes` of zeroed memory, or NULL; given back by munmap(). */
void *vp_os_take(size_t bytes);
/* The same for a table of which most may never be used: the system keeps no memory back for it. */
void *vp_os_take_sparse(size_t bytes);
