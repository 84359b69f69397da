/* Holders: the source lines of a program that allocated what is live at a moment. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/read/trace.h"

struct vp_holder {
    uint32_t stack; /* one of the stacks that end in this line: vp_stacks_line(); 0: of unknown blocks */
    uint64_t bytes, blocks;
};

/* Adds a holder for each line to `holders`, the largest first: what is live after that event of a trace whose stacks
 * were named. 0 or -ENOMEM. */
int vp_holders_at(const struct vp_trace *trace, size_t event, struct vp_array *holders);
