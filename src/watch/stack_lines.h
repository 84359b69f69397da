/* The line by which people know a stack, and which of them held most at the peak. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct vp_line_peak {
    uint32_t frame; /* that held most: of all stacks whose line it is, together */
    uint64_t bytes;
    uint64_t of; /* what was alive then, as far as stacks tell of it */
    uint64_t ns; /* since the first block */
};
/* False: not known. Not under a lock. */
bool vp_line_peak(struct vp_line_peak *out);
