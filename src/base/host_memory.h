/* How much memory the host has left for this process: the system's, and what its control groups let it have. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* Bytes that may be taken and kept: of what the system calls available all but a tenth, and no more than each control
 * group (both versions, up to the topmost) has room for; its file cache counts as room. 0 where the system does not
 * tell. `root` is "" but in tests, where it is a folder with a `proc` and a `sys` of its own. Allocates nothing. */
uint64_t vp_host_memory_room(const char *root);
