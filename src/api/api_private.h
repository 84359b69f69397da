/* The one state of the library, and what the files of this layer share. */
#ifndef VP_API_PRIVATE_H
#define VP_API_PRIVATE_H

#include "api/api.h"
#include "base/log.h"
#include "base/options.h"
#include "policy/policy.h"

#include <pthread.h>

enum { VP_DEVICES = 64 };

/* A stream-ordered memory pool that we serve. The handle is the driver's own, and owns no memory there. */
struct vp_mempool {
    CUmemoryPool handle;
    CUdevice device;
    bool is_default;
    bool ending;                /* being destroyed, or destroyed: the handle may be another pool's by now */
    bool dead;                  /* destroyed; stays while blocks count for it */
    size_t blocks;
    uint64_t used, used_high, reserved_high;
    uint64_t threshold;
    int reuse_events, reuse_opportunistic, reuse_internal;
    struct vp_list link;        /* vp_state.mempools */
};

struct vp_state {
    /* Guards everything below that is not atomic. Never held while a host wait runs. Driver calls are made under it; the driver
     * calls us back under none of its locks, but a tool's callback may: see vp_enter(). */
    pthread_mutex_t lock;
    atomic_int phase;           /* enum vp_phase */
    atomic_bool coupled;
    struct vp_driver drv;
    struct vp_lines lines;
    struct vp_pool *pools[VP_DEVICES];
    bool refused[VP_DEVICES];   /* the device cannot: said once, passed on */
    uint64_t peers[VP_DEVICES]; /* who may access the memory of this device */
    struct vp_mempool *current[VP_DEVICES]; /* the device's current pool; NULL: one that we do not serve */
    struct vp_list mempools;
    struct vp_map capturing;    /* handles of streams that began a capture, by id + 1 */
    struct vp_slab mempool_slab, pool_slab;
    atomic_uint_least64_t passed[VP_PASSED_COUNT];
    atomic_uint_least64_t waits_host[VP_DEVICES];
};

enum vp_phase { VP_CLOSED, VP_OPEN, VP_REFUSED };

extern struct vp_state vp_state;

/* Takes the lock. False: not open, or this thread is inside already (a tool's callback under a driver call of ours): pass the call on. */
bool vp_enter(void);
void vp_leave(void);

/* The pool of a device, opened at first use; NULL: the device's memory is not served. */
struct vp_pool *vp_state_pool(CUdevice dev);
/* The pool and live region that begins at `ptr`, or that holds it. */
struct vp_region *vp_state_find(CUdeviceptr ptr, struct vp_pool **pool);
struct vp_region *vp_state_find_inside(CUdeviceptr ptr, struct vp_pool **pool);

/* mempool.c. Registers the default pool of a device; accounts for a block. */
void vp_mempool_open_device(CUdevice dev);
struct vp_mempool *vp_mempool_of(CUmemoryPool handle);
void vp_mempool_took(struct vp_mempool *mp, size_t size);
void vp_mempool_gave(struct vp_mempool *mp, size_t size);

/* stats.c. The pattern with each %p replaced by the process id; false if it does not fit. */
bool vp_file_name(char *out, size_t room, const char *pattern);
void vp_stats_write(void);

/* trace.c: records `a` (allocated) or `f` (freed); `line` NULL for a synchronous call. */
void vp_trace_event(char op, const struct vp_pool *pool, const struct vp_region *r, const struct vp_line *line);
/* The file gets its true length; nothing is recorded any more. */
void vp_trace_end(void);

#endif
