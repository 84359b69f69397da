/* What this machine has: memory of the host for this process, and devices that reach a GPU's memory by themselves. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* `root` is "" but in tests, where it is a folder with a `proc` and a `sys` of its own. Neither allocates. */

/* Bytes that may be taken and kept: of what the system calls available all but a tenth, and no more than each control
 * group (both versions, up to the topmost) has room for; its file cache counts as room. 0 where the system does not
 * tell. */
uint64_t vp_host_memory_room(const char *root);

/* Network cards, storage, frame grabbers. False: the kernel shows that there is none, and no module that could let one
 * in. */
bool vp_rdma_possible(const char *root);
