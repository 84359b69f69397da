/* Devices of the machine that reach a GPU's memory by themselves: network cards, storage, frame grabbers. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* False: the kernel shows that there is none, and no module that could let one in. `root`: "", or where a test has its
 * /sys. Allocates nothing. */
bool vp_rdma_possible(const char *root);
