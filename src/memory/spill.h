/* Memory of the host behind addresses of the device, where the device has no more.
 *
 * Chunks of the host's memory are made for one block, of which they are the end, or all of it. They are never free:
 * when the block is, they are retired, and released as soon as all work on them is over. So whatever moves, reuses,
 * lends or gives back what is free never meets one. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/chunk.h"

/* Can the device have memory of the host mapped? Asks the driver at the first call. */
bool vp_spill_possible(struct vp_memory *mem) __attribute__((cold));
/* Is the byte one of a live block that is spilled? */
bool vp_spill_holds(const struct vp_memory *mem, CUdeviceptr addr);
/* A block was made of chunks some of which are the host's. */
void vp_spill_went_live(struct vp_memory *mem, struct vp_region *block) __attribute__((cold));
/* It is about to be freed, and no longer counts as spilled. Where the host's part of it begins, which can then be cut
 * out of what is free by vp_spill_retire(): that cannot fail. 0: without memory for that, all of its chunks count as
 * exported, and go back to where they are from. */
CUdeviceptr vp_spill_release(struct vp_memory *mem, struct vp_region *block) __attribute__((cold));
void vp_spill_retire(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end) __attribute__((cold));
