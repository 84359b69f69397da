/* Chunks that sleep: their addresses stay, and their physical memory is the device's again. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/chunk.h"

/* Bytes of live blocks, with what little is free between them, that lie side by side in one chunk. */
struct vp_span {
    CUdeviceptr addr;
    size_t size;
};

/* Does the byte lie in a chunk that sleeps? */
static inline bool vp_memory_sleeps(const struct vp_memory *mem, CUdeviceptr addr) {
    const struct vp_mapping *m = mem->asleep ? vp_mapping_at(mem, addr) : NULL;
    return m && m->chunk->asleep;
}

/* Begins: all work of the device must be over. Unmaps every mapping but the current ones, and takes what is free out of
 * use, so that chunks lie still: they count as asleep, and are not yet unmapped. `spans` (NULL: they are counted only)
 * are filled in, up to `room`; `*count` is how many there are, and `*bytes` how long they are together. 0; -ENOMEM or
 * -EIO, with all chunks awake. */
int vp_sleep_begin(struct vp_memory *mem, struct vp_span *spans, size_t room, size_t *count, size_t *bytes);
/* Unmaps all of them: 0. On failure what was unmapped is mapped again, with its contents: -EIO. If that fails too:
 * -ENOTRECOVERABLE, and it sleeps on as it is. */
int vp_sleep_unmap(struct vp_memory *mem);
/* Releases what is unmapped. What the driver will not release is kept, and taken back by waking. */
void vp_sleep_release(struct vp_memory *mem);
/* Makes physical memory for all that sleeps and still has something live, and maps it where it was; chunks side by side
 * under a block that has slept before become one, of `largest` bytes at most. All: 0; or none: -ENOMEM or -EIO. */
int vp_sleep_wake(struct vp_memory *mem, size_t largest);
/* The contents are back, or nothing has left: all that sleeps is awake. It must be mapped. 0 or -ENOMEM. */
int vp_sleep_end(struct vp_memory *mem);
