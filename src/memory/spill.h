/* Host memory behind device addresses, for when the device has no more.
 *
 * Chunks of host memory are made for one block, and are its end or all of it. They are never free: when the block is
 * freed they are retired, and released as soon as all work on them is over. So code that moves, reuses, lends or gives
 * back free memory never meets one. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/chunk.h"

/* Can the device map host memory? Asks the driver on the first call. */
bool vp_spill_possible(struct vp_memory *mem) __attribute__((cold));
/* Does the byte belong to a live block that is spilled? */
bool vp_spill_holds(const struct vp_memory *mem, CUdeviceptr addr);
/* To be called when a block with chunks of host memory goes live. */
void vp_spill_went_live(struct vp_memory *mem, struct vp_region *block) __attribute__((cold));
/* The block is about to be freed, and no longer counts as spilled. Returns where its host memory begins:
 * vp_spill_retire(), which cannot fail, then cuts that out of the free memory. 0: no memory for the cut; instead all
 * chunks of the block count as exported, and go back where they came from. */
CUdeviceptr vp_spill_release(struct vp_memory *mem, struct vp_region *block) __attribute__((cold));
void vp_spill_retire(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end) __attribute__((cold));
