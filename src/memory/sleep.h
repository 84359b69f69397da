/* Chunks that sleep: they keep their addresses, but their physical memory is given back to the device. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "memory/chunk.h"

/* Bytes of live blocks, and small free gaps between them, side by side in one chunk. */
struct vp_span {
    CUdeviceptr addr;
    size_t size;
};

/* Does the byte lie in a chunk that sleeps? */
static inline bool vp_memory_sleeps(const struct vp_memory *mem, CUdeviceptr addr) {
    const struct vp_mapping *m = mem->asleep ? vp_mapping_at(mem, addr) : NULL;
    return m && m->chunk->asleep;
}

/* The first step; all work of the device must be over. Unmaps all mappings but the current ones, and retires free
 * bytes, so that nothing moves: chunks count as asleep, but are still mapped. Fills in up to `room` spans; `*count`:
 * their number; `*bytes`: their sum. With `spans` NULL only counts. 0; -ENOMEM or -EIO, with all chunks awake. */
int vp_sleep_begin(struct vp_memory *mem, struct vp_span *spans, size_t room, size_t *count, size_t *bytes);
/* Unmaps all that sleep: 0. On failure maps them again, contents intact: -EIO. If that fails too: -ENOTRECOVERABLE, and
 * they go on sleeping as they are. */
int vp_sleep_unmap(struct vp_memory *mem);
/* Releases what is unmapped. What the driver refuses to release is kept, and used again by waking. */
void vp_sleep_release(struct vp_memory *mem);
/* Creates physical memory for all sleeping chunks that hold live bytes, and maps it where it was. Chunks side by side
 * under a block that has slept before become one, of at most `largest` bytes. 0: all; -ENOMEM or -EIO: none. */
int vp_sleep_wake(struct vp_memory *mem, size_t largest);
/* The last step: all that sleeps is awake. Its contents are back, or never left; it must be mapped. 0 or -ENOMEM. */
int vp_sleep_end(struct vp_memory *mem);
