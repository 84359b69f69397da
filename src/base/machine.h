/* What this machine has: host memory for this process, and devices that access a GPU's memory by themselves. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* `root` is "", except in tests: there a folder with its own `proc` and `sys`. Neither function allocates. */

/* Bytes of memory that may be taken and kept: nine tenths of what the system calls available, but no more than any
 * control group (both versions, up to the topmost) has room for; file cache counts as room. 0: unknown. */
uint64_t vp_host_memory_room(const char *root);

/* Are there network cards, storage or frame grabbers that may do so? False: the kernel shows none, and no module
 * through which one could. */
bool vp_rdma_possible(const char *root);
