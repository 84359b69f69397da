/* What the process tells whoever watches it. Each is called by process/ alone, and filled in by watch/watch.c: a table
 * that is constant, so that the linker can make direct calls of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* What the others say of memory that one lacks: too little is idle there; they were asked, and what is left lies beside
 * what is live; they may give it some other time. */
enum vp_lend_some { VP_LEND_NONE, VP_LEND_REFUSED, VP_LEND_LATER };

struct vp_watch {
    void (*opening)(void);
    /* With the lock held: a device's pool was made; the lock is about to be let go (while vp_state.published). */
    void (*pool_opened)(struct vp_pool *pool);
    void (*publish)(void);
    /* While vp_state.recording, without any lock on the fast path, else with the library's: `a` (allocated), `f`
     * (freed) or `x` (out of memory: serial 0); `stream` is a timeline's number, 0 for a synchronous call. */
    bool (*wants_events)(void);
    void (*event)(char op, CUdevice device, uint64_t serial, size_t size, uint32_t stream);
    /* The stack of a block that is alive, 0 for none; and the log is told of it, without the lock. */
    uint32_t (*stack_of)(CUdevice device, uint64_t serial);
    void (*tell_stack)(uint32_t stack);
    /* Without the lock: an allocation failed, on the timeline of that id; 0: cudaMalloc; UINT64_MAX: PyTorch. */
    void (*out_of_memory)(CUdevice device, size_t asked, uint64_t timeline_id);
    /* Without the lock: as vp_lend_borrow(). */
    uint64_t (*borrow)(const CUuuid *uuid, uint64_t bytes, uint64_t least, enum vp_lend_some *some);
    /* Without the lock: as vp_lend_spare(). */
    uint64_t (*spare)(CUdevice device, const CUuuid *uuid);
    /* May the pool take more of the device? No: another process is about to be brought back, and needs it. */
    bool (*may_grow)(CUdevice device);
    /* Around a fork, with the lock held; and in the child, which has one thread. */
    void (*fork_prepare)(void);
    void (*fork_parent)(void);
    void (*fork_child)(void);
    /* The process ends. */
    void (*end)(void);
};

extern const struct vp_watch vp_watch;
