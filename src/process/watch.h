/* The events that process/ reports to watch/. Only process/ calls these; watch/watch.c fills in the table, which is
 * constant, so that the linker can turn the calls into direct ones. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* The answer of other processes to one that lacks memory. NONE: too little is idle there; REFUSED: they were asked, but
 * what is left lies beside live blocks; LATER: they may give it at another time. */
enum vp_lend_some { VP_LEND_NONE, VP_LEND_REFUSED, VP_LEND_LATER };

struct vp_watch {
    void (*opening)(void);
    /* With the lock held: the pool of a device was opened; the lock is about to be released (if vp_state.published). */
    void (*pool_opened)(struct vp_pool *pool);
    void (*publish)(void);
    /* While vp_state.recording; on the fast path without any lock, else with the library's. `op` is `a` (allocated),
     * `f` (freed) or `x` (out of memory, serial 0); `stream` is a timeline's number, 0 for a synchronous call. */
    bool (*wants_events)(void);
    void (*event)(char op, CUdevice device, uint64_t serial, size_t size, uint32_t stream);
    /* The stack of a live block, 0 for none; and writes it to the log, without the lock. */
    uint32_t (*stack_of)(CUdevice device, uint64_t serial);
    void (*tell_stack)(uint32_t stack);
    /* Without the lock: an allocation failed, on the timeline of that id; 0: cudaMalloc; UINT64_MAX: PyTorch. */
    void (*out_of_memory)(CUdevice device, size_t asked, uint64_t timeline_id);
    /* Without the lock: as vp_lend_borrow(). */
    uint64_t (*borrow)(const CUuuid *uuid, uint64_t bytes, uint64_t least, enum vp_lend_some *some);
    /* Without the lock: as vp_lend_spare(). */
    uint64_t (*spare)(CUdevice device, const CUuuid *uuid);
    /* May the pool take more memory of the device? False while another process is about to be woken and needs it. */
    bool (*may_grow)(CUdevice device);
    /* Around a fork, with the lock held; and in the child, which has one thread. */
    void (*fork_prepare)(void);
    void (*fork_parent)(void);
    void (*fork_child)(void);
    /* The process ends. */
    void (*end)(void);
};

extern const struct vp_watch vp_watch;
