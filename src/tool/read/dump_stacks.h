/* The stacks of a dump: those that its regions name by number, and the frames of its holders. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/plan/numbers.h"
#include "tool/read/stacks.h"

/* What was read so far; all zero at first. */
struct vp_dump_stacks {
    struct vp_array frames, stacks; /* as in the dump */
    struct vp_numbers numbers;      /* by the number of a stack, its index in `out` */
};

/* Takes a member of one of the dump's frames or stacks, or of a frame of a holder. Members come row by row, and each
 * row has another number. 0 or -ENOMEM. */
int vp_dump_stacks_frame(struct vp_dump_stacks *d, unsigned row, const char *field, const char *value);
int vp_dump_stacks_stack(struct vp_dump_stacks *d, unsigned row, const char *field, const char *value);
int vp_dump_stacks_holder(struct vp_dump_stacks *d, unsigned row, const char *field, const char *value);

/* Makes stacks of what was read. NULL, or what is wrong. */
const char *vp_dump_stacks_make(struct vp_dump_stacks *d, struct vp_stacks *out);
/* Returns the index of the dump's stack of that number; 0: there is none. */
uint32_t vp_dump_stacks_at(const struct vp_dump_stacks *d, uint64_t number);
void vp_dump_stacks_finish(struct vp_dump_stacks *d);
