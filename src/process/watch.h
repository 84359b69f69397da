/* What the process tells whoever watches it. Each is called by process/ alone, and filled in by watch/watch.c: a table
 * that is constant, so that the linker can make direct calls of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_PROCESS_WATCH_H
#define VP_PROCESS_WATCH_H

#include "pool/pool.h"

struct vp_watch {
    void (*opening)(void);
    /* With the lock held: a device's pool was made; the lock is about to be let go (while vp_state.published). */
    void (*pool_opened)(struct vp_pool *pool);
    void (*publish)(void);
    /* While vp_state.recording, without any lock: `a` (allocated) or `f` (freed); `stream` is a timeline's number, 0
     * for a synchronous call. And the program's own mark; false: nothing is recorded. */
    void (*event)(char op, CUdevice device, uint64_t serial, size_t size, uint32_t stream);
    bool (*mark)(const char *name);
    /* Without the lock: an allocation failed, on the timeline of that id (0: cudaMalloc). */
    void (*out_of_memory)(CUdevice device, size_t asked, uint64_t timeline_id);
    /* Without the lock: a dump as JSON, into an open file. 0 or a negative errno. */
    int (*dump)(int fd);
    /* Around a fork, with the lock held; and in the child, which has one thread. */
    void (*fork_prepare)(void);
    void (*fork_parent)(void);
    void (*fork_child)(void);
    /* The process ends. */
    void (*end)(void);
};

extern const struct vp_watch vp_watch;

#endif
